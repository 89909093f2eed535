"""Conversations as programs lead them: sent, streamed, broken off, edited, handed over, written down and gone on with.

The simulator is on a real socket and refuses what the endpoints refuse. Whatever was done to a history, the next
request is taken; what broke is told; what arrived is there; the caller's objects are as they were; the store has
every turn.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from examples import share
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

import cnllm
from cnllm import AsyncClient, Client, Message, Reply, Retry, StreamCut, Text, ToolResult
from cnllm.simulator.faults import HEADER
from cnllm.simulator.server import Server, running
from cnllm.store import Store
from fuzz.models import TOOLS, covering, registry

KEY = "sk-0123456789"
PHASES = (Phase.explicit, Phase.generate)  # not shortened: over sockets that takes minutes
WORDS = ["hi", "为什么？", "Do both in parallel.", "a" * 300, "<think>", '{"a": 1}', " "]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(registry()) as listening:
        yield listening


def delivered(events: list[Any]) -> tuple[str, str]:
    """Text and reasoning as a reader has them."""
    restarts = [at for at, event in enumerate(events) if isinstance(event, cnllm.Restarted)]
    since = events[restarts[-1] + 1 :] if restarts else events
    kinds = (cnllm.TextDelta, cnllm.ReasoningDelta)
    text, reasoning = ("".join(event.text for event in since if isinstance(event, kind)) for kind in kinds)
    return text, reasoning


def machine(server: Server, folder: Path) -> type[RuleBasedStateMachine]:
    """The machine, at this server; each of its conversations is one in the folder's store."""
    models = [
        registry().resolve(m.name, protocol=m.protocol, base_url=f"{server.url}/{m.provider}") for m in covering()
    ]
    ids = count()
    wires = {protocol: [m for m in models if m.protocol == protocol] for protocol in {m.protocol for m in models}}

    class Conversation(RuleBasedStateMachine):
        """One conversation. `new` are the messages that no turn of the store has yet."""

        def __init__(self) -> None:
            super().__init__()
            self.client = Client(registry(), api_key=KEY, retry=Retry(attempts=2, base=0.001))
            self.store = Store.open(folder / "conversations.db")
            self.conversation = self.store.conversation()
            self.history: list[Any] = []
            self.new: list[Message] = []
            self.kept: dict[int, list[Message]] = {}
            self.unanswered: dict[int, list[Message]] = {}  # which may be left out, lest they be refused again
            self.model = models[0]
            self.number = 0

        def teardown(self) -> None:
            self.client.close()
            self.store.close()

        # ── turns ────────────────────────────────────────────────────────────
        def ask(self, words: str) -> None:
            self.number += 1
            self.say(Message("user", [Text(f"{words} {self.number}")]))

        def say(self, message: Message) -> None:
            self.history.append(message)
            self.new.append(message)

        def options(self, tools: bool, level: str | None, fault: str = "") -> dict[str, Any]:
            headers = {HEADER: f"{fault}; id={next(ids)}"} if fault else None
            offered = {"tools": TOOLS} if tools else {}
            return {"reasoning": level, "extra_headers": headers, "on_unsupported": "adjust", **offered}

        def turn(self, do: Any) -> Reply | None:
            """What `do` comes to, in a turn of the store; the history that it is given stays as it is."""
            before = copy.deepcopy(self.history)
            new, self.new = self.new, []
            reply: Reply | None = None
            with self.conversation.turn(new, model=self.model.name) as turn:
                try:
                    reply = do()
                except cnllm.BadRequest as error:
                    raise AssertionError(f"{self.model.name} does not take it: {error}") from error
                except (StreamCut, cnllm.EndpointError, cnllm.TransportError) as error:
                    turn.fail(error)
                    reply = error.reply
                else:
                    if reply is not None:
                        turn.finish(reply)
            assert self.history == before, "the caller's objects were changed"
            answer = [reply.message] if reply is not None and reply.message.parts else []
            if reply is not None and (answer or reply.finish not in ("cut", "error")):
                self.kept[turn.number] = [*new, *answer]
            else:
                self.unanswered[turn.number] = new
            self.history += answer
            return reply

        def whole(self, reply: Reply | None) -> None:
            assert reply is not None
            assert reply.finish in ("stop", "tool_calls"), (self.model.name, reply)
            assert all(call.arguments is not None for call in reply.tool_calls), reply.tool_calls

        @initialize(at=st.integers(0, 200))
        def begin(self, at: int) -> None:
            self.model = models[at % len(models)]

        @rule(words=st.sampled_from(WORDS), tools=st.booleans(), level=st.sampled_from([None, "off", "high"]))
        def send(self, words: str, tools: bool, level: str | None) -> None:
            self.ask(words)
            self.whole(self.turn(lambda: self.client.call(self.model, self.history, **self.options(tools, level))))

        @rule(
            words=st.sampled_from(WORDS),
            tools=st.booleans(),
            level=st.sampled_from([None, "off", "low"]),
            fault=st.sampled_from(["", "", "status=503; times=1", "reset-headers; times=1"]),
        )
        def stream(self, words: str, tools: bool, level: str | None, fault: str) -> None:
            self.ask(words)
            events: list[Any] = []

            def read() -> Reply:
                with self.client.stream(self.model, self.history, **self.options(tools, level, fault)) as stream:
                    events.extend(stream)
                return stream.reply

            reply = self.turn(read)
            self.whole(reply)
            assert reply is not None
            assert delivered(events) == (reply.text, reply.reasoning)

        @rule(
            words=st.sampled_from(WORDS),
            tools=st.booleans(),
            fault=st.sampled_from(["cut", "drop", "error"]),  # a reset may come before anything did, and is tried again
            then=st.sampled_from(["error", "keep", "again-whole"]),
        )
        def cut(self, words: str, tools: bool, fault: str, then: Literal["error", "keep", "again-whole"]) -> None:
            self.ask(words)
            events: list[Any] = []
            told: list[str] = []

            def read() -> Reply:
                options = self.options(tools, None, f"{fault}; times=1")
                try:
                    with self.client.stream(self.model, self.history, if_cut=then, **options) as stream:
                        events.extend(stream)
                    return stream.reply
                except cnllm.CnllmError as error:
                    told.append(type(error).__name__)
                    raise

            streams = self.client.plan(self.model, self.history, stream=True, **self.options(tools, None)).stream
            reply = self.turn(read)
            if not streams:  # with tools some do not; half of a body is then no cut, but no reply either
                assert told or then == "again-whole"
                return
            assert reply is not None
            assert delivered(events) == (reply.text, reply.reasoning), "what arrived is not what was delivered"
            if then == "again-whole" and fault != "error":
                self.whole(reply)
            elif then == "keep" and fault != "error":
                assert reply.finish == "cut"
            elif fault == "error" and not told:
                self.whole(reply)  # all of it came in one read: nothing was delivered, so it was sent again unseen
            else:
                assert told == ["EndpointError" if fault == "error" else "StreamCut"], "the cut was not told"
                assert reply.finish == ("error" if fault == "error" else "cut")
            if reply.finish in ("cut", "error"):
                assert reply.tool_calls == [], "a call of a reply that broke is offered"

        @rule(words=st.sampled_from(WORDS), after=st.integers(1, 6), tools=st.booleans())
        def leave(self, words: str, after: int, tools: bool) -> None:
            self.ask(words)
            events: list[Any] = []

            def read() -> Reply | None:
                with self.client.stream(self.model, self.history, **self.options(tools, None)) as stream:
                    for event in stream:
                        events.append(event)
                        if len(events) == after:
                            return stream.stop()
                return stream.reply

            reply = self.turn(read)
            if reply is not None and reply.finish == "cut":
                assert reply.tool_calls == []
                assert reply.text.startswith(delivered(events)[0])

        @rule(words=st.sampled_from(WORDS), after=st.integers(1, 4))
        def cancel(self, words: str, after: int) -> None:
            self.ask(words)

            async def read() -> None:
                async with AsyncClient(registry(), api_key=KEY) as client:
                    with anyio.CancelScope() as scope:
                        async with client.stream(self.model, self.history, **self.options(False, None)) as stream:
                            seen = 0
                            async for _ in stream:
                                seen += 1
                                if seen == after:
                                    scope.cancel()
                                await anyio.lowlevel.checkpoint()

            def cancelled() -> None:
                anyio.run(read)

            self.turn(cancelled)

        # ── the history ──────────────────────────────────────────────────────
        # No rule has a precondition: a stream that broke leaves an answer or none, as its bytes arrived, and
        # Hypothesis needs the same choices whenever it draws the same steps.
        @rule(at=st.integers(0, 200), wire=st.sampled_from(sorted(wires)))
        def switch(self, at: int, wire: str) -> None:
            self.model = wires[wire][at % len(wires[wire])]

        @rule(at=st.integers(0, 50))
        def delete(self, at: int) -> None:
            if self.history:
                del self.history[at % len(self.history)]

        @rule(
            at=st.integers(0, 50),
            key=st.sampled_from(["content", "reasoning", "tool_calls", "by"]),
            value=st.sampled_from(["", "edited", None]),
        )
        def edit(self, at: int, key: str, value: str | None) -> None:
            if not self.history:
                return
            at %= len(self.history)
            said = self.history[at]
            flat = said.to_dict() if isinstance(said, Message) else dict(said)
            flat[key] = None if key == "tool_calls" else value
            self.history[at] = flat

        @rule(
            at=st.integers(0, 50),
            role=st.sampled_from(["system", "user", "assistant", "developer", "tool"]),
            words=st.sampled_from(WORDS),
        )
        def insert(self, at: int, role: str, words: str) -> None:
            extra = {"tool_call_id": "call_gone"} if role == "tool" else {}
            self.history.insert(at % (len(self.history) + 1), {"role": role, "content": words, **extra})

        @rule(some=st.booleans())
        def answer(self, some: bool) -> None:
            """The results of the last calls, if any, or of the first of them only."""
            calling = (m for m in reversed(self.history) if isinstance(m, Message) and m.tool_calls)
            calls = next(calling, Message("assistant")).tool_calls
            for call in calls[: 1 if some else None]:
                self.say(Message("tool", [ToolResult(call.id, "20 °C", call.name)]))

        @rule()
        def written_down(self) -> None:
            flat = [m.to_dict() if isinstance(m, Message) else m for m in self.history]
            again = json.loads(json.dumps(flat))
            read = [Message.from_dict(one) for one in again]
            meant = [m if isinstance(m, Message) else Message.from_dict(m) for m in self.history]
            assert read == meant
            self.history = list(read)

        @rule()
        def resume(self) -> None:
            """Goes on from the store: with all that was said, as it was said before anything was edited."""
            self.store.close()
            self.store = Store.open(folder / "conversations.db")
            begun = self.kept or self.unanswered
            self.conversation = self.store.conversation(self.conversation.id if begun else None)
            if begun:
                self.history, self.new = list(self.conversation.messages()), []

        @invariant()
        def the_store_has_every_turn(self) -> None:
            if self.kept or self.unanswered:
                found = dict(self.conversation.turns())
                assert {n: said for n, said in found.items() if n in self.kept} == self.kept
                assert all(said == self.unanswered[n] for n, said in found.items() if n not in self.kept)

    return Conversation


@pytest.mark.sampled
def test_whatever_is_done_to_a_conversation_it_goes_on(server: Server, tmp_path: Path) -> None:
    unhurried = settings(
        max_examples=share(25),
        stateful_step_count=14,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=PHASES,
    )
    run_state_machine_as_test(machine(server, tmp_path), settings=unhurried)


def test_each_model_of_it_can_be_asked(server: Server) -> None:
    with Client(registry(), api_key=KEY, retry=Retry(attempts=1)) as client:
        for model in covering():
            there = registry().resolve(model.name, protocol=model.protocol, base_url=f"{server.url}/{model.provider}")
            assert client.call(there, "hi").text, (model.name, model.protocol)
