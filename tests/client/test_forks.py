"""A process that forks while connections are kept: each process gets its own replies, and the parent keeps its own."""

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from . import certificate
from .peer import JSON, answer, chunked, said, whole

pytest.importorskip("httptools", reason="the extra cnllm-client[fast] is not installed")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

PROGRAM = Path(__file__).with_name("forks.py")
PATIENCE = 60


class Echo:
    """A server whose replies say what the request says, and which notes the connection of each."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self.tls = tls
        self.seen: dict[str, set[int]] = {}
        self.ends: dict[int, str] = {}
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.listener.getsockname()[1]}/v1"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        number = 0
        while True:
            try:
                one, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(one, number), daemon=True).start()
            number += 1

    def _serve(self, one: socket.socket, number: int) -> None:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self.tls is not None:
                one = self.tls.wrap_socket(one, server_side=True)
            while (body := self._read(one)) is not None:
                request = json.loads(body)
                text = request["messages"][-1]["content"]
                self.seen.setdefault(text.rpartition(" ")[0], set()).add(number)
                if request.get("stream"):
                    first, *rest = said(*(f"{word}{' ' * (n == 0)}" for n, word in enumerate(text.split())))
                    one.sendall(chunked(first, end=False))
                    threading.Event().wait(0.3)  # the children are forked meanwhile, and read
                    one.sendall(chunked(*rest).partition(b"\r\n\r\n")[2])
                else:
                    one.sendall(answer(200, whole(text), JSON))
            self.ends[number] = "closed"
        except OSError as error:
            self.ends[number] = type(error).__name__
        finally:
            one.close()

    @staticmethod
    def _read(one: socket.socket) -> bytes | None:
        data = b""
        while b"\r\n\r\n" not in data:
            piece = one.recv(65536)
            if not piece:
                return None
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        while len(body) < size:
            body += one.recv(65536)
        return body


@pytest.mark.parametrize("encrypted", [False, True], ids=["http", "https"])
def test_each_process_gets_its_own_replies(encrypted: bool, tmp_path: Path) -> None:
    tls = None
    if encrypted:
        certificate.make(tmp_path)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    echo = Echo(tls)
    environment = {**os.environ, "SSL_CERT_FILE": str(tmp_path / "cert.pem")} if encrypted else dict(os.environ)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), echo.url], env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    echo.listener.close()
    assert (done.stdout, done.returncode) == ("", 0), done.stderr
    parents = {who: over for who, over in echo.seen.items() if who.endswith("parent") and who != "stream parent"}
    assert len(parents) == 4
    assert all(len(over) == 1 for over in parents.values()), parents
    children = [next(iter(over)) for who, over in echo.seen.items() if "child" in who]
    assert len(children) == len(set(children)) >= 24
    assert not {next(iter(over)) for over in parents.values()} & set(children)
