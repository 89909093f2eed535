"""A rule for cut streams does not exist."""

import cnllm

client = cnllm.Client(simulate=True)
client.stream("glm-4.7", "Hi", if_cut="retry")  # type: ignore  # refused
