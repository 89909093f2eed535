"""Calls that a model wrote as text, in a reply: what is looked for, and what becomes of what is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from cnllm.engine.decode.tool_calls import Call
from cnllm.engine.history.prompted_tools import FLAG
from cnllm.engine.history.prompted_tools import rules as rules_of
from cnllm.engine.options import Function
from cnllm.leaks.markers import Markers
from cnllm.leaks.rules import united
from cnllm.leaks.wanted import Fallback, wish
from cnllm.registry.flags import Flags, Leak
from cnllm.types import Message, ToolResult
from cnllm.types.arguments import decode_arguments

if TYPE_CHECKING:
    from cnllm.engine.decode.reply_builder import Fold
    from cnllm.leaks.filter import Filter, Found
    from cnllm.leaks.grammars import Written
    from cnllm.leaks.prompt import Prompt

__all__ = ["TextCalls", "Then", "looked_for"]

Then = Literal["recover", "strip", "keep"]


def looked_for(
    flags: Flags,
    tools: Sequence[Function] | None,
    renamed: Mapping[str, str],
    then: Then | None = None,
    prompt: str | None = None,
    prompted: bool = False,
    messages: Sequence[Message] = (),
    script: str | None = None,
    known: bool = True,
) -> TextCalls | None:
    """The filters of one reply, or None where nothing is declared or wanted.

    `tools` are those the model may call, `renamed` what they are called on the wire; `then` is what the call says,
    over what each rule does. With `prompted` calls were asked for as text. What the user and the results of tools
    said in the `messages` is quoted where it comes back. A fallback is in the language of the `prompt`, or in `script`.
    Unless it is `known` what was offered, a block that is not whole stays text: nobody can tell that it is no call.
    """
    short = {long: name for name, long in renamed.items()}
    offered = {short.get(tool.name, tool.name): tool.parameters for tool in tools or () if tool.definition is None}
    wanted = _wanted(_Declared(flags.leaks or ()), then, prompted, bool(offered) or not known)
    if wanted is None:
        return None
    sentences = Fallback(flags.fallback or {}, prompt, script)
    return TextCalls(*wanted, offered or None, sentences, FLAG if prompted else "leaks", messages)


class _Declared:
    """Rules as a model's flags hold them, told apart by identity: they stay the same ones, and cannot be hashed."""

    __slots__ = ("rules",)

    def __init__(self, rules: Sequence[Leak]) -> None:
        self.rules = rules

    def __hash__(self) -> int:
        return id(self.rules)

    def __eq__(self, other: object) -> bool:
        return type(other) is _Declared and other.rules is self.rules


@lru_cache(maxsize=256)
def _wanted(declared: _Declared, then: Then | None, prompted: bool, offered: bool) -> tuple[list[Leak], Markers] | None:
    """The rules that hold, `then` over what each of them does, and their openers; None where none holds.

    Where nothing was `offered`, nothing is recovered.
    """
    known = united(declared.rules)
    known = rules_of(known) if prompted else known
    rules = [rule if then is None else msgspec.structs.replace(rule, then=then) for rule in known]
    rules = [rule for rule in rules if rule.then != "keep"]
    if not offered:
        rules = [msgspec.structs.replace(rule, then="strip") for rule in rules]
    openers = dict.fromkeys(opener for rule in rules for opener in rule.open)
    return (rules, Markers.of(tuple(openers))) if rules else None


