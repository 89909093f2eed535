"""A number is no content."""

import cnllm

cnllm.Message.user(3)  # type: ignore  # refused
