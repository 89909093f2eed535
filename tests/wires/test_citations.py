"""The sources of an answer: read from every wire, whole and streamed, and written in the form of every client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cases import each
from msgspec import structs

from cnllm import (
    BlockEnd,
    Citation,
    CitationAdded,
    Event,
    Finished,
    Registry,
    Reply,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    engine,
)
from cnllm.protocols import PROTOCOLS
from cnllm.types import ExtraAdded

Json = dict[str, Any]
REGISTRY = Registry.load()
BASE = "http://127.0.0.1:9/v1"
TEXT = "Ä 你好: Rain today. Sun later."
RAIN, SUN = [(TEXT.index(piece), TEXT.index(piece) + len(piece)) for piece in ("Rain today.", "Sun later.")]
PAGES = [("https://a.example/rain", "Rain"), ("https://b.example/sun", "Sun")]


def endpoint(protocol: str) -> Any:
    return REGISTRY.resolve("openai-compatible/m", base_url=BASE, protocol=protocol)


def span(place: tuple[int, int]) -> Json:
    return {"start_index": place[0], "end_index": place[1]}


def in_bytes(place: tuple[int, int]) -> Json:
    start, end = (len(TEXT[:index].encode()) for index in place)
    return {"startIndex": start, "endIndex": end, "text": TEXT[slice(*place)]}


def chat_annotation(number: int) -> Json:
    url, title = PAGES[number]
    return {"type": "url_citation", "url_citation": {**span((RAIN, SUN)[number]), "url": url, "title": title}}


def annotation(number: int) -> Json:
    url, title = PAGES[number]
    return {"type": "url_citation", **span((RAIN, SUN)[number]), "url": url, "title": title}


def location(number: int) -> Json:
    url, title = PAGES[number]
    return {
        "type": "web_search_result_location",
        "url": url,
        "title": title,
        "cited_text": "said there",
        "encrypted_index": "sealed",
    }


GROUNDING = {
    "groundingChunks": [{"web": {"uri": url, "title": title}} for url, title in PAGES],
    "groundingSupports": [
        {"segment": in_bytes(RAIN), "groundingChunkIndices": [0]},
        {"segment": in_bytes(SUN), "groundingChunkIndices": [1]},
    ],
}
MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
BLOCKS = [("Ä 你好: ", None), ("Rain today.", 0), (" ", None), ("Sun later.", 1)]

WHOLE: dict[str, Json] = {
    "openai-chat": {
        "choices": [
            {
                "finish_reason": "stop",
                "message": {"content": TEXT, "annotations": [chat_annotation(0), chat_annotation(1)]},
            }
        ]
    },
    "anthropic-messages": {
        "type": "message",
        "stop_reason": "end_turn",
        "content": [
            {"type": "text", "text": text, **({} if n is None else {"citations": [location(n)]})} for text, n in BLOCKS
        ],
    },
    "gemini": {
        "candidates": [{"content": {"parts": [{"text": TEXT}]}, "finishReason": "STOP", "groundingMetadata": GROUNDING}]
    },
    "openai-responses": {
        "status": "completed",
        "output": [
            {
                **MESSAGE,
                "content": [{"type": "output_text", "text": TEXT, "annotations": [annotation(0), annotation(1)]}],
            }
        ],
    },
}


def chat_stream() -> list[Json]:
    deltas: list[Json] = [{"content": TEXT[:10]}, {"content": TEXT[10:]}]
    deltas += [{"annotations": [chat_annotation(n)]} for n in (0, 1)]
    chunks: list[Json] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return [*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]


def messages_stream() -> list[Json]:
    out: list[Json] = [{"type": "message_start", "message": {"content": []}}]
    for index, (text, number) in enumerate(BLOCKS):
        head = {"type": "text", "text": "", **({} if number is None else {"citations": []})}
        out.append({"type": "content_block_start", "index": index, "content_block": head})
        if number is not None:
            delta: Json = {"type": "citations_delta", "citation": location(number)}
            out.append({"type": "content_block_delta", "index": index, "delta": delta})
        for piece in (text[:2], text[2:]):
            delta = {"type": "text_delta", "text": piece}
            out.append({"type": "content_block_delta", "index": index, "delta": delta})
        out.append({"type": "content_block_stop", "index": index})
    return [*out, {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]


def gemini_stream() -> list[Json]:
    parts = [{"content": {"parts": [{"text": text}]}} for text in (TEXT[:10], TEXT[10:])]
    end = {"content": {"parts": [{"text": ""}]}, "finishReason": "STOP", "groundingMetadata": GROUNDING}
    return [{"candidates": [candidate]} for candidate in (*parts, end)]


def responses_stream() -> list[Json]:
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    added = "response.output_text.annotation.added"
    item = WHOLE["openai-responses"]["output"][0]
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": {**MESSAGE, "content": []}},
        {"type": "response.output_text.delta", **place, "delta": TEXT[:10]},
        {"type": "response.output_text.delta", **place, "delta": TEXT[10:]},
        *({"type": added, **place, "annotation_index": n, "annotation": annotation(n)} for n in (0, 1)),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": WHOLE["openai-responses"]},
    ]


STREAMS = {
    "openai-chat": chat_stream(),
    "anthropic-messages": messages_stream(),
    "gemini": gemini_stream(),
    "openai-responses": responses_stream(),
}


def frames(chunks: list[Json]) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks)


def read_stream(model: Any, chunks: list[Json]) -> tuple[list[Any], Reply]:
    parser = engine.StreamParser(model)
    events = [*parser.feed(frames(chunks)), *parser.end()]
    return events, parser.close()


def places(reply: Reply) -> list[tuple[str | None, str | None, str | None]]:
    """The sources, with the pieces of the text that they are for."""
    return [(c.url, c.title, None if c.start is None else reply.text[c.start : c.end]) for c in reply.citations]


EXPECTED = [(*PAGES[0], "Rain today."), (*PAGES[1], "Sun later.")]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_whole_reply_names_its_sources_with_their_pieces(protocol: str) -> None:
    model = endpoint(protocol)
    reply = engine.parse_response(model, 200, {}, json.dumps(WHOLE[protocol]).encode())
    assert reply.text == TEXT
    assert places(reply) == EXPECTED
    plan = engine.build_request(model, "Hi")
    again = engine.parse_response(model, 200, {}, json.dumps(WHOLE[protocol]).encode(), plan=plan)
    assert (again.citations, again.message) == (reply.citations, reply.message)


@each("empty", ["", None, 0])
def test_an_empty_address_is_none(empty: Any) -> None:
    source = {"type": "url_citation", "url_citation": {**span(RAIN), "url": empty, "title": "Rain"}}
    message = {"content": TEXT, "annotations": [source]}
    body = json.dumps({"choices": [{"finish_reason": "stop", "message": message}]}).encode()
    assert places(engine.parse_response(endpoint("openai-chat"), 200, {}, body)) == [(None, "Rain", "Rain today.")]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_stream_names_them_as_the_whole_reply_does(protocol: str) -> None:
    events, reply = read_stream(endpoint(protocol), STREAMS[protocol])
    assert reply.text == TEXT
    assert places(reply) == EXPECTED
    assert [event.citation for event in events if type(event) is CitationAdded] == reply.citations
    assert Reply.to_dict(reply)["citations"][0]["url"] == PAGES[0][0]


def client_sources(protocol: str, body: Json) -> list[tuple[Any, ...]]:
    """(url, title, cited piece) of what a client reads; on one wire a source is for a whole block."""
    out: list[tuple[Any, ...]] = []
    match protocol:
        case "openai-chat":
            message = body["choices"][0]["message"]
            for item in message["annotations"]:
                inner = item["url_citation"]
                piece = message["content"][inner["start_index"] : inner["end_index"]]
                out.append((inner["url"], inner["title"], piece or None))
        case "anthropic-messages":
            for block in body["content"]:
                for item in block.get("citations") or ():
                    assert {"cited_text", "encrypted_index", "type"} <= item.keys()
                    out.append((item["url"], item["title"]))
        case "gemini":
            metadata = body["candidates"][0]["groundingMetadata"]
            pages = [(c["web"]["uri"], c["web"]["title"]) for c in metadata["groundingChunks"]]
            for support in metadata.get("groundingSupports", ()):
                out += [(*pages[n], support["segment"]["text"]) for n in support["groundingChunkIndices"]]
            out += [(*page, None) for page in pages if not any(page == found[:2] for found in out)]
        case "openai-responses":
            for item in body["output"]:
                for part in item["content"]:
                    for note in part["annotations"]:
                        piece = part["text"][note["start_index"] : note["end_index"]]
                        out.append((note["url"], note["title"], piece or None))
    return out


def streamed_body(protocol: str, data: bytes) -> Json:
    """The body that a stream adds up to, as far as text and sources go."""
    lines = [line.removeprefix(b"data: ") for line in data.splitlines() if line.startswith(b"data: ")]
    chunks: list[Json] = [json.loads(line) for line in lines if line != b"[DONE]"]
    match protocol:
        case "openai-chat":
            deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
            content = "".join(delta.get("content") or "" for delta in deltas)
            annotations = [item for delta in deltas for item in delta.get("annotations", ())]
            return {"choices": [{"message": {"content": content, "annotations": annotations}}]}
        case "anthropic-messages":
            blocks: list[Json] = []
            for chunk in chunks:
                if chunk["type"] == "content_block_start":
                    blocks.append({"text": "", "citations": []})
                elif chunk["type"] == "content_block_delta" and chunk["delta"]["type"] == "citations_delta":
                    blocks[chunk["index"]]["citations"].append(chunk["delta"]["citation"])
            return {"content": blocks}
        case "gemini":
            return chunks[-1]
    response: Json = chunks[-1]["response"]
    added = [chunk["annotation"] for chunk in chunks if chunk["type"] == "response.output_text.annotation.added"]
    assert added == [note for item in response["output"] for part in item["content"] for note in part["annotations"]]
    return response


PAIRS = [(client, target) for client in PROTOCOLS for target in PROTOCOLS]


@pytest.mark.parametrize(("client", "target"), PAIRS)
def test_every_client_reads_the_sources_of_every_endpoint(client: str, target: str) -> None:
    events, _ = read_stream(endpoint(target), STREAMS[target])
    expected = [found[:2] if client == "anthropic-messages" else found for found in EXPECTED]
    whole = engine.parse_response(endpoint(target), 200, {}, json.dumps(WHOLE[target]).encode())
    assert client_sources(client, engine.encode_reply(client, whole)) == expected
    writer = engine.StreamWriter(client, id="x", model="m")
    data = writer.begin() + b"".join(map(writer.feed, events))
    assert client_sources(client, streamed_body(client, data)) == expected
    if client == target == "anthropic-messages":
        assert b'"encrypted_index":"sealed"' in data


BESIDE = [
    ("perplexity/sonar", {"citations": [page[0] for page in PAGES]}, [(url, None, None) for url, _ in PAGES]),
    (
        "perplexity/sonar",
        {"citations": ["https://c.example"], "search_results": [{"url": u, "title": t} for u, t in PAGES]},
        [(*page, None) for page in PAGES],
    ),
    (
        "zai/glm-5.3",
        {"web_search": [{"link": u, "title": t, "refer": "ref_1", "content": "…"} for u, t in PAGES]},
        [(*page, None) for page in PAGES],
    ),
]


@pytest.mark.parametrize(("name", "keys", "expected"), BESIDE)
def test_sources_beside_the_choices_are_read_once_however_often_they_come(name: str, keys: Json, expected: Any) -> None:
    model = REGISTRY.resolve(name)
    body = {**keys, "choices": [{"message": {"content": "Rain."}, "finish_reason": "stop"}]}
    plan = engine.build_request(model, "Hi")
    deltas: list[Json] = [{"index": 0, "delta": {"content": text}} for text in ("Ra", "i", "n", ".")]
    deltas.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    chunks: list[Json] = [{**keys, "id": "1", "model": "m", "choices": [delta]} for delta in deltas]
    whole = engine.parse_response(model, 200, {}, json.dumps(body).encode(), plan=plan)
    for reply in (whole, read_stream(model, chunks)[1]):
        assert reply.text == "Rain."
        assert places(reply) == expected


@pytest.mark.parametrize("at", ["sources", "usage.sources", "choices.0.sources", "choices.0.delta.sources"])
def test_sources_in_any_place_of_a_chunk_in_the_middle_are_found(at: str, tmp_path: Path) -> None:
    path = tmp_path / "o.toml"
    head = f'[providers.home]\nprotocol = "openai-chat"\nbase_url = "{BASE}"\n'
    path.write_text(f'{head}citations = {{ at = ["{at}"], url = ["url"] }}\n[models."home/m"]\n')
    parser = engine.StreamParser(Registry.load(path).resolve("home/m"))
    for number in range(4):
        choice: Json = {"index": 0, "delta": {"content": "Hi "}}
        chunk: Json = {"id": "r", "model": "m", "choices": [choice]}
        if number == 2:
            usage: Json = {}
            owner = {"sources": chunk, "usage": usage, "choices.0": choice, "choices.0.delta": choice["delta"]}
            owner[at.removesuffix(".sources")]["sources"] = [{"url": "https://a.example"}]
            chunk |= {"usage": usage} if usage else {}
        parser.feed(b"data: %b\n\n" % json.dumps(chunk).encode())
    parser.feed(b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n')
    reply = parser.close()
    assert ([source.url for source in reply.citations], reply.text) == (["https://a.example"], "Hi Hi Hi Hi ")


def test_sources_that_come_first_reach_every_client_in_a_stream() -> None:
    keys: Json = {"web_search": [{"link": u, "title": t} for u, t in PAGES]}
    chunks: list[Json] = [
        {**keys, "choices": [{"index": 0, "delta": {"content": ""}}]},
        {"choices": [{"index": 0, "delta": {"content": "Rain."}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    events, _ = read_stream(REGISTRY.resolve("zai/glm-5.3"), chunks)
    for client in PROTOCOLS:
        writer = engine.StreamWriter(client, id="x", model="m")
        data = writer.begin() + b"".join(map(writer.feed, events))
        assert [found[:2] for found in client_sources(client, streamed_body(client, data))] == PAGES


def test_a_page_without_a_place_is_one_source_whatever_its_title() -> None:
    pages = [{"link": PAGES[0][0], "title": title} for title in ("Rain", "Rain today", "Rain")]
    chunks: list[Json] = [
        {"web_search": [page], "choices": [{"index": 0, "delta": {"content": "Rain."}}]} for page in pages
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    events, reply = read_stream(REGISTRY.resolve("zai/glm-5.3"), chunks)
    assert reply.citations == [Citation(PAGES[0][0], "Rain", seal=reply.citations[0].seal)]
    assert [event.citation for event in events if type(event) is CitationAdded] == reply.citations
    body = engine.encode_reply("openai-chat", reply)
    url, title = PAGES[0]
    place = {"start_index": 0, "end_index": 0}
    annotation = {"type": "url_citation", "url_citation": {**place, "title": title, "url": url}}
    assert body["choices"][0]["message"]["annotations"] == [annotation]


def test_a_source_without_a_page_keeps_its_name() -> None:
    citation = {"type": "page_location", "document_index": 0, "document_title": "Report", "cited_text": "x"}
    body: Json = {"type": "message", "stop_reason": "end_turn"}
    body |= {"content": [{"type": "text", "text": "It grew.", "citations": [citation]}]}
    reply = engine.parse_response(endpoint("anthropic-messages"), 200, {}, json.dumps(body).encode())
    assert [(c.url, c.title, c.start, c.end) for c in reply.citations] == [(None, "Report", 0, 8)]
    for client in PROTOCOLS:
        assert b"Report" in json.dumps(engine.encode_reply(client, reply)).encode()


def test_a_file_that_is_a_source_is_a_search_result_for_a_client_of_messages() -> None:
    file = {"type": "file_citation", "file_id": "f1", "filename": "report.pdf", "index": 8}
    body = {"status": "completed", "output": [{**MESSAGE, "content": [
        {"type": "output_text", "text": "It grew.", "annotations": [file]}]}]}  # fmt: skip
    reply = engine.parse_response(endpoint("openai-responses"), 200, {}, json.dumps(body).encode())
    (block,) = engine.encode_reply("anthropic-messages", reply)["content"]
    place = {"search_result_index": 0, "start_block_index": 0, "end_block_index": 0}
    source = {
        "type": "search_result_location",
        "source": "report.pdf",
        "title": "report.pdf",
        "cited_text": "",
        **place,
    }
    assert block == {"type": "text", "text": "It grew.", "citations": [source]}


def test_positions_that_do_not_fit_are_unknown() -> None:
    message = {"content": f"<think>hm</think>{TEXT}", "annotations": [chat_annotation(0)]}
    body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
    model = REGISTRY.resolve("perplexity/sonar-reasoning-pro")
    [citation] = engine.parse_response(model, 200, {}, body).citations
    assert (citation.url, citation.start, citation.end) == (PAGES[0][0], None, None)
    for odd in ({"start_index": 5, "end_index": 2}, {"start_index": "1", "end_index": None}, {"start_index": -1}):
        message = {"content": TEXT, "annotations": [{"type": "url_citation", "url_citation": {"url": "u", **odd}}]}
        body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
        reply = engine.parse_response(endpoint("openai-chat"), 200, {}, body)
        assert [(c.url, c.start, c.end) for c in reply.citations] == [("u", None, None)]


def test_a_place_within_a_character_moves_no_other_place() -> None:
    """Gemini counts bytes."""
    text = "A好的。 Yes."
    chunks = [{"web": {"uri": "https://example.com/a", "title": "A"}}]
    supports = [{"segment": {"startIndex": start, "endIndex": end}, "groundingChunkIndices": [0]}
                for start, end in ((None, 10), (2, 11), (5, 1000))]  # fmt: skip
    metadata = {"groundingChunks": chunks, "groundingSupports": supports}
    body: Json = {"candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": "STOP",
                                  "groundingMetadata": metadata}]}  # fmt: skip
    reply = engine.parse_response(endpoint("gemini"), 200, {}, json.dumps(body).encode())
    assert reply.text == text
    assert [(c.start, c.end) for c in reply.citations] == [(0, 4), (1, 5)]


def test_the_text_of_a_source_decides_where_its_place_does_not_fit() -> None:
    text, first = "Rain. Sun. Rain.", len("Rain. Sun. ")
    second = {"startIndex": first, "endIndex": len(text), "text": "Rain."}
    wrong = {"startIndex": 1, "endIndex": 5, "text": "Sun."}
    supports = [{"segment": segment, "groundingChunkIndices": [n]} for n, segment in enumerate((second, wrong))]
    grounding = {"groundingChunks": GROUNDING["groundingChunks"], "groundingSupports": supports}
    parts = {"content": {"parts": [{"text": text}]}, "finishReason": "STOP", "groundingMetadata": grounding}
    reply = engine.parse_response(endpoint("gemini"), 200, {}, json.dumps({"candidates": [parts]}).encode())
    assert [(c.start, c.end) for c in reply.citations] == [(first, len(text)), (6, 10)]


def test_a_source_of_another_kind_stands_behind_those_that_its_part_has_already() -> None:
    body = json.dumps(WHOLE["openai-responses"]).encode()
    reply = engine.parse_response(endpoint("openai-responses"), 200, {}, body)
    reply = structs.replace(reply, citations=[*reply.citations, Citation("https://c.example", "C", *SUN)])
    expected = [*EXPECTED, ("https://c.example", "C", "Sun later.")]
    assert client_sources("openai-responses", engine.encode_reply("openai-responses", reply)) == expected


def test_the_sources_of_a_reply_without_text_stand_on_an_empty_one() -> None:
    model = endpoint("anthropic-messages")
    reply = engine.parse_response(model, 200, {}, json.dumps(WHOLE["anthropic-messages"]).encode())
    message = structs.replace(reply.message, parts=(ToolCall("c1", "f", {}, "{}"),))
    reply = structs.replace(reply, message=message, text="", citations=[Citation("https://a.example", "A")])
    content = engine.encode_reply("anthropic-messages", reply)["content"]
    assert [block["type"] for block in content] == ["tool_use", "text"]
    assert [source["url"] for source in content[1]["citations"]] == ["https://a.example"]


def test_no_sources_are_an_empty_list() -> None:
    events, reply = read_stream(endpoint("openai-chat"), [*chat_stream()[:2], chat_stream()[-1]])
    assert reply.citations == []
    assert type(events[-1]) is Finished
    assert Citation("u") == Citation("u", None, None, None, None)


@pytest.mark.parametrize("protocol", ["anthropic-messages", "openai-responses"])
def test_a_source_that_comes_after_its_text_has_ended_reaches_the_client(protocol: str) -> None:
    call = ToolCall("c1", "f", {}, "{}")
    events: list[Event] = [
        TextDelta("Sunny."),
        BlockEnd(0, Text("Sunny.")),
        ToolCallStart(0, "c1", "f"),
        ToolCallDelta(0, "{}"),
        ToolCallEnd(0, call),
        CitationAdded(Citation("https://a.example", "A", 0, 6)),
        Finished("tool_calls"),
    ]
    writer = engine.StreamWriter(protocol, id="x", model="m")
    data = writer.begin() + b"".join(map(writer.feed, events))
    frames = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: ")]
    if protocol == "openai-responses":
        assert "response.output_text.annotation.added" in [frame["type"] for frame in frames]
        (found,) = frames[-1]["response"]["output"][0]["content"][0]["annotations"]
    else:
        (at,) = [n for n, f in enumerate(frames) if f.get("delta", {}).get("type") == "citations_delta"]
        found = frames[at]["delta"]["citation"]
        assert frames[at - 1]["type"] == "content_block_start"
        assert frames[at - 1]["content_block"] == {"type": "text", "text": ""}
        assert frames[at]["index"] == frames[at - 1]["index"] == frames[at + 1]["index"]
    assert found["url"] == "https://a.example"


def test_a_source_that_comes_with_the_end_of_its_item_names_its_own_part() -> None:
    texts = ["It rains. ", "It snows.", " Later."]
    sources = [{"type": "url_citation", "start_index": 0, "end_index": 8, "url": u, "title": u} for u in ("a", "b")]
    part: Json = {"type": "output_text", "logprobs": []}
    contents = [
        {**part, "text": text, "annotations": own}
        for text, own in zip(texts, ([sources[0]], [sources[1]], []), strict=True)
    ]
    item = {**MESSAGE, "content": contents}
    deltas = [
        {"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": n, "delta": text}
        for n, text in enumerate(texts)
    ]
    chunks: list[Json] = [
        {"type": "response.output_item.added", "output_index": 0, "item": {**MESSAGE, "content": []}},
        *deltas,
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {**WHOLE["openai-responses"], "output": [item]}},
    ]
    events, _ = read_stream(endpoint("openai-responses"), chunks)
    writer = engine.StreamWriter("openai-responses", id="x", model="m")
    data = writer.begin() + b"".join(map(writer.feed, events))
    sent = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: ")]
    added = [frame for frame in sent if frame["type"] == "response.output_text.annotation.added"]
    assert [(f["content_index"], f["annotation_index"], f["annotation"]) for f in added] == [
        (0, 0, sources[0]),
        (1, 0, sources[1]),
    ]
    [done] = [frame["item"] for frame in sent if frame["type"] == "response.output_item.done"]
    assert done == sent[-1]["response"]["output"][0]
    assert [(p["text"], p["annotations"]) for p in done["content"]] == [(p["text"], p["annotations"]) for p in contents]


@pytest.mark.parametrize("when", ["at once", "late", "with the item"])
def test_a_file_names_the_part_of_the_text_that_it_stood_on(when: str) -> None:
    texts = ["It rains. ", "It snows.", " Later."]
    file = {"type": "file_citation", "file_id": "f1", "filename": "a.pdf", "index": 3}
    place = {"item_id": "msg_1", "output_index": 0}
    added = {"type": "response.output_text.annotation.added", **place, "content_index": 1, "annotation": file}
    part: Json = {"type": "output_text", "logprobs": []}
    contents = [{**part, "text": text, "annotations": [file] * (text == texts[1])} for text in texts]
    deltas: list[Json] = [
        {"type": "response.output_text.delta", **place, "content_index": n, "delta": text}
        for n, text in enumerate(texts)
    ]
    if when != "with the item":
        deltas.insert(2 if when == "at once" else 3, added)
    item = {**MESSAGE, "content": contents}
    end = {"type": "response.completed", "response": {**WHOLE["openai-responses"], "output": [item]}}
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    head = {"type": "response.output_item.added", "output_index": 0, "item": {**MESSAGE, "content": []}}
    events, reply = read_stream(endpoint("openai-responses"), [head, *deltas, done, end])
    whole = engine.parse_response(endpoint("openai-responses"), 200, {}, json.dumps(end["response"]).encode())
    for one in (reply, whole):
        assert [(c.title, c.start, c.end) for c in one.citations] == [("a.pdf", 10, 19)]
    writer = engine.StreamWriter("openai-responses", id="x", model="m")
    data = writer.begin() + b"".join(map(writer.feed, events))
    sent = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: ")]
    assert [f["content_index"] for f in sent if f["type"] == "response.output_text.annotation.added"] == [1]
    found = [part["annotations"] for part in sent[-1]["response"]["output"][0]["content"]]
    assert found == [[], [file], []]
    for client in ("anthropic-messages", "openai-chat"):
        again = engine.parse_response(
            endpoint(client), 200, {}, json.dumps(engine.encode_reply(client, whole)).encode()
        )
        assert [(c.title, c.start, c.end) for c in again.citations] == [("a.pdf", 10, 19)], client


def test_a_source_that_comes_last_stands_in_the_message_that_it_is_for() -> None:
    """As Gemini gives sources, of texts around a call for example."""
    call = ToolCall("c1", "f", {}, "{}")
    events: list[Event] = [
        TextDelta("Sunny."),
        BlockEnd(0, Text("Sunny.")),
        ToolCallStart(0, "c1", "f"),
        ToolCallDelta(0, "{}"),
        ToolCallEnd(0, call),
        TextDelta("Cold."),
        BlockEnd(2, Text("Cold.")),
        CitationAdded(Citation("https://a.example", "A", 0, 6)),
        CitationAdded(Citation("https://b.example", "B", 6, 11)),
        Finished("tool_calls"),
    ]
    writer = engine.StreamWriter("openai-responses", id="x", model="m")
    data = writer.begin() + b"".join(map(writer.feed, events))
    sent = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: ")]
    messages = [item for item in sent[-1]["response"]["output"] if item["type"] == "message"]
    spans = [
        [(note["url"], note["start_index"], note["end_index"]) for note in item["content"][0]["annotations"]]
        for item in messages
    ]
    assert spans == [[("https://a.example", 0, 6)], [("https://b.example", 0, 5)]]
    added = [frame["item_id"] for frame in sent if frame["type"] == "response.output_text.annotation.added"]
    assert added == [item["id"] for item in messages]


def recited(number: int, **more: Any) -> Json:
    url, title = PAGES[number]
    start, end = in_bytes((RAIN, SUN)[number])["startIndex"], in_bytes((RAIN, SUN)[number])["endIndex"]
    return {"startIndex": start, "endIndex": end, "uri": url, "title": title, **more}


@pytest.mark.parametrize("key", ["citations", "citationSources"])
def test_sources_of_what_an_answer_repeats_are_its_sources(key: str) -> None:
    begin, end = TEXT[: SUN[0]], TEXT[SUN[0] :]

    def candidate(text: str, items: list[Json], **more: Any) -> Json:
        return {"candidates": [{"content": {"parts": [{"text": text}]}, "citationMetadata": {key: items}, **more}]}

    both = [recited(0, license="mit"), recited(1)]
    stop = {"finishReason": "STOP"}
    body = candidate(TEXT, both, **stop)
    replies = [
        engine.parse_response(endpoint("gemini"), 200, {}, json.dumps(body).encode()),
        read_stream(endpoint("gemini"), [candidate(begin, both[:1]), candidate(end, both[1:], **stop)])[1],
        read_stream(endpoint("gemini"), [candidate(begin, both[:1]), candidate(end, both, **stop)])[1],
    ]
    for reply in replies:
        assert [(one.url, one.title, TEXT[one.start : one.end]) for one in reply.citations] == [
            (*PAGES[0], "Rain today."),
            (*PAGES[1], "Sun later."),
        ]
        assert reply.extra["citationMetadata"] == {key: both}
        [own] = engine.encode_reply("gemini", reply)["candidates"]
        assert own["citationMetadata"] == {key: both}
        assert "groundingMetadata" not in own


def test_an_event_has_the_sources_of_its_chunk_and_the_last_one_all() -> None:
    """So that a stream of many chunks takes time and bytes in its own size."""
    pages = [{"startIndex": n, "endIndex": n + 1, "uri": f"https://example.org/{n}"} for n in range(9)]
    chunks: list[Json] = [
        {"candidates": [{"content": {"parts": [{"text": "a"}]}, "citationMetadata": {"citations": [page]}}]}
        for page in pages
    ]
    odd = {"candidates": [{"content": {"parts": []}, "citationMetadata": "none"}]}
    stop = {"candidates": [{"finishReason": "STOP"}]}
    events, reply = read_stream(endpoint("gemini"), [*chunks, stop])
    found = [event.extra["citationMetadata"]["citations"] for event in events if isinstance(event, ExtraAdded)]
    assert found == [*([page] for page in pages), pages]
    assert reply.extra["citationMetadata"] == {"citations": pages}
    assert read_stream(endpoint("gemini"), [*chunks, odd, stop])[1].finish == "stop"
