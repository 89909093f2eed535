"""The files in deploy/: their linters accept them, and a real nginx spreads streams over two gateways."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from cnllm import Registry

from .store_support import ROOT
from .support import KEY
from .test_http import serving

DEPLOY = ROOT / "deploy"
BODY: dict[str, Any] = {"model": "glm-4.7", "messages": [{"role": "user", "content": "word " * 200}]}


def test_linters_accept_the_files() -> None:
    checks: dict[str, list[str | Path]] = {
        "hadolint": [DEPLOY / "Dockerfile"],
        "check-jsonschema": ["--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml"],
    }
    for name, arguments in checks.items():
        program = Path(sys.executable).with_name(name)
        if not program.exists():
            pytest.skip(f"{name} is not installed beside this Python")
        done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_what_the_files_name_exists() -> None:
    """Files, options and variables: no container runs in this test."""
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    gateway = compose["services"]["gateway"]
    entry = re.search(r"^ENTRYPOINT \[(.*)\]$", dockerfile, re.MULTILINE)
    assert entry is not None
    options = re.findall(r'"([^"]+)"', entry[1])[2:] + gateway["command"]
    from cnllm.cli.commands.serve import serve

    # click keeps the help option of the first context that a command has: it must be the program's
    parsed = serve.make_context("serve", options, help_option_names=["-h", "--help"])
    assert parsed.params["public"] is True
    assert parsed.params["store"] == "redis://redis:6379/0"
    assert f"EXPOSE {parsed.params['port']}" in dockerfile
    nginx = (DEPLOY / "nginx.conf").read_text()
    assert f"server gateway:{parsed.params['port']} " in nginx
    for service in compose["services"].values():
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert source in compose["volumes"] or (DEPLOY / source).is_file()
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert all((ROOT / line[1:]).exists() for line in ignored if line.startswith("!"))
    assert gateway["env_file"] == ".env"
    names = set(re.findall(r"^(\w+)=$", (DEPLOY / "example.env").read_text(), re.MULTILINE))
    registry = Registry.load()
    known = {key for name in ("glm-4.7", "deepseek-v4-pro") for key in registry.resolve(name).flags.keys or ()}
    assert names - known == {"CNLLM_SERVE_KEY", "CNLLM_ADMIN_KEY", "CNLLM_GATEWAY_KEY"}
    assert Registry.load(str(DEPLOY / "providers.toml")).gateway_models == {"claude-*": "zai/glm-4.7"}


@contextlib.contextmanager
def balancer(folder: Path, *gateways: str) -> Iterator[str]:
    """nginx with the file of deploy/ before the gateways, and its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    text = (DEPLOY / "nginx.conf").read_text()
    server = re.search(r"server gateway:8641 (.*);", text)
    assert server is not None
    hosts = [url.removeprefix("http://") for url in gateways]
    text = text.replace(server[0], "\n".join(f"server {host} {server[1]};" for host in hosts))
    text = text.replace("listen 8080;", f"listen 127.0.0.1:{port};")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    text = text.replace(
        "http {", "http {\n access_log off;\n" + "".join(f"{k}_temp_path {folder}/{k};\n" for k in kinds)
    )
    (folder / "nginx.conf").write_text(f"pid {folder}/pid;\ndaemon off;\nmaster_process off;\n{text}")
    path = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if path is None:
        pytest.skip("nginx is not installed")
    command = [path, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            while True:
                assert process.poll() is None, process.communicate()[1]
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
                    break
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(10)


def test_nginx_passes_streams_on_and_does_without_a_dead_gateway(tmp_path: Path) -> None:
    options = ("--simulate", "--key", KEY, "--public", "--store", "memory:")
    with (
        serving(*options) as (first, one),
        serving(*options) as (_, two),
        balancer(tmp_path, one, two) as url,
        httpx.Client(base_url=url, headers={"authorization": f"Bearer {KEY}"}, timeout=30) as http,
    ):
        with http.stream("POST", "/v1/chat/completions", json={**BODY, "stream": True}) as response:
            assert response.status_code == 200
            pieces = list(response.iter_raw())
        assert len(pieces) > 3, "it was held back"
        assert pieces[-1].rstrip().endswith(b"[DONE]")
        first.kill()
        first.wait()
        for _ in range(8):
            response = http.post("/v1/chat/completions", json=BODY)
            assert response.status_code == 200, response.text
