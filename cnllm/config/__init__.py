"""Settings, folders, keys, private files, and the removal of secrets from logs and messages."""
