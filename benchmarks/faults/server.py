"""Plays answers on loopback: `/<number>/…` gets that case, as often as it is asked for."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence

from benchmarks.faults.answers import Case, Step

PATIENCE = 60.0  # seconds that anything is played for
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CASE = re.compile(rb"/(\d+)/")


@contextlib.contextmanager
def serving(cases: Sequence[Case]) -> Iterator[int]:
    """Yield the port."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        threading.Thread(target=_accept, args=(listener, cases), daemon=True).start()
        yield listener.getsockname()[1]


def _accept(listener: socket.socket, cases: Sequence[Case]) -> None:
    while True:
        try:
            peer, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_serve, args=(peer, cases), daemon=True).start()


def _serve(peer: socket.socket, cases: Sequence[Case]) -> None:
    """Answer one request, then close the connection, whatever was promised."""
    with peer, contextlib.suppress(OSError):
        peer.settimeout(PATIENCE)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = b""
        while b"\r\n\r\n" not in data:
            data += _some(peer)
        length = _LENGTH.search(data)
        need = data.index(b"\r\n\r\n") + 4 + (int(length[1]) if length else 0)
        while len(data) < need:
            data += _some(peer)
        found = _CASE.search(data)
        for step in cases[int(found[1])].steps if found else ():
            _play(peer, step)
        with contextlib.suppress(OSError):
            peer.shutdown(socket.SHUT_WR)
            peer.settimeout(0.2)
            peer.recv(1)  # so that what was sent is not lost to a reset


def _some(peer: socket.socket) -> bytes:
    if not (piece := peer.recv(65536)):
        raise ConnectionResetError("the client went away")
    return piece


def _play(peer: socket.socket, step: Step) -> None:
    until = time.monotonic() + PATIENCE
    if step.do == "reset":
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
    elif step.do == "stay":
        if select.select([peer], [], [], step.every or PATIENCE)[0]:
            raise ConnectionResetError("the client went away")
    elif step.times:
        for _ in range(step.times):
            peer.sendall(step.data)
    else:
        while time.monotonic() < until:
            peer.sendall(step.data)
            time.sleep(step.every)
