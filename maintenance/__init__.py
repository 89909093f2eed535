"""Programs for those who keep the registry: they read public files and write or compare the registry's."""
