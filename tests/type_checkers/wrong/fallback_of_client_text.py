"""The models that take over are a list, for a client too."""

import cnllm

cnllm.Client(fallback="kimi-k2.6")  # type: ignore  # refused
