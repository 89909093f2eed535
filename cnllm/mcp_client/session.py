"""A connection to an MCP server, which a thread of its own holds."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import json
import logging
import math
import os
import re
import selectors
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import msgspec

from cnllm.config import distribution, redact
from cnllm.errors import McpError
from cnllm.mcp_client.bounded_streams import bounded_streams, unreadable_reason
from cnllm.mcp_client.http_client import MAX_MESSAGE, http_client
from cnllm.mcp_client.line_codec import line_encoding
from cnllm.mcp_client.server import McpServer
from cnllm.system.processes import drop_after_fork, generation, loop_reads_pipes
from cnllm.types.json_form import encode_json, mend_halves

if TYPE_CHECKING:
    import anyio
    import mcp

__all__ = ["McpSession"]

_CLOSE_TIME = 12.0  # seconds; the server gets two to end, two after a signal, and two after it was killed
_GOODBYE_TIME = 3.0  # seconds for the request that ends a session over HTTP
_FIRST_DELAY, _LAST_DELAY = 0.05, 1.0  # seconds before a call is made again, longer each time
_MAX_PAGES = 1000  # of a list of tools
_MAX_LIST = 16 * 1024 * 1024  # bytes of a list of tools
_MAX_TOOLS = 10_000  # that are read; fewer are offered


class McpSession:
    """One connection to a server. `start` begins it, and `opened` gets the server's tools, or an error.

    Its event loop runs in a daemon thread. A forked child closes its copies of the loop's files and opens a session of
    its own.
    """

    def __init__(self, server: McpServer) -> None:
        _require_package()
        self.generation = generation()
        self.opened: Future[list[Any]] = Future()
        self._is_stale = False
        self._server = server
        self._client: mcp.Client | None = None
        self._scope: anyio.CancelScope | None = None
        self._stop = asyncio.Event()
        self._is_closing = False
        self._stderr: StderrTail | None = None
        self._pending: set[Future[Any]] = set()
        self._loop, self._selector = _new_loop()
        self._thread = threading.Thread(target=self._run, name=f"cnllm-mcp-{server.label}", daemon=True)
        drop_after_fork(self)

    def start(self) -> None:
        """Start the thread, which connects to the server. Raise `McpError` where none can start."""
        try:
            self._thread.start()
        except RuntimeError as error:  # there are too many, or the program ends
            self._loop.close()
            raise McpError(
                f"the MCP server {self._server.label} was not started: {error}",
                server=str(self._server),
                hint="it needs a thread of its own",
            ) from None

    @property
    def is_open(self) -> bool:
        """Whether calls can be made: the session is this process's own, connected, and not about to close."""
        return self.generation == generation() and self._client is not None and not self._is_closing

    @property
    def is_doubtful(self) -> bool:
        """Whether the tools should be asked for again: they may have changed, or the server may have ended."""
        return self._is_stale or (self._stderr is not None and self._stderr.has_ended)

    def list_tools(self) -> Future[list[Any]]:
        """Ask the server for its tools."""
        self._is_stale = False
        return self._submit(self._list)

    def call(self, name: str, arguments: dict[str, Any]) -> Future[Any]:
        """Call a tool. A cancelled future cancels the call."""
        return self._submit(lambda: self._call(name, arguments))

    def close(self, *, wait: bool = True) -> None:
        """Close the session, from any thread, and `wait` until the server has ended. In a forked child do nothing."""
        self._is_closing = True
        if self.generation != generation():
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._end)
        if wait and self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_TIME)

    def drop_inherited(self) -> None:
        """Replace the files of the parent's loop, so that this process neither reads them nor keeps them open."""
        if self._selector is None:
            return
        numbers = [key.fd for key in self._selector.get_map().values()]
        if (fileno := getattr(self._selector, "fileno", None)) is not None:
            numbers.append(fileno())
        null = os.open(os.devnull, os.O_RDWR)
        for number in numbers:
            with contextlib.suppress(OSError):
                os.dup2(null, number, inheritable=False)
        os.close(null)

    # ── in the thread ────────────────────────────────────────────────────────

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._hold())
        except BaseException as error:  # noqa: BLE001 the thread that opens the session raises it
            self._fail(error)
        finally:
            self._client = None
            self._fail(McpError(f"the MCP server {self._server.label} was closed", server=str(self._server)))
            self._fail_pending()

    def _fail(self, error: BaseException) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)

    def _end(self) -> None:
        """End the session: politely once it is open, else at once."""
        self._stop.set()
        if self._scope is not None and not self.opened.done():
            self._scope.cancel()

    async def _hold(self) -> None:
        """Connect, list the tools, and keep the connection until `close`."""
        import anyio

        error: BaseException | None = None
        seconds = math.inf if self._server.start_timeout is None else self._server.start_timeout
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + seconds) as self._scope:
                if self._is_closing:
                    return
                async with self._connect() as client:
                    self._scope.deadline = math.inf
                    self._client = client
                    tools = await self._list()
                    self.opened.set_result(tools)
                    await self._stop.wait()
                    self._client = None
                    self._scope.deadline = anyio.current_time() + _GOODBYE_TIME
        except (Exception, asyncio.CancelledError) as failure:  # noqa: BLE001 told below
            error = leaf_error(failure)
        finally:
            self._client = None
        if not self.opened.done():
            self._fail(await self._start_error(error))
        if self._stderr is not None:
            self._stderr.close()

    async def _start_error(self, error: BaseException | None) -> McpError:
        """Return the error for a session that could not be opened."""
        server, secrets = self._server, self._server.secrets()
        if isinstance(error, McpError):
            return error
        if self._is_closing:
            reason = "it was closed before it answered"
        elif self._scope is not None and self._scope.cancel_called:
            reason = f"it did not answer within {server.start_timeout:g} s"
        else:
            reason = reason_of(error, secrets)
        lines = () if self._stderr is None else await self._stderr.lines(secrets)
        last = f"; its last lines: {' | '.join(lines)}" if lines else ""
        hint = "check the URL, and its key"
        if server.url is None:
            is_missing = isinstance(error, FileNotFoundError)
            hint = "install it, or write its full path" if is_missing else "run it by itself to see what is wrong"
        failure = McpError(
            f"the MCP server {server.label} cannot be used ({server}): {reason}{last}",
            server=str(server),
            stderr=lines,
            hint=hint,
        )
        failure.__cause__ = None
        return failure

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[mcp.Client]:
        """Connect to the server. No callback is given, so that sampling, roots and questions to the user are off."""
        import mcp
        from mcp_types import Implementation

        client_info = Implementation(name="cnllm", version=distribution.installed_version())
        async with self._transport() as transport:
            client = mcp.Client(transport, cache=None, client_info=client_info, message_handler=self._hear)
            async with client:
                if self._stderr is not None:
                    self._stderr.file.close()
                yield client

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        server = self._server
        if server.url is None:
            from mcp.client.stdio import StdioServerParameters, stdio_client

            self._stderr = StderrTail()
            await self._stderr.start()
            parameters = StdioServerParameters(
                command=server.command[0],
                args=list(server.command[1:]),
                env=server.read_environment(),  # beside the few that every program needs, such as PATH and HOME
                cwd=server.cwd,
                encoding=line_encoding(),
                encoding_error_handler="replace",
            )
            yield bounded_streams(stdio_client(parameters, errlog=self._stderr.file))
            return
        from mcp.client.streamable_http import streamable_http_client

        async with http_client(server.url, server.read_headers()) as http:
            transport = streamable_http_client(server.url, http_client=http, max_sse_event_size=MAX_MESSAGE)
            yield bounded_streams(transport)

    async def _hear(self, message: Any) -> None:
        """Take note of a message of the server: its list of tools has changed."""
        if getattr(message, "method", None) == "notifications/tools/list_changed":
            self._is_stale = True

    async def _list(self) -> list[Any]:
        import anyio
        from mcp_types import PaginatedRequestParams

        assert self._client is not None
        tools: list[Any] = []
        size = 0
        cursors: set[str | None] = {None}
        cursor: str | None = None
        limit = self._server.list_timeout
        try:
            with anyio.fail_after(limit):
                for _ in range(_MAX_PAGES):
                    params = None if cursor is None else PaginatedRequestParams(cursor=cursor)
                    page = await self._client.session.list_tools(params=params)
                    tools += page.tools
                    size += sum(len(tool.model_dump_json()) for tool in page.tools)
                    if size > _MAX_LIST:
                        raise ConnectionError(f"its list of tools has more than {_MAX_LIST:,} bytes")
                    cursor = page.next_cursor
                    if not cursor or cursor in cursors or len(tools) >= _MAX_TOOLS:
                        return tools[:_MAX_TOOLS]
                    cursors.add(cursor)
                raise ConnectionError(f"its list of tools has more than {_MAX_PAGES:,} pages")
        except TimeoutError:
            raise TimeoutError(f"it did not list its tools within {limit:g} s") from None

    async def _call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Call a tool, again with the state that the server wants back, until its result is complete."""
        from mcp_types import CallToolRequest, CallToolRequestParams, InputRequiredResult

        arguments, state, delay = _without_halves(arguments), None, _FIRST_DELAY
        while True:
            if self._client is None:
                raise ConnectionError("it has ended")
            params = CallToolRequestParams(name=name, arguments=arguments, request_state=state)
            # `call_tool` would check the result against a schema of the server's, whose patterns may never end
            result = await self._client.session.send_request(CallToolRequest(params=params), _call_results())
            if not isinstance(result, InputRequiredResult):
                return result
            if result.input_requests:
                methods = ", ".join(dict.fromkeys(request.method for request in result.input_requests.values()))
                raise ConnectionError(f"it asks for input ({methods}), and gets none")
            await asyncio.sleep(delay)
            state, delay = result.request_state, min(2 * delay, _LAST_DELAY)

    def _submit(self, work: Callable[[], Awaitable[Any]]) -> Future[Any]:
        """Run a coroutine in the loop. Its errors become `McpError`."""

        async def run() -> Any:
            try:
                return await work()
            except Exception as error:  # noqa: BLE001 the caller gets it
                self._is_stale = True
                raise self._call_error(error) from None

        coroutine, context = run(), contextvars.Context()  # an empty one: the caller's may say that trio runs here
        result: Future[Any]
        try:
            result = context.run(asyncio.run_coroutine_threadsafe, coroutine, self._loop)
        except RuntimeError:  # the loop is closed
            coroutine.close()
            result = Future()
        self._pending.add(result)
        result.add_done_callback(self._pending.discard)
        if self._loop.is_closed():
            self._fail_pending()
        return result

    def _fail_pending(self) -> None:
        """Let the calls fail that the closed loop did not finish."""
        for result in list(self._pending):
            with contextlib.suppress(InvalidStateError):  # it was cancelled, or has its outcome
                result.set_exception(self._call_error(ConnectionError("it has ended")))

    def _call_error(self, error: BaseException) -> McpError:
        server = self._server
        reason = reason_of(leaf_error(error), server.secrets())
        return McpError(f"the MCP server {server.label} failed: {reason}", server=str(server))


@functools.cache
def _call_results() -> Any:
    """Return what reads the result of a call, or that the server has none yet."""
    from mcp_types import CallToolResult, InputRequiredResult
    from pydantic import Field, TypeAdapter

    return TypeAdapter(Annotated[InputRequiredResult | CallToolResult, Field(union_mode="left_to_right")])


def _without_halves(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments without halves of characters: the package `mcp` cannot write them, and ends the session."""
    try:
        msgspec.json.encode(arguments, enc_hook=str)
    except UnicodeEncodeError:
        whole: dict[str, Any] = json.loads(mend_halves(encode_json(arguments)))
        return whole
    except Exception:  # noqa: BLE001 what cannot be written fails this call alone
        return arguments
    return arguments


