"""Hold a chat: its turns, its model and endpoint, and the result of each turn."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from cnllm.cli import client_factory, default_model, turn_log
from cnllm.cli.attachments import read_attachment, require_readable
from cnllm.cli.language.messages import translate
from cnllm.cli.output import answer, errors, stdio, terminal
from cnllm.cli.turn import ONLY_THINKING, TurnResult, exit_status, is_only_reasoning, report_ending, run_turn
from cnllm.errors import CnllmError
from cnllm.store.conversation import order_messages
from cnllm.types import Event, Finished, Message, Note, Reply, Text, ToolCall

if TYPE_CHECKING:
    from cnllm.cli.tools import CommandTools
    from cnllm.client.sync_client import Client
    from cnllm.registry import Registry
    from cnllm.registry.model import Model
    from cnllm.types import Part, Step

__all__ = ["ChatSession", "ChatSettings"]

AGAIN = "/retry asks again"


class ChatSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a chat; `protocol`, `base_url` and `key` are those of the endpoint that the user gives.

    `options` are those of each call. `pick` lets the user pick one of several names; None where nobody can.
    `system` and `files` go with the first question.
    """

    protocol: str | None = None
    base_url: str | None = None
    key: str | None = None
    options: dict[str, Any] = {}
    markdown: bool = False
    pick: Callable[[Sequence[str]], str | None]
    system: str | None = None
    files: Sequence[Part] = ()

    @property
    def call_options(self) -> dict[str, Any]:
        """Return the options of a call, with the key."""
        return self.options if self.key is None else {**self.options, "api_key": self.key}


class ChatTurn(msgspec.Struct, frozen=True):
    """A turn: its number in the store, its messages, and the exit status that `call` would return.

    One that failed has its question alone.
    """

    number: int | None
    messages: list[Message]
    status: int = errors.WHOLE


