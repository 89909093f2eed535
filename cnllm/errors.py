"""The tree of errors.

    CnllmError
    ├── RegistryError            a registry file is wrong: file, line
    ├── UnknownModel             no such model: close
    ├── KeyMissing               no API key: env
    ├── Untrusted                a key would go to an untrusted origin: origin
    ├── ClientClosed             the client was closed before this call
    ├── CannotSend               the request cannot be built with these options: note
    ├── NoTarget                 no target of a route can take the request: targets
    ├── StreamCut                the stream ended without its terminator
    │   └── ReplyTooLarge        the reply exceeds a limit on its bytes: limit, most
    ├── McpError                 an MCP server cannot be used: server, stderr
    ├── LoopStopped              a tool loop ended before the model had finished: run
    ├── EndpointError            the endpoint returned an error: status, message, code, body, retry_after, retryable
    │   ├── BadKey  QuotaExceeded  RateLimited  Overloaded
    │   └── ContextTooLong  ContentFiltered  ReplayMissing  BadRequest  EmptyReply
    └── TransportError           the network failed
        └── Timeout
            └── IdleTimeout      bytes or progress stopped in the middle

The part of a reply that arrived before the error is in `.reply` (or None). No message, repr or attribute holds a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from cnllm.types import Cost, Note, Part, Reply

__all__ = [
    "BadKey",
    "BadRequest",
    "CannotSend",
    "ClientClosed",
    "CnllmError",
    "ContentFiltered",
    "ContextTooLong",
    "EmptyReply",
    "EndpointError",
    "IdleTimeout",
    "KeyMissing",
    "LoopStopped",
    "McpError",
    "NoTarget",
    "Overloaded",
    "QuotaExceeded",
    "RateLimited",
    "RegistryError",
    "ReplayMissing",
    "ReplyTooLarge",
    "StreamCut",
    "Timeout",
    "TransportError",
    "UnknownModel",
    "Untrusted",
]

ADJUST = "-p on_unsupported=adjust (in Python on_unsupported='adjust')"
"""How to allow adjustments, for hints: on the command line, and in Python. The gateway names its header instead."""


class Meaning(NamedTuple):
    """The consequences of a failure.

    `again`: the same request may succeed later. `charged`: the endpoint may ask money for it. `load`: the endpoint may
    have too much to do. `elsewhere`: another endpoint may serve the request. `cools`: this endpoint is passed over for
    a while. `key`: no other request with this key will succeed. In the table of a class, None depends on the response.
    """

    again: bool | None = False
    charged: bool | None = False
    load: bool | None = False
    elsewhere: bool | None = False
    cools: bool | None = False
    key: bool | None = False


_ELSEWHERE = frozenset((401, 402, 403, 404, 405, 408, 409, 410, 425, 429))
"""The statuses below 500 by which an endpoint refuses what another one may take."""


class CnllmError(Exception):
    """The root of all errors. `reply` is the partial reply, `hint` the next step, `run` the tool loop that it ended.

    `attempt_costs` are the costs of other attempts of the same call that may be charged, None for an unknown one. Where
    there is a `reply`, they are in its cost.

    `targets` are the targets of a route that did not answer: pairs of a model and the reason. The hint is also a note
    of the exception, so that a traceback ends with it.
    """

    class_meaning: ClassVar[Meaning] = Meaning()
    retryable: bool = False
    retry_after: float | None = None
    run: Any = None
    attempt_costs: tuple[Cost | None, ...] = ()
    targets: tuple[tuple[str, str], ...] = ()
    _hint: str | None = None

    def __init__(self, message: str, *, hint: str | None = None, reply: Reply | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.reply = reply

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to copy the error into another process: arguments that only `__init__` knows need not be given."""
        return _restore_error, (type(self), self.args), dict(vars(self))

    @property
    def meaning(self) -> Meaning:
        """Return what the failure means: the table of its class, completed by what the response says.

        What has arrived may be charged, whatever the class: a part of a reply, the steps of a tool loop, or an attempt
        before this one.
        """
        meaning = self._own_meaning()
        return meaning if meaning.charged else meaning._replace(charged=self._has_arrived() or bool(self.attempt_costs))

    def _own_meaning(self) -> Meaning:
        """Return the meaning of this failure alone."""
        table = self.class_meaning
        return Meaning(*(b if a is None else a for a, b in zip(table, self._response_meaning(), strict=True)))

    def _response_meaning(self) -> Meaning:
        return Meaning()

    def _has_arrived(self) -> bool:
        reply = self.reply
        if reply is not None and (reply.message.parts or reply.usage.input or reply.usage.output):
            return True
        return self.run is not None and self.run.is_charged

    @property
    def costs(self) -> tuple[Cost | None, ...]:
        """Return the costs of what may be charged for the call, failed attempts included; None is unknown.

        Where the error ended a tool loop after a reply, it is the cost of the whole loop.
        """
        if self.run is not None and self.run.is_charged:
            return (self.run.cost,)
        if self.reply is not None and self.meaning.charged:
            return (self.reply.cost,)
        return (*self.attempt_costs, *((None,) if self._own_meaning().charged else ()))

    @property
    def cost(self) -> Cost | None:
        """Return the cost of the call with its failed attempts, and what it leaves out; None where it is unknown."""
        from cnllm.types.totals import sum_costs  # the command line needs errors where it needs no replies

        return sum_costs(self.costs)

    def add_attempts(self, costs: Sequence[Cost | None]) -> None:
        """Add the costs of other attempts of the same call."""
        if not costs:
            return
        if (reply := self.reply) is not None:
            from msgspec.structs import replace

            from cnllm.types.totals import sum_costs, with_costs

            is_free = reply.cost is None and not self._own_meaning().charged and not self._has_arrived()
            self.reply = replace(reply, cost=sum_costs(costs)) if is_free else with_costs(reply, costs)
        self.attempt_costs = (*costs, *self.attempt_costs)

    @property
    def hint(self) -> str | None:
        """Return what to do next, None where that is not known."""
        return self._hint

    @hint.setter
    def hint(self, hint: str | None) -> None:
        before: list[str] = getattr(self, "__notes__", [])
        notes = [note for note in before if note != self._hint]
        self._hint = hint
        self.__notes__ = [*notes, hint] if hint else notes


