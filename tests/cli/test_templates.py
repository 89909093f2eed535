"""`--save`, `-t` and `cnllm templates`, and the short form of `--schema`."""

from __future__ import annotations

import json
import tomllib
from typing import Any

from .support import Machine, Server, chat

SECRET = "sk-0123456789abcdef0123456789"
HOME = ("-m", "home/m")


def body(machine: Machine, *args: str, **more: Any) -> Any:
    done = machine.run("call", *args, "--plan", **more)
    assert done.status == 0, done.err
    return done.json()["body"]


def texts(machine: Machine, *args: str, **more: Any) -> list[str]:
    return [message["content"] for message in body(machine, *args, **more)["messages"]]


def test_what_is_saved_is_used(machine: Machine, server: Server) -> None:
    options = ("-s", "Translate into $lang.", "-p", "lang=French", "-p", "temperature=0.2", "-p", "deep.er=1")
    done = machine.run("call", *HOME, *options, "--schema", "a, b int", "--save", "tr")
    assert (done.status, done.out) == (0, "")
    file = machine.config / "templates" / "tr.toml"
    assert str(file) in done.err
    assert file.stat().st_mode & 0o777 == 0o600
    assert tomllib.loads(file.read_text()) == {
        "model": "home/m",
        "system": "Translate into $lang.",
        "schema": "a, b int",
        "options": {"temperature": 0.2, "deep.er": 1},
        "variables": {"lang": "French"},
    }
    sent = body(machine, "-t", "tr", "hello")
    assert sent["temperature"] == 0.2
    assert sent["deep"] == {"er": 1}
    assert sent["messages"][0]["content"].startswith("Translate into French.")
    assert sent["messages"][1]["content"] == "hello"
    sent = body(machine, "-t", "tr", "hello", "-p", "lang=German", "-p", "temperature=0.9", "-s", "In $lang?")
    assert sent["temperature"] == 0.9
    assert sent["messages"][0]["content"].startswith("In $lang?")
    assert server.received == []


