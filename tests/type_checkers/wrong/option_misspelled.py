"""An option has a typing error."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", "Hi", temprature=1)  # type: ignore  # refused
