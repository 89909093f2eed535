"""The files in deploy/: their linters accept them, and a real nginx spreads streams over two gateways."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import httpx
import pytest
import yaml

from cnllm import Registry

from .store_support import ROOT
from .support import KEY, lines_sent
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
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {f"!{name}" for name in (*wheel["force-include"], *wheel["shared-data"])} <= set(ignored)
    assert gateway["env_file"] == ".env"
    names = set(re.findall(r"^(\w+)=$", (DEPLOY / "example.env").read_text(), re.MULTILINE))
    registry = Registry.load()
    china = {key for site in ("zhipuai", "moonshotai-cn", "alibaba-cn") for key in registry.sites(site)[site]["keys"]}
    assert china & names, "keys of the vendors' sites in China"
    models = ("glm-4.7", "deepseek-v4-pro", "moonshotai-cn/kimi-k2.6", "alibaba-cn/qwen3.8-max")
    known = {key for name in models for key in registry.resolve(name).flags.keys or ()}
    assert names - known == {"CNLLM_SERVE_KEY", "CNLLM_ADMIN_KEY", "CNLLM_GATEWAY_KEY"}
    assert Registry.load(str(DEPLOY / "providers.toml")).gateway_models == {"claude-*": "zai/glm-4.7"}


def unit(name: str) -> list[str]:
    """The values of a setting of the unit, in their order."""
    return re.findall(rf"^{name}=(.*)$", (DEPLOY / "cnllm.service").read_text(), re.MULTILINE)


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    text = (DEPLOY / "cnllm.service").read_text()
    copy = tmp_path / "cnllm.service"
    copy.write_text(text.replace("/opt/cnllm/bin/cnllm", sys.executable))
    done = subprocess.run([program, "verify", "--man=no", copy], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    done = subprocess.run([program, "security", "--offline=true", copy], capture_output=True, text=True, check=False)
    exposure = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert exposure is not None, done.stderr
    assert float(exposure[1]) < 2


def test_the_commands_of_the_unit_start_a_gateway_and_give_it_new_files(tmp_path: Path) -> None:
    """What systemd does, as far as it needs no root: folders, credentials, the start, a reload, the end."""
    etc, names = tmp_path / "etc", {"RUNTIME": "run", "STATE": "state", "CREDENTIALS": "credentials", "CACHE": "cache"}
    folders = {f"{name}_DIRECTORY": tmp_path / folder for name, folder in names.items()}
    for folder in (etc, *folders.values()):
        folder.mkdir(mode=0o700)
    base = {name: value for name, value in os.environ.items() if not name.startswith("CNLLM_")}
    cnllm = [sys.executable, "-m", "cnllm"]
    config = {**base, "CNLLM_CONFIG_DIR": str(etc)}
    subprocess.run([*cnllm, "keys", "set", "zai"], env=config, input=b"sk-zai-0123456789", check=True)
    data = {**base, "CNLLM_DATA_DIR": str(folders["STATE_DIRECTORY"])}
    key = subprocess.run([*cnllm, "serve", "keys", "add", "ada"], env=data, capture_output=True, check=True).stdout
    (etc / "serve.keys").write_text("A" * 43 + "\n")
    (etc / "serve.keys").chmod(0o600)
    shutil.copy(DEPLOY / "providers.toml", etc)
    for credential in unit("LoadCredential"):
        name, _, source = credential.partition(":")
        shutil.copy(source.replace("/etc/cnllm", str(etc)), folders["CREDENTIALS_DIRECTORY"] / name)
        (folders["CREDENTIALS_DIRECTORY"] / name).chmod(0o440)  # as systemd does for a user of its own

    def command(line: str) -> list[str]:
        for name, folder in folders.items():
            line = line.replace(f"${{{name}}}", str(folder))
        return line.replace("/etc/cnllm", str(etc)).split()

    specifiers = {"%t/cnllm": "RUNTIME_DIRECTORY", "%S/cnllm": "STATE_DIRECTORY", "%C/cnllm": "CACHE_DIRECTORY"}
    variables = dict(pair.split("=") for pair in unit("Environment")[0].split())
    env = base | {name: str(folders[specifiers[value]]) for name, value in variables.items()}
    (start,) = unit("ExecStartPre")
    subprocess.run(command(start), check=True)
    assert {path.stat().st_mode & 0o777 for path in folders["RUNTIME_DIRECTORY"].iterdir()} == {0o600}
    (serve,) = unit("ExecStart")
    options = command(serve)[1:]
    options[options.index("--port") + 1] = "0"
    copy, signal_line = unit("ExecReload")
    with subprocess.Popen([*cnllm, *options, "--json", "--simulate"], env=env, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            headers = {"authorization": f"Bearer {key.decode().strip()}"}

            def status(model: str) -> int:
                body = {**BODY, "model": model}
                return httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=30).status_code

            assert status("claude-any") == 200
            assert status("coder") == 404
            (etc / "providers.toml").write_text('[gateway.models]\ncoder = "zai/glm-4.7"\n')
            subprocess.run(command(copy), check=True)
            subprocess.run(signal_line.replace("$MAINPID", str(process.pid)).split(), check=True)
            end = time.monotonic() + 30
            while status("coder") != 200:
                assert time.monotonic() < end
        finally:
            process.terminate()
        assert process.wait(30) == 0


def test_what_the_page_on_the_proxy_of_another_library_names_exists() -> None:
    """Each cell on the right, in both languages: commands parse, and options, variables and flags are known.

    The Chinese page may name another provider and its currency, in as many pieces of code.
    """
    reference = "".join(
        (ROOT / name).read_text(encoding="utf-8")
        for name in ("schemas/providers.schema.json", "docs/reference/commands.md", "docs/reference/settings.md")
    )
    cells: dict[str, list[list[str]]] = {}
    for page, head in (("how-to", "## From LiteLLM's proxy"), ("zh/how-to", "## 从 LiteLLM 的代理迁移")):
        text = (ROOT / "docs" / page / "deployment.md").read_text(encoding="utf-8").partition(head)[2]
        lines = [line for line in text.splitlines() if line.startswith("| ")][1:]
        cells[page] = [re.findall(r"`([^`]+)`", line) for line in lines]
    provider, money = re.compile("zhipuai|zai"), re.compile(r"--(soft-)?budget [\d.]+|--currency [A-Z]{3}")
    first, second = (
        [[money.sub("", provider.sub("P", code)) for code in row] for row in rows] for rows in cells.values()
    )
    assert [sorted(row) for row in first] == [sorted(row) for row in second]
    assert len(cells["how-to"]) >= 20
    from cnllm.cli.app import root

    for code in itertools.chain(*cells["how-to"], *cells["zh/how-to"]):
        if code.startswith("cnllm serve "):
            command: Any = root
            words = shlex.split(code)[1:]
            while words and not words[0].startswith("-") and hasattr(command, "resolve_command"):
                context = click.Context(command, info_name="cnllm")
                _, command, words = command.resolve_command(context, words)
            command.make_context("cnllm", words, help_option_names=["-h", "--help"])
        elif code.startswith(("--", "CNLLM_")):
            assert code in reference, code


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can make files of others")
def test_a_key_that_root_adds_is_in_a_file_of_the_service(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    os.chown(data, 65534, 65534)
    env = {**os.environ, "CNLLM_DATA_DIR": str(data), "CNLLM_CONFIG_DIR": str(tmp_path / "config")}
    command = [sys.executable, "-m", "cnllm", "serve", "keys", "add", "ada", "--rpm", "5"]
    subprocess.run(command, env=env, capture_output=True, check=True)
    found = {path.name: (path.stat().st_uid, path.stat().st_mode & 0o777) for path in data.iterdir()}
    assert found["gateway-keys.db"] == (65534, 0o600)
    assert {owner for owner, _ in found.values()} == {65534}


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


def test_bounds_hold_behind_nginx(tmp_path: Path) -> None:
    """What a client without a valid key, or with a head out of bounds, gets is the same behind the balancer."""
    options = ("--key", KEY, "--public", "--ui", "--store", "memory:", "--trusted-proxy", "127.0.0.1")
    long = b"x" * 2_000_000
    chat = "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    key = f"Authorization: Bearer {KEY}\r\n"
    fields = "".join(f"X-Field-{number}: 1\r\n" for number in range(120))
    with serving("--simulate", *options) as (_, gateway), balancer(tmp_path, gateway) as url:
        for head, body, statuses in (
            (f"{chat}Content-Length: {len(long)}\r\n", long, (401,)),  # before the body is read
            (f"{chat}Content-Length: {len(long)}\r\nExpect: 100-continue\r\n", b"", (401,)),
            (f"{chat}{fields}Content-Length: 2\r\n", b"{}", (431,)),
            (f"{chat}X-Long: {'a' * 90_000}\r\n", b"", (400, 431)),  # nginx refuses it itself
            (f"{chat}Host: b\r\n{key}Content-Length: 2\r\n", b"{}", (400,)),
            (f"{chat}{key}Authorization: Bearer other\r\nContent-Length: 2\r\n", b"{}", (400,)),
            (f"{chat}{key}X-Api-Key: one\r\nX-Api-Key: two\r\nContent-Length: 2\r\n", b"{}", (400,)),
            (f"{chat}{key}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n", (400,)),
            (f"{chat}{key}Content-Length: {70 << 20}\r\n", b"", (413,)),
        ):
            answer = lines_sent(url, f"{head}Connection: close\r\n\r\n", body)
            final = re.findall(rb"^HTTP/1.1 (\d+)", answer, re.MULTILINE)
            assert [int(status) for status in final if status != b"100"][:1] in [[s] for s in statuses], (
                head[:200],
                answer[:300],
            )
        login = {"origin": "http://evil.com", "content-type": "application/x-www-form-urlencoded"}
        assert httpx.post(f"{url}/ui/login", content=f"key={KEY}", headers=login).status_code == 403
        login["origin"] = url
        assert httpx.post(f"{url}/ui/login", content=f"key={KEY}", headers=login).status_code == 303


def test_a_limit_refuses_a_long_body_behind_nginx(tmp_path: Path) -> None:
    """The client sees the 429 and not a reset, though its body was not read."""
    store = f"sqlite:{tmp_path}/state.db"
    made = subprocess.run(
        [sys.executable, "-m", "cnllm", "serve", "keys", "add", "one", "--rpm", "1", "--store", store],
        capture_output=True,
        text=True,
        check=True,
    )
    headers = {"authorization": f"Bearer {made.stdout.strip()}"}
    options = ("--simulate", "--public", "--store", store, "--trusted-proxy", "127.0.0.1")
    with (
        serving(*options) as (_, gateway),
        balancer(tmp_path, gateway) as url,
        httpx.Client(base_url=url, headers=headers, timeout=30) as http,
    ):
        assert http.post("/v1/chat/completions", json=BODY).status_code == 200
        long = {**BODY, "user": "x" * 5_000_000}
        for _ in range(4):
            response = http.post("/v1/chat/completions", json=long)
            assert response.status_code == 429, response.text
            assert "retry-after" in response.headers
