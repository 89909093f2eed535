"""Rules as a registry would declare them, one for each way in which models write calls."""

from __future__ import annotations

from cnllm.leaks.rules import Markup

PAIRS = {"arg-pairs": ["arg_key", "arg_value"]}
FENCED = Markup(["```tool_call"], ["```"], ["json"])
HERMES = Markup(["<tool_call>"], ["</tool_call>"], ["json", "function", "arg-pairs"], PAIRS)
LIST = Markup(["<tool_calls>"], ["</tool_calls>"], ["json", "arg-pairs"], PAIRS)
SUFFIXED = Markup(
    ["<tool_calls:opensource>"],
    ["</tool_calls:opensource>"],
    ["arg-pairs"],
    parts=["arg_key:opensource", "arg_value:opensource"],
)
WORDED = Markup(["<longcat_tool_call>"], ["</longcat_tool_call>"], ["json"])
BARRED = Markup(
    ["<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"],
    ["</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"],
    ["invoke"],
)
BARRED_BARE = Markup(["<｜DSML｜invoke"], ["</｜DSML｜invoke>"], ["invoke"])
SPACED = Markup(["<minimax:tool_call>"], ["</minimax:tool_call>"], ["invoke"])
PREFIXED = Markup(
    ["]<]minimax[>[<tool_call>", "]<]minimax[>[ <tool_call>"],
    ["]<]minimax[>[</tool_call>", "]<]minimax[>[ </tool_call>"],
    ["invoke"],
)
FUNCTION_BARE = Markup(["<function="], ["</function>"], ["function"])
SEED = Markup(["<seed:tool_call>"], ["</seed:tool_call>"], ["function"])
NAMED_PARAMS = Markup(["<function name="], ["</function>"], ["function"], parts=["function", "param"])
PIPES = Markup(
    ["<|tool_calls_section_begin|>"],
    ["<|tool_calls_section_end|>"],
    ["sections"],
    parts=["<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"],
)
PIPES_BARE = Markup(["<|tool_call_begin|>"], ["<|tool_call_end|>"], ["sections"], parts=PIPES.parts)
TOKENS = Markup(
    ["<｜tool▁calls▁begin｜>"],
    ["<｜tool▁calls▁end｜>"],
    ["sections"],
    parts=["<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"],
)
ACTION = Markup(["<|action_start|> <|plugin|>"], ["<|action_end|>"], ["json"])
CHANNELS = Markup(
    ["<|open|>tools<|sep|>"], ["<|close|>tools<|sep|>"], ["channels"], parts=["<|open|>", "<|close|>", "<|sep|>"]
)
BRACES = Markup(["<|tool_call>"], ["<tool_call|>"], ["braces"], parts=['<|"|>'])
NAMED_JSON = Markup(["[TOOL_CALLS]"], ["]", "}"], ["named-json"], parts=["[ARGS]", "[CALL_ID]"])
KEYED = Markup(["<|tools_prefix|>"], ["<|tools_suffix|>"], ["json"])
NAMED_OBJECT = Markup(["<function="], ["</function>"], ["function", "arg-pairs"], PAIRS)
TOKEN_PAIRS = Markup(
    ["<|tool_call:start|>"],
    ["<|tool_call:end|>"],
    ["arg-pairs"],
    parts=["<|tool_arg:start|>", "<|tool_arg:value|>", "<|tool_arg:end|>"],
)
NUMBERED = Markup(
    ["<|tool_calls|>", "<|tool_call:begin|>"],
    ["<|tool_call:end|>"],
    ["sections"],
    parts=["<|tool_call:begin|>", "<|tool_call:args|>", "<|tool_call:end|>"],
)
TYPED = Markup(
    ["<|message_model|>"],
    ["<|end_message|>"],
    ["sections"],
    parts=["<|message_model|>", "<|content_invoke_tool_json|>", "<|end_message|>"],
)
PYTHONIC = Markup(["<|tool_call_start|>"], ["<|tool_call_end|>"], ["pythonic", "json"])
PYTHONIC_ALONE = Markup(["<|python_start|>"], ["<|python_end|>"], ["pythonic"])
RECIPIENT = Markup(
    ["<|start|>assistant to=", "to="],
    ["<|end|>", "<|call|>"],
    ["recipient"],
    parts=["<|channel|>analysis <|constrain|>xml<|message|>"],
)
ELEMENT = Markup(["<exec>", "<search>"], ["</exec>", "</search>"], ["element"])

ALL = {name: rule for name, rule in globals().items() if isinstance(rule, Markup)}
