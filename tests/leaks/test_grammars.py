"""What a model wrote as a call comes back as that call, whatever its arguments hold; what is no call is never one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from cases import each
from examples import SHARE, share
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cnllm.leaks.grammars import NotACall, ParsedCall, complete_block, ends_inside_value, may_begin, read
from cnllm.leaks.markers import Markers
from cnllm.leaks.rules import Markup

from . import rules, writers

QUICK = settings(max_examples=share(60), deadline=None, suppress_health_check=list(HealthCheck))


def calls(rule: Markup, text: str, tools: dict[str, Any] | None = None) -> list[tuple[str, Any]]:
    """The calls of a block that begins with an opener of the rule."""
    found = Markers.copy(tuple(rule.open)).find(text)
    assert found
    assert found[0] == 0
    return [(call.name, call.arguments) for call in read(rule, text[: found[1]], text, tools or {})[0]]


def refused(rule: Markup, text: str, tools: dict[str, Any] | None = None) -> str:
    with pytest.raises(NotACall) as caught:
        calls(rule, text, tools)
    return str(caught.value)


def schema(**properties: str) -> dict[str, Any]:
    return {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}}


def test_calls_in_the_form_of_python_stand_behind_a_comma_or_a_semicolon() -> None:
    for between, count in ((", ", 2), (" ; ", 2), (",", 2)):
        text = f"<|python_start|>[f(a=1){between}f(a=2)]<|python_end|>"
        assert calls(rules.PYTHONIC_ALONE, text) == [("f", {"a": 1}), ("f", {"a": 2})][:count]
    for between in ("X", " and ", "|", " "):
        text = f"<|python_start|>[f(a=1){between}f(a=2)]<|python_end|>"
        assert refused(rules.PYTHONIC_ALONE, text) == "there is text behind a call"


PYTHON = "<|python_start|>"
BARRED = "<｜DSML｜tool_calls>"
INVOKE, VALUE = '<｜DSML｜invoke name="f">', '<｜DSML｜parameter name="a">'
END = "</｜DSML｜invoke>"


@pytest.mark.parametrize(
    ("rule", "block", "is_inside"),
    [
        (rules.PYTHONIC_ALONE, f'{PYTHON}[f(a="x', True),
        (rules.PYTHONIC_ALONE, f"{PYTHON}[f(a='x", True),
        (rules.PYTHONIC_ALONE, f'{PYTHON}[f(a="x"', False),
        (rules.PYTHONIC_ALONE, f"{PYTHON}[f(a='x'", False),
        (rules.BARRED, f"{BARRED}{INVOKE}{VALUE}x", True),
        (rules.BARRED, f"{BARRED}{INVOKE}{VALUE}x</｜DSML｜parameter>", False),
        (rules.BARRED, f"{BARRED}{INVOKE}{VALUE}x {END}", False),
        (rules.BARRED, f"{BARRED}{INVOKE}{VALUE}see {INVOKE}{END}", True),
        (rules.BRACES, '<|tool_call>call:f{a:<|"|>x', True),
        (rules.BRACES, '<|tool_call>call:f{a:<|"|>x<|"|>}', False),
    ],
)
def test_a_closer_inside_a_value_is_text(rule: Markup, block: str, is_inside: bool) -> None:
    assert bool(ends_inside_value(rule, block)) is is_inside


@QUICK
@given(data=st.data())
def test_a_section_whose_last_call_has_no_end_is_not_completed(data: st.DataObject) -> None:
    meant, tools = data.draw(writers.asked(writers.channels))
    rule, opener, block = writers.channels(meant, data.draw)
    [closer] = rule.close
    body = block[: block.rindex(closer)] if closer in block else block
    assert complete_block(rule, opener, body[: body.rindex("<|close|>")], tools) is None


# ── what is written is read ──────────────────────────────────────────────────


@pytest.mark.parametrize("writer", writers.ANY, ids=lambda writer: writer.__name__)
@QUICK
@given(data=st.data())
def test_a_call_comes_back_as_it_was_meant(writer: Callable[..., writers.Block], data: st.DataObject) -> None:
    meant, tools = data.draw(writers.asked(writer))
    rule, opener, block = writer(meant, data.draw)
    got, others = read(rule, opener, block, tools)
    assert [(call.name, call.arguments) for call in got] == meant
    assert others == []


@pytest.mark.parametrize("writer", writers.ANY, ids=lambda writer: writer.__name__)
@QUICK
@given(data=st.data())
def test_a_block_ends_at_its_own_closer(writer: Callable[..., writers.Block], data: st.DataObject) -> None:
    meant, _ = data.draw(writers.asked(writer))
    assert_ends_at_its_closer(*writer(meant, data.draw))


@pytest.mark.parametrize("writer", writers.ANY, ids=lambda writer: writer.__name__)
@settings(QUICK, max_examples=share(4))
@given(data=st.data())
def test_no_single_piece_of_a_value_ends_a_block(writer: Callable[..., writers.Block], data: st.DataObject) -> None:
    for piece in writers.PLAIN:
        assert_ends_at_its_closer(*writer([("look", {"q": f"a{piece}b"})], data.draw))


def assert_ends_at_its_closer(rule: Markup, opener: str, block: str) -> None:
    closers = Markers.copy(tuple(rule.close))
    found = closers.find(block, len(opener))
    while found and ends_inside_value(rule, block[: found[0]]):
        found = closers.find(block, found[1])
    assert found
    assert found[1] == len(block)


@pytest.mark.parametrize("writer", writers.ANY, ids=lambda writer: writer.__name__)
@QUICK
@given(data=st.data())
def test_a_block_that_arrives_in_pieces_is_never_taken_for_prose(
    writer: Callable[..., writers.Block], data: st.DataObject
) -> None:
    meant, _ = data.draw(writers.asked(writer))
    rule, opener, block = writer(meant, data.draw)
    body = block[len(opener) :]
    told = [may_begin(rule, opener, body[:end]) for end in range(min(len(body), 250) + 1)]
    assert False not in told
    assert may_begin(rule, opener, body) is True


WITH_PAIRS = (
    writers.pairs,
    writers.token_pairs,
    writers.channels,
    writers.recipients,
    writers.functions,
    writers.invokes,
)


@pytest.mark.parametrize("writer", writers.ANY, ids=lambda writer: writer.__name__)
@QUICK
@given(data=st.data())
def test_a_block_that_was_cut_off_is_no_call_with_other_arguments(
    writer: Callable[..., writers.Block], data: st.DataObject
) -> None:
    meant, tools = data.draw(writers.asked(writer))
    rule, opener, block = writer(meant, data.draw)
    cut = block[: data.draw(st.integers(len(opener), len(block) - 1))]
    try:
        got, _ = read(rule, opener, cut + rule.close[0], tools)
    except NotACall:
        return
    # Nothing follows the last pair of a key and a value but closers, and servers lose the closer of a call: a block
    # that ends early behind a pair is a call with fewer arguments for every reader. None of them may be another one
    # than was meant.
    for call in got:
        arguments = dict(meant)[call.name]
        assert all(item in arguments.items() for item in (call.arguments or {}).items())
        assert writer in WITH_PAIRS or not call.arguments or call.arguments == arguments


@each("rule", [rules.PIPES, rules.TOKENS])
@each("between", ["", " ", "\n"])
def test_a_section_without_an_end_marker_ends_where_the_next_one_begins(rule: Markup, between: str) -> None:
    assert isinstance(rule.parts, list)
    begin, separator, end = rule.parts
    values = ["a", end, f"x{begin}y", f"{begin}{end}"]
    for value in values:
        first, second = (f"{begin}look{separator}{json.dumps({'q': text})}" for text in (value, "b"))
        text = f"{rule.open[0]}{first}{between}{second}{end}{rule.close[0]}"
        assert calls(rule, text) == [("look", {"q": value}), ("look", {"q": "b"})]


# ── prose about markup ───────────────────────────────────────────────────────

PROSE = [
    "` and `</tool_call>` are the tags that models write.",
    " tags are used for this.",
    "标签是用来调用工具的，模型会这样写。",
    "\n\nThat is how it begins, and then a name follows.",
    ", it says",
    "</b>",
    "…",
    "{call}",
    "[name]",
    "123 is not a name, or is it?",
]


@each("prose", PROSE)
@each("name", rules.ALL)
def test_prose_behind_an_opener_is_let_go(name: str, prose: str) -> None:
    rule = rules.ALL[name]
    for opener in rule.open:
        assert may_begin(rule, opener, prose) is False


@pytest.mark.parametrize("name", rules.ALL)
@given(body=st.text(min_size=200, max_size=260))
@QUICK
def test_after_two_hundred_characters_it_is_told(name: str, body: str) -> None:
    rule = rules.ALL[name]
    assert may_begin(rule, rule.open[0], body) is not None


@each("name", rules.ALL)
def test_nothing_yet_is_not_told(name: str) -> None:
    rule = rules.ALL[name]
    assert may_begin(rule, rule.open[0], "") is None


@pytest.mark.parametrize("name", rules.ALL)
@given(text=st.text() | writers.texts([*writers.PLAIN, *writers.CLOSERS, *writers.OPENERS, *writers.EXAMPLES]))
@QUICK
def test_whatever_stands_in_a_block_it_is_read_or_refused(name: str, text: str) -> None:
    rule = rules.ALL[name]
    block = f"{rule.open[0]}{text}{rule.close[0]}"
    ends_inside_value(rule, block)
    may_begin(rule, rule.open[0], text)
    try:
        got, others = read(rule, rule.open[0], block, {})
    except NotACall:
        return
    assert got
    assert all(call.name for call in got)
    assert all(other.strip() for other in others)


# ── each grammar's own ───────────────────────────────────────────────────────


@each(
    "body",
    [
        '{"name": "f", "arguments": {"a": 1}}',
        '{"name": "f", "parameters": {"a": 1}}',
        '{"name": "f", "arguments": "{\\"a\\": 1}"}',
        '{"arguments": {"a": 1}, "name": "f"}',
        '{"function": {"name": "f", "arguments": {"a": 1}}}',
        '{"type": "function", "id": "x", "function": {"name": "f", "arguments": "{\\"a\\": 1}"}}',
        '{"function": "f", "arguments": {"a": 1}}',
        '{"tool_calls": [{"name": "f", "arguments": {"a": 1}}]}',
        '[{"name": "f", "arguments": {"a": 1}}]',
        '```json\n{"name": "f", "arguments": {"a": 1}}\n```',
        '{"name": "functions.f", "arguments": {"a": 1}}',
    ],
)
def test_an_object_of_json_is_a_call(body: str) -> None:
    assert calls(rules.HERMES, f"<tool_call>\n{body}\n</tool_call>", {"f": None}) == [("f", {"a": 1})]


def test_a_line_break_in_a_string_of_json_is_taken_as_it_is() -> None:
    assert calls(rules.WORDED, '<longcat_tool_call>{"name":"f","arguments":{"a":"1\n2"}}</longcat_tool_call>') == [
        ("f", {"a": "1\n2"})
    ]


@each(
    "body",
    [
        "",
        "[]",
        "{}",
        '{"name": "f", "arguments": {"a": 1}',
        '{"name": "f", "arguments": [1]}',
        '{"name": "f", "arguments": "what"}',
        '{"name": "f", "arguments": {"a": NaN}}',
        '{"name": "two words", "arguments": {}}',
        '{"name": "f<arg_key>a", "arguments": {}}',
        '{"name": "Tom", "age": 3}',
        '{"arguments": {}}',
        '{"name": "f", "arguments": {"a": "\\ud800"}}',
        '{"a":' * 5000,
        "[" * 100_000,
    ],
)
def test_what_is_no_call_in_json_is_refused(body: str) -> None:
    assert refused(rules.WORDED, f"<longcat_tool_call>{body}</longcat_tool_call>")


def test_of_several_the_good_ones_are_calls_and_the_others_text() -> None:
    good, bad = '{"name": "f", "arguments": {}}', '{"nome": "g"}'
    got, others = read(rules.HERMES, "<tool_call>", f"<tool_call>[{good}, {bad}]</tool_call>", {})
    assert got == [ParsedCall("f", {})]
    assert others == [bad]
    bad = '<invoke name="a b"><parameter name="x">1</parameter></invoke>'
    block = f'<minimax:tool_call>{bad}<invoke name="f"></invoke></minimax:tool_call>'
    assert read(rules.SPACED, "<minimax:tool_call>", block, {}) == ([ParsedCall("f", {})], [bad])


INVOKE = '<invoke name="f">%s</invoke>'
P = '<parameter name="p">%s</parameter>'


def spaced(inner: str) -> str:
    return f"<minimax:tool_call>{inner}</minimax:tool_call>"


@each("value", [" hi ", "", "&lt;b&gt;", "007", "None", "null", "\thi\n", "a\nb", "10", '"q"', "</"])
def test_a_value_is_taken_as_it_stands(value: str) -> None:
    for tools in ({}, {"f": schema(p="string")}):
        assert calls(rules.SPACED, spaced(INVOKE % (P % value)), tools) == [("f", {"p": value})]
        written = f"<function=f><parameter=p>\n{value}\n</parameter></function>"
        assert calls(rules.SEED, f"<seed:tool_call>{written}</seed:tool_call>", tools) == [("f", {"p": value})]


@each(
    "inner, arguments",
    [
        ("", {}),
        ("\n", {}),
        ('{"p": [1]}', {"p": [1]}),
        ("<p>hi</p><q>a < 5</q>", {"p": "hi", "q": "a < 5"}),
        ("\n<p><b>hi</b></p>\n", {"p": "<b>hi</b>"}),
        ("<p>a</p><p>b</p>", {"p": ["a", "b"]}),
        ('<parameter name="arguments">{"p": 1}</parameter>', {"p": 1}),
        ('<parameter name="p" string="false">{"a": 1}</parameter>', {"p": {"a": 1}}),
        ('<parameter name="p" string="true">1</parameter>', {"p": "1"}),
        ('<parameter  name = "a &amp; b" >1</parameter>', {"a & b": "1"}),
        ("<parameter name='p'>1</parameter>", {"p": "1"}),
    ],
)
def test_the_forms_of_an_invoke(inner: str, arguments: dict[str, Any]) -> None:
    assert calls(rules.SPACED, spaced(INVOKE % inner)) == [("f", arguments)]


def test_an_invoke_that_closes_itself_has_no_arguments() -> None:
    assert calls(rules.SPACED, spaced('<invoke name="f"/><invoke name="g" />')) == [("f", {}), ("g", {})]


def test_the_schema_says_what_elements_are() -> None:
    nested = {
        "type": "object",
        "properties": {
            "to": {"$ref": "#/$defs/to"},
            "tags": {"type": "array", "items": {"type": "integer"}},
            "html": {"type": "string"},
            "box": {"type": "object", "properties": {"item": {"type": "integer"}}},
        },
        "$defs": {"to": {"type": "object", "properties": {"n": {"type": "integer"}, "to": {"$ref": "#/$defs/to"}}}},
    }
    inner = "<to><n>1</n><to><n>2</n></to></to><tags><item>1</item><item>2</item></tags><html><item>1</item></html>"
    inner += "<box><item>3</item></box>"
    meant = {"to": {"n": 1, "to": {"n": 2}}, "tags": [1, 2], "html": "<item>1</item>", "box": {"item": 3}}
    assert calls(rules.SPACED, spaced(INVOKE % inner), {"f": nested}) == [("f", meant)]


def prefixed(inner: str, space: str = "") -> str:
    mark = f"]<]minimax[>[{space}"
    return f"{mark}<tool_call>\n{inner.replace('@', mark)}\n{mark}</tool_call>"


@each("space", ["", " ", "  ", "\n"])
def test_with_a_prefix_other_tags_are_text(space: str) -> None:
    inner = '@<invoke name="f">@<a><b>1</b></x>@</a>@<o>@<p>1@</p>@</o>@<l>@<item>x@</item>@</l>@</invoke>'
    meant = {"a": "<b>1</b></x>", "o": {"p": "1"}, "l": ["x"]}
    assert calls(rules.PREFIXED, prefixed(inner, space)) == [("f", meant)]


@each("name", ["item", "o"])
@each("depth", [20, 40])
def test_elements_inside_elements_have_a_bound(name: str, depth: int) -> None:
    inner = f"{f'@<{name}>' * depth}x{f'@</{name}>' * depth}"
    block = prefixed(f'@<invoke name="f">@<a>{inner}@</a>@</invoke>')
    if depth == 40:
        assert refused(rules.PREFIXED, block) == "it is too deeply nested"
        return
    [(_, arguments)] = calls(rules.PREFIXED, block)
    assert json.dumps(arguments).count("[" if name == "item" else '"o"') == depth


@each("opener", ["<｜DSML｜invoke", "<｜｜DSML｜｜ invoke", "<|DSML|invoke", "<‖DSML‖invoke", "<｜DSML｜\ninvoke"])
def test_an_opener_may_be_the_beginning_of_a_tag(opener: str) -> None:
    tag = opener.removeprefix("<").removesuffix("invoke")
    inner = f'<{tag}parameter name="p" string="true">a </｜DSML｜invoke> b</{tag}parameter>'
    block = f'{opener} name="f">{inner}</{tag}invoke>'
    assert calls(rules.BARRED_BARE, block) == [("f", {"p": "a </｜DSML｜invoke> b"})]
    assert may_begin(rules.BARRED_BARE, opener, ' name="f') is None
    assert may_begin(rules.BARRED_BARE, opener, ' name="f">') is None
    assert may_begin(rules.BARRED_BARE, opener, ' name="f"> is how it begins') is False
    assert may_begin(rules.BARRED_BARE, opener, ' name="f">\n<｜') is True
    assert ends_inside_value(rules.BARRED_BARE, block[: block.index("</｜DSML｜invoke> b")])


def test_tags_that_are_decorated_otherwise_are_text() -> None:
    value = 'use <parameter name="x"> and </parameter><parameter name="y">'
    inner = f'<｜DSML｜parameter name="p">{value}</｜DSML｜parameter>'
    block = f'<｜DSML｜tool_calls><｜DSML｜invoke name="f">{inner}</｜DSML｜invoke></｜DSML｜tool_calls>'
    assert calls(rules.BARRED, block) == [("f", {"p": value})]


def test_the_decoration_may_be_forgotten_in_some_tags() -> None:
    first = '<｜DSML｜parameter name="p">1</parameter>'
    second = '<parameter name="q">2</｜DSML｜parameter>'
    inner = f'<｜DSML｜invoke name="f">{first}{second}'
    for end in ("</invoke>", ""):
        block = f"<｜DSML｜tool_calls>{inner}{end}</｜DSML｜tool_calls>"
        assert calls(rules.BARRED, block) == [("f", {"p": "1", "q": "2"})]
    assert not ends_inside_value(rules.BARRED, f"<｜DSML｜tool_calls>{inner}</invoke>")


def test_a_parameter_may_lack_its_closing_tag_where_the_next_one_has_a_line_of_its_own() -> None:
    inner = "<function=f>\n<parameter=a>\n1\n<parameter=b>\n2\n</parameter>\n<parameter=c>\n3\n</function>"
    assert calls(rules.HERMES, f"<tool_call>\n{inner}\n</tool_call>") == [("f", {"a": "1", "b": "2", "c": "3"})]
    assert not ends_inside_value(rules.HERMES, f"<tool_call>\n{inner}\n")


def test_a_function_may_be_named_in_an_attribute() -> None:
    inner = '<function name="f"><param name="a">1</param></function>'
    assert calls(rules.NAMED_PARAMS, inner) == [("f", {"a": "1"})]


def test_a_function_without_a_wrapper_is_a_call() -> None:
    assert calls(rules.FUNCTION_BARE, "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>") == [
        ("f", {"a": "1"})
    ]


@each(
    "body",
    [
        "<function=f>",
        "<function=f><parameter=a>1</parameter>text",
        "<parameter=a>1</parameter>",
        "<parameter=a>1</parameter></function>",
        "<function=f><parameter=a>1</function>text",
        "<function=f\n<parameter=a>1</parameter></function>",
        "<function=f><parameter=a>1</parameter>text</function>",
        "<function=two words></function>",
        "f<arg_key>a</arg_key>",
        "f<arg_key>a</arg_key><arg_value>1",
        "f<arg_key>a<arg_key>b</arg_key><arg_value>1</arg_value>",
        "f<arg_value>1</arg_value>",
        "<a><b>f<arg_key>a</arg_key><arg_value>1</arg_value><a>f<arg_key>a</arg_key><arg_value>2</arg_value></b></a>",
        "f text",
        "f</b>",
        "",
    ],
)
def test_what_is_not_whole_is_refused(body: str) -> None:
    assert refused(rules.HERMES, f"<tool_call>{body}</tool_call>")


def test_a_block_without_a_closer_is_refused() -> None:
    assert refused(rules.HERMES, '<tool_call>{"name": "f", "arguments": {}}') == "it is not complete"


def test_a_word_alone_is_a_call_of_a_tool_that_was_offered_only() -> None:
    assert calls(rules.HERMES, "<tool_call>now</tool_call>", {"now": {}}) == [("now", {})]
    assert refused(rules.HERMES, "<tool_call>name</tool_call>", {"now": {}})


@each(
    "head, name",
    [("f", "f"), ("f:0", "f"), ("functions.f:12", "f"), (" functions.a.b:1 ", "a.b"), ("a.b.c:2", "a.b.c")],
)
def test_the_heads_of_a_section(head: str, name: str) -> None:
    begin, separator, end = rules.PIPES.parts or []
    section = f'{begin}{head}{separator}{{"a": 1}}{end}'
    assert calls(rules.PIPES_BARE, section) == [(name, {"a": 1})]
    assert calls(rules.PIPES, f"<|tool_calls_section_begin|>{section}<|tool_calls_section_end|>") == [(name, {"a": 1})]


def test_a_section_whose_arguments_are_not_json_keeps_them_as_written() -> None:
    begin, separator, end = rules.PIPES.parts or []
    good, bad = f'{begin}g:1{separator}{{"a": "1"}}{end}', f'{begin}b:0{separator}{{"a": "1{end}'
    block = f"<|tool_calls_section_begin|>{bad}{good}<|tool_calls_section_end|>"
    got, others = read(rules.PIPES, "<|tool_calls_section_begin|>", block, {})
    assert got == [ParsedCall("b", None, '{"a": "1'), ParsedCall("g", {"a": "1"})]
    assert others == []
    got, others = read(rules.PIPES_BARE, begin, bad, {})  # its end is the block's
    assert (got, others) == ([ParsedCall("b", None, '{"a": "1')], [])


def test_a_section_may_hold_an_invoke() -> None:
    begin, separator, end = rules.TOKENS.parts or []
    value = f"x{end}y"
    parameter = f'<steptml:parameter name="a">{value}</steptml:parameter>'
    invoke = f'<steptml:invoke name="f">{parameter}</steptml:invoke>'
    for head in (f"function{separator}", "", f"function{separator}f\n"):
        block = (
            f"<｜tool_calls_begin｜>{begin}{head}{invoke}{end}{separator}{begin}{head}{invoke}{end}<｜tool_calls_end｜>"
        )
        assert calls(rules.TOKENS, block) == [("f", {"a": value})] * 2
        assert ends_inside_value(rules.TOKENS, block[: block.index(f"{end}y")])
        assert not ends_inside_value(rules.TOKENS, block[: block.index("<｜tool_calls_end｜>")])


def test_lists_inside_lists_have_a_bound() -> None:
    def block(depth: int) -> str:
        return f"<|tool_call>call:f{{a:{'[' * depth}{']' * depth}}}<tool_call|>"

    [(_, arguments)] = calls(rules.BRACES, block(32))
    assert json.dumps(arguments).count("[") == 32
    assert refused(rules.BRACES, block(33)) == "too deeply nested"


@each("opening, closing", [("[", "]"), ("(1, ", ")"), ("{'b': ", "}")])
def test_values_of_a_python_call_have_a_bound(opening: str, closing: str) -> None:
    def block(depth: int) -> str:
        return f"<|python_start|>f(a={opening * depth}0{closing * depth})<|python_end|>"

    [(_, arguments)] = calls(rules.PYTHONIC_ALONE, block(32))
    assert len(re.findall(r"[\[{]", json.dumps(arguments["a"]))) == 32
    assert refused(rules.PYTHONIC_ALONE, block(33)) == "too deeply nested"


@each("number", ["1e999", "-1e999", "[1e999]"])
def test_a_number_of_a_python_call_that_no_float_holds_is_none(number: str) -> None:
    assert refused(rules.PYTHONIC, f"<|tool_call_start|>[f(a={number})]<|tool_call_end|>") == (
        "it has a number that is none"
    )


def test_the_attributes_of_a_channel_may_hold_quotation_marks() -> None:
    argument = '<|open|>argument key="a &quot;b&quot; &amp;quot;" type="number"<|sep|>1<|close|>argument<|sep|>'
    block = f'<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|>{argument}<|close|>call<|sep|>'
    block += "<|close|>tools<|sep|>"
    assert calls(rules.CHANNELS, block) == [("f", {'a "b" &quot;': 1})]


def test_an_element_is_the_tool_it_names() -> None:
    assert calls(rules.ELEMENT, "<search></search>", {"search": {}}) == [("search", {})]


# ── time ─────────────────────────────────────────────────────────────────────

HEAVY = [
    "<",
    "<invoke ",
    '<invoke name="',
    "<parameter=a>",
    "\n<parameter=a>",
    "</parameter>",
    "<arg_value>",
    '"',
    "\\",
]
HEAVY += [
    "</arg_value>",
    "<arg_key>a</arg_key><arg_value><arg_value>",
    "｜",
    "<｜",
    " ",
    "\n",
    "{",
    "[",
    '{"a":',
    "<a>",
]
HEAVY += ["<|tool_call_begin|>", "<|tool_call_begin|>f<|tool_call_argument_begin|>", "<|tool_call_end|>", "```", "a:"]
HEAVY += ['<parameter name="a"><parameter name="b">x</parameter>', "<a></a>", "</function>", "<function=f>", "x"]


@pytest.mark.sampled
@each("name", rules.ALL)
def test_heavy_blocks_are_read_or_refused(name: str) -> None:
    rule = rules.ALL[name]
    first = list(rules.ALL).index(name) % SHARE  # all pieces, over all rules
    for head in (
        "",
        "<function=f><parameter=a>",
        '<invoke name="f"><parameter name="a">',
        "f<arg_key>a</arg_key><arg_value>",
    ):
        for piece in HEAVY[first::SHARE]:
            text = rule.open[0] + head + piece * (60_000 // len(piece)) + rule.close[0]
            ends_inside_value(rule, text)
            may_begin(rule, rule.open[0], text)
            try:
                calls, others = read(rule, rule.open[0], text, {})
            except NotACall as error:
                assert str(error)  # noqa: PT017
            else:
                assert calls or others


def test_json_is_written_here_as_it_is_there() -> None:
    block = f"<tool_call>{json.dumps({'name': 'f', 'arguments': {'a': '</tool_call>'}})}</tool_call>"
    assert ends_inside_value(rules.HERMES, block[: block.index("</tool_call>")])
    assert calls(rules.HERMES, block) == [("f", {"a": "</tool_call>"})]
