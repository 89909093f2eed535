"""Pictures, sounds, videos and files: what each is, and that it goes in the endpoint's form or not at all."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from cnllm import CannotSend, Media, Message, Model, Plan, Registry, UnknownModel, engine
from cnllm.protocols import PROTOCOLS
from cnllm.types.media import media_kind

from .conftest import Home

PDF = base64.b64encode(b"%PDF-1.4 x").decode()
OFFICE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
DATA = f"data:application/pdf;base64,{PDF}"
SOURCE = {"type": "base64", "media_type": "application/pdf", "data": PDF}
PDFS: dict[str, dict[str, Any]] = {
    "file": {"type": "file", "file": {"filename": "a.pdf", "file_data": DATA}},
    "file without a head": {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}},
    "document": {"type": "document", "source": SOURCE},
    "input_file": {"type": "input_file", "filename": "a.pdf", "file_data": DATA},
    "image_url": {"type": "image_url", "image_url": {"url": DATA}},
    "input_image": {"type": "input_image", "image_url": DATA},
    "file_url": {"type": "file_url", "file_url": {"url": DATA}},
}
BY_URL: dict[str, dict[str, Any]] = {
    "document": {"type": "document", "source": {"type": "url", "url": "https://x.test/a.pdf"}},
    "input_file": {"type": "input_file", "file_url": "https://x.test/a.pdf"},
    "image_url": {"type": "image_url", "image_url": {"url": "https://x.test/a.pdf?v=1"}},
    "file": {"type": "file", "file": {"file_data": "https://x.test/a.pdf"}},
}
KEPT: dict[str, dict[str, Any]] = {
    "file": {"type": "file", "file": {"file_id": "f-1"}},
    "input_file": {"type": "input_file", "file_id": "f-1"},
    "document": {"type": "document", "source": {"type": "file", "file_id": "f-1"}},
}
SOUNDS: dict[str, dict[str, Any]] = {
    "audio_url": {"type": "audio_url", "audio_url": {"url": "https://x.test/a.mp3"}},
    "input_audio": {"type": "input_audio", "input_audio": {"data": "https://x.test/a.mp3", "format": "mp3"}},
}
OTHERS: dict[str, dict[str, Any]] = {
    "video": {"type": "video_url", "video_url": {"url": "https://x.test/a.mp4"}},
    "sound": {"type": "input_audio", "input_audio": {"data": PDF, "format": "mp3"}},
    "office": {"type": "file", "file": {"filename": "a.docx", "file_data": f"data:{OFFICE};base64,{PDF}"}},
}
ALL = [*PDFS.values(), *BY_URL.values(), *KEPT.values(), *SOUNDS.values(), *OTHERS.values()]


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.load()


def asked(model: Model, part: dict[str, Any], **options: Any) -> Plan:
    return engine.build_request(
        model, [{"role": "user", "content": [{"type": "text", "text": "see"}, part]}], **options
    )


def sent(model: Model, part: dict[str, Any]) -> Any:
    """The part as it goes out, None where a line stands in its place; then there is a note."""
    plan = asked(model, part, on_unsupported="adjust")
    turn = plan.turns[-1]
    content: Any = turn.get("content") or turn.get("parts")
    dropped = "media-dropped" in {note.code for note in plan.notes}
    assert dropped == ("cannot read it]" in json.dumps(content))
    return None if dropped else content[-1]


def test_a_file_that_is_not_read_is_never_sent(home: Home) -> None:
    for wire in PROTOCOLS:
        model = home(more=f'protocol = "{wire}"\ninput = ["text"]')
        for part in ALL:
            body = asked(model, part, on_unsupported="adjust").content
            assert not any(secret in body for secret in (PDF.encode(), b"x.test", b"f-1")), (wire, part)
            assert sent(model, part) is None
            for options in ({}, {"on_unsupported": "error"}):
                with pytest.raises(CannotSend, match="input"):
                    asked(model, part, **options)


@pytest.mark.parametrize(
    ("flags", "said"), [('input = ["text"]', "PDF"), ('input = ["text", "file"]\nmessages.files = "all"', "PDF by URL")]
)
def test_a_note_says_whether_a_file_or_its_form_is_not_taken(home: Home, flags: str, said: str) -> None:
    [note] = asked(home(more=flags), BY_URL["file"], on_unsupported="adjust").notes
    assert (note.code, note.said) == ("media-dropped", f"messages[0] holds {said}")


WIRES = PROTOCOLS
# whose wires are documented to read files, whatever the model
READERS = {
    ("openai", "openai-chat"),
    ("openai", "openai-responses"),
    ("anthropic", "anthropic-messages"),
    ("google", "gemini"),
    ("openrouter", "openai-chat"),
}


def test_a_file_for_a_model_that_nobody_knows_is_sent_only_where_the_endpoint_reads_files(registry: Registry) -> None:
    seen = set()
    for provider in registry.providers:
        for wire in WIRES:
            try:
                model = registry.resolve(f"{provider}/made-up-model-9", protocol=wire, base_url="http://127.0.0.1:9")
            except UnknownModel:  # it does not speak that wire
                continue
            reads = (provider, wire) in READERS
            if reads:
                assert sent(model, PDFS["file"]) is not None, (provider, wire)
                seen.add((provider, wire))
                continue
            for part in (*PDFS.values(), *BY_URL.values(), *KEPT.values(), OTHERS["office"]):
                body = asked(model, part, on_unsupported="adjust").content
                case = (provider, wire, part)
                assert not any(secret in body for secret in (PDF.encode(), b"x.test", b"f-1")), case
                assert sent(model, part) is None, case
    assert seen == READERS
    model = registry.resolve("deepseek/made-up-model-9")
    with pytest.raises(CannotSend, match="it is unknown whether the model reads it"):
        asked(model, PDFS["file"], on_unsupported="error")
    assert PDF.encode() in asked(model, PDFS["file"], on_unsupported="send").content
    picture = {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}
    assert sent(model, picture) == picture  # of pictures unknown may be yes


def test_a_document_goes_to_a_model_that_is_known_to_read_it_on_any_host(registry: Registry) -> None:
    model = registry.resolve("zai/glm-5v-turbo")
    by_url = {"type": "file_url", "file_url": {"url": "https://x.test/a.pdf"}}
    assert sent(model, BY_URL["input_file"]) == by_url
    assert sent(model, PDFS["input_file"]) is None  # by URL is the only way
    for name in ("vllm", "sglang"):
        model = registry.resolve(f"{name}/made-up-model-9", base_url="http://127.0.0.1:9/v1")
        for part in SOUNDS.values():
            assert sent(model, part) == SOUNDS["audio_url"], name
    claude = registry.resolve(
        "openai-compatible/claude-opus-5", protocol="anthropic-messages", base_url="http://x.test"
    )
    assert sent(claude, PDFS["input_file"])["type"] == "document"


def test_a_pdf_goes_in_the_form_of_each_endpoint(registry: Registry) -> None:
    forms = [
        (registry.resolve("openai/gpt-5.5"), "file", {"filename", "file_data"}),
        (registry.resolve("openrouter/deepseek/deepseek-v4-pro"), "file", {"filename", "file_data"}),
    ]
    for model, key, names in forms:
        for part in PDFS.values():
            out = sent(model, part)
            assert (out["type"], out[key].keys(), out[key]["file_data"]) == (key, names, DATA)
            assert out[key]["filename"].endswith(".pdf")
    responses = registry.resolve("openai/gpt-5.5", protocol="openai-responses")
    claude = registry.resolve("anthropic/claude-opus-5")
    gemini = registry.resolve("google/gemini-3.8-flash", protocol="gemini")
    for part in PDFS.values():
        out = sent(responses, part)
        assert (out["type"], out["file_data"], out["filename"][-4:]) == ("input_file", DATA, ".pdf")
        assert (sent(claude, part)["type"], sent(claude, part)["source"]) == ("document", SOURCE)
        assert sent(gemini, part) == {"inlineData": {"mimeType": "application/pdf", "data": PDF}}
    for part in BY_URL.values():
        url = "https://x.test/a.pdf" + ("?v=1" if part["type"] == "image_url" else "")
        assert sent(responses, part) == {"type": "input_file", "file_url": url}
        assert sent(claude, part)["source"] == {"type": "url", "url": url}
        assert sent(gemini, part)["fileData"]["fileUri"] == url
        assert sent(forms[0][0], part) is None  # this wire takes no URL of a file
        assert sent(forms[1][0], part)["file"]["file_data"] == url


def test_a_file_without_a_name_is_named_by_its_type(registry: Registry) -> None:
    """OpenAI reads a file by the ending of its name: text that is called a PDF is refused."""
    responses = registry.resolve("openai/gpt-5.5", protocol="openai-responses")
    endings = {
        "text/plain": "txt",
        "text/plain; charset=utf-8": "txt",
        "text/markdown": "md",
        "text/csv": "csv",
        "text/x-python": "txt",
        "application/json": "json",
        "application/pdf": "pdf",
        OFFICE: "docx",
        "application/octet-stream": "pdf",
    }
    for mime, ending in endings.items():
        out = sent(responses, {"type": "input_file", "file_data": f"data:{mime};base64,{PDF}"})
        assert (out["type"], out["filename"]) == ("input_file", f"document.{ending}")
    source = {"type": "text", "media_type": "text/plain", "data": "x"}
    assert sent(responses, {"type": "document", "title": "Notes", "source": source})["filename"] == "Notes.txt"


def test_a_file_that_an_endpoint_keeps_goes_to_its_own_wire_alone(registry: Registry) -> None:
    own = [
        (registry.resolve("openai/gpt-5.5"), "file"),
        (registry.resolve("openai/gpt-5.5", protocol="openai-responses"), "input_file"),
        (registry.resolve("anthropic/claude-opus-5"), "document"),
    ]
    for model, kind in own:
        assert sent(model, KEPT[kind]) == KEPT[kind]
    assert sent(own[2][0], KEPT["file"]) is None
    assert sent(own[0][0], KEPT["document"]) is None
    assert sent(own[2][0], OTHERS["office"]) is None  # documents are PDFs and plain text
    assert sent(own[0][0], OTHERS["office"]) is None
    assert sent(own[1][0], OTHERS["office"])["filename"] == "a.docx"


def test_a_sound_by_url_goes_only_where_it_is_taken(registry: Registry) -> None:
    omni = registry.resolve("alibaba/qwen3.8-omni-flash")
    unknown = registry.resolve("openai-compatible/x", base_url="http://127.0.0.1:1/v1")
    gemini = registry.resolve("google/gemini-3.8-flash", protocol="gemini")
    for part in SOUNDS.values():
        data = {"data": "https://x.test/a.mp3", "format": "mp3"}
        assert sent(omni, part) == {"type": "input_audio", "input_audio": data}
        assert sent(unknown, part) is None
        assert sent(gemini, part)["fileData"]["fileUri"] == data["data"]
    assert sent(unknown, OTHERS["sound"]) == OTHERS["sound"]


def test_files_in_results_of_tools_are_kept(registry: Registry) -> None:
    texts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    message = Message.from_dict({"role": "tool", "tool_call_id": "c", "content": [*texts, PDFS["file"]]})
    [result] = message.parts
    assert (result.text, result.media[0].type) == ("one\n\ntwo", "application/pdf")  # type: ignore[union-attr]
    call = {"id": "c", "type": "function", "function": {"name": "get", "arguments": "{}"}}
    tools = [{"type": "function", "function": {"name": "get"}}]
    turns: list[Any] = ["go", {"role": "assistant", "content": None, "tool_calls": [call]}, message]
    plan = engine.build_request(registry.resolve("anthropic/claude-opus-5"), turns, tools=tools)
    blocks = plan.turns[-1]["content"][0]["content"]
    assert [b["type"] for b in blocks] == ["text", "document"]
    plan = engine.build_request(registry.resolve("deepseek/deepseek-v4-pro"), turns, tools=tools)
    assert PDF.encode() not in plan.content
    assert b"one\\n\\ntwo" in plan.content


def test_parts_of_every_wire_survive_as_dicts() -> None:
    for part in ALL:
        message = Message.from_dict({"role": "user", "content": [part]})
        assert Message.from_dict(json.loads(json.dumps(message.to_dict()))) == message


KINDS = [
    (Media("image/png", data="x"), "image"),
    (Media("audio/wav", data="x"), "audio"),
    (Media("video/mp4", url="https://x.test/a"), "video"),
    (Media("application/pdf", data="x"), "file"),
    (Media("APPLICATION/PDF; q=1", data="x"), "file"),
    (Media("text/plain", data="x"), "file"),
    (Media("application/ogg", data="x"), "audio"),
    (Media("image", url="https://x.test/a.pdf"), "file"),
    (Media("image", url="https://x.test/a.PDF?x=1#p"), "file"),
    (Media("image", url="https://x.test/a"), "image"),
    (Media("image", url="https://x.test/a.mp4"), "video"),
    (Media("image", url="data:application/pdf,x"), "file"),
    (Media("audio", url="https://x.test/a.mp3"), "audio"),
    (Media("audio", url="https://x.test/a.webm"), "audio"),
    (Media("file", url="https://x.test/a.mp3"), "audio"),
    (Media("file", url="gs://bucket/a"), "file"),
    (Media("application/octet-stream", data="x", extra={"filename": "a.png"}), "image"),
    (Media("application/octet-stream", data="x"), "file"),
    (Media("file", data="x", extra={"title": "a.wav"}), "audio"),
    (Media("image", url="http://[broken"), "image"),
]


def test_one_function_tells_what_a_medium_is() -> None:
    for media, kind in KINDS:
        assert media_kind(media) == kind, media


STORED = ("https://generativelanguage.googleapis.com/v1beta/files/abc", "gs://bucket/a.png")


@pytest.mark.parametrize("url", STORED)
@pytest.mark.parametrize("name", ["openai/gpt-5.4", "anthropic/claude-sonnet-5-5"])
def test_a_file_that_a_vendor_stores_goes_to_no_other_one(registry: Registry, name: str, url: str) -> None:
    part = {"fileData": {"mimeType": "image/png", "fileUri": url}}
    turn = {"role": "user", "parts": [{"text": "What is it?"}, part]}
    later = [{"role": "model", "parts": [{"text": "A cat."}]}, {"role": "user", "parts": [{"text": "And now?"}]}]
    newest, older = (engine.decode_request("gemini", {"contents": turns}) for turns in ([turn], [turn, *later]))
    model = registry.resolve(name)
    with pytest.raises(CannotSend) as caught:
        engine.build_request(model, newest.messages)
    assert caught.value.note.code == "media-dropped"
    plan = engine.build_request(model, older.messages, max_tokens=9)
    assert url.encode() not in plan.content
    assert [note.code for note in plan.notes] == ["media-dropped"]
    for protocol in ("gemini", None):
        own = engine.build_request(registry.resolve("google/gemini-3.8-flash", protocol=protocol), newest.messages)
        assert url.encode() in own.content