def _new_loop() -> tuple[asyncio.AbstractEventLoop, selectors.BaseSelector | None]:
    """Return an event loop, and its selector where a forked child has to close its files.

    Where the program chose another kind of loop (uvloop), that kind is used: the watcher of child processes that
    belongs to asyncio's own kind may be missing then.
    """
    loop = asyncio.new_event_loop()
    if type(loop) is not asyncio.SelectorEventLoop:
        return loop, None
    loop.close()
    selector = selectors.DefaultSelector()
    return asyncio.SelectorEventLoop(selector), selector


def _require_package() -> None:
    """Raise `McpError` where the package `mcp` is missing or too old. Keep its log lines off the terminal."""
    try:
        import mcp.client.client  # noqa: F401
        import mcp_types  # noqa: F401
    except ImportError as error:
        hint = f"run: {distribution.install_command('mcp')}"
        raise McpError("MCP servers need the package mcp, version 2", hint=hint) from error
    for name in ("mcp", "client"):  # without a handler, Python writes warnings to stderr, with what the server sent
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())


# ── failures in words ────────────────────────────────────────────────────────


_MAX_REASON = 1000  # characters
_END = re.compile("Connection closed|SSE stream ended without a response")  # as the package mcp says it
_UNPARSED = re.compile(r"Failed to parse (JSON response|SSE message): \d+ validation error")
_KEY_SHAPE = re.compile(r"(?<![\w/\\.-])(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{20,}(?![\w/\\.-])")
"""A word like a key: long, of letters and digits, and no part of a path or a dotted name."""
_MAX_BYTES = 16_384
_MAX_LINES = 5
_MAX_LINE = 300  # characters
_WAIT = 0.5  # seconds for the end of stderr; a process that the server left behind may keep it open


