"""What the cells of a row become on the wire: text, files, images, conversations."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .support import serve_models, session  # isort: skip - first: skips

import daft
from batch.stub import Stub, stub
from daft.functions import file, prompt

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PDF = b"%PDF-1.4\n1 0 obj\n<< >>\nendobj\ntrailer\n<< >>\n%%EOF\n\xff\xfe"


@pytest.fixture
def server() -> Iterator[Stub]:
    with stub() as found:
        serve_models(found, 'input = ["text", "image", "file"]')
        yield found


def sent(server: Stub, columns: dict[str, list[Any]], **options: Any) -> Any:
    """Return the messages of the one request that a row of these columns makes."""
    frame = daft.from_pydict(columns)
    with session(model="home/m", **options):
        cells = [daft.col(name) for name in columns]
        frame.select(prompt(cells, provider="cnllm").alias("answer")).collect()
    (body,) = server.bodies
    return body["messages"]


def test_text_and_an_image_are_one_message(server: Stub) -> None:
    (message,) = sent(server, {"question": ["What is this?"], "picture": [PNG]})
    assert message["role"] == "user"
    text, image = message["content"]
    assert text == {"type": "text", "text": "What is this?"}
    assert image["image_url"]["url"] == "data:image/png;base64," + base64.b64encode(PNG).decode()


def test_a_pdf_is_a_file(server: Stub) -> None:
    (message,) = sent(server, {"question": ["Sum it up"], "document": [PDF]})
    assert base64.b64encode(PDF).decode() in str(message["content"][1])


def test_a_null_cell_is_left_out(server: Stub) -> None:
    (message,) = sent(server, {"question": ["Hi"], "picture": [None]})
    assert message["content"] == "Hi"


def test_a_file_column_is_read_on_the_worker(server: Stub, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("one\ntwo\n")
    frame = daft.from_pydict({"path": [str(path)]})
    with session(model="home/m"):
        frame.select(prompt(file(daft.col("path")), provider="cnllm").alias("answer")).collect()
    assert server.bodies[0]["messages"][0]["content"] == "<file_text_plain>one\ntwo\n</file_text_plain>"


def test_an_image_column_goes_as_png(server: Stub) -> None:
    pytest.importorskip("PIL")
    frame = daft.from_pydict({"picture": [PNG]}).select(daft.col("picture").decode_image())
    with session(model="home/m"):
        frame.select(prompt(daft.col("picture"), provider="cnllm").alias("answer")).collect()
    (part,) = server.bodies[0]["messages"][0]["content"]
    assert base64.b64decode(part["image_url"]["url"].partition(",")[2])[:8] == PNG[:8]


def test_a_conversation_goes_before_the_text(server: Stub) -> None:
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    assert sent(server, {"turns": [turns], "question": ["And now?"]}) == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "And now?"},
    ]


@pytest.mark.parametrize("cell", [b"\xff\xfe\x00\x01", ["no message"], 3.5])
def test_what_cannot_be_sent_is_an_error_of_its_row(server: Stub, cell: Any) -> None:
    with pytest.raises(ValueError, match=r"prompt|bytes"):
        sent(server, {"question": [cell]})
    assert server.bodies == []
