"""An error has no such attribute."""

import cnllm

client = cnllm.Client(simulate=True)
try:
    client.call("glm-4.7", "Hi")
except cnllm.EndpointError as error:
    print(error.status_code)  # type: ignore  # refused
