"""An option of a tool loop has a typing error."""

import cnllm

client = cnllm.Client(simulate=True)
client.run("glm-4.7", "Hi", max_step=3)  # type: ignore  # refused
