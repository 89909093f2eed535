"""Replies that are odd: what can be read is a result, and what cannot fails its call at once, by its own reason."""

from __future__ import annotations

import codecs
import json
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import cnllm
from cnllm import McpError
from cnllm.mcp_client import McpTools
from cnllm.mcp_client.line_codec import line_encoding

from .support import PLAIN, SOON
from .test_http import serving, tool

HALF = r'{"jsonrpc": "2.0", "id": ID, "result": {"content": [{"type": "text", "text": "C:\\\ud83d\ude00 \ud83d"}]}}'
WHOLE = "C:\\\U0001f600 \ufffd"


@pytest.fixture
def server() -> Iterator[McpTools]:
    with cnllm.mcp([sys.executable, "-S", str(PLAIN.with_name("replies.py"))], timeout=SOON) as tools:
        yield tools


def test_a_text_that_was_cut_inside_a_character_is_a_result(server: McpTools) -> None:
    assert server.call("reply", {"line": HALF}).text == WHOLE


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_text_that_was_cut_inside_a_character_is_a_result_over_http(size: int) -> None:
    def send(connection: socket.socket, id: Any) -> None:
        event = f"event: message\ndata: {HALF.replace('ID', str(id))}\n\n".encode()
        with suppress(OSError):
            for start in range(0, len(event), size):
                connection.sendall(event[start : start + size])

    with serving(stream=send) as url, cnllm.mcp(url, timeout=SOON) as tools:
        assert tools.call("t").text == WHOLE
    with serving(lambda id: (HALF.replace("ID", str(id)).encode(), None)) as url, cnllm.mcp(url) as tools:
        assert tools.call("t").text == WHOLE


UNREADABLE = [
    '{"jsonrpc": "2.0", "id": ID, "error": null}',
    '{"jsonrpc": "2.0", "id": ID, "error": {"code": "E1", "message": "sk-0123456789abcdefghij"}}',
    '{"jsonrpc": "2.0", "id": ID}',
]


@pytest.mark.parametrize("line", UNREADABLE)
def test_a_reply_that_cannot_be_read_fails_its_call_at_once(server: McpTools, line: str) -> None:
    with pytest.raises(McpError, match=r"its answer has another form than the protocol's$"):
        server.call("reply", {"line": line})
    with (
        serving(lambda id: (line.replace("ID", str(id)).encode(), None)) as url,
        cnllm.mcp(url) as tools,
        pytest.raises(McpError, match=r"its answer has another form than the protocol's$"),
    ):
        tools.call("t")


DEEP = [
    '{"jsonrpc": "2.0", "id": ID, "result": {"content": [], "structuredContent": {"a": DEEP}}}',
    '{"jsonrpc": "2.0", "result": {"content": [], "_meta": {"a": DEEP}}, "id": ID}',
    '{"jsonrpc": "2.0", "id": ID, "error": {"code": 1, "message": "no", "data": DEEP}}',
]


@pytest.mark.parametrize("levels", [300, 5_000])
@pytest.mark.parametrize("line", DEEP)
def test_a_reply_that_is_nested_too_deeply_fails_its_call_at_once(server: McpTools, line: str, levels: int) -> None:
    line = line.replace("DEEP", "[" * levels + "]" * levels)
    with pytest.raises(McpError, match=r"^the MCP server replies failed: its answer is nested too deeply$"):
        server.call("reply", {"line": line})
    with (
        serving(lambda id: (line.replace("ID", str(id)).encode(), None)) as url,
        cnllm.mcp(url) as tools,
        pytest.raises(McpError, match=r"its answer is nested too deeply$"),
    ):
        tools.call("t")
    assert server.call("reply", {"line": HALF}).text == WHOLE


def test_a_call_is_made_again_with_the_state_that_its_server_wants_back() -> None:
    with cnllm.mcp([sys.executable, "-S", str(PLAIN.with_name("rounds.py"))], timeout=SOON) as tools:
        assert tools.call("slow", {"rounds": 0}).text == "done in round 0"
        assert tools.call("slow", {"rounds": 3}).text == "done in round 3"
        with pytest.raises(McpError, match=r"failed: it asks for input \(elicitation/create\), and gets none$"):
            tools.call("slow", {"ask": True})
        assert tools.call("slow", {"rounds": 1}).text == "done in round 1"


def test_a_call_whose_server_never_ends_it_is_given_up() -> None:
    with (
        cnllm.mcp([sys.executable, "-S", str(PLAIN.with_name("rounds.py"))], timeout=1) as tools,
        pytest.raises(McpError, match="gave no result in 1 s"),
    ):
        tools.call("slow", {"rounds": 1_000_000})


def test_an_error_with_the_code_of_a_closed_connection_keeps_its_own_words(server: McpTools) -> None:
    line = {"jsonrpc": "2.0", "id": "ID", "error": {"code": -32000, "message": "the disk is full"}}
    with pytest.raises(McpError, match="failed: the disk is full"):
        server.call("reply", {"line": json.dumps(line)})


