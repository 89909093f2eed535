"""cnllm through its public names only; a stream is read event by event, then its reply."""

from collections.abc import Awaitable, Callable
from functools import cache

from msgspec.structs import replace

from benchmarks.payloads import CHUNK, KEY, LONG, MARKUP, MESSAGES, OPTIONS, TOOLS, Got, Setting, full
from benchmarks.runners.judged import judged
from benchmarks.runners.stopped import check_body
from benchmarks.tokens import ARGUMENTS
from cnllm import AsyncClient, Client, Model, ReasoningDelta, Registry, Reply, TextDelta, ToolCall, engine, sanitize
from cnllm.tools import as_tools, problem_with

_JSON = {"content-type": "application/json"}


@cache
def _client() -> Client:
    return Client(api_key=KEY)


@cache
def _async_client() -> AsyncClient:
    return AsyncClient(api_key=KEY)


def _model(setting: Setting) -> Model:
    base = setting.base_url if setting.wire == "openai-chat" else setting.root
    base += "/v1beta" if setting.wire == "gemini" else ""
    return Registry.load().resolve("openai-compatible/bench", base_url=base, protocol=setting.wire)


def _got(reply: Reply) -> Got:
    return Got(len(reply.reasoning), len(reply.text), reply.tool_calls[0].arguments)


def _check_deltas(model: Model) -> None:
    """Check once, before anything is timed, that the deltas add up to the reply."""
    with _client().stream(model, MESSAGES, **OPTIONS) as run:
        events = list(run)
    text = "".join(e.text for e in events if isinstance(e, TextDelta))
    reasoning = "".join(e.text for e in events if isinstance(e, ReasoningDelta))
    if (text, reasoning, "tool_calls") != (run.reply.text, run.reply.reasoning, run.reply.finish):
        raise SystemExit(f"wrong result: the deltas are not the reply, or {run.reply.finish!r} is not its finish")


def call(setting: Setting) -> Callable[[], Got]:
    client, model = _client(), _model(setting)
    return lambda: _got(client.call(model, MESSAGES, **OPTIONS))


def acall(setting: Setting) -> Callable[[], Awaitable[Got]]:
    client, model = _async_client(), _model(setting)

    async def one() -> Got:
        return _got(await client.call(model, MESSAGES, **OPTIONS))

    return one


def both(setting: Setting) -> Callable[[], Got]:
    """Do the engine's share of a request: its bytes, and the reply out of the answer's bytes."""
    model, answer = _model(setting), full()

    def one() -> Got:
        plan = engine.build_request(model, MESSAGES, **OPTIONS)
        return _got(engine.parse_response(model, 200, _JSON, answer, plan=plan))

    return one


def stream(setting: Setting) -> Callable[[], Got]:
    client, model = _client(), _model(setting)
    _check_deltas(_model(setting._replace(chunks=200)))

    def one() -> Got:
        with client.stream(model, MESSAGES, **OPTIONS) as run:
            for _event in run:
                pass
        return _got(run.reply)

    return one


def astream(setting: Setting) -> Callable[[], Awaitable[Got]]:
    client, model = _async_client(), _model(setting)

    async def one() -> Got:
        async with client.stream(model, MESSAGES, **OPTIONS) as run:
            async for _event in run:
                pass
        return _got(run.reply)

    return one


def parse(setting: Setting) -> Callable[[], Got]:
    model, pieces = _model(setting), setting.pieces()

    def one() -> Got:
        parser = engine.StreamParser(model, tools=TOOLS)
        for piece in pieces:
            parser.feed(piece)
        return _got(parser.close())

    return one


def parse_off(setting: Setting) -> Callable[[], Got]:
    model, pieces = _model(setting), setting.pieces()
    plan = engine.build_request(model, MESSAGES, stream=True, tools=TOOLS, recover_text_calls="keep")

    def one() -> Got:
        parser = engine.StreamParser(model, plan=plan)
        for piece in pieces:
            parser.feed(piece)
        return _got(parser.close())

    return one


def markup(setting: Setting) -> Callable[[], int]:
    """Filter a text that is nothing but pieces of markup: all of it must be left."""
    model, text = _model(setting), MARKUP[setting.mode] * (setting.chunks // len(MARKUP[setting.mode]))

    def one() -> int:
        if len(sanitize(model, text, TOOLS).text) != len(text):
            raise SystemExit("wrong result: text was lost")
        return setting.units

    return one


def marked(setting: Setting) -> Callable[[], int]:
    """Read a stream of HTML, of code or of prose, one event a feed: all of it must be left."""
    model, events = _model(setting), setting.marked()

    def one() -> int:
        parser = engine.StreamParser(model, tools=TOOLS)
        for event in events:
            parser.feed(event)
        if len(parser.close().text) != setting.chunks * CHUNK:
            raise SystemExit("wrong result: text was lost")
        return setting.units

    return one


def build(setting: Setting) -> Callable[[], int]:
    """Build the bytes of the body, the whole history anew each time."""
    model, options = _model(setting), {name: value for name, value in LONG.items() if name != "messages"}
    messages = LONG["messages"]
    check_body(engine.build_request(model, messages, **options).content)
    return lambda: bool(engine.build_request(model, messages, **options).content)


def build_plan(setting: Setting) -> Callable[[], int]:
    """Build the same by the client: the address, the headers and the place of the key as well."""
    client, model, messages = _client(), _model(setting), LONG["messages"]
    options = {name: value for name, value in LONG.items() if name != "messages"}
    check_body(client.plan(model, messages, **options).content)
    return lambda: bool(client.plan(model, messages, **options).content)


def validate(setting: Setting) -> Callable[[], int]:
    """Check a call's arguments, as before a tool is run."""
    tool = as_tools(TOOLS)[0]
    call = ToolCall("call_1", tool.name, {}, ARGUMENTS)
    return judged(lambda arguments: problem_with(tool, replace(call, arguments=arguments)) is None)
