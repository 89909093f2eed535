"""Text calls in a stream: however it is cut, the same reply; nothing is lost, nothing is delivered twice or early."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any, NamedTuple

import pytest
from cases import each
from examples import share
from hypothesis import example, given, settings
from hypothesis import strategies as st

import cnllm
from cnllm import ReasoningDelta, StreamCut, TextDelta, ToolCallStart, engine

from .support import REGISTRY, answers, called, plan, read, seen_however_cut, told, tool, wire

SEARCH = [tool("search", q="string", n="integer")]
PAIRS = "<tool_call>search<arg_key>q</arg_key><arg_value>{}</arg_value></tool_call>"
JSON = '<tool_call>{{"name": "search", "arguments": {{"q": "{}"}}}}</tool_call>'
SECTION = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>"
    '{{"q": "{}"}}<|tool_call_end|><|tool_calls_section_end|>'
)
TOKENS = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n"
    '{{"q": "{}"}}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
)
INVOKE = '<minimax:tool_call><invoke name="search"><parameter name="q">{}</parameter></invoke></minimax:tool_call>'
WRITERS = {
    "zai/glm-4.7": PAIRS,
    "alibaba/qwen3-coder-plus": JSON,
    "moonshotai/kimi-k2.5": SECTION,
    "deepseek/deepseek-flash": TOKENS,
    "minimax/MiniMax-M2.5": INVOKE,
}

WORDS = [
    "",
    "Look: ",
    "a < b",
    "<tool",
    "</tool_call>",
    "<",
    "｜",
    "<｜",
    "`",
    "```\n",
    '"',
    "\n",
    " ",
    "天",
    "{",
    "<|",
    "tea\n\n",
]
pieces = st.lists(st.sampled_from(WORDS), max_size=6).map("".join)
blocks = st.sampled_from(["tea", "a b", "", "<b>x</b>", "1 < 2", "天"])


def cut(text: str, places: list[int]) -> list[str]:
    ends = sorted({place % (len(text) + 1) for place in places} | {0, len(text)})
    return [text[a:b] for a, b in itertools.pairwise(ends)] or [""]


def without(text: str, blocks: list[str]) -> set[str]:
    """What may be left of a text that each of these blocks was taken out of, at least once: equal notes are one."""
    left = {text}
    for block in blocks:
        once = found = {one[:at] + one[at + len(block) :] for one in left for at in places_of(block, one)}
        while once:
            once = {one[:at] + one[at + len(block) :] for one in once for at in places_of(block, one)} - found
            found = found | once
        left = found
    return left


def places_of(block: str, text: str) -> list[int]:
    return [match.start() for match in re.finditer(re.escape(block), text)]


@settings(max_examples=share(150), deadline=None)
@example("alibaba/qwen3-coder-plus", [("</tool_call>", "tea")], "", [], 1, "content")
@example("alibaba/qwen3-coder-plus", [("</tool_call></tool_call>`", "tea")], "", [], 0, "content")
@given(
    model=st.sampled_from(sorted(WRITERS)),
    parts=st.lists(st.tuples(pieces, blocks), min_size=1, max_size=3),
    tail=pieces,
    places=st.lists(st.integers(0, 2000), max_size=12),
    torn=st.integers(0, 40),
    field=st.sampled_from(["content", "reasoning_content"]),
)
def test_any_cut_of_any_text_gives_the_same_reply(
    model: str, parts: list[tuple[str, str]], tail: str, places: list[int], torn: int, field: str
) -> None:
    text = "".join(before + WRITERS[model].format(value) for before, value in parts) + tail
    text = text[: len(text) - torn] if torn < len(text) else text
    outcomes = []
    for split in ([text], cut(text, places), list(text)):
        events, reply = answers(model, wire(split, field=field), SEARCH)
        assert told(events) == (reply.text, reply.reasoning, called(reply))
        outcomes.append(
            (
                reply.text,
                reply.reasoning,
                called(reply),
                reply.finish,
                [n.did for n in reply.notes if n.flag == "leaks"],
            )
        )
    assert outcomes[0] == outcomes[1] == outcomes[2]
    said = "" if any(n.code == "fallback" for n in reply.notes) else outcomes[0][0] + outcomes[0][1]
    if not outcomes[0][2]:  # a marker that stands alone is told of, and is not text; white space about it may go along
        stripped = [n.said for n in reply.notes if n.code == "text-call-stripped"]
        assert "".join(said.split()) in {"".join(left.split()) for left in without(text, stripped)}
        assert all(re.sub(r"<[^<>]*>?|\s|[\[\]]", "", block) == "" for block in stripped)


GET_CALL = '{"name": "search", "arguments": {"q": "tea"}}'
TAGS = {
    "zai/glm-4.7": ["search", "<arg_key>q</arg_key>", "<arg_key>", "<arg_value>tea", "</arg_value>"],
    "alibaba/qwen3-coder-plus": ["<function=search>", "<parameter=q>", "tea", "</parameter>", "</function>"],
    "minimax/MiniMax-M2.5": ['<invoke name="search">', '<parameter name="q">', "tea", "</parameter>", "</invoke>"],
}
"""Parts of calls, for soups of them."""


@settings(max_examples=share(150), deadline=None)
@example("alibaba/qwen3-coder-plus", ["<tool_call>", 0, "<tool_call>", GET_CALL, "</tool_call>", "\nDone."])
@example("zai/glm-4.7", ["<tool_call>", 2, "So. ", "<tool_call>", "</tool_call>", "\nDone."])
@given(
    model=st.sampled_from(sorted(TAGS)),
    words=st.lists(
        st.sampled_from(["<tool_call>", "</tool_call>", GET_CALL, "\n", "So. ", "\nDone.", *range(5)]),
        min_size=3,
        max_size=10,
    ),
)
def test_a_soup_of_tags_gives_the_same_reply_in_one_piece_and_in_characters(model: str, words: list[str | int]) -> None:
    text = "So. " + "".join(word if isinstance(word, str) else TAGS[model][word] for word in words)
    replies = [answers(model, wire(pieces), SEARCH)[1] for pieces in ([text], list(text))]
    whole, spelled = ((reply.text, called(reply), [note.did for note in reply.notes]) for reply in replies)
    assert whole == spelled


def test_a_call_behind_an_opener_that_is_text_is_found_in_one_piece() -> None:
    text = f"<tool_call>\n<function=search>\n<tool_call>\n{GET_CALL}\n</tool_call>\nDone."
    calls, shown, _ = seen_however_cut("alibaba/qwen3-coder-plus", text, SEARCH)
    assert (calls, shown) == ([("search", {"q": "tea"})], "<tool_call>\n<function=search>\nDone.")


@settings(max_examples=share(60), deadline=None)
@given(
    model=st.sampled_from(sorted(WRITERS)), before=st.sampled_from(["", "Sure. ", "天气：\n"]), at=st.integers(1, 400)
)
def test_a_stream_that_is_cut_has_no_call_to_run_and_loses_no_text(model: str, before: str, at: int) -> None:
    text = before + WRITERS[model].format("tea")
    chunks = wire([text[:at]])[:1]
    found = REGISTRY.resolve(model)
    parser = engine.StreamParser(found, plan=plan(found, stream=True, tools=SEARCH))
    for chunk in chunks:
        parser.feed(chunk)
    with pytest.raises(StreamCut) as caught:
        parser.close()
    reply = caught.value.reply
    assert reply is not None
    assert reply.tool_calls == []
    if at < len(text):
        assert reply.text == text[:at]
    else:
        assert [c.name for c in reply.incomplete] == ["search"]


def test_a_stream_that_is_cut_says_nothing_that_the_model_did_not_say() -> None:
    model = REGISTRY.resolve("zai/glm-4.7")
    parser = engine.StreamParser(model)
    parser.feed(wire([PAIRS.format("tea")])[0])
    with pytest.raises(StreamCut) as caught:
        parser.close()
    assert caught.value.reply is not None
    assert caught.value.reply.text == ""


@each("model", lambda: sorted(WRITERS))
def test_text_before_a_block_is_delivered_at_once_and_the_call_as_any_other(model: str) -> None:
    found = REGISTRY.resolve(model)
    parser = engine.StreamParser(found, plan=plan(found, stream=True, tools=SEARCH))
    block = WRITERS[model].format("tea")
    events = [parser.feed(chunk) for chunk in wire(["Look", " here: ", block[:7], block[7:]])]
    assert [e.text for e in [*events[0], *events[1]] if isinstance(e, TextDelta)] == ["Look", " here: "]
    assert not [e for e in [*events[2], *events[3]] if isinstance(e, TextDelta)]
    kinds = [type(e).__name__ for chunk in [*events, parser.end()] for e in chunk]
    assert kinds.index("ToolCallStart") < kinds.index("ToolCallDelta") < kinds.index("ToolCallEnd")


@each("model", lambda: sorted(WRITERS))
def test_two_calls_in_a_row_have_ids_of_their_own(model: str) -> None:
    text = WRITERS[model].format("tea") + "\n" + WRITERS[model].format("milk")
    found = read(model, f"Both: {text}", SEARCH)
    assert called(found) == [("search", {"q": "tea"}), ("search", {"q": "milk"})]
    assert len({c.id for c in found.tool_calls}) == 2
    assert found.text == "Both: "


# ── ends that were lost ──────────────────────────────────────────────────────
GET, WRITE = tool("get_weather", city="string"), tool("write", path="string", text="string")


class Writing(NamedTuple):
    """How a model writes calls: what opens and closes a block, a call, and a parameter."""

    block: tuple[str, str]
    call: tuple[str, str]
    parameter: tuple[str, str]

    def values(self, *arguments: tuple[str, str]) -> str:
        """Some parameters."""
        opening, closing = self.parameter
        return "".join(f"{opening.format(key)}{value}{closing}" for key, value in arguments)

    def begun(self, name: str, *arguments: tuple[str, str]) -> str:
        """A call without its end."""
        return self.call[0].format(name) + self.values(*arguments)

    def whole(self, *calls: str) -> str:
        """A block of calls."""
        return self.block[0] + "".join(calls) + self.block[1]


PAIR = ("\n<arg_key>{}</arg_key>\n<arg_value>", "</arg_value>")
PARAMETER = ('\n<parameter name="{}">', "</parameter>")
BARRED = ('\n<｜DSML｜parameter name="{}" string="true">', "</｜DSML｜parameter>")
TAGGED = Writing(("", ""), ("<tool_call>{}", "\n</tool_call>"), PAIR)
WRAPPED = Writing(("<tool_calls>", "\n</tool_calls>"), ("\n<tool_call>{}<tool_sep>", "\n</tool_call>"), PAIR)
INVOKED = Writing(("<minimax:tool_call>", "\n</minimax:tool_call>"), ('\n<invoke name="{}">', "\n</invoke>"), PARAMETER)
DSML = Writing(
    ("<｜DSML｜tool_calls>", "\n</｜DSML｜tool_calls>"),
    ('\n<｜DSML｜invoke name="{}">', "\n</｜DSML｜invoke>"),
    BARRED,
)
FUNCTION = Writing(
    ("<tool_call>", "\n</tool_call>"), ("\n<function={}>", "\n</function>"), ("\n<parameter={}>", "</parameter>")
)
CHANNELS = Writing(
    ("<|open|>tools<|sep|>", "\n<|close|>tools<|sep|>"),
    ('\n<|open|>call tool="{}"<|sep|>', "<|close|>call<|sep|>"),
    ('\n<|open|>argument key="{}" type="string"<|sep|>', "<|close|>argument<|sep|>"),
)
WRITINGS = [
    ("moonshotai/kimi-k3", CHANNELS),
    ("zai/glm-4.7", TAGGED),
    ("tencent/hy3", WRAPPED),
    ("minimax/MiniMax-M2.5", INVOKED),
    ("deepseek/deepseek-flash", DSML),
    ("alibaba/qwen3-coder-plus", FUNCTION),
]


@each("model, writing", WRITINGS)
def test_a_call_without_its_end_ends_where_the_next_one_begins(model: str, writing: Writing) -> None:
    first, second = writing.begun("get_weather", ("city", "Paris")), writing.begun("get_weather", ("city", "Rome"))
    calls, text, _ = seen_however_cut(model, writing.whole(first, second, writing.call[1]), [GET])
    assert (calls, text) == ([("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Rome"})], "")


@each("model, writing", [row for row in WRITINGS if row[1] in (INVOKED, DSML, FUNCTION)])
def test_an_answer_that_ends_behind_an_opening_tag_holds_no_call(model: str, writing: Writing) -> None:
    """The end of the answer says that it is whole, but the call in it has only begun."""
    begun = writing.block[0] + writing.begun("write")
    opening = writing.parameter[0]
    for text in (begun, begun + opening.format("path"), begun + writing.values(("path", "/")) + opening.format("text")):
        for space in ("", "\n", " \n\n"):
            calls, shown, notes = seen_however_cut(model, f"So.\n{text}{space}", [WRITE])
            assert (calls, shown.startswith("So.\n"), bool(notes)) == ([], True, True)
    whole = begun + writing.values(("path", "/"), ("text", "hi"))
    assert seen_however_cut(model, f"So.\n{whole}", [WRITE])[0] == [("write", {"path": "/", "text": "hi"})]


@each("model, writing", [row for row in WRITINGS if row[1] is not CHANNELS])
def test_an_answer_that_ends_where_another_argument_may_begin_holds_no_call(model: str, writing: Writing) -> None:
    for begun in (writing.begun("write"), writing.begun("write", ("path", "/"))):
        text = f"So.\n{writing.block[0]}{begun}"
        for rest in ("<", "\n<", "\n< "):
            calls, shown, notes = seen_however_cut(model, text + rest, [WRITE])
            assert (calls, shown, bool(notes)) == ([], text + rest, True)
    for rest in ("</", writing.call[1], f"{writing.call[1]}\n<"):  # no argument may begin there
        calls, _, _ = seen_however_cut(model, text + rest, [WRITE])
        assert calls == [("write", {"path": "/"})]


def test_an_answer_that_ends_where_the_arguments_of_a_section_begin_holds_no_call() -> None:
    block = SECTION.format("tea")
    begun = block[: block.index('{"q"')]
    for space in ("", "\n"):
        calls, text, notes = seen_however_cut("moonshotai/kimi-k2.5", f"So.\n{begun}{space}", SEARCH)
        assert (calls, text, bool(notes)) == ([], f"So.\n{begun}{space}", True)


@each("model, writing", WRITINGS)
@each("value", ["/tmp/a", "/tmp/a{close} or"])
def test_a_value_does_not_swallow_the_parameter_behind_it(model: str, writing: Writing, value: str) -> None:
    """A parameter lacks its end, or text stands behind the end: no reader can tell which text is the value."""
    first = writing.values(("path", value.format(close=writing.parameter[1]))).removesuffix(writing.parameter[1])
    call = writing.call[0].format("write") + first + writing.values(("text", "hi")) + writing.call[1]
    calls, _, notes = seen_however_cut(model, writing.whole(call), [WRITE])
    if writing is FUNCTION and "{close}" not in value:  # its own servers read it so
        assert calls == [("write", {"path": "/tmp/a\n", "text": "hi"})]
    else:
        assert calls == []
        assert any("is not closed" in note for note in notes)


@each("model, writing", WRITINGS)
def test_a_value_does_not_swallow_a_call_behind_other_text(model: str, writing: Writing) -> None:
    first, second = writing.begun("get_weather", ("city", "Paris")), writing.begun("get_weather", ("city", "Rome"))
    calls, _, notes = seen_however_cut(model, writing.whole(first, "\nand\n", second, writing.call[1]), [GET])
    assert calls == []
    assert any("is not closed" in note for note in notes)


@each("model, writing", WRITINGS)
def test_an_example_in_a_value_is_a_part_of_it(model: str, writing: Writing) -> None:
    calls = [writing.begun("get_weather", ("city", city)) + writing.call[1] for city in ("Paris", "Rome")]
    example = f"Write {writing.whole(*calls)} for it."
    text = writing.whole(writing.begun("write", ("path", "a"), ("text", example)), writing.call[1])
    assert seen_however_cut(model, text, [WRITE, GET])[:2] == ([("write", {"path": "a", "text": example})], "")


@each("model, writing", WRITINGS)
def test_an_example_in_a_call_that_is_refused_is_no_call(model: str, writing: Writing) -> None:
    example = f"Write {writing.whole(writing.begun('get_weather', ('city', 'Rome')), writing.call[1])} for it."
    value = f"{writing.parameter[1]} and {example}"
    text = writing.whole(writing.begun("write", ("text", value), ("path", "a")), writing.call[1])
    assert seen_however_cut(model, text, [WRITE, GET])[0] == []


BRACES = Writing(("", ""), ("<|tool_call>call:{}{{ignored:1", "}<tool_call|>"), (',{}:<|"|>', '<|"|>'))


@each("model, writing", [*WRITINGS, ("google/gemma-4-31b-it", BRACES)])
def test_a_call_with_one_argument_twice_is_no_call(model: str, writing: Writing) -> None:
    arguments = [("path", "/tmp/a"), ("text", "see"), ("path", "/etc/passwd")]
    text = writing.whole(writing.begun("write", *arguments), writing.call[1])
    calls, _, notes = seen_however_cut(model, text, [WRITE])
    assert calls == []
    assert any("an argument stands twice" in note for note in notes)
    assert seen_however_cut(model, text.replace("/etc/passwd", "/tmp/a"), [WRITE])[0] == []


@each("before, text", [("x </tool_call>", "x "), ("x </invoke>```tool_call", "x ```tool_call")])
def test_a_marker_waits_until_it_cannot_become_a_longer_one(before: str, text: str) -> None:
    """What stands behind another marker decides about that one, too."""
    found = seen_however_cut("openrouter/reflection/beam-1.0-501b-a23b", f"{before}<|end|><|start|>assistant")
    assert found[1] == text


# ── what is not a call ───────────────────────────────────────────────────────
PROSE = [
    "Models write `<tool_call>` when they call a tool.",
    "The tag <tool_call> opens a block, </tool_call> closes it.",
    'It wrote "<tool_call>search<arg_key>q</arg_key><arg_value>x</arg_value></tool_call>" and stopped.',
    "Like this:\n\n```xml\n{block}\n```\n\nThat is all.",
    "Inline: `{block}` is how it looks.",
    "他写的是“{block}”，仅此而已。",
    "<div class='tool_call'><p>HTML</p></div> <invoke>nothing</invoke> <parameter>",
    "{{% if x %}}<function=f>{{{{ y }}}}</function>{{% endif %}} <|im_start|>user<|im_end|>",
    "template<typename T> void f(std::vector<T> v) {{ if (a < b && c > d) return; }}",
    "| a | b |\n|---|---|\n| < | > |\n",
    "<tool_call>, is a tag that I like.",
    "<tool_call>{{not json}}</tool_call>",
    "x <｜ y ｜> z, <|tool, <minimax:, ]<]mini, <<<<<tool_call",
    "```tool\n<tool_call>\n```",
    "def f():\n    return '<tool_call>' + name + '</tool_call>'\n",
]


@each("model", lambda: sorted(WRITERS))
@each("text", PROSE)
def test_prose_code_and_templates_stay_as_they_are(model: str, text: str) -> None:
    text = text.format(block=WRITERS[model].format("tea"))
    if "“" in text and '"q"' in text:
        text = text.replace("“", "「").replace("”", "」")
    for split in ([text], list(text), re.findall(r".{1,7}", text, re.DOTALL)):
        events, reply = answers(model, wire(split), SEARCH)
        assert (reply.text, reply.tool_calls, reply.finish) == (text, [], "stop")
        assert told(events)[0] == text


def test_a_model_without_markup_of_its_own_is_read_for_what_all_write() -> None:
    assert called(read("openai/gpt-4.1", JSON.format("tea"), SEARCH)) == [("search", {"q": "tea"})]
    text = TOKENS.format("tea")
    assert read("openai/gpt-4.1", text, SEARCH).text == text


def test_a_block_after_talk_about_its_marker_is_found() -> None:
    text = "First <tool_call>{ is how it begins. " + JSON.format("tea")
    found = read("alibaba/qwen3-coder-plus", text, SEARCH)
    assert called(found) == [("search", {"q": "tea"})]
    assert found.text == "First <tool_call>{ is how it begins. "


def test_a_text_that_is_about_markers_is_given_up_and_told() -> None:
    text = "<tool_call>{nothing}</tool_call> " * 2000
    found = read("alibaba/qwen3-coder-plus", text, SEARCH)
    assert (found.text, found.tool_calls) == (text, [])
    assert "the rest is not searched" in "".join(note.did for note in found.notes)


# ── no tools were offered ────────────────────────────────────────────────────
@each("model", lambda: sorted(WRITERS))
def test_without_tools_the_markup_goes_and_a_note_carries_it(model: str) -> None:
    block = WRITERS[model].format("tea")
    events, reply = answers(model, wire(["Well. ", block, "\nBye."]))
    assert (reply.text, reply.tool_calls, reply.finish) == ("Well. Bye.", [], "stop")
    assert told(events)[0] == "Well. Bye."
    assert [(n.code, n.said) for n in reply.notes if n.flag == "leaks"] == [("text-call-stripped", block)]


@each(
    "prompt, begins",
    [
        ("为什么天空是蓝色的？", "我理解你想搜索「tea」"),
        ("なぜ空は青いの？", "「tea」を検索"),
        ("Why is the sky blue?", "I understand that you want a search for “tea”"),
    ],
)
def test_an_answer_of_nothing_but_markup_becomes_a_sentence_in_the_readers_script(prompt: str, begins: str) -> None:
    found = REGISTRY.resolve("zai/glm-4.7")
    parser = engine.StreamParser(found, plan=plan(found, prompt, stream=True))
    events = [e for chunk in wire(list(PAIRS.format("tea"))) for e in parser.feed(chunk)] + parser.end()
    reply = parser.close()
    assert reply.text.startswith(begins)
    assert told(events)[0] == reply.text == reply.message.text
    assert reply.finish == "stop"
    assert "fallback" in [n.code for n in reply.notes]


@each("rest", ["<", "</", "\n<tool"])
def test_an_answer_that_ends_with_what_may_begin_a_marker_is_more_than_markup(rest: str) -> None:
    events, reply = answers("zai/glm-4.7", wire([PAIRS.format("tea"), rest]))
    assert reply.text == told(events)[0] == rest.strip()
    assert "fallback" not in {note.code for note in reply.notes}


def test_the_sentence_can_be_set_and_may_be_empty(tmp_path: Any) -> None:
    file = tmp_path / "mine.toml"
    for said in ("Again, please.", ""):
        file.write_text(f'[providers.zai.fallback]\nother = "{said}"\nhan = "{said}"\n')
        model = cnllm.Registry.load(file).resolve("zai/glm-4.7")
        assert cnllm.sanitize(model, PAIRS.format("tea")).text == said
        body = {"choices": [{"message": {"content": PAIRS.format("tea")}, "finish_reason": "stop"}]}
        assert engine.parse_response(model, 200, {}, json.dumps(body).encode()).text == said


def test_tool_choice_none_means_that_no_tool_was_offered() -> None:
    _, reply = answers("deepseek/deepseek-flash", wire(["Well. ", TOKENS.format("tea")]), SEARCH, tool_choice="none")
    assert (reply.text, reply.tool_calls) == ("Well. ", [])


def test_a_new_spelling_of_a_known_grammar_is_toml_only(tmp_path: Any) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[models."zai/glm-4.7"]\nleaks = [{ open = ["[[call "], close = ["]]"], format = ["arg-pairs"], '
        'parts = ["k", "v"] }]\n'
    )
    model = cnllm.Registry.load(file).resolve("zai/glm-4.7")
    found = cnllm.sanitize(model, "So: [[call search<k>q</k><v>tea</v><k>n</k><v>3</v>]]", SEARCH)
    assert (called(found), found.text) == ([("search", {"q": "tea", "n": 3})], "So: ")


@each("end", ["`main.py`", "<", "a <|", "```"])
@each("model", WRITERS)
def test_what_stands_before_a_call_or_an_answer_comes_before_it(model: str, end: str) -> None:
    call = {"index": 0, "id": "call_1", "function": {"name": "search", "arguments": '{"q": "tea"}'}}
    deltas: list[dict[str, Any]] = [{"reasoning_content": f"think {end}"}, {"content": f"look at {end}"}]
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in [*deltas, {"tool_calls": [call]}]]
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    data = [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in [*chunks, last]]
    events, reply = answers(model, data, SEARCH)
    assert (reply.reasoning, reply.text) == (f"think {end}", f"look at {end}")
    kinds = [type(event) for event in events if isinstance(event, ReasoningDelta | TextDelta | ToolCallStart)]
    assert [kind for kind, _ in itertools.groupby(kinds)] == [ReasoningDelta, TextDelta, ToolCallStart]
