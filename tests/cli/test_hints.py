"""What a newcomer types wrong, and the next step that the error names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cnllm import CannotSend, Client, Registry
from cnllm.transports.errors import connect_failed

from .support import KEY, Machine, Server, http

ROOT = Path(__file__).parents[2]


WRONG = [
    # what a newcomer types, and what the hint must and must not say
    (("call", "-m", "glm-4.7", "--temperature", "warm", "x"), "for example: --temperature 0.5", "--help"),
    (("call", "-m", "glm-4.7", "-p", "max_tokens=lots", "x"), "for example: --max-tokens 1000", "--help"),
    (("call", "-m", "glm-4.7", "--logprobs", "perhaps", "x"), "for example: --logprobs true", "--help"),
    (("call", "-m", "glm-4.7", "-p", "corrections=x", "x"), "for example: -p corrections=1000", "--help"),
    (("call", "-m", "glm-4.7", "--timeout", "soon", "x"), "--timeout S: Seconds to wait", "valid float"),
    (("call", "-m", "glm-4.7", "--schema", '{"type": "objec"}', "x"), "'object'", "--help"),
    (("call", "-m", "glm-4.7", "--tools", "own.py", "x"), "--tool own.py:FUNCTION", "JSON:"),
    (("call", "-m", "glm-4.7", "-T", "none.py:f", "x"), "check the path", "MODULE:FUNCTION"),
    (("call", "-m", "glm-4.7", "-T", "own.py:g", "x"), "it has f", "MODULE:FUNCTION"),
    (("call", "-m", "glm-4.7", "-T", "own.py:ff", "x"), "did you mean f", "MODULE:FUNCTION"),
    (("call", "-m", "glm-4.7", "-T", "own.py", "x"), "--tool own.py:FUNCTION", "MODULE"),
    (("call", "-m", "glm-4.7", "--api-key", "k", "x"), "--key-env", "--help"),
    (("call", "-m", "openai-compatible/x", "--base-url", "127.0.0.1:9", "x"), "http://", "on_unsupported"),
    (("call", "-m", "openai-compatible/x", "x"), "--base-url URL", "on_unsupported"),
    (("call", "-m", "glm-4.7", "--tool-choice", "f", "x"), "change the option", "on_unsupported"),
    (("launch", "foo"), "for example: cnllm launch", "--help"),
    (("launch", "foo", "-m", "glm-4.7"), "known clients: claude", "install it"),
    (("call", "-m", "home/my-model", "x"), "there is no provider home", "no key"),
    (("launch", "claud", "-m", "glm-4.7"), "did you mean claude?", "install it"),
    (("keys", "add", "zai"), "cnllm keys has ", "--help"),
    (("keys", "set"), "for example: cnllm keys set", "--help"),
    (("help", "call"), "cnllm call --help explains call", "To ask a model"),
    (("logs", "delete", "last", "--all"), "give one of them", "--help"),
    (("logs", "cost", "--csv", "--json"), "give one of them", "--help"),
    (("models", "show", "glm-4.7", "--base-url", "foo"), "it begins with http:// or https://", "--help"),
    (("batch", "in.csv", "-m", "glm-4.7"), "for example: cnllm batch", "--help"),
    (("serve", "--port", "abc"), "'abc' is not a whole number", "valid integer"),
    # words of other tools
    (("models", "list", "--can", "vision"), "did you mean images?", "--can takes"),
    (("models", "list", "--can", "PDF"), "did you mean files?", "--can takes"),
    (("models", "list", "--can", "tools,thinking"), "did you mean reasoning?", "--can takes"),
    (("models", "list", "--can", "function_calling"), "did you mean tools?", "--can takes"),
    (("models", "list", "-q", "glm"), "cnllm models list PART", "--help"),
    (("models", "options"), "cnllm models show NAME", "--help"),
    (("call", "-m", "glm-4.7", "-o", "temperature", "0.5", "x"), "--temperature 0.5", "--help"),
    (("chat", "-m", "glm-4.7", "-o", "temperature", "0.5"), "-p temperature=0.5", "--help"),
    (("call", "-m", "glm-4.7", "-p", "lang", "French", "x"), "-p lang=French", "--help"),
    (("call", "--cid", "3f2a", "x"), "--conversation ID", "--mcp"),
    (("call", "--thinking", "x"), "--reasoning LEVEL", "--help"),
    (("call", "-x", "x"), "--schema", "--help"),
    (("logs", "-q", "x"), "cnllm logs search TEXT", "--help"),
    (("logs", "list", "-r"), "cnllm logs show", "--help"),
    (("keys", "get", "zai"), "no command shows a key", "did you mean"),
    (("install", "llm-x"), "there are no plugins", "put the text in quotes"),
    # names of vendors and families in place of a provider's
    (("keys", "test", "zhipu"), "did you mean zhipuai?", "model"),
    (("keys", "set", "智谱"), "did you mean zhipuai?", "model"),
    (("keys", "test", "glm-4.7"), "it is a model of ", "did you mean"),
    (("prefer", "智谱"), "did you mean zhipuai?", "lists"),
    (("call", "-m", "zhipu/glm-4.7", "x"), "did you mean zhipuai/glm-4.7", "no provider"),
    (("call", "-m", "智谱/glm-4.7", "x"), "did you mean zhipuai/glm-4.7", "no provider"),
    (("plugins",), "cnllm call plugins", "no key"),
    (("embed", "x"), "has no embeddings", "did you mean"),
    (("run", "glm-4.7", "hi"), "call -m MODEL", "put the text in quotes"),
    (("show", "me", "the", "sea"), "cnllm call 'show me the sea'", "did you mean"),
    # letters in the wrong place
    (("--modle", "x", "hi"), "did you mean --model?", "--tool"),
    (("--verion",), "did you mean cnllm --version?", "--conversation"),
    (("call", "--maxtokens", "3", "x"), "did you mean --max-tokens?", "--help"),
    (("batch", "--concurency", "3"), "did you mean --concurrency?", "--help"),
    (("launch", "--modle", "x"), "did you mean --model?", "--help"),
    (("keys", "lst"), "did you mean list? cnllm keys has", "list?;"),
    (("aliases", "rm", "x"), "did you mean remove?", "--help"),
    (("modles", "list"), "did you mean models?", "put the text in quotes"),
    (("models", "list", "--provider", "zia"), "did you mean zai?", "lists them"),
    # values that most endpoints refuse
    (
        ("call", "-m", "glm-4.7", "--max-tokens", "0", "x"),
        "max_tokens=0: a number of at least 1 is expected",
        "no key",
    ),
    (("call", "-m", "glm-4.7", "--max-tokens", "-5", "x"), "most endpoints refuse it; nothing was sent", "no key"),
    (
        ("chat", "-m", "glm-4.7", "--temperature", "-1"),
        "temperature=-1: a number of at least 0 is expected",
        "no key",
    ),
    (("call", "-m", "glm-4.7", "-p", "top_p=5", "x"), "top_p=5: a number from 0 to 1 is expected", "no key"),
    (
        ("batch", "in", "-m", "glm-4.7", "-o", "out", "--max-tokens", "0"),
        "max_tokens=0: a number of at least 1 is expected",
        "no key",
    ),
    (("call", "-m", "", "x"), "the name of the model is empty", "is called"),
]


def test_a_mistyped_part_of_a_name_has_a_suggestion(machine: Machine) -> None:
    for part, name in (("gml", "glm"), ("deepsek", "deepseek"), ("claude-opuss", "claude-opus")):
        done = machine.run("models", "list", part)
        assert f"no model name contains {part}\n  did you mean {name}" in done.err


def test_a_hint_for_python_and_the_command_line_names_the_option_alone(machine: Machine) -> None:
    missing = machine.run("call", "-m", "glm-4.7", "x").err
    assert "--simulate" in missing
    refused = ("call", "-m", "glm-4.7", "-p", "on_unsupported=error", "-p", "temperature=9", "--plan", "x")
    done = machine.run(*refused)
    done.fails(2, "-p on_unsupported=adjust")
    for text in (missing, done.err):
        assert "Python" not in text, text
        assert "'adjust'" not in text, text
    with pytest.raises(CannotSend) as caught:
        Client(simulate=True).plan("glm-4.7", "x", on_unsupported="error", temperature=9)
    assert "on_unsupported='adjust'" in (caught.value.hint or "")


@pytest.mark.parametrize(("args", "hint", "never"), WRONG, ids=str)
def test_a_hint_says_the_next_step(machine: Machine, args: tuple[str, ...], hint: str, never: str) -> None:
    machine.file("own.py", "def f() -> int:\n    return 1\n")
    machine.env["ZAI_API_KEY"] = KEY
    done = machine.run(*args, cwd=machine.home)
    done.fails(2, hint)
    assert never not in done.err


@pytest.mark.parametrize(
    ("header", "column"),
    [
        ("id,text", "text"),
        ("ID,Frage", "Frage"),
        ("row_number,label,content", "content"),
        ("\ufeffid,标题,内容", "内容"),
        ("order_id,comment", "comment"),
        ("no,date,abstract,lang", "abstract"),
        ("id", "id"),
    ],
)
def test_a_table_without_prompts_suggests_a_column_with_text(machine: Machine, header: str, column: str) -> None:
    source = machine.file("in.csv", f"{header}\n1,2,3,4\n")
    done = machine.run("batch", source, "-m", "glm-4.7", "-o", str(machine.home / "out"), "--simulate")
    assert done.status == 2
    assert f"--prompt 'Translate: {{{column}}}'" in done.err


def test_a_stored_key_and_another_address_name_no_file_that_is_not_there(machine: Machine) -> None:
    machine.env["ZAI_API_KEY"] = KEY
    for address in ("https://x.invalid/v1", "http://127.0.0.1:9/v1"):
        done = machine.run("call", "-m", "zai/glm-4.7", "--base-url", address, "x")
        done.fails(2, "it belongs to another address", "--key-env ZAI_API_KEY", "openai-compatible/ID")
        assert "registry trust" not in done.err


def test_a_plan_shows_the_header_of_a_key_where_one_is_sent(machine: Machine) -> None:
    def headers(*args: str) -> dict[str, str]:
        found: dict[str, str] = machine.run("call", *args, "--plan", "x").json()["headers"]
        return found

    local = ("-m", "openai-compatible/x", "--base-url", "http://127.0.0.1:9/v1")
    assert "authorization" not in headers(*local)
    machine.env["MY_KEY"] = KEY
    assert "redacted" in headers(*local, "--key-env", "MY_KEY")["authorization"]
    assert "redacted" in headers("-m", "glm-4.7")["authorization"]  # it is needed, although it is not set


def test_a_refused_key_of_a_retired_model_is_about_the_key(machine: Machine) -> None:
    body = json.dumps({"error": {"message": "no such key"}}).encode()
    for status, first in ((401, "key"), (429, "wait"), (404, "is retired")):
        with Server([http(status, body)]) as peer:
            machine.overlay(peer.url, "status = { is = 'retired', use = 'home/new' }")
            done = machine.run("call", "-m", "home/m", "--no-stream", "x", env={"CNLLM_ATTEMPTS": "1"})
            hint = done.err.splitlines()[-1]
            assert done.status == 1, done
            assert first in hint.partition(";")[0], hint


def test_readme_calls_the_newest_glm() -> None:
    newest = Registry.load().family_aliases["glm"].partition("/")[2]
    for page in ("README.md", "README.zh-CN.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert f"cnllm -m {newest} " in text
        assert f"cnllm launch claude --model {newest}" in text


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("keys", "set", "openai", "--value", "x"), "or pipe it in: cnllm keys set NAME < key.txt"),
        (("batch", "in.csv", "--output", "x.jsonl"), "-o FILE"),
        (("version",), "cnllm --version prints it"),
        (("-V",), "cnllm --version"),
        (("prompt", "hi", "--simulate"), "To ask a model: cnllm call hi --simulate"),
        (("tools", "list"), "calc, read, time"),
        (("models", "default", "--remove"), "--unset"),
        (("-m",), "--model M:"),
    ],
)
def test_words_of_other_programs_get_what_stands_for_them(machine: Machine, args: tuple[str, ...], words: str) -> None:
    machine.run(*args).fails(2, words)


def test_a_batch_without_its_input_simulates_nothing(machine: Machine) -> None:
    args = ("batch", "none.csv", "-m", "glm-4.7", "-o", str(machine.home / "out.jsonl"), "--simulate")
    machine.run(*args).fails(2, "none.csv: No such file")


def test_an_empty_key_is_named_once(machine: Machine) -> None:
    machine.run("keys", "set", "zai", stdin="\n").fails(2, "ZAI_API_KEY: the key is empty")


def test_a_name_without_an_address_is_no_errno() -> None:
    error = connect_failed("api.example.org", "[Errno -2] Name or service not known")
    assert "its name cannot be resolved" in str(error)
    assert "Errno" not in str(error)
