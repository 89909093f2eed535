"""Servers of other projects, where they are installed: from PyPI over stdio, and from npm over both transports.

pip install mcp-server-time mcp-server-git; npm install -g @modelcontextprotocol/server-everything
"""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import cnllm
from cnllm import Client

from .support import SOON, names, own_threads

MODEL = "glm-4.7"


def program(name: str) -> str:
    """The path of an installed server; the test is skipped where there is none."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def test_the_time_server_of_pypi() -> None:
    with Client(simulate=True) as client:
        tools = cnllm.mcp([program("mcp-server-time"), "--local-timezone=UTC"])
        run = client.run(MODEL, "Asia/Shanghai", tools=[tools])
    (result,) = run.steps[0].results
    assert (result.name, result.error) == ("time__get_current_time", False)
    assert json.loads(result.text)["timezone"] == "Asia/Shanghai"
    assert own_threads() == []


def test_the_git_server_of_pypi(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "new.txt").write_text("x")
    with cnllm.mcp([program("mcp-server-git"), "--repository", str(tmp_path)]) as tools:
        assert "git__git_status" in names(tools.tools())
        assert "new.txt" in tools.call("git_status", {"repo_path": str(tmp_path)}).text


@pytest.fixture(params=["stdio", "streamableHttp"])
def everything(request: pytest.FixtureRequest) -> Iterator[list[str] | str]:
    """The server of npm that has a tool for each feature of the protocol."""
    path = program("mcp-server-everything")
    if request.param == "stdio":
        yield [path, "stdio"]
        return
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    process = subprocess.Popen(
        [path, "streamableHttp"], env={**os.environ, "PORT": str(port)}, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        said = b""
        while b"listening" not in said.lower():
            readable, _, _ = select.select([process.stderr], [], [], SOON)
            assert readable, said
            piece = os.read(process.stderr.fileno(), 4096)
            assert piece, said
            said += piece
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.communicate()


def test_the_server_of_npm_with_every_feature(everything: list[str] | str) -> None:
    with cnllm.mcp(everything, name="all") as tools:
        offered = names(tools.tools())
        assert "all__echo" in offered
        assert tools.call("echo", {"message": "hi"}).text == "Echo: hi"
        (picture,) = tools.call("get-tiny-image").media
        assert picture.type == "image/png"
    with Client(simulate=True) as client:
        run = client.run(MODEL, "a green tree", tools=[cnllm.mcp(everything, name="all", tools=["echo"])])
    assert run.steps[0].results[0].text == "Echo: a green tree"
    assert own_threads() == []
