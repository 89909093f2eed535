"""A wrapper passes its options on."""

from typing import Unpack

import cnllm


def ask(question: str, **options: Unpack[cnllm.CallOptions]) -> str:
    """Return the answer."""
    return cnllm.call("glm-4.7", question, **options).text


def work(question: str, **options: Unpack[cnllm.RunOptions]) -> str:
    """Return the answer of a tool loop."""
    return cnllm.run("glm-4.7", question, **options).reply.text


ask("Hi", reasoning="low", max_tokens=500, schema={"type": "object"})
work("Hi", max_steps=3, temperature=0.5)
options: cnllm.CallOptions = {"temperature": 0.5}
ask("Hi", **options)
