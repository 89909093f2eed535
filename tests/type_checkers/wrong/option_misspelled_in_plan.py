"""An option of plan has a typing error."""

import cnllm

client = cnllm.Client(simulate=True)
client.plan("glm-4.7", "Hi", sytem="Be brief.")  # type: ignore  # refused
