"""A number is no part."""

import cnllm

cnllm.Message("user", [3])  # type: ignore  # refused
