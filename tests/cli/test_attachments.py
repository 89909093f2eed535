"""`-a` and `-f`: what is attached arrives, and what the model does not read is refused."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from .support import ANSWER, Machine, Server, chat

PNG = b"\x89PNG\r\n\x1a\nrest"
PDF = b"%PDF-1.7\n..."
WAV = b"RIFF\0\0\0\0WAVEfmt "
CALL = ("call", "--model", "home/m", "--plan")
ALL = 'input = ["text", "image", "audio", "video", "file"]\nmessages = { files = "all", file_url = "file_url" }'


def parts(machine: Machine, *args: str, **more: Any) -> Any:
    done = machine.run(*CALL, *args, **more)
    assert done.status == 0, done.err
    return done.json()["body"]["messages"][-1]["content"]


def overlay(machine: Machine, reads: str) -> None:
    machine.overlay("http://127.0.0.1:9/v1", f'input = {json.dumps(["text", *reads.split()])}\nmessages.files = "all"')


def test_kinds_by_content(machine: Machine) -> None:
    overlay(machine, "image audio video file")
    ftyp = b"\0\0\0\x18ftyp"
    for data, form, marks in (
        (PNG, "image_url", "data:image/png;base64,"),
        (b"\xff\xd8\xff\xe0jpeg", "image_url", "data:image/jpeg;base64,"),
        (b"GIF89a..", "image_url", "data:image/gif;base64,"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image_url", "data:image/webp;base64,"),
        (ftyp + b"heic", "image_url", "data:image/heic;base64,"),
        (ftyp + b"isom", "video_url", "data:video/mp4;base64,"),
        (b"\x1aE\xdf\xa3webm", "video_url", "data:video/webm;base64,"),
        (WAV, "input_audio", '"format": "wav"'),
        (b"ID3\x04mp3", "input_audio", '"format": "mp3"'),
        (b"\xff\xfb\x90\x00mp3", "input_audio", '"format": "mp3"'),
        (b"\xff\xf1\x50\x80aac", "input_audio", '"format": "aac"'),
        (b"OggS\0\2", "input_audio", '"format": "ogg"'),
        (b"fLaC\0\0", "input_audio", '"format": "flac"'),
        (ftyp + b"M4A ", "input_audio", '"format": "m4a"'),
        (PDF, "file", "data:application/pdf;base64,"),
        (b"\n\n" + PDF, "file", "data:application/pdf;base64,"),
    ):
        path = machine.file("misnamed.txt", data)
        for source, stdin in ((path, None), ("-", data)):
            text, medium = parts(machine, "-a", source, "What is it?", stdin=stdin)
            assert text == {"type": "text", "text": "What is it?"}
            assert medium["type"] == form, (data, medium)
            assert marks in json.dumps(medium), (data, medium)
            assert base64.b64encode(data).decode() in json.dumps(medium)


def test_text_is_sent_as_text(machine: Machine) -> None:
    overlay(machine, "image")
    note = machine.file("note.md", "\ufeff你好\n")
    assert parts(machine, "-a", note, "x") == '<file name="note.md">\n你好\n</file>\n\nx'
    assert parts(machine, "-a", note) == '<file name="note.md">\n你好\n</file>'
    for text in ("ID3 is a tag", "OggS", "fLaC!", "#!AMRAP", "RIFF raff", "BMW", "GIF"):  # as other files begin
        assert parts(machine, "-a", machine.file("t.txt", text)) == f'<file name="t.txt">\n{text}\n</file>'
    for encoding, mark in (("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")):  # as editors of Windows write it
        wide = machine.file("w.txt", mark + "你好 a\n".encode(encoding))
        for option in ("-a", "-f"):
            assert parts(machine, option, wide).endswith('w.txt">\n你好 a\n</file>')
    half = machine.file("h.txt", b"\xff\xfea\0b")
    machine.run(*CALL, "-a", half).fails(2, "nor text in UTF-8")
    order = parts(machine, "-a", machine.file("p.png", PNG), "-f", note, "x")
    assert [part["type"] for part in order] == ["text", "image_url"]
    assert order[0]["text"].endswith("\n\nx")


def test_a_broken_pdf_is_named_in_one_error(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:9/v1", 'input = ["text"]')
    broken = machine.file("r.pdf", "%PDF-1.7\n")
    done = machine.run(*CALL, "-a", broken, "-p", "pdf_text=true", "x")
    done.fails(2, "r.pdf is broken or locked: its text cannot be read")


def test_urls_are_passed_on(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:9/v1", ALL)
    for url, form in (
        ("https://example.org/a.PNG?x=1.txt", "image_url"),
        ("http://example.org/b.mp4", "video_url"),
        ("https://example.org/c.pdf", "file_url"),
    ):
        _, medium = parts(machine, "-a", url, "x")
        assert medium["type"] == form
        assert parts(machine, "-a", url.replace("http", "HTTP"), "x")[1] == medium
        assert url in json.dumps(medium)
    for url in ("https://example.org", "https://example.org/photo", "https://example.org/a.png/", "https://a.jpg"):
        assert parts(machine, "-a", url, "x")[1] == {"type": "image_url", "image_url": {"url": url}}


def test_files_and_patterns(machine: Machine) -> None:
    overlay(machine, "")
    folder = machine.home / "notes"
    (folder / "deep").mkdir(parents=True)
    for name in ("b.md", "a.md", "deep/c.md", "d.txt", ".hidden.md", "[x].md"):
        (folder / name).write_text(name)

    def named(*args: str) -> list[str]:
        text = parts(machine, *args, "x", cwd=folder)
        assert text.endswith("\n\nx")
        return [line.split('"')[1] for line in text.splitlines() if line.startswith("<file")]

    assert named("-f", "a.md", "-f", "d.txt", "-f", "a.md") == ["a.md", "d.txt"]
    assert named("-f", "*.md") == ["[x].md", "a.md", "b.md"]
    assert named("-f", "**/*.md") == ["[x].md", "a.md", "b.md", "deep/c.md"]
    assert named("-f", "[x].md") == ["[x].md"]  # a file of that name wins over the pattern
    assert named("-f", "[ab].md") == ["a.md", "b.md"]
    for args, words in (
        (("-f", "none.md", "x"), ["-f none.md", "No such file"]),
        (("-f", "*.zip", "x"), ["-f *.zip", "no file has such a name"]),
        (("-f", "deep", "x"), ["-f deep", "a folder", "deep/**/*.md"]),
        (("-f", "https://example.org/x", "x"), ["-f", "this machine"]),
        (("-f", "a.md", "b.md"), ["b.md is a file", "quote a pattern"]),
        (("-f", "a.md", "b.md", "x"), ["extra argument", "quote a pattern"]),
        (("-a", "none.png", "x"), ["-a none.png", "No such file"]),
        (("-a", "deep", "x"), ["-a deep", "directory"]),
        (("-a", "-", "-"), ["stdin is named twice"]),
        (("-a", "-", "-a", "-", "x"), ["stdin is named twice"]),
        (("-a", "-", "x"), ["-a -", "empty"]),
        (("-a", "", "x"), ["-a names nothing"]),
        (("-f", "", "x"), ["-f names no file"]),
        (("-f", "-", "x"), ["-f -", "stdin", "without it"]),
        (("-f", "HTTP://example.org//x", "x"), ["-f HTTP://example.org//x", "this machine"]),
        (("-a", "ftp://example.org/a.png", "x"), ["ftp://example.org/a.png", "http and https"]),
        (("-a", "file:///etc/a.png", "x"), ["file:///etc/a.png", "by its path"]),
    ):
        machine.run(*CALL, *args, cwd=folder).fails(2, *words)
    (folder / "bin").write_bytes(b"\0\1\2")
    (folder / "gbk.txt").write_bytes("你好".encode("gbk"))
    machine.run(*CALL, "-f", "bin", "x", cwd=folder).fails(2, "-f bin", "not text in UTF-8", "-a bin")
    (folder / "chart").write_bytes(b"\x89PNG\r\n\x1a\n")
    machine.run(*CALL, "-f", "gbk.txt", "x", cwd=folder).fails(2, "iconv -f GB18030 -t UTF-8 gbk.txt | cnllm")
    for name in ("bin", "chart"):
        data = (folder / name).read_bytes() + b"\xff"
        for done in (
            machine.run(*CALL, "-f", name, "x", cwd=folder),
            machine.run(*CALL, "x", stdin=data, cwd=folder),
        ):
            assert "iconv" not in done.err
    machine.run(*CALL, "-f", "chart", "x", cwd=folder).fails(2, "attach it: -a chart")
    machine.run(*CALL, "x", stdin=(folder / "chart").read_bytes(), cwd=folder).fails(2, "attach it: -a -")
    (folder / "ascii.pdf").write_bytes(b"%PDF-1.7\n1 0 obj\n")
    machine.run(*CALL, "-f", "ascii.pdf", "x", cwd=folder).fails(2, "-f ascii.pdf", "a PDF", "-a ascii.pdf")
    machine.run(*CALL, "-a", "bin", "x", cwd=folder).fails(2, "-a bin", "neither a picture")


def test_piped_text_and_files_go_together(machine: Machine) -> None:
    overlay(machine, "image")
    note = machine.file("n.md", "note")
    assert parts(machine, "-f", note, "Q", stdin="piped") == '<file name="n.md">\nnote\n</file>\n\nQ\n\npiped'
    assert parts(machine, "-f", note, "-", stdin="piped").endswith("\n\npiped")


@pytest.mark.usefixtures("small_builtin")
def test_a_medium_that_is_not_read_is_an_error(machine: Machine) -> None:
    overlay(machine, "")
    sources = {
        "images": machine.file("p", PNG),
        "PDFs": machine.file("d", PDF),
        "audio": machine.file("s", WAV),
        "video": machine.file("v", b"\x1aE\xdf\xa3"),
    }
    with Server(ANSWER) as peer:
        machine.overlay(peer.url, 'input = ["text"]')
        file = machine.config / "providers.toml"
        with file.open("a") as stream:
            for name, reads in (("eye", "image"), ("ear", "audio")):
                stream.write(f'[models."home/{name}"]\ninput = ["text", "{reads}"]\n')
            stream.write('[models."home/gone"]\ninput = ["text", "image"]\nstatus.is = "retired"\n')
        for noun, path in sources.items():
            done = machine.run("call", "-m", "home/m", "-a", path, "x")
            done.fails(2, f"home/m does not read {noun}", "these do:" if noun != "PDFs" else "")
            assert "home/gone" not in done.err
        assert "these do: home/eye, " in machine.run("call", "-m", "home/m", "-a", sources["images"], "x").err
        assert "these do: home/ear\n" in machine.run("call", "-m", "home/m", "-a", sources["audio"], "x").err
        assert peer.received == []
        machine.overlay(peer.url)
        machine.run("call", "-m", "home/m", "-a", sources["PDFs"], "x").fails(2, "PDFs (application/pdf)", "unknown")
        machine.overlay(peer.url, 'input = ["text"]')
        done = machine.run("call", "-m", "home/m", "-a", sources["images"], "-p", "on_unsupported=adjust", "x")
        assert (done.status, len(peer.received)) == (0, 1)
        assert "left out" in done.err


def test_a_default_of_the_users_file_decides_what_becomes_of_a_medium_that_is_not_read(machine: Machine) -> None:
    for command, stdin in ((("call", "-m", "home/m", "x"), None), (("chat", "-m", "home/m"), "x\n")):
        with Server(ANSWER, ANSWER) as peer:
            machine.overlay(peer.url, 'input = ["text"]\ncall = { on_unsupported = "adjust" }')
            picture = machine.file("p", PNG)
            done = machine.run(*command, "-a", picture, stdin=stdin)
            assert (done.status, len(peer.received)) == (0, 1), done.err
            machine.run(*command, "-a", picture, "-p", "on_unsupported=error", stdin=stdin).fails(2)


def test_an_older_picture_does_not_stop_a_conversation(machine: Machine) -> None:
    with Server(ANSWER) as peer:
        machine.overlay(peer.url, 'input = ["text", "image"]')
        with (machine.config / "providers.toml").open("a") as stream:
            stream.write('[models."home/blind"]\ninput = ["text"]\n')
        machine.run("call", "-m", "home/m", "-a", machine.file("p", PNG), "x")
        done = machine.run("call", "-c", "-m", "home/blind", "and now?")
        assert done.status == 0, done.err
        assert "left out" in done.err


def test_in_a_chat_they_go_with_the_first_question(machine: Machine) -> None:
    with Server(ANSWER) as peer:
        machine.overlay(peer.url, 'input = ["text", "image"]')
        note, picture = machine.file("n.md", "note"), machine.file("p", PNG)
        done = chat(machine, "one", "two", args=("chat", "-m", "home/m", "-a", picture, "-f", note))
        assert done.status == 0, done.err
    first, second = (request.json()["messages"] for request in peer.received)
    assert [part["type"] for part in first[0]["content"]] == ["text", "image_url"]
    assert second[-1]["content"] == "two"
    chat(machine, "one", args=("chat", "-m", "home/m", "-a", "-")).fails(2, "-a -")
    chat(machine, "x", args=("chat", "-m", "home/m", "-a", str(Path(note).parent))).fails(2, "directory")
