"""A key that an endpoint echoes is in nothing that a caller sees: on every wire, in every field, split anywhere."""

from __future__ import annotations

import base64
import itertools
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import msgspec
import pytest
from client.peer import SSE, Peer, Wait, piece
from client.peer import head as response_head

import cnllm
from cnllm import Client, Registry, Retry
from cnllm.cassette import Recorder
from cnllm.protocols import PROTOCOLS

KEY = "sk-ECHO/q7Zr+Wm_49TxLd0vBn"
ONCE = Retry(attempts=1)
WIRES = PROTOCOLS

SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64, one before": lambda key: base64.b64encode(b"u" + key.encode() + b":").decode(),
    "base64, two before": lambda key: base64.b64encode(b"u:" + key.encode() + b"!!").decode(),
    "base64, url-safe": lambda key: base64.urlsafe_b64encode(b"\xff\xfe" + key.encode()).decode(),
    "base64, no padding": lambda key: base64.b64encode(key.encode() + b"x").decode().rstrip("="),
    "percent": quote_plus,
    "percent, all": lambda key: "".join(f"%{byte:02x}" for byte in key.encode()),
    "percent, twice": lambda key: "".join(f"%25{byte:02X}" for byte in key.encode()),
    "JSON escapes": lambda key: "".join(f"\\u{ord(char):04x}" for char in key),
    "JSON escapes, large": lambda key: "".join(f"\\u{ord(char):04X}" for char in key),
    "JSON, a slash": lambda key: key.replace("/", "\\/"),
    "entities": lambda key: "".join(f"&#{ord(char)};" for char in key),
    "entities, hex": lambda key: "".join(f"&#x{ord(char):X};" for char in key),
    "entities, named": lambda key: key.replace("/", "&sol;").replace("+", "&plus;").replace("_", "&lowbar;"),
    "hex": lambda key: key.encode().hex(),
    "HEX": lambda key: key.encode().hex().upper(),
    "hex, colons": lambda key: key.encode().hex(":"),
    "a mixture": lambda key: "".join(
        (char, f"%{ord(char):02X}", f"&#{ord(char)};")[nth % 3] for nth, char in enumerate(key)
    ),
}


class Canned:
    """A transport that answers with given bytes."""

    def __init__(self, *pieces: bytes, kind: str = "text/event-stream", status: int = 200) -> None:
        self._pieces, self._kind, self._status = pieces, kind, status
        self.sent = 0

    def send(self, plan: Any) -> tuple[int, dict[str, str], Iterator[bytes]]:
        assert any(KEY in value for value in plan.headers.values())
        self.sent += 1
        return self._status, {"content-type": self._kind, "x-echo": KEY}, iter(self._pieces)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    path = tmp_path_factory.mktemp("registry") / "overlay.toml"
    path.write_text(
        "".join(
            f'[providers.p{n}]\nprotocol = "{wire}"\nbase_url = "http://127.0.0.1:9/v1"\nkeys = ["NO_SUCH_KEY"]\n'
            f'auth = {{ header = "x-api-key", value = "{{key}}" }}\n[models."p{n}/m"]\n'
            for n, wire in enumerate(WIRES)
        )
    )
    return Registry.load(path)


def sse(*events: Any) -> bytes:
    return b"".join(
        (f"event: {event['type']}\n".encode() if "type" in event else b"")
        + b"data: "
        + json.dumps(event, ensure_ascii=False).encode()
        + b"\n\n"
        for event in events
    )


