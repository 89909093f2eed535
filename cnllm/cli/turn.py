"""Run one turn: send the messages, run the model's tool calls, and collect the result."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from cnllm.cli.output import errors
from cnllm.engine.history.repair import settle_calls
from cnllm.errors import CnllmError
from cnllm.types.endings import is_paused

if TYPE_CHECKING:
    from cnllm.cli.output.answer import View
    from cnllm.cli.tools import CommandTools
    from cnllm.client.sync_client import Client
    from cnllm.client.sync_run import Run
    from cnllm.registry.model import Model
    from cnllm.types import Message, Reply, Step

__all__ = ["ONLY_THINKING", "TurnResult", "exit_status", "is_only_reasoning", "report_ending", "run_turn"]

ONLY_THINKING = "the model sent only reasoning, no answer"


class TurnResult(msgspec.Struct, frozen=True):
    """The result of a turn: its last reply with the usage of all steps, its new messages, and its end or error."""

    reply: Reply | None
    messages: list[Message]
    stopped: str | None
    error: BaseException | None


def run_turn(
    client: Client,
    model: Model,
    messages: Sequence[Message],
    box: CommandTools | None,
    view: View,
    *,
    stream: bool = True,
    by: Literal["sentence"] | None = None,
    **options: Any,
) -> TurnResult:
    """Send the messages, run the tool calls that are allowed, and show every step. Without a `box` nothing runs.

    Ctrl-C ends the turn. The result keeps the part of the reply that arrived before."""
    if box is None:
        return _ask_once(client, model, messages, view, by, stream=stream, options=options)
    loop: dict[str, Any] = {**options, "tools": box.tools or None, "approve": box.approve}
    if not stream:
        return _run_without_stream(client, model, messages, view, loop)
    run = client.run_stream(model, messages, on_step=view.step, by=by, **loop)
    offset, error = len(run.messages), None
    try:
        with run:
            for event in run:
                view.event(event)
    except (CnllmError, KeyboardInterrupt, OSError) as exception:  # OSError: the reader of the output is gone
        error = exception
    return _turn_result(run, offset, error)


def _ask_once(
    client: Client,
    model: Model,
    messages: Sequence[Message],
    view: View,
    by: Literal["sentence"] | None,
    *,
    stream: bool,
    options: dict[str, Any],
) -> TurnResult:
    """Send the messages and show the reply."""
    try:
        if not stream:
            reply = client.call(model, messages, **options)
            view.reply(reply)
            return TurnResult(reply, [], None, None)
        with client.stream(model, messages, by=by, **options) as answer:
            try:
                for event in answer:
                    view.event(event)
            except (KeyboardInterrupt, OSError) as error:  # OSError: the reader is gone, or the disk is full
                return TurnResult(answer.stop(), [], None, error)
            return TurnResult(answer.reply, [], None, None)
    except CnllmError as error:
        return TurnResult(error.reply, [], None, error)


def _run_without_stream(
    client: Client, model: Model, messages: Sequence[Message], view: View, loop: dict[str, Any]
) -> TurnResult:
    def show(step: Step) -> None:
        view.reply(step.reply, step.run)
        view.step(step)

    offset = len(settle_calls(messages)[0])
    try:
        return _turn_result(client.run(model, messages, on_step=show, **loop), offset, None)
    except CnllmError as error:
        if error.run is None:
            raise
        is_failure = error.run.stopped in (None, "error", "cancelled")
        return _turn_result(error.run, offset, error if is_failure else None)


def _turn_result(run: Run, offset: int, error: BaseException | None) -> TurnResult:
    last: Reply | None = getattr(error, "reply", None)
    if last is None and (run.steps or isinstance(error, KeyboardInterrupt)):
        with suppress(CnllmError):
            last = run.reply
    if last is not None:
        from cnllm.client.runs import with_run_totals

        last = with_run_totals(run, last)
    return TurnResult(last, run.messages[offset:], run.stopped, error)


_STOP_REASONS = {
    "max_steps": ("the model kept calling tools, and was stopped", "ask it to go on, or change the question"),
    "repeated": ("the model repeated the same calls, and was stopped", "change the question"),
    "incomplete": ("the model announced tool calls but sent none", "ask again"),
}
_FINISH_REASONS = {
    "length": ("it reached the limit of tokens", "allow more: -p max_tokens=N"),
    "content_filter": ("the endpoint withheld it", "change the question, or ask another model"),
    "cut": ("the stream ended without proof that it was complete", "ask again, or with --no-stream"),
    "error": ("the endpoint failed in the middle", "ask again"),
}


def is_only_reasoning(reply: Reply) -> bool:
    """Whether the reply holds nothing but reasoning. White space is no answer, a picture is one."""
    if reply.text.strip() or reply.tool_calls or reply.incomplete:
        return False
    kinds = {type(part).__name__ for part in reply.message.parts}
    return "Media" not in kinds and (bool(reply.reasoning) or "Reasoning" in kinds)


def _has_broken_call(reply: Reply) -> bool:
    """Whether a tool call of the reply is not whole, or its arguments are no JSON object."""
    return bool(reply.incomplete) or any(call.arguments is None and not call.excluded for call in reply.tool_calls)


def _is_invalid(reply: Reply) -> bool:
    """Whether the answer does not follow the schema of the call."""
    return any(note.code == "answer-invalid" for note in reply.notes)


def exit_status(reply: Reply, stopped: str | None = None) -> int:
    """Return the exit status for a reply."""
    is_broken = reply.finish in _FINISH_REASONS or is_only_reasoning(reply) or _has_broken_call(reply)
    is_bad = is_broken or is_paused(reply) or _is_invalid(reply) or stopped in _STOP_REASONS
    return errors.PARTIAL if is_bad else errors.WHOLE


def report_ending(reply: Reply, stopped: str | None = None, hint: str | None = None) -> int:
    """Print an error if the answer is not whole or not valid. Return the exit status. `hint` replaces the usual one."""
    if stopped in _STOP_REASONS:
        reason, advice = _STOP_REASONS[stopped]
        errors.print_error(reason, hint or advice)
    elif reply.finish in _FINISH_REASONS:
        reason, advice = _FINISH_REASONS[reply.finish]
        summary = ONLY_THINKING if is_only_reasoning(reply) else "the answer is incomplete"
        errors.print_error(f"{summary}: {reason} (finish {reply.finish})", hint or advice)
    elif is_paused(reply):
        errors.print_error(
            f"the endpoint paused before the end of its answer ({reply.raw_finish})", hint or "ask again"
        )
    elif _has_broken_call(reply):
        errors.print_error("a tool call of the answer is not whole", hint or "ask again")
    elif is_only_reasoning(reply):
        errors.print_error(ONLY_THINKING, hint or "ask again, or with less reasoning: --reasoning low, or off")
    elif _is_invalid(reply):
        errors.print_error("the answer does not follow the schema", hint or "let it try again: -p corrections=3")
    return exit_status(reply, stopped)
