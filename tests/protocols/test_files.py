"""Files and other blocks, of the user and in results of tools: from the clients of each protocol to each wire."""

from __future__ import annotations

import base64
import itertools
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from note_rules import check_notes

from cnllm import CannotSend, Media, Message, Model, Registry, ToolResult, engine
from cnllm.protocols import PROTOCOLS

from .clients import CHAT, GEMINI, MESSAGES, PATHS, PNG, RESPONSES, tools

PAIRS = list(itertools.product(PROTOCOLS, PROTOCOLS))
PDF = base64.b64encode(b"%PDF-1.7\nxref").decode()
SOUND = base64.b64encode(b"RIFF\0\0\0\0WAVE").decode()
TEXTS = {
    "notes.md": ("text/markdown", "# Ä title\n\nline two"),
    "plain.txt": ("text/plain", "alpha\nbeta"),
    "table.csv": ("text/csv", "name,age\n张三,3"),
    "data.json": ("application/json", '{"deep": [1, 2]}'),
    "feed.xml": ("application/xml", "<a><b>c</b></a>"),
    "main.py": ("text/x-python", "def f():\n    return 1"),
    "main.zig": ("application/octet-stream", "const x = 1;"),
    "main.ts": ("video/mp2t", "let x: number = 1"),
    "atom": ("application/atom+xml", "<feed/>"),
}
IMAGE, AUDIO, DOCUMENT = ("image/png", PNG), ("audio/wav", SOUND), ("application/pdf", PDF)
BLIND = "\n".join(f'[models."openai-compatible/{name}"]\ninput = ["text"]' for name in ("blind", "claude-blind"))


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    path: Path = tmp_path_factory.mktemp("files") / "overlay.toml"
    path.write_text(BLIND, encoding="utf-8")
    return Registry.load(str(path))


def blind(registry: Registry, protocol: str) -> Model:
    """A model that reads text alone, over one protocol."""
    return registry.resolve("openai-compatible/blind", protocol=protocol, base_url="http://127.0.0.1:9/v1")


@cache
def readers() -> dict[str, Model]:
    """A model of each protocol that reads images and files."""
    registry = Registry.load()
    return {
        CHAT: registry.resolve("openai/gpt-5.5", protocol=CHAT),
        RESPONSES: registry.resolve("openai/gpt-5.5", protocol=RESPONSES),
        MESSAGES: registry.resolve("anthropic/claude-opus-5"),
        GEMINI: registry.resolve("google/gemini-3.8-flash", protocol=GEMINI),
    }


def part(client: str, mime: str, data: str, name: str | None) -> dict[str, Any]:
    """A file as the clients of a protocol send it."""
    url, major = f"data:{mime};base64,{data}", mime.partition("/")[0]
    match client:
        case "openai-chat" if major == "audio":
            return {"type": "input_audio", "input_audio": {"data": data, "format": mime.partition("/")[2]}}
        case "openai-chat" if major == "image":
            return {"type": "image_url", "image_url": {"url": url}}
        case "openai-chat":
            return {"type": "file", "file": {"file_data": url} | ({"filename": name} if name else {})}
        case "anthropic-messages" if major == "text":
            source = {"type": "text", "media_type": "text/plain", "data": base64.b64decode(data).decode()}
            return {"type": "document", "source": source} | ({"title": name} if name else {})
        case "anthropic-messages":
            source = {"type": "base64", "media_type": mime, "data": data}
            kind = "image" if major == "image" else "document"
            return {"type": kind, "source": source} | ({"title": name} if name and kind == "document" else {})
        case "gemini":
            return {"inlineData": {"mimeType": mime, "data": data} | ({"displayName": name} if name else {})}
    if major == "audio":
        return {"type": "input_audio", "input_audio": {"data": data, "format": mime.partition("/")[2]}}
    if major == "image":
        return {"type": "input_image", "image_url": url}
    return {"type": "input_file", "file_data": url} | ({"filename": name} if name else {})


