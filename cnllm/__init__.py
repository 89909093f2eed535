"""One client for every OpenAI-compatible model. The differences between endpoints are data, in providers.toml.

    import cnllm

    reply = cnllm.call("glm-4.7", "Why is the sky blue?")
    print(reply.text)

Names are imported at their first use, so that `import cnllm` takes almost no time.
"""

from __future__ import annotations

from cnllm._version import MARKER, VERSION

TYPE_CHECKING = False  # type checkers know this name; importing `typing` for it would take half of the import time
if TYPE_CHECKING:
    from cnllm import batch, daft, engine, gateway, probe, ray, sdk
    from cnllm.client.api import Fitted, call, fit, run, stream
    from cnllm.client.async_client import AsyncClient
    from cnllm.client.async_run import AsyncRun
    from cnllm.client.async_stream import AsyncStream
    from cnllm.client.sanitizer import Sanitized, Sanitizer, sanitize
    from cnllm.client.sync_client import Client
    from cnllm.client.sync_run import Run
    from cnllm.client.sync_stream import Stream
    from cnllm.comparison.hosts import compare
    from cnllm.engine.encode.plan import Plan
    from cnllm.errors import (
        BadKey,
        BadRequest,
        CannotSend,
        ClientClosed,
        CnllmError,
        ContentFiltered,
        ContextTooLong,
        EmptyReply,
        EndpointError,
        IdleTimeout,
        KeyMissing,
        LoopStopped,
        McpError,
        NoTarget,
        Overloaded,
        QuotaExceeded,
        RateLimited,
        RegistryError,
        ReplayMissing,
        ReplyTooLarge,
        StreamCut,
        Timeout,
        TransportError,
        UnknownModel,
        Untrusted,
    )
    from cnllm.mcp_client import mcp
    from cnllm.registry import Registry
    from cnllm.registry.model import Fact, Model
    from cnllm.sentences import Sentences
    from cnllm.tools import Tool, tool, web_search
    from cnllm.types import (
        BlockEnd,
        Citation,
        CitationAdded,
        Cost,
        Event,
        ExtraAdded,
        Finish,
        Finished,
        Media,
        Message,
        Note,
        NoteAdded,
        Opaque,
        Part,
        Quote,
        Reasoning,
        ReasoningDelta,
        Reply,
        Request,
        Restarted,
        Role,
        RunSummary,
        Seal,
        Step,
        Stopped,
        Text,
        TextDelta,
        Timing,
        ToolCall,
        ToolCallDelta,
        ToolCallEnd,
        ToolCallStart,
        ToolResult,
        Usage,
        UsageSeen,
    )
    from cnllm.types.call_options import CallOptions, RunOptions
    from cnllm.types.messages import MessageDict, Messages
    from cnllm.types.note_codes import NoteCode
    from cnllm.types.policy import Fallback, Limits, Recovery, Retry, Timeouts

__version__ = VERSION
_MARKER = MARKER

_MODULES = {
    "cnllm.client.sync_client": "Client",
    "cnllm.client.async_client": "AsyncClient",
    "cnllm.client.sync_stream": "Stream",
    "cnllm.client.async_stream": "AsyncStream",
    "cnllm.engine.encode.plan": "Plan",
    "cnllm.errors": (
        "BadKey BadRequest CannotSend ClientClosed CnllmError ContentFiltered ContextTooLong EmptyReply EndpointError "
        "IdleTimeout KeyMissing LoopStopped McpError NoTarget Overloaded QuotaExceeded RateLimited RegistryError "
        "ReplayMissing "
        "ReplyTooLarge StreamCut Timeout TransportError UnknownModel Untrusted"
    ),
    "cnllm.mcp_client": "mcp",
    "cnllm.registry.model": "Fact Model",
    "cnllm.types.call_options": "CallOptions RunOptions",
    "cnllm.types.messages": "MessageDict Messages",
    "cnllm.types.note_codes": "NoteCode",
    "cnllm.types.policy": "Fallback Limits Recovery Retry Timeouts",
    "cnllm.registry": "Registry",
    "cnllm.client.sync_run": "Run",
    "cnllm.client.async_run": "AsyncRun",
    "cnllm.sentences": "Sentences",
    "cnllm.client.sanitizer": "Sanitized Sanitizer sanitize",
    "cnllm.client.api": "Fitted call fit run stream",
    "cnllm.comparison.hosts": "compare",
    "cnllm.tools": "Tool tool web_search",
    "cnllm.types": (
        "BlockEnd Citation CitationAdded Cost Event ExtraAdded Finish Finished Media Message Note NoteAdded Opaque "
        "Part Quote Reasoning ReasoningDelta Reply Request Restarted Role RunSummary Seal Step Stopped Text TextDelta "
        "Timing ToolCall ToolCallDelta ToolCallEnd ToolCallStart ToolResult Usage UsageSeen"
    ),
}
_MODULE_BY_NAME = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "AsyncClient",
    "AsyncRun",
    "AsyncStream",
    "BadKey",
    "BadRequest",
    "BlockEnd",
    "CallOptions",
    "CannotSend",
    "Citation",
    "CitationAdded",
    "Client",
    "ClientClosed",
    "CnllmError",
    "ContentFiltered",
    "ContextTooLong",
    "Cost",
    "EmptyReply",
    "EndpointError",
    "Event",
    "ExtraAdded",
    "Fact",
    "Fallback",
    "Finish",
    "Finished",
    "Fitted",
    "IdleTimeout",
    "KeyMissing",
    "Limits",
    "LoopStopped",
    "McpError",
    "Media",
    "Message",
    "MessageDict",
    "Messages",
    "Model",
    "NoTarget",
    "Note",
    "NoteAdded",
    "NoteCode",
    "Opaque",
    "Overloaded",
    "Part",
    "Plan",
    "QuotaExceeded",
    "Quote",
    "RateLimited",
    "Reasoning",
    "ReasoningDelta",
    "Recovery",
    "Registry",
    "RegistryError",
    "ReplayMissing",
    "Reply",
    "ReplyTooLarge",
    "Request",
    "Restarted",
    "Retry",
    "Role",
    "Run",
    "RunOptions",
    "RunSummary",
    "Sanitized",
    "Sanitizer",
    "Seal",
    "Sentences",
    "Step",
    "Stopped",
    "Stream",
    "StreamCut",
    "Text",
    "TextDelta",
    "Timeout",
    "Timeouts",
    "Timing",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallEnd",
    "ToolCallStart",
    "ToolResult",
    "TransportError",
    "UnknownModel",
    "Untrusted",
    "Usage",
    "UsageSeen",
    "batch",
    "call",
    "compare",
    "daft",
    "engine",
    "fit",
    "gateway",
    "mcp",
    "probe",
    "ray",
    "run",
    "sanitize",
    "sdk",
    "stream",
    "tool",
    "web_search",
]


if not TYPE_CHECKING:  # a type checker would take it that every name exists

    def __getattr__(name: str) -> object:
        import importlib

        if name in ("batch", "daft", "engine", "gateway", "probe", "ray", "sdk"):
            return importlib.import_module(f"cnllm.{name}")
        if name not in _MODULE_BY_NAME:
            raise AttributeError(f"module 'cnllm' has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(_MODULE_BY_NAME[name]), name)
        return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
