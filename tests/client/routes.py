"""Two providers on real sockets, for the tests of routes."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cnllm import Registry
from cnllm.registry.read import builtin_path, read
from cnllm.registry.trusted_files import trust

from .peer import DONE, Peer, Script, delta, frame, stream, usage

ANSWER = "A gateway earns its trust on the day when the provider behind it breaks."
WORDS = ANSWER.split()
PREFILL = "messages.prefill = { set = { partial = true } }"


def tokens(first: int = 0, last: int | None = None) -> list[bytes]:
    """The deltas of the answer, one a word."""
    return [delta(word if number == 0 else f" {word}") for number, word in enumerate(WORDS)][first:last]


def named(script: list[bytes], model: str) -> list[bytes]:
    """The same bytes, with the name of the model that the endpoint says it is."""
    return [piece.replace(b'"model": "m"', b'"model": "%s"' % model.encode()) for piece in script]


def healthy(first: int = 0, model: str = "other-1") -> Script:
    """A whole stream, from a word on."""
    return [stream(*named([*tokens(first), delta(finish="stop"), usage(), DONE], model))]


def broken_chunk() -> bytes:
    return b'data: {"choices": [{"delta": {"con\n\n'


def error_frame(message: str) -> bytes:
    return frame({"error": {"message": message, "code": "server_error"}})


@contextlib.contextmanager
def two(
    folder: Path, first: list[Script], second: list[Script], flags: str = "", other: str = "", more: str = ""
) -> Iterator[tuple[Registry, Peer, Peer]]:
    """A registry with one/m and two/m, and the peers that serve them."""
    with Peer(*first) as one, Peer(*second) as two:
        path = folder / "routes.toml"
        path.write_text(
            f'[providers.one]\nprotocol = "openai-chat"\nbase_url = "{one.url}"\nkeys = ["ONE_KEY"]\n{flags}\n'
            f'[models."one/m"]\n'
            f'[providers.two]\nprotocol = "openai-chat"\nbase_url = "{two.url}"\nkeys = ["TWO_KEY"]\n{other}\n'
            f'[models."two/m"]\n{more}\n',
            encoding="utf-8",
        )
        trust(path)
        yield Registry([read(builtin_path(), builtin=True), read(path)]), one, two


def text_of(events: list[Any]) -> str:
    return "".join(event.text for event in events if type(event).__name__ == "TextDelta")


def codes(notes: Any) -> list[str]:
    return [note.code for note in notes if note.code.startswith(("target-", "option-foreign"))]
