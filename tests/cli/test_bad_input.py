"""What cannot be understood is said with its place, ends with 2, and nothing is sent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .support import Hold, Machine, Server

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16


@pytest.fixture(autouse=True)
def peer(machine: Machine) -> Iterator[None]:
    """An endpoint that nothing may reach."""
    with Server([Hold]) as server:
        machine.overlay(server.url)
        yield
    assert not server.received


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ('[{"name": "a" "b"}]', ":1:15: not valid JSON"),
        ('[\n  {"name": }\n]', ":2:12: not valid JSON"),
        ("", ":1:1: not valid JSON"),
        (b"[\n \xff]", ":2:2: this is not UTF-8"),
        ("[NaN]", "JSON has no NaN"),
        ('"text"', "holds no list of tools"),
        ("[1]", "holds no list of tools"),
        ('[{"type": "function"}]', "tools[0]"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_bad_tools_name_file_line_and_column(machine: Machine, content: str | bytes, place: str) -> None:
    path = machine.file("tools.json", content)
    done = machine.run("call", "--model", "home/m", "--tools", path, "hi")
    done.fails(2, place, *([path] if "tools[0]" not in place else []))


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--extra-body", '{"a": }'], ["--extra-body:1:7: not valid JSON"]),
        (["--extra-body", "[1]"], ["--extra-body", "no JSON object"]),
        (["--extra-body", "@none.json"], ["none.json", "No such file"]),
        (["--tools", "none.json"], ["--tools none.json", "No such file"]),
        (["--schema", "none.json"], ["--schema none.json", "No such file"]),
        (["--image", "none.png"], ["none.png", "No such file"]),
        (["--tools", "/"], ["/", "directory"]),
        (["--reasoning", "very"], ["very", "off, on, minimal, low, medium, high, xhigh, max"]),
        (["--reasoning", "-1"], ["-1"]),
        (["-p", "temperature"], ["temperature", "NAME=VALUE"]),
        (["-p", "=1"], ["NAME=VALUE"]),
        (["-p", "a..b=1"], ["NAME=VALUE"]),
        (["-p", "temperature=hot"], ["temperature=hot", "a number"]),
        (["-p", "temperature=true"], ["a number"]),
        (["-p", "max_tokens=1.5"], ["a whole number"]),
        (["-p", "stop=[1]"], ["list of texts"]),
        (["-p", "parallel_tool_calls=1"], ["true or false"]),
        (["-p", "if_cut=maybe"], ["again-whole"]),
        (["-p", "on_unsupported=cry"], ["adjust"]),
        (["-p", "a=1", "-p", "a.b=2"], ["a already has a value"]),
        (["--replay", "none.jsonl"], ["none.jsonl", "--record"]),
        (["--record", "/nowhere/tape.jsonl"], ["/nowhere/tape.jsonl", "writable"]),
        (["--record", "-"], ["--record", "a file is expected"]),
        (["--raw-log", "/nowhere/tape.jsonl"], ["/nowhere/tape.jsonl"]),
        (
            ["--key-env", "NOT_SET_ANYWHERE"],
            ["NOT_SET_ANYWHERE", "cnllm keys set NOT_SET_ANYWHERE", "--simulate"],
        ),
        (["--protocol", "carrier-pigeon"], ["carrier-pigeon"]),
        (["--tool-choice", "required"], ["tool_choice", "tools"]),
    ],
)
def test_an_option_that_is_no_good_ends_the_call_before_it_is_sent(
    machine: Machine, args: list[str], words: list[str]
) -> None:
    machine.run("call", "--model", "home/m", *args, "hi").fails(2, *words)


def test_a_tool_without_a_name_is_a_wrong_call_of_every_command(machine: Machine) -> None:
    tools = machine.file("tools.json", '[{"description": "x"}]')
    for command, stdin in ("call", "hi"), ("sanitize", "hi"), ("fit", '[{"role": "user", "content": "hi"}]'):
        done = machine.run(command, "-m", "glm-4.7", "--tools", tools, stdin=stdin)
        done.fails(2, "cnllm: tools[0] has no function name", "correct it")


def test_a_batch_writes_no_file_called_dash(machine: Machine) -> None:
    rows = machine.file("rows.txt", "hi\n")
    machine.run("batch", rows, "--model", "home/m", "-o", "-").fails(2, "--out", "a file is expected", "stdout")
    assert not (machine.home / "-").exists()


def test_a_bad_schema_names_its_place(machine: Machine) -> None:
    path = machine.file("schema.json", '{"type": "object"\n"properties": {}}')
    machine.run("call", "--model", "home/m", "--schema", path, "hi").fails(2, f"{path}:2:1: not valid JSON")
    path = machine.file("schema.json", "[]")
    machine.run("call", "--model", "home/m", "--schema", path, "hi").fails(2, path, "no JSON object")


def test_extra_body_from_a_file_names_the_file(machine: Machine) -> None:
    path = machine.file("body.json", '{\n"a" 1}')
    machine.run("call", "--model", "home/m", "--extra-body", f"@{path}", "hi").fails(2, f"{path}:2:5")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.png", b"no image\0", "neither a picture"),
        ("a.bin", b"\0", "neither a picture"),
        ("a.jpg", b"", "empty"),
        ("a.svg", b"", "empty"),
    ],
)
def test_what_is_no_image_is_refused(machine: Machine, name: str, content: bytes, words: str) -> None:
    path = machine.file(name, content)
    machine.run("call", "--model", "home/m", "--image", path, "hi").fails(2, path, words)


def test_an_unreadable_image(machine: Machine) -> None:
    machine.run("call", "--model", "home/m", "--image", str(machine.home), "hi").fails(2, "directory")


@pytest.mark.parametrize("text", ["", "  \n\t"])
def test_an_empty_prompt(machine: Machine, text: str) -> None:
    machine.run("call", "--model", "home/m", text).fails(2, "the prompt is empty")
    machine.run("call", "--model", "home/m", stdin=text).fails(2, "the prompt is empty")
    machine.run("call", "--model", "home/m", "-", stdin=text).fails(2, "the prompt is empty")


def test_stdin_that_is_no_utf8(machine: Machine) -> None:
    gbk = "第一行\n为什么".encode("gb18030")
    machine.run("call", "--model", "home/m", "-", stdin=b"ok\n" + gbk).fails(2, "stdin is not UTF-8", "line 2", "iconv")
    machine.run("call", "--model", "home/m", "look", stdin=gbk).fails(2, "stdin is not UTF-8")


@pytest.mark.parametrize("data", [b"\xff\0", b"\x89PNG\r\n\x1a\n"], ids=["bytes", "a picture"])
@pytest.mark.parametrize("command", ["fit", "sanitize"])
def test_a_command_without_attachments_names_none(machine: Machine, command: str, data: bytes) -> None:
    done = machine.run(command, "--model", "glm-4.7", stdin=data)
    done.fails(2, "stdin is not UTF-8", "pipe UTF-8 in")
    assert "-a -" not in done.err


def test_text_that_is_no_utf8(machine: Machine) -> None:
    machine.run("call", "--model", "home/m", "\udcff").fails(2, "not UTF-8")
    machine.run("call", "--model", "home/m", "-s", "\udcff", "hi").fails(2, "--system is not UTF-8")


@pytest.mark.parametrize(
    "args",
    [
        ("logs", "show", "\udcff"),
        ("logs", "search", "\udcff"),
        ("logs", "cost", "\udcff"),
        ("call", "--conversation", "\udcff", "hi"),
    ],
    ids=" ".join,
)
def test_an_id_or_a_word_that_is_no_utf8(machine: Machine, args: tuple[str, ...]) -> None:
    machine.run(*args).fails(2, "is not UTF-8")


NAN = [
    ("call", "--timeout", "nan", "hi"),
    ("batch", "in.txt", "-m", "home/m", "-o", "out", "--rpm", "nan"),
    ("batch", "in.txt", "-m", "home/m", "-o", "out", "--timeout", "nan"),
    ("probe", "home", "--max-cost", "nan"),
    ("verify", "home/m", "--max-cost", "nan"),
    ("models", "list", "--max-price", "nan"),
    ("serve", "--idle-timeout", "nan"),
    ("serve", "top", "--interval", "nan"),
]


@pytest.mark.parametrize("args", NAN, ids=" ".join)
def test_nan_is_no_number(machine: Machine, args: tuple[str, ...]) -> None:
    machine.run(*args).fails(2, "'nan' is not a number")


@pytest.mark.parametrize("price", ["nan/1", "1/nan", "-1/2", "inf"])
def test_a_price_that_caps_nothing(machine: Machine, price: str) -> None:
    source = machine.file("in.txt", "hi\n")
    args = ("batch", source, "-m", "home/m", "-o", f"{source}.out", "--assume-price", price, "--currency", "USD")
    machine.run(*args).fails(2, f"--assume-price {price} is not a price")


def test_an_unknown_model_names_the_nearest(machine: Machine) -> None:
    machine.run("call", "--model", "home-m", "hi").fails(2, "home-m", "home/m")


def test_a_broken_registry_names_file_line_and_a_suggestion(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:9/v1", flags='tool_choise = "auto"')
    place = f"{machine.config / 'providers.toml'}:7: "
    for command in (["call", "--model", "home/m", "hi"], ["models", "list"], ["registry", "path"]):
        machine.run(*command).fails(2, place, "tool_choise", "tool_choice")


def test_a_missing_overlay(machine: Machine) -> None:
    done = machine.run("call", "--model", "m", "hi", env={"CNLLM_PROVIDERS": "/none.toml"})
    done.fails(2, "/none.toml")


@pytest.mark.parametrize("target", ["providers.toml", "gone.toml"])
def test_a_registry_file_whose_link_leads_nowhere_is_not_skipped(machine: Machine, target: str) -> None:
    """Without it, a request may go to another address than the user set, or at another price."""
    path = machine.config / "providers.toml"
    path.unlink()
    try:
        path.symlink_to(target)
    except OSError:
        pytest.skip("this user may make no links")
    machine.run("call", "-m", "glm-4.7", "hi", "--plan").fails(2, str(path), "cannot be read")
    done = machine.run("registry", "check")
    assert (done.status, str(path) in done.out) == (2, True)


def test_a_broken_keys_file(machine: Machine) -> None:
    del machine.env["HOME_TEST_KEY"]
    (machine.config / "keys.json").write_text("{")
    (machine.config / "keys.json").chmod(0o600)
    machine.run("call", "--model", "home/m", "hi").fails(2, str(machine.config / "keys.json"), "not valid JSON")


def test_a_call_without_a_key_says_where_one_is_looked_for(machine: Machine) -> None:
    machine.overlay("https://nowhere.invalid/v1")
    del machine.env["HOME_TEST_KEY"]
    done = machine.run("call", "--model", "home/m", "hi")
    done.fails(2, "HOME_TEST_KEY", "cnllm keys set", "--simulate")
    done = machine.run("call", "--model", "home/m", "hi", env={"HOME_TEST_KEY": " "})
    done.fails(2, "HOME_TEST_KEY", "cnllm keys set", "--simulate")
