"""A request that is ready to be sent, except for the key, and the rules about the calls in its reply.

A reply may hold the calls that the request offered and chose. Calls that break the rules are noted and never executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from cnllm.config.redact import MARK, is_harmless_header
from cnllm.engine.encode.structured import OutputMethod
from cnllm.jsonpath import get
from cnllm.protocols import wire
from cnllm.registry.flags import Flags, Prefill, WebSearchFlags
from cnllm.registry.model import Model
from cnllm.types import Message, Note
from cnllm.types.policy import Limits, Recovery, TextCalls, Timeouts
from cnllm.types.tools import Function

if TYPE_CHECKING:
    from cnllm.types.note_codes import NoteCode

__all__ = [
    "CallRules",
    "Plan",
    "unknown_plan",
]


class _Exclusion(Struct, frozen=True):
    """The reason why a call is never executed; `code` and `flag` are those of its note."""

    code: NoteCode
    flag: str
    reason: str


class CallRules(Struct, frozen=True, kw_only=True):
    """The calls that the caller allows.

    `names` are the tools of the request. It is None where none was offered, or where the endpoint brings its own tools:
    a call of any name is shown then, and there is no function that could be executed.

    `choice` and `tool_name` are the caller's. `forced` means that the request demands a call, `single` that it allows
    one at most. `answer` is the tool whose call is the answer, which nobody executes.
    """

    names: frozenset[str] | None = None
    choice: Literal["auto", "none", "required", "named"] | None = None
    tool_name: str | None = None
    forced: bool = False
    single: bool = False
    answer: str | None = None

    def exclusion(self, name: str) -> _Exclusion | None:
        """Return why a call of this name is never executed; None where it may be."""
        if name == self.answer:
            return None
        if self.choice == "none":
            return _Exclusion("call-excluded", "tool_choice", "tool_choice='none' excludes it")
        if self.names is not None and name not in self.names:
            return _Exclusion("call-not-offered", "tools", "no tool of exactly this name was offered")
        if self.choice == "named" and name != self.tool_name:
            return _Exclusion("call-excluded", "tool_choice", f"tool_choice={self.tool_name!r} excludes it")
        return None

    def ignored_wishes(self, calls: Sequence[str]) -> list[tuple[NoteCode, str, str]]:
        """Return (code, said, did) for each option that a whole reply with these calls did not follow."""
        out: list[tuple[NoteCode, str, str]] = []
        if self.forced and not any(self.choice == "required" or name == self.tool_name for name in calls):
            subject = f"tool_choice={self.tool_name or self.choice!r}"
            out.append(("tool-choice-ignored", subject, "the endpoint ignored it: the reply holds no such call"))
        if self.single and len(calls) > 1:
            subject = "parallel_tool_calls=False"
            out.append(("parallel-ignored", subject, f"the endpoint ignored it: the reply holds {len(calls)} calls"))
        return out


class Plan(Struct, frozen=True, kw_only=True):
    """A request, ready except for the key, and the decisions that were made for it.

    The request: `method`, `url`, `headers` (the key is the placeholder `{key}`) and `content`, the bytes of the body;
    `body` is what they say. `notes` name every change to what the caller asked for. `flags` are those of the request's
    mode; the reply is read by them. `stream` says whether a stream goes over the wire.

    For the reply: `tools` are those that were offered, `callable` those that may be called, `renamed` maps a
    function's name on the wire to the caller's, `call_rules` say which calls the reply may hold (None: any),
    `strict_forms` hold the caller's own parameters, by tool, where strict mode changed them. `prompted` says that the
    tools are described in the prompt and that calls come as text; `text_calls` says what becomes of calls written as
    text, where the caller does. `answer` is the method for an answer by the `schema`, `corrections` how often an
    invalid answer is sent back; `corrects_inputs` says whether a call of a custom tool is, whose input does not follow
    the grammar of the tool. `messages` are the conversation as the caller gave it, none where it is not known.
    `max_output` is the limit of output tokens that was sent, `most_output` the most tokens that a reply then has, with
    its reasoning; None where the request sets no bound. `stops` are the caller's stop texts.

    For the transport and the driver: `timeouts`, `limits` (of what is read), `if_cut` and `recovery` (what is done
    when the reply breaks off), `prefill` (how a cut reply can be continued). `search` are the rules of the web search
    that was requested, `echo` is the function whose calls are answered with their arguments to run that search.
    `decoded` is the body with the bytes that it was read from, once somebody wants it.
    """

    method: str
    url: str
    headers: dict[str, str]
    content: bytes
    notes: list[Note]
    model: Model
    flags: Flags
    stream: bool
    tools: tuple[Function, ...] = ()
    renamed: dict[str, str] = {}
    schema: dict[str, Any] | None = None
    answer: OutputMethod | None = None
    corrections: int = 0
    corrects_inputs: bool = True
    if_cut: str = "error"
    timeouts: Timeouts = Timeouts()
    limits: Limits = Limits()
    text_calls: TextCalls | None = None
    callable: tuple[Function, ...] = ()
    messages: tuple[Message, ...] = ()
    prompted: bool = False
    call_rules: CallRules | None = None
    max_output: int | None = None
    most_output: int | None = None
    stops: tuple[str, ...] = ()
    recovery: Recovery = Recovery()
    strict_forms: dict[str, dict[str, Any]] = {}
    prefill: Prefill | None = None
    search: WebSearchFlags | None = None
    echo: str | None = None
    decoded: tuple[bytes, dict[str, Any]] | None = None

    @property
    def body(self) -> dict[str, Any]:
        """Return the body, decoded when it is first read; empty for a request without one, or with one of a file."""
        if self.decoded is None or self.decoded[0] is not self.content:
            try:
                body = msgspec.json.decode(self.content)
            except msgspec.DecodeError:
                body = {}
            force_setattr(self, "decoded", (self.content, body if type(body) is dict else {}))
        assert self.decoded is not None
        return self.decoded[1]

    @property
    def prompt(self) -> str | None:
        """Return the user's last text, empty where the user said nothing; None where the conversation is not known."""
        texts = (message.text for message in reversed(self.messages) if message.role == "user")
        return next(filter(None, texts), "" if self.messages else None)

    @property
    def turns(self) -> list[dict[str, Any]]:
        """Return the turns of the conversation in the body."""
        turns: list[dict[str, Any]] = self.body[wire(self.model.protocol).turns]
        return turns

    @property
    def reply_count(self) -> int:
        """Return the number of replies that the request asks for at once."""
        counts = (get(self.body, path) for path in wire(self.model.protocol).count_paths)
        return max([1, *(count for count in counts if type(count) is int)])

    def shown_headers(self) -> dict[str, str]:
        """Return the headers for display: every value that may hold a secret is hidden."""
        return {name: value if is_harmless_header(name, value) else MARK for name, value in self.headers.items()}

    def __repr__(self) -> str:
        return (
            f"<Plan {self.method} {self.url} {self.shown_headers()} {len(self.content)} bytes, {len(self.notes)} notes>"
        )


def unknown_plan(model: Model) -> Plan:
    """Return a plan for a reply to a request that is not known."""
    return Plan(method="POST", url="", headers={}, content=b"", notes=[], model=model, flags=model.flags, stream=False)
