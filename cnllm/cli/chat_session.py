"""A conversation that goes on: what was said, who is asked, and what each turn comes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from cnllm.cli import chat_view, client_factory, turn_log
from cnllm.cli import turn as went
from cnllm.cli.output import errors, stdio
from cnllm.errors import CnllmError
from cnllm.types import Message, Reply, Text

if TYPE_CHECKING:
    from cnllm.cli.tools import Toolbox
    from cnllm.client.sync_client import Client
    from cnllm.registry import Registry
    from cnllm.registry.model import Model

__all__ = ["ChatEndpoint", "ChatSession"]

AGAIN = "/retry asks again"


class ChatEndpoint(msgspec.Struct, frozen=True):
    """Where a model is asked, if that was chosen, and with which key."""

    protocol: str | None = None
    base_url: str | None = None
    key: str | None = None


class CompletedTurn(msgspec.Struct, frozen=True):
    """A turn that stands: its number in the store, its messages, and the exit status that `call` would have."""

    number: int | None
    said: list[Message]
    status: int = errors.WHOLE


class FailedTurn(msgspec.Struct, frozen=True):
    """A turn of which nothing came."""

    number: int | None
    question: Message
    status: int = errors.FAILED


class ChatSession:
    """The state of a chat. Its turns are in the store too, if they are kept at all."""

    def __init__(
        self,
        client: Client,
        log: turn_log.TurnLog,
        box: Toolbox,
        model: Model,
        *,
        place: ChatEndpoint,
        system: str | None,
        options: dict[str, Any],
    ) -> None:
        self.model = model
        self.box = box
        self.thinking = False
        self.answers: list[Reply] = []
        self._client = client
        self._log = log
        self._place = place
        self._system = Message("system", [Text(system)]) if system else None
        self._options = options
        self._told: set[str] = set()
        self._turns = [CompletedTurn(number, said) for number, said in log.turns()]
        self._failed: FailedTurn | None = None  # the last turn, if nothing came of it
        self._worst_failure = errors.WHOLE  # of failed turns that others followed
        self._check(model, place, options)

    @property
    def registry(self) -> Registry:
        """Where models are looked up."""
        return self._client.registry

    @property
    def reasoning(self) -> str | int | None:
        """How much models are to think; None where that is left to them."""
        found: str | int | None = self._options.get("reasoning")
        return found

    @property
    def count(self) -> int:
        """How many turns there are."""
        return len(self._turns)

    @property
    def status(self) -> int:
        """Return the worst exit status of the turns. A turn that was taken back or replaced does not count."""
        failed = errors.WHOLE if self._failed is None else self._failed.status
        return errors.worst_status(self._worst_failure, failed, *(turn.status for turn in self._turns))

    def _messages(self, *new: Message) -> list[Message]:
        from cnllm.store.conversation import order_messages

        return order_messages([*(message for turn in self._turns for message in turn.said), *new])

    def _new(self, question: Message) -> list[Message]:
        """What a turn adds: the question, and the system message where that is not said yet."""
        said = [message.text for message in self._messages() if message.role == "system"]
        if self._system is None or self._system.text in said:
            return [question]
        return [self._system, question]

    # ── turns ────────────────────────────────────────────────────────────────
    def ask(self, question: Message) -> None:
        """A turn, from the question to what came of it, which is shown. What failed is taken back."""
        new = self._new(question)
        view = chat_view.ChatView(thinking=self.thinking, told=self._told)
        origin = "simulated" if self._client.simulate else "endpoint"
        if self._failed is not None:
            self._worst_failure = errors.worst_status(self._worst_failure, self._failed.status)
        place, self._failed = self._place, FailedTurn(None, question)
        with self._log.turn(new, self.model, origin, place.protocol, place.base_url) as turn:
            self._failed = FailedTurn(turn.number, question)
            did = self._went(new, view)
            if did.reply is not None:
                self.answers.append(did.reply)
            if did.error is None:
                assert did.reply is not None
                self._keep(turn, new, did.said or [did.reply.message], went.exit_status(did.reply, did.stopped))
                turn.finish(did.reply, did.said or None)
                view.end(did.reply)
                if did.reply.finish != "stop" or did.stopped != "done":
                    went.report_ending(did.reply, did.stopped, AGAIN)
            elif isinstance(did.error, KeyboardInterrupt):
                self._failed = FailedTurn(turn.number, question, errors.INTERRUPTED)
                if did.said:
                    self._keep(turn, new, did.said, errors.INTERRUPTED)
                turn.fail(did.error, did.reply, did.said, void=not did.said)
                view.interrupted(did.reply)
            else:
                is_typed = isinstance(did.error, CnllmError)
                self._failed = FailedTurn(
                    turn.number, question, errors.exit_status(did.error) if is_typed else errors.WRONG
                )
                turn.fail(did.error, did.reply, did.said, void=True)
                view.end(None)
                if not isinstance(did.error, CnllmError | ValueError | TypeError | LookupError):
                    raise did.error
                message, hint = errors.error_text(did.error)
                errors.print_error(message, hint or AGAIN)

    def _went(self, new: list[Message], view: chat_view.ChatView) -> went.TurnResult:
        asked = _asked(self._options, self._place)
        try:
            return went.run_turn(self._client, self.model, self._messages(*new), self.box, view, **asked)
        except (CnllmError, ValueError, TypeError, LookupError) as error:  # nothing was sent
            return went.TurnResult(None, [], None, error)

    def _keep(self, turn: turn_log.LoggedTurn, new: list[Message], said: list[Message], status: int) -> None:
        self._failed = None
        self._turns.append(CompletedTurn(turn.number, [*new, *said], status))

    def retry(self) -> bool:
        """Asks the last turn again, be it one that failed. False where there is none.

        What it had come to is taken back once there is something in its place, and stays if nothing comes.
        """
        if self._failed is not None:
            failed, self._failed = self._failed, None
            self.ask(failed.question)
            return True
        question = _question(self._turns[-1].said) if self._turns else None
        if question is None:
            return False
        before = self._turns.pop()
        try:
            self.ask(question)
        finally:
            if self._failed is None:
                self._forget(before.number)
            else:
                self._turns.append(before)
                self._failed = None
                stdio.print_line("the answer that was there stays")
        return True

    def undo(self) -> str | None:
        """Takes the last turn back, here and in the store: what was asked in it, None where there is none.

        One that failed is only in the store.
        """
        if self._failed is not None:
            number, question = self._failed.number, self._failed.question
            self._failed = None
        elif self._turns:
            turn = self._turns.pop()
            number, question = turn.number, _question(turn.said) or Message("user", [])
        else:
            return None
        self._forget(number)
        return question.text

    def _forget(self, number: int | None) -> None:
        if number is not None:
            self._log.forget(number)

    # ── models ───────────────────────────────────────────────────────────────
    def switch(self, name: str) -> None:
        """From now on another model is asked; what it will not be told as it was said is noted."""
        model = client_factory.resolve_model(
            self.registry,
            name,
            self._messages(),
            self._options,
            protocol=None,
            base_url=None,
            offline=self._client.simulate,
        )
        client_factory.read_key(model, None, needed=False)
        self._check(model, ChatEndpoint(), self._options)
        self.model, self._place = model, ChatEndpoint()

    def reason(self, level: str | int | None) -> None:
        """From now on models are to think so much, or as they do by themselves; what cannot be had is noted."""
        others = {name: value for name, value in self._options.items() if name != "reasoning"}
        options = others if level is None else {**others, "reasoning": level}
        self._check(self.model, self._place, options)
        self._options = options

    def _check(self, model: Model, place: ChatEndpoint, options: dict[str, Any]) -> None:
        """Raises what is wrong with asking this model, its key included, before anything is typed for it."""
        question = Message("user", [Text("?")])
        tools = self.box.tools or None
        probe = self._client.stream(model, self._messages(*self._new(question)), tools=tools, **_asked(options, place))
        probe.close()
        chat_view.print_notes(probe.plan.notes, self._told)

    # ── money ────────────────────────────────────────────────────────────────
    def cost(self) -> str:
        """What was used since the chat began, turns that were taken back included, for they were paid too."""
        known: dict[str, int] = {}
        unknown = 0
        amounts: dict[str, Any] = {}
        for reply in self.answers:
            used = reply.usage
            unknown += used.input is None or used.output is None
            for name in ("input", "cached", "output", "reasoning"):
                known[name] = known.get(name, 0) + (getattr(used, name) or 0)
            if reply.cost is not None:
                amounts[reply.cost.currency] = amounts.get(reply.cost.currency, 0) + reply.cost.amount
        parts = [f"{len(self.answers)} answer{'' if len(self.answers) == 1 else 's'}"]
        for name, word, inside in (("input", "in", "cached"), ("output", "out", "reasoning")):
            more = f" ({known[inside]} {inside})" if known.get(inside) else ""
            parts.append(f"{known.get(name, 0)} {word}{more}")
        parts += [f"{amount.normalize():f} {currency}" for currency, amount in amounts.items()]
        unpriced = sum(reply.cost is None for reply in self.answers)
        if unknown:
            parts.append(f"usage of {unknown} unknown")
        if unpriced:
            parts.append(f"price of {unpriced} unknown")
        return " · ".join(parts)


def _asked(options: dict[str, Any], place: ChatEndpoint) -> dict[str, Any]:
    return options if place.key is None else {**options, "api_key": place.key}


def _question(said: Sequence[Message]) -> Message | None:
    """What was asked in a turn."""
    return next((message for message in said if message.role == "user"), None)
