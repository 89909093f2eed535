"""Bodies that nobody should send: each gets a 400 in its wire's shape, and the server goes on."""

import http.client
import json
import socket
from collections.abc import Callable
from typing import Any

from cases import each

import cnllm
from cnllm.simulator.server import running

DEEP = 200_000
FORM = '{{"model": "MODEL", "messages": [{{"role": "user", "content": "hi"}}], {}}}'
BODIES: dict[str, bytes] = {
    "arrays": b"[" * DEEP + b"]" * DEEP,
    "objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "never closed": b'{"messages":' + b"[" * DEEP,
    "in a field": FORM.format('"metadata": ' + "[" * DEEP + "]" * DEEP).encode(),
    "in a field, less deep": FORM.format('"metadata": ' + "[" * 900 + "]" * 900).encode(),
    "in a schema": FORM.format('"tools": [' + '{"a":' * 700 + "1" + "}" * 700 + "]").encode(),
    "a huge number": FORM.format('"seed": ' + "9" * 100_000 + '"').encode(),
    "invalid UTF-8": b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}',
    "half of a pair": b'{"messages": [{"role": "user", "content": "\\ud83d"}]}',
    "no object": b'"text"',
    "nothing": b"",
}
MODELS = {"/v1/messages": b"anthropic/x", "/v1/responses": b"openai/x"}
PATHS: dict[str, Callable[[Any], Any]] = {
    "/deepseek/chat/completions": lambda error: error["error"]["message"],
    "/v1/chat/completions": lambda error: error["error"]["message"],
    "/v1/messages": lambda error: (error["type"] == "error") and error["error"]["message"],
    "/v1/responses": lambda error: error["error"]["message"],
}


def post(port: int, path: str, body: bytes) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"content-type": "application/json", "authorization": "Bearer k", "x-api-key": "k"}
    try:
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_every_hostile_body_gets_a_400_and_the_server_lives_on() -> None:
    with running(cnllm.Registry.load()) as server:
        for path, message in PATHS.items():
            for name, body in BODIES.items():
                status, said = post(server.port, path, body.replace(b"MODEL", MODELS.get(path, b"deepseek/x")))
                assert status == 400, (path, name, status, said[:200])
                assert message(json.loads(said)), (path, name)
        whole = json.dumps({"model": "deepseek/deepseek-chat", "messages": [{"role": "user", "content": "hi"}]})
        assert post(server.port, "/v1/models/..%2f..%2fx:generateContent", whole.encode())[0] == 404
        with socket.create_connection(("127.0.0.1", server.port)) as peer:  # a chunk that breaks off
            peer.sendall(b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nff\r\n{")
            peer.shutdown(socket.SHUT_WR)
            assert peer.recv(65536).startswith(b"HTTP/1.1 400")
        assert post(server.port, "/v1/messages", b"{}")[0] == 400


@each("value", ["1e999", "-1e999", "9" * 400, "1" * 5000])
def test_numbers_beyond_any_type_do_not_break_the_server(value: str) -> None:
    with running(cnllm.Registry.load()) as server:
        for field in ("seed", "max_tokens", "temperature"):
            form = (
                f'{{"model": "deepseek-flash", "messages": [{{"role": "user", "content": "hi"}}], "{field}": {value}}}'
            )
            assert post(server.port, "/deepseek/chat/completions", form.encode())[0] in (200, 400)
