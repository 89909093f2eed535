"""Measure a peer before it sends: its own public call, up to the moment when its HTTP client would connect."""

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
        """Do nothing: there is nothing to close."""

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


def until_sent(call: Callable[[], object]) -> Callable[[], int]:
    """Run the call, ended where it would send; check its body once."""

    def one() -> bytes:
        try:
            call()
        except Sent as sent:
            return sent.content
        raise SystemExit("wrong result: nothing was to be sent")

    check_body(one())
    return lambda: bool(one())


def check_body(content: bytes) -> None:
    """Check that everything asked for is in the request: a peer may add to it, but not leave out."""
    body = json.loads(content)
    for name, wanted in LONG.items():
        if body.get(name) != wanted:
            raise SystemExit(f"wrong result: {name} of the request is not what was asked for")
