"""Find calls that a model wrote as text in a reply, and recover, remove or keep them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from cnllm.engine.decode.stage import Item, PlainText, Restart, Stage, removal, text_piece
from cnllm.engine.decode.tool_calls import CallBuilder
from cnllm.engine.encode.plan import Plan
from cnllm.engine.history.prompted_tools import FLAG, markup_rules
from cnllm.leaks.fallback_text import FallbackText, Wish, call_wish
from cnllm.leaks.markers import Markers
from cnllm.leaks.rules import Markup, filter_markers, unite_rules
from cnllm.protocols.pieces import ReasoningPiece, TextPiece
from cnllm.registry.flags import Flags
from cnllm.types import Message, Note, ToolResult
from cnllm.types.lenient_json import decode_arguments

if TYPE_CHECKING:
    from cnllm.engine.decode.collector import Collector
    from cnllm.leaks.filter import BlockResult, LeakFilter
    from cnllm.leaks.grammars import ParsedCall
    from cnllm.leaks.prompt import PromptTexts
    from cnllm.types.note_codes import NoteCode

__all__ = ["TextCalls", "Then", "marker_test", "text_calls"]

_HEAD = 400  # characters of an answer, white space among them, that decide whether it may be a call as a whole

Then = Literal["recover", "strip", "keep"]


def text_calls(
    plan: Plan,
    collector: Collector,
    new_tagged: Callable[[str], str],
    behind: Sequence[Stage],
    script: str | None,
    *,
    is_offer_known: bool,
) -> TextCalls | None:
    """Return the stage of one reply, or None where no rule applies and no tags of reasoning are declared.

    Blocks that repeat what the user or the results of tools say in the plan's messages are quotations. A fallback
    sentence is in the language of the prompt, or in `script`. Where it is not known which tools were offered, a broken
    block stays text: it may be no call. For the other arguments see `TextCalls`.
    """
    is_offered = not is_offer_known or any(tool.definition is None for tool in plan.callable)
    found = _active_rules(plan.flags, plan.text_calls, prompted=plan.prompted, offered=is_offered)
    return None if found is None else TextCalls(plan, found, collector, new_tagged, behind, script)


def marker_test(flags: Flags, then: Then | None, *, has_functions: bool) -> Callable[[str], object] | None:
    """Return a quick test whether a marker of calls or of reasoning stands in a whole text; None where none can.

    `has_functions` says whether the model may call functions.
    """
    found = _active_rules(flags, then, prompted=False, offered=has_functions)
    return None if found is None else found.markers.occurs


class _TextCallRules(msgspec.Struct, frozen=True):
    """The rules that apply to a reply, those of whole answers, the tags of reasoning, and the markers of all.

    `around` are the tags behind reasoning, around an answer and behind a block: they are no content. Text in which
    neither a marker nor a tag around an answer may begin passes by: `noticed` are all of them.
    """

    rules: list[Markup]
    whole: list[Markup]
    tags: tuple[str, ...]
    around: tuple[str, ...]
    markers: Markers
    noticed: Markers


@lru_cache(maxsize=256)
def _active_rules(flags: Flags, then: Then | None, *, prompted: bool, offered: bool) -> _TextCallRules | None:
    """Return the rules that apply; None where there are no markers.

    The action `then` replaces that of each rule. Where no tools were `offered`, no call is recovered.
    """
    tags = tuple(flags.reasoning.tags or ())
    declared = [Markup(*msgspec.structs.astuple(rule)) for rule in flags.leaks or ()]
    united = unite_rules([rule for rule in declared if not rule.whole])
    united = markup_rules(united) if prompted else united
    rules = [rule if then is None else msgspec.structs.replace(rule, then=then) for rule in united]
    rules = [rule for rule in rules if rule.then != "keep"]
    if not offered:
        rules = [msgspec.structs.replace(rule, then="strip") for rule in rules]
    recovers = offered and not prompted and then in (None, "recover")
    whole = [rule for rule in declared if rule.whole and rule.then == "recover"] if recovers else []
    markers = tuple(dict.fromkeys([*filter_markers(rules, tags), *(opener for rule in whole for opener in rule.open)]))
    if not markers:
        return None
    answer_tags = tuple(filter(None, flags.reasoning.answer_tags or ()))
    around = [*tags[1::2], *answer_tags]
    around += [closer for rule in rules for closer in rule.close if closer in markers]
    noticed = Markers.copy(tuple(dict.fromkeys([*markers, *answer_tags])))
    return _TextCallRules(rules, whole, tags, tuple(filter(None, around)), Markers.copy(markers), noticed)


class TextCalls(Stage):
    """The stage that finds calls written as text, in the answer and in the reasoning of one reply.

    Reasoning may mention calls that are made later. A call in it counts only where the reasoning ends with it and the
    reply holds nothing else. `collected` is what the reply holds so far, `new_tagged` returns the part of reasoning
    between tags that no field has delivered, and `behind` are the stages behind this one that hold text back.
    """

    reads_thought = True  # plain text may pass by: `may_begin_at` tells of each one whether it does

    def __init__(
        self,
        plan: Plan,
        rules: _TextCallRules,
        collector: Collector,
        new_tagged: Callable[[str], str],
        behind: Sequence[Stage],
        script: str | None,
    ) -> None:
        tools = {tool.name: tool.parameters for tool in plan.callable if tool.definition is None}
        self._wire_names: dict[str, str] = {}
        if plan.renamed:
            short = {long: name for name, long in plan.renamed.items()}
            tools = {short.get(name, name): parameters for name, parameters in tools.items()}
            # The prompt may name a tool as the caller does, and the model write that name.
            self._wire_names = {long: name for long, name in short.items() if name in tools and long not in tools}
            tools |= {long: tools[name] for long, name in self._wire_names.items()}
        self._flag = FLAG if plan.prompted else "leaks"  # the flag that the notes name
        self._messages = plan.messages
        self._collected = collector
        self._new_tagged = new_tagged
        self._behind = behind
        self._quotations: PromptTexts | None = None
        self._rules = rules.rules
        self._tags = rules.tags
        self._around = rules.around
        self._tools: Mapping[str, Any] | None = tools or None
        self._whole = rules.whole if tools else []  # while all of the answer may be a call
        self._held: list[str] = []  # the answer so far, while it may be one
        self._head = ""  # its beginning
        self._sentences = FallbackText(plan.flags.fallback or {}, plan.prompt, script)
        self._blocks: list[BlockResult] = []
        self._tail: list[BlockResult | str] = []  # the end of the reasoning: blocks, and between them what is empty
        self._tail_rest = self._text_rest = ""  # the end of it, and of the answer behind it, that may begin a tag
        # Most replies hold no character that may begin a marker: a filter is made when one appears.
        self._answer_filter: LeakFilter | None = None
        self._reasoning_filter: LeakFilter | None = None
        self.has_start = rules.noticed.has_start
        """Tests quickly whether it may find anything in a text or for a part of it."""
        self.may_begin_at = rules.noticed.may_begin_at
        """Finds where a marker or a tag around an answer may begin: -1 for a text that passes by while all is idle."""
        self.plain = PlainText()
        """The last text in which neither a marker nor a tag around an answer begins."""
        self.is_idle = True
        """Whether no text waits."""
        self.is_reading = False
        """Whether a marker may have begun: from then on `skip` has to know the texts that pass by."""
        self.thought_of = False
        self.has_tagged = False
        """Whether reasoning stood between tags in the middle of the answer."""
        is_none = plan.call_rules is not None and plan.call_rules.choice == "none"
        self._excluded = "tool_choice='none' excludes calls" if is_none else ""

    def _answer_before(self) -> str:
        """Return the text of the answer that this stage has given so far."""
        return "".join([*self._collected.parts.text, *(stage.pending for stage in self._behind)])

    def _make_filter(self, *, in_reasoning: bool) -> LeakFilter | None:
        """Make the filter of a channel, at its first character that may begin a marker."""
        if in_reasoning and (self._tools is None or not self._rules):
            return None  # no call is possible, and reasoning is not the answer: it stays as it came
        self.is_reading = True
        from cnllm.leaks.filter import LeakFilter  # loads the grammars, which many programs never need

        if in_reasoning:
            before = "".join(self._collected.parts.thought)
            self._reasoning_filter = LeakFilter(self._rules, self._tools, before, trims=False, quotes=self._is_quoted)
            return self._reasoning_filter
        self._answer_filter = LeakFilter(
            self._rules,
            self._tools,
            self._answer_before(),
            trims=True,
            tags=self._tags,
            quotes=self._is_quoted,
            last=self._flag == FLAG,
        )
        return self._answer_filter

    def _is_quoted(self, block: str, calls: Sequence[ParsedCall]) -> bool:
        """Whether the user's text or the result of a tool contains a block."""
        if not self._messages:
            return False
        if self._quotations is None:
            from cnllm.leaks.prompt import PromptTexts

            self._quotations = PromptTexts(lambda: _user_and_result_texts(self._messages), self._rules, self._tools)
        return self._quotations.contains(block, calls)

    def _look(self) -> None:
        """Find out whether text waits."""
        answer, thinking = self._answer_filter, self._reasoning_filter
        is_idle = (answer is None or answer.is_idle) and (thinking is None or thinking.is_idle)
        self.is_idle = is_idle and not self._tail and not self._held

    @property
    def has_found(self) -> bool:
        """Whether any block was found in the answer."""
        return bool(self._blocks)

    # ── while the reply arrives ──────────────────────────────────────────────

    def skip(self, texts: Sequence[str], *, in_reasoning: bool) -> None:
        """Take note of texts that passed by."""
        if (filter_ := self._reasoning_filter if in_reasoning else self._answer_filter) is not None:
            filter_.skip(texts)

    def feed(self, item: Item, start: int | None = None) -> list[Item]:
        """Return text of the reasoning or of the answer without the calls in it.

        `start` is what `may_begin_at` returned for it, where that was asked.
        """
        if type(item) is not TextPiece and type(item) is not ReasoningPiece:
            if type(item) is Restart:
                self._restart(item)
            return [item]
        in_reasoning = type(item) is ReasoningPiece
        text = self._hold(item.text) if self._whole and not in_reasoning else item.text
        out: list[Item] = []
        head, pending = "", "" if self.is_idle or text is None else self._pending(in_reasoning=in_reasoning)
        if text is not None and (self.is_idle or pending):
            whole = pending + text
            if start is None or whole is not item.text:
                start = self.may_begin_at(whole) if pending or self.has_start(whole) else -1
            if start < 0:
                self.skip((whole,), in_reasoning=in_reasoning)
                self.plain.text, text = whole, None
                out.append(item if whole is item.text else text_piece(whole, in_reasoning=in_reasoning))
            elif start >= len(pending):
                self.plain.text = head = whole[:start]
                text = whole[start:]
        if text is not None:
            self._feed(text, out, head, in_reasoning=in_reasoning)
        self._look()
        return out

    def _pending(self, *, in_reasoning: bool) -> str:
        """Return the text of a channel that may begin a marker, where nothing else waits."""
        thinking, answer = self._reasoning_filter, self._answer_filter
        filter_, other = (thinking, answer) if in_reasoning else (answer, thinking)
        if filter_ is None or self._tail or self._held or not (other is None or other.is_idle):
            return ""
        return filter_.pending

    def _hold(self, text: str) -> str | None:
        """Return text of the answer that may pass; None while all of the answer may be a call without markers."""
        if not self._held:
            if self._answer_filter is not None or self._answer_before().strip():
                self._whole = []  # something stands before it
                return text
            if not text.strip():
                return text
        self._held.append(text)
        if len(self._head) < _HEAD:
            self._head += text
            from cnllm.leaks.grammars import may_be_whole

            if not any(may_be_whole(rule, self._head, self._tools or {}) for rule in self._whole):
                self._whole = []
                return self._let_go()
        return None

    def _let_go(self) -> str:
        """Return the text that was held because it might be a call."""
        text, self._held, self._head = "".join(self._held), [], ""
        self._look()
        return text

    def _end_whole(self, out: list[Item], *, is_cut: bool) -> None:
        """Decide about an answer that may be a call as a whole."""
        from cnllm.leaks.filter import BlockResult
        from cnllm.leaks.grammars import NotACall, read_whole
        from cnllm.leaks.prompt import normalize_quoted

        answer, rules, self._whole = self._let_go(), self._whole, []
        for rule in [] if is_cut else rules:
            try:
                calls = read_whole(rule, answer, self._tools or {})
            except NotACall:
                continue
            needle = normalize_quoted(answer)
            if not any(needle in normalize_quoted(text) for text in _user_and_result_texts(self._messages)):
                self._blocks.append(BlockResult(answer, calls))
                return
            break
        self._feed(answer, out, in_reasoning=False)

    def _restart(self, restart: Restart) -> None:
        """Forget what was found in texts that begin again."""
        if restart.thought:
            self._reasoning_filter, self._tail = None, []
        if restart.text:
            self._answer_filter, self._blocks = None, []
            self._let_go()
        self._look()

    def _feed(self, text: str, out: list[Item], head: str = "", *, in_reasoning: bool) -> None:
        """Add text of the reasoning or of the answer. In the `head` before it no marker begins."""
        filter_ = self._reasoning_filter if in_reasoning else self._answer_filter
        if filter_ is None and self.may_begin_at(text) >= 0:
            filter_ = self._make_filter(in_reasoning=in_reasoning)
        self._add([head + text] if filter_ is None else filter_.feed(text, head), out, in_reasoning=in_reasoning)

    def release(self) -> list[Item]:
        """Give text that may begin a marker, because its part of the reply is over."""
        out: list[Item] = []
        for in_reasoning, filter_ in ((True, self._reasoning_filter), (False, self._answer_filter)):
            if filter_ is not None:
                self._add(filter_.release(), out, in_reasoning=in_reasoning)
        self._look()
        return out

    def _add(self, found: Sequence[str | BlockResult], out: list[Item], *, in_reasoning: bool) -> None:
        """Add what a filter found in its channel."""
        for result in found:
            if isinstance(result, str) and in_reasoning:
                self._add_reasoning(result, out)
            elif isinstance(result, str):
                self._add_answer(result, out)
            elif in_reasoning:
                self._tail.append(result)
                self._tail_rest = ""
            elif result.is_reasoning:
                self.has_tagged = True
                if new := self._new_tagged(result.raw):
                    self._feed(new, out, in_reasoning=True)
            elif result.is_tag:  # at once: the tag was removed
                did = removal(result.raw, result.problem)
                out.append(self._note("tag-stripped", result.raw, did, "reasoning.tags"))
            else:
                self._blocks.append(result)

    def _add_answer(self, text: str, out: list[Item]) -> None:
        """Add text of the answer. Content in it shows that the reasoning did not end the reply with a call.

        It also ends a text of the reasoning that may begin a marker.
        """
        if (thinking := self._reasoning_filter) is not None and text.strip():
            self._add(thinking.release(), out, in_reasoning=True)
        if self._tail:
            self._text_rest = self._content(self._text_rest + text)
            if not self._may_be_empty(self._text_rest):
                self._flush_tail(out)
        out.append(TextPiece(text))

    def _add_reasoning(self, text: str, out: list[Item]) -> None:
        """Add text of the reasoning."""
        if self._tail:
            self._tail_rest = self._content(self._tail_rest + text)
            if self._may_be_empty(self._tail_rest):
                self._tail.append(text)
                return
        self._flush_tail(out)
        out.append(text_piece(text, in_reasoning=True))

    def _content(self, text: str) -> str:
        """Return a text from its first character on that is neither white space nor in a tag around an answer."""
        while True:
            text = text.lstrip()
            tag = next((tag for tag in self._around if text.startswith(tag)), None)
            if tag is None:
                return text
            text = text.removeprefix(tag)

    def _may_be_empty(self, rest: str) -> bool:
        """Whether a text without its first tags holds nothing, as far as it has come."""
        return any(tag.startswith(rest) for tag in ("", *self._around))

    def _flush_tail(self, out: list[Item]) -> None:
        """Add blocks at the end of the reasoning as reasoning: more text followed them."""
        tail, self._tail, self._tail_rest, self._text_rest = self._tail, [], "", ""
        for piece in tail:
            if isinstance(piece, str):
                out.append(text_piece(piece, in_reasoning=True))
            elif piece.remove:
                out.append(self._note("text-call-kept", piece.raw, "kept as reasoning: more text followed it"))
                out.append(text_piece(piece.raw, in_reasoning=True))
            else:
                out.append(self._note("text-call-kept", piece.raw, f"kept as reasoning: {piece.problem}"))

    # ── at the end of the reply ──────────────────────────────────────────────

    def end(self, *, proven: bool) -> list[Item]:
        """Close both channels: the rest of the texts, then the calls that were written as text, without repetitions."""
        out: list[Item] = []
        collector = self._collected
        is_cut = not proven or collector.finish_kind == "length"
        if self._held:
            self._end_whole(out, is_cut=is_cut)
        for in_reasoning in (True, False, True):  # the end of the answer may hold reasoning between tags
            filter_ = self._reasoning_filter if in_reasoning else self._answer_filter
            if filter_ is not None:
                self._add(filter_.close(is_cut=is_cut), out, in_reasoning=in_reasoning)
        # The filters refer back to this stage: without them a reply's memory is freed without the garbage collector.
        self._answer_filter = self._reasoning_filter = None
        self.is_idle = not self._tail
        if not self._tail and not self._blocks:
            return out
        pieces = [*collector.parts.text, *(item.text for item in out if type(item) is TextPiece)]
        has_text = bool(self._content("".join(pieces)))
        wire_calls = {_call_key(call.name, decode_arguments(call.raw)[0]) for call in collector.calls.all}
        blocks = [piece for piece in self._tail if not isinstance(piece, str)]
        has_more = has_text or self._tail_rest or any(self._content(block.raw) for block in self._blocks)
        if any(block.calls for block in blocks) and not (wire_calls or has_more):
            self.thought_of = True
            self._blocks += blocks
            self._tail = []
        else:
            self._flush_tail(out)
        self.is_idle = True
        calls: list[CallBuilder] = []
        for block in self._blocks:
            self._add_calls(block, wire_calls, calls, out)
        stripped = any(block.remove and not block.calls for block in self._blocks)
        is_nothing = not (calls or wire_calls or collector.fault is not None or has_text)
        if stripped and is_nothing and proven and not self._excluded:
            self._fall_back("".join(collector.parts.thought), out)
        return [*out, *calls]

    def _add_calls(self, block: BlockResult, wire_calls: set[bytes], calls: list[CallBuilder], out: list[Item]) -> None:
        """Add the calls of a block to `calls`, and to `out` notes on what became of the block."""
        if not block.remove:
            out.append(self._note("text-call-kept", block.raw or "markup", f"kept as text: {block.problem}"))
            return
        if not block.calls:
            no_tools = "no tools were offered" if self._tools is None else "calls are not recovered"
            reason = block.problem or self._excluded or no_tools
            out.append(self._note("text-call-stripped", block.raw, removal(block.raw, reason)))
            return
        for parsed in block.calls:
            name = self._wire_names.get(parsed.name, parsed.name)
            if parsed.arguments is not None and _call_key(name, parsed.arguments) in wire_calls:
                did = removal(block.raw, f"{parsed.name} also came as a regular call")
                out.append(self._note("text-call-twice", block.raw, did))
                continue
            call = CallBuilder(None, "text")
            call.name = name
            arguments = parsed.arguments
            call.pieces.append(parsed.raw if arguments is None else msgspec.json.encode(arguments).decode())
            calls.append(call)
            out.append(self._note("text-call", block.raw, removal(block.raw, f"a call of {parsed.name}")))
        if block.problem:
            out.append(self._note("text-call-kept", block.raw, block.problem))

    def _fall_back(self, thought: str, out: list[Item]) -> None:
        """Answer with a sentence in place of a reply that was nothing but markup."""
        wish = next((wish for block in self._blocks if (wish := self._missing(block)) is not None), None)
        reasoning = [item.text for item in out if type(item) is ReasoningPiece]
        texts = [thought, *reasoning, *(block.raw for block in self._blocks)]
        if sentence := self._sentences.sentence(wish, "".join(texts)):
            out.append(self._note("fallback", "an answer that is only markup", sentence, "fallback"))
            out.append(TextPiece(sentence))

    def _missing(self, block: BlockResult) -> Wish | None:
        """Return what a block asks of a tool that is not offered; None where only the call is broken."""
        tools = self._tools or ()
        if any(call.name in tools for call in block.stripped_calls):
            return None
        wish = call_wish(block.stripped_calls, block.raw)
        return None if wish is None or wish.tool in tools else wish

    def _note(self, code: NoteCode, subject: str, did: str, flag: str = "") -> Note:
        """Return a note, with the origin of the flag that it names."""
        flag = flag or self._flag
        return Note(code, flag, subject, did, self._collected.model.where(flag))


def _call_key(name: str, arguments: Any) -> bytes:
    """Return bytes that are equal for two calls with equal names and arguments."""
    return msgspec.json.encode([name, arguments], order="sorted")


def _user_and_result_texts(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the texts of the user and of the results of tools in a conversation."""
    for message in messages:
        if message.role == "user" and (text := message.text):
            yield text
        for part in message.parts:
            if type(part) is ToolResult and part.text:
                yield part.text
