"""Names and messages out of other structures."""

from collections.abc import Sequence

import cnllm


def ask(models: Sequence[str], question: str) -> dict[str, str]:
    """Return the answer of each."""
    with cnllm.Client(simulate=True) as client:
        return {model: client.call(model, question).text for model in models}


def talk(messages: list[cnllm.Message]) -> cnllm.Message:
    """Return the next turn."""
    return cnllm.call("glm-4.7", messages).message


print(ask(["glm-4.7"], "Hi"), talk([cnllm.Message.user("Hi")]))
