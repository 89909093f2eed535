"""A finish does not exist."""

import cnllm

client = cnllm.Client(simulate=True)
reply = client.call("glm-4.7", "Hi")
print(reply.finish == "finished")  # type: ignore  # refused
