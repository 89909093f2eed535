"""Names of servers and tools: every endpoint accepts them, and no two tools share one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cnllm
from cnllm.mcp_client import server

VALID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


@given(st.text(), st.lists(st.text(), unique=True))
def test_names_are_valid_and_differ_and_stay_the_same(label: str, tools: list[str]) -> None:
    made = server.label_of(label)
    offered = [server.tool_name(made, tool) for tool in tools]
    assert all(VALID.fullmatch(name) for name in offered)
    assert len(set(offered)) == len(offered)
    assert offered == [server.tool_name(made, tool) for tool in tools]
    assert all(name.partition("__")[0] == made for name in offered)


@pytest.mark.parametrize(
    ("command", "label"),
    [
        ("uvx mcp-server-time --local-timezone=UTC", "time"),
        ("npx -y @modelcontextprotocol/server-everything stdio", "everything"),
        ("python3.11 -m mcp_server_git", "git"),
        ("docker run -i --rm mcp/time:1.2", "time"),
        ("uv run server.py", "server"),
        ("/opt/tools/weather.sh --x y", "weather"),
        ("uvx mcp-server-git==2.0", "git"),
        ("python -c 'import x; x.run()'", "python"),
        ("http://127.0.0.1:8000/mcp", "at_127_0_0_1"),
        ("https://mcp.example.com/x", "example"),
        ("http://localhost:1/", "localhost"),
    ],
)
def test_a_server_is_named_by_its_command_or_url(command: str, label: str) -> None:
    assert cnllm.mcp(command).label == label
    assert cnllm.mcp(command, name="my own__name!").label == "my_own_name"


@pytest.mark.parametrize(
    ("command", "options", "error"),
    [
        ("", {}, "is empty"),
        ("'x", {}, "is not a command"),
        ("ftp://x/y", {}, "begins with http"),
        ([], {}, "is not a list of words"),
        (3, {}, "command_or_url is int"),
        ("x", {"headers": {"a": "b"}}, "for a URL"),
        ("x", {"key_env": "A"}, "for a URL"),
        ("http://x", {"env": ["A"]}, "for a command"),
        ("http://x", {"key_env": "sk-1 2"}, "not the key"),
        ("x", {"env": ["A-B"]}, "not the name of a variable"),
        ("x", {"env": "A"}, "env is str"),
        ("x", {"timeout": 0}, "timeout=0"),
        ("x", {"start_timeout": "1"}, "start_timeout is str"),
        ("x", {"name": 3}, "name is int"),
        ("x", {"tools": [1]}, "tools[0] is int"),
        ("x", {"cwd": 3}, "cwd is int"),
        ("http://x", {"headers": {"a b": "c"}}, "headers"),
        ("http://x", {"headers": {"a": "b\r\nc: d"}}, "headers['a']"),
    ],
)
def test_a_wrong_argument_is_named(command: object, options: dict[str, object], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(error)):
        cnllm.mcp(command, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("x --api-key hunter2 --port 80", "x --api-key '[redacted]' --port 80"),
        ("x --token=hunter2", "x '--token=[redacted]'"),
        ("x sk0123456789abcdefghijklmn", "x '[redacted]'"),
        ("x /usr/lib/python3.11/site-packages", "x /usr/lib/python3.11/site-packages"),
        ("x https://me:hunter2@host/p?key=hunter2", "x 'https://redacted@host/p?key=[redacted]'"),
        ("https://me:hunter2@host/p?key=hunter2", "https://redacted@host/p?key=[redacted]"),
    ],
)
def test_secrets_of_a_command_are_not_shown(command: str, shown: str) -> None:
    tools = cnllm.mcp(command)
    assert tools.server == shown
    assert "hunter2" not in repr(tools)
