"""Read conversations from the store for `call` and `chat`, and write their turns to it.

A failure of the store must not cost the answer: it is reported in one line, and the call goes on. Only to read the
conversation that a call continues is the store needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cnllm.cli import client_factory, default_model
from cnllm.cli.output import errors, stdio, terminal
from cnllm.cli.output.format import count
from cnllm.config import settings_files
from cnllm.config.settings import LogMode
from cnllm.errors import CnllmError

if TYPE_CHECKING:
    from cnllm.registry import Registry
    from cnllm.registry.model import Model
    from cnllm.store import Conversation, Store, Turn
    from cnllm.types import Message, Reply

__all__ = ["LoggedTurn", "TurnLog", "choose_model", "logs_calls", "open_log"]


_MOST_WORDS = 60  # characters of a prompt in a line


class TurnLog:
    """The store, as a call or a chat uses it. It is opened only to read a conversation or to write a turn."""

    def __init__(self, conversation_id: str | None, *, writes: bool, tag: str | None = None) -> None:
        self._tag = tag
        self._mode = _mode() if writes else "off"
        self._store: Store | None = None
        self._conversation: Conversation | None = None
        self._entries: list[dict[str, Any]] = []
        if conversation_id is not None:
            try:
                self._conversation = self._open().conversation(conversation_id)
            except CnllmError:
                self.close()
                raise
            if writes and self._mode == "off":
                errors.print_error(
                    "logs are off: this turn will not be part of the conversation", "turn them on: cnllm logs on"
                )

    def print_beginning(self) -> None:
        """Print which conversation goes on: its id, model, time and first words. One without turns prints nothing."""
        if self._store is None or self._conversation is None or not self._conversation.turns():
            return
        from cnllm.cli.output import transcript

        last = self._store.summary(self._conversation.id)
        words = terminal.one_line(last.prompt, _MOST_WORDS)
        when = transcript.local_time(last.last)
        if "simulated" in last.origins:  # or made-up words would reach a model, and be paid for, unseen
            when += ", simulated" if last.origins == ["simulated"] else ", simulated in part"
        turns = count(last.turns, "turn")
        stdio.print_line(terminal.escape(f"continuing {last.id} after {turns} ({last.models[-1]}, {when}): {words}"))

    def begin(self) -> None:
        """Begin a new conversation with the next turn."""
        self._conversation = None

    def turns(self) -> list[tuple[int, list[Message]]]:
        """Return the turns so far: the number of each, and its messages."""
        return self._conversation.turns() if self._conversation is not None else []

    def forget(self, number: int | None) -> None:
        """Remove a turn from the store, if it is there and logging is on."""
        if number is not None and self._conversation is not None and self._mode != "off":
            self._conversation.forget(number)

    def prompts(self, limit: int) -> list[str]:
        """Return the last prompts of all conversations. Empty if logging is off or the store cannot be read."""
        if self._mode == "off" and self._store is None:
            return []
        try:
            return self._open().prompts(limit)
        except CnllmError:  # reported when a turn is written
            return []

    def messages(self, new: Sequence[Message]) -> list[Message]:
        """Return the messages of the conversation, then the new ones."""
        return self._conversation.messages(*new) if self._conversation is not None else list(new)

    def last_choice(self, *, protocol: str | None, base_url: str | None) -> dict[str, str | None]:
        """Return the last model of the conversation with its protocol and address. The arguments win over them."""
        last = self._conversation.last() if self._conversation is not None else None
        if last is None:
            raise errors.UsageError("this conversation has no model yet", "name one: --model M")
        url = base_url or last.base_url
        if url and base_url is None and "redacted" in url:
            raise errors.UsageError(
                f"{last.model} was asked at {url}, which is not stored completely", "give --base-url again"
            )
        return {"model": last.model, "protocol": protocol or last.protocol, "base_url": url}

    @property
    def exchange(self) -> Callable[[dict[str, Any]], None] | None:
        """Return the function that stores a request with its response, or None if exchanges are not stored."""
        return self._entries.append if self._mode == "on" else None

    def turn(
        self, new: Sequence[Message], model: Model, origin: str, protocol: str | None, base_url: str | None
    ) -> LoggedTurn:
        """Write the request of a new turn to the store."""
        self._entries.clear()  # an exchange of a cancelled turn may have arrived late
        turn: Turn | None = None
        try:
            if self._mode != "off":
                self._conversation = self._conversation or self._open().conversation()
                turn = self._conversation.turn(
                    new,
                    model=model.name,
                    protocol=protocol,
                    base_url=base_url,
                    origin=origin,
                    secrets=errors.hide_secrets(),
                    exchanges=self._mode == "on",
                    price=model.flags.price,
                    tag=self._tag,
                )
        except CnllmError as error:
            _report_failure(error)
        return LoggedTurn(turn, self._entries)

    def close(self) -> None:
        """Close the store, if it is open."""
        if self._store is not None:
            self._store.close()

    def _open(self) -> Store:
        try:
            from cnllm.store import Store  # SQLite costs milliseconds that a call without it saves
        except ImportError as error:  # some builds of Python leave SQLite out
            raise CnllmError(f"this Python has no SQLite ({error})", hint="turn logging off: cnllm logs off") from error
        if self._store is None:
            self._store = Store.open()
        return self._store


def open_log(params: Mapping[str, Any], command: str, *, writes: bool) -> TurnLog:
    """Return the log of a command with `-c` and `--conversation`. Raise `UsageError` for both at once."""
    if params["continues"] and params["conversation"] is not None:
        raise errors.UsageError("-c and --conversation ask for two conversations", "give one of them")
    conversation = "last" if params["continues"] else params["conversation"]
    if conversation is None and params["model"] is None:
        default_model.require_model(params["base_url"], command)
    return TurnLog(conversation, writes=writes, tag=params["tag"])


def choose_model(
    registry: Registry, params: dict[str, Any], log: TurnLog, messages: Any, options: dict[str, Any], *, sends: bool
) -> Model:
    """Return the named model, the first usable one of a tier, the conversation's last, or the default.

    What the conversation says of it goes into `params`. Without `sends` the default model needs no key.
    """
    protocol, offline = params.get("protocol"), params["simulate"] or params.get("replay") is not None
    if params["model"] is None and (params["continues"] or params["conversation"] is not None):
        params |= log.last_choice(protocol=protocol, base_url=params["base_url"])
    is_bare = False
    if params["model"] is None:
        choice = default_model.use_default(registry, offline=offline or not sends, key_env=params["key_env"])
        params["model"], is_bare = choice.name, choice.is_bare
    place = {"protocol": params.get("protocol"), "base_url": params["base_url"], "key_env": params["key_env"]}
    return client_factory.resolve_model(
        registry, params["model"], messages, options, **place, offline=offline, sends=sends, is_bare=is_bare
    )


class LoggedTurn:
    """One turn in the store, or no turn if logging is off: then `number` is None.

    An exception that leaves the `with` block marks the turn as failed."""

    def __init__(self, turn: Turn | None, entries: list[dict[str, Any]]) -> None:
        self._turn = turn
        self.number = turn.number if turn is not None else None
        self._entries = entries

    def finish(self, reply: Reply, messages: Sequence[Message] | None = None) -> None:
        """Store the reply. `messages` are all new messages, where the model called tools."""
        self._end(lambda turn: turn.finish(reply, messages))

    def fail(
        self,
        error: BaseException,
        reply: Reply | None = None,
        messages: Sequence[Message] | None = None,
        *,
        void: bool = False,
    ) -> None:
        """Store the failure, with `reply` or the part of it that the error holds.

        A conversation does not continue a `void` turn."""
        self._end(lambda turn: turn.fail(error, reply, messages, void=void))

    def _end(self, write: Callable[[Turn], None]) -> None:
        turn, self._turn = self._turn, None
        if turn is None:
            return
        for entry in self._entries:
            turn.exchange(entry)
        try:
            write(turn)
        except CnllmError as error:
            _report_failure(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.fail(error)


def logs_calls(choice: bool | None) -> bool:
    """Return whether calls are logged: by the option, else by the mode of `cnllm logs`. Where it is unreadable: no."""
    if choice is not None:
        return choice
    try:
        return settings_files.log_mode() != "off"
    except CnllmError as error:
        stdio.print_line(f"calls are not logged: {error.message}")
        return False


def _mode() -> LogMode:
    """Return the log mode. If it cannot be read, log nothing: the user may have turned logging off."""
    if (mode := settings_files.variable_log_mode()) is not None:
        return mode
    try:
        return settings_files.log_mode()
    except CnllmError as error:
        _report_failure(error)
        return "off"


def _report_failure(error: CnllmError) -> None:
    errors.print_error(f"this call is not logged: {error.message}", error.hint or "turn logging off: cnllm logs off")