def streamed(wire: str, field: str, texts: list[str]) -> bytes:
    """A stream with these texts one after another in a field; a field that is no delta gets them as one."""
    one = "".join(texts)
    name = one if field == "name" else "look"
    id, model, finish = (
        one if field == each else usual for each, usual in (("id", "i1"), ("model", "m"), ("finish", ""))
    )
    text, thoughts, args = (texts if field == each else [] for each in ("text", "reasoning", "arguments"))
    if field == "arguments":
        args = ['{"q": "', *[json.dumps(each)[1:-1] for each in texts], '"}']
    calls = field in ("arguments", "name", "call")
    args = args or ['{"q": 1}']
    odd = f"data: not json {one}\n\n".encode() if field == "notes" else b""
    if wire == "openai-chat":
        base = {"id": id, "model": model, "object": "chat.completion.chunk"}
        deltas: list[Any] = [{"role": "assistant", "content": ""}]
        deltas += [{"reasoning_content": each} for each in thoughts]
        deltas += [{"content": each} for each in text or ["Hello"]]
        if calls:
            call = {"index": 0, "id": one if field == "call" else "c1", "type": "function"}
            deltas.append({"tool_calls": [{**call, "function": {"name": name, "arguments": ""}}]})
            deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": each}}]} for each in args]
        events = [{**base, "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        end = {"index": 0, "delta": {}, "finish_reason": finish or ("tool_calls" if calls else "stop")}
        return sse(*events) + odd + sse({**base, "choices": [end]}) + b"data: [DONE]\n\n"
    if wire == "anthropic-messages":
        start = {"id": id, "type": "message", "role": "assistant", "model": model, "content": [], "usage": {}}
        out: list[Any] = [{"type": "message_start", "message": start}]
        blocks: list[tuple[Any, list[Any]]] = []
        if thoughts:
            blocks.append(
                ({"type": "thinking", "thinking": ""}, [{"type": "thinking_delta", "thinking": t} for t in thoughts])
            )
        if field == "seal":
            blocks.append(
                (
                    {"type": "thinking", "thinking": ""},
                    [{"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": one}],
                )
            )
        if field == "opaque":
            blocks.append(({"type": "strange_thing", "data": {"deep": [one]}}, []))
        blocks.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": t} for t in text or ["Hello"]]))
        if calls:
            use = {"type": "tool_use", "id": one if field == "call" else "c1", "name": name, "input": {}}
            blocks.append((use, [{"type": "input_json_delta", "partial_json": each} for each in args]))
        for index, (block, deltas) in enumerate(blocks):
            out.append({"type": "content_block_start", "index": index, "content_block": block})
            out += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
            out.append({"type": "content_block_stop", "index": index})
        stop = finish or ("tool_use" if calls else "end_turn")
        out.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 3}})
        return sse(*out) + odd + sse({"type": "message_stop"})
    if wire == "gemini":
        parts: list[Any] = [{"text": each, "thought": True} for each in thoughts]
        parts += [{"text": each} for each in text or ["Hello"]]
        if field == "seal":
            parts.append({"text": "more", "thoughtSignature": one})
        if calls:
            parts.append({"functionCall": {"name": name, "args": json.loads("".join(args))}})
        base = {"responseId": id, "modelVersion": model}
        chunks = [{**base, "candidates": [{"content": {"role": "model", "parts": [part]}}]} for part in parts]
        return sse(*chunks) + odd + sse({**base, "candidates": [{"finishReason": finish or "STOP"}]})
    items: list[Any] = []
    out = [{"type": "response.created", "response": {"id": id, "model": model, "status": "in_progress"}}]
    for index, (kind, pieces) in enumerate([("reasoning", thoughts), ("message", text or ["Hello"]), ("call", args)]):
        whole = "".join(pieces)
        at = {"output_index": index, "item_id": f"x{index}"}
        done: dict[str, Any]
        if kind == "reasoning" and pieces:
            summary = [{"type": "summary_text", "text": whole}]
            done = {"type": "reasoning", "id": "x0", "summary": summary}
            out.append({"type": "response.output_item.added", "output_index": index, "item": {**done, "summary": []}})
            tag = "response.reasoning_summary_text.delta"
            out += [{"type": tag, **at, "summary_index": 0, "delta": each} for each in pieces]
        elif kind == "message":
            done = {"type": "message", "id": "x1", "role": "assistant", "status": "completed"}
            out.append({"type": "response.output_item.added", "output_index": index, "item": {**done, "content": []}})
            done["content"] = [{"type": "output_text", "text": whole}]
            out += [{"type": "response.output_text.delta", **at, "content_index": 0, "delta": each} for each in pieces]
        elif kind == "call" and calls:
            call = {"type": "function_call", "id": "x2", "call_id": one if field == "call" else "c1", "name": name}
            out.append({"type": "response.output_item.added", "output_index": index, "item": {**call, "arguments": ""}})
            out += [{"type": "response.function_call_arguments.delta", **at, "delta": each} for each in pieces]
            done = {**call, "arguments": whole}
        else:
            continue
        items.append(done)
        out.append({"type": "response.output_item.done", "output_index": index, "item": done})
    last: dict[str, Any] = {"id": id, "model": model, "status": "completed", "output": items}
    if field == "finish":
        last |= {"status": "incomplete", "incomplete_details": {"reason": one}}
    return sse(*out) + odd + sse({"type": "response.completed", "response": last})


