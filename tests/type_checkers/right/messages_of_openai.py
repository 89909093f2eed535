"""Messages of the SDK of OpenAI."""

from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageParam

import cnllm


def ask(history: list[ChatCompletionMessageParam], turn: ChatCompletionMessage) -> str:
    """Return the answer."""
    cnllm.call("glm-4.7", history)
    cnllm.call("glm-4.7", [turn, cnllm.Message.user("And?")])
    return cnllm.call("glm-4.7", [*history, turn]).text
