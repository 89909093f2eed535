"""How tools are executed, and what the model is told of those that were not."""

import asyncio
import contextvars
import threading
from typing import Annotated, Any

import anyio
import pytest
from pydantic import AfterValidator

import cnllm

from .support import ONCE, SOON, Backend, Loops, Peer, at, ran, registry, results, sent, turns


def meeting(kind: str, count: int) -> Any:
    """A tool that returns once as many calls of it run side by side."""
    together = threading.Barrier(count)
    here: list[int] = []

    def meet(n: int) -> str:
        together.wait(SOON)
        return f"met {n}"

    async def ameet(n: int) -> str:
        here.append(n)
        with anyio.fail_after(SOON):
            while len(here) < count:
                await anyio.sleep(0)
        return f"met {n}"

    return cnllm.tool(ameet if kind == "async" else meet, name="meet")


MEET = [("meet", f'{{"n": {n}}}') for n in range(3)]


def test_plain_calls_of_a_step_run_side_by_side(client: Loops, verb: str) -> None:
    with Peer(*turns(verb, MEET, "Done.")) as peer:
        ran(client, verb, at(peer), tools=[meeting("plain", 3)])
    assert list(results(peer).values()) == ["met 0", "met 1", "met 2"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_async_calls_of_a_step_run_side_by_side(backend: Backend) -> None:
    with Loops(backend) as client, Peer(*turns("run", MEET, "Done.")) as peer:
        client.run(at(peer), tools=[meeting("async", 3)])
    assert list(results(peer).values()) == ["met 0", "met 1", "met 2"]


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_no_more_at_a_time_than_may_be(client: Loops, verb: str, kind: str) -> None:
    lock, inside, most = threading.Lock(), 0, 0
    pairs = threading.Barrier(2)

    def enter(by: int) -> None:
        nonlocal inside, most
        with lock:
            inside += by
            most = max(most, inside)

    def work(n: int) -> int:
        enter(1)
        pairs.wait(SOON)  # two are in here at the same time, for certain
        enter(-1)
        return n

    async def awork(n: int) -> int:
        enter(1)
        await anyio.lowlevel.checkpoint()
        enter(-1)
        return n

    tool = cnllm.tool(awork if kind == "async" else work, name="work")
    calls = [("work", f'{{"n": {n}}}') for n in range(6)]
    with Peer(*turns(verb, calls, "Done.")) as peer:
        ran(client, verb, at(peer), tools=[tool], max_parallel=2)
    assert list(results(peer).values()) == ["0", "1", "2", "3", "4", "5"]
    assert most == 2 if kind == "plain" else most <= 2


def test_an_async_tool_runs_under_the_sync_client_too() -> None:
    async def slow(n: int) -> int:
        await anyio.sleep(0)
        return n + 1

    with Loops("sync") as client, Peer(*turns("run", [("slow", '{"n": 1}')], "Done.")) as peer:
        client.run(at(peer), tools=[slow])
    assert list(results(peer).values()) == ["2"]


def test_a_plain_function_may_return_what_is_to_be_awaited(client: Loops, verb: str) -> None:
    async def inner(n: int) -> int:
        return n + 1

    def outer(n: int) -> Any:
        return inner(n)

    with Peer(*turns(verb, [("outer", '{"n": 1}')], "Done.")) as peer:
        ran(client, verb, at(peer), tools=[outer])
    assert list(results(peer).values()) == ["2"]


def test_a_tool_sees_the_context_variables_of_its_caller() -> None:
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who")

    def whoami() -> str:
        return who.get()

    with Loops("sync") as client, Peer(*turns("run", [("whoami", "{}")], "Done.")) as peer:
        token = who.set("me")
        client.run(at(peer), tools=[whoami])
        who.reset(token)
    assert list(results(peer).values()) == ["me"]


async def agen() -> Any:
    for n in (1, 2):
        yield n


def gen() -> Any:
    yield 1
    yield 2


def breaks() -> Any:
    yield 1
    raise ValueError("broken off")


class Unsayable:
    def __str__(self) -> str:
        raise LookupError("no words")


def unsayable() -> Any:
    return Unsayable()


@pytest.mark.parametrize(
    ("tool", "told"),
    [(gen, "[1,2]"), (agen, "[1,2]"), (breaks, "ValueError: broken off"), (unsayable, "LookupError: no words")],
)
def test_what_is_returned_is_written_down_while_the_tool_runs(client: Loops, verb: str, tool: Any, told: str) -> None:
    """A generator's body is the tool too: what it raises is told, as is what a value raises when it is written."""
    with Peer(*turns(verb, [("t", "{}")], "Done.")) as peer:
        ran(client, verb, at(peer), tools=[cnllm.tool(tool, name="t")])
    assert list(results(peer).values()) == [told]


def test_a_generator_that_takes_too_long_is_not_waited_for(client: Loops) -> None:
    over = threading.Event()

    def slow() -> Any:
        over.wait(SOON)
        yield 1

    with Peer(*turns("run", [("slow", "{}")], "Done.")) as peer:
        client.run(at(peer), tools=[slow], tool_timeout=0.05)
        over.set()
    assert list(results(peer).values()) == ["Error: Timeout: it gave no result in 0.05 s"]


def test_halves_of_characters_in_a_result_stop_nothing(client: Loops, verb: str) -> None:
    """Names of files that are not UTF-8 come so."""
    with Peer(*turns(verb, [("ls", "{}")], "Done.")) as peer:
        ran(client, verb, at(peer), tools=[cnllm.tool(lambda: "a\udcff", name="ls")])
    assert list(results(peer).values()) == ["a\ufffd"]


# ── what goes wrong ──────────────────────────────────────────────────────────
SECRET = "sk-0123456789abcdef"


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_an_error_is_told_without_a_traceback_or_the_key(verb: str, backend: Backend, kind: str) -> None:
    def fail(n: int) -> str:
        raise LookupError(f"no {n} with {SECRET}")

    async def afail(n: int) -> str:
        return fail(n)

    tool = cnllm.tool(afail if kind == "async" else fail, name="fail")
    with Loops(backend, api_key=SECRET) as client, Peer(*turns(verb, [("fail", '{"n": 7}')], "Sorry.")) as peer:
        run = ran(client, verb, at(peer), tools=[tool])[1]
    assert list(results(peer).values()) == ["LookupError: no 7 with [redacted]"]
    assert (run.stopped, run.steps[0].called, run.steps[0].returned) == ("done", 1, 0)
    assert run.steps[0].results[0].error


class Odd(BaseException):
    """A BaseException that is no Exception, as those of test runners."""


def odd() -> None:
    raise Odd("seen")


async def aodd() -> None:
    raise Odd("seen")


class Wordless(Exception):
    def __str__(self) -> str:
        raise LookupError("no words")


def wordless() -> None:
    raise Wordless


def exhausted() -> None:
    next(iter([]))


def given_up() -> None:
    raise asyncio.CancelledError


async def agiven_up() -> None:
    raise asyncio.CancelledError


async def aleft() -> None:
    raise GeneratorExit


@pytest.mark.parametrize("backend", ["sync", "asyncio"])
@pytest.mark.parametrize(
    ("tool", "told"),
    [
        (odd, "Error: Odd: seen"),
        (aodd, "Error: Odd: seen"),
        (given_up, "CancelledError"),
        (agiven_up, "CancelledError"),
        (aleft, "Error: GeneratorExit"),
        (wordless, "Error: Wordless"),
        (exhausted, "Error: StopIteration"),
    ],
)
def test_what_is_raised_past_exception_is_told_too(backend: Backend, tool: Any, told: str) -> None:
    """A CancelledError that nobody sent to the run is the tool's own failure, and the other calls go on."""
    with Loops(backend, retry=ONCE) as client, Peer(*turns("run", [("t", "{}"), ("ok", "{}")], "Done.")) as peer:
        tools = [cnllm.tool(tool, name="t"), cnllm.tool(lambda: "fine", name="ok")]
        client.run(at(peer), tools=tools, max_parallel=1)
    assert list(results(peer).values()) == [told, "fine"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_tool_that_ends_the_program_ends_it(asynchronous: bool) -> None:
    def leave() -> None:
        raise SystemExit(3)

    async def aleave() -> None:
        raise SystemExit(3)

    tool = cnllm.tool(aleave if asynchronous else leave, name="leave")

    async def main(peer: Peer) -> None:
        async with cnllm.AsyncClient(registry()) as client:
            await client.run(at(peer), "hi", tools=[tool])

    with Peer(*turns("run", [("leave", "{}")])) as peer, pytest.raises(SystemExit) as caught:
        asyncio.run(main(peer))
    assert caught.value.code == 3


def test_an_argument_that_is_good_no_more_when_it_is_executed_is_told(client: Loops, verb: str) -> None:
    seen: list[int] = []

    def once(value: int) -> int:
        seen.append(value)
        if len(seen) > 1:
            raise ValueError("gone meanwhile")
        return value

    def take(n: Annotated[int, AfterValidator(once)]) -> int:
        return n

    tool = cnllm.tool(take)
    with Peer(*turns(verb, [("take", '{"n": 1}')], "Done.")) as peer:
        ran(client, verb, at(peer), tools=[tool])
    assert "gone meanwhile" in results(peer)["c_take_0"]


@pytest.mark.parametrize("kind", ["plain", "async"])
@pytest.mark.parametrize("where", ["tool", "run"])
def test_a_tool_that_takes_too_long_is_not_waited_for(client: Loops, verb: str, kind: str, where: str) -> None:
    over = threading.Event()

    def stuck() -> str:
        over.wait(SOON)
        return "late"

    async def astuck() -> str:
        await anyio.sleep_forever() if client._a else await __import__("asyncio").sleep(SOON)
        return "late"

    tool = cnllm.tool(astuck if kind == "async" else stuck, name="stuck", timeout=0.05 if where == "tool" else None)
    options = {"tool_timeout": 0.05 if where == "run" else 99}
    with Peer(*turns(verb, [("stuck", "{}"), ("quick", "{}")], "Done.")) as peer:
        ran(client, verb, at(peer), tools=[tool, cnllm.tool(lambda: "quick", name="quick", timeout=99)], **options)
        over.set()
    assert list(results(peer).values()) == ["Error: Timeout: it gave no result in 0.05 s", "quick"]


def test_a_time_without_end_is_a_time(client: Loops) -> None:
    with Peer(*turns("run", [("now", "{}")], "Noon.")) as peer:
        assert client.run(at(peer), tools=[cnllm.tool(lambda: 1, name="now")], tool_timeout=float("inf")).steps[1]
    assert list(results(peer).values()) == ["1"]


def test_unknown_and_invalid_calls_are_told_and_nothing_is_executed(client: Loops, verb: str) -> None:
    made: list[Any] = []

    def write(path: str, text: str) -> str:
        made.append((path, text))
        return "written"

    calls = [("wirte", '{"path": "a"}'), ("write", '{"path": 7, "text": "x"}'), ("write", '{"path": "a", "te')]
    with Peer(*turns(verb, calls, "Sorry.")) as peer:
        run = ran(client, verb, at(peer), tools=[write])[1]
    assert made == []
    unknown, invalid, torn = results(peer).values()
    assert unknown == "Error: There is no tool 'wirte'. The tools are: write."
    assert "path" in invalid
    assert "not executed" in invalid
    assert "not executed" in torn
    assert run.steps[0].returned == 0


def test_a_call_that_no_schema_can_check_is_told_and_the_run_goes_on(client: Loops, verb: str) -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}, "b": {"multipleOf": 0.01}}}
    tool = cnllm.Tool("pay", None, schema, lambda **arguments: "paid")
    with Peer(*turns(verb, [("pay", '{"a": 1}'), ("pay", '{"b": 0.07}'), ("pay", '{"b": 0.075}')], "Done.")) as peer:
        assert ran(client, verb, at(peer), tools=[tool])[1].stopped == "done"
    unknown, paid, odd = results(peer).values()
    assert unknown.startswith("Error: The call of pay was not executed: ")
    assert unknown.endswith("the schema refers to /$defs/none, which is not in it.")
    assert paid == "paid"
    assert "0.075 is not a multiple of 0.01" in odd


