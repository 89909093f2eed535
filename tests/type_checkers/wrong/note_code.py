"""A code of a note does not exist."""

import cnllm

client = cnllm.Client(simulate=True)
for note in client.call("glm-4.7", "Hi").notes:
    print(note.code == "param-droped")  # type: ignore  # refused
