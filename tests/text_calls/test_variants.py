"""Variants of known markup that other parsers read, too: the same reply whole and cut anywhere."""

from __future__ import annotations

import json
from typing import Any

from cases import each

from .support import seen_however_cut, tool

UNKNOWN = "vllm/unheard-of"
NS = "]<]minimax[>["
QUOTE = '<|"|>'
BOOK = tool("book", room="string", nights="integer", extras={"type": "array", "items": {"type": "string"}})


@each(
    "model, text",
    [
        ("vllm/google/gemma-4-12b", f"<|tool_call>call:fees.list{{year:{QUOTE}2031{QUOTE}}}<tool_call|>"),
        ("vllm/LiquidAI/LFM2-8B", "<|tool_call_start|>[fees.list(year='2031')]<|tool_call_end|>"),
        ("vllm/Qwen/Qwen3-32B", '<tool_call>{"name": "fees.list", "arguments": {"year": "2031"}}</tool_call>'),
        (UNKNOWN, "<tool_call><function=fees_list><parameter=year>2031</parameter></function></tool_call>"),
    ],
)
def test_a_tool_is_called_by_the_name_that_the_caller_gave_it(model: str, text: str) -> None:
    calls, rest, _ = seen_however_cut(model, text, [tool("fees.list", year="string")])
    assert (calls, rest) == ([("fees.list", {"year": "2031"})], "")


@each("model", ["vllm/google/gemma-4-12b", UNKNOWN])
@each("arguments, expected", [(f"room:{QUOTE}Zirbe{QUOTE},nights:3", {"room": "Zirbe", "nights": 3}), ("", {})])
def test_a_call_in_braces_may_lack_the_word_before_its_colon(
    model: str, arguments: str, expected: dict[str, Any]
) -> None:
    calls, rest, _ = seen_however_cut(model, f"Gern.\n<|tool_call>:book{{{arguments}}}<tool_call|>", [BOOK])
    assert (calls, rest.strip()) == ([("book", expected)], "Gern.")


DSML = (
    '<｜DSML｜invoke name="book">\n<｜DSML｜parameter name="room" string="true">Zirbe</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>"
)
CALL = [("book", {"room": "Zirbe"})]


@each(
    "model, block, closer",
    [
        ("deepseek/deepseek-chat", DSML, "\n</｜DSML｜tool_calls>"),
        (UNKNOWN, DSML, "\n</｜DSML｜tool_calls>"),
        (
            "alibaba/qwen3-32b",
            "<tool_call>" + json.dumps({"name": "book", "arguments": CALL[0][1]}) + "</tool_call>",
            "</tool_call>",
        ),
    ],
)
@each("answer", ["Fertig.", "\n\nFertig."])
def test_a_closer_right_behind_a_block_is_no_text(model: str, block: str, closer: str, answer: str) -> None:
    calls, text, _ = seen_however_cut(model, f"Also.\n{block}{closer}{answer}", [BOOK])
    assert (calls, text.split()) == (CALL, ["Also.", "Fertig."])
    _, text, _ = seen_however_cut(model, f"Also {closer.strip()} endet es.", [BOOK])
    assert text == f"Also {closer.strip()} endet es."


@each(
    "model, text",
    [
        (
            "vllm/openbmb/MiniCPM5-2B",
            '<function name="book"><param>Zirbe</param><param name="nights">3</param></function>',
        ),
        (UNKNOWN, '<invoke name="book"><parameter>Zirbe</parameter><parameter name="nights">3</parameter></invoke>'),
    ],
)
def test_a_parameter_without_a_name_is_no_argument(model: str, text: str) -> None:
    assert seen_however_cut(model, text, [BOOK])[0] == []


@each(
    "written, arguments",
    [
        ({"extras": ""}, {"extras": []}),
        ({"room": ""}, {"room": ""}),
        ({"guest": ""}, {"guest": {}}),
        ({"note": ""}, {"note": ""}),
        ({"room": "\n  Zirbe & <Lärche>\n"}, {"room": "\n  Zirbe & <Lärche>\n"}),
        ({"nights": " 3 "}, {"nights": 3}),
    ],
)
def test_an_element_behind_a_prefix_is_of_its_schema_and_as_written(
    written: dict[str, str], arguments: dict[str, Any]
) -> None:
    either = {"anyOf": [{"type": "array"}, {"type": "string"}]}
    properties = {**BOOK["function"]["parameters"]["properties"], "guest": {"type": "object"}, "note": either}
    inner = "".join(f"{NS}<{name}>{value}{NS}</{name}>" for name, value in written.items())
    text = f'{NS}<tool_call>\n{NS}<invoke name="book">{inner}{NS}</invoke>\n{NS}</tool_call>'
    assert seen_however_cut("minimax/MiniMax-M3", text, [tool("book", **properties)])[0] == [("book", arguments)]


NOW = [tool("now")]
INVOKE = '<invoke name="now">\n</invoke>'


