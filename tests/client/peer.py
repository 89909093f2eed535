"""A peer on a real socket. It plays one script of steps for each request, and keeps what it was sent.

    with Peer([chunked(b"hello")]) as peer:
        ...                             # http://127.0.0.1:port/v1 is peer.url
        assert peer.received[0].json()

Scripts are played in the order in which requests come, the last one again and again. A connection is kept for the next
request unless its script ends it.
"""

import contextlib
import json
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

_PATIENCE = 20.0  # seconds after which a script is given up: no test takes that long


@dataclass(frozen=True)
class Wait:
    """Go on once the test says so."""

    until: threading.Event


@dataclass(frozen=True)
class Again:
    """The same bytes every so often, until the client goes away."""

    data: bytes
    every: float = 0.05


@dataclass(frozen=True)
class Pause:
    """Take some time."""

    seconds: float


class Stay:
    """Say nothing until the client goes away."""


class Reset:
    """Tear the connection down with RST."""


class Close:
    """Close the connection."""


Step = bytes | Wait | Pause | Again | Stay | Reset | Close
Script = Sequence[Step]


@dataclass(frozen=True)
class Received:
    """One request: when its end came, and on which connection (the first is 0)."""

    at: float
    connection: int
    line: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        decoded: dict[str, Any] = json.loads(self.body)
        return decoded


class Peer:
    """See the module. `gone` is set when a client has closed a connection that the peer would have kept.

    One that `refuses` has its port, but takes no connection before `listen`. With `tls` it speaks https; `greeted` is
    set when a client and it have agreed, and what it sends of its own accord thereafter is sent.
    """

    def __init__(
        self, *scripts: Script, refuses: bool = False, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
    ) -> None:
        self.scripts = scripts
        self.received: list[Received] = []
        self.connections = 0
        self.gone = threading.Event()
        self.greeted = threading.Event()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._tls = tls
        self._listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._listener.bind((host, 0))
        self._refuses = refuses
        self.port: int = self._listener.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http{'s' if tls else ''}://{shown}:{self.port}/v1"

    def __enter__(self) -> Self:
        if not self._refuses:
            self.listen()
        return self

    def listen(self) -> None:
        """Take connections from now on."""
        self._listener.listen(256)
        self._start(self._accept)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        with contextlib.suppress(OSError):  # macOS refuses this on a listener; closing wakes accept there
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(_PATIENCE)

    def hang_up(self) -> None:
        """Close every connection from this side, as a server does with those that are idle."""
        with self._lock:
            for peer in self._open:
                with contextlib.suppress(OSError):
                    peer.shutdown(socket.SHUT_RDWR)

    # ── connections ──────────────────────────────────────────────────────────
    def _start(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                number, self.connections = self.connections, self.connections + 1
                self._open.add(peer)
            self._start(self._serve, peer, number)

    def _serve(self, peer: socket.socket, number: int) -> None:
        try:
            peer.settimeout(_PATIENCE)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                plain, peer = peer, self._tls.wrap_socket(peer, server_side=True)
                with self._lock:
                    self._open.discard(plain)
                    self._open.add(peer)
                self.greeted.set()
            while (request := self._read(peer, number)) is not None:
                with self._lock:
                    script = self.scripts[min(len(self.received), len(self.scripts) - 1)]
                    self.received.append(request)
                if not all(self._play(peer, step) for step in script):
                    return
            self._note_gone()
        except OSError:
            return  # the client went away, which is its right
        finally:
            with self._lock:
                self._open.discard(peer)
                peer.close()

    def _play(self, peer: socket.socket, step: Step) -> bool:
        """False: the connection is over."""
        match step:
            case bytes():
                peer.sendall(step)
            case Wait(until):
                began = time.monotonic()
                while not until.wait(0.02):
                    if self._over.is_set() or time.monotonic() - began > _PATIENCE:
                        return False
            case Pause(seconds):
                self._over.wait(seconds)
            case Again(data, every):
                while not self._left(peer, every):
                    try:
                        peer.sendall(data)
                    except OSError:
                        break
                self._note_gone()
                return False
            case Stay():
                while not self._left(peer, _PATIENCE):
                    pass
                self._note_gone()
                return False
            case Reset():
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            case Close():
                return False
        return True

    def _left(self, peer: socket.socket, within: float) -> bool:
        """Has the client closed its side?"""
        readable, _, _ = select.select([peer], [], [], within)
        if not readable:
            return False
        try:
            return not peer.recv(65536)
        except OSError:
            return True

    def _note_gone(self) -> None:
        if not self._over.is_set():
            self.gone.set()

    @staticmethod
    def _read(peer: socket.socket, number: int) -> Received | None:
        data = b""
        while b"\r\n\r\n" not in data:
            piece = peer.recv(65536)
            if not piece:
                return None
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (ln.partition(":") for ln in lines)}
        length = int(headers.get("content-length", 0))
        while len(body) < length:
            piece = peer.recv(65536)
            if not piece:
                return None
            body += piece
        return Received(time.monotonic(), number, line, headers, body)


