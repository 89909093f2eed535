"""The adapters of `cnllm.transport`: httpx's, and a faster one of our own over httptools (see `fast`)."""