def user_body(client: str, *parts: dict[str, Any], after: bool = False) -> dict[str, Any]:
    """A request with parts of the user; `after`: an answer and another question follow."""
    match client:
        case "openai-chat":
            turns: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "See."}, *parts]}]
            more = [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And now?"}]
            return {"messages": turns + more * after}
        case "anthropic-messages":
            turns = [{"role": "user", "content": [{"type": "text", "text": "See."}, *parts]}]
            more = [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And now?"}]
            return {"max_tokens": 9, "messages": turns + more * after}
        case "gemini":
            turns = [{"role": "user", "parts": [{"text": "See."}, *parts]}]
            answer = {"role": "model", "parts": [{"text": "Yes."}]}
            return {"contents": turns + [answer, {"role": "user", "parts": [{"text": "And now?"}]}] * after}
    turns = [{"role": "user", "content": [{"type": "input_text", "text": "See."}, *parts]}]
    more = [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And now?"}]
    return {"input": turns + more * after}


def result_body(client: str, *parts: dict[str, Any], text: str = "seen", error: bool = False) -> dict[str, Any]:
    """A request with parts in the result of a tool."""
    asked = user_body(client)
    match client:
        case "openai-chat":
            call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
            content = [{"type": "text", "text": text}, *parts] if parts else text
            asked["messages"] += [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": content},
            ]
        case "anthropic-messages":
            texts = [{"type": "text", "text": text}] if text else []
            result: dict[str, Any] = {"type": "tool_result", "tool_use_id": "c1", "content": [*texts, *parts]}
            asked["messages"] += [
                {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {}}]},
                {"role": "user", "content": [result | ({"is_error": True} if error else {})]},
            ]
        case "gemini":
            response = {"id": "c1", "name": "weather", "response": {"error" if error else "output": text}}
            asked["contents"] += [
                {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "weather", "args": {}}}]},
                {"role": "user", "parts": [{"functionResponse": response | ({"parts": [*parts]} if parts else {})}]},
            ]
        case _:
            texts = [{"type": "input_text", "text": text}] if text else []
            asked["input"] += [
                {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": [*texts, *parts] if parts else text},
            ]
    return asked | {"tools": tools(client)}


def plan(client: str, model: Model, body: dict[str, Any], **options: Any) -> engine.Plan:
    request = engine.decode_request(client, body, path=PATHS.get(client, ""))
    built = engine.build_request(model, request.messages, **{**request.options, **options})
    check_notes(built.notes)
    return built


def seen(plan: engine.Plan) -> str:
    """All strings of a body that the model may read, with the text files in it decoded."""
    out: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict | list):
            for inner in value.values() if isinstance(value, dict) else value:
                walk(inner)
        elif isinstance(value, str):
            head, comma, data = value.partition(";base64,")
            out.append(base64.b64decode(data).decode("utf-8", "replace") if comma and head[:5] == "data:" else value)

    walk(json.loads(plan.content))
    encoded = [p for p in out if p in {base64.b64encode(text.encode()).decode() for _, text in TEXTS.values()}]
    return "\n".join([*out, *(base64.b64decode(p).decode() for p in encoded)])


def holds(data: Any, value: Any) -> bool:
    """Whether a value stands somewhere in a body."""
    if data == value:
        return True
    inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return any(holds(item, value) for item in inner)


def codes(plan: engine.Plan) -> list[str]:
    return [note.code for note in plan.notes]


# ── text files ────────────────────────────────────────────────────────────────


def test_a_key_that_several_files_lose_is_noted_once(registry: Registry) -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "Hello"}
    documents = [{"type": "document", "source": source, "citations": {"enabled": True}} for _ in range(3)]
    for target in PROTOCOLS:
        if target != MESSAGES:
            body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": documents}]}
            notes = [note.said for note in plan(MESSAGES, blind(registry, target), body).notes]
            assert notes.count("citations of a file") == 1, target


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_file_is_text_for_every_model_with_its_name(name: str, registry: Registry) -> None:
    mime, text = TEXTS[name]
    data = base64.b64encode(text.encode()).decode()
    for client, target in PAIRS:
        for body in (
            user_body(client, part(client, mime, data, name)),
            result_body(client, part(client, mime, data, name)),
        ):
            for model in (blind(registry, target), readers()[target]):
                made = plan(client, model, body)
                assert text in seen(made), (client, model.name, target)
                assert name in seen(made), (client, model.name, target)
                assert "media-dropped" not in codes(made)
            assert data not in plan(client, blind(registry, target), body).content.decode()
            assert "file-as-text" in codes(plan(client, blind(registry, target), body))