# ── what a peer says ─────────────────────────────────────────────────────────
JSON = {"content-type": "application/json"}
SSE = {"content-type": "text/event-stream"}


def head(status: int = 200, kind: Mapping[str, str] = SSE, /, **more: str) -> bytes:
    """A status line and headers. Without a length the body ends with the connection."""
    fields = {**kind, **{name.replace("_", "-"): value for name, value in more.items()}}
    return f"HTTP/1.1 {status} x\r\n".encode() + b"".join(f"{k}: {v}\r\n".encode() for k, v in fields.items()) + b"\r\n"


def answer(status: int, body: bytes, kind: Mapping[str, str] = JSON, /, **more: str) -> bytes:
    """A response of known length; the connection can go on."""
    return head(status, kind, content_length=str(len(body)), **more) + body


def piece(data: bytes) -> bytes:
    """One chunk of a chunked body; of nothing, the end."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def chunked(*pieces: bytes, status: int = 200, headers: Mapping[str, str] = SSE, end: bool = True) -> bytes:
    """A response in chunks, with or without its end."""
    return head(status, headers, transfer_encoding="chunked") + b"".join(map(piece, [*pieces, *([b""] if end else [])]))


# ── what an endpoint says ────────────────────────────────────────────────────
Json = dict[str, Any]


def frame(payload: Json | str) -> bytes:
    text = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
    return b"data: " + text.encode() + b"\n\n"


DONE = frame("[DONE]")


def delta(content: str | None = None, finish: str | None = None, **more: Any) -> bytes:
    """One chunk of a stream: a piece of text, and whatever else."""
    said = {**({} if content is None else {"content": content}), **more}
    choice = {"index": 0, "delta": said, "finish_reason": finish}
    return frame({"id": "r1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]})


def call_delta(index: int = 0, arguments: str = "", **more: Any) -> bytes:
    """A piece of a tool call; its id and name go into the first one."""
    function = {"arguments": arguments, **({"name": more.pop("name")} if "name" in more else {})}
    return delta(tool_calls=[{"index": index, "type": "function", "function": function, **more}])


def usage(given: int = 3, written: int = 4) -> bytes:
    counts = {"prompt_tokens": given, "completion_tokens": written, "total_tokens": given + written}
    return frame({"id": "r1", "model": "m", "choices": [], "usage": counts})


def texts(*pieces: str) -> list[bytes]:
    return [delta(text) for text in pieces]


def whole(text: str | None = "The sky is blue.", finish: str = "stop", **message: Any) -> bytes:
    """A whole reply's body."""
    said = {"role": "assistant", "content": text, **message}
    choice = {"index": 0, "message": said, "finish_reason": finish}
    counts = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    reply = {"id": "r1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": counts}
    return json.dumps(reply).encode()


def failure(message: str, code: str | int | None = None, **more: Any) -> bytes:
    return json.dumps({"error": {"message": message, "code": code, **more}}).encode()


def refused(status: int, message: str = "no", code: str | None = None, **headers: str) -> bytes:
    """A whole response that refuses."""
    return answer(status, failure(message, code), JSON, **headers)


def reply(text: str = "The sky is blue.", **more: Any) -> bytes:
    """A whole response that answers."""
    return answer(200, whole(text, **more))


def stream(*events: bytes, end: bool = True) -> bytes:
    """A streamed response: one chunk an event."""
    return chunked(*events, end=end)


def said(*pieces: str) -> Iterable[bytes]:
    """A whole stream's events: text, finish, usage, the end."""
    return [*texts(*pieces), delta(finish="stop"), usage(), DONE]


def redirect(to: str, status: int = 307, body: bytes = b"", headers: Mapping[str, str] = JSON) -> bytes:
    return answer(status, body, headers, location=to)
