"""A wrapper passes its options on, and its caller has a typing error."""

from typing import Unpack

import cnllm


def ask(question: str, **options: Unpack[cnllm.CallOptions]) -> str:
    """Return the answer."""
    return cnllm.call("glm-4.7", question, **options).text


ask("Hi", temprature=1)  # type: ignore  # refused