def test_a_text_file_is_no_error_where_nothing_may_be_adjusted(registry: Registry) -> None:
    body = user_body(MESSAGES, part(MESSAGES, "text/plain", base64.b64encode(b"hi there").decode(), None))
    assert "hi there" in seen(plan(MESSAGES, blind(registry, CHAT), body, on_unsupported="error"))


def test_character_sets_of_text_files(registry: Registry) -> None:
    for mime, content in (
        ("text/csv;charset=gbk", "姓名".encode("gbk")),
        ("text/plain", "姓名".encode("utf-16")),
        ("text/plain", "\ufeff姓名".encode()),
        ("text/plain; charset=utf-8", "姓名".encode()),
    ):
        message = Message.user(["x", Media(mime, base64.b64encode(content).decode())])
        assert "姓名" in seen(engine.build_request(blind(registry, CHAT), [message])), mime
    url = "data:text/plain," + "%E5%A7%93%E5%90%8D"
    body = user_body(RESPONSES, {"type": "input_file", "file_data": url, "filename": "n.txt"})
    assert "姓名" in seen(plan(RESPONSES, blind(registry, CHAT), body))


def test_binary_files_are_no_text(registry: Registry) -> None:
    for mime, content in (
        ("application/zip", b"PK\x03\x04"),
        ("application/octet-stream", b"\x00\x01abc"),
        ("application/pdf", b"%PDF-1.4 plain"),
        ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", b"words"),
        ("text/plain", b"\xff\xfa\xfb\xfc\xfd"),
    ):
        message = Message.user(["x", Media(mime, base64.b64encode(content).decode())])
        with pytest.raises(CannotSend):
            engine.build_request(blind(registry, CHAT), [message])


# ── blocks of one wire ────────────────────────────────────────────────────────

BLOCKS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "text document": (
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "the body"},
            "title": "a.txt",
            "context": "from the archive",
        },
        ["the body", "a.txt", "from the archive"],
    ),
    "document of blocks": (
        {
            "type": "document",
            "source": {
                "type": "content",
                "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
            },
            "title": "list",
            "context": "old",
        },
        ["one", "two", "list", "old"],
    ),
    "document of a string": (
        {"type": "document", "source": {"type": "content", "content": "just so"}},
        ["just so"],
    ),
    "search result": (
        {
            "type": "search_result",
            "source": "https://x.test/a",
            "title": "The page",
            "content": [{"type": "text", "text": "what it says"}],
            "citations": {"enabled": True},
        },
        ["https://x.test/a", "The page", "what it says"],
    ),
}
INSIDE = {
    **BLOCKS,
    "tool reference": ({"type": "tool_reference", "tool_name": "look_up"}, ["look_up"]),
    "tabs": ({"type": "browser_state", "tabs": [{"title": "News", "active": True}]}, ["News"]),
}


@pytest.mark.parametrize("kind", INSIDE)
def test_a_block_of_messages_is_read_by_every_model(kind: str, registry: Registry) -> None:
    block, words = INSIDE[kind]
    bodies = [result_body(MESSAGES, block, text=text) for text in ("", "seen")]
    bodies += [user_body(MESSAGES, block), user_body(MESSAGES, block, after=True)] if kind in BLOCKS else []
    for body, target in itertools.product(bodies, PROTOCOLS):
        for model in (blind(registry, target), readers()[target]):
            made = plan(MESSAGES, model, body)
            assert all(word in seen(made) for word in words), (model.name, target)
            assert not {"media-dropped", "block-foreign"} & set(codes(made))
            own = target == MESSAGES and model is readers()[MESSAGES]
            if kind != "tabs":
                assert holds(json.loads(made.content), block) == own, (model.name, target)


def test_a_document_with_a_picture_in_it_keeps_both(registry: Registry) -> None:
    picture = part(MESSAGES, *IMAGE, None)
    source = {"type": "content", "content": [{"type": "text", "text": "one"}, picture]}
    for build in (user_body, result_body):
        body = build(MESSAGES, {"type": "document", "source": source, "title": "t"})
        for target in PROTOCOLS:
            made = plan(MESSAGES, readers()[target], body)
            assert "one" in seen(made)
            assert PNG in made.content.decode(), target
    made = plan(MESSAGES, blind(registry, CHAT), result_body(MESSAGES, {"type": "document", "source": source}))
    assert "[image: this model cannot read it]" in seen(made)


