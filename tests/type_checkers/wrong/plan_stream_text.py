"""Whether a plan streams is true or false."""

import cnllm

client = cnllm.Client(simulate=True)
client.plan("glm-4.7", "Hi", stream="yes")  # type: ignore  # refused
