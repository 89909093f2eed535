"""Patterns of error rules: the work grows with the text and no faster, and what cannot match is reported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import cnllm
from cnllm.errors import RateLimited
from cnllm.registry_files.check import check

from .support import failure
from .support import registry as builtin

SLOW = (
    r"(a+)+$",
    r"^(a|a)*$",
    r"^(a|aa)+$",
    r"(a*)*b",
    r"(?:(?:a+)*)+c",
    r"(.*a){12}d",
    r"([a-z]+)*\d",
    r"(\w+\s?)*:$",
    r"(x?a+x?)+y",
    r"a*a*a*a*a*b",
)
"""Patterns with which a backtracking engine never ends on a text that is nearly what they mean."""

PROVIDER = """
[providers.slow]
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
errors = [{{ kind = "rate", {key} = {patterns} }}]
"""

READ = r"""
import json, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))  # the CPU's own time: other processes do not count
import cnllm
from cnllm import engine
text = (sys.argv[2] * 2_900 + "!") * 18  # more than 50,000 characters; of a long text only the beginning counts
model = cnllm.Registry.load(sys.argv[1]).resolve("slow/m")
for body in (text, json.dumps({"error": {"message": text}}), json.dumps({"error": {"detail": [text, text]}})):
    try:
        engine.parse_response(model, 418, {}, body.encode())
    except cnllm.EndpointError as error:
        print(type(error).__name__)
"""


def overlay(tmp_path: Path, patterns: list[str], key: str = "pattern") -> str:
    file = tmp_path / "overlay.toml"
    file.write_text(PROVIDER.format(key=key, patterns=json.dumps(patterns)))
    return str(file)


def test_a_pattern_that_would_backtrack_for_ever_costs_what_any_other_does(tmp_path: Path) -> None:
    for char in ("a", "\u00e9a"):
        file = overlay(tmp_path, [*SLOW])
        done = subprocess.run([sys.executable, "-c", READ, file, char], capture_output=True, text=True, check=False)
        assert len(done.stdout.split()) == 3, (char, done.returncode, done.stderr[-300:])


def test_patterns_match_in_any_case_anywhere_and_unless_excludes(tmp_path: Path) -> None:
    from cnllm import Registry

    table = [
        ("pattern", [r"slow\s+down"], "Please SLOW\n DOWN!", True),
        ("pattern", [r"\Aslow"], "not slow", False),
        ("pattern", [r"^慢.$"], "慢点", True),
        ("pattern", ["nothing", r"\bTPM\b"], "over tpm limit", True),
        ("pattern", ["a(b", "(?!x)y"], "a(b y", False),  # what cannot be matched matches nothing
        ("unless", ["fine"], "all is FINE", False),
        ("unless", ["fine"], "all is well", True),
        ("unless", ["a(b"], "all is well", False),  # nobody knows whether it matches
    ]
    for key, patterns, text, matches in table:
        model = Registry.load(overlay(tmp_path, patterns, key)).resolve("slow/m")
        for body in (text, json.dumps({"error": {"message": text}})):
            error = failure(model, 418, body.encode())
            assert (type(error) is RateLimited) is matches, (key, patterns, text)


def test_a_number_inside_of_an_error_is_a_code_and_another_number_is_none(tmp_path: Path) -> None:
    from cnllm import Registry

    model = Registry.load(overlay(tmp_path, ["1113"], "code")).resolve("slow/m")
    for key, matches in (("code", True), ("tokens", False)):
        body = {"error": {"message": "No.", "details": [{key: 1113}]}}
        error = failure(model, 418, json.dumps(body).encode())
        assert (type(error) is RateLimited) is matches, key


def test_check_names_the_line_of_each_pattern_that_can_match_nothing(tmp_path: Path) -> None:
    file = tmp_path / "overlay.toml"
    file.write_text(r"""
[providers.home]
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
errors = [
  { kind = "rate", pattern = ['(a+)+$', 'fine'] },
  { kind = "rate", pattern = ['fine',
    'a(b'] },
  { kind = "rate", unless = ["\\d(?=x)"] },
]
tools.call_id_pattern = 'a{3}(b'
when.stream.errors = [{ kind = "rate", pattern = ['*'] }]

[[providers.home.on.openai-chat.errors]]
kind = "quota"
pattern = ['fine', '(a)\1']

[models."home/n"]
tools = { call_id_pattern = '(?=a)[a-z]+' }
[models."home/m"]
[[models."home/m".errors]]
kind = "quota"
unless = ['[z-a]']
""")
    found = [(problem.line, problem.message) for problem in check([str(file)])]
    assert sorted(line or 0 for line, _ in found) == [8, 9, 11, 12, 16, 19, 23]
    said = dict(found)
    assert "not a regular expression" in said[8]
    assert "'a(b'" in said[8]
    assert "errors.1.pattern" in said[8]
    assert "linear time" in said[9]
    assert "tools.call_id_pattern" in said[11]
    assert "not a regular expression" in said[11]
    assert "not a regular expression" in said[12]
    assert "linear time" in said[16]
    assert "linear time" in said[19]
    assert 'models."home/m".errors.0.unless' in said[23]


IDS = r"""
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
import cnllm
from cnllm import Message, ToolCall, ToolResult, engine
ids = ["a" * 5_000 + "!", "a" * 40 + "!", "aaa", "A1"]
turns = []
for id in ids:
    turns += ["go", Message("assistant", (ToolCall(id, "f", {}, "{}"),)), Message("tool", (ToolResult(id, "x"),))]
for file in sys.argv[1:]:
    model = cnllm.Registry.load(file).resolve("slow/m")
    plan = engine.build_request(model, [*turns, "and?"], tools=[{"name": "f", "parameters": {"type": "object"}}])
    sent = [call["id"] for message in plan.body["messages"] for call in message.get("tool_calls", ())]
    print(*[old == new for old, new in zip(ids, sent, strict=True)])
"""


def test_a_pattern_of_call_ids_cannot_hang_a_request_or_break_it(tmp_path: Path) -> None:
    table = [
        (r"([a-z]+)+", "False False True False"),
        (r"(?:[a-z]|[a-z0-9])+x?", "False False True False"),
        (r"[a-zA-Z0-9]{1,40}", "False False True True"),
        (r"(b", "True True True True"),  # nobody can tell what it means
        (r"a)|(a", "True True True True"),
        (r"(?=a).*", "True True True True"),
        (r"[z-a]", "True True True True"),
    ]
    files = [tmp_path / f"{number}.toml" for number in range(len(table))]
    for file, (pattern, _) in zip(files, table, strict=True):
        file.write_text(PROVIDER.format(key="text", patterns='["x"]') + f"tools.call_id_pattern = '{pattern}'\n")
    command = [sys.executable, "-c", IDS, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [kept for _, kept in table], done.stderr[-300:]


def test_every_pattern_of_the_builtin_file_can_be_matched() -> None:
    from cnllm.schemas.patterns import ignore_case

    registry = builtin()
    rules = {rule for name in registry.names() for rule in map(str, _patterns(registry.resolve(name)))}
    assert len(rules) > 100
    assert [(source, problem) for source in sorted(rules) if (problem := ignore_case(source).problem)] == []


def _patterns(model: cnllm.Model) -> list[str]:
    rules = model.flags.errors or []
    return [source for rule in rules for source in (*(rule.pattern or ()), *(rule.unless or ()))]