@pytest.mark.parametrize("client", PROTOCOLS)
def test_an_unknown_block_in_a_result_leaves_a_line_and_a_note(client: str, registry: Registry) -> None:
    block: dict[str, Any] = {"hologram": {"x": 1}} if client == GEMINI else {"type": "hologram", "x": 1}
    for target in PROTOCOLS:
        made = plan(client, blind(registry, target), result_body(client, block))
        if client != target or client == CHAT:
            assert "[hologram: this model cannot read it]" in seen(made), target
            assert "block-foreign" in codes(made)


def test_a_stored_file_in_a_result_leaves_a_line_on_another_wire(registry: Registry) -> None:
    stored: dict[str, dict[str, Any]] = {
        CHAT: {"type": "file", "file": {"file_id": "file-1"}},
        MESSAGES: {"type": "document", "source": {"type": "file", "file_id": "file-1"}},
        RESPONSES: {"type": "input_file", "file_id": "file-1"},
    }
    for client, target in itertools.product(stored, PROTOCOLS):
        made = plan(client, blind(registry, target), result_body(client, stored[client]))
        assert "[file: this model cannot read it]" in seen(made), (client, target)
        assert "file-1" not in made.content.decode()
        assert "media-dropped" in codes(made)


# ── media ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("media", "line"), [(IMAGE, "[image"), (DOCUMENT, "[PDF report.pdf"), (AUDIO, "[audio")])
def test_media_that_the_model_cannot_read(media: tuple[str, str], line: str, registry: Registry) -> None:
    line += ": this model cannot read it]"
    for client, target in PAIRS:
        model = blind(registry, target)
        name = "report.pdf" if media is DOCUMENT else None
        sent = part(client, *media, name)
        newest = user_body(client, sent)
        with pytest.raises(CannotSend, match="does not read") as caught:
            plan(client, model, newest)
        assert isinstance(caught.value.part, Media)
        earlier = [user_body(client, sent, after=True), result_body(client, sent), result_body(client, sent, text="")]
        for body, options in [(newest, {"on_unsupported": "adjust"}), *((body, {}) for body in earlier)]:
            made = plan(client, model, body, **options)
            assert line in seen(made), (client, target)
            assert media[1] not in made.content.decode()
            assert "media-dropped" in codes(made)
        for body in earlier:
            with pytest.raises(CannotSend):
                plan(client, model, body, on_unsupported="error")
            assert media[1] in plan(client, model, body, on_unsupported="send").content.decode()


def test_what_a_program_puts_behind_results_is_no_newest_message(registry: Registry) -> None:
    """Agents send a file that a tool has read in the same message as the result, or in one right behind it."""
    for client, target in PAIRS:
        body = result_body(client)
        file = part(client, *IMAGE, None)
        match client:
            case "openai-chat":
                body["messages"].append({"role": "user", "content": [file]})
            case "anthropic-messages":
                body["messages"][-1]["content"].append(file)
            case "gemini":
                body["contents"][-1]["parts"].append(file)
            case _:
                body["input"].append({"role": "user", "content": [file]})
        assert "[image: this model cannot read it]" in seen(plan(client, blind(registry, target), body)), (
            client,
            target,
        )


def test_a_system_message_behind_it_does_not_make_a_message_an_earlier_one(registry: Registry) -> None:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    turns: list[Any] = [{"role": "user", "content": [picture]}, {"role": "system", "content": "Be brief."}]
    with pytest.raises(CannotSend, match="image"):
        engine.build_request(blind(registry, CHAT), turns)


def test_media_in_results_arrive_again_in_every_replay() -> None:
    """The same bytes in each request: a history grows, and nothing of it changes."""
    for client, target in PAIRS:
        model = readers()[target]
        for media in (IMAGE, DOCUMENT):
            body = result_body(client, part(client, *media, "a.pdf" if media is DOCUMENT else None))
            first, again = plan(client, model, body), plan(client, model, body)
            assert first.content == again.content
            assert first.content.decode().count(media[1]) == 1, (client, target, media[0])
            request = engine.decode_request(target, json.loads(first.content), path=PATHS.get(target, ""), origin=model)
            [result] = [p for m in request.messages for p in m.parts if type(p) is ToolResult]
            assert "seen" in result.text
            assert len(result.media) == (0 if target == CHAT else 1), (client, target)
            replayed = engine.build_request(model, request.messages, **request.options)
            assert json.loads(replayed.content) == json.loads(first.content), (client, target)


