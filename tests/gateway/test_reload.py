"""A gateway reads its configuration again: no request is lost, and an error changes nothing."""

from __future__ import annotations

import contextlib
import gc
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from cnllm.gateway.asgi import Gateway
from cnllm.gateway.configuration import Configuration, GatewayFiles
from cnllm.gateway.limits.sqlite_book import SqliteBook
from cnllm.registry import Registry

from .support import Upstream, say
from .test_http import serving
from .test_store_redis import Server

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no such signal here")

OLD, NEW = "sk-old-0123456789abcdef", "sk-new-0123456789abcdef"
PATH = "/v1/chat/completions"


class Files:
    """The files of a gateway, and the environment in which it finds them."""

    def __init__(self, folder: Path) -> None:
        self.env = {"CNLLM_CONFIG_DIR": str(folder), "CNLLM_DATA_DIR": str(folder / "data")}
        self.keys = folder / "keys.txt"
        self._registry = folder / "providers.toml"
        self.write("zai/glm-4.7", OLD)

    def write(self, model: str, key: str) -> None:
        """Map the name `mine` to a model, and let a key in."""
        self._registry.write_text(f'[gateway.models]\nmine = "{model}"\n')
        self.keys.write_text(key + "\n")

    @contextlib.contextmanager
    def serving(self, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
        """Run a gateway whose next line on stderr is about a reload."""
        with serving("--simulate", "--keys-file", str(self.keys), *options, env=self.env) as (process, url):
            assert line_of(process).startswith("cnllm: simulated: ")
            yield process, url


def ask(http: httpx.Client, key: str, **more: object) -> httpx.Response:
    body = {"model": "mine", "messages": [{"role": "user", "content": "hi"}], **more}
    return http.post(PATH, json=body, headers={"authorization": f"Bearer {key}"})


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line of the log. It is read byte by byte, so that a line behind it stays where `select` sees it."""
    assert process.stderr is not None
    line, descriptor = b"", process.stderr.fileno()
    while not line.endswith(b"\n"):
        assert select.select([descriptor], [], [], 20)[0]
        byte = os.read(descriptor, 1)
        assert byte, line
        line += byte
    return line.decode()


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 2])
def test_no_request_is_lost(tmp_path: Path, workers: int) -> None:
    require_no_loss(tmp_path, NEW, "--workers", str(workers))


def test_no_request_of_a_key_with_limits_is_refused_meanwhile(tmp_path: Path) -> None:
    """The connections to the server of the keys are those of the requests that run."""
    pytest.importorskip("redis", reason="the package redis is not installed")
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    server = Server(tmp_path)
    server.start()
    try:
        require_no_loss(tmp_path, f"{NEW} --name new --rpm 1000000", "--store", server.url)
    finally:
        server.stop()


def require_no_loss(folder: Path, line: str, *options: str) -> None:
    """Require that clients whose key has this line in the file are answered while a gateway reads its files."""
    files = Files(folder)
    both = f"{OLD}\n{line}"
    files.write("zai/glm-4.7", both)
    stop = threading.Event()
    statuses: list[int] = []
    faults: list[Exception] = []

    def client(stream: bool) -> None:
        try:
            with httpx.Client(base_url=url, timeout=30) as http:  # its connection is kept
                while not stop.is_set():
                    response = ask(http, NEW, stream=stream)
                    statuses.append(response.status_code)
                    assert not stream or "[DONE]" in response.text
        except (httpx.HTTPError, AssertionError) as error:
            faults.append(error)

    with files.serving(*options) as (process, url):
        threads = [threading.Thread(target=client, args=(number % 2 == 0,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for number in range(6):
            files.write(("deepseek/deepseek-v4-flash", "zai/glm-4.7")[number % 2], both)
            process.send_signal(signal.SIGHUP)
            assert line_of(process) == "the configuration was read again\n"
            seen = len(statuses)
            until(lambda seen=seen: len(statuses) > seen + 4 or bool(faults))  # type: ignore[misc]
        stop.set()
        for thread in threads:
            thread.join()
    assert not faults
    assert set(statuses) == {200}
    assert len(statuses) > 24


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 2])
def test_other_models_and_other_keys(tmp_path: Path, workers: int) -> None:
    """A stream that runs ends as it began."""
    files = Files(tmp_path)

    def asked(key: str, count: int = 8) -> set[tuple[int, str | None]]:
        """What each of some new connections gets: another worker may take each of them."""
        found = set()
        for _ in range(count):
            with httpx.Client(base_url=url) as http:
                response = ask(http, key)
                found.add((response.status_code, response.headers.get("x-cnllm-model") or response.json().get("model")))
        return found

    with files.serving("--workers", str(workers)) as (process, url), httpx.Client(base_url=url, timeout=30) as http:
        (old,) = asked(OLD)
        assert old[0] == 200
        body = {"model": "mine", "stream": True, "messages": [{"role": "user", "content": "word " * 3000}]}
        with http.stream("POST", PATH, json=body, headers={"authorization": f"Bearer {OLD}"}) as response:
            pieces = response.iter_text()
            text = next(pieces)
            files.write("deepseek/deepseek-v4-flash", NEW)
            process.send_signal(signal.SIGHUP)
            line_of(process)
            until(lambda: {status for status, _ in asked(OLD)} == {401})
            (new,) = asked(NEW)
            assert new[0] == 200
            assert new != old
            text += "".join(pieces)
        assert "[DONE]" in text
        assert ask(http, OLD).status_code == 401  # on a connection that is older than the reload


def test_an_error_changes_nothing_and_is_reported(tmp_path: Path) -> None:
    files = Files(tmp_path)
    registry = tmp_path / "providers.toml"
    with files.serving() as (process, url), httpx.Client(base_url=url) as http:
        for content, word in (
            ('[gateway.models]\nmine = "no-such-model"\n', "no-such-model"),
            ("[gateway.models\n", "providers.toml:1"),
            ("[gateway.routes.mine]\ntargets = []\n", "targets"),
        ):
            registry.write_text(content)
            files.keys.write_text(NEW)
            process.send_signal(signal.SIGHUP)
            line = line_of(process)
            assert line.startswith("the configuration stays as it was: "), line
            assert word in line
            assert ask(http, OLD).status_code == 200
            assert ask(http, NEW).status_code == 401
        files.write("zai/glm-4.7", "# none")
        process.send_signal(signal.SIGHUP)
        assert "holds no key" in line_of(process)
        files.write("zai/glm-4.7", NEW)
        process.send_signal(signal.SIGHUP)
        assert line_of(process) == "the configuration was read again\n"
        assert ask(http, NEW).status_code == 200


def test_a_name_that_is_in_use_changes_no_limit_of_another_key_of_the_file(tmp_path: Path) -> None:
    files = Files(tmp_path)
    both = f"{OLD} --name one --models {{}}\n{NEW} --name {{}}"
    files.write("zai/glm-4.7", both.format("zai/*", "two"))
    book = SqliteBook(tmp_path / "data" / "gateway-keys.db")
    with files.serving() as (process, _):
        before = book.uses()
        assert [use.record.models for use in before] == [("zai/*",), ()]
        files.write("zai/glm-4.7", both.format("deepseek/*", "one"))
        process.send_signal(signal.SIGHUP)
        assert "stays as it was: a key in use is called one" in line_of(process)
        assert [use.record for use in book.uses()] == [use.record for use in before]
    book.close()


def test_no_registry_stays_in_memory_that_nobody_uses() -> None:
    """Reloads would fill the memory: the collector comes late in a process whose start it does not look at."""
    registries: list[weakref.ref[Registry]] = []

    def read() -> GatewayFiles:
        registry = Registry.load()
        registries.append(weakref.ref(registry))
        return GatewayFiles(registry, (OLD,))

    def make(files: GatewayFiles) -> Gateway:
        return Gateway(files.registry, keys=files.keys, store="memory:")

    configuration = Configuration(read, make, lambda limits: None)
    gateway = configuration.gateway()
    gc.disable()
    try:
        assert configuration.reload(gateway)
        assert configuration.reload(gateway)
    finally:
        gc.enable()
    assert [registry() is not None for registry in registries] == [False, False, True]


def test_a_worker_that_is_replaced_has_the_last_good_configuration(tmp_path: Path) -> None:
    files = Files(tmp_path)
    with files.serving("--workers", "2") as (process, url):
        files.write("zai/glm-4.7", NEW)
        process.send_signal(signal.SIGHUP)
        assert line_of(process) == "the configuration was read again\n"
        (tmp_path / "providers.toml").write_text("[broken")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        if not children.exists():
            pytest.skip("no list of children here")
        workers = children.read_text().split()
        for pid in workers:
            os.kill(int(pid), signal.SIGKILL)
        for _ in workers:
            assert "another takes its place" in line_of(process)
        for key, status in ((NEW, 200), (OLD, 401)) * 4:
            with httpx.Client(base_url=url, transport=httpx.HTTPTransport(retries=3)) as http:
                assert ask(http, key).status_code == status


@contextlib.contextmanager
def terminal(*command: str, env: dict[str, str]) -> Iterator[tuple[int, int]]:
    """A process in a terminal of its own: its id, and the other end of the terminal."""
    pid, end = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup may have started the tests
        os.execvpe(command[0], command, {**os.environ, **env})
    try:
        yield pid, end
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_gateway_ends_with_its_terminal(tmp_path: Path) -> None:
    files = Files(tmp_path)
    command = [sys.executable, "-m", "cnllm", "serve", "--simulate", "--keys-file", str(files.keys)]
    with terminal(*command, env=files.env) as (pid, end):
        text = b""
        while b"http://" not in text:
            text += os.read(end, 1000)
        os.kill(pid, signal.SIGHUP)
        while b"was read again" not in text:
            text += os.read(end, 1000)
        os.close(end)
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGHUP)


# ── files that nobody trusts ──────────────────────────────────────────────────
class Overlays:
    """Two files: the user's own, and one from elsewhere, whose provider has a key and an address."""

    def __init__(self, folder: Path, *upstreams: Upstream) -> None:
        self.file = folder / "from-elsewhere.toml"
        config = folder / "config"
        config.mkdir()
        own = config / "providers.toml"
        own.write_text(self._provider("mine", upstreams[0].url))
        self.env = {
            "CNLLM_CONFIG_DIR": str(config),
            "CNLLM_DATA_DIR": str(folder / "data"),
            "CNLLM_PROVIDERS": os.pathsep.join([str(own), str(self.file)]),
            "THE_KEY": "sk-of-the-provider-0123456789",
        }

    def write(self, upstream: Upstream, *more: str) -> None:
        names = ("other", *more)
        self.file.write_text("".join(self._provider(name, upstream.url) for name in names))

    def _provider(self, name: str, url: str) -> str:
        return f'[providers.{name}]\nextends = "openai-compatible"\nbase_url = "{url}"\nkeys = ["THE_KEY"]\n'

    def trust(self) -> None:
        command = [sys.executable, "-m", "cnllm", "registry", "trust", str(self.file)]
        subprocess.run(command, check=True, env={**os.environ, **self.env}, capture_output=True)

    def serving(self, *options: str) -> contextlib.AbstractContextManager[tuple[subprocess.Popen[str], str]]:
        return serving("--key", OLD, *options, env=self.env)


def ask_model(http: httpx.Client, model: str) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
    return http.post(PATH, json=body, headers={"authorization": f"Bearer {OLD}"})


@pytest.fixture
def upstreams() -> Iterator[tuple[Upstream, Upstream]]:
    pair = Upstream(say("Hello")), Upstream(say("Hello"))
    yield pair
    for upstream in pair:
        upstream.shutdown()
        upstream.server_close()


def test_a_file_that_nobody_trusts_is_an_error_at_start(tmp_path: Path, upstreams: tuple[Upstream, Upstream]) -> None:
    overlays = Overlays(tmp_path, *upstreams)
    overlays.write(upstreams[1])
    command = [sys.executable, "-m", "cnllm", "serve", "--key", OLD]
    ended = subprocess.run(
        command, env={**os.environ, **overlays.env}, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode not in (0, None)
    assert f"{overlays.file}:3" in ended.stderr
    assert f"cnllm registry trust {overlays.file}" in ended.stderr
    assert "Traceback" not in ended.stderr
    with overlays.serving("--simulate"):
        pass  # no key is sent anywhere


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.long)])
def test_after_a_reload_only_the_models_of_a_file_that_nobody_trusts_are_suspended(
    workers: int, tmp_path: Path, upstreams: tuple[Upstream, Upstream]
) -> None:
    first, second = upstreams
    overlays = Overlays(tmp_path, first)
    overlays.write(first)
    overlays.trust()
    with overlays.serving("--workers", str(workers)) as (process, url), httpx.Client(base_url=url, timeout=20) as http:
        assert _statuses(url, "other/m") == {200}
        overlays.write(second, "new")
        process.send_signal(signal.SIGHUP)
        line = line_of(process)
        assert line.startswith("the configuration stays as it was: ")
        assert f"cnllm registry trust {overlays.file}" in line
        until(lambda: _statuses(url, "other/m") == {503})
        assert _statuses(url, "new/m") == {503}
        refused = ask_model(http, "other/m")
        assert refused.headers["x-should-retry"] == "false"
        assert str(tmp_path) not in refused.text
        assert refused.json()["error"]["code"] == "provider_untrusted"
        assert _statuses(url, "mine/m") == {200}
        assert second.bodies == []
        overlays.trust()
        process.send_signal(signal.SIGHUP)
        until(lambda: _statuses(url, "other/m") == {200})
        assert second.bodies
        assert _statuses(url, "new/m") == {200}


def _statuses(url: str, model: str) -> set[int]:
    """The statuses of several clients, each with a connection of its own."""
    statuses = set()
    for _ in range(8):
        with httpx.Client(base_url=url, timeout=20) as http:
            statuses.add(ask_model(http, model).status_code)
    return statuses
