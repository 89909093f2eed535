"""`registry check`: flags without a source, old sources, and public files of limits and prices."""

from __future__ import annotations

import datetime
import json
import re
import tomllib
from pathlib import Path

import pytest

from .support import Machine

pytestmark = pytest.mark.usefixtures("small_builtin")

OLD = (datetime.date.today() - datetime.timedelta(days=1000)).isoformat()
FLAGS = f"""limits = {{ context = 1000, output = 100 }}
input = ["text"]
price = {{ currency = "USD", input = 1, output = 2 }}
[models."home/m".sources]
old = {{ url = "https://example.org/a/page/about/limits", seen = {OLD}, how = "docs", backs = ["limits"] }}
"""
PUBLISHED = {"home": {"id": "home", "models": {"m": {"limit": {"context": 2000}, "cost": {"input": 1, "output": 3}}}}}


@pytest.fixture(autouse=True)
def overlay(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:9/v1", FLAGS)


def test_flags_without_a_source_are_counted_and_are_no_faults(machine: Machine) -> None:
    done = machine.run("registry", "check")
    assert (done.status, done.out) == (0, "")
    assert re.fullmatch(r"no faults: \d+ providers, \d+ models; 6 flags without a source: --unbacked\n", done.err)
    assert machine.run("registry", "check", "--json").json() == []
    empty = machine.file("empty.toml", "")
    assert machine.run("registry", "check", empty).err.endswith(" models; every flag has a source\n")


def test_flags_without_a_source_are_listed(machine: Machine) -> None:
    file = machine.config / "providers.toml"
    done = machine.run("registry", "check", "--unbacked")
    assert (done.status, done.err) == (0, "flags without a source: 6\n")
    assert f'{file}:8: warning: models."home/m".input has no source' in done.out.splitlines()
    assert {"flag": 'models."home/m".input', "where": f"{file}:8"} in machine.run(
        "registry", "check", "--unbacked", "--json"
    ).json()


@pytest.mark.usefixtures("small_builtin")
def test_old_sources_are_listed(machine: Machine) -> None:
    done = machine.run("registry", "check", "--older", "999")
    assert (done.status, done.err) == (0, "sources older than 999 days: 1\n")
    day, age, kind = done.out.splitlines()[1].split()[:3]
    assert (day, kind) == (OLD, "docs")
    assert age in ("1000", "1001"), "a day may begin while the tests run"
    (row,) = machine.run("registry", "check", "--older", "999", "--json").json()
    assert (row["source"], row["backs"]) == ("https://example.org/a/page/about/limits", ["limits"])
    assert row["days"] in (1000, 1001)
    done = machine.run("registry", "check", "--older", "1001")
    assert (done.status, done.out, done.err) == (0, "", "sources older than 1001 days: 0\n")
    machine.run("registry", "check", "--older", "-1").fails(2, "--older")


def test_a_public_file_is_compared(machine: Machine) -> None:
    file = machine.file("api.json", json.dumps(PUBLISHED))
    done = machine.run("registry", "check", "--against", file)
    assert done.status == 0
    cause, head, context, gap, other_cause, _, price = done.out.splitlines()
    assert (cause, gap, other_cause) == ("The window differs (1)", "", "Their price is higher (1)")
    assert head.split() == ["MODEL", "FLAG", "OURS", "THEIRS", "OUR", "SOURCE", "SEEN"]
    assert context.split() == ["home/m", "limits.context", "1000", "2000", "example.org/a/page/about/limits", OLD]
    assert price.split()[:4] == ["home/m", "price.output", "2", "3"]
    assert price.split()[4].endswith("providers.toml:9"), "no source: the line instead"
    assert done.err.startswith("2 disagreements; 1 of ")
    rows = machine.run("registry", "check", "--against", file, "--json").json()
    assert [(row["flag"], row["ours"], row["theirs"]) for row in rows] == [
        ("limits.context", 1000, 2000),
        ("price.output", 2, 3),
    ]
    assert rows[0]["fact"]["seen"] == OLD


def test_the_other_public_file_is_told_by_its_shape(machine: Machine) -> None:
    entry = {"litellm_provider": "home", "max_output_tokens": 7, "output_cost_per_token": 2e-06, "mode": "chat"}
    file = machine.file("prices.json", json.dumps({"sample_spec": {"litellm_provider": "x"}, "home/m": entry}))
    done = machine.run("registry", "check", "--against", file)
    assert [line.split()[:4] for line in done.out.splitlines()[2:]] == [["home/m", "limits.output", "100", "7"]]


def test_what_is_no_such_file_is_refused(machine: Machine) -> None:
    machine.run("registry", "check", "--against", machine.file("x.json", "[]")).fails(2, "x.json", "models.dev")
    machine.run("registry", "check", "--against", "none.json").fails(2, "none.json", "cannot be read")
    machine.run("registry", "check", "--against", "a", "--older", "3").fails(2, "--against", "one of them")


def test_a_faulty_file_is_told_before_anything_is_listed(machine: Machine) -> None:
    bad = machine.file("bad.toml", '[providers.x]\ntool_choise = "auto"\n')
    for args in (["--older", "1"], ["--unbacked"], ["--against", "none.json"], []):
        done = machine.run("registry", "check", bad, *args)
        assert (done.status, done.err) == (2, "1 fault\n")
        assert done.out.startswith(f"{bad}:2: ")


def test_a_file_gets_its_form(machine: Machine) -> None:
    file = machine.file("own.toml", '[providers.home]\nkeys = []\ntitle="Home" # mine\n')
    done = machine.run("registry", "fmt", "--check", file)
    assert (done.status, done.err) == (2, "2 lines written otherwise\n")
    assert [line for line in done.out.splitlines() if line.startswith(f"{file}:")] == [
        f"{file}:{line}: is written otherwise by `cnllm registry fmt`" for line in (2, 3)
    ]
    assert '  write: title = "Home" # mine' in done.out.splitlines()
    done = machine.run("registry", "fmt", file)
    assert (done.status, done.out, done.err) == (0, "", f"{file}: written\n")
    assert Path(file).read_text() == '[providers.home]\ntitle = "Home" # mine\nkeys  = []\n'
    done = machine.run("registry", "fmt", "--check", file)
    assert (done.status, done.out, done.err) == (0, "", "0 lines written otherwise\n")


def test_a_file_that_is_no_registry_keeps_its_form(machine: Machine) -> None:
    for text in ('[project]\nversion = "1"\nname="x"\n', '[models."a/b"]\ntitle="x"\n[tool.x]\nkeys = []\n'):
        file = machine.file("pyproject.toml", text)
        line = next(at for at, one in enumerate(text.splitlines(), 1) if one in ("[project]", "[tool.x]"))
        for args in ([], ["--check"]):
            machine.run("registry", "fmt", *args, file).fails(2, f"{file}:{line}: this is no registry file")
        assert Path(file).read_text() == text


def test_a_file_with_a_mark_and_ends_of_another_system_gets_its_form(machine: Machine) -> None:
    file = machine.file("own.toml", "")
    Path(file).write_bytes(b'\xef\xbb\xbf[providers.home]\r\ntitle="Home"\r\n')
    machine.run("registry", "fmt", file)
    assert Path(file).read_bytes() == b'\xef\xbb\xbf[providers.home]\r\ntitle = "Home"\r\n'


def test_the_form_of_your_own_file(machine: Machine) -> None:
    file = machine.config / "providers.toml"
    before = file.read_text()
    done = machine.run("registry", "fmt")
    assert (done.status, done.err) == (0, f"{file}: written\n")
    assert tomllib.loads(file.read_text()) == tomllib.loads(before)
    machine.run("registry", "fmt", machine.file("bad.toml", "a = \n")).fails(2, "bad.toml", "1")
    machine.run("registry", "fmt", "none.toml").fails(2, "none.toml")
