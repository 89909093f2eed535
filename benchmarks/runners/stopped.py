"""What a peer does before it sends: its own public call, up to the moment when its HTTP client is to connect."""

import json
from collections.abc import Callable
from typing import Any, NoReturn

from benchmarks.payloads import LONG


class Sent(BaseException):
    """The request that was to go out. No `Exception`, so that nobody on the way takes it for a fault to retry."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.content = content


class Stop:
    """A transport of httpx (or its successor) that sends nothing."""

    def handle_request(self, request: Any) -> NoReturn:
        raise Sent(request.read())

    async def handle_async_request(self, request: Any) -> NoReturn:
        raise Sent(await request.aread())

    def close(self) -> None:
        """There is nothing to close."""

    async def aclose(self) -> None:
        """Nor here."""


def until_sent(call: Callable[[], object]) -> Callable[[], int]:
    """The call, ended where it would send; its body is checked once."""

    def one() -> bytes:
        try:
            call()
        except Sent as sent:
            return sent.content
        raise SystemExit("wrong result: nothing was to be sent")

    check_body(one())
    return lambda: bool(one())


def check_body(content: bytes) -> None:
    """All that was asked for is in the request: a peer may add to it, not leave out."""
    body = json.loads(content)
    for name, wanted in LONG.items():
        if body.get(name) != wanted:
            raise SystemExit(f"wrong result: {name} of the request is not what was asked for")
