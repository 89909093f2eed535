"""The tools of an MCP server as one value: how they are defined, how they are called, and what they return."""

from __future__ import annotations

import atexit
import base64
import hashlib
import json
import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, Self

from msgspec import Struct

from cnllm.config import redact
from cnllm.errors import McpError
from cnllm.mcp_client.result_repair import tool_damage
from cnllm.mcp_client.server import McpServer, tool_name
from cnllm.mcp_client.session import McpSession
from cnllm.system.event_loop import run_in_thread, wait_for_future
from cnllm.system.processes import fork_safe, generation
from cnllm.tools import Tool, ToolSet, shown, undecided_parameters
from cnllm.types import Media, ToolResult

__all__ = ["Definition", "McpTools"]

_MAX_TEXT = 500_000  # characters of a result; no model's window holds much more
_MAX_MEDIA = 20  # pictures of a result
_MAX_DESCRIPTION = 20_000  # characters
_MAX_TOOLS = 1000


class Definition(Struct, frozen=True):
    """A tool as its server describes it. `offered_name` is its name for models; `server` is the command or URL.

    `digest` changes with the name, the description, the schema and the server: an approval holds for one digest.
    """

    offered_name: str
    label: str
    server: str
    name: str
    description: str | None
    schema: dict[str, Any]
    digest: str