FIELDS = ("text", "reasoning", "arguments", "name", "call", "id", "model", "finish", "notes", "seal", "opaque")


def read(client: Client, model: str, **options: Any) -> tuple[list[Any], Any]:
    """The events, and the reply or what is left of it."""
    events: list[Any] = []
    try:
        with client.stream(model, "hi", tools=TOOLS, **options) as stream:
            for event in stream:
                events.append(event)
            return events, stream.reply
    except cnllm.CnllmError as error:
        clean(repr(error), str(error), repr(vars(error)), hint=model)
        return events, error.reply


TOOLS = [{"name": "look", "description": "Look.", "parameters": {"type": "object"}}]


def holds(shown: str, spelling: str) -> bool:
    """Whether a text holds the key or its spelling, written in Python or JSON or not."""
    return any(form in shown for each in (KEY, spelling) for form in {each, json.dumps(each)[1:-1], repr(each)[1:-1]})


def clean(*texts: str, spelling: str = KEY, hint: str = "") -> None:
    for text in texts:
        assert not holds(text, spelling), f"{hint}: {text[:3000]}"


def agrees(events: list[Any], reply: Any) -> None:
    """What was delivered is what the reply says."""
    assert "".join(e.text for e in events if type(e) is cnllm.TextDelta) == reply.text
    assert "".join(e.text for e in events if type(e) is cnllm.ReasoningDelta) == reply.reasoning
    assert reply.text == reply.message.text
    assert reply.reasoning == reply.message.reasoning
    for index, call in enumerate(reply.message.tool_calls):
        raw = "".join(e.text for e in events if type(e) is cnllm.ToolCallDelta and e.index == index)
        assert raw == call.raw, (raw, call.raw)


