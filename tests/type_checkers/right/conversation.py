"""A conversation of several turns."""

import cnllm

history: list[cnllm.Message | cnllm.MessageDict] = [{"role": "user", "content": "Hi"}]
with cnllm.Client(simulate=True) as client:
    for question in ("Why?", "And then?"):
        reply = client.call("glm-4.7", history, system="Be brief.")
        history += [reply.message, cnllm.Message.user(question)]
