"""What the API of a protocol has beside replies: lists of models, counts of tokens, signs of life, and set phrases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

__all__ = ["ModelCard", "ServerApi"]


class ModelCard(Struct, frozen=True):
    """A model in a list: its name, its provider, and its limits in tokens, None where they are unknown."""

    name: str
    provider: str
    context: int | None = None
    output: int | None = None


class ServerApi(Struct, frozen=True):
    """The rest of one protocol's API.

    `write_models(cards, query)` returns a list of models and `write_model(card)` one. `read_count(body)` returns the
    request whose length a client asks for, and `write_count(tokens)` the answer, where the protocol has such requests.
    `id_prefix` begins the id of a reply.
    `count_paths` are the paths of requests that only ask for their length; `kept_replies` is the path below which the
    protocol has replies that a server keeps. `listing_header` shows that a client wants this protocol's list of models.
    `ping` is a piece of a stream that says nothing. `estimates_input`: a stream begins with the length of its request.
    `overflow_message` has the words and `overflow_code` the code by which clients know that a conversation is too long
    (`{tokens}`, `{limit}`); `overloaded_status` is the HTTP status of an overload and `budget_status` that of
    a budget that is spent. `token_parts` are the kinds of parts
    whose opaque field clients send back; `token_beside_text`: the text of the reasoning comes back beside it.
    """

    write_models: Callable[[Sequence[ModelCard], Mapping[str, str]], dict[str, Any]]
    write_model: Callable[[ModelCard], dict[str, Any]]
    id_prefix: str
    ping: bytes
    overflow_message: str
    overflow_code: str | None = None
    overloaded_status: int = 503
    budget_status: int = 429
    read_count: Callable[[dict[str, Any]], dict[str, Any]] = lambda body: body
    write_count: Callable[[int], dict[str, Any]] | None = None
    count_paths: tuple[str, ...] = ()
    kept_replies: str | None = None
    listing_header: str | None = None
    estimates_input: bool = False
    token_parts: tuple[type, ...] = ()
    token_beside_text: bool = False
