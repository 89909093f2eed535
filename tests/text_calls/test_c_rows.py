"""C: tool calls that a model writes as text. Every way they come, they run once and leave no markup behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cases import each

import cnllm
from cnllm import engine

from .support import REGISTRY, answers, called, plan, told, tool, wire

SEARCH = [tool("search", q="string"), tool("read", filePath="string", limit="integer")]
ASKED = [("search", {"q": "tea"})]
DSML = (
    "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"search\">\n"
    "<｜DSML｜parameter name=\"q\" string=\"true\">tea</｜DSML｜parameter>\n"
    "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
)  # fmt: skip
PAIRS = "<tool_call>search\n<arg_key>q</arg_key>\n<arg_value>tea</arg_value>\n</tool_call>"
SECTION = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>"
    '{"q": "tea"}<|tool_call_end|><|tool_calls_section_end|>'
)


def stream(model: str, text: str, **more: Any) -> tuple[list[cnllm.Event], cnllm.Reply]:
    """The text in pieces of five characters, as models send it."""
    pieces = [text[at : at + 5] for at in range(0, len(text), 5)]
    return answers(model, wire(pieces, **more), SEARCH)


def deltas_hold_no_markup(events: list[cnllm.Event], *markers: str) -> None:
    text, thought, _ = told(events)
    assert not [m for m in markers if m in text + thought]


# ── C1 ───────────────────────────────────────────────────────────────────────
@each(
    "model",
    ["deepseek/deepseek-flash", "siliconflow/deepseek-ai/DeepSeek-V4-Flash", "sglang/deepseek-ai/DeepSeek-V3.2"],
)
def test_C1_leaked_markup_becomes_a_call_wherever_the_model_is_served(model: str) -> None:
    events, reply = stream(model, f"Let me look.\n\n{DSML}")
    assert called(reply) == ASKED
    assert (reply.text.strip(), reply.finish, reply.raw_finish) == ("Let me look.", "tool_calls", "stop")
    assert reply.tool_calls[0].via == "text"
    assert told(events) == (reply.text, "", ASKED)
    deltas_hold_no_markup(events, "DSML", "<", "｜")
    note = next(note for note in reply.notes if note.code == "text-call")
    assert (note.flag, note.said) == ("leaks", DSML)
    assert "search" in note.did
    assert "providers.toml:" in note.where


def test_C1_what_of_a_block_is_no_call_is_noted_beside_its_calls() -> None:
    invoke = DSML[DSML.index("<｜DSML｜invoke") : DSML.index("</｜DSML｜tool_calls>")]
    block = DSML.replace(invoke, invoke + invoke.replace('name="search"', 'name="nobody"'))
    events, reply = stream("deepseek/deepseek-flash", block)
    assert called(reply) == ASKED
    assert told(events) == ("", "", ASKED)
    notes = {note.code: (note.said, note.did) for note in reply.notes}
    assert notes["text-call"][0] == block
    assert notes["text-call-kept"] == (block, "no tool has the name nobody")


def test_C1_a_whole_reply_is_read_the_same() -> None:
    model = REGISTRY.resolve("deepseek/deepseek-flash")
    body = json.dumps({"choices": [{"message": {"content": f"Let me look.\n\n{DSML}"}, "finish_reason": "stop"}]})
    reply = engine.parse_response(model, 200, {}, body.encode(), plan=plan(model, tools=SEARCH))
    assert (called(reply), reply.finish) == (ASKED, "tool_calls")


# ── C2 ───────────────────────────────────────────────────────────────────────
@each("bar", ["｜", "｜｜", "‖", "|", "||", " ｜ ", "｜ ", " | "])
@each("word", ["tool_calls", "function_calls", "calls"])
def test_C2_every_bar_and_space_is_one_grammar(bar: str, word: str) -> None:
    text = DSML.replace("tool_calls", word).replace("｜", bar)
    events, reply = stream("deepseek/deepseek-flash", text)
    assert called(reply) == ASKED
    assert reply.text.strip() == ""
    deltas_hold_no_markup(events, "DSML")


def test_C2_tags_that_are_broken_over_lines_are_still_tags() -> None:
    _, reply = stream("deepseek/deepseek-flash", DSML.replace("｜DSML｜", "｜\nDSML｜\n"))
    assert called(reply) == ASKED


# ── C3 ───────────────────────────────────────────────────────────────────────
@each("model, text", [("deepseek/deepseek-flash", DSML), ("zai/glm-4.7", PAIRS)])
@each("first", ["text", "call"])
def test_C3_markup_beside_the_real_call_is_taken_out_and_the_call_runs_once(model: str, text: str, first: str) -> None:
    call = [{"index": 0, "id": "c9", "type": "function", "function": {"name": "search", "arguments": '{"q":"tea"}'}}]
    said = wire([f"Looking.{text}"])
    real = wire([call], field="tool_calls", finish="tool_calls")  # type: ignore[list-item]
    chunks = [*said[:1], *real] if first == "text" else [*real[:1], *said[:1], *real[1:]]
    events, reply = answers(model, chunks, SEARCH)
    assert [(c.id, c.name, c.arguments, c.via) for c in reply.tool_calls] == [("c9", "search", {"q": "tea"}, "wire")]
    assert (reply.text, reply.finish) == ("Looking.", "tool_calls")
    assert told(events)[2] == ASKED
    assert "text-call-twice" in [note.code for note in reply.notes]


# ── C4 ───────────────────────────────────────────────────────────────────────
def test_C4_values_take_their_types_from_the_schema() -> None:
    text = "<tool_call>read<arg_key>filePath</arg_key><arg_value>007</arg_value><arg_key>limit</arg_key><arg_value>10</arg_value></tool_call>"  # noqa: E501
    _, reply = stream("zai/glm-5", text)
    assert called(reply) == [("read", {"filePath": "007", "limit": 10})]


@each("model", ["zai/glm-4.7", "vllm/zai-org/GLM-4.7", "openrouter/z-ai/glm-5"])
def test_C4_a_call_at_the_end_of_the_reasoning_counts_when_nothing_else_was_said(model: str) -> None:
    field = (REGISTRY.resolve(model).flags.reasoning.fields or [])[0]
    events, reply = stream(model, f"I should look it up.\n{PAIRS}\n", field=field)
    assert called(reply) == ASKED
    assert reply.reasoning.strip() == "I should look it up."
    deltas_hold_no_markup(events, "tool_call", "arg_key")


@each(
    "name, arguments",
    [
        ("read<arg_key>filePath</arg_key><arg_value>/a", "{}"),
        ("read", '{"filePath</arg_key><arg_value>": "/a"}'),
    ],
)
def test_C4_a_call_with_leftover_markup_is_never_executable(name: str, arguments: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}
    body = {"choices": [{"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    reply = engine.parse_response(REGISTRY.resolve("zai/glm-4.7"), 200, {}, json.dumps(body).encode())
    assert reply.tool_calls[0].arguments is None
    assert "contains markup" in str(reply.tool_calls[0].problem)


# ── C5 ───────────────────────────────────────────────────────────────────────
HERMES = '<tool_call>\n{"name": "search", "arguments": {"q": "tea"}}\n</tool_call>'
FUNCTION = "<tool_call>\n<function=search>\n<parameter=q>\ntea\n</parameter>\n</function>\n</tool_call>"


@each("text", lambda: [HERMES, FUNCTION, FUNCTION.replace("<tool_call>\n", "").replace("\n</tool_call>", "")])
def test_C5_both_ways_of_one_family_are_read(text: str) -> None:
    _, reply = stream("alibaba/qwen3-coder-plus", f"Sure.{text}")
    assert (called(reply), reply.text) == (ASKED, "Sure.")


def test_C5_the_switch_is_per_model_and_per_call(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[models."alibaba/qwen3-coder-plus"]\nleaks = []\n')
    model = cnllm.Registry.load(file).resolve("alibaba/qwen3-coder-plus")
    found = cnllm.sanitize(model, HERMES, SEARCH)
    assert (found.text, found.tool_calls) == (HERMES, [])
    for choice, calls, text in (("keep", [], HERMES), ("strip", [], ""), ("recover", ASKED, "")):
        _, reply = answers("alibaba/qwen3-coder-plus", wire(["Sure. ", HERMES]), SEARCH, recover_text_calls=choice)
        assert (called(reply), reply.text.removeprefix("Sure. ")) == (calls, text)


# ── C6 ───────────────────────────────────────────────────────────────────────
def test_C6_it_is_converted_not_stripped() -> None:
    inner = '<invoke name="search">\n<parameter name="q">tea</parameter>\n</invoke>'
    text = f"<minimax:tool_call>\n{inner}\n</minimax:tool_call>"
    events, reply = stream("minimax/MiniMax-M2.5", text)
    assert (called(reply), reply.finish) == (ASKED, "tool_calls")
    deltas_hold_no_markup(events, "minimax", "invoke")


# ── C7 ───────────────────────────────────────────────────────────────────────
@each("field", ["content", "reasoning_content"])
def test_C7_section_tokens_in_either_channel(field: str) -> None:
    events, reply = stream("moonshotai/kimi-k2.5", f"Hm. {SECTION}", field=field)
    assert called(reply) == ASKED
    deltas_hold_no_markup(events, "<|")


def test_C7_the_singular_spelling_counts_too() -> None:
    _, reply = stream("moonshotai/kimi-k2.5", SECTION.replace("tool_calls_section", "tool_call_section"))
    assert called(reply) == ASKED


# ── C8 ───────────────────────────────────────────────────────────────────────
def test_C8_reasoning_that_talks_about_a_call_and_goes_on_is_reasoning() -> None:
    said = f"Maybe {SECTION} would do, but no."
    events, reply = stream("moonshotai/kimi-k2.5", said, field="reasoning_content")
    assert (called(reply), reply.reasoning) == ([], said)
    assert told(events)[1] == said


def test_C8_reasoning_that_is_followed_by_an_answer_makes_no_call() -> None:
    chunks = [*wire([f"Maybe. {SECTION}"], field="reasoning_content")[:1], *wire(["No need: tea is a drink."])]
    _, reply = answers("moonshotai/kimi-k2.5", chunks, SEARCH)
    assert (called(reply), reply.reasoning, reply.text) == ([], f"Maybe. {SECTION}", "No need: tea is a drink.")


# ── C9 ───────────────────────────────────────────────────────────────────────
@each(
    "model, text, field",
    [
        ("deepseek/deepseek-flash", DSML, "content"),
        ("zai/glm-4.7", PAIRS, "content"),
        ("zai/glm-4.7", PAIRS, "reasoning_content"),
        ("moonshotai/kimi-k2.5", SECTION, "reasoning_content"),
    ],
)
def test_C9_history_keeps_the_call_and_not_its_markup(model: str, text: str, field: str) -> None:
    _, reply = stream(model, f"So.\n{text}", field=field)
    result = {"role": "tool", "tool_call_id": reply.tool_calls[0].id, "content": "hot"}
    body = plan(model, [{"role": "user", "content": "tea?"}, reply.message, result], tools=SEARCH).content.decode()
    turn: dict[str, Any] = plan(model, ["tea?", reply.message, result][1:], tools=SEARCH).body["messages"][0]
    assert turn["tool_calls"][0]["function"]["name"] == "search"
    assert not [m for m in ("arg_key", "DSML", "<tool_call>", "<|", "section") if m in body]


# ── C10 ──────────────────────────────────────────────────────────────────────
@each(
    "text",
    lambda: [
        '<｜DSML｜parameter name="q" string="true">tea</｜DSML｜parameter>',
        DSML.partition("</｜DSML｜parameter>")[0].replace("\n", ""),
    ],
)
def test_C10_what_is_not_certain_stays_text_and_is_reported(text: str) -> None:
    events, reply = stream("deepseek/deepseek-flash", f"Look: {text}")
    assert (reply.text, reply.tool_calls, reply.incomplete) == (f"Look: {text}", [], [])
    assert (told(events)[0], reply.finish) == (reply.text, "stop")
    if "invoke" in text:
        kept = [note for note in reply.notes if note.code == "text-call-kept"]
        assert [note.said for note in kept] == [text]
        assert "kept as text" in kept[0].did


@each("lost", ["</｜DSML｜tool_calls>", "_calls>", "\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"])
def test_C10_a_server_may_take_the_closer_for_a_stop_text(lost: str) -> None:
    events, reply = stream("deepseek/deepseek-flash", f"Look: {DSML.removesuffix(lost)}")
    assert (called(reply), reply.text, reply.finish) == (ASKED, "Look: ", "tool_calls")
    deltas_hold_no_markup(events, "DSML", "<")
