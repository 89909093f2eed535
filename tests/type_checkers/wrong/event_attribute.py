"""Not every event has a text."""

import cnllm

client = cnllm.Client(simulate=True)
with client.stream("glm-4.7", "Hi") as stream:
    for event in stream:
        print(event.text)  # type: ignore  # refused
