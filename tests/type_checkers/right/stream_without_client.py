"""A stream without a client."""

import cnllm

with cnllm.stream("glm-4.7", "Hi", reasoning="off") as stream:
    for event in stream:
        if isinstance(event, cnllm.TextDelta):
            print(event.text, end="")
    reply = stream.reply
print(reply.usage.output)
