"""An opening tag begins a call if what it names could be a name: the same at once and in pieces."""

from __future__ import annotations

from collections.abc import Sequence

from cases import each

from cnllm.leaks.filter import BlockResult, LeakFilter

from .rules import FUNCTION_BARE


def read(pieces: Sequence[str]) -> tuple[str, list[BlockResult]]:
    """The text that goes past, and what was a block."""
    filter_ = LeakFilter([FUNCTION_BARE], None, trims=True)
    results = [result for piece in pieces for result in filter_.feed(piece)] + filter_.close()
    text = "".join(result for result in results if isinstance(result, str))
    return text, [result for result in results if not isinstance(result, str)]


@each("text", ["<function=|>", "<function=\u009f>", "<function=a b c d>", "a <function=(x)> b", '<function="a|>'])
def test_what_is_no_name_begins_no_call_whether_it_comes_at_once_or_in_pieces(text: str) -> None:
    assert read([text]) == read(list(text)) == (text, [])


@each("name", ["search", "a.b-c:d/e@f", '"search"', "'search'", " Größe"])
def test_what_is_one_does(name: str) -> None:
    text = f"<function={name}><parameter=q>1</parameter></function>"
    (rest, (found,)), again = read([text]), read(list(text))
    assert (rest, again) == ("", ("", [found]))
    assert found.remove
