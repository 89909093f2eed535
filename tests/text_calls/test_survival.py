"""Markers take no text with them: what stands outside of blocks survives, in the answer or in the reasoning."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import pytest
from cases import each
from examples import share
from hypothesis import example, given, settings
from hypothesis import strategies as st

import cnllm

from .quotations import CALLS, GRAMMARS
from .support import REGISTRY, answers, called, read, told, tool, wire

TOOLS = [tool("rm", path="string"), tool("search", q="string", lang="string")]
MODELS = [
    "minimax/MiniMax-M2.1",
    "zai/glm-4.7",
    "deepseek/deepseek-flash",
    "moonshotai/kimi-k2.5",
    "moonshotai/kimi-k3",
    "alibaba/qwen3-coder-plus",
    "mistral/mistral-large-4",
    "google/gemma-4-31b-it",
    "tencent/hy3",
    "groq/openai/gpt-oss-120b",
    "openai/gpt-4.1",
]
PROSE = ["第{}段，很好。", " (w{}) ", "Word {}, ", "1 < {} > 0: ", "\n", "\n\n", "{}。\n"]


def markers(model: str) -> list[str]:
    """All markers of a model, as literals and with inner tags, but no fences: in them all is code."""
    flags = REGISTRY.resolve(model).flags
    found = [marker for leak in flags.leaks or () for marker in (*leak.open, *leak.close)]
    found += flags.reasoning.tags or []
    found += ['<invoke name="a">', "<function=f>", '<parameter name="p">', "<arg_key>", "</arg_value>", "</parameter>"]
    return [marker for marker in found if "`" not in marker and len(marker) > 1]


def spelt(marker: str, spelling: int) -> str:
    """A marker in another spelling: in capitals, or with a space before its end."""
    if spelling == 1:
        return marker.upper()
    return marker[:-1] + " >" if spelling == 2 and re.fullmatch(r"</?[\w:]+>", marker) else marker


def letters(text: str) -> Counter[str]:
    """How often each character stands in a text, without white space."""
    return Counter("".join(text.split()))


def outcome(found: cnllm.Sanitized | cnllm.Reply) -> tuple[object, ...]:
    """What a user sees, with the notes on it."""
    return (
        found.text,
        found.reasoning,
        called(found),
        [(note.code, note.said, note.did) for note in found.notes if note.code != "retired"],
    )


@settings(max_examples=share(400), deadline=None)
@example("minimax/MiniMax-M2.1", [(0, 0, "{}"), (0, 4, "{}")], False, [])
@given(
    model=st.sampled_from(MODELS),
    parts=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 200), st.sampled_from(PROSE)), max_size=8),
    offers=st.booleans(),
    places=st.lists(st.integers(0, 500), max_size=6),
)
def test_text_around_any_markers_survives_to_the_last_character(
    model: str, parts: list[tuple[int, int, str]], offers: bool, places: list[int]
) -> None:
    known = markers(model)
    text, words = "", []
    for number, (spelling, index, prose) in enumerate([(0, -1, "开头，0。"), *parts, (0, -1, "结尾，9。")]):
        words.append(prose.format(f"{number}#"))
        text += ("" if index < 0 else spelt(known[index % len(known)], spelling)) + words[-1]
    tools = TOOLS if offers else None
    whole = read(model, text, tools)
    shown = whole.text + "\n" + whole.reasoning
    assert all(word.strip() in shown for word in words)
    assert called(whole) == []
    gone = "".join(note.said for note in whole.notes if note.code in ("text-call-stripped", "tag-stripped"))
    assert letters("".join(words)) <= letters(shown) <= letters(text) - letters(gone)
    ends = sorted({place % (len(text) + 1) for place in places} | {0, len(text)})
    for pieces in ([text[a:b] for a, b in pairwise(ends)], list(text)):
        events, reply = answers(model, wire(pieces), tools)
        assert outcome(reply) == outcome(whole)
        assert told(events) == (reply.text, reply.reasoning, [])


# ── the listed forms, on every model ─────────────────────────────────────────
ANSWER = "第二段：答案是 42。"
OFFERED = [tool("f", a="integer", t="string")]


def seen(model: str, text: str, tools: object = None) -> cnllm.Sanitized:
    """What a text comes to, the same in one piece and character by character."""
    whole = read(model, text, tools)  # type: ignore[arg-type]
    _, reply = answers(model, wire(list(text)), tools)  # type: ignore[arg-type]
    assert outcome(reply)[:3] == outcome(whole)[:3]
    return whole


@each("model", MODELS)
@each(
    "text",
    [
        f'MiniMax 用 <invoke name="a"> 开头来调用工具。\n\n{ANSWER}',
        f'MiniMax 用 <invoke name="a"><parameter name="b"> 开头来调用工具。\n\n{ANSWER}',
        f"Both <tool_call> and </tool_call > are tags.\n\n{ANSWER}",
        f"Qwen 写 <function=f> 再写参数。\n\n{ANSWER}",
        f"A block like <tool_call>{{not json}}</tool_call> is none.\n\n{ANSWER}",
        f'It begins with <tool_call>{{"name": "f", then more.\n\n{ANSWER}',
        f'It is <tool_call>{{"name": "f", "arguments": {{"a": 1}}}} and that is all.\n\n{ANSWER}',
        f"So </invoke> 和 </ tool_call > stand here.\n\n{ANSWER}",
    ],
)
def test_a_marker_in_a_sentence_stays_and_so_does_all_behind_it(model: str, text: str) -> None:
    for tools in (None, OFFERED):
        assert (seen(model, text, tools).text, seen(model, text, tools).tool_calls) == (text, [])


def test_an_opener_that_fits_nothing_is_shown_at_once() -> None:
    for model, text in (
        ("minimax/MiniMax-M2.1", 'MiniMax 用 <invoke name="a"> 开头。'),
        ("minimax/MiniMax-M2.1", "用 <minimax:tool_call> 开头。"),
        ("alibaba/qwen3-coder-plus", "用 <tool_call> 开头。"),
        ("alibaba/qwen3-coder-plus", "用 <function=f> 开头。"),
        ("zai/glm-4.7", '用 <tool_call>{"name": "f"} 开头。'),
        ("deepseek/deepseek-flash", "用 <｜tool▁calls▁begin｜> 开头。"),
        ("moonshotai/kimi-k2.6", "用 <|tool_calls_section_begin|> 开头。"),
        ("moonshotai/kimi-k3", "用 <|open|>tools<|sep|> 开头。"),
        ("google/gemma-4-31b-it", "用 <|tool_call> 开头。"),
    ):
        for tools in (None, OFFERED):
            filter_ = cnllm.Sanitizer(model, tools)
            assert "".join(map(filter_.feed, text)) == text, model


@each("model", MODELS)
@each(
    "text, stands",
    [
        ("</tool_call>", ""),
        ("</function>", ""),
        (f"</tool_call >{ANSWER}", ANSWER),
        (f"{ANSWER}</tool_call >", ANSWER),
        (f"{ANSWER}\n</FUNCTION>\n", f"{ANSWER}\n"),
        (f"好。\n</tool_call>\n{ANSWER}", f"好。\n{ANSWER}"),
        (f'好。\n<invoke name="f">\n{ANSWER}', f"好。\n{ANSWER}"),
        (f"好。\n< TOOL_CALL >\n{ANSWER}", f"好。\n{ANSWER}"),
        (f"{ANSWER} <tool_call>", f"{ANSWER} "),
        (f"{ANSWER}\n</invoke>\n</tool_call>\n", f"{ANSWER}\n"),
        (f"```tool_call\n{{...}}\n```\n{ANSWER}", ANSWER),
        (f"{ANSWER}\n```tool_call\nf(x)\n```", f"{ANSWER}\n"),
    ],
)
def test_a_marker_alone_on_a_line_or_at_either_end_goes_with_a_note(model: str, text: str, stands: str) -> None:
    for tools in (None, OFFERED):
        found = seen(model, text, tools)
        assert found.text == stands or (not stands and found.notes[-1].code == "fallback")
        gone = [note for note in found.notes if note.code == "text-call-stripped"]
        assert gone
        assert all(f"({len(note.said)} characters)" in note.did for note in gone)


@each("model", MODELS)
@each(
    "block",
    [
        '<tool_call id="3">{"name": "f", "arguments": {"a": 1}}</tool_call>',
        '<TOOL_CALL>{"name": "f", "arguments": {"a": 1}}</TOOL_CALL >',
        '< tool_call >{"name": "f", "arguments": {"a": 1}}< / tool_call>',
        '<function name="f">{"a": 1}</function>',
        "<function = f >\n<PARAMETER=a>1</parameter>\n</ function>",
        '<INVOKE\nNAME="f"><parameter name="a">1</parameter ></Invoke >',
        '✿FUNCTION✿: f\n✿ARGS✿: {"a": 1}',
        '```TOOL_CALL\n{"name": "f", "arguments": {"a": 1}}\n```',
    ],
)
def test_case_spaces_and_attributes_change_no_block(model: str, block: str) -> None:
    assert (called(seen(model, f"好。\n{block}", OFFERED)), seen(model, f"好。\n{block}", OFFERED).text) == (
        [("f", {"a": 1})],
        "好。\n",
    )
    found = seen(model, f"好。\n{block}\n再见。")
    assert found.text == "好。\n再见。"
    assert [(n.code, n.said) for n in found.notes if n.code != "retired"] == [("text-call-stripped", block)]
    assert f"({len(block)} characters)" in next(note.did for note in found.notes if note.code == "text-call-stripped")


CLOSERS = re.compile(
    r"(?:</[^<>]*>|<[^<>]*(?:end|call|suffix|ACTION|message)[|｜]>|<\|close\|>tools<\|sep\|>|<tool_call\|>|\]<\]minimax\[>\[</\w+>|`{3})$"
)


@pytest.mark.share(3)
@each("grammar", lambda: sorted(set(GRAMMARS) - {"named json", "named json in a list", "named json, one"}))
def test_a_server_may_take_the_closer_for_a_stop_text(grammar: str) -> None:
    model, write = GRAMMARS[grammar]
    for name, arguments in CALLS:
        block = write(name, arguments)
        for lost in (CLOSERS.search(block)[0], CLOSERS.search(block)[0][-3:]):  # type: ignore[index]
            text = f"Let me look.\n\n{block.removesuffix(lost)}"
            assert called(seen(model, text, TOOLS)) == [(name, arguments)]
            assert seen(model, text, TOOLS).text == "Let me look.\n\n"
            found = seen(model, text)
            assert (found.text, found.tool_calls) == ("Let me look.\n\n", [])
            assert [note.code for note in found.notes if note.code != "retired"] == ["text-call-stripped"]


@each("grammar", ["atem", "barred", "dots", "function", "invoke", "list of pairs", "prefixed", "seed", "tokens"])
def test_a_call_without_its_own_closer_and_that_of_the_block_is_a_call(grammar: str) -> None:
    model, write = GRAMMARS[grammar]
    for name, arguments in CALLS:
        text = write(name, arguments)
        for _ in range(2):
            text = CLOSERS.sub("", text.rstrip())
        assert called(seen(model, text, TOOLS)) == [(name, arguments)]


@each("grammar", sorted(GRAMMARS))
def test_only_a_reply_that_was_cut_off_loses_an_unfinished_block(grammar: str) -> None:
    model, write = GRAMMARS[grammar]
    name, arguments = CALLS[0]
    block = write(name, arguments)
    text = "Let me look.\n\n" + block[: block.index("path") + 3]
    for tools in (None, TOOLS):
        letters_kept = seen(model, text, tools).text
        assert re.sub(r"<[^<>]*>|[\[\]<>\w|｜▁`:=\s]", "", letters_kept) == re.sub(
            r"<[^<>]*>|[\[\]<>\w|｜▁`:=\s]", "", text
        )
    reply = answers(model, wire([text], finish="length"))[1]
    assert (reply.text, reply.finish) == ("Let me look.\n\n", "length")
    (note,) = [note for note in reply.notes if note.code == "text-call-stripped"]
    assert (note.said, f"({len(note.said)} characters)" in note.did) == (text.removeprefix("Let me look.\n\n"), True)
    assert answers(model, wire([text], finish="length"), TOOLS)[1].tool_calls == []
    other = answers(model, wire([text], finish=" LENGTH"))[1]  # a finish reason counts by its meaning
    assert (other.text, other.finish) == ("Let me look.\n\n", "length")
