"""Inputs of every format, and what is wrong with them."""

from __future__ import annotations

import gzip
import io
import json
import multiprocessing
import os
import random
import sys
import threading
from decimal import Decimal
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
from cli.support import Machine
from examples import SHARE

import cnllm
from cnllm.batch.identity import AnswerCache
from cnllm.batch.readers import open_reader
from cnllm.batch.rows import PromptTemplate, RowFault
from cnllm.errors import CnllmError

from .stub import Answer, Stub, error, reply, stub
from .support import KEY, PRICE, lines, prompts, registry, rows, run, texts

TEXTS = ["你好,世界", "naïve “quotes”", 'a "b"\nc', "最後"]


def contents(source: Any, template: str | None = None, **more: Any) -> list[tuple[int, Any, Any]]:
    reader = open_reader(source, None if template is None else PromptTemplate(template), **more)
    return [(row.number, reader.content(row).id, reader.content(row).messages) for row in reader.rows()]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gb18030", "utf-16"])
@pytest.mark.parametrize("packed", [False, True])
def test_csv_in_every_encoding(tmp_path: Path, encoding: str, packed: bool) -> None:
    text = io.StringIO()
    import csv

    csv.writer(text).writerows([["id", "text"], *([f"r{n}", value] for n, value in enumerate(TEXTS))])
    data = text.getvalue().encode(encoding)
    path = tmp_path / ("in.csv.gz" if packed else "in.csv")
    path.write_bytes(gzip.compress(data) if packed else data)
    assert contents(path, "译: {text}") == [
        (2, "r0", f"译: {TEXTS[0]}"),
        (3, "r1", f"译: {TEXTS[1]}"),
        (5, "r2", f"译: {TEXTS[2]}"),
        (6, "r3", f"译: {TEXTS[3]}"),
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "gb18030", "utf-16"])
def test_each_line_of_a_text_that_is_not_empty_is_a_prompt(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes("一\n\n二 \r\nthree".encode(encoding))
    assert contents(path) == [(1, None, "一"), (3, None, "二 "), (4, None, "three")]
    assert contents(path, "{text}!")[0] == (1, None, "一!")


def test_a_table_separated_by_tabs_or_semicolons(tmp_path: Path) -> None:
    for name, separator in (("in.tsv", "\t"), ("in.csv", ";")):
        (tmp_path / name).write_text(f"id{separator}prompt\n1{separator}a, b\n")
        assert contents(tmp_path / name) == [(2, "1", "a, b")]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_header_may_hold_line_breaks_and_separators(tmp_path: Path, mark: str, end: str) -> None:
    for name, separator in (("in.csv", ","), ("in.csv", ";"), ("in.tsv", "\t")):
        header = [f'"id{end}of ""it"", ; \t"', '"text"', f'"x{end}{end}y"']
        rows = [separator.join(fields) for fields in (header, ["1", '"a, b"', "c"], ["2", f'"d{end}e"', "f"])]
        (tmp_path / name).write_bytes((mark + end.join(rows) + end).encode())
        assert [row[2] for row in contents(tmp_path / name, "{text}")] == ["a, b", f"d{end}e"]
        with pytest.raises(CnllmError) as caught:
            open_reader(tmp_path / name, PromptTemplate("{missing}"))
        assert caught.value.hint == f'its columns: id{end}of "it", ;, text, x{end}{end}y'
    (tmp_path / "in.csv").write_text('"text,id\n1,2\n')  # the quote never ends
    with pytest.raises(CnllmError, match=r"in\.csv: the row of line 1 has a quote that is never closed"):
        contents(tmp_path / "in.csv", "{text}")


@pytest.mark.parametrize("separator", [",", "\t"])
@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (['1;"open', "2;b"], "the row of line 2 has a quote that is never closed"),
        (["0;a", '1;"open', *(f"{n};b" for n in range(2, 5000))], "the row of line 3 has a quote that is never closed"),
        (['1;"two', 'lines"', '2;"open', "3;b"], "the row of line 4 has a quote that is never closed"),
        (['1;"open', "2;b", '3;"c"'], "the row of line 2 has a quote that is not closed before line 4"),
    ],
)
def test_a_quote_that_swallows_rows_stops_the_table(
    tmp_path: Path, separator: str, rows: list[str], words: str
) -> None:
    path = tmp_path / ("in.tsv" if separator == "\t" else "in.csv")
    path.write_text("\n".join(["id;text", *rows, ""]).replace(";", separator))
    with pytest.raises(CnllmError, match=f"{path.name}: {words}") as caught:
        contents(path, "{text}")
    assert "twice" in str(caught.value.hint)


