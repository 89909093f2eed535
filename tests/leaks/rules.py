"""Rules as a registry would declare them, one for each way in which models write calls."""

from __future__ import annotations

from cnllm.registry.flags import Leak

PAIRS = {"arg-pairs": ["arg_key", "arg_value"]}
FENCED = Leak(["```tool_call"], ["```"], ["json"])
HERMES = Leak(["<tool_call>"], ["</tool_call>"], ["json", "function", "arg-pairs"], PAIRS)
LIST = Leak(["<tool_calls>"], ["</tool_calls>"], ["json", "arg-pairs"], PAIRS)
WORDED = Leak(["<longcat_tool_call>"], ["</longcat_tool_call>"], ["json"])
BARRED = Leak(
    ["<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"],
    ["</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"],
    ["invoke"],
)
BARRED_BARE = Leak(["<｜DSML｜invoke"], ["</｜DSML｜invoke>"], ["invoke"])
SPACED = Leak(["<minimax:tool_call>"], ["</minimax:tool_call>"], ["invoke"])
PREFIXED = Leak(["]<]minimax[>[<tool_call>"], ["]<]minimax[>[</tool_call>"], ["invoke"])
FUNCTION_BARE = Leak(["<function="], ["</function>"], ["function"])
SEED = Leak(["<seed:tool_call>"], ["</seed:tool_call>"], ["function"])
NAMED_PARAMS = Leak(["<function name="], ["</function>"], ["function"], parts=["function", "param"])
PIPES = Leak(
    ["<|tool_calls_section_begin|>"],
    ["<|tool_calls_section_end|>"],
    ["sections"],
    parts=["<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"],
)
PIPES_BARE = Leak(["<|tool_call_begin|>"], ["<|tool_call_end|>"], ["sections"], parts=PIPES.parts)
TOKENS = Leak(
    ["<｜tool▁calls▁begin｜>"],
    ["<｜tool▁calls▁end｜>"],
    ["sections"],
    parts=["<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"],
)
ACTION = Leak(["<|action_start|> <|plugin|>"], ["<|action_end|>"], ["json"])
CHANNELS = Leak(
    ["<|open|>tools<|sep|>"], ["<|close|>tools<|sep|>"], ["channels"], parts=["<|open|>", "<|close|>", "<|sep|>"]
)
BRACES = Leak(["<|tool_call>"], ["<tool_call|>"], ["braces"], parts=['<|"|>'])
NAMED_JSON = Leak(["[TOOL_CALLS]"], ["]", "}"], ["named-json"], parts=["[ARGS]", "[CALL_ID]"])
ELEMENT = Leak(["<exec>", "<search>"], ["</exec>", "</search>"], ["element"])

ALL = {name: rule for name, rule in globals().items() if isinstance(rule, Leak)}
