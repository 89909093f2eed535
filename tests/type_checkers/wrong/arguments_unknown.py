"""The arguments of a call may be no object."""

import cnllm

client = cnllm.Client(simulate=True)
for call in client.call("glm-4.7", "Hi").tool_calls:
    print(call.arguments["city"])  # type: ignore  # refused
