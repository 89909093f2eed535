"""`cnllm probe` and `cnllm verify`: files, exit statuses, and going on after a kill."""

from __future__ import annotations

import json
import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.support import Machine

from cnllm import Registry
from cnllm.cassette import Player
from cnllm.simulator.server import running

from .endpoint import KEY, Answer, Json, listing, ok, refused, serving

MODEL = "zai/glm-4.7"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.env["PROBE_KEY"] = KEY
    return machine


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running(Registry.load(), strict=True, neutral=True, models=[MODEL]) as server:
        yield server.url


def test_a_probe_writes_the_file_the_report_and_the_exchanges(machine: Machine, url: str) -> None:
    out = machine.home / "home.toml"
    done = machine.run("probe", url, "--key-env", "PROBE_KEY", "--max-requests", "220", "-o", str(out))
    assert (done.status, done.out) == (0, ""), done.err
    data = tomllib.loads(out.read_text())
    (name,) = data["models"]
    assert data["models"][name]["reasoning"]["mode"] == "toggle"
    assert next(iter(data["providers"].values()))["keys"] == ["PROBE_KEY"]
    assert "differ from the protocol" in (machine.home / "home.md").read_text()
    exchanges = (machine.home / "home.jsonl").read_text()
    assert KEY not in exchanges + out.read_text() + (machine.home / "home.md").read_text() + done.err
    Player(machine.home / "home.jsonl")  # the engine replays it
    assert len(exchanges.splitlines()) <= 220
    assert all(len(line) < 80 for line in done.err.splitlines() if "/220 " in line)
    assert not list((machine.data / "probe").iterdir())


def test_what_it_wrote_is_used_at_once(machine: Machine, url: str) -> None:
    out = machine.home / "home.toml"
    machine.run("probe", url, "--key-env", "PROBE_KEY", "-o", str(out))
    (name,) = tomllib.loads(out.read_text())["models"]
    env = {"CNLLM_PROVIDERS": str(out)}
    assert machine.run("registry", "check", str(out), env=env).status == 0
    plan = machine.run("call", "-m", name, "--reasoning", "off", "--plan", "Hi", env=env).json()
    assert plan["body"]["thinking"] == {"type": "disabled"}


def test_json_has_facts_and_requests(machine: Machine, url: str) -> None:
    done = machine.run("probe", url, "--key-env", "PROBE_KEY", "--max-requests", "20", "--json")
    assert done.status == 3, done.err
    answer = done.json()
    assert set(answer) == {"facts", "requests"}
    assert answer["requests"] <= 20
    assert {"flag", "value", "answer"} == set(answer["facts"][0])
    assert {"flag": "reasoning.default", "value": "on", "answer": "works"} in answer["facts"]


def test_a_dry_run_sends_nothing(machine: Machine) -> None:
    with serving(lambda request, number: ok()) as endpoint:
        done = machine.run("probe", endpoint.url, "--dry-run", "--assume-price", "0.5/2")
        assert machine.run("probe", endpoint.url, "--dry-run", "--assume-price", "0.5,2").out == done.out
    assert done.status == 0
    assert "tool_choice" in done.out
    assert "at this price" in done.out
    assert endpoint.requests == []


