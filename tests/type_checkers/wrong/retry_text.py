"""A number of attempts is a number."""

import cnllm

cnllm.Client(retry=cnllm.Retry(attempts="3"))  # type: ignore  # refused
