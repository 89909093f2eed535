"""One module per peer; a function per task takes a Setting and returns the call that is timed."""
