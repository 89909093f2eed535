"""A kind of timeout does not exist."""

import cnllm

cnllm.Timeouts(first=3)  # type: ignore  # refused
