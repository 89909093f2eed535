"""Spellings that were seen once or twice, each with the model that wrote it; and the command that reads them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import program
import pytest
from cases import each

import cnllm

from .support import REGISTRY, answers, called, read, seen_however_cut, told, tool, wire

TOOLS = [tool("exec", cmd="string"), tool("get", city="string", days="integer")]
GET = [("get", {"city": "Rome"})]
JSON = '{"name": "get", "arguments": {"city": "Rome"}}'
FUNCTION = "<function=get>\n<parameter=city>\nRome\n</parameter>\n</function>"
INVOKE = '<invoke name="get">\n<parameter name="city">Rome</parameter>\n</invoke>'
NS = "]<]minimax[>["
PREFIXED = f'{NS}<tool_call>{NS}<invoke name="get">{NS}<city>Rome{NS}</city>{NS}</invoke>{NS}</tool_call>'
PAIR = "<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>"
PAIRS = f"<tool_calls>\n<tool_call>get<tool_sep>\n{PAIR}\n</tool_call>\n</tool_calls>"
SUFFIXED = PAIRS.replace(">", ":opensource>")
NUMBERED = PAIRS.replace(">", ":6124c78e>")
DSML = INVOKE.replace("invoke", "｜DSML｜invoke").replace("parameter", "｜DSML｜parameter")
GCML = f"<｜DSML｜tool_calls>\n{DSML}\n</｜DSML｜tool_calls>".replace("DSML", "GCML")
PIECES = "<start_function_call>call:get{city:<escape>Rome<escape>}<end_function_call>"
IFM = (
    "<ifm|tool_calls><ifm|tool_call>get<ifm|arg_key>city</ifm|arg_key><ifm|arg_type>string</ifm|arg_type>"
    "<ifm|arg_value>Rome</ifm|arg_value></ifm|tool_call></ifm|tool_calls>"
)
INKLING = '<|message_model|><|content_invoke_tool_json|>{"name":"get","args":{"city":"Rome"}}<|end_message|>'
PLAMO = (
    "<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>get"
    "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>"
    '{"city":"Rome"}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>'
    "<|plamo:end_tool_requests:plamo|>"
)
BEAM = 'get<|channel|>analysis <|constrain|>xml<|message|><rfl:parameter name="city">\nRome\n</rfl:parameter>'
ROME = '{"city": "Rome", "days": 2}'
BOTH = f'{{"name": "get", "arguments": {ROME}}}'
SOLAR = (
    "<|tool_call:start|>get\n<|tool_arg:start|>city<|tool_arg:value|>Rome<|tool_arg:end|>\n"
    "<|tool_arg:start|>days<|tool_arg:value|>2<|tool_arg:end|>\n<|tool_call:end|>"
)
SOLAR_1 = (
    '<|tool_call:begin|>k3j9x0a1b2<|tool_call:name|>get<|tool_call:args|>{"city": "Rome", "days": 2}<|tool_call:end|>'
)
RECENT = [
    *(
        (model, text)
        for model in ("upstage/solar-pro4", "vllm/upstage/Solar-Open2-250B", "vllm/unheard-of")
        for text in (
            SOLAR,
            SOLAR_1,
            f"<|tool_calls|>{SOLAR_1}",
            f"<|begin|>assistant<|tool_calls|>{SOLAR_1.replace('k3j9x0a1b2', '')}",
        )
    ),
    *(
        (model, f"{start}-> tool/function_call\n[{BOTH}]")
        for model, start in (
            ("vllm/naver-hyperclovax/HyperCLOVAX-SEED-Think-14B", ""),
            ("vllm/naver-hyperclovax/HyperCLOVAX-SEED-Think-14B", "<|im_end|>\n<|im_start|>assistant "),
            ("vllm/unheard-of", "<|im_end|>\n<|im_start|>assistant "),
        )
    ),
    ("vllm/FreedomIntelligence/openPangu-Embedded-7B", f"[unused11][{BOTH}][unused12]"),
    ("vllm/FreedomIntelligence/openPangu-Embedded-7B", f"<|tool_call_start|>[{BOTH}]<|tool_call_end|>"),
    *(
        (model, f"<function=get{given}</function>")
        for model in ("groq/llama-3.3-70b-versatile", "vllm/unheard-of")
        for given in (ROME, f">{ROME}", f"{ROME}>", f">{ROME}>", f" {ROME}", f"({ROME})", f" [{ROME}]")
    ),
    *(
        (model, f"<tool_call>get{between}{ROME}</tool_call>")
        for model in ("zai/glm-4.6", "vllm/zai-org/GLM-4.6", "vllm/unheard-of")
        for between in (">", "", " ", "\n")
    ),
]
"""(model, block) of calls with two arguments."""
SEEN = [
    *((model, text, [("get", {"city": "Rome", "days": 2})]) for model, text in RECENT),
    ("minimax/MiniMax-M2.1", "<invoke><exec>\n<cmd>date +%H</cmd>\n</exec></invoke>", [("exec", {"cmd": "date +%H"})]),
    ("minimax/MiniMax-M2.1", "<exec><cmd>ls -l</cmd></exec>", [("exec", {"cmd": "ls -l"})]),
    ("minimax/MiniMax-M2.1", '<tool_call><name>get</name><arguments>{"city":"Rome"}</arguments></tool_call>', GET),
    ("alibaba/qwen3-32b", f"```tool_call\n{JSON}\n```", GET),
    ("zai/glm-4.7", f"```tool_call\n{JSON}\n```", GET),
    ("openrouter/anthropic/claude-opus-5", INVOKE, GET),
    *(
        ("groq/openai/gpt-oss-120b", f'{head}<|message|>{{"city":"Rome"}}<|call|>', GET)
        for head in (
            *(f"<|channel|>{channel} to=functions.get" for channel in ("commentary", "analysis")),
            *(f"<|channel|>commentary to=functions.get{kind}" for kind in (" <|constrain|>json", "<|constrain|>json")),
            *(f"<|channel|>analysis to=functions.get {kind}" for kind in ("json", "code")),
            *(
                f"{start} to=get<|channel|>commentary json"
                for start in ("<|start|>assistant", "<|end|><|start|>assistant")
            ),
            "<|start|>assistant to=functions.get<|channel|>commentary<|constrain|>json",
            "<|start|>assistant<|channel|>commentary to=functions.get <|constrain|>json",
            "to=functions.get<|channel|>commentary <|constrain|>json",
        )
    ),
    *(
        (model, f"<|tool_call_start|>\n```{word}\nget(city='Rome')\n```\n<|tool_call_end|>", GET)
        for model in ("vllm/openbmb/MiniCPM4-8B", "vllm/unheard-of")
        for word in ("python", "python ", "")
    ),
    ("vllm/ByteDance-Seed/Seed-OSS-36B-Instruct", f"<seed:tool_call>\n{FUNCTION}\n</seed:tool_call>", GET),
    *(
        ("alibaba/qwen3-coder-plus", FUNCTION.replace(old, new), GET)
        for old, new in (
            ("=city", "=city type=string"),
            ("=city", '="city" type="string" required="true"'),
            ("=get", '=get id="1"'),
        )
    ),
    ("stepfun/step-3.5-flash", f"<tool_call>\n{FUNCTION}\n</tool_call>", GET),
    ("xiaomi/mimo-v2.5-pro", f"<tool_call>\n{FUNCTION}\n</tool_call>", GET),
    ("longcat/longcat-flash-chat", f"<longcat_tool_call>\n{JSON}\n</longcat_tool_call>", GET),
    ("openai-compatible/unheard-of", f"<tool_call>\n{JSON}\n</tool_call>", GET),
    *(
        (model, PREFIXED.replace(NS, NS + space), GET)
        for model in ("minimax/MiniMax-M3", "vllm/MiniMaxAI/MiniMax-M3", "vllm/unheard-of")
        for space in ("", " ", "\n", "  ")
    ),
    ("minimax/MiniMax-M3", PREFIXED.replace(f"{NS}<city", f"{NS} <city"), GET),
    *((model, SUFFIXED, GET) for model in ("openrouter/tencent/hy3", "vllm/tencent/Hy3", "vllm/unheard-of")),
    *(
        (model, text, GET)
        for model in ("openrouter/tencent/hy4", "vllm/tencent/Hy4-preview", "tencent/hy3", "vllm/unheard-of")
        for text in (NUMBERED, NUMBERED.replace("<tool_sep:6124c78e>", ""))
    ),
    ("vllm/tencent/Hy3", PAIRS, GET),
    *(
        (model, '<|tool_call>call:get{city:<|"|>Rome<|"|>}<tool_call|>', GET)
        for model in ("openrouter/google/gemma-4-31b-it", "vllm/google/gemma-4-31b-it", "vllm/unheard-of")
    ),
    *(
        (model, text, GET)
        for models, text in (
            (
                ("regolo-ai/apertus-70b", "vllm/swiss-ai/Apertus-70B"),
                '<|tools_prefix|>[{"get": {"city": "Rome"}}]<|tools_suffix|>',
            ),
            (
                ("cohere/command-a-plus-05-2026", "cohere/command-a-03-2025"),
                '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "get", "parameters": {"city": "Rome"}}\n'
                "]<|END_ACTION|>",
            ),
            (
                ("openrouter/dots-studio/dots-3-note-preview:free",),
                f"<dots_function_call>\n{INVOKE}\n</dots_function_call>",
            ),
            (
                ("baseten/thinkingmachines/inkling-small", "vllm/thinkingmachines/Inkling"),
                '<|message_model|>get<|content_invoke_tool_json|>{"name":"get","args":{"city":"Rome"}}<|end_message|>',
            ),
            (("internlm/intern-s1", "vllm/internlm/Intern-S1"), f"<|action_start|> <|plugin|>\n{JSON}<|action_end|>"),
            (
                ("openrouter/liquid/lfm-2.5-2.6b", "vllm/LiquidAI/LFM2-8B"),
                '<|tool_call_start|>[get(city="Rome")]<|tool_call_end|>',
            ),
            (("openrouter/liquid/lfm-2.5-2.6b",), f"<|tool_call_start|>[{JSON}]<|tool_call_end|>"),
            (
                ("deepinfra/meta-llama/Llama-4-Scout-17B-16E-Instruct",),
                "<|python_start|>[get(city='Rome')]<|python_end|>",
            ),
            (("groq/llama-3.3-70b-versatile",), f"<|python_tag|>{JSON}"),
            (
                ("amd/MiniCPM5-2B",),
                '<function name="get"><param name="city"><![CDATA[Rome]]></param></function>',
            ),
            (
                ("openrouter/meta/muse-glimmer-30b", "vllm/meta-models/Muse-Glimmer-30B"),
                '<atem:function_calls>\n<atem:invoke name="get">\n<atem:parameter name="city">Rome</atem:parameter>\n'
                "</atem:invoke>\n</atem:function_calls>",
            ),
            (("openrouter/nvidia/nemotron-3-super-120b-a12b",), f"<tool_call>\n{FUNCTION}\n</tool_call>"),
            (
                (
                    "nvidia/nvidia/nvidia-nemotron-nano-9b-v2",
                    "deepinfra/nvidia/Llama-3.3-Nemotron-Super-49B-v1.5",
                    "vllm/nvidia/NVIDIA-Nemotron-Nano-9B-v2",
                ),
                f"<TOOLCALL>[{JSON}]</TOOLCALL>",
            ),
            (("openrouter/poolside/laguna-xs.2", "arcee/trinity-large-thinking"), f"<tool_call>\n{JSON}\n</tool_call>"),
            (("kilo/poolside/laguna-s-2.1",), f"<tool_call>get\n{PAIR}\n</tool_call>"),
            (("cloudflare-workers-ai/@cf/ibm-granite/granite-4.0-h-micro",), f"<tool_call>\n{JSON}\n</tool_call>"),
            (("azure/phi-4-mini",), f"functools[{JSON}]"),
            *(
                (
                    ("volcengine/doubao-1-5-lite-32k-250115", "volcengine/doubao-seed-1-6-251015", "vllm/unheard-of"),
                    f"<|{begin}|>[{JSON.replace('arguments', 'parameters')}]<|FunctionCallEnd|>",
                )
                for begin in ("FunctionCallBegin", "FunctionCallBeginBegin")
            ),
            *(
                ((f"vllm/{name}", "vllm/unheard-of"), text)
                for name, text in (
                    ("ai-sage/GigaChat3-10B-A1.8B", f"<|message_sep|>\n\nfunction call<|role_sep|>\n{JSON}"),
                    ("ai-sage/GigaChat3.1-10B-A1.8B", f"<|function_call|>{JSON}"),
                    ("ai-sage/GigaChat-3.5", GCML),
                    ("google/functiongemma-270m-it", PIECES),
                    ("IQuestLab/IQuest-Q1", f"<iquest_tool_call>get\n{PAIR}\n</iquest_tool_call>"),
                    ("LLM360/K2-V3", IFM),
                    ("LLM360/K2-V3", f"<ifm|tool_call>{JSON}</ifm|tool_call>"),
                    ("pfnet/plamo-3-nict-31b", PLAMO),
                    ("allenai/Olmo-3-7B-Instruct", "<function_calls>\nget(city='Rome')\n</function_calls>"),
                    ("mistralai/Mistral-Small-3.2", f"[TOOL_CALLS][{JSON}]"),
                    ("mistralai/Mistral-Small-3.2", '[TOOL_CALLS]get[ARGS]{"city": "Rome"}'),
                    ("ibm-granite/granite-3.3-8b-instruct", f"<|tool_call|>[{JSON}]"),
                    ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", f"<TOOLCALL>[{JSON}]</TOOLCALL>"),
                    ("deepseek-ai/DeepSeek-V4-Pro", DSML),
                    ("deepseek-ai/DeepSeek-V4-Pro", f"<｜DSML｜toolcalls>\n{DSML}\n</｜DSML｜tool_calls>"),
                )
            ),
            (("vllm/ibm-granite/granite-20b-functioncalling",), f"<function_call> {JSON}"),
            (("vllm/thinkingmachines/Inkling", "vllm/unheard-of"), INKLING),
            (
                ("vllm/openai/gpt-oss-20b", "vllm/unheard-of"),
                '<|channel|>commentary to=functions.get <|constrain|>json<|message|>{"city":"Rome"}<|call|>',
            ),
            *(
                (("openrouter/reflection/beam-1.0-501b-a23b", "vllm/reflection/Beam-1.0-501B-A23B"), start + BEAM + end)
                for start in ("to=", "<|start|>assistant to=", "<|end|><|start|>assistant to=")
                for end in ("<|call|>", "<|end|>")
            ),
        )
        for model in models
    ),
]


@pytest.mark.share(2)
@each("model, text, calls", SEEN)
def test_a_spelling_is_a_call(model: str, text: str, calls: list[Any]) -> None:
    found = read(model, f"So.\n{text}\n", TOOLS)
    assert (called(found), found.text) == (calls, "So.\n")


@pytest.mark.share(2)
@each("model, text", RECENT)
def test_a_spelling_is_a_call_however_the_stream_is_cut(model: str, text: str) -> None:
    calls, rest, _ = seen_however_cut(model, f"So.\n{text}\nDone.", TOOLS)
    assert (calls, rest) == ([("get", {"city": "Rome", "days": 2})], "So.\nDone.")


@each("model, text", RECENT)
def test_a_spelling_in_code_is_text(model: str, text: str) -> None:
    for said in (f"So:\n```\n{text}\n```\nThat is how.", f"It is `{text}` in code.".replace("\n", " ")):
        assert seen_however_cut(model, said, TOOLS) == ([], said, [])


@each("model", ["vllm/microsoft/Phi-4-mini-instruct", "vllm/unheard-of"])
def test_the_closer_that_not_every_server_leaves_behind_a_list_is_no_text(model: str) -> None:
    for given in (f"[{BOTH}]", BOTH):
        block = f"<|tool_call|>{given}<|/tool_call|>"
        calls, rest, _ = seen_however_cut(model, f"So.\n{block}\nDone.", TOOLS)
        assert (calls, rest) == ([("get", {"city": "Rome", "days": 2})], "So.\nDone.")
        said = f"So:\n```\n{block}\n```\nThat is how."
        assert seen_however_cut(model, said, TOOLS) == ([], said, [])
        assert seen_however_cut(model, f"So.\n{block}\n", [tool("other", x="string")])[:2] == ([], "So.\n")


@each("model, text, calls", SEEN)
def test_a_spelling_is_no_call_of_a_tool_that_was_not_offered(model: str, text: str, calls: list[Any]) -> None:
    found = read(model, f"So.\n{text}\n", [tool("other", x="string")])
    assert (called(found), found.text) == ([], "So.\n")
    assert [(note.code, note.said) for note in found.notes] == [("text-call-stripped", text)]


@each(
    "model, opening, closing",
    [
        ("openrouter/google/gemma-4-31b-it", "<|channel>thought\n", "<channel|>"),
        ("vllm/google/gemma-4-31b-it", "<|channel>thought\n", "<channel|>"),
        ("vllm/unheard-of", "<|channel>thought\n", "<channel|>"),
        ("openrouter/tencent/hy3", "<think:opensource>", "</think:opensource>"),
        ("vllm/tencent/Hy3", "<think:opensource>", "</think:opensource>"),
        *(
            (model, "<think:6124c78e>", "</think:6124c78e>")
            for model in ("openrouter/tencent/hy4", "vllm/tencent/Hy4-preview", "vllm/unheard-of")
        ),
        ("vllm/moonshotai/Kimi-K3", "<|open|>think<|sep|>", "<|close|>think<|sep|>"),
        ("regolo-ai/apertus-70b", "<|inner_prefix|>", "<|inner_suffix|>"),
        ("vllm/swiss-ai/Apertus-70B", "<|inner_prefix|>", "<|inner_suffix|>"),
        ("cohere/command-a-plus-05-2026", "<|START_THINKING|>", "<|END_THINKING|>"),
        ("baseten/thinkingmachines/inkling-small", "<|message_model|><|content_thinking|>", "<|end_message|>"),
        ("vllm/thinkingmachines/Inkling", "<|message_model|><|content_thinking|>", "<|end_message|>"),
        *(
            (model, "<|channel|>analysis<|message|>", "<|end|><|start|>assistant")
            for model in (
                "openrouter/reflection/beam-1.0-501b-a23b",
                "vllm/reflection/Beam-1.0-501B-A23B",
                "groq/openai/gpt-oss-120b",
            )
        ),
        *(
            (model, "<|content_thinking|>", "<|end_message|>")
            for model in ("vllm/thinkingmachines/Inkling", "vllm/unheard-of")
        ),
        *(
            (model, f"<ifm|{word}>", f"</ifm|{word}>")
            for model in ("vllm/LLM360/K2-V3", "vllm/unheard-of")
            for word in ("think", "think_fast", "think_faster")
        ),
        *(
            (model, "<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>")
            for model in ("vllm/pfnet/plamo-3-nict-31b", "vllm/unheard-of")
        ),
        *(
            (model, " to=self<|message|>", "<|eom|>")
            for model in ("openrouter/meta/muse-glimmer-30b", "vllm/meta-models/Muse-Glimmer-30B")
        ),
        *(
            (model, opening, closing)
            for model in ("upstage/solar-pro4", "vllm/upstage/Solar-Open2-250B", "vllm/unheard-of")
            for opening, closing in (
                ("<|think:start|>", "<|think:end|>"),
                ("<|think|>", "<|end|><|begin|>assistant<|content|>"),
            )
        ),
        ("vllm/FreedomIntelligence/openPangu-Embedded-7B", "[unused16]", "[unused17]"),
    ],
)
def test_the_thinking_of_open_weights_is_no_text(model: str, opening: str, closing: str) -> None:
    said = f"{opening}It rains.{closing}Take an umbrella."
    for pieces in ([said], list(said)):
        text, thought, _ = told(answers(model, wire(pieces))[0])
        assert (text, thought) == ("Take an umbrella.", "It rains.")


@each("model", ["openrouter/reflection/beam-1.0-501b-a23b", "vllm/reflection/Beam-1.0-501B-A23B"])
def test_a_whole_turn_with_the_tool_before_the_marker(model: str) -> None:
    """The first message begins in the prompt. A parameter may lack its end, and the last end is often a stop token."""
    again = BEAM.replace("</rfl:parameter>", '<rfl:parameter name="days">\n2\n</rfl:parameter>')
    start = "<|end|><|start|>assistant to="
    turn = f"<|channel|>analysis<|message|>It rains.{start}{BEAM}{start}{again}"
    for text in (turn, turn + "<|call|>"):
        found = read(model, text, TOOLS)
        assert (found.reasoning, found.text) == ("It rains.", "")
        assert called(found) == [*GET, ("get", {"city": "Rome", "days": 2})]
    found = read(model, 'Set to="x" and to=get here.', TOOLS)
    assert (called(found), found.text) == ([], 'Set to="x" and to=get here.')


@each(
    "model, marker",
    [("groq/llama-3.3-70b-versatile", "<|python_tag|>"), ("vllm/ibm-granite/granite-3.3-8b-instruct", "<|tool_call|>")],
)
def test_a_semicolon_stands_between_the_calls_of_a_row(model: str, marker: str) -> None:
    other = '{"name": "exec", "parameters": {"cmd": "a; {b}"}}'
    calls = [*GET, ("exec", {"cmd": "a; {b}"}), *GET]
    for between in (";", "; ", " ;\n"):
        text = f"So.\n{marker}{between.join([JSON, other, JSON])}"
        assert seen_however_cut(model, text, TOOLS)[:2] == (calls, "So.\n")
    assert seen_however_cut(model, f"{marker}{JSON}; that is all.", TOOLS)[:2] == (GET, "; that is all.")
    for end in ('; {"name": "exec", "para', "; {", ";", " "):
        assert seen_however_cut(model, f"{marker}{JSON}{end}", TOOLS)[:2] == (GET, end.strip(" ") and end)


@each("value", ["\n", "\n\n", "\n    x = 1\n", " x ", "x\n"])
def test_a_value_that_is_said_to_be_text_keeps_its_line_breaks(value: str) -> None:
    parameter = f'<｜DSML｜parameter name="cmd" string="true">{value}</｜DSML｜parameter>'
    invoke = f'<｜DSML｜invoke name="exec">\n{parameter}\n</｜DSML｜invoke>'
    text = f"<｜DSML｜tool_calls>\n{invoke}\n</｜DSML｜tool_calls>"
    assert seen_however_cut("deepseek/deepseek-flash", text, TOOLS)[0] == [("exec", {"cmd": value})]


CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
COUNTED = {"type": "function", "function": {"name": "get_weather", "parameters": CITY}}
FITS, OFFERED = '{"city": "Tokyo"}', [COUNTED]


@each("name, before", [("0 ", "Let me check. "), ("functions.3", "")])
@each(
    "arguments, offered",
    [
        *((arguments, OFFERED) for arguments in (FITS, '{"city": 3}', "{}", '{"town": "Tokyo"}', '{"city": "To')),
        *((FITS, offered) for offered in ([*OFFERED, *TOOLS], None)),
    ],
)
def test_a_number_in_the_place_of_the_tool_means_the_only_one(
    name: str, before: str, arguments: str, offered: list[Any] | None
) -> None:
    """Nothing says which tool it means otherwise, and no tool has the number for a name."""
    section = f"<|tool_call_begin|>{name}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"
    text = f"{before}<|tool_calls_section_begin|>{section}<|tool_calls_section_end|>"
    calls, said, notes = seen_however_cut("moonshotai/kimi-k2.5", text, offered)
    if arguments is FITS and offered is OFFERED:
        assert (calls, said) == ([("get_weather", {"city": "Tokyo"})], before)
    else:
        assert calls == []
        assert any("a number stands in the place of the tool" in note for note in notes)
        assert said == before or "no tool" not in said


@each(
    "end, calls, answer",
    [
        ("<|channel|>final<|message|>It rains.<|return|>", [], "It rains."),
        (' to=functions.get<|channel|>commentary json<|message|>{"city":"Rome"}<|call|>', GET, ""),
        ('<|channel|>commentary to=functions.get <|constrain|>json<|message|>{"city":"Rome"}', GET, ""),
    ],
)
def test_a_whole_turn_in_channels(end: str, calls: list[Any], answer: str) -> None:
    model, turn = "groq/openai/gpt-oss-120b", "<|channel|>analysis<|message|>Rome.<|end|><|start|>assistant"
    assert seen_however_cut(model, turn + end, TOOLS)[:2] == (calls, answer)
    assert read(model, turn + end, TOOLS).reasoning == "Rome."
    for text in ("Write to=functions.get for it, or to=get.", "f(\n    to=\n)"):
        assert seen_however_cut(model, text, TOOLS)[:2] == ([], text)


# ── the command ──────────────────────────────────────────────────────────────
def sanitize(tmp_path: Path, text: str, *args: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps(TOOLS))
    words = [arg if arg != "TOOLS" else str(file) for arg in args]
    return program.completed(["sanitize", "--model", "zai/glm-4.7", *words], stdin=text)


CALL = "<tool_call>get<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call>"
TEXT = f"<think>Rome, then.</think>\n\nLooking.\n{CALL}"


def test_the_command_is_a_filter(tmp_path: Path) -> None:
    run = sanitize(tmp_path, TEXT, "--tools", "TOOLS")
    assert (run.returncode, run.stdout) == (0, "Looking.\n")
    assert "Rome, then." in run.stderr
    assert 'tool call: get {"city":"Rome"}' in run.stderr
    assert "providers.toml:" in run.stderr


def test_the_command_prints_one_object(tmp_path: Path) -> None:
    run = sanitize(tmp_path, TEXT, "--tools", "TOOLS", "--json")
    said = json.loads(run.stdout)
    assert (said["text"], said["reasoning"]) == ("Looking.\n", "Rome, then.")
    assert [(c["name"], c["arguments"], c["via"]) for c in said["tool_calls"]] == [("get", {"city": "Rome"}, "text")]
    assert said["notes"][0]["code"] == "text-call"


def test_the_command_without_tools_takes_the_markup_out(tmp_path: Path) -> None:
    run = sanitize(tmp_path, TEXT)
    assert run.stdout == "Looking.\n"
    assert "removed from the text" in run.stderr


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    run = sanitize(tmp_path, TEXT, "--tools", "nothing.json")
    assert run.returncode == 2
    assert "nothing.json" in run.stderr


@each(
    "model, text",
    [
        (
            "deepseek/deepseek-flash",
            DSML.replace("</｜DSML｜invoke>", "").join(["<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"]),
        ),
        ("openrouter/anthropic/claude-opus-5", f"<function_calls>{INVOKE.removesuffix('</invoke>')}</function_calls>"),
        ("alibaba/qwen3-coder-plus", f"<tool_call>\n{FUNCTION.removesuffix('</function>')}</tool_call>"),
        ("vllm/unheard-of", f"<tool_call>\n{FUNCTION.removesuffix('</function>')}</tool_call>"),
    ],
)
def test_a_closed_block_ends_the_call_in_it_that_lacks_its_own_end(model: str, text: str) -> None:
    assert seen_however_cut(model, f"So.\n{text}\nDone.", TOOLS)[:2] == (GET, "So.\nDone.")
    end = text[text.rindex("</") :]
    for broken in (text.replace(end, f"more{end}"), text[: text.index("Rome")] + end):
        assert called(read(model, broken, TOOLS)) == []


def test_an_opener_that_a_longer_marker_begins_with_is_text_once(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[providers.home]\ntitle = "x"\nprotocol = "openai-chat"\nbase_url = "http://127.0.0.1:9/v1"\nkeys = []\n'
        '[models."home/r1"]\nreasoning.tags = ["<|m|><|k|>", "<|e|>"]\n'
        'leaks = [{ open = ["<|m|>"], close = ["<|e|>"], format = ["sections"], parts = ["<|m|>", "<|c|>", "<|e|>"] },'
        ' { open = ["<|c|>"], close = ["<|e|>"], format = ["json"] }]\n'
    )
    found = cnllm.sanitize(cnllm.Registry.load(file).resolve("home/r1"), f"<|m|><|c|>{JSON}<|e|>", TOOLS)
    assert (called(found), found.text) == (GET, "")
    assert [note.code for note in found.notes] == ["text-call-stripped", "text-call"]


def test_a_broken_call_of_elements_is_no_text() -> None:
    text = PREFIXED.replace(f"{NS}</city>", f"{NS}</city>junk{NS}<days>2{NS}</days>")
    assert seen_however_cut("minimax/MiniMax-M3", f"So.\n{text}", TOOLS)[:2] == ([], "So.\n")


@each("arguments", ['{"cmd": }', '{"cmd": "ls"', '```json\n{"cmd": }\n```'])
@each("tools", [TOOLS, None], ids=["tools", "no tools"])
def test_a_call_whose_json_is_broken_is_no_text(arguments: str, tools: list[Any] | None) -> None:
    block = f'<minimax:tool_call><invoke name="exec">{arguments}</invoke></minimax:tool_call>'
    calls, text, notes = seen_however_cut("minimax/MiniMax-M2.5", f"Let me look. {block}", tools)
    assert (calls, text, len(notes)) == ([], "Let me look. ", 1)


def test_json_that_ends_in_the_middle_of_a_text_is_kept_whole() -> None:
    text = 'So.[TOOL_CALLS]exec{"cmd": "re.compile(r\'{}\')'
    assert seen_however_cut("mistral/mistral-large-latest", text, TOOLS)[:2] == ([], text)


def test_lines_of_calls_and_a_set() -> None:
    text = "<function_calls>\nget(city='Rome')\nexec(cmd={'b', \"a\"})\n</function_calls>"
    calls = [*GET, ("exec", {"cmd": ["b", "a"]})]
    assert seen_however_cut("vllm/allenai/Olmo-3-7B-Instruct", text, TOOLS)[:2] == (calls, "")
    for broken in ("{'a', 'b': 1}", "{1: 2}"):
        assert called(read("vllm/unheard-of", text.replace("{'b', \"a\"}", broken), TOOLS)) == []


def test_a_model_names_the_type_of_a_value_that_the_tool_does_not() -> None:
    text = IFM.replace("city", "days").replace("string", "integer").replace("Rome", "2")
    model = "vllm/LLM360/K2-V3"
    assert seen_however_cut(model, text, [tool("get")])[0] == [("get", {"days": 2})]
    assert seen_however_cut(model, text, [tool("get", days="string")])[0] == [("get", {"days": "2"})]
    assert seen_however_cut(model, text.replace("integer", "whatever"), [tool("get")])[0] == [("get", {"days": "2"})]


@each(
    "model, end",
    [
        ("deepseek/deepseek-flash", "<｜end▁of▁sentence｜>"),
        ("vllm/deepseek-ai/DeepSeek-V4-Pro", "<｜end▁of▁sentence｜>"),
        ("vllm/google/gemma-4-31b-it", "<turn|>"),
    ],
)
def test_the_marker_at_the_end_of_a_turn_is_no_text(model: str, end: str) -> None:
    assert seen_however_cut(model, f"So.\n{end}", TOOLS)[1].rstrip() == "So."
    call = f"<tool_call>\n{JSON}\n</tool_call>"
    assert seen_however_cut(model, f"{call}{end}", TOOLS)[:2] == (GET, "")
    assert seen_however_cut(model, f"It is {end} there.", TOOLS)[1] == f"It is {end} there."


@each(
    "model, text",
    [
        ("mistral/mistral-large-latest", f"[TOOL_CALLS] [~{{~{JSON[1:-1]}~}}~]"),
        ("mistral/mistral-large-latest", '[TOOL_CALLS]get{~"city": "Rome"~}'),
        ("groq/llama-3.3-70b-versatile", f"<|python_tag|>{{~{JSON[1:-1]}~}}"),
        ("vllm/ibm-granite/granite-3.3-8b-instruct", f"<|tool_call|>[~{{~{JSON[1:-1]}~}}~]"),
        ("vllm/LiquidAI/LFM2-8B", "<|tool_call_start|>[~get(~city='Rome'~)~]<|tool_call_end|>"),
        ("openrouter/anthropic/claude-opus-5", '<invoke name="get">~{~"city": "Rome"~}~</invoke>'),
        ("alibaba/qwen3-32b", f"<tool_call>~[~{{~{JSON[1:-1]}~}}~]~</tool_call>"),
    ],
)
def test_a_call_may_be_spread_over_indented_lines(model: str, text: str) -> None:
    for indent in ("", " " * 4, " " * 12, "\t\t"):
        assert seen_however_cut(model, text.replace("~", f"\n{indent}"), TOOLS)[:2] == (GET, "")


SECTION = f"<｜DSML｜function_calls>\n{DSML}\n"
UNFINISHED = DSML.replace("get", "exec").replace("</｜DSML｜parameter>\n", "").replace("</｜DSML｜invoke>", "")


@pytest.mark.parametrize(
    "block",
    [SECTION[: SECTION.index("</") + size] for size in (1, 2, 9, 17)]
    + [f"{SECTION}{UNFINISHED}</｜DSML｜function_calls>", f"<tool_call>\n{PAIR}\n<tool_call>\n"],
)
def test_a_block_that_is_no_call_keeps_all_of_its_markup(block: str) -> None:
    model = "zai/glm-4.7" if "arg_key" in block else "deepseek/deepseek-flash"
    calls, text, _ = seen_however_cut(model, f"I look it up.\n\n{block}", TOOLS)
    assert (calls, text) == ([], f"I look it up.\n\n{block}")


@pytest.mark.parametrize("text", ["functools", "Use functools\n", "functools\n\nThat is it.", "The module:\nfunctools"])
def test_a_word_that_may_begin_a_call_is_text(text: str) -> None:
    model = REGISTRY.resolve("openai-compatible/phi-4-mini", base_url="http://127.0.0.1:1/v1")
    assert cnllm.sanitize(model, text, TOOLS).text == text
    assert cnllm.sanitize(model, f"functools[{JSON}]", TOOLS).text == ""


def test_a_block_of_json_without_its_closer_ends_where_the_next_one_begins() -> None:
    rome, oslo = JSON, JSON.replace("Rome", "Oslo")
    both = [("get", {"city": "Rome"}), ("get", {"city": "Oslo"})]
    for text, calls in (
        (f"<tool_call>\n{rome}\n<tool_call>\n{oslo}\n</tool_call>", both),
        (f"<tool_call>{rome}<tool_call>{oslo}", both),
        (f"<tool_call>\n{rome}\n<tool_call>", GET),  # an opener in the place of the closer
    ):
        assert seen_however_cut("alibaba/qwen3-coder-plus", text, TOOLS)[:2] == (calls, "")
    for text in (f"Write <tool_call>{rome} <tool_call> for it.", f"`<tool_call>{rome}<tool_call>{oslo}</tool_call>`"):
        assert seen_however_cut("alibaba/qwen3-coder-plus", text, TOOLS) == ([], text, [])
    example = JSON.replace("Rome", "<tool_call>{}<tool_call>")
    called_once = [("get", {"city": "<tool_call>{}<tool_call>"})]
    assert seen_however_cut("zai/glm-4.7", f"<tool_call>{example}</tool_call>", TOOLS)[0] == called_once