def test_a_table_keeps_quoted_lines_and_names_a_row_with_a_stray_quote(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text('id,text\n1,"a ""b"",\n\nc"\n2,"say "hi" now"\n3,5" pipe\n')
    reader = open_reader(path, PromptTemplate("{text}"))
    first, second, third = reader.rows()
    assert (first.number, reader.content(first).messages) == (4, 'a "b",\n\nc')
    with pytest.raises(RowFault, match="not valid CSV"):
        reader.content(second)
    assert (third.number, reader.content(third).messages) == (6, '5" pipe')


def test_an_open_quote_in_a_pipe_fails_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'id,text\n1,a\n2,"open\n3,b\n')))
    reader = open_reader("-", PromptTemplate("{text}"), format="csv")
    first, second = reader.rows()
    assert reader.content(first).messages == "a"
    with pytest.raises(RowFault, match="the row of line 3 has a quote that is never closed"):
        reader.content(second)


def test_rows_of_a_parquet_file_fill_the_template(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "in.parquet"
    parquet.write_table(arrow.table({"id": [7, 8], "text": TEXTS[:2], "other": [1.5, None]}), path)
    assert contents(path, "{text}") == [(1, 7, TEXTS[0]), (2, 8, TEXTS[1])]
    assert open_reader(path, PromptTemplate("{text}")).count() == 2
    with pytest.raises(CnllmError, match="has no column texte"):
        contents(path, "{texte}")


def test_stdin_is_read_once_and_again_where_that_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pipe(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))

    data = "".join(json.dumps(value) + "\n" for value in prompts(20)).encode()
    with stub() as server:
        pipe(data)
        assert run(server, tmp_path, "-").done == 20
        pipe(gzip.compress(data + b'{"id": "new", "prompt": "new"}\n'))
        report = run(server, tmp_path, "-")
        assert (report.done, report.asked) == (21, 1)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
