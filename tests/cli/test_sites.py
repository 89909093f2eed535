"""Which site of a vendor a command asks: the one whose key is set, the one that the user chose, or the default."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from .support import KEY, Machine, Server, http, read_terminal, whole

GLOBAL, CHINESE = "moonshotai", "moonshotai-cn"
REFUSED = json.dumps({"error": {"message": "Invalid Authentication", "type": "invalid_authentication_error"}}).encode()


@contextmanager
def two_sites(machine: Machine, **refuses: bool) -> Iterator[tuple[Server, Server]]:
    """The two sites of Moonshot on loopback, in a trusted file."""
    scripts = [
        http(401, REFUSED) if refuses.get(name) else http(200, whole(content=name)) for name in ("first", "second")
    ]
    with Server([scripts[0]]) as first, Server([scripts[1]]) as second:
        machine.config.mkdir(parents=True, exist_ok=True)
        file = machine.config / "providers.toml"
        file.write_text(
            f'[providers.{GLOBAL}]\nbase_url = "{first.url}"\n[providers.{CHINESE}]\nbase_url = "{second.url}"\n'
        )
        assert machine.run("registry", "trust", str(file)).status == 0
        machine.env |= {"MOONSHOT_API_KEY": KEY, "CNLLM_LOG": "off"}
        yield first, second


def choose_chinese(machine: Machine) -> None:
    (machine.config / "sites.json").write_text(json.dumps({"moonshot": {"MOONSHOT_API_KEY": CHINESE}}))


def test_a_pipe_takes_the_default_with_a_note_and_keeps_no_choice(machine: Machine) -> None:
    with two_sites(machine) as (first, second):
        done = machine.run("-m", "kimi-k2.6", "--no-stream", "hi")
        assert (done.status, done.out.strip()) == (0, "first"), done
        assert "MOONSHOT_API_KEY fits moonshotai-cn too" in done.err
        assert first.url in done.err
        assert "cnllm keys test MOONSHOT_API_KEY" in done.err
        assert not (machine.config / "sites.json").exists()
        choose_chinese(machine)
        done = machine.run("-m", "kimi-k2.6", "--no-stream", "hi")
        assert (done.status, done.out.strip()) == (0, "second"), done
        assert "you chose it for MOONSHOT_API_KEY" in done.err
        assert machine.run("-m", f"{GLOBAL}/kimi-k2.6", "--no-stream", "hi").out.strip() == "first"
        assert (len(first.received), len(second.received)) == (2, 1)


def test_a_terminal_asks_once_and_the_locale_suggests(machine: Machine) -> None:
    import pty
    import subprocess

    with two_sites(machine) as (_, second):
        machine.env |= {"LANG": "zh_CN.UTF-8", "LANGUAGE": "en", "TERM": "xterm"}
        for expects_question in (True, False):
            master, slave = pty.openpty()
            process = subprocess.Popen(
                machine.command("-m", "kimi-k2.6", "--no-stream", "hi"),
                env=machine.env,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
            )
            os.close(slave)
            if expects_question:
                os.write(master, b"\n")
            shown = read_terminal(master)
            assert process.wait(60) == 0, shown
            os.close(master)
            assert ("Which site is it for?" in shown) is expects_question, shown
            assert "second" in shown
            if expects_question:
                assert shown.index(second.url) < shown.index(f"2  {GLOBAL}")
        assert len(second.received) == 2


def test_keys_test_names_both_addresses_and_keeps_the_one_that_takes_the_key(machine: Machine) -> None:
    with two_sites(machine, first=True) as (first, second):
        for name in ("MOONSHOT_API_KEY", CHINESE, GLOBAL):
            done = machine.run("keys", "test", name)
            assert done.status == 0, done
            assert f"works: {CHINESE}/" in done.out
            assert first.url in done.err
            assert second.url in done.err
            assert json.loads((machine.config / "sites.json").read_text()) == {
                "moonshot": {"MOONSHOT_API_KEY": CHINESE}
            }
        assert machine.run("-m", "kimi-k2.6", "--no-stream", "hi").out.strip() == "second"
        assert machine.run("keys", "test", "MOONSHOT_API_KEY", "--json").json()["provider"] == CHINESE
    with two_sites(machine, second=True):  # the key is one of the other site now
        assert machine.run("keys", "test", "MOONSHOT_API_KEY", "--json").json()["provider"] == GLOBAL
        assert machine.run("-m", "kimi-k2.6", "--no-stream", "hi").out.strip() == "first"
    with two_sites(machine, first=True, second=True):
        done = machine.run("keys", "test", "MOONSHOT_API_KEY")
        assert (done.status, done.out) == (1, "")
        assert done.err.count("does not work") == 2


def test_a_refused_key_names_the_other_site_and_the_command(machine: Machine) -> None:
    with two_sites(machine, first=True):
        for name in ("kimi-k2.6", f"{GLOBAL}/kimi-k2.6"):
            done = machine.run("-m", name, "--no-stream", "hi")
            assert done.status == 1
            assert CHINESE in done.err
            assert "cnllm keys test moonshotai" in done.err


def test_the_default_model_goes_to_the_site_of_the_key(machine: Machine) -> None:
    with two_sites(machine):
        choose_chinese(machine)
        done = machine.run("--no-stream", "hi")
        assert (done.status, done.out.strip()) == (0, "second"), done
        assert f"asking {CHINESE}/" in done.err


def test_a_batch_stays_at_the_site_of_its_first_run(machine: Machine) -> None:
    with two_sites(machine) as (first, second):
        source = machine.file("in.jsonl", '{"id": "a", "prompt": "x"}\n')
        out = str(machine.home / "out.jsonl")
        done = machine.run("batch", source, "-m", "kimi-k2.6", "-o", out)
        assert done.status == 0, done
        assert "MOONSHOT_API_KEY fits" in done.err
        reply = json.loads((machine.home / "out.jsonl").read_text())["reply"]
        assert [note["code"] for note in reply["notes"] if note["code"] == "site"] == ["site"]
        choose_chinese(machine)
        machine.file("in.jsonl", '{"id": "a", "prompt": "x"}\n{"id": "b", "prompt": "y"}\n')
        done = machine.run("batch", source, "-m", "kimi-k2.6", "-o", out)
        assert done.status == 2, done
        assert f"{GLOBAL}/kimi-k2.6" in done.err
        assert CHINESE in done.err
        assert (len(first.received), len(second.received)) == (1, 0)
        machine.env["MOONSHOTAI_API_KEY"] = KEY  # a key for the first site, too
        assert machine.run("batch", source, "-m", "kimi-k2.6", "-o", out).status == 0
        assert (len(first.received), len(second.received)) == (2, 0)


@pytest.mark.parametrize("map_to", ["kimi-k2.6", None])
def test_the_gateway_chooses_at_each_request(machine: Machine, map_to: str | None) -> None:
    import urllib.request

    with two_sites(machine) as (first, second):
        args = ["--map", f"x={map_to}"] if map_to else []
        machine.env["CNLLM_SERVE_KEY"] = "sk-serve-0123456789"
        process = machine.start("serve", "--port", "0", "--json", *args)
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            for _ in range(2):
                body = {"model": "x" if map_to else "kimi-k2.6", "messages": [{"role": "user", "content": "hi"}]}
                request = urllib.request.Request(
                    f"{url}/v1/chat/completions",
                    json.dumps(body).encode(),
                    {"Authorization": "Bearer sk-serve-0123456789", "Content-Type": "application/json"},
                )
                with urllib.request.urlopen(request, timeout=30) as response:
                    assert int(response.headers["x-cnllm-notes"].partition(";")[0]) >= 1
                choose_chinese(machine)
            assert (len(first.received), len(second.received)) == (1, 1)
        finally:
            process.terminate()
            process.communicate()


def test_a_call_that_fails_names_the_site_too(machine: Machine) -> None:
    import urllib.error
    import urllib.request

    with two_sites(machine, first=True):
        for stream in ("--stream", "--no-stream"):
            done = machine.run("-m", "kimi-k2.6", stream, "hi")
            assert done.status != 0
            assert done.err.count("MOONSHOT_API_KEY fits moonshotai-cn too") == 1, done
        machine.env["CNLLM_SERVE_KEY"] = "sk-serve-0123456789"
        process = machine.start("serve", "--port", "0", "--json")
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            body = {"model": "kimi-k2.6", "messages": [{"role": "user", "content": "hi"}]}
            request = urllib.request.Request(
                f"{url}/v1/chat/completions",
                json.dumps(body).encode(),
                {"Authorization": "Bearer sk-serve-0123456789", "Content-Type": "application/json"},
            )
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request, timeout=60)
            with caught.value as refused:
                assert int(refused.headers["x-cnllm-notes"].partition(";")[0]) >= 1
        finally:
            process.terminate()
            process.communicate()


def test_the_gateway_tells_at_its_start_which_site_a_shared_key_goes_to(machine: Machine) -> None:
    def told(*args: str) -> str:
        process = machine.start("serve", "--port", "0", "--json", *args)
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        return process.communicate()[1].decode()

    with two_sites(machine) as (first, _):
        assert re.search(rf"note: site: .*{GLOBAL} \({re.escape(first.url)}\): .*MOONSHOT_API_KEY fits", told())
        assert "MOONSHOT_API_KEY" not in told("--simulate")
        choose_chinese(machine)
        assert "MOONSHOT_API_KEY" not in told()


def test_show_names_the_site_that_the_keys_choose(machine: Machine) -> None:
    def shown(name: str, **env: str) -> str:
        return machine.run("models", "show", name, env=env).out

    assert "your key" not in shown("glm-4.7")
    assert "your key" not in shown("glm-4.7", ZAI_API_KEY="k")
    assert re.search(
        r"your key +zhipuai \(https://\S+\): ZHIPUAI_API_KEY is set", shown("glm-4.7", ZHIPUAI_API_KEY="k")
    )
    assert "your key" not in shown("zai/glm-4.7", ZHIPUAI_API_KEY="k")