class TextCalls:
    """Watches both channels of one reply, the answer and the thinking.

    Thinking may talk about calls that are made later. A call in it counts only where the thinking ends with it and
    nothing else was said.
    """

    def __init__(
        self,
        rules: list[Leak],
        markers: Markers,
        tools: Mapping[str, Any] | None,
        sentences: Fallback,
        flag: str,
        messages: Sequence[Message] = (),
    ) -> None:
        self._flag = flag  # that is behind what is looked for
        self._messages = messages
        self._quotations: Prompt | None = None
        self._rules = rules
        self._markers = markers
        self._tools = tools
        self._sentences = sentences
        self._found: list[Found] = []
        self._tail: list[Found | str] = []  # of the thinking: blocks, and the white space between them
        self.thought_of = False
        self.excluded = ""
        """Why the caller wants no calls, although there are tools."""

    def begin(self, fold: Fold) -> None:
        """From now on, for this reply."""
        self._fold = fold
        # Most replies hold nothing with which a marker could begin: what looks closer is made when one does.
        self._answer: Filter | None = None
        self._thinking: Filter | None = None

    def _filter(self, inside: bool) -> Filter | None:
        """What looks for calls in a channel, from its first character that may begin a marker."""
        if inside and self._tools is None:
            return None  # nothing could be called, and thinking is not the answer: it stays as it came
        from cnllm.leaks.filter import Filter  # with the grammars: a short program may never meet a marker

        fold, tools = self._fold, self._tools
        if inside:
            self._thinking = Filter(
                self._rules, tools, fold.thoughts, self._thought, self._tail.append, trims=False, holds=self._holds
            )
            return self._thinking
        last = self._flag == FLAG
        self._answer = Filter(
            self._rules, tools, fold.texts, self._answered, self._found.append, trims=True, holds=self._holds, last=last
        )
        return self._answer

    def _holds(self, block: str, calls: Sequence[Written]) -> bool:
        """Whether the user's text or the result of a tool holds a block."""
        if not self._messages:
            return False
        if self._quotations is None:
            from cnllm.leaks.prompt import Prompt

            self._quotations = Prompt(lambda: _said_by_others(self._messages), self._rules, self._tools)
        return self._quotations.holds(block, calls)

    def restart(self, inside: bool) -> None:
        """A channel begins again, and what the other has said is about to be said again."""
        other = self._answer if inside else self._thinking
        if other is not None:
            other.close()
        if inside:
            self._tail.clear()
        else:
            self._only_thought()
            self._found.clear()
        self.begin(self._fold)

    def packed(self, inside: bool, start: int) -> None:
        """The pieces of a channel from `start` on are about to become one."""
        if (filter_ := self._thinking if inside else self._answer) is not None:
            filter_.packed(start)

    @property
    def may_begin(self) -> Callable[[str], object]:
        """Could a marker begin in this text? If not, and all is idle, it may go past."""
        return self._markers.may_begin

    @property
    def idle(self) -> bool:
        """Does nothing wait?"""
        answer, thinking = self._answer, self._thinking
        return (answer is None or answer.idle) and (thinking is None or thinking.idle) and not self._tail

    @property
    def any(self) -> bool:
        """Was anything found?"""
        return bool(self._found)

    # ── as it comes ──────────────────────────────────────────────────────────

    def feed(self, inside: bool, text: str) -> None:
        """More of the thinking (`inside`) or of the answer."""
        filter_ = self._thinking if inside else self._answer
        if filter_ is None and self._markers.may_begin(text):
            filter_ = self._filter(inside)
        if filter_ is None:
            (self._thought if inside else self._answered)(text)
        else:
            filter_.feed(text)

    def release(self) -> None:
        """Deliver what may only begin a marker, because the part of the reply that it belongs to is over."""
        for filter_ in (self._thinking, self._answer):
            if filter_ is not None:
                filter_.release()

    def _answered(self, text: str) -> None:
        if self._tail and text.strip():
            self._only_thought()
        self._fold.deliver(False, text)

    def _thought(self, text: str) -> None:
        if self._tail and not text.strip():
            self._tail.append(text)
            return
        self._only_thought()
        self._fold.deliver(True, text)

    def _only_thought(self) -> None:
        """What looked like calls at the end of the thinking was not its end."""
        tail, self._tail[:] = list(self._tail), []
        for piece in tail:
            if isinstance(piece, str):
                self._fold.deliver(True, piece)
            elif piece.taken:
                self._note("text-call-kept", piece.raw, "kept as thinking: more was said after it")
                self._fold.deliver(True, piece.raw)
            else:
                self._note("text-call-kept", piece.raw, f"kept as thinking: {piece.problem}")

    # ── the end ──────────────────────────────────────────────────────────────

    def close(self, *, proven: bool) -> list[Call]:
        """Both channels are over: the calls that were written as text, once each. `proven`: and that was all."""
        fold = self._fold
        for filter_ in (self._thinking, self._answer):
            if filter_ is not None:
                filter_.close(proven=proven)
        if not self._tail and not self._found:
            self._over()
            return []
        wire = {_said(call.name, decode_arguments(call.raw)[0]) for call in fold.calls}
        if any(not isinstance(piece, str) and piece.calls for piece in self._tail):
            if wire or self._found or "".join(fold.texts).strip():
                self._only_thought()
            else:
                self.thought_of = True
                self._found += [piece for piece in self._tail if not isinstance(piece, str)]
                self._tail = []
        else:
            self._only_thought()
        out: list[Call] = []
        for found in self._found:
            self._judge(found, wire, out)
        stripped = any(found.taken and not found.calls for found in self._found)
        if (
            stripped
            and proven
            and not self.excluded
            and not (out or wire or fold.fault is not None or "".join(fold.texts).strip())
        ):
            self._fall_back()
        self._over()
        return out

    def _over(self) -> None:
        """Nothing refers to itself any more: the memory of a reply is free as soon as nobody holds it."""
        self._answer = self._thinking = None
        del self._fold

    def _judge(self, found: Found, wire: set[bytes], out: list[Call]) -> None:
        if not found.taken:
            self._note("text-call-kept", found.raw or "markup", f"kept as text: {found.problem}")
            return
        if not found.calls:
            none = "no tools were offered" if self._tools is None else "calls are not recovered"
            why = found.problem or self.excluded or none
            self._note("text-call-stripped", found.raw, f"taken out of the text: {why}")
            return
        for written in found.calls:
            if written.arguments is not None and _said(written.name, written.arguments) in wire:
                self._note("text-call-twice", found.raw, f"left out: {written.name} came as a call, too")
                continue
            call = Call(None, "text")
            call.name = written.name
            given = written.arguments
            call.pieces.append(written.raw if given is None else msgspec.json.encode(given).decode())
            out.append(call)
            self._note("text-call", found.raw, f"a call of {written.name}")
        if found.problem:
            self._note("text-call-kept", found.raw, found.problem)

    def _fall_back(self) -> None:
        wanted = next((wanted for found in self._found if (wanted := self._missing(found))), "")
        own = [*self._fold.thoughts, *(found.raw for found in self._found)]
        sentence = self._sentences.say(wanted, "".join(own))
        if sentence:
            self._note("fallback", "an answer of nothing but markup", sentence, flag="fallback")
            self._fold.deliver(False, sentence)

    def _missing(self, found: Found) -> str:
        """What a block wanted that is not available. Empty where the tool is offered and only its call is broken."""
        offered = self._tools or ()
        if any(call.name in offered for call in found.wanted):
            return ""
        wanted = wish(found.wanted, found.raw)
        return "" if wanted in offered else wanted

    def _note(self, code: str, said: str, did: str, flag: str = "") -> None:
        self._fold.tell(code, flag or self._flag, said, did)


def _said(name: str, arguments: Any) -> bytes:
    """What two calls that say the same have in common."""
    return msgspec.json.encode([name, arguments], order="sorted")


def _said_by_others(messages: Sequence[Message]) -> Iterator[str]:
    """What the user and the results of tools say in a conversation."""
    for message in messages:
        if message.role == "user" and (text := message.text):
            yield text
        for part in message.parts:
            if type(part) is ToolResult and part.text:
                yield part.text