@each(
    "model, block",
    [
        ("alibaba/qwen3-32b", '<tool_call>{"name": "now", "arguments": {}}</tool_call>'),
        ("longcat/longcat-flash-chat", '<longcat_tool_call>{"name": "now", "arguments": { }}</longcat_tool_call>'),
        ("vllm/mistralai/Mistral-Small-3.2", "[TOOL_CALLS]now[ARGS]{}"),
        (UNKNOWN, "<|tool_call>call:now{}<tool_call|>"),
        ("minimax/MiniMax-M3", f'{NS}<tool_call>{NS}<invoke name="now">{NS}</invoke>{NS}</tool_call>'),
        ("alibaba/qwen3-coder-plus", "<tool_call>\n<function=now>\n</function>\n</tool_call>"),
        ("minimax/MiniMax-M2.5", f"<minimax:tool_call>\n{INVOKE}\n</minimax:tool_call>"),
        (
            "deepseek/deepseek-flash",
            f"<｜DSML｜tool_calls>\n{INVOKE}\n</｜DSML｜tool_calls>".replace("invoke", "｜DSML｜invoke"),
        ),
    ],
)
def test_a_call_without_arguments_that_is_no_mention_may_end_an_open_sentence(model: str, block: str) -> None:
    assert seen_however_cut(model, f"Ich sehe nach {block}", NOW)[:2] == ([("now", {})], "Ich sehe nach ")
    if NS not in block:  # the sentence goes on behind it
        text = f"Ich nehme {block}, dann warte ich."
        assert seen_however_cut(model, text, NOW)[:2] == ([], text)


HARMONY = ("vllm/openai/gpt-oss-20b", "groq/openai/gpt-oss-120b", UNKNOWN)
START = "<|start|>assistant"


@each(
    "models, text, calls, answer",
    [
        (HARMONY, "<|channel|>commentary<|message|>Gern.<|end|>", [], "Gern."),
        (HARMONY, f"{START}<|channel|>final<|message|>Gern.<|return|>", [], "Gern."),
        (
            HARMONY,
            f"<|channel|>analysis<|message|>Hm.<|end|>{START}<|channel|>final <|constrain|>json<|message|>[3]",
            [],
            "[3]",
        ),
        (
            HARMONY,
            f"<|channel|>commentary<|message|>Gern.<|end|>{START}<|channel|>commentary to=functions.book"
            '<|message|>{"room": "Zirbe"}<|call|>',
            CALL,
            "Gern.",
        ),
        (
            ("vllm/thinkingmachines/Inkling", "baseten/thinkingmachines/inkling-small", UNKNOWN),
            '<|content_text|>Gern.<|end_message|><|content_invoke_tool_json|>{"name":"book","args":{"room":"Zirbe"}}'
            "<|content_model_end_sampling|>",
            CALL,
            "Gern.",
        ),
        *(
            (
                ("google/gemma-4-31b-it", UNKNOWN),
                f"<|tool_call>call:book{{room:{QUOTE}Zirbe{QUOTE}}}{end}",
                CALL,
                answer,
            )
            for end, answer in (("<|tool_response>", ""), ("<tool_call|><|tool_response>Gern.", "Gern."))
        ),
        (("minimax/MiniMax-M3", "vllm/MiniMaxAI/MiniMax-M3"), "<mm:think>Hm.</mm:think>\nGern.", [], "Gern."),
    ],
)
def test_the_tokens_around_the_parts_of_a_turn_are_no_text(
    models: tuple[str, ...], text: str, calls: list[Any], answer: str
) -> None:
    for model in models:
        assert seen_however_cut(model, text, [BOOK])[:2] == (calls, answer), model


@each("model", ["zai/glm-4.7", "vllm/poolside/laguna-xs.2", "alibaba/qwen3-32b", UNKNOWN])
def test_a_name_may_stand_before_arguments_in_json(model: str) -> None:
    said = {"room": "Zirbe </tool_call> <arg_key>nights</arg_key>"}
    for block in (
        f"<tool_call>book\n{json.dumps(said)}</tool_call>",
        f"<tool_call>\nbook\n{json.dumps(said, indent=2)}\n</tool_call>",
    ):
        assert seen_however_cut(model, f"Gern.\n{block}", [BOOK])[:2] == ([("book", said)], "Gern.\n")
    both = '<tool_call>book\n{"room": "Zirbe"}\n<tool_call>now\n{}</tool_call>'
    assert seen_however_cut(model, both, [BOOK, *NOW])[:2] == ([*CALL, ("now", {})], "")
    for broken in ('{"room": "Zirbe"', '{"room": "Zirbe"} gern', "{room: Zirbe}", '["Zirbe"]'):
        calls, text, _ = seen_however_cut(model, f"Gern.\n<tool_call>book\n{broken}</tool_call>", [BOOK])
        assert (calls, text.startswith("Gern.\n")) == ([], True)
        assert broken in text


@each(
    "kind, value",
    [
        ("array", [{"id": "1", "at": "C:\\bin"}]),
        ("object", {"at": ['he said "no"', "a\nb"]}),
        (["array", "string"], None),
    ],
)
def test_a_value_that_is_encoded_twice_may_lack_its_quotes(kind: Any, value: Any) -> None:
    written = json.dumps(json.dumps(value or [{"id": "1"}]))[1:-1]
    text = f"<tool_call>book<arg_key>rows</arg_key><arg_value>{written}</arg_value></tool_call>"
    calls, _, _ = seen_however_cut("zai/glm-4.7", text, [tool("book", rows={"type": kind})])
    assert calls == [("book", {"rows": value or written})]
