"""Decide what becomes of a block of markup: a call, markup to remove, or text."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from cnllm.leaks.grammars import ParsedCall
from cnllm.leaks.quoting import InlineBlock

__all__ = ["BlockResult", "Candidate"]


class BlockResult(Struct, frozen=True):
    """The result for one block: its text, its calls, and the reason why something in it is no call.

    `remove`: the block is removed from the text. Without `raw` the result stands for the rest of the text, which is
    no longer searched. `stripped_calls` are the calls of a block that is removed and gives no call. `is_tag`: it is a
    tag of reasoning that ends nothing. `is_reasoning`: `raw` stood between tags of reasoning.
    """

    raw: str
    calls: list[ParsedCall]
    problem: str = ""
    remove: bool = True
    stripped_calls: list[ParsedCall] = []
    is_tag: bool = False
    is_reasoning: bool = False


class Candidate(Struct, frozen=True):
    """A block that is a call, or markup to remove, unless it is quoted."""

    result: BlockResult
    place_in_text: InlineBlock
    prose: int  # pieces of prose before it
    is_quotation: bool  # the prompt contains it
    bare_calls: tuple[str, ...]  # tools without arguments: only a block on lines of its own calls them

    def decide(self, prose: int, call_at_end: bool, at_end: bool) -> BlockResult | None:
        """Return the final result of a block; None while it is not known.

        `prose`: pieces of prose up to now. With `call_at_end` a quotation is a call if it stands alone at the end of
        the text. `at_end`: the text has ended.
        """
        result, line = self.result, self.place_in_text.line
        if self.place_in_text.is_quoted is None:
            return None
        if self.place_in_text.is_quoted:
            return msgspec.structs.replace(result, calls=[], problem="", remove=False)
        if self.is_quotation:
            continues = line.prose or prose != self.prose
            if call_at_end and not continues and not at_end:
                return None
            if not call_at_end or continues:
                problem = "the user's text or the result of a tool contains it"
                return msgspec.structs.replace(result, calls=[], problem=problem, remove=False)
        if self.bare_calls and line.middle:
            problem = f"a call of {', '.join(self.bare_calls)} without arguments stands in the middle of a sentence"
            calls = [call for call in result.calls if call.arguments != {}]
            return msgspec.structs.replace(result, calls=calls, problem=problem, remove=bool(calls))
        return result if at_end or line.is_complete or not self.bare_calls else None
