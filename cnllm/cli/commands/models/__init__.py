"""`cnllm models`: one file a subcommand, imported when it is invoked."""
