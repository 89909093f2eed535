"""Where cnllm finds its settings, folders and keys, and how it keeps secrets out of what it writes."""
