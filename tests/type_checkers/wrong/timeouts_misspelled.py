"""A kind of timeout does not exist."""

import cnllm

cnllm.Timeouts(first=3)  # refused