@pytest.mark.parametrize(
    "raw",
    [
        r'{"paths": "[\"a\", \"b\"]", "text": "[1]"}',
        r'"{\"paths\": [\"a\", \"b\"], \"text\": \"[1]\"}"',
    ],
)
def test_arguments_that_were_encoded_twice_are_executed_as_they_were_meant(client: Loops, verb: str, raw: str) -> None:
    """F4: decoded where the schema has room for nothing else, and the one who approves sees what is executed."""
    asked: list[Any] = []

    def read(paths: list[str], text: str) -> str:
        return f"read {paths} {text}"

    def approve(call: cnllm.ToolCall) -> bool:
        asked.append(call.arguments)
        return True

    with Peer(*turns(verb, [("read", raw)], "Done.")) as peer:
        run = ran(client, verb, at(peer), tools=[read], approve=approve)[1]
    assert results(peer) == {"c_read_0": "read ['a', 'b'] [1]"}
    assert asked == [{"paths": ["a", "b"], "text": "[1]"}]
    assert [note.code for note in run.steps[0].notes] == ["arguments-decoded"]
    assert run.steps[0].calls[0].raw == raw  # what came stays as it came


@pytest.mark.parametrize("asynchronous", [False, True])
def test_only_what_was_approved_runs(client: Loops, verb: str, asynchronous: bool) -> None:
    asked: list[str] = []

    def pay(amount: int) -> str:
        return f"paid {amount}"

    def approve(call: cnllm.ToolCall) -> Any:
        assert call.arguments is not None
        asked.append(call.name)
        return {1: True, 2: False, 3: "too much", 4: None}[call.arguments["amount"]]

    async def aapprove(call: cnllm.ToolCall) -> Any:
        return approve(call)

    calls = [("pay", f'{{"amount": {n}}}') for n in (1, 2, 3, 4)] + [("pay", "{}")]
    with Peer(*turns(verb, calls, "Done.")) as peer:
        ran(client, verb, at(peer), tools=[pay], approve=aapprove if asynchronous else approve)
    told = list(results(peer).values())
    assert told[:4] == ["paid 1", "Error: not approved", "Error: not approved: too much", "Error: not approved"]
    assert len(asked) == 4  # nobody is asked about a call that cannot run