def _restore_error(kind: type[CnllmError], args: tuple[Any, ...]) -> CnllmError:
    """Return an error without its attributes, which follow."""
    error = kind.__new__(kind, *args)
    error.args = args
    return error


class RegistryError(CnllmError):
    """A registry file is wrong. `file` and `line` (1-based, None without a single line) name the place."""

    class_meaning = Meaning()

    def __init__(
        self, message: str, *, file: str | None = None, line: int | None = None, hint: str | None = None
    ) -> None:
        place = f"{file}:{line}: " if file is not None and line is not None else f"{file}: " if file is not None else ""
        super().__init__(f"{place}{message}", hint=hint)
        self.file = file
        self.line = line


class UnknownModel(CnllmError):
    """No model has this name. `close` lists similar names, nearest first."""

    class_meaning = Meaning()

    def __init__(self, message: str, *, close: list[str] | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.close = close or []


class KeyMissing(CnllmError):
    """No key is set. `env` lists the environment variables that are searched, best first."""

    class_meaning = Meaning(elsewhere=True, key=True)

    def __init__(self, message: str, *, env: list[str], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.env = env


class Untrusted(CnllmError):
    """A key would go to an origin that the user has not trusted. `origin` is scheme, host and port."""

    class_meaning = Meaning(elsewhere=True, key=True)

    def __init__(self, message: str, *, origin: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.origin = origin


class ClientClosed(CnllmError):
    """The client was closed before this call: its `with` block has ended, or `close` was called."""

    class_meaning = Meaning()


class CannotSend(CnllmError):
    """The request cannot be built with these options. `note` names the reason, and the line of the registry.

    `part` is the part of a message that the model cannot read, where that is the reason.
    """

    class_meaning = Meaning(elsewhere=True)

    def __init__(self, message: str, *, note: Note, part: Part | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.note = note
        self.part = part


class NoTarget(CnllmError):
    """No target of a route can take the request. `targets` holds each with its reason; nothing was sent."""

    class_meaning = Meaning()

    def __init__(self, message: str, *, targets: tuple[tuple[str, str], ...], hint: str | None = None) -> None:
        super().__init__(message, hint=hint or "name a target that can, or change the request")
        self.targets = targets


class StreamCut(CnllmError):
    """The stream ended without its terminator. `reply` holds the partial reply, with finish `cut`."""

    class_meaning = Meaning(again=True, charged=True, load=True, elsewhere=True, cools=True)


class ReplyTooLarge(StreamCut):
    """A reply, streamed or whole, exceeds a limit on its bytes. The rest was not read.

    `limit` is the name in `cnllm.Limits` that set the bound ("max_reply_bytes" or "max_event_bytes"), `most` its value.
    """

    class_meaning = Meaning(again=True, charged=True)  # with a higher limit

    def __init__(self, *, limit: str, most: int, reply: Reply | None = None) -> None:
        subject = "an event of the reply" if limit == "max_event_bytes" else "the reply"
        count = f"{most:,}" if type(most) is int else "so many"
        super().__init__(
            f"{subject} has more than {count} bytes ({limit}); the rest was not read",
            hint=f"if you expect such a long reply, raise the limit: limits=cnllm.Limits({limit}=…)",
            reply=reply,
        )
        self.limit = limit
        self.most = most


class McpError(CnllmError):
    """An MCP server cannot be started, reached or asked. `server` is its command or URL, `stderr` its last lines."""

    class_meaning = Meaning()

    def __init__(
        self, message: str, *, server: str = "", stderr: tuple[str, ...] = (), hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.server = server
        self.stderr = stderr


class LoopStopped(CnllmError):
    """A tool loop ended before the model had finished. `run` holds its messages and steps."""

    class_meaning = Meaning(charged=True)

    def __init__(self, message: str, *, run: Any, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.run = run


class EndpointError(CnllmError):
    """The endpoint refused the request, or reported a failure.

    `status` is the HTTP status (200 for an error inside a body or a stream); `message` the endpoint's own sentence;
    `code` its code, as text; `body` the response body, as text; `retry_after` seconds; `retryable` whether the same
    request may succeed later.
    """

    class_meaning = Meaning(again=None, charged=None, load=None, elsewhere=None, cools=None)

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str | None = None,
        body: str = "",
        retry_after: float | None = None,
        retryable: bool = False,
        reply: Reply | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, reply=reply)
        self.status = status
        self.code = code
        self.body = body
        self.retry_after = retry_after
        self.retryable = retryable

    def _response_meaning(self) -> Meaning:
        at_fault = self.retryable or self.status in _ELSEWHERE or self.status >= 500 or not self._is_request_at_fault()
        return Meaning(self.retryable, self.status < 400, self.retryable, at_fault, at_fault)

    def _is_request_at_fault(self) -> bool:
        return 400 <= self.status < 500


class BadKey(EndpointError):
    """The key is missing, wrong, expired or not allowed to make this request."""

    class_meaning = Meaning(again=None, elsewhere=True, cools=True, key=True)


class QuotaExceeded(EndpointError):
    """The balance or a plan's allowance is spent; waiting a few seconds will not help."""

    class_meaning = Meaning(again=None, elsewhere=True, cools=True, key=True)


class RateLimited(EndpointError):
    """Too many requests for now."""

    class_meaning = Meaning(again=None, load=True, elsewhere=True, cools=True)


class Overloaded(EndpointError):
    """The endpoint is too busy or broken for now."""

    class_meaning = Meaning(again=None, charged=None, load=None, elsewhere=True, cools=True)


class ContextTooLong(EndpointError):
    """The conversation does not fit into the model's window."""

    class_meaning = Meaning(again=None, load=None, elsewhere=True)


class ContentFiltered(EndpointError):
    """A moderation rule refused the request."""

    class_meaning = Meaning(again=None, charged=None, load=None)


class ReplayMissing(EndpointError):
    """The endpoint misses reasoning that must be sent back with an earlier turn."""

    class_meaning = Meaning(again=None, load=None, elsewhere=True)


class BadRequest(EndpointError):
    """The endpoint does not accept this request. The same request will fail again."""

    class_meaning = Meaning(again=None, load=None, elsewhere=None, cools=None)

    def _is_request_at_fault(self) -> bool:
        return True


class EmptyReply(EndpointError):
    """The reply is empty: no text, no reasoning, no call, no refusal, and no length finish to explain it.

    `ends_turn`: the model ended its turn without a word, and the endpoint's protocol has such replies as complete ones.
    """

    class_meaning = Meaning(again=True, charged=None, load=None, elsewhere=True)
    ends_turn: bool = False

    def _own_meaning(self) -> Meaning:
        return super()._own_meaning()._replace(again=not self.ends_turn)  # the model would be done again


class TransportError(CnllmError):
    """The network failed before or during a reply. `retryable`: no byte had arrived, and another attempt may succeed.

    `began`: the body of a reply had begun and broke off. Such a request may cost money. `sent`: the endpoint may have
    got the request; False where no connection was established. `worker_lost`: the process that sent the request ended
    before it had passed the answer on, which says nothing about the endpoint.
    """

    class_meaning = Meaning(again=True, charged=None, load=None, elsewhere=True, cools=True)

    def __init__(
        self, message: str, *, retryable: bool = False, hint: str | None = None, reply: Reply | None = None
    ) -> None:
        super().__init__(message, hint=hint, reply=reply)
        self.retryable = retryable
        self.began = False
        self.sent = True
        self.worker_lost = False

    def _response_meaning(self) -> Meaning:
        return Meaning(charged=self.sent, load=not self.worker_lost)


class Timeout(TransportError):
    """No connection, or no first byte, arrived in time."""

    class_meaning = Meaning(again=True, charged=None, load=None, elsewhere=True, cools=True)


class IdleTimeout(Timeout):
    """A reply began and then stopped: no bytes, or no progress, for too long."""

    class_meaning = Meaning(again=True, charged=None, load=None, elsewhere=True, cools=True)


ERRORS: dict[str, type[CnllmError]] = {
    name: value for name, value in globals().items() if isinstance(value, type) and issubclass(value, CnllmError)
}
"""The errors, by name."""
