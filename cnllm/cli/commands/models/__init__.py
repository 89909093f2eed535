"""Hold the subcommands of `cnllm models`, one per file, imported when they run."""