def leaf_error(error: BaseException) -> BaseException:
    """Return the first error in a group of errors, or the error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def reason_of(error: BaseException | None, secrets: Iterable[str]) -> str:
    """Return the reason of a failure, without secrets."""
    text = redact.redact(_reason(error), secrets)
    return text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}…"


def _reason(error: BaseException | None) -> str:
    if error is None:
        return "it ended"
    if isinstance(error, FileNotFoundError):
        return f"there is no {error.filename or 'such program'}"
    if isinstance(error, PermissionError):
        return f"{error.filename or 'the program'} may not be run"
    if isinstance(error, TimeoutError | ConnectionError) and error.args and isinstance(error.args[0], str):
        return error.args[0]
    code = getattr(error, "code", None)
    message = getattr(error, "message", None)
    if type(code) is int and isinstance(message, str):  # an error that the server, or the transport for it, returned
        from mcp_types import CONNECTION_CLOSED, PARSE_ERROR

        if code == PARSE_ERROR and _UNPARSED.match(message):
            return unreadable_reason(message)
        is_end = code == CONNECTION_CLOSED and _END.fullmatch(message)
        return "it has ended, or closed the connection" if is_end else message
    if type(error).__name__ == "ValidationError":
        return unreadable_reason(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class StderrTail(asyncio.Protocol):
    """The end of a server's stderr. `file` is the end for the server, open here until the server has it."""

    def __init__(self) -> None:
        self._data = b""
        self._ended = asyncio.Event()
        self._transport: asyncio.BaseTransport | None = None
        if loop_reads_pipes():
            out, into = os.pipe()
            self._out: int | None = out
            self.file: TextIO = os.fdopen(into, "w")
        else:
            self._out = None
            self.file = open(os.devnull, "w")  # noqa: SIM115
            self._ended.set()

    @property
    def has_ended(self) -> bool:
        """Whether the server closed its stderr, which mostly means that it ended."""
        return self._out is not None and self._ended.is_set()

    async def start(self) -> None:
        """Begin to read."""
        if self._out is not None:
            source = os.fdopen(self._out, "rb", buffering=0)
            self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: self, source)

    def data_received(self, data: bytes) -> None:
        """Keep the end of what was read."""
        self._data = (self._data + data)[-_MAX_BYTES:]

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end."""
        self._ended.set()

    async def lines(self, secrets: Iterable[str]) -> tuple[str, ...]:
        """Return the last lines, without secrets, once the server has ended."""
        self.file.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), _WAIT)
        data = self._data
        if len(data) == _MAX_BYTES:
            data = data.partition(b"\n")[2]  # the first line may begin in the middle of a secret
        text = _KEY_SHAPE.sub(redact.MARK, redact.redact(data.decode("utf-8", "replace"), secrets))
        lines = [line for line in map(_printable, text.splitlines()) if line]
        return tuple(line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}…" for line in lines[-_MAX_LINES:])

    def close(self) -> None:
        """Stop reading."""
        self.file.close()
        if self._transport is not None:
            self._transport.close()


def _printable(line: str) -> str:
    """Return a line without control characters, which a terminal would carry out."""
    return "".join(char if char.isprintable() else " " for char in line).strip()
