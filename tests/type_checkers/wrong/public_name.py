"""There is no such name."""

import cnllm

print(cnllm.completion)  # type: ignore  # refused
