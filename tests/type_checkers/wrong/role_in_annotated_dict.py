"""The role of an annotated dict has a typing error."""

import cnllm

message: cnllm.MessageDict = {"role": "asistant", "content": "Hi"}  # type: ignore  # refused
print(message)
