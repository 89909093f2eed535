"""What becomes of a parameter that an endpoint acts on, refuses, ignores, or of which nobody knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import pytest
from builtin import written

import cnllm
from cnllm import Registry, engine
from cnllm.jsonpath import get
from cnllm.protocols import PROTOCOLS
from cnllm.registry_files.check import check
from cnllm.simulator.check_request import check_request
from cnllm.simulator.codec import read_request

WIRES = PROTOCOLS
POLICIES: tuple[Literal["adjust", "error", "send"], ...] = ("adjust", "error", "send")
# how it is written → its state, and where it stands in the body
RULES = {
    "": ("unknown", "top_k"),
    "params.top_k = true": ("works", "top_k"),
    'params.top_k = "deep.top_k"': ("works", "deep.top_k"),
    "params.top_k = false": ("refused", "top_k"),
    'params.top_k = "ignored"': ("ignored", "top_k"),
    'params.top_k = { as = "deep.top_k", ignored = true }': ("ignored", "deep.top_k"),
    'params.top_k = { as = "deep.top_k", max = 1, ignored = true }': ("ignored", "deep.top_k"),
}


def registry(folder: Path) -> Registry:
    """One provider for each wire and rule, of the same model."""
    text = ""
    for wire in WIRES:
        for place, rule in enumerate(RULES):
            name = f"{wire}-{place}"
            text += f'[providers.{name}]\nprotocol = "{wire}"\nbase_url = "http://127.0.0.1:9"\nkeys = []\n'
            text += f'[models."{name}/m"]\nreasoning.mode = "never"\n{rule}\n'
            text += (
                f'[models."{name}/d"]\nextends = "{name}/m"\ncall.seed = 7\n{rule.replace(".top_k =", ".seed =", 1)}\n'
            )
            text += f'[models."{name}/w"]\nreasoning.mode = "toggle"\n{rule and "when.reasoning." + rule}\n'
    path = folder / "states.toml"
    path.write_text(text)
    assert check([str(path)]) is not None
    return Registry.load(str(path))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    return registry(tmp_path_factory.mktemp("states"))


def told(plan: cnllm.Plan) -> list[tuple[str, str, str]]:
    return [(note.code, note.flag, note.did) for note in plan.notes if note.flag == "params.top_k"]


LEFT_OUT = {
    "refused": [("param-dropped", "params.top_k", "left out: the endpoint does not take it")],
    "ignored": [("param-dropped", "params.top_k", "left out: the endpoint ignores it")],
}
SENT = {"ignored": [("param-ignored", "params.top_k", "sent as asked: the endpoint ignores it")]}


def test_each_state_under_each_policy_on_each_wire(home: Registry) -> None:
    for wire in WIRES:
        for place, (rule, (state, path)) in enumerate(RULES.items()):
            model = home.resolve(f"{wire}-{place}/m")
            for policy in POLICIES:
                case = (wire, rule, policy)
                stays = policy == "send" or state not in LEFT_OUT
                if policy == "error" and state in LEFT_OUT:
                    with pytest.raises(cnllm.CannotSend, match=r"params\.top_k") as caught:
                        engine.build_request(model, "hi", top_k=5, on_unsupported=policy)
                    assert caught.value.note.did == LEFT_OUT[state][0][2], case
                    assert caught.value.note.where, case
                    continue
                plan = engine.build_request(model, "hi", top_k=5, on_unsupported=policy)
                sent = json.loads(plan.content)
                assert get(sent, path) == (5 if stays else None), case
                assert stays or b"top_k" not in plan.content, case
                assert told(plan) == (SENT.get(state, []) if stays else LEFT_OUT[state]), case
                assert all(note.where for note in plan.notes), case


def test_a_state_may_depend_on_reasoning(home: Registry) -> None:
    for wire in WIRES:
        for place, (rule, (state, path)) in enumerate(RULES.items()):
            model = home.resolve(f"{wire}-{place}/w")
            on = engine.build_request(model, "hi", top_k=5, reasoning="on")
            off = engine.build_request(model, "hi", top_k=5, reasoning="off")
            assert get(off.body, "top_k") == 5, (wire, rule)
            assert get(on.body, path) == (None if state in LEFT_OUT else 5), (wire, rule)
            assert told(off) == []


def test_what_extra_body_holds_is_sent_and_noted(home: Registry) -> None:
    for place, (rule, (state, path)) in enumerate(RULES.items()):
        model = home.resolve(f"openai-chat-{place}/m")
        extra: dict[str, Any] = {"deep": {"top_k": 5}} if "." in path else {"top_k": 5}
        for policy in POLICIES:
            plan = engine.build_request(model, "hi", extra_body=extra, on_unsupported=policy)
            assert get(json.loads(plan.content), path) == 5
            noted = policy != "send" and state in LEFT_OUT
            assert [code for code, _, _ in told(plan)] == (["param-verbatim"] if noted else []), (rule, policy)


def test_a_default_of_the_model_is_adjusted_whatever_the_policy(home: Registry) -> None:
    for place, (rule, (state, path)) in enumerate(RULES.items()):
        model = home.resolve(f"openai-chat-{place}/d")
        for policy in POLICIES:
            plan = engine.build_request(model, "hi", on_unsupported=policy)
            found = get(plan.body, "seed" if path == "top_k" else path)
            assert found == (None if state in LEFT_OUT else 7), (rule, policy)


def test_a_strict_endpoint_refuses_what_is_refused_and_nothing_that_is_ignored(home: Registry) -> None:
    for wire in WIRES:
        for place, (rule, (state, _)) in enumerate(RULES.items()):
            model = home.resolve(f"{wire}-{place}/m")
            plan = engine.build_request(model, "hi", top_k=5, on_unsupported="send")
            for body in (plan.body, {**plan.body, "top_k": 5}):
                asked = read_request(model, body, unquote(urlsplit(plan.url).path))
                refused = check_request(model, dict(plan.headers), asked, strict=True)
                assert (refused is not None) is (state == "refused"), (wire, rule, refused)


def test_a_word_for_a_state_that_is_none_is_refused(tmp_path: Path) -> None:
    words = {"refused": "false", "ignore": "'ignored'", "works": "true", "unknown": "to leave it out"}
    for word, meant in words.items():
        path = tmp_path / f"{word}.toml"
        path.write_text(f'[providers.home]\nparams.top_p = "{word}"\n')
        (problem,) = check([str(path)])
        assert (problem.line, problem.message.endswith(f"Did you mean {meant}?")) == (2, True), problem


def test_the_file_says_of_each_refusal_whether_a_source_tells_it_from_being_ignored() -> None:
    """An ignored parameter needs a source that says so; what a client merely leaves out counts as refused."""
    states: list[Any] = []

    def walk(table: dict[str, Any]) -> None:
        for key, value in table.items():
            if key == "params":
                states.extend(value.values())
            elif isinstance(value, dict) and key != "sources":
                walk(value)

    walk(written())
    ignored = [rule for rule in states if rule == "ignored" or (isinstance(rule, dict) and rule.get("ignored"))]
    refused = [rule for rule in states if rule is False]
    assert len(ignored) >= 12
    assert len(refused) >= 60
