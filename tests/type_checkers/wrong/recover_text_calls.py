"""A rule for calls in text does not exist."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", "Hi", recover_text_calls="drop")  # type: ignore  # refused
