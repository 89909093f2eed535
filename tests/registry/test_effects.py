"""A flag that would do nothing is refused, with its line and the reason; so is a path that names nothing."""

from __future__ import annotations

import pytest
from cases import each

from cnllm.registry.flags import Flags, about
from cnllm.registry.registry import Registry
from cnllm.registry_files.check import check

from .support import Files
from .test_flag_values import declared

pytestmark = pytest.mark.usefixtures("small_builtin")
HOME = "[providers.home]\ntitle = 'x'\nprotocol = '{wire}'\nbase_url = 'http://127.0.0.1:9'\nkeys = []\n"
OWN_FORM = {
    "reply.choices": "'output'",
    "messages.answer_field": "'answer'",
    "messages.empty": "'omit'",
    "tools.calls_field": "'acts'",
    "tools.call_paths": "{ id = 'ref' }",
    "tools.arguments": "'object'",
    "tools.result_role": "'function'",
    "tools.result_id": "'ref'",
    "tools.result_field": "'output'",
    "reasoning.part_form": "'text'",
    "reasoning.replay_field": "'a.b'",
    "stream.terminator": "'done'",
    "simulator.stream_usage": "'last'",
}
PATHS = {
    "reasoning.fields": "['{path}']",
    "reasoning.replay_field": "'{path}'",
    "reasoning.effort.at": "'{path}'",
    "reasoning.budget.at": "'{path}'",
    "reasoning.on.drop": "['{path}']",
    "reasoning.off.drop": "['{path}']",
    "reasoning.replay_patch.drop": "['{path}']",
    "reasoning.if_missing.drop": "['{path}']",
    "messages.answer_field": "'{path}'",
    "messages.fields": "['{path}']",
    "tools.calls_field": "'{path}'",
    "tools.call_paths.id": "'{path}'",
    "tools.call_paths.name": "'{path}'",
    "tools.call_paths.arguments": "'{path}'",
    "tools.result_id": "'{path}'",
    "tools.result_field": "'{path}'",
    "body.drop": "['{path}']",
    "body.rename.tools": "'{path}'",
    "params.seed": "'{path}'",
    "params.top_p.as": "'{path}'",
    "reply.choices": "'{path}'",
    "reply.message": "'{path}'",
    "reply.delta": "'{path}'",
    "reply.finish": "'{path}'",
    "usage.at": "['{path}']",
    "usage.input": "['{path}']",
    "usage.reasoning": "['{path}']",
    "error.at": "['{path}']",
    "error.message": "['{path}']",
    "error.code": "['{path}']",
    "batch.row.id": "'{path}'",
    "batch.submit.mark": "'{path}'",
    "batch.job.state": "'{path}'",
    "batch.job.finished": "['{path}']",
    "batch.list.items": "'{path}'",
    "batch.result.body": "['{path}']",
    "citations.at": "['{path}']",
    "citations.url": "['{path}']",
    "citations.title": "['{path}']",
    "web_search.count": "'{path}'",
    "web_search.domains": "'{path}'",
    "web_search.uses": "['{path}']",
    "upstream.at": "'{path}'",
}
READ = ("reply.", "usage.", "error.", "batch.job.", "batch.list.", "batch.result.", "web_search.uses", "citations.")


def lines(text: str, files: Files) -> dict[int | None, str]:
    """The faults of a file by their lines."""
    return {fault.line: fault.message for fault in check([str(files.write(text))]) if fault.severity == "error"}


def table(flags: dict[str, str], prefix: str = "") -> str:
    return "".join(f"{prefix}{flag} = {value}\n" for flag, value in flags.items())


@each("wire", ["anthropic-messages", "gemini", "openai-responses"])
@each("place", ["", "when.tools.", "on"])
def test_a_flag_that_the_wire_does_not_read_is_refused_by_name_and_line(files: Files, wire: str, place: str) -> None:
    head = HOME.format(wire="openai-chat" if place == "on" else wire)
    head += f"[providers.home.on.{wire}]\n" if place == "on" else ""
    found = lines(head + table(OWN_FORM, place.removeprefix("on")), files)
    for line, flag in enumerate(OWN_FORM, head.count("\n") + 1):
        names = (flag, flag.partition(".")[0])
        assert any(f".{name} has no effect on {wire}: " in found.get(line, "") for name in names), flag


def test_the_chat_wire_reads_all_of_them(files: Files) -> None:
    assert lines(HOME.format(wire="openai-chat") + table(OWN_FORM) + "reasoning.part = 'x'\n", files) == {}


@each(
    "flags, said",
    [
        ("reasoning.shape = 'tags'\nreasoning.tags = []", "reasoning.tags is not set"),
        ("reasoning.replay_as = 'content-parts'", "reasoning.part is not set"),
        ("reasoning.part_form = 'text'", "reasoning.part is not set"),
    ],
)
def test_a_flag_that_needs_another_one_is_refused_without_it(files: Files, flags: str, said: str) -> None:
    found = lines(HOME.format(wire="openai-chat") + flags, files)
    assert list(found) == [6]
    assert said in found[6]


@each("path, said", [("a..b", "empty"), ("$.a", "dots between"), ("a[0]", "dots between"), ("a. b", "space")])
def test_a_path_that_names_nothing_is_refused_in_every_flag(files: Files, path: str, said: str) -> None:
    flags = {flag: value.format(path=path) for flag, value in PATHS.items()}
    found = lines(HOME.format(wire="openai-chat") + table(flags), files)
    assert [line for line, _ in enumerate(flags, 6) if said not in found.get(line, "")] == []


@each("path", ["a.0.b", "."])
def test_a_number_and_the_object_itself_are_paths_where_values_are_only_read(files: Files, path: str) -> None:
    flags = {flag: value.format(path=path) for flag, value in PATHS.items()}
    found = lines(HOME.format(wire="openai-chat") + table(flags), files)
    assert set(found) == {line for line, flag in enumerate(flags, 6) if not flag.startswith(READ)}


def test_each_flag_that_holds_a_path_is_tried() -> None:
    found = {name for name, kind in declared(Flags) if about(kind).get("path")}
    tried = {name.removesuffix(".seed").removesuffix(".tools").replace(".top_p.", ".") for name in PATHS}
    assert {name for name in found if not name.startswith(("batch.", "usage.", "price."))} <= tried


def test_what_a_wire_does_not_read_are_flags() -> None:
    names = {name for name, _ in declared(Flags)}
    layers = Registry.load()._layers
    found = {wire: set(layers.section("protocols", wire, "unread")) for wire in layers.names("protocols")}
    assert all(flags <= names for flags in found.values())
    assert len([wire for wire, flags in found.items() if flags]) == 3
