"""One client for every OpenAI-compatible model. The differences between endpoints are data, in providers.toml.

    import cnllm

    reply = cnllm.call("glm-4.7", "Why is the sky blue?")
    print(reply.text)

Names are imported at their first use, so that `import cnllm` takes almost no time.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know this name; importing `typing` for it would take half of the import time
if TYPE_CHECKING:
    from typing import Any

    from cnllm import engine, gateway, sdk
    from cnllm.client.api import Fitted, call, fit, run, stream
    from cnllm.client.async_client import AsyncClient, AsyncStream
    from cnllm.client.async_run import AsyncRun
    from cnllm.client.sanitizer import Sanitized, Sanitizer, sanitize
    from cnllm.client.sync_client import Client, Stream
    from cnllm.client.sync_run import Run
    from cnllm.engine.encode.plan import Plan
    from cnllm.engine.run.loop_effects import Step
    from cnllm.errors import (
        BadKey,
        BadRequest,
        CannotSend,
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
    from cnllm.tools import Tool, tool
    from cnllm.types import (
        BlockEnd,
        Cost,
        Event,
        Finished,
        Media,
        Message,
        Note,
        NoteAdded,
        Opaque,
        Part,
        Reasoning,
        ReasoningDelta,
        Reply,
        Request,
        Restarted,
        Seal,
        Text,
        TextDelta,
        ToolCall,
        ToolCallDelta,
        ToolCallEnd,
        ToolCallStart,
        ToolResult,
        Usage,
        UsageSeen,
    )
    from cnllm.types.policy import Limits, Recovery, Retry, Timeouts
    from cnllm.types.route import Fallback

__version__ = "0.1.0"

_MODULES = {
    "cnllm.client.sync_client": "Client Stream",
    "cnllm.client.async_client": "AsyncClient AsyncStream",
    "cnllm.engine.encode.plan": "Plan",
    "cnllm.engine.run.loop_effects": "Step",
    "cnllm.errors": (
        "BadKey BadRequest CannotSend CnllmError ContentFiltered ContextTooLong EmptyReply EndpointError IdleTimeout "
        "KeyMissing LoopStopped McpError NoTarget Overloaded QuotaExceeded RateLimited RegistryError ReplayMissing "
        "ReplyTooLarge StreamCut Timeout TransportError UnknownModel Untrusted"
    ),
    "cnllm.mcp_client": "mcp",
    "cnllm.registry.model": "Fact Model",
    "cnllm.types.policy": "Limits Recovery Retry Timeouts",
    "cnllm.types.route": "Fallback",
    "cnllm.registry": "Registry",
    "cnllm.client.sync_run": "Run",
    "cnllm.client.async_run": "AsyncRun",
    "cnllm.sentences": "Sentences",
    "cnllm.client.sanitizer": "Sanitized Sanitizer sanitize",
    "cnllm.client.api": "Fitted call fit run stream",
    "cnllm.tools": "Tool tool",
    "cnllm.types": (
        "BlockEnd Cost Event Finished Media Message Note NoteAdded Opaque Part Reasoning ReasoningDelta Reply "
        "Request Restarted RunSummary Seal Text TextDelta ToolCall ToolCallDelta ToolCallEnd ToolCallStart "
        "ToolResult Usage UsageSeen"
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
    "CannotSend",
    "Client",
    "CnllmError",
    "ContentFiltered",
    "ContextTooLong",
    "Cost",
    "EmptyReply",
    "EndpointError",
    "Event",
    "Fact",
    "Fallback",
    "Finished",
    "Fitted",
    "IdleTimeout",
    "KeyMissing",
    "Limits",
    "LoopStopped",
    "McpError",
    "Media",
    "Message",
    "Model",
    "NoTarget",
    "Note",
    "NoteAdded",
    "Opaque",
    "Overloaded",
    "Part",
    "Plan",
    "QuotaExceeded",
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
    "Run",
    "RunSummary",
    "Sanitized",
    "Sanitizer",
    "Seal",
    "Sentences",
    "Step",
    "Stream",
    "StreamCut",
    "Text",
    "TextDelta",
    "Timeout",
    "Timeouts",
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
    "call",
    "engine",
    "fit",
    "gateway",
    "mcp",
    "run",
    "sanitize",
    "sdk",
    "stream",
    "tool",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name in ("engine", "gateway", "sdk"):
        return importlib.import_module(f"cnllm.{name}")
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module 'cnllm' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULE_BY_NAME[name]), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