def splits(text: str) -> Iterator[list[str]]:
    """A text in one piece, in two at some places, and character by character."""
    yield [text]
    for at in (1, 2, 3, 4, 9, len(text) // 2, len(text) - 1):
        yield [text[:at], text[at:]]
    yield list(text)


# ── streams ──────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("wire", WIRES)
def test_no_field_of_a_stream_shows_an_echo(held: Registry, wire: str) -> None:
    model = f"p{WIRES.index(wire)}/m"
    seen = 0
    for field in FIELDS:
        whole = field in ("text", "reasoning")  # where other spellings are text like any other
        for name, spell in SPELLINGS.items():
            if whole and name != "plain":
                continue
            spelling = spell(KEY)
            pieces = list(splits(spelling)) if field in ("text", "reasoning", "arguments") else [[spelling]]
            for texts in pieces if name == "plain" else pieces[:: len(pieces) // 2 or 1]:
                data = streamed(wire, field, ["ab ", *texts, " cd"])
                with Client(held, api_key=KEY, retry=ONCE, transport=Canned(data)) as client:
                    events, reply = read(client, model)
                hint = f"{wire} {field} {name} {len(texts)}"
                clean(repr(events), repr(reply), json.dumps(reply.to_dict()), spelling=spelling, hint=hint)
                clean(msgspec.json.encode(events).decode(), spelling=spelling, hint=hint)
                agrees(events, reply)
                seen += "[redacted]" in repr(reply)
                if field in ("text", "reasoning"):
                    said = reply.text if field == "text" else reply.reasoning
                    assert said.startswith("ab "), (hint, said)
                    assert said.endswith("[redacted] cd"), (hint, said)
    assert seen > 100


@pytest.mark.parametrize("wire", WIRES)
def test_no_border_of_chunks_shows_an_echo(held: Registry, wire: str) -> None:
    """The bytes of a stream are cut at each byte of the key."""
    model = f"p{WIRES.index(wire)}/m"
    for field in ("text", "notes", "finish", "id", "arguments"):
        data = streamed(wire, field, [KEY])
        place = data.find(json.dumps(KEY)[1:-1].encode())
        for at in range(place - 1, place + len(KEY) + 2, 3):
            with Client(held, api_key=KEY, retry=ONCE, transport=Canned(data[:at], data[at:])) as client:
                events, reply = read(client, model)
            clean(repr(events), repr(reply), hint=f"{wire} {field} {at}")
            agrees(events, reply)


def test_what_is_cut_off_in_the_middle_of_a_key_shows_no_most_of_it(held: Registry) -> None:
    """A note is cut after eighty characters, a stream anywhere."""
    for wire, model in zip(WIRES, ("p0/m", "p1/m", "p2/m", "p3/m"), strict=True):
        for before in range(40, 80, 5):
            data = streamed(wire, "notes", ["x" * before, KEY])
            with Client(held, api_key=KEY, retry=ONCE, transport=Canned(data[:300], data[300:])) as client:
                events, reply = read(client, model)
            assert KEY[:9] not in repr(events) + repr(reply)
        data = streamed(wire, "text", ["ab ", *KEY])
        for at in range(len(data) // 3, len(data), 97):
            with Client(held, api_key=KEY, retry=ONCE, transport=Canned(data[:at])) as client:
                events, reply = read(client, model, if_cut="keep")
            assert KEY[:9] not in repr(events) + repr(reply)
            if reply is not None:
                agrees(events, reply)


def test_ordinary_text_goes_out_as_it_comes(held: Registry) -> None:
    """Nothing waits that is not the beginning of a key, not even after one that is none."""
    texts = ["This", " is", " as", " s", "k", "-", "ill", "ed as sk", "-", "E", " ends", " s"]
    with Client(held, api_key=KEY, retry=ONCE, transport=Canned(streamed("openai-chat", "text", texts))) as client:
        events, reply = read(client, "p0/m")
    assert reply.text == "".join(texts)
    agrees(events, reply)
    said = [event.text for event in events if type(event) is cnllm.TextDelta]
    assert said[:5] == texts[:5]


def test_a_short_key_tears_up_no_text(held: Registry) -> None:
    class Any_(Canned):
        def send(self, plan: Any) -> Any:
            return 200, {}, iter([streamed("openai-chat", "text", ["a dum", "my, EMPTY"])])

    for key in ("dummy", "EMPTY", "a"):
        with Client(held, api_key=key, retry=ONCE, transport=Any_()) as client:
            assert client.call("p0/m", "hi").text == "a dummy, EMPTY"


# ── whole ────────────────────────────────────────────────────────────────────
def test_no_field_of_a_whole_reply_shows_an_echo(held: Registry) -> None:
    for name, spell in SPELLINGS.items():
        said = spell(KEY)
        calls = [
            {"id": said, "type": "function", "function": {"name": "look", "arguments": json.dumps({said: [said]})}}
        ]
        message = {"role": "assistant", "content": KEY, "reasoning_content": f"{KEY}!", "tool_calls": calls, "x": said}
        choice = {"index": 0, "message": message, "finish_reason": said, "logprobs": {"y": [said]}}
        body = json.dumps({"id": said, "model": said, "choices": [choice], "usage": {"said": said}}).encode()
        for pieces in ((body,), (body[:200], body[200:]), tuple(bytes([byte]) for byte in body)):
            peer = Canned(*pieces, kind="application/json")
            with Client(held, api_key=KEY, retry=ONCE, transport=peer) as client:
                reply = client.call("p0/m", "hi", tools=TOOLS)
            clean(repr(reply), repr(reply.raw), json.dumps(reply.to_dict()), spelling=said, hint=name)
            assert (reply.text, reply.reasoning) == ("[redacted]", "[redacted]!")
            assert reply.message.text == reply.text


def test_a_key_in_two_parts_of_a_text_is_hidden(held: Registry) -> None:
    body = {"id": "i", "model": "m", "type": "message", "role": "assistant", "stop_reason": "end_turn", "usage": {}}
    parts = [{"type": "text", "text": KEY[:9]}, {"type": "text", "text": f"{KEY[9:]} end"}]
    data = json.dumps({**body, "content": parts}).encode()
    with Client(held, api_key=KEY, retry=ONCE, transport=Canned(data, kind="application/json")) as client:
        reply = client.call(f"p{WIRES.index('anthropic-messages')}/m", "hi")
    assert reply.text == reply.message.text == "[redacted] end"


def test_no_answer_by_a_schema_shows_an_echo(held: Registry) -> None:
    from pydantic import BaseModel, Field

    class Answer(BaseModel):
        word: str

    class Strict(BaseModel):
        word: str = Field(min_length=20)

    for spell in (str, SPELLINGS["hex"], SPELLINGS["JSON escapes"]):
        said = spell(KEY)
        content = json.dumps({"word": said})
        for texts in splits(content):
            data = streamed("openai-chat", "text", texts)
            for schema in (Answer, Strict, Answer.model_json_schema()):
                with (
                    Client(held, api_key=KEY, retry=ONCE, transport=Canned(data)) as client,
                    client.stream("p0/m", "hi", schema=schema) as stream,
                ):
                    list(stream)
                    reply = stream.reply
                clean(repr(reply.parsed), spelling=said)
                if schema is Answer:
                    assert reply.parsed == Answer(word="[redacted]")


# ── errors, logs, what is kept ───────────────────────────────────────────────
def chained(error: BaseException) -> str:
    shown: list[str] = []
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is not None:
            shown += [str(one), repr(one), repr(vars(one)), repr(one.args)]
            todo += [one.__cause__, one.__context__]
    return "\n".join(shown)


def test_no_error_shows_an_echo(held: Registry) -> None:
    for (name, spell), status, model in itertools.product(
        SPELLINGS.items(), (400, 401, 429, 500, 200), ("p0/m", "p2/m", "p3/m")
    ):
        said = spell(KEY)
        body = json.dumps(
            {"error": {"message": f"wrong {said} given", "code": said, "type": said, "param": [said]}}
        ).encode()
        for pieces in ((body,), (body[:40], body[40:])):
            peer = Canned(*pieces, kind="application/json", status=status)
            with (
                Client(held, api_key=KEY, retry=ONCE, transport=peer) as client,
                pytest.raises(cnllm.CnllmError) as caught,
            ):
                client.call(model, "hi")
            clean(chained(caught.value), spelling=said, hint=f"{name} {status} {model}")


def test_no_log_event_or_cassette_shows_an_echo(
    held: Registry, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[Any] = []
    for number, (name, spell) in enumerate(SPELLINGS.items()):
        said = spell(KEY)
        tape = tmp_path / f"{number}.jsonl"
        for field in ("id", "model", "finish", "notes"):
            data = streamed("openai-chat", field, [said])
            recorder = Recorder(Canned(data[:150], data[150:]), tape)
            with Client(held, api_key=KEY, retry=ONCE, transport=recorder, on_event=told.append) as client:
                read(client, "p0/m")
        entries = [json.loads(line) for line in tape.read_text().splitlines()]
        joined = ["".join(entry["response"]["chunks"]) for entry in entries]
        clean(tape.read_text(), *joined, repr(told), caplog.text, spelling=said, hint=name)


def test_a_cassette_shows_no_key_that_came_in_several_deltas(held: Registry, tmp_path: Path) -> None:
    for number, (wire, texts) in enumerate(itertools.product(WIRES, splits(KEY))):
        tape = tmp_path / f"{number}.jsonl"
        data = streamed(wire, "text", ["ab ", *texts, " cd"])
        recorder = Recorder(Canned(data[:170], data[170:]), tape)
        model = f"p{WIRES.index(wire)}/m"
        with Client(held, api_key=KEY, retry=ONCE, transport=recorder) as client:
            read(client, model)
        chunks = [chunk.encode() for chunk in json.loads(tape.read_text())["response"]["chunks"]]
        with Client(held, api_key="another-key-of-nobody", retry=ONCE, transport=Replay(chunks)) as client:
            _, reply = read(client, model)
        clean(repr(reply), tape.read_text(), hint=wire)
        assert reply.text == "ab [redacted] cd"


class Replay:
    """A transport that says what a cassette holds."""

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = chunks

    def send(self, plan: Any) -> Any:
        return 200, {"content-type": "text/event-stream"}, iter(self._chunks)


# ── over sockets ─────────────────────────────────────────────────────────────
@pytest.mark.parametrize("field", ["text", "notes", "finish", "id"])
def test_over_sockets_in_two_segments(held: Registry, field: str) -> None:
    import threading

    data = streamed("openai-chat", field, [KEY])
    at = data.find(json.dumps(KEY)[1:-1].encode()) + 11
    second = threading.Event()
    script: list[Any] = [
        response_head(200, SSE, transfer_encoding="chunked"),
        piece(data[:at]),
        Wait(second),
        piece(data[at:]),
        piece(b""),
    ]
    with Peer(script) as peer:
        model = held.resolve("p0/m", base_url=peer.url)
        with Client(held, api_key=KEY, retry=ONCE) as client, client.stream(model, "hi") as stream:
            threading.Timer(0.1, second.set).start()
            events = list(stream)
            reply = stream.reply
    clean(repr(events), repr(reply))
    agrees(events, reply)


# ── the client itself ────────────────────────────────────────────────────────
def test_nothing_that_hangs_on_a_client_is_its_key() -> None:
    from client.peer import reply as canned

    for kind in (cnllm.Client, cnllm.AsyncClient):
        script: list[Any] = [canned()]
        with Peer(script) as peer:
            client: Any = kind(api_key=KEY)
            if kind is cnllm.Client:
                model = client.registry.resolve("openai-compatible/m", base_url=peer.url)
                assert client.call(model, "hi").text
                assert KEY in repr(peer.received[0].headers)
            todo: list[tuple[Any, str]] = [(client, "client")]
            seen: set[int] = set()
            while todo:
                one, way = todo.pop()
                if id(one) in seen or len(seen) > 200_000:
                    continue
                seen.add(id(one))
                if isinstance(one, str | bytes | bytearray):
                    shown = one if isinstance(one, str) else bytes(one).decode("latin-1")
                    assert KEY not in shown, way
                elif isinstance(one, dict):
                    todo += [(each, f"{way}[{key!r}]"[:300]) for key, each in list(one.items())]
                elif isinstance(one, list | tuple | set | frozenset):
                    todo += [(each, f"{way}[]") for each in list(one)]
                elif not isinstance(one, type) and type(one).__name__ not in ("module", "function", "Registry"):
                    todo += [(vars(one), way)] if hasattr(one, "__dict__") else []
                    for base in type(one).__mro__:
                        slots = base.__dict__.get("__slots__", ())
                        for name in (slots,) if isinstance(slots, str) else slots:
                            if not name.startswith("__") and hasattr(one, name):
                                todo.append((getattr(one, name), f"{way}.{name}"))
                elif type(one).__name__ == "function" and one.__closure__:
                    todo += [(cell.cell_contents, f"{way}()") for cell in one.__closure__ if cell is not None]
            if kind is cnllm.Client:
                client.close()