def test_what_approve_raises_ends_the_run_with_a_legal_history(client: Loops, verb: str) -> None:
    def approve(call: cnllm.ToolCall) -> bool:
        raise ZeroDivisionError

    seen: list[Any] = []
    with Peer(*turns(verb, [("now", "{}"), ("now", "{}", "c2")], "Done.")) as peer:
        if verb == "run":
            with pytest.raises(ZeroDivisionError) as caught:
                client.run(at(peer), tools=[cnllm.tool(lambda: 1, name="now")], approve=approve)
            lost: Any = caught.value
            assert lost.run.stopped == "error"
            assert [message.role for message in lost.run.messages] == ["user", "assistant", "tool", "tool"]
            return
        with (
            client.run_stream(at(peer), tools=[cnllm.tool(lambda: 1, name="now")], approve=approve) as run,
            pytest.raises(ZeroDivisionError),
        ):
            seen += run
        assert run.stopped == "error"
        assert ran(client, verb, at(peer), run.messages)[1].stopped == "done"
    assert all("interrupted" in text for text in results(peer).values())


class OwnError(Exception):
    run = "the caller's own"


class FullError(Exception):
    def __setattr__(self, name: str, value: Any) -> None:
        if name == "run":
            raise AttributeError(name)
        super().__setattr__(name, value)


