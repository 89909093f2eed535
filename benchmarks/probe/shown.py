"""Find which flags of a model show, and whether two sets of flags answer alike."""

from __future__ import annotations

import hashlib
import re
from typing import Any
from urllib.parse import unquote

import msgspec

from benchmarks.probe import variants
from benchmarks.probe.requests import Request, plain_model, requests
from benchmarks.probe.variants import Tree
from cnllm import Registry
from cnllm.registry.model import Model
from cnllm.simulator.respond import Endpoints

_TIMES = re.compile(rb'"(?:created_at|completed_at)":\d+,?')
_NEVER = ("keys", "path", "limits.context")
"""Flags that say where and with what to ask, and the length of a window, which takes a prompt as long."""


class Endpoint:
    """The simulator of a model, with the answers of its own flags to all requests."""

    def __init__(self, registry: Registry, model: Model) -> None:
        self.model = model
        self.flags = variants.tree(model)
        self.plain = variants.tree(plain_model(registry, model.protocol))
        self.names = [fact.flag for fact in model.explain() if fact.flag not in _NEVER]
        self._requests = requests(registry, model, self.flags)
        own = variants.make(model, self.flags)
        self._answers = [_answer(own, request) for request in self._requests]
        every = range(len(self._requests))
        self._order = [n for n in every if self._requests[n].own]
        self._foreign = [n for n in every if not self._requests[n].own]

    @property
    def first(self) -> Request:
        """The plainest request that the endpoint takes, which may be a streamed one; the first where it takes none."""
        pairs = zip(self._requests[4:], self._answers[4:], strict=True)
        return next((request for request, (status, _) in pairs if status == 200), self._requests[4])

    @property
    def digest(self) -> str:
        """A digest of the requests."""
        return hashlib.sha256(msgspec.json.encode(self._requests)).hexdigest()

    def tells_apart(self, flags: Tree, *, foreign: bool = False) -> Request | None:
        """Return a request that these flags answer otherwise; None where no request shows it.

        `foreign`: try those too that other endpoints' flags suggest. The model's own flags do not read them.
        """
        try:
            other = variants.make(self.model, flags)
        except (msgspec.ValidationError, TypeError):
            return None
        for place, number in enumerate(self._order):
            if _answer(other, self._requests[number]) != self._answers[number]:
                self._order.insert(0, self._order.pop(place))  # what told two apart may do so again
                return self._requests[number]
        for number in self._foreign if foreign else ():
            if _answer(other, self._requests[number]) != self._answers[number]:
                return self._requests[number]
        return None

    def shown(self) -> list[str]:
        """Return the flags of which another value changes an answer."""
        names = self.names
        values = {name: list(variants.others(self.flags, name)) for name in names}
        found: set[str] = set()
        for nth in range(max(map(len, values.values()))):
            left = [name for name in names if name not in found and len(values[name]) > nth]
            found.update(self._showing(left, {name: values[name][nth] for name in left}))
        return [name for name in names if name in found]

    def differing(self) -> list[str]:
        """Return the flags that differ from what is assumed of any endpoint of the wire, and show it."""
        assumed = {name: variants.get(self.plain, name) for name in self.names}
        names = [name for name in self.names if assumed[name] != variants.get(self.flags, name)]
        return [n for n in names if self.tells_apart(variants.changed(self.flags, n, assumed[n])) is not None]

    def knows(self, name: str) -> bool:
        """Whether each key of a path stands in an answer of the endpoint to any of the requests."""
        words = [re.compile(rb"(?<!\w)" + re.escape(key.encode()) + rb"(?!\w)") for key in name.split(".")]
        return any(all(word.search(answer) for word in words) for _, answer in self._answers)

    def _showing(self, names: list[str], values: dict[str, Any]) -> list[str]:
        """Return which of these flags show with these values: all at once, then halves, because most of them do not."""
        flags = self.flags
        for name in names:
            flags = variants.changed(flags, name, values[name])
        if not names or (variants.valid(flags) and self.tells_apart(flags) is None):
            return []
        if len(names) == 1:
            return names if variants.valid(flags) else []
        half = len(names) // 2
        return [*self._showing(names[:half], values), *self._showing(names[half:], values)]


def _answer(model: Model, request: Request) -> tuple[int, bytes]:
    headers = dict(request.headers)
    response = Endpoints(strict=True).respond(
        model, headers, request.content, unquote(request.path), public_name="model-1"
    )
    return response.status, _TIMES.sub(b"", b"".join(response.pieces))