class ChatSession:
    """The state of a chat. The store holds its turns too, unless logging is off."""

    def __init__(
        self, client: Client, log: turn_log.TurnLog, box: CommandTools, model: Model, settings: ChatSettings
    ) -> None:
        self.model = model
        self.box = box
        self.thinking = False
        self.answers: list[Reply] = []
        self.unpaid = 0  # turns without an answer that the endpoint may charge
        self._client = client
        self._log = log
        self._settings = settings
        self._system = Message("system", [Text(settings.system)]) if settings.system else None
        self._files = list(settings.files)  # for the next question
        self._replaces_system = False  # the system message of `/system` replaces those of the turns
        self._seen_notes: set[str] = set()
        self._turns = [ChatTurn(number, messages) for number, messages in log.turns()]
        self._failed: ChatTurn | None = None  # the last turn, if it failed
        self._worst_failure = errors.WHOLE  # of commands, failed turns before the last one, and turns before `clear`
        self._check(model, settings)

    @property
    def registry(self) -> Registry:
        """Return the registry that resolves model names."""
        return self._client.registry

    @property
    def reasoning(self) -> str | int | None:
        """Return the reasoning level; None leaves it to the model."""
        level: str | int | None = self._settings.options.get("reasoning")
        return level

    @property
    def count(self) -> int:
        """Return the number of turns."""
        return len(self._turns)

    @property
    def status(self) -> int:
        """Return the worst exit status of turns and commands. A turn that the user undid or retried does not count."""
        failed = errors.WHOLE if self._failed is None else self._failed.status
        return errors.worst_status(self._worst_failure, failed, *(turn.status for turn in self._turns))

    def add_failure(self, status: int) -> None:
        """Count an exit status that no later turn changes."""
        self._worst_failure = errors.worst_status(self._worst_failure, status)

    def messages(self, *new: Message) -> list[Message]:
        """Return the messages of the chat so far, then the new ones."""
        old = (message for turn in self._turns for message in turn.messages)
        if self._replaces_system:
            text = self._system.text if self._system is not None else None
            old = (message for message in old if message.role != "system" or message.text == text)
        return order_messages([*old, *new])

    def _new(self, question: Message) -> list[Message]:
        """Return the messages that a turn adds: the question, and the system message if it is new."""
        texts = [message.text for message in self.messages() if message.role == "system"]
        if self._system is None or self._system.text in texts:
            return [question]
        return [self._system, question]

    # ── turns ────────────────────────────────────────────────────────────────
    def ask(self, question: Message) -> None:
        """Run one turn and show its result. A failed turn is taken back."""
        new = self._new(question)
        view = ChatView(thinking=self.thinking, seen=self._seen_notes, markdown=self._settings.markdown)
        origin = "simulated" if self._client.simulate else "endpoint"
        if self._failed is not None:
            self.add_failure(self._failed.status)
        self._failed = ChatTurn(None, [question], errors.FAILED)
        with self._log.turn(new, self.model, origin, self._settings.protocol, self._settings.base_url) as turn:
            self._failed = replace(self._failed, number=turn.number)
            result = self._run_turn(new, view)
            if result.reply is not None:
                self.answers.append(result.reply)
            elif not (isinstance(result.error, CnllmError) and result.error.meaning.charged is False):
                self.unpaid += 1
            if result.error is None:
                assert result.reply is not None
                answers, status = result.messages or [result.reply.message], exit_status(result.reply, result.stopped)
                self._complete_turn(turn, new, answers, status)
                turn.finish(result.reply, result.messages or None)
                view.end(result.reply)
                if result.reply.finish != "stop" or result.stopped != "done":
                    report_ending(result.reply, result.stopped, AGAIN)
                return
            is_interrupted = isinstance(result.error, KeyboardInterrupt)
            is_typed = is_interrupted or isinstance(result.error, CnllmError)
            status = errors.exit_status(result.error) if is_typed else errors.WRONG
            self._failed = ChatTurn(turn.number, [question], status)
            if is_interrupted and result.messages:
                self._complete_turn(turn, new, result.messages, status)
            turn.fail(result.error, result.reply, result.messages, void=self._failed is not None)
            if is_interrupted:
                view.interrupt(result.reply)
                return
            view.end(None)
            if not isinstance(result.error, CnllmError | ValueError | TypeError | LookupError):
                raise result.error
            message, hint = errors.error_text(result.error)
            errors.print_error(message, hint or AGAIN)

    def _run_turn(self, new: list[Message], view: ChatView) -> TurnResult:
        options = self._settings.call_options
        try:
            return run_turn(self._client, self.model, self.messages(*new), self.box, view, **options)
        except (CnllmError, ValueError, TypeError, LookupError) as error:  # nothing was sent
            return TurnResult(None, [], None, error)

    def _complete_turn(
        self, turn: turn_log.LoggedTurn, new: list[Message], messages: list[Message], status: int
    ) -> None:
        self._failed = None
        self._turns.append(ChatTurn(turn.number, [*new, *messages], status))

    def retry(self) -> bool:
        """Ask the last turn again, a failed one too. Return False if there is no turn.

        A new answer replaces the old one. Without a new answer, the old one stays.
        """
        if self._failed is not None:
            failed, self._failed = self._failed, None
            self.ask(failed.messages[0])
            return True
        question = _question(self._turns[-1].messages) if self._turns else None
        if question is None:
            return False
        previous = self._turns.pop()
        try:
            self.ask(question)
        finally:
            if self._failed is None:
                self._log.forget(previous.number)
            else:
                self._turns.append(previous)
                self._failed = None
                stdio.print_line("the previous answer stays")
        return True

    def undo(self) -> str | None:
        """Remove the last turn from the chat and the store, and return its question; None if there is no turn.

        A failed turn is only in the store.
        """
        turn = self._failed or (self._turns.pop() if self._turns else None)
        if turn is None:
            return None
        self._failed = None
        self._log.forget(turn.number)
        question = _question(turn.messages)
        return "" if question is None else question.text

    # ── the conversation ─────────────────────────────────────────────────────
    @property
    def system(self) -> str | None:
        """Return the text of the system message; None where there is none."""
        if self._system is not None or self._replaces_system:
            return self._system.text if self._system is not None else None
        return next((message.text for message in self.messages() if message.role == "system"), None)

    @system.setter
    def system(self, text: str | None) -> None:
        """Set the system message from now on, in place of every earlier one; None sends none."""
        self._system = Message("system", [Text(text)]) if text else None
        self._replaces_system = True

    def clear(self) -> None:
        """Begin a new conversation. The old one stays in the logs."""
        self.add_failure(self.status)
        self._turns, self._failed, self._files = [], None, []
        self._log.begin()

    def attach(self, source: str) -> Part:
        """Attach a file to the next question. Raise `UsageError` where it cannot be read, or the model does not."""
        part = read_attachment(source)
        require_readable(self.registry, self.model, [Message("user", [part])], self._settings.options)
        self._files.append(part)
        return part

    def take_files(self) -> list[Part]:
        """Return the files of the next question, which it takes with it."""
        files, self._files = self._files, []
        return files

    # ── models ───────────────────────────────────────────────────────────────
    def pick_model(self) -> str | None:
        """Let the user pick one of the models that have a key. Return its name; None where nobody can pick."""
        names = default_model.usable_models(self.registry, offline=self._client.simulate)
        return self._settings.pick(names) if names else None

    def switch(self, name: str) -> None:
        """Ask another model from now on. Print what the request to it changes in the conversation."""
        options, offline = self._settings.options, self._client.simulate
        model = client_factory.resolve_model(self.registry, name, self.messages(), options, offline=offline)
        client_factory.read_key(model, None, required=False)
        settings = replace(self._settings, protocol=None, base_url=None, key=None)
        self._check(model, settings)
        self.model, self._settings = model, settings

    def reason(self, level: str | int | None) -> None:
        """Set the reasoning level from now on; None restores the default. Print what the model cannot do of it."""
        options = {name: value for name, value in self._settings.options.items() if name != "reasoning"}
        if level is not None:
            options["reasoning"] = level
        settings = replace(self._settings, options=options)
        self._check(self.model, settings)
        self._settings = settings

    def _check(self, model: Model, settings: ChatSettings) -> None:
        """Raise what is wrong with a request to this model, its key included, before the user types a question."""
        question = Message("user", [Text("?")])
        messages = self.messages(*self._new(question))
        probe = self._client.stream(model, messages, tools=self.box.tools or None, **settings.call_options)
        probe.close()
        for line in _unseen(probe.plan.notes, self._seen_notes):
            print_dim(line)


