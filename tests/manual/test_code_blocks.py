"""Every code block of README and the manual runs as it stands there, or says why not.

Keys are set, except for blocks that promise to need none, and every endpoint of the registry is at a simulator on this
machine, over real sockets. The blocks of a page run one after the other, as a reader would.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import small
from builtin import written

from cnllm import Client, Registry
from cnllm.registry.trusted_files import trust
from cnllm.simulator.server import running

from .pages import ROOT, Block, blocks, pages
from .shell import Failed, execute

LANGUAGES = {"python", "ts", "sh", "toml", "json", "text", "before", "after"}
CHINESE = {"zh", "README.zh-CN.md"}  # a folder and a page for readers whose terminal is Chinese
SERVER = "http://127.0.0.1:8000"  # where a server of the reader's own stands in the pages
MODELS = ("my-model", "zai-org/GLM-4.7-FP8")  # and what it serves
CATALOGUED = ("poe", "vercel")  # of the catalogue, which takes long to list as a whole, what the pages name


class Endpoints(NamedTuple):
    """A simulator, the registry file that sends every provider there, a small catalogue, and the variables of keys."""

    server: str
    overlay: Path
    catalogue: Path
    keys: tuple[str, ...]


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    """Serve every provider of the registry, and a server of the reader's own at /v1."""
    folder = tmp_path_factory.mktemp("served")
    own, overlay = folder / "own.toml", folder / "endpoints.toml"
    served = "".join(f'[models."v1/{name}"]\nlimits.context = 100_000\n' for name in MODELS)
    own.write_text(f"[providers.v1]\nextends = 'openai-compatible'\nkeys = []\n{served}", encoding="utf-8")
    with running(Registry.load(str(own))) as server:
        lines = []
        for provider in written()["providers"]:
            address = f"base_url = '{server.url}/{provider}'"
            lines.append(f"[providers.{provider}]\n{address}\n")
            lines += [f"[providers.{provider}.on.{wire}]\n{address}\n" for wire in written()["protocols"]]
        overlay.write_text("".join(lines), encoding="utf-8")
        keys = {name for table in written()["providers"].values() for name in table.get("keys", ())}
        catalogue = small.small_catalogue(folder, *CATALOGUED)
        yield Endpoints(server.url, overlay, catalogue, tuple(sorted(keys)))


class Page:
    """The blocks of one page while they run: one namespace, one folder, one set of registry files."""

    def __init__(self, path: Path, folder: Path, endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.folder = folder
        self.server = endpoints.server
        self.names: dict[str, Any] = {"__name__": "page"}
        self.printed = ""  # by the last block that ran
        self.clients: dict[int, Any] = {}  # by id: a later block may give the name of a client to another one
        self.files: list[Path] = []
        self.keys = endpoints.keys
        self.patch = monkeypatch
        small.use_catalogue(monkeypatch, endpoints.catalogue)
        overlay = folder / endpoints.overlay.name  # a copy: some commands of a page change it
        overlay.write_bytes(endpoints.overlay.read_bytes())
        self._use(overlay)
        for name in ("LC_ALL", "LC_MESSAGES", "LANGUAGE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("LANG", "zh_CN.UTF-8" if CHINESE & {*path.parts, path.name} else "C.UTF-8")
        monkeypatch.chdir(folder)

    def _use(self, file: Path) -> None:
        """Let a registry file count, after those before it."""
        trust(file)
        self.files.append(file)
        self.patch.setenv("CNLLM_PROVIDERS", os.pathsep.join(map(str, self.files)))

    def run(self, block: Block) -> None:
        """Run one block. Raises what it raises, and `Failed` where a command fails."""
        code = block.code.replace(SERVER, self.server)
        for name in self.keys:
            if block.keyless:
                self.patch.delenv(name, raising=False)
            elif block.kind not in ("text", "after"):
                self.patch.setenv(name, "sk-of-the-manual")
        match block.kind:
            case "python" | "before" | "after":
                with redirect_stdout(io.StringIO()) as out:
                    exec(compile("\n" * (block.line - 1) + code, str(self.path), "exec", dont_inherit=True), self.names)
                if block.kind == "python":
                    self.printed = out.getvalue()
                self.clients.update((id(value), value) for value in self.names.values() if _is_client(value))
            case "sh":
                self.printed = execute(code)
                trust(self.files[0])  # the command may have changed it
            case "text":
                self.check_output(code)
            case "toml":
                file = self.folder / f"block-{block.line}.toml"
                file.write_text(code, encoding="utf-8")
                self._use(file)
                Registry.load()  # raises what is wrong with it
            case "json":
                json.loads(code)
            case other:
                raise Failed(f"a block of {other or 'no language'} says why it is not run: <!-- not run: … -->")

    def check_output(self, shown: str) -> None:
        """Raise `Failed` for a shown line that the block before did not print. `…` stands for any text."""
        lines = self.printed.splitlines()
        for line in shown.splitlines():
            pattern = re.escape(line.rstrip()).replace("…", ".*")
            if not any(re.fullmatch(pattern, printed.rstrip()) for printed in lines):
                raise Failed(f"nothing printed {line!r}, but:\n{self.printed}")

    def close(self) -> None:
        """Close the clients that a page leaves open."""
        for client in self.clients.values():
            client.close()


def _is_client(value: Any) -> bool:
    """Return whether a value is a client, cnllm's or an SDK's, whose connections are closed with `close()`."""
    if isinstance(value, type) or not callable(getattr(value, "close", None)):
        return False
    return isinstance(value, Client) or type(value).__module__.split(".")[0] in ("openai", "anthropic", "google")


def _cases() -> Iterator[Any]:
    """Yield each page. Blocks of Chinese pages are those of their English twins, so that only .ci/long runs them."""
    for path in pages():
        name = path.relative_to(ROOT).as_posix()
        is_twin = not CHINESE.isdisjoint(path.relative_to(ROOT).parts)
        yield pytest.param(path, id=name, marks=[pytest.mark.long] if is_twin else [])


@pytest.mark.parametrize("path", list(_cases()))
def test_the_blocks_of_a_page_run_or_say_why_not(
    path: Path, endpoints: Endpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list(blocks(path.read_text(encoding="utf-8")))
    if not any(block.why is None for block in found):
        return
    page = Page(path, tmp_path, endpoints, monkeypatch)
    try:
        for block in found:
            if block.why is None:
                try:
                    page.run(block)
                except Exception as error:
                    raise Failed(f"{path.relative_to(ROOT)}:{block.line}: {type(error).__name__}: {error}") from error
    finally:
        page.close()


def test_every_block_has_a_language_and_every_reason_says_something() -> None:
    for path in pages():
        for block in blocks(path.read_text(encoding="utf-8")):
            place = f"{path.relative_to(ROOT)}:{block.line}"
            assert block.kind in LANGUAGES, f"{place}: {block.kind or 'no'} language"
            assert block.why is None or len(block.why) > 10, f"{place}: why is it not run?"
