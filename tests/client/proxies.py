"""Proxies on this machine, for tests: HTTP's (CONNECT and forwarding) and SOCKS5. They keep what they are asked for."""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self


class Proxy:
    """Takes connections and passes bytes on; with `refuse` it answers this and closes. `asked`: host:port, in order."""

    scheme = "http"

    def __init__(self, refuse: bytes | None = None, password: str = "") -> None:
        self.asked: list[str] = []
        self._refuse = refuse
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.place = f"127.0.0.1:{self.port}"
        self.url = f"{self.scheme}://{f'me:{password}@' if password else ''}{self.place}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.close()

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(one)
            threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError), one:
            if (first := self._greet(one)) is not None:
                place, sent = first
                host, _, port = place.rpartition(":")
                with socket.create_connection((host, int(port))) as other:
                    self._open.append(other)
                    other.sendall(sent)
                    threading.Thread(target=_pump, args=(other, one), daemon=True).start()
                    _pump(one, other)

    def _greet(self, one: socket.socket) -> tuple[str, bytes] | None:
        """Where to, and what to send there at once."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += _some(one)
        method, target, _ = data.split(b"\r\n")[0].decode().split()
        place = target if method == "CONNECT" else target.split("/")[2]
        self.asked.append(f"{method} {place}")
        if self._refuse is not None:
            one.sendall(self._refuse)
            return None
        if method == "CONNECT":
            one.sendall(b"HTTP/1.1 200 Established\r\n\r\n")
            return place, b""
        return place, data


class Socks(Proxy):
    """SOCKS5, without a password."""

    scheme = "socks5"

    def _greet(self, one: socket.socket) -> tuple[str, bytes] | None:
        methods = _exactly(one, _exactly(one, 2)[1])
        one.sendall(b"\x05\x00" if 0 in methods else b"\x05\xff")
        kind = _exactly(one, 4)[3]
        size = {1: 4, 4: 16}.get(kind) or _exactly(one, 1)[0]
        host = _exactly(one, size)
        port = int.from_bytes(_exactly(one, 2), "big")
        shown = socket.inet_ntoa(host) if kind == 1 else host.decode("latin-1")
        self.asked.append(f"{shown}:{port}")
        if self._refuse is not None:
            one.sendall(self._refuse)
            return None
        one.sendall(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
        return f"{shown}:{port}", b""


def _pump(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_WR)


def _some(one: socket.socket) -> bytes:
    data = one.recv(65536)
    if not data:
        raise EOFError
    return data


def _exactly(one: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = one.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data