@pytest.mark.parametrize("packed", [False, True])
def test_a_named_pipe_is_read_as_stdin_is(tmp_path: Path, packed: bool) -> None:
    """What `<(zcat requests.jsonl.gz)` of a shell names is one."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def write(data: bytes) -> None:
        threading.Thread(target=pipe.write_bytes, args=(gzip.compress(data) if packed else data,), daemon=True).start()

    data = "".join(json.dumps(value) + "\n" for value in prompts(20)).encode()
    with stub() as server:
        write(data)
        assert run(server, tmp_path, pipe).done == 20
        write(data + b'{"id": "new", "prompt": "new"}\n')
        report = run(server, tmp_path, pipe)
        assert (report.done, report.asked) == (21, 1)
    write(b"id,text\n" + b"".join(b'%d,"a ""quoted"" text"\n' % n for n in range(20)))
    table = open_reader(pipe, PromptTemplate("{text}"), format="csv")
    assert [row.number for row in table.rows()] == list(range(2, 22))
    table.close()
    write(b"PAR1")
    with pytest.raises(CnllmError, match="from a pipe"):
        open_reader(pipe)


def test_lines_of_the_batch_format(tmp_path: Path) -> None:
    values = [
        {
            "custom_id": f"c{n}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {
                "model": "another",
                "messages": [{"role": "system", "content": "short"}, {"role": "user", "content": f"p{n}"}],
                "max_tokens": 9,
            },
        }
        for n in range(3)
    ]
    values.append({"custom_id": "bad", "method": "POST", "url": "/v1/embeddings", "body": {}})
    with stub() as server:
        report = run(server, tmp_path, rows(tmp_path, values))
        assert (report.done, report.failed) == (3, 1)
        assert {body["model"] for body in server.bodies} == {"m"}
        assert {body["max_tokens"] for body in server.bodies} == {9}
        assert {body["messages"][0]["content"] for body in server.bodies} == {"short"}
    assert {line["id"] for line in lines(tmp_path)} == {"c0", "c1", "c2", "bad"}
    assert "/v1/embeddings" in report.examples["BadRow"]


def test_what_a_body_loses_is_in_the_notes_of_its_reply(tmp_path: Path) -> None:
    body = {"messages": [{"role": "user", "content": "p"}], "max_tokens": 9, "max_completion_tokens": 8}
    with stub() as server:
        report = run(server, tmp_path, rows(tmp_path, [{"custom_id": "c", "body": body}]))
        assert server.bodies[0]["max_tokens"] == 8
    [line] = lines(tmp_path)
    assert "left out: max_completion_tokens counts" in [note["did"] for note in line["reply"]["notes"]]
    assert report.notes["key-foreign"] == 1


def test_a_row_that_is_answered_from_the_cache_has_its_own_notes(tmp_path: Path) -> None:
    flags = "params.temperature = { max = 1 }"
    values = [{"id": n, "prompt": "p", "temperature": n} for n in (1, 5)]
    with stub() as server:
        for n in (1, 2):  # the second run has one more row
            run(server, tmp_path, rows(tmp_path, values[:n]), flags=flags, cache=tmp_path / "cache.sqlite")
        assert len(server.log) == 1
    found = {line["id"]: [note["code"] for note in line["reply"]["notes"]] for line in lines(tmp_path)}
    assert found == {1: [], 5: ["param-clamped"]}


def test_values_of_python(tmp_path: Path) -> None:
    import cnllm

    requests: list[Any] = [
        "p0",
        [{"role": "user", "content": "p1"}],
        {"id": "x", "prompt": "p2", "temperature": 0.5},
        [cnllm.Message.user("p3")],
    ]
    with stub() as server:
        assert run(server, tmp_path, (value for value in requests)).done == 4
        assert run(server, tmp_path, (value for value in requests)).asked == 0
        assert sorted(server.log) == ["p0", "p1", "p2", "p3"]
        assert [body.get("temperature") for body in server.bodies if "p2" in str(body)] == [0.5]
    assert texts(tmp_path) == {1: "re: p0", 2: "re: p1", "x": "re: p2", 4: "re: p3"}


def test_an_id_is_a_text_or_a_whole_number(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"id": [1], "prompt": "p1"}\n{"id": "", "prompt": "p2"}\n{"id": 7, "prompt": "p3"}\n')
    with stub() as server:
        report = run(server, tmp_path, source)
        assert (report.done, report.failed, server.log) == (1, 2, ["p3"])
    errors = {line["line"]: line["error"]["message"] for line in lines(tmp_path) if line["error"]}
    assert "line 1: id is a list; a text or a whole number is expected" in errors[1]
    assert "line 2: id is empty" in errors[2]


def test_a_broken_line_is_named_and_the_run_goes_on(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(
        '{"id": "a", "prompt": "p1"}\n{"id": "b", "prompt"\n[1]\n{"id": "c"}\n{"id": "a", "prompt": "p5"}\n'
        '{"id": "d", "prompt": "p6", "temprature": 1}\n{"id": "e", "prompt": "p7"}\nnull\n{"custom_id": "f"}\n'
    )
    with stub() as server:
        report = run(server, tmp_path, source)
        assert (report.done, report.failed) == (2, 7)
        assert sorted(server.log) == ["p1", "p7"]
        found = {line["id"] or line["line"]: line["error"] for line in lines(tmp_path)}
        for key, words in {
            2: "line 2: not valid JSON",
            3: "line 3: a JSON object is expected, this is a list",
            "c": "line 4: neither messages nor prompt",
            5: "line 5: the id 'a' is that of line 1",
            "d": "line 6: unknown option 'temprature'. Did you mean 'temperature'?",
            8: "line 8: a JSON object is expected, this is null",
            "f": "line 9: neither messages nor prompt",
        }.items():
            assert words in found[key]["message"]
            assert found[key]["type"] == "BadRow"
        assert found[8]["message"].endswith(" null")
        assert len(lines(tmp_path, "out.jsonl.errors.jsonl")) == 7
        again = run(server, tmp_path, source)
        assert (again.done, again.failed, again.asked) == (2, 7, 0)
        source.write_text(source.read_text().replace('"prompt"\n', '"prompt": "p2"}\n').replace("temprature", "top_p"))
        mended = run(server, tmp_path, source)
        assert (mended.done, mended.failed, mended.asked) == (4, 5, 2)
        assert sorted(server.log) == ["p1", "p2", "p6", "p7"]


def test_a_row_whose_own_options_name_what_is_not_there_is_named(tmp_path: Path) -> None:
    flags = '[providers.other]\ntitle = "Other"\nprotocol = "openai-chat"\nbase_url = "http://127.0.0.1:9"\n'
    flags += 'keys = ["NO_SUCH_TEST_KEY"]\n[models."other/m"]\n'
    odd = [{"id": n, "prompt": f"p{n}", "fallback": [model]} for n, model in ((1, "no-such-model"), (2, "other/m"))]
    with stub() as server:
        report = run(server, tmp_path, rows(tmp_path, [{"id": 0, "prompt": "p0"}, *odd, *prompts(2, 3)]), flags=flags)
        assert (report.done + report.failed, sorted(server.log)[0]) == (5, "p0")
    found = {line["id"]: line["error"] for line in lines(tmp_path)}
    assert found[1]["message"].startswith("line 2: no model is called no-such-model")
    assert [found[key] for key in (0, "r3", "r4")] == [None] * 3


@pytest.mark.parametrize("kind", ["jsonl", "csv", "txt"])
@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_gzip_file_is_named(tmp_path: Path, kind: str, damage: str) -> None:
    noise = random.Random(1)
    values = [{"prompt": f"p{n}", "n": noise.random()} for n in range(12_000)]
    heads = {"csv": "prompt,n\n", "txt": "", "jsonl": ""}
    text = heads[kind] + "".join(
        json.dumps(value) + "\n" if kind == "jsonl" else f"{value['prompt']},{value['n']}\n" for value in values
    )
    data = bytearray(gzip.compress(text.encode()))
    middle = len(data) * 9 // 10
    data[middle : len(data) if damage == "cut" else middle + 40] = b"" if damage == "cut" else b"\xff" * 40
    path = tmp_path / f"in.{kind}.gz"
    path.write_bytes(data)
    with pytest.raises(CnllmError, match=rf"in\.{kind}\.gz: ") as raised:
        for _ in open_reader(path).rows():
            pass
    assert raised.value.hint == "is it whole?"
    with pytest.raises(CnllmError, match=rf"in\.{kind}\.gz: "):
        open_reader(path).count()


@pytest.mark.parametrize("name", ["in.csv", "in.txt"])
def test_a_file_with_the_mark_of_an_encoding_that_it_does_not_have_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes("a\n一".encode("utf-16")[:-1])
    with pytest.raises(CnllmError, match=rf"{name}: it is not in utf-16-le") as raised:
        list(open_reader(tmp_path / name, PromptTemplate("{a}") if name == "in.csv" else None).rows())
    assert raised.value.hint == "--encoding E names another one"


def test_a_damaged_gzip_file_on_stdin_is_named(tmp_path: Path) -> None:
    data = gzip.compress("".join(json.dumps(row) + "\n" for row in prompts(3000)).encode())
    (tmp_path / "in.gz").write_bytes(data[:-200])
    command = ("batch", "-", "-m", "glm-4.7", "-o", str(tmp_path / "o"), "--simulate", "--no-plot")
    for _ in range(2):
        with (tmp_path / "in.gz").open("rb") as stdin:
            process = Machine(tmp_path).start(*command, stdin=stdin)
            _, err = process.communicate(timeout=60)
        assert (process.returncode, b"cnllm: stdin: " in err, b"bug" in err) == (2, True, False), err


def test_a_damaged_page_of_a_parquet_file_is_named(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow
    from pyarrow import parquet

    path = tmp_path / "in.parquet"
    table = pyarrow.table({"prompt": [f"prompt {n}" for n in range(5000)]})
    parquet.write_table(table, path, compression="none", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[2000:2064] = b"\xff" * 64
    path.write_bytes(data)
    with pytest.raises(CnllmError, match=r"in\.parquet: row 1 or one behind it: ") as raised:
        list(open_reader(path).rows())
    assert raised.value.hint == "is it whole?"


def test_strict_stops_at_the_first_broken_line(tmp_path: Path) -> None:
    source = rows(tmp_path, [*prompts(3), {"id": "x"}, *prompts(3000, 10)])
    with stub() as server:
        report = run(server, tmp_path, source, strict=True)
        assert report.stop_kind == "strict"
        assert "line 4" in str(report.stopped)
        assert len(server.log) < 3000
        assert report.done == len(server.log)


@pytest.mark.parametrize(
    ("name", "content", "words", "settings"),
    [
        ("in.csv", "id,texte\n1,a\n", "in.csv has no column text", {"prompt": "{text}"}),
        ("in.csv", "id,texte\n1,a\n", "neither a column prompt nor a column messages", {}),
        ("in.csv", "", "in.csv is empty", {}),
        ("in.csv", "a,a\n1,2\n", "two columns 'a'", {"prompt": "{a}"}),
        ("in.json", '[{"prompt": "a"}]', "one JSON array", {}),
        ("in.txt", "a\n", "has no column x", {"prompt": "{x}"}),
    ],
)
def test_what_no_row_can_mend_is_said_at_once(
    tmp_path: Path, name: str, content: str, words: str, settings: dict[str, Any]
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with stub() as server:
        with pytest.raises(CnllmError, match=words):
            run(server, tmp_path, path, **settings)
        assert server.log == []
    assert not (tmp_path / "out.jsonl").exists()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with stub() as server, pytest.raises(CnllmError, match=r"none\.jsonl: No such file"):
        run(server, tmp_path, tmp_path / "none.jsonl")


def test_an_option_that_no_row_can_have_is_said_at_once(tmp_path: Path) -> None:
    with stub() as server, pytest.raises(TypeError, match="unknown option 'temprature'"):
        run(server, tmp_path, prompts(2), temprature=1)
    assert not (tmp_path / "out.jsonl").exists()


def test_the_places_of_a_template() -> None:
    template = PromptTemplate('Answer {"a": {{x}}} for {name} of {the city}: {}')
    assert template.columns == ("name", "the city")
    assert template.fill({"name": "Li", "the city": 7}) == 'Answer {"a": {x}} for Li of 7: {}'
    with pytest.raises(RowFault, match="no column 'the city' for the prompt; the row has: name"):
        template.fill({"name": "x"})


def test_the_order_of_the_input(tmp_path: Path) -> None:
    with stub(latency=0.01) as server:
        source = rows(tmp_path, [{"id": f"r{n}", "prompt": f"p{n}"} for n in range(100)])
        run(server, tmp_path, source, order=True, concurrency=30)
        assert [line["id"] for line in lines(tmp_path)] == [f"r{n}" for n in range(100)]
        assert run(server, tmp_path, source, order=True).asked == 0


def test_rows_with_the_same_beginning_are_sent_together(tmp_path: Path) -> None:
    source = rows(tmp_path, [{"prompt": f"{'abc'[n % 3] * 50} {n}"} for n in range(60)])
    with stub() as server:
        run(server, tmp_path, source, group_by="prefix", concurrency=1)
        assert [prompt[0] for prompt in server.log] == sorted(prompt[0] for prompt in server.log)
        assert run(server, tmp_path, source, group_by="prefix").asked == 0


def test_half_a_character_is_a_beginning_as_any_other(tmp_path: Path) -> None:
    texts = [f"{'ab'[n % 2]}\ud83d {n}" for n in range(4)]
    messages = [{"messages": [{"role": "user", "content": text}]} for text in texts]
    with stub() as server:
        report = run(server, tmp_path, [{"prompt": text} for text in texts], group_by="prefix", concurrency=1)
        assert ([prompt[0] for prompt in server.log], report.done) == (["a", "a", "b", "b"], 4)
        (tmp_path / "other").mkdir()
        assert run(server, tmp_path / "other", messages, group_by="prefix", concurrency=1).done == 4
        assert [prompt[0] for prompt in server.log[4:]] == ["a", "a", "b", "b"]


def test_answers_are_shared_between_outputs(tmp_path: Path) -> None:
    """They cost nothing, also where the state of an output is lost."""
    import cnllm

    source = rows(tmp_path, prompts(5))
    reports = []
    with stub() as server:
        found = registry(server, tmp_path, PRICE)
        for number in (0, 1, 1):
            (tmp_path / "o1.jsonl.state").unlink(missing_ok=True)
            report = cnllm.batch.run(
                source,
                "home/m",
                out=tmp_path / f"o{number}.jsonl",
                cache=tmp_path / "cache.sqlite",
                registry=found,
                api_keys=("sk-0123456789abcdef",),
            )
            reports.append((report.done, report.asked, report.from_cache, report.cost))
        assert len(server.log) == 5
    cost = 5 * Decimal(10 * 2 + 5 * 8) / 1_000_000
    assert reports == [(5, 5, 0, cost), (5, 5, 5, 0), (5, 0, 0, 0)]
    assert [line["reply"]["text"] for line in lines(tmp_path, "o1.jsonl")] == [f"re: p{n}" for n in range(5)]
    assert all(line["from_cache"] for line in lines(tmp_path, "o1.jsonl"))


@pytest.mark.parametrize("way", ["fallback", "models"])
def test_no_answer_of_another_model_is_shared_as_that_of_the_first(tmp_path: Path, way: str) -> None:
    def rule(prompt: str, server: Stub) -> Answer | None:
        return (500, error("down"), {}) if server.bodies[-1]["model"] == "m" else None

    flags = '[models."home/other"]'
    more: dict[str, Any] = {"model": ["home/m", "home/other"]} if way == "models" else {"fallback": ["home/other"]}
    first, second = tmp_path / "first", tmp_path / "second"
    cache, source = tmp_path / "cache.sqlite", rows(tmp_path, prompts(3))
    first.mkdir()
    second.mkdir()
    with stub(rule=rule) as server:
        found = registry(server, tmp_path, flags)
        report = run(server, first, source, registry=found, cache=cache, attempts=9, **more)
        assert report.done == 3
        server.rule = None
        again = run(server, second, source, registry=found, cache=cache)
        assert (again.done, again.from_cache) == (3, 0)
        assert [body["model"] for body in server.bodies[-3:]] == ["m"] * 3


@pytest.mark.parametrize("method", ["tool", "json_schema"])
def test_an_answer_holds_for_its_own_schema_alone(tmp_path: Path, method: str) -> None:
    def schema(minimum: int) -> dict[str, Any]:
        return {"type": "object", "properties": {"age": {"type": "integer", "minimum": minimum}}, "required": ["age"]}

    cache, source = tmp_path / "cache.sqlite", rows(tmp_path, prompts(3))
    flags = f'schema = {{ methods = ["{method}"] }}\ntools = {{ schema_drop = ["minimum"] }}'
    with stub(rule=lambda prompt, server: (200, reply('{"age": 5}'), {})) as server:

        def ask(folder: Path, minimum: int) -> Any:
            folder.mkdir(exist_ok=True)
            return run(server, folder, source, flags=flags, cache=cache, schema=schema(minimum), corrections=0)

        assert ask(tmp_path / "a", 0).done == 3
        assert ask(tmp_path / "a", 0).asked == 0
        assert ask(tmp_path / "b", 0).from_cache == 3
        (tmp_path / "b" / "out.jsonl.state").unlink()
        assert ask(tmp_path / "b", 0).asked == 0
        with pytest.raises(CnllmError, match=r"3 finished rows .*What changed: the option schema: "):
            ask(tmp_path / "a", 18)
        report = ask(tmp_path / "c", 18)
        assert (report.done, report.from_cache, report.invalid) == (0, 0, 3)
        assert len(server.log) == 6


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="lists open files as Linux does")
def test_a_refused_run_leaves_no_file_open(tmp_path: Path) -> None:
    source, cache = rows(tmp_path, prompts(2)), tmp_path / "cache.sqlite"
    with stub() as server:
        described = registry(server, tmp_path)
        run(server, tmp_path, source, cache=cache, registry=described)
        for out in (tmp_path / "out.jsonl", tmp_path, source):
            with pytest.raises(CnllmError) as refused:  # it holds what the run had opened, unless that was closed
                cnllm.batch.run(source, "home/m", out=out, cache=cache, registry=described, api_keys=(KEY,), seed=5)
            paths = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
            assert refused.value.message
            assert [path for path in paths if path.startswith(str(tmp_path))] == []


def test_objects_of_a_row_that_say_the_same_are_the_same_row() -> None:
    class Said:
        def __init__(self, text: str) -> None:
            self.text = text

        def to_dict(self) -> dict[str, Any]:
            return {"role": "user", "content": self.text}

    def keys(*texts: str) -> list[bytes]:
        return [row.key for row in open_reader([{"id": 1, "messages": [Said(text)]} for text in texts]).rows()]

    assert keys("a", "b") == keys("a", "b")
    assert len({*keys("a", "b", "c")}) == 3


def test_a_row_that_is_no_request_keeps_the_id_that_can_be_read(tmp_path: Path) -> None:
    values: list[Any] = [
        {"id": "a", "prompt": "p1"},
        {"id": "no prompt"},
        {"id": 7, "prompt": "x", "messages": []},
        {"id": [1], "prompt": "x"},
        {"custom_id": "no list", "body": {"messages": "x"}},
        {"custom_id": "no path", "url": "/v1/embeddings", "body": {}},
        {"id": "stream", "prompt": "x", "stream": True},
    ]
    ids = {"a", "no prompt", 7, None, "no list", "no path", "stream"}
    source = rows(tmp_path, values)
    with stub() as server:
        for report in (run(server, tmp_path, source), run(server, tmp_path, source)):
            assert (report.done, report.failed) == (1, 6)
            assert {line["id"] for line in lines(tmp_path)} == ids
            assert {line["line"] for line in lines(tmp_path) if line["error"]} == {2, 3, 4, 5, 6, 7}
        values[1]["prompt"] = "p2"
        mended = run(server, tmp_path, rows(tmp_path, values))
        assert (mended.done, mended.failed, mended.asked) == (2, 5, 1)
        assert {line["id"] for line in lines(tmp_path)} == ids
        for state in tmp_path.glob("out.jsonl.state*"):
            state.unlink()
        again = run(server, tmp_path, rows(tmp_path, values))
        assert (again.done, again.failed, again.asked) == (2, 5, 0)
        assert sorted(server.log) == ["p1", "p2"]


def test_a_row_of_a_table_that_is_no_request_keeps_its_id(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("id,prompt\n1,a\n2,\n")
    with stub() as server:
        assert run(server, tmp_path, path).failed == 1
    assert [line["id"] for line in lines(tmp_path) if line["error"]] == ["2"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.sampled
def test_runs_that_begin_at_once_share_a_new_cache(tmp_path: Path) -> None:
    system, count = multiprocessing.get_context("fork"), 8

    def use(path: Path, number: int, begin: Barrier) -> None:
        begin.wait()
        cache = AnswerCache(path)
        cache.store([(b"%d" % number, b"{}")])
        cache.close()

    for turn in range(25 // min(SHARE, 5)):
        path, begin = tmp_path / f"{turn}.sqlite", system.Barrier(count)
        runs = [system.Process(target=use, args=(path, number, begin)) for number in range(count)]
        for process in runs:
            process.start()
        for process in runs:
            process.join()
        assert [process.exitcode for process in runs] == [0] * count
        cache = AnswerCache(path)
        assert all(cache.find(b"%d" % number) for number in range(count))
        cache.close()


def test_a_line_that_was_cut_inside_a_character_is_asked_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(rb'{"id": "C:\\ud83d", "prompt": "a \ud83d"}' + b"\n" + rb'{"id": "b", "prompt": "\ud83d\ude00"}')
    with stub() as server:
        report = run(server, tmp_path, str(path))
        assert (report.done, report.failed, report.notes["text-mended"]) == (2, 0, 1)
        assert set(server.log) == {"a \ufffd", "\U0001f600"}
    (first,) = (line for line in lines(tmp_path) if line["id"] != "b")
    assert first["id"] == "C:\\ud83d"
    assert [note["code"] for note in first["reply"]["notes"]] == ["text-mended"]