def test_what_on_step_raises_carries_the_run(client: Loops, verb: str) -> None:
    def stop_with(error: BaseException) -> Any:
        def on_step(step: cnllm.Step) -> None:
            raise error

        with Peer(*turns(verb, [("now", "{}")], "Noon.")) as peer, pytest.raises(type(error)) as caught:
            ran(client, verb, at(peer), tools=[cnllm.tool(lambda: 1, name="now")], on_step=on_step)
        return caught.value

    run = stop_with(ZeroDivisionError()).run
    assert (run.stopped, len(run.steps)) == ("error", 1)
    assert [message.role for message in run.messages] == ["user", "assistant", "tool"]
    assert stop_with(OwnError()).run == "the caller's own"
    assert not hasattr(stop_with(FullError()), "run")


def test_on_step_may_be_async(backend: Backend) -> None:
    told: list[int] = []

    async def on_step(step: cnllm.Step) -> None:
        told.append(step.number)

    with Loops(backend) as client, Peer(*turns("run", [("now", "{}")], "Noon.")) as peer:
        client.run(at(peer), tools=[cnllm.tool(lambda: 1, name="now")], on_step=on_step)
    assert told == [1, 2]


def test_a_picture_goes_back_as_one(client: Loops, verb: str) -> None:
    def look() -> Any:
        return cnllm.Media("image/png", "iVBORw0KGgo=")

    with Peer(*turns(verb, [("look", "{}")], "A dot.")) as peer:
        ran(client, verb, at(peer), tools=[look])
    result, picture = sent(peer)[-2:]  # where every endpoint takes one: in a turn of the user's after the results
    assert (result["role"], picture["role"]) == ("tool", "user")
    assert picture["content"][-1]["image_url"]["url"] == "data:image/png;base64,iVBORw0KGgo="