def test_a_list_of_many_pages_is_whole_and_one_without_an_end_is_an_error() -> None:
    with serving(pages=[[tool(f"t{number}")] for number in range(150)]) as url:
        assert len(cnllm.mcp(url).tools()) == 150
    with (
        serving(pages=[[tool(f"t{number}")] for number in range(1100)]) as url,
        pytest.raises(McpError, match="more than 1,000 pages"),
    ):
        cnllm.mcp(url, start_timeout=SOON * 3, list_timeout=SOON * 3).tools()


def test_a_damaged_tool_leaves_the_others_of_its_list() -> None:
    listed: list[Any] = [
        tool("first"),
        {"name": "no schema"},
        {"name": "a list", "inputSchema": []},
        {"name": "of text", "inputSchema": {"type": "string"}},
        {"name": "names", "inputSchema": {"type": "object", "required": "text"}},
        {**tool("x"), "name": 7},
        None,
        {"name": "without_type", "inputSchema": {"properties": {"a": {"type": "string"}}}},
        {**tool("adorned"), "icons": 3, "annotations": [], "outputSchema": {"type": "array"}, "title": 4},
        tool("last"),
    ]
    form = "its definition has another form than the protocol's"
    with serving(pages=[listed]) as url:
        tools = cnllm.mcp(url, name="x")
        assert [made.name for made in tools.tools()] == [
            f"x__{name}" for name in ("first", "without_type", "adorned", "last")
        ]
        assert tools.tools()[1].parameters == {"type": "object", "properties": {"a": {"type": "string"}}}
        assert tools.skipped == (
            ("no schema", f"{form} (inputSchema)"),
            ("a list", f"{form} (inputSchema)"),
            ("of text", f"{form} (inputSchema.type)"),
            ("names", f"{form} (inputSchema.required)"),
            ("?", f"{form} (name)"),
            ("?", f"{form} (inputSchema)"),
        )
        with pytest.raises(McpError, match=r"cannot offer its tool of text: its definition .* \(inputSchema\.type\)"):
            cnllm.mcp(url, tools=["of text"]).tools()


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ('{"content": [{"type": "text", "text": "done", "annotations": 3}], "isError": true}', "done"),
        (
            '{"content": [{"type": "hologram"}, {"type": "text", "text": "b"}]}',
            "[content left out: it has another form",
        ),
        ('{"content": ["done", null]}', "[content left out: it has another form"),
        ('{"content": [{"type": "text", "text": "done"}], "structuredContent": [1]}', "done"),
        ('{"content": [], "structuredContent": [1, "中"]}', '[1, "中"]'),
        ('{"structuredContent": {"a": 1}}', '{"a":1}'),
    ],
)
def test_a_damaged_block_leaves_the_others_of_its_result(server: McpTools, result: str, text: str) -> None:
    found = server.call("reply", {"line": f'{{"jsonrpc": "2.0", "id": ID, "result": {result}}}'})
    assert found.text.startswith(text)
    assert found.error is ("isError" in result)


def test_half_of_a_character_in_arguments_ends_no_session(server: McpTools) -> None:
    line = '{"jsonrpc": "2.0", "id": ID, "result": {"content": [{"type": "text", "text": "fine \ud83d"}]}}'
    assert server.call("reply", {"line": line, "\ud800": [{"a": "\udfff"}]}).text == "fine \ufffd"
    with pytest.raises(McpError):
        server.call("reply", {"line": object()})
    assert server.call("reply", {"line": line}).text == "fine \ufffd"


LONG = '"result": {"content": [{"type": "text", "text": "FILL"}]}'


def test_a_long_line_is_read_in_one_piece(server: McpTools) -> None:
    """With each piece copied again, it took a minute."""
    start = time.monotonic()
    line = f'{{"jsonrpc": "2.0", "id": ID, {LONG}}}'
    assert server.call("reply", {"line": line, "fill": 60_000_000}).text.endswith("[cut off after 500000 characters]")
    assert time.monotonic() - start < SOON


@pytest.mark.parametrize("line", [f'{{"jsonrpc": "2.0", "id": ID, {LONG}}}', f'{{{LONG}, "jsonrpc": "2.0", "id": ID}}'])
def test_a_line_that_is_too_long_fails_its_call_alone(server: McpTools, line: str) -> None:
    with pytest.raises(McpError, match="its answer has more than 67,108,864 bytes"):
        server.call("reply", {"line": line, "fill": 70_000_000})
    assert server.call("reply", {"line": line}).text == ""
    notice = (
        '{"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "FILL", "id": ID}}'
    )
    assert (
        server.call("reply", {"line": f"{notice}\n{line.replace('FILL', 'fine')}", "fill": 70_000_000}).text == "fine"
    )


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_lines_are_whole_whatever_the_pieces_are(size: int) -> None:
    data = "one\n\ntwo 中😀\r\n".encode() + b"\xff\xc3\nthe rest"
    decoder = codecs.getincrementaldecoder(line_encoding())(errors="replace")
    texts = [decoder.decode(data[start : start + size]) for start in range(0, len(data), size)]
    assert all(text.endswith("\n") for text in texts if text)
    assert "".join(texts) == "one\n\ntwo 中😀\r\n\ufffd\ufffd\n"
