"""`models show --explain` at a glance, and `models diff`."""

from __future__ import annotations

import pytest

from .support import Machine, read_terminal, terminal

MODELS = """limits = { context = 65_536, output = 4096 }
input = ["text", "image"]
reasoning = { mode = "always" }
when."tools+reasoning".body.set.a_rather_long_name.that_goes_deeper.than_most.switch = "on"
errors = [{ kind = "other", text = ["x"] }]
[models."home/m".sources.docs]
url = "https://example.org/facts/which/stand/quite/far/below/the/root/of/the/site/model.html"
seen = 2026-11-20
how = "recorded"
backs = ["limits"]
[models."home/other"]
extends = "home/m"
limits.output = 8192
same_weights = true
"""


@pytest.fixture(autouse=True)
def overlay(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:9/v1", MODELS)


def test_every_flag_has_a_line_under_its_table(machine: Machine) -> None:
    done = machine.run("models", "show", "home/m", "--explain")
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    facts = machine.run("models", "show", "home/m", "--explain", "--json").json()
    at = lines.index("limits")
    context = lines[at + 1].split()
    assert context[:4] == ["context", "65536", "model", "a:7"]
    assert context[4].startswith("example.org/…")
    assert context[5:] == ["2026-11-20", "recorded"]
    assert f"a: {machine.config / 'providers.toml'}" in lines
    head = next(place for place, line in enumerate(lines) if line.startswith("FLAG"))
    tables = {fact["flag"].split(".")[0] for fact in facts if "." in fact["flag"]} - {"when"}
    modes = {f"when {fact['flag'].split('.')[1]}" for fact in facts if fact["flag"].startswith("when.")}
    told = [line for line in lines[head + 1 :] if line and line not in tables | modes]
    assert len(told) == len(facts)
    assert "when reasoning+tools" in lines


def test_every_line_fits_in_100_columns(machine: Machine) -> None:
    names = [row["name"] for row in machine.run("models", "list", "--json").json()]
    for name in ["home/m", *names[:: len(names) // 8]]:
        lines = machine.run("models", "show", name, "--explain").out.splitlines()
        assert max(len(line) for line in lines if not line.startswith("a: ")) <= 100


def test_long_values_are_shortened_and_whole_in_json(machine: Machine) -> None:
    done = machine.run("models", "show", "home/m", "--explain")
    assert "1 table" in done.out.split("errors", 1)[1].splitlines()[0] or "tables" in done.out
    facts = {f["flag"]: f for f in machine.run("models", "show", "home/m", "--explain", "--json").json()}
    assert facts["limits.context"]["source"].endswith("/of/the/site/model.html")
    assert facts["limits.context"] == {
        "flag": "limits.context",
        "value": 65536,
        "layer": "models.home/m",
        "where": f"{machine.config / 'providers.toml'}:7",
        "source": facts["limits.context"]["source"],
        "seen": "2026-11-20",
        "how": "recorded",
        "quote": None,
    }
    assert facts["errors"]["value"][0] == {"kind": "other", "text": ["x"]}
    deep = "when.reasoning+tools.body.set.a_rather_long_name.that_goes_deeper.than_most.switch"
    assert facts[deep]["value"] == "on"


def test_a_wider_terminal_shows_more(machine: Machine) -> None:
    machine.env["COLUMNS"] = "300"
    with terminal(machine, "models", "show", "home/m", "--explain") as (master, process):
        shown = read_terminal(master)
        assert process.wait() == 0
    assert "example.org/facts/which/stand/quite/far/below/the/root/of/the/site/model.html" in shown


def test_the_card_says_what_a_model_can_do(machine: Machine) -> None:
    lines = machine.run("models", "show", "home/m").out.splitlines()
    said = {line.split()[0]: line for line in lines[1:]}
    assert "images" in said["can"]
    assert "reasoning-off" in said["cannot"]
    assert "schema" in said["unknown"]


def test_the_card_says_when_a_model_is_shut_down(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:9/v1", f"status.shutdown = 2099-03-01\n{MODELS}")
    lines = machine.run("models", "show", "home/m").out.splitlines()
    assert [words for line in lines if (words := line.split())[:1] == ["shutdown"]] == [["shutdown", "2099-03-01"]]


def test_the_card_has_both_prices_of_a_cache(machine: Machine) -> None:
    price = 'price = { currency = "CNY", input = 2, cached = 0.4, cached_by_mark = 0.2 }'
    machine.overlay("http://127.0.0.1:9/v1", f"{price}\n{MODELS}")
    out = machine.run("models", "show", "home/m").out
    assert "2 in, 0.4 cached, 0.2 cached where marked CNY per million tokens" in out


# ── diff ─────────────────────────────────────────────────────────────────────
def test_diff_is_a_table_of_what_differs(machine: Machine) -> None:
    done = machine.run("models", "diff", "home/m", "home/other")
    assert (done.status, done.err) == (0, "home/m and home/other differ in 1 flag\n")
    legend, head, line = done.out.splitlines()
    assert legend == f"a: {machine.config / 'providers.toml'}"
    assert head.split() == ["FLAG", "home/m", "SET", "BY", "home/other", "SET", "BY"]
    assert line.split() == ["limits.output", "4096", "model", "a:7", "8192", "model", "a:19"]


def test_diff_as_json_keeps_everything(machine: Machine) -> None:
    (found,) = machine.run("models", "diff", "home/m", "home/other", "--json").json()
    assert (found["flag"], found["a"]["value"], found["b"]["value"]) == ("limits.output", 4096, 8192)
    assert found["a"]["how"] == "recorded"
    assert found["b"]["source"] is None
    assert found["b"]["where"].endswith("providers.toml:19")


def test_diff_of_what_only_one_has(machine: Machine) -> None:
    found = machine.run("models", "diff", "home/m", "home/no-one-knows", "--json").json()
    limits = next(one for one in found if one["flag"] == "limits.context")
    assert (limits["a"]["value"], limits["b"]) == (65536, None)
    assert "–" in machine.run("models", "diff", "home/m", "home/no-one-knows").out


def test_diff_of_the_same(machine: Machine) -> None:
    done = machine.run("models", "diff", "home/m", "home/m")
    assert (done.status, done.out, done.err) == (0, "", "home/m and home/m do not differ\n")
    assert machine.run("models", "diff", "home/m", "home/m", "--json").json() == []


def test_diff_of_two_built_in_models_fits(machine: Machine) -> None:
    one, *_, other = [row["name"] for row in machine.run("models", "list", "--json").json()]
    done = machine.run("models", "diff", one, other)
    assert max(map(len, done.out.splitlines())) <= 100
    assert machine.run("models", "diff", one, "no/thing").status == 2
    machine.run("models", "diff", one).fails(2, "B")


def test_what_a_model_takes_over_is_shown_as_its_parents(machine: Machine) -> None:
    lines = machine.run("models", "show", "home/other", "--explain").out.splitlines()
    context, output = lines[lines.index("limits") + 1 :][:2]
    assert (context.split()[0], output.split()[0]) == ("context", "output")
    assert " parent a:" in context
    assert " model a:" in output
    own = machine.run("models", "show", "home/m", "--explain").out
    assert " parent " not in own
