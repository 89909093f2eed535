"""Messages in each form."""

import json
from typing import Any

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", "Hi")
client.call("glm-4.7", ["Hi", "And?"])
client.call("glm-4.7", {"role": "user", "content": "Hi"})
client.call("glm-4.7", [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
client.call("glm-4.7", [cnllm.Message.system("Be brief."), {"role": "user", "content": "Hi"}, "And?"])
client.call("glm-4.7", [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}])
client.call("glm-4.7", [{"role": "user", "content": text} for text in ("a", "b")])
client.call("glm-4.7", (cnllm.Message.user(text) for text in ("a", "b")))
history: list[cnllm.MessageDict] = [{"role": "user", "content": "Hi"}]
history.append({"role": "assistant", "content": "Hello", "reasoning": "hm", "by": "zai/glm-4.7"})
client.call("glm-4.7", history)
stored: list[dict[str, Any]] = json.loads("[]")
client.call("glm-4.7", stored)
client.call("glm-4.7", [*stored, {"role": "user", "content": "Hi"}])
client.call("glm-4.7", json.loads("[]"))


def ask(messages: cnllm.Messages) -> str:
    """Return the answer."""
    return client.call("glm-4.7", messages).text


ask("Hi")
ask(history)