class McpTools(ToolSet):
    """The tools of an MCP server, for `tools=[…]`. Made by `cnllm.mcp`.

    The server starts at the first use. A run closes it at its end, a client when it is closed; within `with` (or
    `async with`) it stays open. Safe to share between threads; a forked child starts a server of its own.
    """

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._lock = fork_safe(threading.RLock())  # held while the server starts
        self._users = 0
        self._holder = _Holder()
        self._listed: list[Any] | None = None
        self._is_fresh = False  # the list was not used since the server gave it
        self.skipped: tuple[tuple[str, str], ...] = ()
        """The tools of the last list that are not offered: pairs of a name and the reason."""
        weakref.finalize(self, _Holder.close, self._holder, wait=False).atexit = False

    @property
    def label(self) -> str:
        """Return the word that the names of the tools begin with."""
        return self._server.label

    @property
    def server(self) -> str:
        """Return the command or the URL, without secrets."""
        return str(self._server)

    def secrets(self) -> tuple[str, ...]:
        """Return the values that no message may hold."""
        return self._server.secrets()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.label}: {self.server}>"

    def __reduce__(self) -> Any:
        raise TypeError("the tools of a server hold a connection, which cannot be copied; call cnllm.mcp there instead")

    # ── the tools ────────────────────────────────────────────────────────────

    def tools(self, label: str | None = None) -> tuple[Tool, ...]:
        """Return the tools; each is async. Raise `McpError` where the server does not start.

        A server that runs is asked for them each time; it is started again if it has ended. One that does not run is
        started only if its tools are not known.
        """
        return tuple(self.tool(definition) for definition in self.definitions(label))

    def definitions(self, label: str | None = None) -> tuple[Definition, ...]:
        """Return the definitions of the tools, as `tools` does."""
        with self._lock:
            if self._listed is None or self._users:
                with self:
                    if not self._is_fresh:
                        self._session(ask=True)
                    self._is_fresh = False
            listed = self._listed or []
        label = self.label if label is None else label
        return tuple(_definition(self._server, label, tool) for tool in listed)

    def tool(self, definition: Definition) -> Tool:
        """Return the tool of one of the definitions."""

        async def call(**arguments: Any) -> ToolResult:
            submit = partial(self._submit, definition.name, arguments)
            is_open = self._holder.session is not None  # else a server has to start
            return self._result(await wait_for_future(submit() if is_open else await run_in_thread(submit)))

        text = definition.description
        description = None if text is None else text[:_MAX_DESCRIPTION]
        return Tool(definition.offered_name, description, definition.schema, call, timeout=self._server.timeout)

    def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Call a tool by its own name and wait. Raise `McpError` where the server fails or takes too long.

        A tool's own error is a result with `error`.
        """
        limit = self._server.timeout
        with self:
            result = self._submit(name, dict(arguments or {}))
            try:
                return self._result(result.result(limit))
            except TimeoutError:
                raise McpError(
                    f"{name} of the MCP server {self.label} gave no result in {limit:g} s", server=self.server
                ) from None
            except CancelledError:
                raise McpError(f"the MCP server {self.label} was closed", server=self.server) from None
            finally:
                result.cancel()

    def _result(self, result: Any) -> ToolResult:
        """Return a `CallToolResult` as text, with its pictures and sounds as media.

        It is without the secrets that its server got, because it goes to the model's endpoint. A link becomes its
        address, which is not fetched. A file that is no text and no picture becomes a line that names it. Structured
        content is used where there is no other.
        """
        texts: list[str] = []
        media: list[Media] = []
        for block in result.content:
            part = _part(block)
            if isinstance(part, str):
                texts.append(part)
            elif len(media) < _MAX_MEDIA:
                media.append(part)
            else:
                texts.append(f"[{part.type} left out: a result may hold {_MAX_MEDIA} media]")
        if not texts and not media and result.structured_content is not None:
            texts.append(shown(result.structured_content))
        text = redact.redact("\n".join(texts), self._server.echoed_secrets())
        if len(text) > _MAX_TEXT:
            text = f"{text[:_MAX_TEXT]}\n[cut off after {_MAX_TEXT} characters]"
        return ToolResult("", text, error=bool(result.is_error), media=tuple(media))

    def _submit(self, name: str, arguments: dict[str, Any]) -> Future[Any]:
        """Begin a call in the open session; where there is none, open one."""
        session = self._holder.session
        if session is None or session.generation != generation():
            with self._lock:
                session = self._session()
        return session.call(name, arguments)

    # ── the session ──────────────────────────────────────────────────────────

    def retain(self) -> None:
        """Start the server if it does not run, and keep it until `release`. Raise `McpError` where that fails."""
        with self._lock:
            self._users += 1
            try:
                self._session()
            except BaseException:
                self.release()
                raise

    def release(self) -> None:
        """Undo one `retain`. The last one ends the server."""
        with self._lock:
            self._users = max(0, self._users - 1)
            if not self._users:
                self._holder.close()

    def close(self) -> None:
        """End the server, even if another run uses it."""
        with self._lock:
            self._users = 0
            self._holder.close()

    def _session(self, *, ask: bool = False) -> McpSession:
        """Return an open session whose tools are known. With `ask`, an open one is asked for them again."""
        session = self._holder.session
        if session is not None and session.is_open:
            if not ask and not session.is_doubtful:
                return session
            try:
                self._store(session.list_tools().result())
                return session
            except (McpError, CancelledError):
                pass  # it has ended; start it again
        self._holder.close()
        session = McpSession(self._server)
        self._holder.hold(session)
        try:
            session.start()
            self._store(session.opened.result())
        except BaseException:
            self._holder.close()
            raise
        return session

    def _store(self, tools: list[Any]) -> None:
        """Store the list of tools, without those that cannot be offered."""
        by_name: dict[str, Any] = {}
        skipped: list[tuple[str, str]] = []
        for tool in tools:
            offered_name = tool_name(self.label, tool.name)
            if (problem := self._problem(tool, offered_name, by_name)) is None:
                by_name[offered_name] = tool
            elif problem:
                skipped.append((tool.name, problem))
        selection = self._server.tools
        names = {tool.name for tool in by_name.values()}
        missing = () if selection is None else tuple(name for name in selection if name not in names)
        if missing:
            reason = dict(skipped).get(missing[0])
            message = f"the MCP server {self.label} has no tool {missing[0]}"
            if reason is not None:
                message = f"the MCP server {self.label} cannot offer its tool {missing[0]}: {reason}"
            raise McpError(
                message,
                server=self.server,
                hint=f"it has {', '.join(tool.name for tool in tools) or 'none'}",
            )
        self._is_fresh = True
        self._listed, self.skipped = list(by_name.values()), tuple(skipped)

    def _problem(self, tool: Any, offered_name: str, by_name: Mapping[str, Any]) -> str | None:
        """Return why a tool is not offered: empty where the user did not name it; None where it is offered.

        `by_name` are the tools before it by the names for models.
        """
        if self._server.tools is not None and tool.name not in self._server.tools:
            return ""
        if (damage := tool_damage(tool)) is not None:
            return damage
        if offered_name in by_name:
            return "another tool of this server has the same name"
        if len(by_name) >= _MAX_TOOLS:
            return f"at most {_MAX_TOOLS:,} tools of a server are offered; name those that you want in tools="
        try:
            undecided_parameters(Tool(tool.name, None, tool.input_schema))
        except ValueError as error:
            return str(error)
        return None

    # ── with ─────────────────────────────────────────────────────────────────

    def __enter__(self) -> Self:
        self.retain()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    async def __aenter__(self) -> Self:
        await run_in_thread(self.retain)
        return self

    async def __aexit__(self, *_: object) -> None:
        import anyio

        with anyio.CancelScope(shield=True):
            await run_in_thread(self.release)


class _Holder:
    """The current session of a set, which the end of the program closes."""

    def __init__(self) -> None:
        self.session: McpSession | None = None

    def hold(self, session: McpSession) -> None:
        """Keep a session until it is closed."""
        self.session = session
        atexit.register(self.close)

    def close(self, *, wait: bool = True) -> None:
        """Close the session. Without `wait` it may end later: garbage may be collected in any thread."""
        session, self.session = self.session, None
        atexit.unregister(self.close)
        if session is not None:
            session.close(wait=wait)


def _definition(server: McpServer, label: str, tool: Any) -> Definition:
    """Return the definition of a tool in a server's list."""
    content = [server.identity, tool.name, tool.description, tool.input_schema]
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    description, schema = redact.redact_data([tool.description, tool.input_schema], server.echoed_secrets())
    return Definition(tool_name(label, tool.name), label, str(server), tool.name, description, schema, digest)


def _part(block: Any) -> str | Media:
    """Return a block of content as text or as a medium."""
    if block.type == "text":
        return str(block.text)
    if block.type in ("image", "audio"):
        return _media(block.mime_type, block.data)
    if block.type == "resource_link":
        title = block.title or block.name
        return f"[{title}: {block.uri}]" if title else f"[{block.uri}]"
    resource = block.resource
    if (text := getattr(resource, "text", None)) is not None:
        return str(text)
    kind = resource.mime_type or "application/octet-stream"
    if kind.partition("/")[0] in ("image", "audio"):
        return _media(kind, resource.blob)
    return f"[file left out: {resource.uri} ({kind})]"


def _media(kind: str, data: str) -> str | Media:
    """Return a medium, or a text in its place where its data are damaged: endpoints refuse every request with it."""
    try:
        is_whole = bool(base64.b64decode(data, validate=True))
    except ValueError:
        is_whole = False
    return Media(kind, data) if is_whole else f"[{kind} left out: its data are empty, or are not Base64]"
