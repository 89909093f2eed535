"""Markup of calls that nobody can make never reaches the user: whole, streamed, and in the public filter."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from cases import each
from examples import share, some

import cnllm
from cnllm import Registry, engine

from .quotations import CALLS, GRAMMARS
from .support import REGISTRY, answers, called, read, told, tool, wire

OTHER = [tool("other", x="string")]
BLOCKS = {
    "elements": "<invoke><shell><command>uptime -p</command></shell></invoke>",
    "object": '<tool_call>\n{"name": "get_time", "arguments": {"zone": "UTC"}}\n</tool_call>',
    "named": '<invoke name="get_time"><parameter name="zone">UTC</parameter></invoke>',
    "wrapped": (
        '<function_calls><invoke name="get_time"><parameter name="zone">UTC</parameter></invoke></function_calls>'
    ),
    "function": "<function=get_time>\n<parameter=zone>\nUTC\n</parameter>\n</function>",
    "fence": '```tool_call\n{"name": "get_time", "arguments": {}}\n```',
    "function fence": '```function\n{"name": "get_time", "arguments": {"zone": "UTC"}}\n```',
}
MODELS = [
    "minimax/MiniMax-M2.1",
    "openai-compatible/unheard-of",
    "deepseek/deepseek-flash",
    "zai/glm-4.7",
    "openai/gpt-4.1",
    "stepfun/step-3.5-flash",
]
AROUND = [("", ""), ("Let me see.\n\n", ""), ("One moment: ", "\n\nThat is all."), ("行", "。好")]


def resolved(name: str) -> cnllm.Model:
    own: dict[str, Any] = {"base_url": "http://127.0.0.1:9/v1"} if name.startswith("openai-compatible/") else {}
    return REGISTRY.resolve(name, **own)


def fed(model: cnllm.Model, pieces: list[str], **options: Any) -> tuple[str, cnllm.Sanitized]:
    """What a Sanitizer shows of some pieces, and what it ends with."""
    filter_ = cnllm.Sanitizer(model, **options)
    shown = "".join([filter_.feed(piece) for piece in pieces])
    found = filter_.close()
    return shown + found.rest, found


# ── nothing of it stands in the answer ───────────────────────────────────────
def test_general_markup_goes_for_every_model_and_a_note_carries_it() -> None:
    for name in MODELS:
        model = resolved(name)
        for offered in (None, OTHER):
            for block in BLOCKS.values():
                for before, after in AROUND[1:]:
                    found = cnllm.sanitize(model, before + block + after, offered)
                    stands = before + after if before.strip() == before else before + after.lstrip(" ")
                    assert (found.text, found.tool_calls) == (stands, []), (name, block)
                    assert [(n.code, n.said) for n in found.notes] == [("text-call-stripped", block)]


@pytest.mark.sampled
def test_every_grammar_goes_where_its_tool_was_not_offered() -> None:
    for number, (model, write) in enumerate(GRAMMARS.values()):
        for name, given in some(CALLS, number):
            block = write(name, given)
            for offered in (None, OTHER):
                found = read(model, f"Now.\n{block}\n", offered)
                assert (found.text, called(found)) == ("Now.\n", []), block
                assert [note.said for note in found.notes] == [block]


def test_what_is_offered_is_called_whatever_the_model() -> None:
    tools = [tool("get_time", zone="string"), tool("shell", command="string")]
    for name in MODELS:
        for form, block in BLOCKS.items():
            found = cnllm.sanitize(resolved(name), f"Now.\n{block}", tools)
            wanted = "shell" if form == "elements" else "get_time"
            assert ([call.name for call in found.tool_calls], found.text) == ([wanted], "Now.\n"), (name, form)


def test_a_quotation_stays() -> None:
    for name in MODELS[:4]:
        for form, block in BLOCKS.items():
            quoted = [f"````\n{block}\n````", "> " + block.replace("\n", "\n> "), f"<pre>{block}</pre>"]
            quoted += [f"Write “{block}” for it."] if "`" not in block else []
            quoted += [f"Write `{block}` for it."] if "`" not in block and "\n" not in block else []
            for text in quoted:
                for offered in (None, OTHER):
                    assert cnllm.sanitize(resolved(name), text, offered).text == text, (name, form)


def test_what_the_prompt_holds_stays() -> None:
    block = BLOCKS["elements"]
    model = REGISTRY.resolve("minimax/MiniMax-M2.1")
    body = {"choices": [{"message": {"content": f"It says {block} there."}, "finish_reason": "stop"}]}
    for prompt, stands in ((f"What is {block}?", f"It says {block} there."), ("What is it?", "It says there.")):
        plan = engine.build_request(model, prompt)
        assert engine.parse_response(model, 200, {}, json.dumps(body).encode(), plan=plan).text == stands


def test_text_that_only_looks_like_it_stays() -> None:
    texts = [
        "```function\nf(x) = 2 * x\n```",
        '```function\n{"name": "get", "description": "d", "parameters": {"type": "object", "properties": {}}}\n```',
        '```function\n{"name": "Ann"}\n```',
        '```functions\n{"a": 1}\n```',
        "```functional\nmap f xs\n```",
        "<invoke>nothing</invoke>",
        "Both <tool_call> and </tool_call> are tags.",
        "Write <tool_call>JSON</tool_call> around it.",
        "a < b, `x`, <b>bold</b>, </function>, and `<invoke name=` too",
        "`<tool_call>",
        "if (a <function) { b }",
    ]
    for name in MODELS:
        for text in texts:
            for split in ([text], list(text)):
                shown, found = fed(resolved(name), split)
                assert (shown, found.text) == (text, text), (name, text)


def test_a_leaked_block_is_kept_where_the_caller_or_the_registry_says_so(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[defaults.call]\nrecover_text_calls = "keep"\n')
    keeping = Registry.load(file).resolve("zai/glm-4.7")
    for block in BLOCKS.values():
        for offered in (None, OTHER):
            assert cnllm.sanitize(keeping, block, offered).text == block
            assert cnllm.sanitize("zai/glm-4.7", block, offered, recover_text_calls="keep").text == block
        assert cnllm.sanitize(keeping, f"A {block}", recover_text_calls="strip").text == "A "
        _, reply = answers("zai/glm-4.7", wire(list(block)), recover_text_calls="keep")
        assert reply.text == block
        body = {"choices": [{"message": {"content": block}, "finish_reason": "stop"}]}
        assert engine.parse_response(keeping, 200, {}, json.dumps(body).encode()).text == block
    tools = [tool("get_time", zone="string")]
    assert cnllm.sanitize("zai/glm-4.7", BLOCKS["object"], tools, recover_text_calls="strip").tool_calls == []
    with pytest.raises(ValueError, match=r"recover_text_calls=.drop.; one of recover, strip, keep is expected"):
        cnllm.sanitize("zai/glm-4.7", "x", recover_text_calls="drop")  # type: ignore[arg-type]


# ── the layers of the registry ───────────────────────────────────────────────
def test_an_overlay_adds_markup_and_an_empty_list_takes_it_away(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    rule = 'leaks = [{ open = ["[[call "], close = ["]]"], format = ["json"] }]'
    file.write_text(f'[models."zai/glm-4.7"]\n{rule}\n')
    model = Registry.load(file).resolve("zai/glm-4.7")
    mine = '[[call {"name": "get_time", "arguments": {}}]]'
    assert cnllm.sanitize(model, f"A {mine} {BLOCKS['object']} B").text == "A B"
    openers = [opener for leak in model.flags.leaks or () for opener in leak.open]
    assert openers[0] == "[[call "
    assert "<function=" in openers
    file.write_text('[models."zai/glm-4.7"]\nleaks = []\n')
    assert cnllm.sanitize(Registry.load(file).resolve("zai/glm-4.7"), BLOCKS["object"]).text == BLOCKS["object"]
    file.write_text("[defaults]\nleaks = []\n")
    loaded = Registry.load(file)
    assert cnllm.sanitize(loaded.resolve("openai/gpt-4.1"), BLOCKS["named"]).text == BLOCKS["named"]
    from cnllm.registry_files.check import check

    (problem,) = check([str(file)])
    assert (problem.severity, problem.line) == ("warning", 2)
    assert "not that of families" in problem.message


def test_no_rule_stands_twice() -> None:
    for name in [*MODELS, "novita/minimaxai/minimax-m3", "alibaba/qwen3-coder-plus"]:
        try:
            leaks = resolved(name).flags.leaks or []
        except cnllm.UnknownModel:
            continue
        assert all(leak not in leaks[:place] for place, leak in enumerate(leaks)), name


# ── the sentence ─────────────────────────────────────────────────────────────
def test_the_sentence_says_what_was_wanted_in_the_language_of_the_prompt() -> None:
    date = '<invoke><exec><cmd>date "+%H:%M:%S"</cmd></exec></invoke>'
    said = {
        "现在几点？": '我理解你想查看时间（「date "+%H:%M:%S"」），但这里没有可用的工具。',
        "いま何時ですか": '時刻を確認したい（「date "+%H:%M:%S"」）のだと理解しましたが、'
        "ここでは使えるツールがありません。",
        "What time is it?": (
            'I understand that you want to know the time (“date "+%H:%M:%S"”), but no tool for it is available here.'
        ),
    }
    model = REGISTRY.resolve("minimax/MiniMax-M2.1")
    for prompt, sentence in said.items():
        for pieces in ([date], list(date)):
            parser = engine.StreamParser(model, plan=engine.build_request(model, prompt, stream=True))
            events = [event for chunk in wire(pieces) for event in parser.feed(chunk)] + parser.end()
            assert told(events)[0] == parser.close().text == sentence
    assert cnllm.sanitize(model, date, lang="zh-CN").text == said["现在几点？"]
    wrong: Any = 3
    with pytest.raises(TypeError, match=r"^lang is int; the tag of a language"):
        cnllm.sanitize(model, date, lang=wrong)
    assert cnllm.sanitize(model, f"<think>看时间</think>{date}").text == said["现在几点？"]
    assert cnllm.sanitize(model, date).text == said["What time is it?"]


@each(
    "block, call",
    [
        ('<tool_call>{"name": "get_weather", "arguments": {"city": "Rome"}}</tool_call>', "get_weather:Rome"),
        ('<tool_call>{"name": "sh", "arguments": {"command": "LANG=C  /bin/ls -l"}}</tool_call>', "LANG=C/bin/ls-l"),
        ('<tool_call>{"name": "sh", "arguments": {"cmd": ["bash", "-c", "ls"]}}</tool_call>', "bash-cls"),
        ('<tool_call>{"name": "sh", "arguments": {"cmd": "\\u001b[31m<invoke>\\u202e"}}</tool_call>', "[31minvoke"),
        ('<tool_call>{"name": "sh", "arguments": {"cmd": "' + "x" * 500 + '"}}</tool_call>', "x" * 299 + "…"),
        ('<tool_call>{"name": "find", "arguments": {"q": }}</tool_call>', "find"),
        ('<function_calls><invoke name="find"><parameter name="q">tea</invoke></function_calls>', "find"),
    ],
)
def test_what_was_wanted_is_short_and_safe(block: str, call: str) -> None:
    text = read("alibaba/qwen3-32b", block).text
    shown = text.partition("“")[2].partition("”")[0]
    assert shown.replace(" ", "") == call
    assert text.isprintable()
    assert len(text) < 400


WISHES = {
    ("exec", "cmd", "rm -rf /tmp/x"): ("执行「rm -rf /tmp/x」", "“rm -rf /tmp/x” to be run"),
    ("shell", "command", "LC_ALL=C date -u"): ("查看时间（「LC_ALL=C date -u」）", "the time (“LC_ALL=C date -u”)"),
    ("get_current_time", "zone", "UTC"): ("查看时间（「get_current_time」）", "the time (“get_current_time”)"),
    ("web_search", "query", "green tea 产地"): ("搜索「green tea 产地」", "a search for “green tea 产地”"),
    ("read_file", "filePath", "/etc/hosts"): ("访问文件「/etc/hosts」", "the file “/etc/hosts” to be used"),
    ("get_weather", "city", "Rome"): ("执行「get_weather: Rome」", "“get_weather: Rome” to be run"),
}


@each("model", MODELS[:4])
@each("wish", lambda: sorted(WISHES))
def test_the_sentence_names_the_whole_wish_by_its_kind_in_the_language_of_the_prompt(
    model: str, wish: tuple[str, str, str]
) -> None:
    tool_name, key, value = wish
    found = resolved(model)
    for block in (
        f'<tool_call>{{"name": "{tool_name}", "arguments": {{"{key}": "{value}"}}}}</tool_call>',
        f'<invoke name="{tool_name}"><parameter name="{key}">{value}</parameter></invoke>',
        f"<function={tool_name}><parameter={key}>{value}</parameter></function>",
    ):
        for prompt, phrase in zip(("请帮我做一下", "Please do it"), WISHES[wish], strict=True):
            parser = engine.StreamParser(found, plan=engine.build_request(found, prompt, stream=True))
            events = [event for chunk in wire(list(block)) for event in parser.feed(chunk)] + parser.end()
            assert phrase in parser.close().text
            assert told(events)[0] == parser.close().text


def test_markup_that_names_nothing_has_a_sentence_too(tmp_path: Path) -> None:
    assert read("minimax/MiniMax-M2.1", "<minimax:tool_call>").text.startswith("Sorry, I could not")
    file = tmp_path / "mine.toml"
    file.write_text('[defaults.fallback]\nother = "No {call} {here}."\nother-unnamed = "No."\n')
    model = Registry.load(file).resolve("minimax/MiniMax-M2.1")
    assert cnllm.sanitize(model, BLOCKS["object"]).text == "No get_time {here}."
    assert cnllm.sanitize(model, "<minimax:tool_call>\n").text == "No."


def test_a_broken_call_of_a_tool_that_is_offered_is_not_said_to_be_missing() -> None:
    text = '<minimax:tool_call><invoke name="search"><parameter name="q"></invoke></minimax:tool_call>'
    model = "minimax/MiniMax-M2.1"
    for offered, expected in ((None, "“search”"), ([tool("other")], "“search”"), ([tool("search", q="string")], "")):
        said = answers(model, wire(text), offered)[1].text
        assert said, offered
        assert ("no tool for it" in said) == bool(expected), offered
        assert (expected in said) if expected else ("search" not in said), offered


# ── markers alone ────────────────────────────────────────────────────────────
@each(
    "model, text, stands",
    [
        ("minimax/MiniMax-M2.1", "Well.\n<minimax:tool_call>", "Well.\n"),
        ("minimax/MiniMax-M2.1", "Well. <minimax:tool_call>\n", "Well. "),
        ("minimax/MiniMax-M2.1", "<minimax:tool_call>\n\nWell.", "Well."),
        ("minimax/MiniMax-M2.1", "Well.\n</minimax:tool_call>", "Well.\n"),
        ("minimax/MiniMax-M2.1", "<minimax:tool_call></minimax:tool_call>\nWell.", "Well."),
        ("minimax/MiniMax-M2.1", 'Well.\n<minimax:tool_call>\n<invoke name="find">\n', "Well.\n"),
        ("zai/glm-4.7", "Well.\n<tool_call>", "Well.\n"),
        ("zai/glm-4.7", "Well.\n<tool_call>\n</tool_call>", "Well.\n"),
        ("openai-compatible/x", "Well.\n<tool_call></tool_call>", "Well.\n"),
        ("openai-compatible/x", "Well.\n\n<tool_call>\n</tool_call>\n\nSo.", "Well.\n\nSo."),
        ("openai-compatible/x", "A <tool_call></tool_call> holds a call.", "A <tool_call></tool_call> holds a call."),
        ("openai-compatible/x", "```\n<tool_call>\n</tool_call>\n```", "```\n<tool_call>\n</tool_call>\n```"),
        ("deepseek/deepseek-chat", "Well.\n<｜tool▁calls▁begin｜>", "Well.\n"),
        ("moonshotai/kimi-k2.5", "Well.\n<|tool_calls_section_begin|>", "Well.\n"),
        ("openai-compatible/x", "Well.\n```tool_call\n", "Well.\n"),
        ("zai/glm-4.7", "</think>\n\nWell.", "Well."),
        ("zai/glm-4.7", "\n</think></think>\nWell.", "Well."),
        ("zai/glm-4.7", "</think><think>hm</think>\nWell.", "Well."),
        ("zai/glm-4.7", "Well. </think> is a tag.", "Well. is a tag."),
        ("minimax/MiniMax-M2.1", "Well.\n```\n<minimax:tool_call>\n```\n", "Well.\n```\n<minimax:tool_call>\n```\n"),
        ("minimax/MiniMax-M2.1", "Is <minimax:tool_call> a tag?", "Is <minimax:tool_call> a tag?"),
    ],
)
def test_a_marker_that_stands_alone_is_no_text(model: str, text: str, stands: str) -> None:
    for split in ([text], list(text), re.findall(r".{1,5}", text, re.DOTALL)):
        shown, found = fed(resolved(model), split)
        assert (shown, found.text) == (stands, stands)
        assert bool(found.notes) == (stands != text)
        assert {note.flag for note in found.notes} <= {"reasoning.tags" if "think>" in text else "leaks"}


@each(
    "text, stands",
    [
        ("Files:\nB\n  - one", "Files:\n  - one"),
        ("Files: \n B\n\n  - one", "Files: \n \n  - one"),
        ("Files:\n\nB\n\n  - one", "Files:\n\n  - one"),
        ("Files:B\n  - one", "Files:\n  - one"),
        ("Files: B  one", "Files: one"),
    ],
)
def test_a_line_behind_a_block_keeps_its_indentation(text: str, stands: str) -> None:
    text = text.replace("B", BLOCKS["object"])
    for split in ([text], list(text)):
        shown, found = fed(resolved("zai/glm-4.7"), split, tools=[tool("get_time", zone="string")])
        assert (shown, found.text, len(found.tool_calls)) == (stands, stands, 1)


# ── the filter in public ─────────────────────────────────────────────────────
@pytest.mark.sampled
def test_the_pieces_of_a_sanitizer_are_its_text_however_the_text_is_cut() -> None:
    source = random.Random(5)
    marks = [
        "</think>",
        "<think>",
        "<tool_call>",
        "</tool_call>",
        "```",
        "`",
        "> ",
        "\n",
        "\n\n",
        " ",
        "说",
        "</invoke>",
    ]
    tools = [tool("get_time", zone="string")]
    for number in range(share(720)):
        model = resolved(MODELS[number % len(MODELS)])
        offered = (None, tools)[number % 2]
        parts = [source.choice([*BLOCKS.values(), *marks, "word", "Well. "]) for _ in range(source.randint(1, 6))]
        text = ("<think>hm</think>" if number % 3 == 0 else "") + "".join(parts)
        text = text[: len(text) - source.choice([0, 0, 0, 1, 5])]
        whole = cnllm.sanitize(model, text, offered)
        cuts = sorted(source.sample(range(len(text) + 1), min(4, len(text))))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        for split in (pieces, list(text)):
            shown, found = fed(model, split, tools=offered)
            assert shown == found.text == whole.text, (model.name, text)
            assert (found.reasoning, called(found)) == (whole.reasoning, called(whole)), (model.name, text)


@each("before", ["<think>hm</think><think>", "<think>hm</think>\n<think>", "<think>hm</think><think>so:<think>"])
def test_a_call_in_reasoning_that_begins_again_is_found_however_it_is_cut(before: str) -> None:
    tools = [tool("get_time", zone="string")]
    text = before + "<function=get_time>\n<parameter=zone>\nUTC\n</parameter>\n</function>"
    whole = cnllm.sanitize("zai/glm-4.7", text, tools)
    assert called(whole) == [("get_time", {"zone": "UTC"})]
    for split in (list(text), re.findall(r".{1,7}", text, re.DOTALL)):
        shown, found = fed(resolved("zai/glm-4.7"), split, tools=tools)
        assert (shown, found.text, found.reasoning, called(found)) == (
            whole.text,
            whole.text,
            whole.reasoning,
            called(whole),
        )


def test_a_sanitizer_shows_text_at_once_and_no_thinking() -> None:
    filter_ = cnllm.Sanitizer("zai/glm-4.7")
    assert filter_.feed("<think>The user") == ""
    assert filter_.feed(" asks.</think>\n\nIt is ") == "It is "
    assert filter_.feed("noon. <tool") == "noon. "
    assert filter_.feed("box>") == "<toolbox>"
    found = filter_.close()
    assert (found.rest, found.text, found.reasoning) == ("", "It is noon. <toolbox>", "The user asks.")
    assert filter_.close() is found
    with pytest.raises(ValueError, match="closed"):
        filter_.feed("more")


def test_equal_pieces_are_no_snapshots() -> None:
    shown, found = fed(REGISTRY.resolve("zai/glm-4.7"), ["ha", "ha", "haha", "ha"])
    assert shown == found.text == "hahahahaha"
