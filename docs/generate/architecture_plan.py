"""Describe the architecture: the floors of the package from the top down, and the way of one call.

`tests/manual/test_architecture.py` holds this against the imports of the package and against its functions.
"""

from __future__ import annotations

import msgspec

__all__ = ["FLOORS", "STEPS", "Box", "Floor", "Step"]


class Box(msgspec.Struct, frozen=True):
    """A box of the drawing. `rooms` of it import only those that stand further right.

    `left` and `width` are in twelfths of the drawing.
    """

    name: str
    purpose: str
    left: float
    width: float
    rooms: tuple[str, ...] = ()

    def all_rooms(self) -> tuple[str, ...]:
        """Return its rooms: those it names, or the one of its name."""
        return self.rooms or (self.name,)


class Floor(msgspec.Struct, frozen=True):
    """Boxes that stand side by side and do not import each other. They import what is on the floors below."""

    name: str
    boxes: tuple[Box, ...]


FLOORS = (
    Floor(
        "Command line",
        (
            Box(
                "cli",
                "commands and their output",
                0,
                8.6,
                ("__main__", "cli/commands", "cli", "cli/matrix", "cli/output", "cli/language"),
            ),
        ),
    ),
    Floor(
        "Other programs",
        (
            Box("daft", "answers Daft's prompt", 0, 2),
            Box("ray", "Ray Data, batches over Ray", 2.2, 2.4),
            Box("comparison", "measures hosts", 4.8, 1.7),
            Box("launch", "starts a client", 6.7, 2.1),
            Box("sdk", "HTTP clients for SDKs", 9, 3),
        ),
    ),
    Floor(
        "Uses of the client",
        (
            Box("mcp_client", "MCP servers", 0, 1.55),
            Box("tool_trial", "scored tasks", 1.75, 1.55),
            Box("probe", "describes endpoints", 3.5, 1.7),
            Box("batch", "many requests", 5.4, 1.6),
            Box(
                "gateway",
                "serves every protocol",
                7.3,
                4.7,
                ("gateway", "gateway/monitoring", "gateway/limits", "gateway/store"),
            ),
        ),
    ),
    Floor(
        "Client",
        (
            Box("client", "Client and AsyncClient: they perform what the engine asks for", 0, 7),
            Box("registry_export", "for other programs", 9.3, 2.7),
        ),
    ),
    Floor(
        "Around a call",
        (
            Box("transports", "send plans, return bytes", 3.6, 2.8),
            Box("estimates", "tokens and cost", 7.4, 2.2),
            Box("bills", "against the log", 9.9, 2.1),
        ),
    ),
    Floor(
        "Engine",
        (
            Box("simulator", "plays endpoints", 1.2, 1.6),
            Box(
                "engine",
                "requests and replies: pure, no I/O, no keys",
                3,
                7.2,
                (
                    "engine",
                    "engine/run",
                    "engine/decode",
                    "engine/encode",
                    "engine/history",
                    "engine/options",
                    "engine/adjustments",
                    "engine/similar_names",
                ),
            ),
            Box("model_facts", "for listings", 10.4, 1.6),
        ),
    ),
    Floor(
        "Wires and tools",
        (
            Box(
                "protocols",
                "a folder for each wire",
                1,
                4.5,
                ("protocols/chat", "protocols/messages", "protocols/gemini", "protocols/responses", "protocols"),
            ),
            Box("leaks", "tool calls in text", 5.8, 1.9),
            Box("tools", "functions of yours", 8, 1.9),
            Box("registry_files", "check, edit, update", 10.1, 1.9),
        ),
    ),
    Floor(
        "Data",
        (
            Box("sentences", "splits answers", 0, 1.25),
            Box("cassette", "replays calls", 1.35, 1.25),
            Box("registry", "providers.toml → Model: all that differs by endpoint", 3, 5.5),
            Box("store", "conversations", 10.2, 1.8),
        ),
    ),
    Floor("Settings", (Box("config", "folders, keys, redaction", 3.6, 3),)),
    Floor("System", (Box("system", "files and processes", 3.6, 2.4),)),
    Floor("Failures", (Box("errors", "typed errors", 3.6, 1.7),)),
    Floor(
        "Ground",
        (
            Box("_version", "a number", 2, 1.2),
            Box("types", "messages, events, replies", 3.4, 2.9),
            Box("schemas", "JSON Schema", 6.6, 1.8),
            Box("jsonpath", "paths in JSON", 8.7, 1.5),
        ),
    ),
)
"""The floors, from the top down."""


class Step(msgspec.Struct, frozen=True):
    """One step of a call: `makes` is what comes out of `function`, which stands in `room`."""

    makes: str
    room: str
    function: str


STEPS = (
    Step("name", "", ""),
    Step("Model", "registry", "cnllm.registry:Registry.resolve"),
    Step("fitted history", "engine/history", "cnllm.engine.history.fit:fit"),
    Step("Plan", "engine/encode", "cnllm.engine.encode.build:build_request"),
    Step("bytes", "transports", "cnllm.transports:Transport"),
    Step("pieces", "protocols/chat", "cnllm.protocols.chat.client_decode:ChatDecoder"),
    Step("filtered", "leaks", "cnllm.leaks.filter:LeakFilter"),
    Step("Reply", "engine/decode", "cnllm.engine.decode.settle:settle"),
)
"""The way of one call, from a name to a reply."""