def test_a_cost_needs_a_price_and_is_kept(machine: Machine) -> None:
    def handler(request: Json | None, number: int) -> tuple[int, str, bytes]:
        return listing() if request is None else ok(f"Hello {number}.")

    with serving(handler) as endpoint:
        machine.run("probe", endpoint.url, "--max-cost", "1").fails(2, "--assume-price")
        assert endpoint.requests == []
        done = machine.run("probe", endpoint.url, "--max-cost", "0.01", "--assume-price", "2,10")
    assert done.status == 3
    assert "cost" in done.err
    assert 2 <= len(endpoint.requests) <= 4


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (("probe", "nosuchprovider"), "neither a URL nor a provider"),
        (("probe", "http://[::1"), "http://[::1 is not the URL of an endpoint"),
        (("probe", "http://127.0.0.1:9", "--key-env", "UNSET_KEY"), "UNSET_KEY"),
        (("probe", "http://127.0.0.1:9", "--key-env", "not a name"), "--key-env"),
        (("probe", "http://127.0.0.1:9", "-o", "x.json"), ".toml"),
        (("probe", "http://127.0.0.1:9", "--assume-price", "much"), "--assume-price"),
        (("verify", "--all"), "--all"),
        (("verify", "nosuch/model-x"), "nosuch"),
    ],
)
def test_a_wrong_call_says_what_to_do(machine: Machine, args: tuple[str, ...], word: str) -> None:
    machine.run(*args).fails(2, word)


def test_a_file_of_the_user_is_never_replaced(machine: Machine, url: str) -> None:
    out = machine.home / "mine.toml"
    out.write_text("[providers.mine]\n")
    machine.run("probe", url, "-o", str(out)).fails(2, "no probe has written it")
    assert out.read_text() == "[providers.mine]\n"


def test_nobody_there_and_a_page_are_failures(machine: Machine) -> None:
    assert (
        machine.run("probe", "zai", "--model", "glm-4.7", "--dry-run").status == 0
    )  # nothing is sent, no key is needed
    machine.run("probe", "zai", "--model", "glm-4.7").fails(2, "no key for zai", "--dry-run needs no key")
    machine.run("probe", "http://127.0.0.1:9", "--model", "m").fails(1, "127.0.0.1:9: no connection to 127.0.0.1")
    with serving(lambda request, number: (200, "text/html", b"<!doctype html><html>hi</html>")) as endpoint:
        out = machine.home / "x.toml"
        machine.run("probe", endpoint.url, "--model", "m", "-o", str(out)).fails(1, "a page, not with an API")
    assert not out.exists()


def test_after_a_kill_it_goes_on_where_it_was(machine: Machine) -> None:
    """Of a probe that is killed in the middle, no request that was answered is sent again."""
    victim: list[int] = []

    def handler(request: Json | None, number: int) -> tuple[int, str, bytes]:
        if number == 30 and victim:
            process.send_signal(signal.SIGKILL)
            process.wait()
        if request is None:
            return listing()
        return refused("seed is unknown here") if "seed" in request else ok(f"Hello there {len(str(request))}.")

    args = ("probe", "--max-requests", "60")
    with serving(handler) as endpoint:
        victim.append(1)
        process = machine.start(*args, endpoint.url)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        victim.clear()
        killed = len(endpoint.requests)
        done = machine.run(*args, endpoint.url, "--json")
    assert done.json()["requests"] <= 60
    assert killed == 30
    assert len(endpoint.requests) <= 61  # the one that was under way is sent again
    assert {"flag": "params.seed", "value": False, "answer": "refused"} in done.json()["facts"]


def test_after_a_wrong_key_the_same_command_asks_with_the_right_one(machine: Machine) -> None:
    command = ("probe", "--key-env", "PROBE_KEY", "--max-requests", "15")
    is_right = False

    def handler(request: Json | None, number: int) -> Answer:
        if not is_right:
            return refused("bad key", 401)
        return listing() if request is None else ok()

    with serving(handler) as endpoint:
        wrong = machine.run(*command, endpoint.url)
        is_right = True
        right = machine.run(*command, endpoint.url)
    assert (wrong.status, right.status) == (1, 3)
    assert "does not accept the key" in wrong.err
    assert "does not accept the key" not in right.err


