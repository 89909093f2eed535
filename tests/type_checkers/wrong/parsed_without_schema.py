"""Without a schema there is no answer to it."""

import cnllm

reply = cnllm.call("glm-4.7", "The largest city?")
print(reply.parsed.name)  # type: ignore  # refused
