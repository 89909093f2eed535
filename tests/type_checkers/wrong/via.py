"""A way that a call arrives does not exist."""

import cnllm

client = cnllm.Client(simulate=True)
for call in client.call("glm-4.7", "Hi").tool_calls:
    print(call.via == "txt")  # type: ignore  # refused
