"""The extra body is a dict."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", "Hi", extra_body="min_p=0.1")  # type: ignore  # refused
