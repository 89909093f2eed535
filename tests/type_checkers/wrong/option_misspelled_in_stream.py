"""An option of a stream has a typing error."""

import cnllm

client = cnllm.Client(simulate=True)
with client.stream("glm-4.7", "Hi", top_pp=0.5):  # type: ignore  # refused
    pass