def test_the_flag_of_a_failure_is_never_lost(registry: Registry) -> None:
    for client, target in itertools.product((MESSAGES, GEMINI), PROTOCOLS):
        for text in ("", "exit 3"):
            made = plan(client, blind(registry, target), result_body(client, text=text, error=True))
            sent = made.content.decode()
            marks = {CHAT: "Error: ", RESPONSES: "Error: ", MESSAGES: '"is_error":true', GEMINI: '"error":'}
            assert marks[target] in sent, (client, target)
            assert text in sent
    made = plan(MESSAGES, blind(registry, CHAT), result_body(MESSAGES, text="ValueError: no", error=True))
    assert '"ValueError: no"' in made.content.decode()


def written_pdf(text: str) -> str:
    """A PDF with one line of text, in base64."""
    content = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R"
        b" /Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(content), content),
    ]
    body, places = b"%PDF-1.4\n", []
    for number, data in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj\n%b\nendobj\n" % (number, data)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"xref\n0 5\n0000000000 65535 f \n%btrailer\n<< /Size 5 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (
        table,
        len(body),
    )
    return base64.b64encode(body + end).decode()


def test_the_text_of_a_pdf_is_sent_where_the_caller_wants_it(registry: Registry) -> None:
    data = written_pdf("Costs fell by 7 percent.")
    for client, target in PAIRS:
        file = part(client, "application/pdf", data, "report.pdf")
        for body in (user_body(client, file), result_body(client, file)):
            made = plan(client, blind(registry, target), body, pdf_text=True)
            assert "Costs fell by 7 percent." in seen(made), (client, target)
            assert "report.pdf" in seen(made)
            assert data not in made.content.decode()
            assert "file-as-text" in codes(made)
            assert data in plan(client, readers()[target], body, pdf_text=True).content.decode()
    broken = result_body(MESSAGES, part(MESSAGES, "application/pdf", PDF, "report.pdf"))
    made = plan(MESSAGES, blind(registry, CHAT), broken, pdf_text=True)
    assert "[PDF report.pdf: this model cannot read it]" in seen(made)


def test_a_pdf_without_a_text_is_named_and_says_why(registry: Registry) -> None:
    cut = base64.b64encode(b"%PDF-1.7\n").decode()
    for data, words in (
        (cut, "report.pdf is broken or locked: its text cannot be read"),
        (written_pdf(""), "report.pdf holds no text"),
    ):
        for client, target in PAIRS:
            file, model = part(client, "application/pdf", data, "report.pdf"), blind(registry, target)
            with pytest.raises(CannotSend, match=words):
                plan(client, model, user_body(client, file), pdf_text=True)
            [note] = [
                n
                for n in plan(client, model, result_body(client, file), pdf_text=True).notes
                if n.code == "media-dropped"
            ]
            assert words in note.did


# ── the system prompt ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", ["block", "joined", "string", "message"])
def test_of_a_system_prompt_only_the_billing_line_is_left_out(form: str, registry: Registry) -> None:
    line = "x-anthropic-billing-header: cc_version=2.1; cch=ab12;"
    text = f"{line}\nYou are an agent.\n\nBe brief."
    body = user_body(MESSAGES)
    match form:
        case "block":
            marks = {"cache_control": {"type": "ephemeral"}}
            body["system"] = [
                {"type": "text", "text": line},
                {"type": "text", "text": text.partition("\n")[2], **marks},
            ]
        case "joined":
            body["system"] = [{"type": "text", "text": text}]
        case "string":
            body["system"] = text
        case "message":
            body["messages"].insert(0, {"role": "system", "content": text})
    for target in PROTOCOLS:
        for model in (blind(registry, target), readers()[target]):
            made = plan(MESSAGES, model, body)
            assert "You are an agent.\n\nBe brief." in seen(made), (form, target)
            assert "billing" not in seen(made)
    request = engine.decode_request(MESSAGES, body)
    assert [note.code for note in request.notes] == ["key-foreign"]
