"""The measurements of each suite, in the words of the report, and the form of its rows."""

from enum import Enum
from typing import NamedTuple

from benchmarks.peers import AIOHTTP, BARE, HAND, KEPT, OFF, PYDANTIC, RAW, RAW_GATEWAY, READY, TYPED


class Form(Enum):
    """The columns of a suite's table."""

    UNIT = "microseconds of a unit"
    PROCESS = "milliseconds of a process"
    MEMORY = "megabytes"
    LOAD = "units a second"


class About(NamedTuple):
    """A suite: its heading, the meaning and the origin of a figure, and the peer that the others are compared with."""

    title: str
    unit: str
    how: str
    against: tuple[str, ...] = ()
    form: Form = Form.UNIT


ABOUT = {
    "cold": About(
        "Cold start",
        "one process",
        "Whole processes, seen from outside, from start to exit. One streamed call: a script of ten lines by each "
        "peer, and `cnllm call`; 200 chunks, no tools. Each program's output is checked first.",
        ("python -c pass",),
        Form.PROCESS,
    ),
    "request": About(
        "A request",
        "one request",
        "Four messages and two tools go out, an answer with reasoning, text and a tool call comes back, not streamed; "
        "one after another over a connection that stays open.",
        (RAW, HAND),
    ),
    "stream": About(
        "A stream",
        "one chunk",
        "The same request; 1,024 chunks of about 300 bytes: half reasoning, half text, a tool call in 20, usage. "
        "A server that flushes makes each event an HTTP chunk; a proxy that buffers makes 16 KB of them one.",
        (RAW, HAND),
    ),
    "wires": About(
        "The other wires",
        "one event",
        "The same content in the other three protocols: fed to the parser as it is, and streamed (one HTTP chunk per "
        "event) beside the SDK of the vendor whose protocol it is.",
    ),
    "concurrent": About(
        "Concurrency",
        "one chunk",
        "That many streams of 224 chunks at once in one process (asyncio), in a new process each round, opening the "
        "connections included. Every stream's content is checked.",
        (RAW, HAND),
    ),
    "memory": About(
        "Memory",
        "one process",
        "How far resident memory rose while the calls ran, above what there was after warming up; and the most that "
        "Python had allocated during one more stream. The text itself is in it: 0.18 million characters, 0.35 MB.",
        form=Form.MEMORY,
    ),
    "build": About(
        "Building a request",
        "one request",
        "From 100 messages and 20 tools to the bytes of the body; nothing is sent. The limit encodes a body that is "
        "there already. The peers make their public call, which a transport of their HTTP client ends where it would "
        "connect; so their rows have that client's own request in them too.",
        (READY,),
    ),
    "parse": About(
        "Parsing",
        "one chunk",
        "The stream's bytes are in memory; `StreamParser.feed` makes events and a reply of them. The limits split "
        "them into lines, decode each, and keep nothing: with orjson all of it, with msgspec what a client needs.",
        (TYPED, BARE),
    ),
    "filters": About(
        "Looking for leaks",
        "one chunk, or 1,000 characters of a long text",
        "Calls that a model writes into its text are looked for; `keep` switches that off. Most long texts are nothing "
        "but beginnings of markup: the worst that can be fed to it.",
        (OFF,),
    ),
    "validate": About(
        "Checking arguments",
        "one check",
        "The arguments of a tool call against the tool's JSON Schema. A validator must refuse six bad ones first. "
        "pydantic needs the schema as a class written by hand.",
        (PYDANTIC, KEPT),
    ),
    "registry": About(
        "Loading the registry",
        "one load",
        "`Registry.load(…).resolve(…)`, once in a new process, the cache there from an earlier one; the first run, "
        "which fills it, apart.",
        form=Form.PROCESS,
    ),
    "gateway": About(
        "A gateway",
        "one request, or one chunk of a stream",
        "Each gateway has one core; the stub and the load (wrk where it is installed) share the other one. The "
        "request and the answers are those of the suites above, with a model whose reasoning goes back to it. Half "
        "load is half of the requests that the gateway answers at most, at a steady rate; the stub alone gets those "
        "of cnllm. The raw gateway parses, forwards and encodes, and does nothing else: no keys, no errors, no state. "
        "Messages → chat is the way of Claude Code to an endpoint of the chat protocol.",
        (RAW_GATEWAY,),
        Form.LOAD,
    ),
    "batch": About(
        "A batch",
        "one row",
        "20,000 prompts, each in a request of its own, to a stub that answers after 50 ms. By hand there is no file, "
        "no state, no retry; `cnllm batch` reads a file, keeps each answer durably, and writes a file. The start of "
        "the process is not in it.",
        (AIOHTTP,),
    ),
}