def test_pictures_in_a_list_go_back_as_pictures(client: Loops, verb: str) -> None:
    def look() -> Any:
        return ["Two dots:", cnllm.Media("image/png", "iVBORw0KGgo="), cnllm.Media("image/png", "iVBORw0KGgp=")]

    with Peer(*turns(verb, [("look", "{}")], "Dots.")) as peer:
        ran(client, verb, at(peer), tools=[look])
    assert results(peer)["c_look_0"].startswith("Two dots:")
    pictures = [part for part in sent(peer)[-1]["content"] if part["type"] == "image_url"]
    assert [p["image_url"]["url"][-1:] for p in pictures] == ["=", "="]


def test_cnllm_s_own_texts_are_texts(client: Loops, verb: str) -> None:
    def look() -> list[cnllm.Text]:
        return [cnllm.Text("Two dots:"), cnllm.Text("one red")]

    with Peer(*turns(verb, [("look", "{}")], "Dots.")) as peer:
        ran(client, verb, at(peer), tools=[look])
    assert results(peer, 1) == {"c_look_0": "Two dots:\n\none red"}


def test_a_result_that_cannot_be_sent_is_told_and_ends_no_run(client: Loops, verb: str) -> None:
    wrong: Any = {"a": 1}

    def look() -> cnllm.ToolResult:
        return cnllm.ToolResult("", wrong)

    with Peer(*turns(verb, [("look", "{}")], "I see.")) as peer:
        _, run = ran(client, verb, at(peer), tools=[look])
    assert run.stopped == "done"
    assert results(peer, 1) == {"c_look_0": "TypeError: the result.text: expected `str`, got `object`"}


def test_callbacks_may_be_async_where_an_event_loop_runs_already() -> None:
    """As in a notebook."""

    async def approve(call: cnllm.ToolCall) -> bool:
        await asyncio.sleep(0)
        return call.name == "now"

    async def main(client: Loops, peer: Peer) -> Any:
        return client.run(at(peer), tools=[cnllm.tool(lambda: 1, name="now")], approve=approve)

    with Loops("sync", retry=ONCE) as client, Peer(*turns("run", [("now", "{}")], "Noon.")) as peer:
        asyncio.run(main(client, peer))
    assert list(results(peer).values()) == ["1"]


def test_endpoint_s_own_kinds_of_tool_are_offered_and_never_executed(client: Loops) -> None:
    with Peer(*turns("run", "Found.")) as peer:
        assert client.run(at(peer), tools=[{"type": "web_search"}]).stopped == "done"
    assert peer.received[0].json()["tools"] == [{"type": "web_search"}]
