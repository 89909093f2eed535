"""Writers: each writes calls as a block of one grammar, in one of the ways in which models do.

A writer is given calls (name, arguments) and a source of choices, and returns (rule, opener, block).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from cnllm.leaks.rules import Markup

from . import rules

Call = tuple[str, dict[str, Any]]
Draw = Callable[[st.SearchStrategy[Any]], Any]
Block = tuple[Markup, str, str]

# What is hard about values: markup of their own, and pieces of every grammar. Tags that open and do not close are kept
# from tags that close and did not open: where both stand in the values of one block, no reader could tell.
PLAIN = [
    "<b>hi</b>",
    "a < 5",
    '"',
    "'",
    "\\",
    "\n",
    "\n\n",
    "\t",
    "&lt;",
    "｜",
    "|",
    "{",
    "}",
    "[",
    "```",
    "null",
    "007",
]
CLOSERS = [
    *("</parameter>", "</function>", "</invoke>", "</arg_value>", "</tool_call>", "</tool_calls>", "</item>"),
    *("<|close|>argument<|sep|>", "<|close|>call<|sep|>", "<tool_call|>"),
    *("</｜DSML｜parameter>", "</｜DSML｜invoke>", "</steptml:parameter>", "<|tool_call_end|>", "<｜tool▁call▁end｜>"),
]
OPENERS = [
    *("<parameter=q>", '<parameter name="q">', '<invoke name="q">', "<function=q>", "<arg_key>q</arg_key>"),
    *('<|open|>argument key="q" type="string"<|sep|>', "<|tool_call>", "[TOOL_CALLS]", "[ARGS]"),
    *("<arg_value>", "<tool_call>", '<｜DSML｜parameter name="q">', "<|tool_call_begin|>", "<|tool_arg:start|>"),
]
EXAMPLES = [
    "<tool_call>\n<function=q>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n</parameter>\n</function>\n</tool_call>",
    '<invoke name="q"><parameter name="a">1</parameter><parameter name="b">2</parameter></invoke>',
    "<arg_key>a</arg_key><arg_value>1</arg_value>",
    '<|open|>argument key="a" type="string"<|sep|>1<|close|>argument<|sep|>',
    'call:q{a:1,b:[2]}[TOOL_CALLS]q[ARGS]{"a": 1}',
]
PIECES = [PLAIN, PLAIN + CLOSERS, PLAIN + OPENERS, PLAIN + EXAMPLES]

names = st.sampled_from(["get_weather", "mcp__app__run", "ns.search", "a", "read-file", "functions_list"])
keys = st.sampled_from(["city", "path", "unit_2", "a", "x-y", "Größe"])
jsons = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=8) | st.sampled_from(CLOSERS + PLAIN),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def texts(pieces: list[str]) -> st.SearchStrategy[str]:
    """Texts with such pieces in them, which letters keep apart."""
    piece = st.sampled_from(pieces) | st.text(max_size=6)
    return st.lists(piece, max_size=4).map(lambda found: " é".join(found))


def values(pieces: list[str]) -> st.SearchStrategy[tuple[dict[str, Any], Any]]:
    """(schema, value) of an argument."""
    return st.one_of(
        st.tuples(st.just({"type": "string"}), texts(pieces)),
        st.tuples(st.just({}), texts(pieces)),
        st.tuples(st.just({"type": "integer"}), st.integers()),
        st.tuples(st.just({"type": ["number", "null"]}), st.none() | st.floats(allow_nan=False, allow_infinity=False)),
        st.tuples(st.just({"anyOf": [{"type": "boolean"}]}), st.booleans()),
        st.tuples(st.just({"type": "object"}), st.dictionaries(st.text(max_size=5), jsons, max_size=3)),
        st.tuples(st.just({"$ref": "#/$defs/list"}), st.lists(jsons, max_size=3)),
    )


@st.composite
def asked(draw: Draw, writer: Callable[..., Block]) -> tuple[list[Call], dict[str, Any]]:
    """(calls, tools): as many calls as a block of this writer may hold, and the tools that were offered."""
    most = 1 if writer in (recipients, named_objects, token_pairs, numbered) else 3
    pieces = draw(st.sampled_from(PIECES))
    tools: dict[str, Any] = {}
    calls: list[Call] = []
    for name in draw(st.lists(names, min_size=1, max_size=most, unique=True)):
        arguments = draw(st.dictionaries(keys, values(pieces), max_size=3))
        properties = {key: schema for key, (schema, _) in arguments.items()}
        tools[name] = {"type": "object", "properties": properties, "$defs": {"list": {"type": "array"}}}
        calls.append((name, {key: value for key, (_, value) in arguments.items()}))
    return calls, tools


def written(value: Any) -> str:
    """A value as text."""
    return value if type(value) is str else json.dumps(value)


def on_lines(text: str, own: bool) -> str:
    """A value on lines of its own, or as it is. One that has line breaks around it needs its own."""
    return f"\n{text}\n" if own or (text[:1] == "\n" == text[-1:]) else text


def _space(draw: Draw) -> str:
    return str(draw(st.sampled_from(["", "\n", "\n  "])))


def _json(call: Call, draw: Draw) -> str:
    name, arguments = call
    given: Any = json.dumps(arguments) if draw(st.booleans()) else arguments
    one: dict[str, Any] = {"name": name, draw(st.sampled_from(["arguments", "parameters"])): given}
    if not arguments and draw(st.booleans()):
        one = {"name": name, **draw(st.sampled_from([{}, {"arguments": None}]))}
    if draw(st.booleans()):
        one = {"id": "call_1", "type": "function", "function": one}
    return json.dumps(one, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 2])))


def objects(calls: list[Call], draw: Draw) -> Block:
    rule = draw(st.sampled_from([rules.HERMES, rules.LIST, rules.WORDED, rules.FENCED, rules.ACTION]))
    inner = [_json(call, draw) for call in calls]
    body = draw(st.sampled_from(["[%s]", "%s"])) % draw(st.sampled_from([",\n", ", "])).join(inner)
    if rule is not rules.FENCED and draw(st.booleans()):
        body = f"```json\n{body}\n```"
    return rule, rule.open[0], f"{rule.open[0]}\n{body}\n{rule.close[0]}"


def _attribute(name: str, draw: Draw) -> str:
    quote = draw(st.sampled_from("\"'"))
    return f"{quote}{name}{quote}"


def _bars(text: str, draw: Draw) -> str:
    """A tag with its bars as they come."""
    return text.replace("｜", draw(st.sampled_from(["｜", "｜｜", "|", "‖", " ｜ "])))


def invokes(calls: list[Call], draw: Draw) -> Block:
    rule, mark = draw(st.sampled_from([(rules.SPACED, ""), (rules.BARRED, "｜DSML｜"), (rules.SPACED, "ns:")]))
    body = ""
    for name, arguments in calls:
        body += _space(draw) + f"<{_bars(mark, draw)}invoke name={_attribute(name, draw)}>"
        if arguments and draw(st.booleans()) and draw(st.booleans()):
            body += f"\n{json.dumps(arguments, ensure_ascii=False)}\n"
        else:
            for key, value in arguments.items():
                says = draw(st.sampled_from(["", ' string="true"'] if type(value) is str else ["", ' string="false"']))
                body += _space(draw) + f"<{_bars(mark, draw)}parameter name={_attribute(key, draw)}{says}>"
                is_exact = 'string="true"' in says
                given = written(value) if is_exact else on_lines(written(value), draw(st.booleans()))
                body += f"{given}</{_bars(mark, draw)}parameter>"
        body += _space(draw) + f"</{_bars(mark, draw)}invoke>"
    opener, closer = _bars(rule.open[0], draw), _bars(rule.close[0], draw)
    return rule, opener, f"{opener}{body}{_space(draw)}{closer}"


def _functions(call: Call, draw: Draw) -> str:
    name, arguments = call
    body = f"<function={name}>"
    for key, value in arguments.items():
        body += _space(draw) + f"<parameter={key}>{on_lines(written(value), draw(st.booleans()))}</parameter>"
    return body + _space(draw) + "</function>"


def functions(calls: list[Call], draw: Draw) -> Block:
    rule = draw(st.sampled_from([rules.HERMES, rules.SEED]))
    body = "".join(_space(draw) + _functions(call, draw) for call in calls)
    return rule, rule.open[0], f"{rule.open[0]}{body}{_space(draw)}{rule.close[0]}"


def _pairs(call: Call, draw: Draw, suffix: str = "") -> str:
    name, arguments = call
    body: str = name + draw(st.sampled_from(["", "\n", f"<tool_sep{suffix}>", f"<tool_sep{suffix}>\n"]))
    for key, value in arguments.items():
        body += f"<arg_key{suffix}>{key}</arg_key{suffix}>{_space(draw)}<arg_value{suffix}>"
        body += on_lines(written(value), draw(st.booleans())) + f"</arg_value{suffix}>{_space(draw)}"
    return body


def pairs(calls: list[Call], draw: Draw) -> Block:
    if len(calls) == 1 and draw(st.booleans()):
        return rules.HERMES, "<tool_call>", f"<tool_call>{_pairs(calls[0], draw)}</tool_call>"
    rule, suffix = draw(st.sampled_from([(rules.LIST, ""), (rules.SUFFIXED, ":opensource")]))
    opener, closer = f"<tool_call{suffix}>", f"</tool_call{suffix}>"
    body = "".join(f"{_space(draw)}{opener}{_pairs(call, draw, suffix)}{closer}{_space(draw)}" for call in calls)
    return rule, rule.open[0], f"{rule.open[0]}{body}{rule.close[0]}"


def named_objects(calls: list[Call], draw: Draw) -> Block:
    """The arguments as an object right behind the name, whose tag ends late or not at all."""
    (name, arguments), space = calls[0], _space(draw)
    rule, head, body = draw(
        st.sampled_from(
            [
                *((rules.NAMED_OBJECT, "<function=", form) for form in ("%s", ">%s", "%s>", " %s", "(%s)", " [%s]")),
                *((rules.HERMES, "<tool_call>", form) for form in ("%s", ">%s", "\n%s")),
            ]
        )
    )
    given = body % json.dumps(arguments, ensure_ascii=draw(st.booleans()))
    return rule, head, f"{head}{name}{given}{space}{rule.close[0]}"


def token_pairs(calls: list[Call], draw: Draw) -> Block:
    rule = rules.TOKEN_PAIRS
    (name, arguments), space = calls[0], draw(st.sampled_from(["", "\n"]))
    body = "".join(
        f"<|tool_arg:start|>{key}<|tool_arg:value|>{on_lines(written(value), False)}<|tool_arg:end|>{space}"
        for key, value in arguments.items()
    )
    return rule, rule.open[0], f"{rule.open[0]}{name}\n{body}{rule.close[0]}"


def numbered(calls: list[Call], draw: Draw) -> Block:
    rule = rules.NUMBERED
    (name, arguments), begin = calls[0], "<|tool_call:begin|>"
    opener = draw(st.sampled_from(rule.open))
    head = "" if opener == begin else begin
    id = draw(st.sampled_from(["", "0", "a1b2c3d4e5"]))
    given = json.dumps(arguments, ensure_ascii=draw(st.booleans()))
    return rule, opener, f"{opener}{head}{id}<|tool_call:name|>{name}<|tool_call:args|>{given}{rule.close[0]}"


def sections(calls: list[Call], draw: Draw) -> Block:
    rule = draw(st.sampled_from([rules.PIPES, rules.TOKENS]))
    begin, separator, end = rule.parts or []
    form = draw(st.sampled_from(["{name}", "functions.{name}:{place}", "{name}:{place} ", "function"]))
    body = ""
    for place, (name, arguments) in enumerate(calls):
        given = json.dumps(arguments, ensure_ascii=False, indent=draw(st.sampled_from([None, 2])))
        if form == "function":
            given = f"{name}\n" + draw(st.sampled_from(["```json\n%s\n```", "%s"])) % given
        head = form.format(name=name, place=place)
        body += f"{_space(draw)}{begin}{head}{separator}{given}{_space(draw)}{end}"
    return rule, rule.open[0], f"{rule.open[0]}{body}{_space(draw)}{rule.close[0]}"


def channels(calls: list[Call], draw: Draw) -> Block:
    rule = rules.CHANNELS
    body = ""
    for index, (name, arguments) in enumerate(calls, 1):
        body += f'{_space(draw)}<|open|>call tool="{name}" index="{index}"<|sep|>'
        if draw(st.booleans()):
            given = json.dumps(arguments, ensure_ascii=draw(st.booleans())).replace("<|", "<\\u007c")
            body += f'{_space(draw)}<|open|>json type="object"<|sep|>{given}<|close|>json<|sep|><|close|>call<|sep|>'
            continue
        for key, value in arguments.items():
            kind = "string" if type(value) is str else draw(st.sampled_from(["number", "object"]))
            given = value if type(value) is str else json.dumps(value).replace("<|close|>", "<\\u007cclose|>")
            body += f'{_space(draw)}<|open|>argument key="{key}" type="{kind}"<|sep|>{given}<|close|>argument<|sep|>'
        body += _space(draw) + "<|close|>call<|sep|>"
    return rule, rule.open[0], f"{rule.open[0]}{body}{_space(draw)}{rule.close[0]}"


def _brace_value(value: Any, draw: Draw) -> str:
    if type(value) is dict:
        return "{" + ",".join(f"{_brace_key(key)}:{_brace_value(inner, draw)}" for key, inner in value.items()) + "}"
    if type(value) is list:
        comma: str = draw(st.sampled_from([",", ", "]))
        return "[" + comma.join(_brace_value(inner, draw) for inner in value) + "]"
    return f'<|"|>{value}<|"|>' if type(value) is str else json.dumps(value)


def _brace_key(key: str) -> str:
    """A key, with quotes where it would not be read without them."""
    return key if key.isidentifier() else f'<|"|>{key}<|"|>'


def braces(calls: list[Call], draw: Draw) -> Block:
    rule = rules.BRACES
    body = "".join(f"{_space(draw)}call:{name}{_brace_value(arguments, draw)}" for name, arguments in calls)
    return rule, rule.open[0], f"{rule.open[0]}{body}{_space(draw)}{rule.close[0]}"


def named_json(calls: list[Call], draw: Draw) -> Block:
    rule, space = rules.NAMED_JSON, draw(st.sampled_from(["", " "]))
    if len(calls) == 1 and draw(st.booleans()):
        name, arguments = calls[0]
        head = draw(st.sampled_from(["{name}[ARGS]", "{name}[CALL_ID]a1B2c3D4e[ARGS]", "{name} ", "{name} [ARGS] "]))
        given = json.dumps(arguments, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 2])))
        return rule, rule.open[0], f"{rule.open[0]}{space}{head.format(name=name)}{given}"
    listed = [{"name": name, "arguments": arguments} for name, arguments in calls]
    return rule, rule.open[0], f"{rule.open[0]}{space}{json.dumps(listed, ensure_ascii=False)}"


def keyed(calls: list[Call], draw: Draw) -> Block:
    rule = rules.KEYED
    inner = json.dumps([{name: arguments} for name, arguments in calls], ensure_ascii=draw(st.booleans()))
    return rule, rule.open[0], f"{rule.open[0]}{inner}{rule.close[0]}"


def _literal(value: Any, draw: Draw) -> str:
    """A value as Python or JSON writes it."""
    if type(value) is dict:
        return "{" + ", ".join(f"{_literal(key, draw)}: {_literal(inner, draw)}" for key, inner in value.items()) + "}"
    if type(value) is list:
        return "[" + ", ".join(_literal(inner, draw) for inner in value) + "]"
    return repr(value) if draw(st.booleans()) else json.dumps(value, ensure_ascii=False)


def pythonic(calls: list[Call], draw: Draw) -> Block:
    rule = draw(st.sampled_from([rules.PYTHONIC, rules.PYTHONIC_ALONE]))
    comma: str = draw(st.sampled_from([", ", ",", ",\n    "]))
    inner = [
        f"{name}({comma.join(f'{key}={_literal(value, draw)}' for key, value in arguments.items())})"
        for name, arguments in calls
    ]
    body = draw(st.sampled_from(["[%s]", "%s", "\n```python\n%s\n```\n"])) % comma.join(inner)
    return rule, rule.open[0], f"{rule.open[0]}{body}{rule.close[0]}"


def recipients(calls: list[Call], draw: Draw) -> Block:
    rule = rules.RECIPIENT
    (name, arguments), opener = calls[0], draw(st.sampled_from(rule.open))
    body = "".join(
        f'<rfl:parameter name="{key}">{on_lines(written(value), True)}</rfl:parameter>{_space(draw)}'
        for key, value in arguments.items()
    )
    begin = next(iter(rule.parts or ()))
    return rule, opener, f"{opener}{name}{begin}{body}{draw(st.sampled_from(rule.close))}"


ANY = [objects, invokes, functions, pairs, sections, channels, braces, named_json, keyed, pythonic, recipients]
ANY += [named_objects, token_pairs, numbered]