def test_the_prompt_of_a_template_is_filled(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:9/v1")
    for prompt, args, stdin, result in (
        ("Name $input!", ["cats"], None, "Name cats!"),
        ("Name ${input}s", ["cat"], "and dog", "Name cat\n\nand dogs"),
        ("Be nice", [], None, "Be nice"),
        ("Be nice", [], "to cats", "Be nice\n\nto cats"),
        ("$a$b $$c $5", ["-p", "a=$b", "-p", "b=$input", "x"], None, "$b$input $c $5\n\nx"),
        ('1 "two"\n\\three\'\'\'""" ', [], None, '1 "two"\n\\three\'\'\'""" '),
        ("$input", ["$input $$"], None, "$input $$"),
    ):
        assert machine.run("call", *HOME, prompt, "--save", "p").status == 0
        assert texts(machine, "-t", "p", *args, stdin=stdin) == [result], prompt
    note = machine.file("n.md", "note")
    assert texts(machine, "-t", "p", "-f", note, "x") == ['<file name="n.md">\nnote\n</file>\n\nx']


def test_what_is_wrong_is_said(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:9/v1")
    machine.run("call", *HOME, "-s", "In $lang, $tone.", "--save", "tr")
    for args, words in (
        (("-t", "tr", "x"), ["tr needs lang, tone", "-p lang=…"]),
        (("-t", "tr", "-p", "lang=x", "-p", "tone=y", "-p", "lagn=z", "x"), ["tr has no variable lagn", "lang, tone"]),
        (("-t", "tra", "x"), ["no template tra", "did you mean tr?"]),
        (("-t", "zzz", "x"), ["no template zzz", "cnllm templates list"]),
        (("-t", "../x", "x"), ["'../x' is not a template's name"]),
        (("--save", "../x", "x"), ["'../x' is not a template's name"]),
        (("--save", "x"), ["nothing to save"]),
        (("--save", "x", "-"), ["does not read stdin"]),
        (("--save", "x", "in $temperature"), ["$temperature is the name of a parameter"]),
        (("--save", "x", "-t", "tr", "y"), ["two templates"]),
        (("--save", "x", "-p", "temprature=1", "y"), ["temprature", "did you mean temperature?"]),
        (("--save", "x", "-p", "a=null", "y"), ["cannot hold"]),
        (("--save", "x", "-m", "no-such-model", "y"), ["no model is called no-such-model"]),
        (("--save", "x", "-c", "y"), ["does not hold -c"]),
        (("--save", "x", "-p", f"api_key={SECRET}", "y"), ["-p api_key", "holds no key"]),
        (("--save", "x", "-p", f"headers.X-Token={SECRET}", "y"), ["headers.X-Token", "holds no key"]),
        (("--save", "x", "-p", "base_url=http://x", "y"), ["does not hold base_url"]),
        (("--save", "x", "-f", "n.md", "y"), ["does not hold -f"]),
        (("--save", "x", "--base-url", "http://x/v1", "y"), ["does not hold --base-url"]),
        (("--save", "x", "--web-search", "y"), ["does not hold --web-search"]),
        (("--save", "x", "--approve", "all", "-T", "calc", "y"), ["does not hold --approve"]),
        (("--save", "x", "--timeout", "3", "y"), ["does not hold --timeout"]),
        (("--save", "x", "--tag", "docs", "y"), ["does not hold --tag"]),
        (("--save", "x", "--json", "y"), ["does not hold --json"]),
        (("--save", "x", "--tools", "tools.json", "y"), ["does not hold --tools, only --tool"]),
    ):
        done = machine.run("call", *args)
        done.fails(2, *words)
        assert SECRET not in done.err
    assert machine.run("templates", "list", "--json").json() == ["tr"]
    machine.file("own.json", "{}")
    for text, words in (
        ("modle = 'x'", [":1: a template has no modle"]),
        ("system = 'x'\n[variables]\n[options]\n[model]\n", [":4: model is text"]),
        ("system = 3", [":1: system is text"]),
        ("tools = [1]", [":1: tools is a list"]),
        ("system = x", ["not TOML", "line 1"]),
        (f"options = {{ seed = {'1' * 5000} }}", ["not TOML", "5000 digits"]),
        (f"tools = {'[' * 5000}", ["not TOML", "recursion"]),
        ("variables = { input = 'x' }", ["$input is the text of the call"]),
        ("options = { reasoning = 'lots' }", ["'lots' is not a reasoning level"]),
        ("options = { temperature = 'hot' }", ["temperature", "a number is expected"]),
        ("options = { seed = 2026-01-31 }", ["seed", "not a JSON value"]),
        ("options = { deep = { er = [07:30:00] } }", ["deep", "not a JSON value"]),
        ("options = { temperature = nan }", ["temperature", "not a JSON value"]),
        ("variables = { temperature = 1 }", ["has a variable temperature", "a parameter has this name"]),
        ("\n[variables]\nlang = ['a']", [":2: the variable lang is text or a number"]),
        ("schema = './own.json'", ["names a file as its schema"]),
        ("schema = 'a inte'", ["inte is not a type"]),
        ("tools = ['./evil.py:run']", ["./evil.py:run, which is code"]),
    ):
        path = machine.file("t.toml", text)
        machine.run("call", *HOME, "-t", path, "x").fails(2, *words)


def test_a_template_from_elsewhere_cannot_redirect_a_key(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:9/v1")
    for text in ('base_url = "http://evil/v1"', 'key_env = "HOME"', '[extra_headers]\nx = "y"'):
        path = machine.file("t.toml", text)
        machine.run("call", *HOME, "-t", path, "x").fails(2, "a template has no")


def test_saving_again_keeps_the_old_one(machine: Machine) -> None:
    machine.run("call", "-s", "one", "--save", "a")
    done = machine.run("call", "-s", "two", "--save", "a")
    assert "a.toml~" in done.err
    assert "one" in (machine.config / "templates" / "a.toml~").read_text()
    assert machine.run("templates", "list", "--json").json() == ["a"]
    assert machine.run("templates", "show", "a").out == 'system = "two"\n'
    (machine.config / "templates" / "bad.toml").write_text("x = ")
    listed = machine.run("templates", "list")
    assert listed.status == 0
    assert "two" in listed.out
    assert "unreadable" in listed.out
    long, more = "n" * 70, 'model = "home/a-long-name"\nsystem = "Answer in the words of the question."'
    (machine.config / "templates" / f"{long}.toml").write_text(more)
    rows = machine.run("templates", "list").out.splitlines()
    assert f"{long}  home/a-lo…  Answer in the w…" in rows, "no line is longer than 100 columns"
    machine.run("templates", "remove", "aa").fails(2, "no template aa", "did you mean a")
    assert machine.run("templates", "remove", "a").status == 0
    assert machine.run("templates", "path", "a").out.strip() == str(machine.config / "templates" / "a.toml")
    machine.run("templates", "show", "a").fails(2, "no template a")


def test_a_parameter_that_neither_the_template_nor_the_registry_names_is_wrong(
    machine: Machine, server: Server
) -> None:
    options = ("-p", "lang=French", "-p", "own.key=1")
    assert machine.run("call", *HOME, "-s", "In $lang.", *options, "--save", "tr").status == 0
    for command in ("call", "chat"):
        done = machine.run(command, *(["x"] if command == "call" else []), "-t", "tr", "-p", "lagn=x", stdin="x\n")
        done.fails(2, "tr has no variable lagn", "lang")
    assert not server.received
    sent = body(machine, "-t", "tr", "x", "-p", "top_k=3", "--extra-body", '{"lagn": "x"}')
    assert (sent["top_k"], sent["lagn"], sent["own"]) == (3, "x", {"key": 1})


def test_in_a_chat(machine: Machine, server: Server) -> None:
    chat(machine, args=("chat", *HOME, "-s", "Be $tone.", "-p", "tone=brief", "--reasoning", "off", "--save", "b"))
    done = chat(machine, "one", "two", args=("chat", "-t", "b", "-p", "tone=long"))
    assert done.status == 0, done.err
    first, second = (request.json()["messages"] for request in server.received)
    assert [message["content"] for message in first] == ["Be long.", "one"]
    assert [message["content"] for message in second][-1] == "two"


def test_a_schema_is_given_as_a_short_form_a_file_or_a_name(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:9/v1", 'schema.methods = ["json_schema"]')
    short = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    (machine.home / "named").write_text(json.dumps(short))
    for value in ("a", " {a} ", json.dumps(short), str(machine.home / "named")):
        found = body(machine, *HOME, "--schema", value, "x")["response_format"]["json_schema"]["schema"]
        assert found == short, value
    for value, words in (
        ("a inte", ["inte is not a type", "name, age int"]),
        ("none.json", ["--schema none.json", "No such file"]),
        ("dir/none", ["No such file"]),
        ('{"type": ', ["--schema:1:", "not valid JSON"]),
        ("", ["there are no fields"]),
    ):
        machine.run("call", *HOME, "--schema", value, "x").fails(2, *words)


def test_a_template_with_a_byte_order_mark_is_read(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:9/v1")
    path = machine.file("t.toml", '\ufeffmodel = "home/m"\r\nsystem = "Be brief."\r\n')
    body = machine.run("call", "-t", path, "--plan", "x").json()["body"]
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
