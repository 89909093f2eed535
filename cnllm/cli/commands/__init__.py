"""One file a command, imported when it is invoked."""