def _question(messages: Sequence[Message]) -> Message | None:
    """Return the question of a turn."""
    return next((message for message in messages if message.role == "user"), None)


# ── the view of a turn ───────────────────────────────────────────────────────


_ERASE_LINE = "\r\x1b[K"
_MESSAGE_INDEX = re.compile(r"messages\[\d+\]")


def print_dim(line: str) -> None:
    """Print a less important line to stderr, in a dim colour if the terminal has one."""
    if terminal.supports_dim(sys.stderr):
        stdio.write_text(f"{answer.DIM}{terminal.escape(translate(line))}{answer.RESET}\n")
    else:
        stdio.print_line(line)


def _unseen(notes: Iterable[Note], seen: set[str]) -> Iterator[str]:
    """Yield the notes that the user has not seen, which `seen` holds from now on. One on many messages comes once.

    The first line of a chat says that it is simulated.
    """
    for note in notes:
        line = _MESSAGE_INDEX.sub("messages[…]", str(note))
        if note.code != "simulated" and line not in seen:
            seen.add(line)
            yield terminal.escape(f"note: {line}")


class ChatView(answer.TextView):
    """The view of one turn: as in a call, but with the reasoning folded into one line unless the user wants it.

    `seen` holds the notes that the user has seen; the view adds to it.
    """

    def __init__(self, *, thinking: bool, seen: set[str], markdown: bool = False) -> None:
        super().__init__(reasoning=thinking, raw=False, hold=False, markdown=markdown)
        self._seen = seen
        self._count = 0  # characters of reasoning that are folded
        self._live = sys.stderr.isatty() and not terminal.is_dumb()

    def event(self, event: Event) -> None:
        """Show the content of an event."""
        if type(event) is Finished:
            self._fold()
        super().event(event)

    def step(self, step: Step) -> None:
        """Show the tool results of one step."""
        self._fold()
        super().step(step)

    def end(self, reply: Reply | None) -> None:
        """End the lines, then print the notes and usage of the reply."""
        self._fold()
        if reply is not None and is_only_reasoning(reply):
            self._text(translate(f"({ONLY_THINKING}; /thinking shows it, /retry asks again)"))
        super().end(reply)

    def notes(self, notes: Iterable[Note]) -> None:
        """Print the notes that the user has not seen."""
        self.end_lines()
        for line in _unseen(notes, self._seen):
            print_dim(line)

    def interrupt(self, reply: Reply | None) -> None:
        """End the lines after an interruption, and say whether part of the answer is shown."""
        self.end(None)
        has_content = reply is not None and (reply.text or reply.tool_calls)
        stdio.print_line(
            "interrupted; the answer so far is shown above"
            if has_content
            else "interrupted; no answer arrived, /retry asks again"
        )

    def _show_reasoning(self, text: str) -> None:
        if self._reasoning or not text:
            super()._show_reasoning(text)
            return
        if self._live and not self._count:
            mark = translate("thinking…")
            stdio.write_text(f"{answer.DIM}{mark}{answer.RESET}" if self._dim else mark)
        self._count += len(text)

    def _text(self, text: str) -> None:
        if text:
            self._fold()
        super()._text(text)

    def _call(self, call: ToolCall) -> None:
        self._fold()
        super()._call(call)

    def _restart(self) -> None:
        self._erase()
        super()._restart()

    def _fold(self) -> None:
        if count := self._erase():
            print_dim(f"reasoning of {count} characters is folded")

    def _erase(self) -> int:
        """Remove the line that says that reasoning has begun. Return the number of its characters."""
        count, self._count = self._count, 0
        if count and self._live:
            stdio.write_text(_ERASE_LINE)
        return count
