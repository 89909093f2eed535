"""A role does not exist."""

import cnllm

client = cnllm.Client(simulate=True)
reply = client.call("glm-4.7", "Hi")
print(reply.message.role == "assistent")  # type: ignore  # refused