def test_after_a_spent_quota_the_same_command_goes_on(machine: Machine) -> None:
    is_spent = True

    def handler(request: Json | None, number: int) -> Answer:
        if is_spent and number >= 8:
            return refused("Insufficient balance", 402)
        return listing() if request is None else ok()

    command = ("probe", "--key-env", "PROBE_KEY", "--max-requests", "25")
    with serving(handler) as endpoint:
        first = machine.run(*command, endpoint.url)
        before = len(endpoint.requests)
        is_spent = False
        second = machine.run(*command, endpoint.url)
    assert "the quota is spent" in first.err
    assert "the quota is spent" not in second.err
    assert len(endpoint.requests) > before + 10


def test_verify_agrees_with_the_simulator(machine: Machine) -> None:
    done = machine.run("verify", MODEL, "--simulate", "--json")
    (row,) = done.json()
    assert row["contradicted"] == []
    assert len(row["agreed"]) > 20
    assert done.status == 0


def test_verify_finds_what_is_claimed_wrongly_and_patches_it(machine: Machine) -> None:
    """The endpoint is glm-4.7's; the user's file claims the reverse of three things."""
    with running(Registry.load(), strict=True) as server:
        machine.config.mkdir(parents=True, exist_ok=True)
        (machine.config / "providers.toml").write_text(
            f'[providers.zai]\nbase_url = "{server.url}/zai"\n'
            f'[models."{MODEL}"]\nmessages.developer = true\nparams.temperature.max = 2\n'
            'tool_choice.allowed = ["auto", "required"]\n'
        )
        machine.run("registry", "trust", str(machine.config / "providers.toml"))
        patch = machine.home / "patch.toml"
        done = machine.run("verify", MODEL, "-o", str(patch), env={"ZAI_API_KEY": KEY})
    assert done.status == 1, done.err
    for flag in ("messages.developer", "params.temperature.max", "tool_choice.allowed"):
        assert f"{flag}: claimed" in done.out
    data = tomllib.loads(patch.read_text())["models"][MODEL]
    assert data["messages"]["developer"] is False
    assert data["params"]["temperature"]["max"] == 1
    assert data["tool_choice"]["allowed"] == ["auto"]
    assert KEY not in done.out + done.err + patch.read_text()


def test_verify_without_names_asks_nothing(machine: Machine) -> None:
    done = machine.run("verify", env={"ZAI_API_KEY": KEY})
    assert done.status == 0
    assert "Nothing was asked" in done.err
    assert "zai/glm-4.7: 200 requests" in done.out


def test_verify_keeps_to_its_limit(machine: Machine) -> None:
    done = machine.run("verify", MODEL, "deepseek/deepseek-flash", "--simulate", "--max-requests", "30", "--json")
    assert done.status == 3, done.err
    assert sum(row["requests"] for row in done.json()) <= 30
    assert json.loads(done.out)


def test_verify_without_a_key_is_a_wrong_call_and_the_other_models_are_asked(machine: Machine) -> None:
    with running(Registry.load(), strict=True) as server:
        machine.config.mkdir(parents=True, exist_ok=True)
        (machine.config / "providers.toml").write_text(f'[providers.zai]\nbase_url = "{server.url}/zai"\n')
        machine.run("registry", "trust", str(machine.config / "providers.toml"))
        done = machine.run(
            "verify", "deepseek/deepseek-flash", MODEL, "--max-requests", "9", "--json", env={"ZAI_API_KEY": KEY}
        )
    assert [row["model"] for row in done.json()] == [MODEL]
    assert done.status == 2
    assert "deepseek/deepseek-flash: no key for deepseek" in done.err


def test_verify_asks_nothing_where_its_cap_cannot_be_kept(machine: Machine) -> None:
    unpriced = "alibaba-cn/glm-5.3"
    done = machine.run("verify", MODEL, unpriced, "--simulate", "--max-cost", "1")
    done.fails(2, f"the price of {unpriced} is unknown")
    assert "default" not in done.err  # the first question of a model that was asked
    machine.run("verify", MODEL, "alibaba-cn/glm-5.1", "--simulate", "--max-cost", "1").fails(2, "in CNY and USD")
