"""Define the parameters of a model that are options of a call."""

from __future__ import annotations

__all__ = ["PARAMETERS", "SWITCH", "WHOLE", "Parameter"]


class Parameter:
    """A parameter of the model: its help, the types of its values, in words too, and the least and the most at all.

    The registry has what one endpoint takes.
    """

    def __init__(
        self, help: str, types: tuple[type, ...], form: str, least: int | None = None, most: int | None = None
    ) -> None:
        self.help = help
        self.types = types
        self.form = form
        self.least = least
        self.most = most


_NUMBER = (int, float), "a number"
WHOLE = (int,), "a whole number"
SWITCH = (bool,), "true or false"

PARAMETERS: dict[str, Parameter] = {
    "temperature": Parameter("How freely the model samples.", *_NUMBER, 0),
    "top_p": Parameter("The share of probability it samples from.", *_NUMBER, 0, 1),
    # servers of open weights have -1 for "all"
    "top_k": Parameter("The number of tokens it samples from.", *_NUMBER, -1),
    "max_tokens": Parameter("The most tokens of the answer.", *WHOLE, 1),
    "stop": Parameter("A text that ends the answer. Repeatable.", (str, list), "text, or a list of texts"),
    "seed": Parameter("Make sampling repeatable, where the endpoint can.", *WHOLE),
    "presence_penalty": Parameter("Make tokens that have occurred less likely.", *_NUMBER),
    "frequency_penalty": Parameter("Make tokens less likely each time they occur.", *_NUMBER),
    "logit_bias": Parameter("JSON: the bias of each token.", (dict,), "a JSON object: the bias of each token"),
    "logprobs": Parameter("The log probabilities of the answer's tokens: true or false.", (int, bool), SWITCH[1]),
    "top_logprobs": Parameter("The number of likeliest tokens in them.", *WHOLE, 0),
    "parallel_tool_calls": Parameter("Whether several calls may come at once: true or false.", *SWITCH),
}
"""The parameters that the registry knows, each an option of a call. A test compares them with the registry."""
