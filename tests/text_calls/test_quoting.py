"""A block that the model quotes is text, a block that it means is a call: in every grammar, however it is streamed."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cases import each
from msgspec.structs import astuple

import cnllm
from cnllm import Reply, engine
from cnllm.leaks.rules import Markup
from cnllm.types import TextDelta

from .quotations import CALLS, GRAMMARS, HELD, QUOTED, REAL, RETOLD, cases
from .support import REGISTRY, answers, called, tool, wire

TOOLS = [tool("rm", path="string"), tool("search", q="string", lang="string"), tool("now")]
RM = '<tool_call>{"name":"rm","arguments":{"path":"/"}}</tool_call>'
QWEN = "alibaba/qwen3-max"
PLANS: dict[tuple[str, Any], cnllm.Plan] = {}


def planned(model: str, prompt: str = "Hi") -> cnllm.Plan:
    if (model, prompt) not in PLANS:
        PLANS[model, prompt] = engine.build_request(REGISTRY.resolve(model), prompt, tools=TOOLS)
    return PLANS[model, prompt]


def answered(plan: cnllm.Plan, text: str, thought: str | None = None) -> Reply:
    message = {"role": "assistant", "content": text, "reasoning_content": thought}
    body = {"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    try:
        return engine.parse_response(plan.model, 200, {}, json.dumps(body).encode(), plan=plan)
    except cnllm.CnllmError as error:
        if error.reply is None:
            raise
        return error.reply


def offering(prompt: Any, **options: Any) -> cnllm.Plan:
    return engine.build_request(REGISTRY.resolve(QWEN), prompt, tools=TOOLS, **options)


def test_what_quotes_counts_far_from_the_block_however_the_text_comes() -> None:
    prose = "So a < b, and c <tool is no marker.\n" * 900
    for head, is_call in (("", True), ("```\n", False), ("<pre>\n", False)):
        text = f"{head}{prose}\n{RM}\n"
        for size in (len(text), 9000, 700, 17):
            pieces = [text[at : at + size] for at in range(0, len(text), size)]
            reply = answers(QWEN, wire(pieces), TOOLS)[1]
            assert bool(reply.tool_calls) is is_call, (head, size)
            assert is_call or reply.text == text


# ── both figures, over all grammars ──────────────────────────────────────────
def test_no_quotation_becomes_a_call_and_no_text_of_it_is_lost() -> None:
    false: list[str] = []
    for grammar, (model, write) in GRAMMARS.items():
        texts = list(cases(write, QUOTED))
        for way, text in texts[len(grammar) % 2 :: 2]:
            reply = answered(planned(model), text)
            if reply.tool_calls or reply.text != text:
                false.append(f"{grammar}: {way}")
    assert false == []


def test_no_real_call_is_lost() -> None:
    lost: list[str] = []
    for grammar, (model, write) in GRAMMARS.items():
        texts = list(cases(write, REAL))
        for way, text in texts[len(grammar) % 2 :: 2]:
            reply = answered(planned(model), text)
            wanted = REAL[way.rpartition(",")[0]].count("B")
            if len(reply.tool_calls) != wanted or any(one not in CALLS for one in called(reply)):
                lost.append(f"{grammar}: {way}")
    assert lost == []


def test_what_the_prompt_holds_in_any_form_is_a_quotation() -> None:
    false: list[str] = []
    for number, (grammar, (model, write)) in enumerate(GRAMMARS.items()):
        name, given = CALLS[number % 2]
        block = write(name, given)
        ways = list(RETOLD.items())
        for place, (form, hold) in enumerate(HELD.items()):
            way, retell = ways[(number + place) % len(ways)]
            text = retell(block)
            reply = answered(planned(model, hold(block)), text)
            kept = [note for note in reply.notes if note.code == "text-call-kept"]
            if reply.tool_calls or reply.text != text or not kept:
                false.append(f"{grammar}: held {form}, told {way}")
    assert false == []


def test_what_the_prompt_holds_in_escapes_alone_is_a_quotation() -> None:
    for form in ("\\u{:04x}", "&#{};", "&#x{:x};"):
        escapes = "".join(form.format(ord(character)) for character in RM)
        reply = answered(planned(QWEN, f"Explain {escapes}"), RM)
        assert (reply.text, reply.tool_calls) == (RM, []), form


def test_any_cut_of_the_stream_gives_the_same_reply() -> None:
    source = random.Random(7)
    ways = [*QUOTED.items(), *REAL.items()]
    for number, (model, write) in enumerate(GRAMMARS.values()):
        for way, _ in ways[number :: len(GRAMMARS)][:5]:
            _, text = next(cases(write, {way: dict(ways)[way] + '\n\nIt\'s "all".'}))
            whole = answers(model, wire([text]), TOOLS)[1]
            pieces, at = [], 0
            while at < len(text):
                pieces.append(text[at : (at := at + source.randint(1, 9))])
            for split in (list(text), pieces):
                reply = answers(model, wire(split), TOOLS)[1]
                assert (reply.text, called(reply)) == (whole.text, called(whole)), way
                assert [note.did for note in reply.notes] == [note.did for note in whole.notes], way


def test_a_fence_that_comes_in_one_read_with_the_block_in_it_is_known() -> None:
    pieces = ["a < b:", "\n", "```\n", RM, "\n```\n"]  # the line break, which passes by, makes it a fence
    for chunks in (wire(pieces), [b"".join(wire(pieces))]):
        reply = answers(QWEN, chunks, TOOLS)[1]
        assert (reply.text, reply.tool_calls) == ("".join(pieces), [])


@each(
    "text, is_call",
    lambda: [
        (f"Say `{RM} there", False),
        (f"Say {RM}` there", True),
        *(
            (
                f"{'word ' * before}He says {mark[0]}so it is:\n\n{'x ' * far}\n\n{RM}\n\nand so on{mark[1]} there.",
                far > 1_000,
            )
            for before in (0, 600)
            for far in (0, 700, 1_200)
            for mark in ("“”", "「」", '""')
        ),
    ],
)
def test_a_mark_quotes_what_is_near_it_wherever_it_stands(text: str, is_call: bool) -> None:
    for chunks in (wire([text]), wire(text[at : at + 50] for at in range(0, len(text), 50))):
        reply = answers(QWEN, chunks, TOOLS)[1]
        assert (len(reply.tool_calls), RM in reply.text) == (is_call, not is_call)


@each("form", ['"{}"', "'{}'", "{}"])
@each("behind", ["<code>{}</code>", "<q>so {}, no</q>", 'He says "{}".', "It says: so “look {}”."])
def test_a_block_in_an_attribute_leaves_the_quotation_behind_it_a_quotation(form: str, behind: str) -> None:
    now = '<tool_call>{"name":"now","arguments":{}}</tool_call>'
    text = f"<td title={form.format(now)}> and {behind.format(RM)}"
    reply = answered(planned(QWEN), text)
    assert (reply.text, reply.tool_calls) == (text, [])


@each("tools", [TOOLS, None], ids=["tools", "no tools"])
@each(
    "text",
    [
        '{{"log": "He said {0}hi{0} then {1}.", "n": 1}}',
        '{{"user": {{"said": "{1} "}}}}',
        '[\n    "the tag <think> opens it",\n    "and </think> closes it, {1}"\n]',
        '\n{{"a": "{1} ' + "word " * 600 + '", "b": "</tool_call>"}}',
        'Here it is: {{"log": "He said {0}hi{0} then {1}."}}',
    ],
)
def test_what_stands_in_a_string_of_json_is_text(text: str, tools: list[Any] | None) -> None:
    text = text.format('\\"', RM.replace('"', '\\"'))
    plan = engine.build_request(REGISTRY.resolve(QWEN), "Hi", tools=tools)
    whole = answered(plan, text)
    assert (whole.text, whole.tool_calls) == (text, [])
    for size in (1, 7, 50):
        split = [text[at : at + size] for at in range(0, len(text), size)]
        reply = answers(QWEN, wire(split), tools)[1]
        assert (reply.text, reply.tool_calls) == (text, [])
        assert not [note for note in reply.notes if note.code in ("tag-stripped", "text-call-stripped")]


def test_a_call_behind_json_or_outside_of_its_strings_is_a_call() -> None:
    for before in ('{"a": "b"}\n', "[1, 2]\n", '{curly "text', "{}"):
        assert called(answered(planned(QWEN), before + RM)) == [("rm", {"path": "/"})], before


@each(
    "text, stop",
    [
        (f'"{RM}" is what such a call looks like.', '"\n'),
        (f"> {RM}\n> and more", "> User:"),
        (f"He wrote:\n```\n{RM}\n```\n", "\n```\nEND"),
        ("hello END</think>\n wipe", "END"),
        ("hello\n</think>\nwipe", "\n\n"),
        ("STOP</invoke><!--", "STOP"),
        (f'<answer> "{RM}"</answer>', "</answer>"),
    ],
)
def test_a_text_that_waits_for_a_stop_text_stands_before_the_block(text: str, stop: str) -> None:
    plan = engine.build_request(REGISTRY.resolve(QWEN), "Hi", tools=TOOLS, stop=[stop])
    whole = answered(plan, text)
    for split in [list(text), *([text[:at], text[at:]] for at in range(1, len(text)))]:
        reply = answers(QWEN, wire(split), TOOLS, stop=[stop])[1]
        assert (reply.text, reply.tool_calls) == (whole.text, []), split


# ── what the prompt holds ────────────────────────────────────────────────────
def test_a_call_with_the_arguments_of_one_in_the_prompt_is_a_quotation_however_it_is_formatted() -> None:
    plan = offering('It says <tool_call>\n{\n  "arguments": {"path": "\\u002f"},\n  "name": "rm"\n}\n</tool_call>')
    reply = answered(plan, f"It would remove all: {RM}")
    assert (reply.tool_calls, reply.text) == ([], f"It would remove all: {RM}")


def test_another_call_than_that_in_the_prompt_is_a_call() -> None:
    plan = offering(f"Do what this says, but for /tmp: {RM}")
    other = RM.replace('"/"', '"/tmp"')
    reply = answered(plan, f"Well.\n{other}")
    assert called(reply) == [("rm", {"path": "/tmp"})]


def test_the_result_of_a_tool_is_quoted_and_the_turns_of_the_model_are_not() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}}
    turns = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": f"<p>{RM}</p>"},
    ]
    assert answered(offering(turns), f"It says {RM}.").tool_calls == []
    turns = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": f"I could run {RM}."},
        {"role": "user", "content": "Go on."},
    ]
    assert called(answered(offering(turns), f"Then so.\n{RM}")) == [("rm", {"path": "/"})]


def test_a_quotation_at_the_end_of_the_thinking_is_thinking() -> None:
    for prompt in (f"Summarise this: {RM}", f"Summarise this: {RM.replace('<', '&lt;')}"):
        reply = answered(offering(prompt), "", f"The user's text is: {RM}")
        assert (reply.tool_calls, reply.reasoning) == ([], f"The user's text is: {RM}")
    reply = answered(offering("Hi"), "", f"The text is: `{RM}`")
    assert (reply.tool_calls, reply.reasoning) == ([], f"The text is: `{RM}`")
    assert called(answered(offering("Hi"), "", f"I'll remove it.\n{RM}")) == [("rm", {"path": "/"})]


def test_where_calls_were_asked_for_as_text_a_block_at_the_end_on_its_own_line_is_a_call(tmp_path: Path) -> None:
    file = tmp_path / "home.toml"
    file.write_text(
        '[providers.home]\ntitle = "x"\nprotocol = "openai-chat"\nbase_url = "http://127.0.0.1:9/v1"\nkeys = []\n'
        '[models."home/m"]\ntools = { supported = false, otherwise = "prompt" }\n'
    )
    plan = engine.build_request(cnllm.Registry.load(file).resolve("home/m"), f"Run this: {RM}", tools=TOOLS)
    assert called(answered(plan, f"Sure.\n{RM}\n")) == [("rm", {"path": "/"})]
    for text in (f"Sure. {RM}", f"{RM}\nThat is what it says.", f"`{RM}`", f"It says\n{RM}\n\nbut no."):
        reply = answered(plan, text)
        assert (reply.tool_calls, reply.text) == ([], text)
    other = RM.replace('"/"', '"/tmp"')
    assert called(answered(plan, f"Sure. {other} Wait.")) == [("rm", {"path": "/tmp"})]


@each("then", ["strip", "recover"])
def test_calls_that_were_asked_for_are_read_whatever_becomes_of_blocks_otherwise(tmp_path: Path, then: str) -> None:
    file = tmp_path / "home.toml"
    file.write_text(
        '[providers.home]\ntitle = "x"\nprotocol = "openai-chat"\nbase_url = "http://127.0.0.1:9/v1"\nkeys = []\n'
        '[models."home/m"]\ntools = { supported = false, otherwise = "prompt" }\n[[models."home/m".leaks]]\n'
        f'open = ["<tool_call>"]\nclose = ["</tool_call>"]\nformat = ["json"]\nthen = "{then}"\n'
    )
    model = cnllm.Registry.load(file).resolve("home/m")
    for tools, calls in ((TOOLS, [("rm", {"path": "/"})]), (None, [])):
        reply = answered(engine.build_request(model, "Remove it.", tools=tools), f"Sure.\n{RM}\n")
        assert called(reply) == calls
        assert "tool_call" not in reply.text


# ── calls without arguments ──────────────────────────────────────────────────
def test_a_block_that_only_names_a_tool_is_a_call_on_lines_of_its_own_alone() -> None:
    strict = tool("rm", path="string")
    strict["function"]["parameters"]["required"] = ["path"]
    tools = [strict, tool("now")]
    plans = {
        model: engine.build_request(REGISTRY.resolve(model), "Hi", tools=tools)
        for model in (QWEN, "zai/glm-4.7", "alibaba/qwen3-coder-plus")
    }
    writers: dict[str, Callable[[str], str]] = {
        QWEN: lambda name: f'<tool_call>{{"name": "{name}"}}</tool_call>',
        "zai/glm-4.7": lambda name: f"<tool_call>{name}</tool_call>",
        "alibaba/qwen3-coder-plus": lambda name: f"<tool_call><function={name}></function></tool_call>",
    }
    for model, plan in plans.items():
        now, rm = writers[model]("now"), writers[model]("rm")
        for text in (now, f"I'll look.\n{now}\n", f"I'll look. {now}", f"Well.\n\n{now}\n\nThen more."):
            assert called(answered(plan, text)) == [("now", {})], text
        assert called(answered(plan, f"{now}{now}\n{now}")) == [("now", {})] * 3
        kept = [f"You could use {now} for that.", f"Use {now}", f"Use {now}, then wait.", f"{now} is how.", rm]
        for text in (*kept, f"Well.\n{rm}\n", f"{rm} and {now}"):
            reply = answered(plan, text)
            assert (reply.tool_calls, reply.text) == ([], text), text
            assert "text-call-kept" in [note.code for note in reply.notes]


# ── what it costs ────────────────────────────────────────────────────────────
def test_text_behind_a_block_that_nothing_may_quote_is_delivered_at_once() -> None:
    plan = engine.build_request(REGISTRY.resolve(QWEN), "Hi", stream=True, tools=TOOLS)
    parser = engine.StreamParser(plan.model, plan=plan)
    events = [parser.feed(chunk) for chunk in wire(["Look. ", RM, "More.", ' "said ', RM, " and", ' so".', " End."])]
    said = ["".join(event.text for event in piece if isinstance(event, TextDelta)) for piece in events]
    assert said[:8] == ["Look. ", "", "More.", ' "said ', "", "", "", ""]
    assert "".join(said) + "".join(e.text for e in parser.end() if isinstance(e, TextDelta)) == (
        f'Look. More. "said {RM} and so". End.'
    )


def test_talk_about_how_a_call_begins_holds_nothing_back() -> None:
    plan = engine.build_request(REGISTRY.resolve(QWEN), "Hi", stream=True, tools=TOOLS)
    parser = engine.StreamParser(plan.model, plan=plan)
    events = [parser.feed(chunk) for chunk in wire(["So ", '`<tool_call>{"na', 'me":`', " begins", " it. ", RM, "\n"])]
    said = ["".join(event.text for event in piece if isinstance(event, TextDelta)) for piece in events]
    assert said[:5] == ["So ", "`", '<tool_call>{"name":', "` begins", " it. "]
    assert called(parser.close()) == [("rm", {"path": "/"})]


def test_a_plan_refers_to_the_conversation_that_the_caller_gave() -> None:
    turns = [cnllm.Message("system", (cnllm.Text("Be brief."),)), cnllm.Message("user", (cnllm.Text("Hi"),))]
    assert [a is b for a, b in zip(offering(turns).messages, turns, strict=True)] == [True, True]


def work(run: Callable[[], object]) -> int:
    """How often anything is called while something runs."""
    count = 0

    def tell(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(tell)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


@each(
    "text",
    [
        f'He said "{RM}" and ',
        f"I'll go `now {RM} ",
        f"“{RM}\n\n",
        f"- {RM}\n  > {RM}\n",
        f"<code>{RM}\n",
        "```\n<tool_call>{ ",
    ],
)
def test_the_work_of_judging_grows_with_the_text(text: str) -> None:
    from cnllm.leaks.filter import LeakFilter
    from cnllm.leaks.prompt import PromptTexts

    rules = [Markup(*astuple(rule)) for rule in REGISTRY.resolve(QWEN).flags.leaks or ()]

    def judge(times: int) -> None:
        prompt = PromptTexts(lambda: ['<tool_call>{"name":"x"}</tool_call>\n' * times], rules, {})
        filter_ = LeakFilter(rules, {"rm": None}, trims=True, quotes=prompt.contains)
        for start in range(0, len(text) * times, 4096):
            filter_.feed((text * times)[start : start + 4096])
        filter_.close()

    judge(2)
    one, four = work(lambda: judge(50)), work(lambda: judge(200))
    assert four < 5 * one
