"""Find which flags of a model show, and whether two sets of flags answer alike."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import unquote

import msgspec

from benchmarks.probe import variants
from benchmarks.probe.requests import Request, plain_model, requests
from benchmarks.probe.variants import Tree
from cnllm import Registry
from cnllm.registry.model import Model
from cnllm.simulator.transport import respond

_TIMES = re.compile(rb'"(?:created_at|completed_at)":\d+,?')
_NEVER = ("keys", "path", "limits.context")
"""Flags that say where and with what to ask, and the length of a window, which takes a prompt as long."""


class Endpoint:
    """The simulator of a model, with the answers of its own flags to all requests."""

    def __init__(self, registry: Registry, model: Model) -> None:
        self.model = model
        self.flags = variants.tree(model)
        self.plain = variants.tree(plain_model(registry, model.protocol))
        self._requests = requests(registry, model, self.flags)
        own = variants.make(model, self.flags)
        self._answers = [_answer(own, request) for request in self._requests]
        every = range(len(self._requests))
        self._order = [n for n in every if self._requests[n].own]
        self._foreign = [n for n in every if not self._requests[n].own]

    @property
    def first(self) -> Request:
        """The plainest request of all."""
        return self._requests[4]

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
        names = [fact.flag for fact in self.model.explain() if fact.flag not in _NEVER]
        out: list[str] = []
        for group in _groups(names):
            if self._group_shows(group):
                out += [name for name in group if self._shows(name)]
        return out

    def _group_shows(self, group: list[str]) -> bool:
        """Whether any flag of a table may show: all change at once, because most tables are nothing to a server."""
        values = [list(variants.others(self.flags, name)) for name in group]
        for nth in range(max(map(len, values))):
            flags = self.flags
            for name, others in zip(group, values, strict=True):
                flags = variants.changed(flags, name, others[min(nth, len(others) - 1)])
            if self.tells_apart(flags) is not None or not variants.valid(flags):
                return True
        return False

    def _shows(self, name: str) -> bool:
        return any(
            self.tells_apart(variants.changed(self.flags, name, value)) is not None
            for value in variants.others(self.flags, name)
        )


def _top(name: str) -> str:
    return name.partition(".")[0]


def _groups(names: list[str]) -> list[list[str]]:
    out: dict[str, list[str]] = {}
    for name in names:
        out.setdefault(_top(name), []).append(name)
    return list(out.values())


def _answer(model: Model, request: Request) -> tuple[int, bytes]:
    headers = dict(request.headers)
    response = respond(model, headers, request.content, unquote(request.path), strict=True, public_name="model-1")
    return response.status, _TIMES.sub(b"", b"".join(response.pieces))
