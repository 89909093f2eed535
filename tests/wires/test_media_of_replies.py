"""Images and sounds of an answer: nothing that was paid for is empty, and every client reads what its wire can hold."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from cnllm import BlockEnd, Event, Finished, Media, Opaque, Registry, Reply, Text, TextDelta, engine
from cnllm.protocols import PROTOCOLS

Json = dict[str, Any]
REGISTRY = Registry.load()
PICTURE = base64.b64encode(b"\x89PNG picture").decode()
SOUND = base64.b64encode(b"RIFF a sound of a voice").decode()
URL = f"data:image/png;base64,{PICTURE}"
AUDIO = {"id": "audio_1", "data": SOUND, "transcript": "Hello.", "expires_at": 9}
IMAGE_ITEM = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": PICTURE}


def endpoint(protocol: str) -> Any:
    return REGISTRY.resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1", protocol=protocol)


def chat(message: Json) -> Json:
    return {"choices": [{"index": 0, "message": {"content": None, **message}, "finish_reason": "stop"}]}


def chat_chunks(*deltas: Json) -> list[Json]:
    ends: list[Json] = [{"index": 0, "delta": delta} for delta in deltas]
    ends.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    return [{"id": "1", "model": "m", "choices": [choice]} for choice in ends]


IMAGES = [{"type": "image_url", "image_url": {"url": URL}}]
INLINE = {"inlineData": {"mimeType": "image/png", "data": PICTURE}}
PICTURES: dict[str, tuple[Json, list[Json]]] = {
    "openai-chat": (chat({"images": IMAGES}), chat_chunks({"content": ""}, {"images": IMAGES}, {"images": IMAGES})),
    "gemini": (
        {"candidates": [{"content": {"parts": [INLINE]}, "finishReason": "STOP"}]},
        [
            {"candidates": [{"content": {"parts": [INLINE]}}]},
            {"candidates": [{"content": {"parts": [{"text": ""}]}, "finishReason": "STOP"}]},
        ],
    ),
    "openai-responses": (
        {"status": "completed", "output": [IMAGE_ITEM]},
        [
            {"type": "response.output_item.added", "output_index": 0, "item": {**IMAGE_ITEM, "result": None}},
            {"type": "response.output_item.done", "output_index": 0, "item": IMAGE_ITEM},
            {"type": "response.completed", "response": {"status": "completed", "output": [IMAGE_ITEM]}},
        ],
    ),
}
HALF = SOUND[:8]
SOUNDS = (
    chat({"audio": AUDIO}),
    chat_chunks(
        {"audio": {"id": "audio_1", "transcript": "Hel"}},
        {"audio": {"data": base64.b64encode(b"RIFF a").decode()}},
        {"audio": {"data": base64.b64encode(b" sound of a voice").decode(), "transcript": "lo."}},
        {"audio": {"expires_at": 9}},
    ),
)


def read(protocol: str, form: tuple[Json, list[Json]], stream: bool) -> tuple[list[Any], Reply]:
    model = endpoint(protocol)
    if not stream:
        plan = engine.build_request(model, "Hi")
        return [], engine.parse_response(model, 200, {}, json.dumps(form[0]).encode(), plan=plan)
    parser = engine.StreamParser(model)
    events = [event for chunk in form[1] for event in parser.feed(b"data: %b\n\n" % json.dumps(chunk).encode())]
    return [*events, *parser.end()], parser.close()


def written(client: str, events: list[Any], reply: Reply) -> str:
    """What a client gets: the body, or the frames."""
    if not events:
        return json.dumps(engine.encode_reply(client, reply))
    writer = engine.StreamWriter(client, id="x", model="m")
    return (writer.begin() + b"".join(map(writer.feed, events))).decode()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("target", PICTURES)
def test_a_picture_alone_is_an_answer_for_every_client(target: str, stream: bool) -> None:
    events, reply = read(target, PICTURES[target], stream)
    assert [(type(part), getattr(part, "data", None)) for part in reply.message.parts] == [(Media, PICTURE)]
    assert PICTURE not in repr(reply.message.parts[0].seal), "the conversation keeps it once"
    assert reply.finish == "stop"
    for client in PROTOCOLS:
        text = written(client, events, reply)
        if client == "anthropic-messages":
            assert "[image image/png: this client" in text
        else:
            assert text.count(PICTURE) == (1 if client != "openai-responses" or not stream else 2)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("texts", [(), ("Hi",)])
def test_a_part_that_nobody_knows_is_an_answer_and_goes_back_as_it_came(texts: tuple[str, ...], stream: bool) -> None:
    widget = {"type": "widget", "widget": {"id": 1}}
    content = [*({"type": "text", "text": text} for text in texts), widget]
    form = (chat({"content": content}), chat_chunks(*({"content": [part]} for part in content)))
    _, reply = read("openai-chat", form, stream)
    assert [type(part) for part in reply.message.parts] == [*(Text for _ in texts), Opaque]
    again = engine.build_request(endpoint("openai-chat"), ["Hi", reply.message, "And?"])
    assert again.body["messages"][1]["content"] == content


@pytest.mark.parametrize("stream", [False, True])
def test_a_sound_alone_is_an_answer_and_its_words_reach_the_clients_without_sounds(stream: bool) -> None:
    events, reply = read("openai-chat", SOUNDS, stream)
    [part] = reply.message.parts
    assert type(part) is Media
    assert (part.type, part.data) == ("audio/wav", SOUND)
    for client in PROTOCOLS:
        text = written(client, events, reply)
        assert (SOUND in text) == (client in ("openai-chat", "gemini"))
        assert client == "gemini" or "Hello." in text
    if stream:
        return
    assert engine.encode_reply("openai-chat", reply)["choices"][0]["message"]["audio"] == AUDIO
    again = engine.build_request(endpoint("openai-chat"), ["Hi", reply.message, "And?"])
    assert again.body["messages"][1] == {"role": "assistant", "content": "", "audio": {"id": "audio_1"}}


def test_a_sound_that_a_client_names_goes_to_the_endpoint_that_keeps_it() -> None:
    sound = {"role": "assistant", "audio": {"id": "audio_1"}}
    body = {"messages": [{"role": "user", "content": "Hi"}, sound, {"role": "user", "content": "And?"}]}
    request = engine.decode_request("openai-chat", body, origin=endpoint("openai-chat"))
    plan = engine.build_request(endpoint("openai-chat"), request.messages)
    assert plan.body["messages"][1] == {"content": "", **sound}
    foreign = engine.build_request(endpoint("openai-chat"), engine.decode_request("openai-chat", body).messages)
    said = [note.said for note in foreign.notes if note.code == "media-foreign"]
    assert said == ["messages[1]: audio that another model made"]


@pytest.mark.parametrize("stream", [False, True])
def test_text_goes_on_behind_words_in_the_place_of_a_picture_on_a_line_of_its_own(stream: bool) -> None:
    def words(number: int) -> Json:
        source = {"type": "url_citation", "url": "https://a.example", "title": "A", "start_index": 0, "end_index": 7}
        content = [{"type": "output_text", "text": f"Text {number}.", "annotations": [source] if number == 2 else []}]
        return {"type": "message", "id": f"m{number}", "role": "assistant", "content": content}

    def done(index: int, item: Json) -> Iterator[Json]:
        yield {"type": "response.output_item.added", "output_index": index, "item": {**item, "content": []}}
        for text in (part["text"] for part in item.get("content", ())):
            place = {"item_id": item["id"], "output_index": index, "content_index": 0}
            for piece in (text[:4], text[4:]):
                yield {"type": "response.output_text.delta", **place, "delta": piece}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}

    output = [words(1), IMAGE_ITEM, words(2)]
    end = {"type": "response.completed", "response": {"status": "completed", "output": output}}
    chunks = [chunk for index, item in enumerate(output) for chunk in done(index, item)]
    events, reply = read("openai-responses", ({"status": "completed", "output": output}, [*chunks, end]), stream)
    data = written("anthropic-messages", events, reply)
    frames = [json.loads(line[6:]) for line in data.splitlines() if line.startswith("data: ")] or [json.loads(data)]
    deltas = [frame["delta"].get("text", "") for frame in frames if frame.get("type") == "content_block_delta"]
    text = "".join(deltas or [block["text"] for block in frames[0]["content"]])
    assert re.fullmatch(r"Text 1\.\n\n\[image image/png: [^]]*\]\n\nText 2\.", text)
    cited = [frame["index"] for frame in frames if frame.get("delta", {}).get("type") == "citations_delta"]
    if not stream:
        cited = [index for index, block in enumerate(frames[0]["content"]) if block.get("citations")]
    assert cited == [2]


def test_a_source_stays_with_its_text_behind_words_in_the_place_of_a_picture() -> None:
    picture = {"fileData": {"mimeType": "image/png", "fileUri": "https://a.example/1.png"}}
    support = {"segment": {"startIndex": 0, "endIndex": 8, "text": "A house."}, "groundingChunkIndices": [0]}
    sources = {"groundingChunks": [{"web": {"uri": "https://b.example", "title": "B"}}], "groundingSupports": [support]}
    parts = [picture, {"text": "I think.", "thought": True}, {"text": "A house."}]
    body = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP", "groundingMetadata": sources}]}
    chunks: list[Json] = [{"candidates": [{"content": {"parts": [part]}}]} for part in parts]
    chunks.append({"candidates": [{"finishReason": "STOP", "groundingMetadata": sources}]})
    for stream in (False, True):
        events, reply = read("gemini", (body, chunks), stream)
        data = written("openai-responses", events, reply)
        response = json.loads(data.splitlines()[-2][6:])["response"] if stream else json.loads(data)
        contents = [part for item in response["output"] for part in item.get("content", ())]
        found = [(part["text"], note) for part in contents for note in part["annotations"]]
        assert [text[note["start_index"] : note["end_index"]] for text, note in found] == ["A house."], stream


@pytest.mark.parametrize("has_text", [False, True])
def test_words_in_the_place_of_a_picture_stand_on_a_line_of_their_own(has_text: bool) -> None:
    events: list[Event] = [TextDelta("Here:"), BlockEnd(0, Text("Here:"))] if has_text else []
    events += [BlockEnd(len(events) // 2, Media("image/png", PICTURE)), Finished("stop")]
    writer = engine.StreamWriter("anthropic-messages", id="x", model="m")
    data = writer.begin() + b"".join(map(writer.feed, events))
    frames = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: ")]
    text = "".join(frame["delta"].get("text", "") for frame in frames if frame["type"] == "content_block_delta")
    assert text.startswith("Here:\n\n[image image/png: " if has_text else "[image image/png: ")


def test_a_picture_goes_back_to_the_endpoint_that_made_it() -> None:
    _, reply = read("openai-responses", PICTURES["openai-responses"], False)
    plan = engine.build_request(endpoint("openai-responses"), ["Hi", reply.message, "And?"])
    assert IMAGE_ITEM in plan.body["input"]
    other = engine.build_request(endpoint("anthropic-messages"), ["Hi", reply.message, "And?"])
    assert "[image: this model cannot read it]" in json.dumps(other.body)
    assert ("media-foreign", "messages") in [(note.code, note.flag) for note in other.notes]


def test_a_picture_of_a_chat_clients_history_is_read() -> None:
    turn = {"role": "assistant", "content": "Here.", "images": IMAGES}
    request = engine.decode_request("openai-chat", {"model": "m", "messages": [{"role": "user", "content": "x"}, turn]})
    assert [getattr(part, "data", None) for part in request.messages[1].parts] == [None, PICTURE]


def test_a_picture_of_another_wire_is_a_completed_item_of_responses() -> None:
    body, _ = PICTURES["openai-chat"]
    reply = engine.parse_response(endpoint("openai-chat"), 200, {}, json.dumps(body).encode())
    [item] = engine.encode_reply("openai-responses", reply)["output"]
    assert item == {**IMAGE_ITEM, "id": item["id"]}
    assert item["id"]


def test_an_image_item_without_an_image_is_no_picture() -> None:
    user = {"type": "message", "role": "user", "content": "Draw."}
    bare = {key: value for key, value in IMAGE_ITEM.items() if key != "result"}
    for item in (bare, {**bare, "result": None}, {**bare, "result": ""}):
        decoded = engine.decode_request("openai-responses", {"input": [user, item, user], "store": False})
        assert not [part for message in decoded.messages for part in message.parts if isinstance(part, Media)]
