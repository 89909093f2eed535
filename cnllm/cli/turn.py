"""A turn, from what is asked to what came of it: the model's answer, and the calls of tools on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from cnllm.cli.output import errors
from cnllm.errors import CnllmError

if TYPE_CHECKING:
    from cnllm.cli.output.answer import View
    from cnllm.cli.tools import Toolbox
    from cnllm.client.sync_client import Client
    from cnllm.client.sync_run import Run
    from cnllm.engine.run.effects import Step
    from cnllm.registry.model import Model
    from cnllm.types import Message, Note, Reply

__all__ = ["ONLY_THINKING", "TurnResult", "exit_status", "is_only_reasoning", "report_ending", "run_turn"]

ONLY_THINKING = "only thinking came, no answer"


class TurnResult(msgspec.Struct, frozen=True):
    """What came of a turn: its last reply with the counts of all, what was said in it, why it ended, or the error."""

    reply: Reply | None
    said: list[Message]
    stopped: str | None
    error: BaseException | None


def run_turn(
    client: Client,
    model: Model,
    messages: Sequence[Message],
    box: Toolbox,
    view: View,
    *,
    stream: bool = True,
    by: Literal["sentence"] | None = None,
    **options: Any,
) -> TurnResult:
    """Asks, executes what is called and may be, and shows all of it. Ctrl-C ends it; what came is kept."""
    loop: dict[str, Any] = {"tools": box.tools or None, "approve": box.approve, **options}
    if not stream:
        return _whole(client, model, messages, view, loop)
    run = client.run_stream(model, messages, on_step=view.step, by=by, **loop)
    before, error = len(run.messages), None
    try:
        with run:
            for event in run:
                view.event(event)
    except (CnllmError, KeyboardInterrupt, OSError) as caught:  # OSError: nobody reads on
        error = caught
    return _told(run, before, error)


def _whole(client: Client, model: Model, messages: Sequence[Message], view: View, loop: dict[str, Any]) -> TurnResult:
    from cnllm.engine.history.repair import settle_calls

    def show(step: Step) -> None:
        view.whole(step.reply, step.run)
        view.step(step)

    before = len(settle_calls(messages)[0])
    try:
        return _told(client.run(model, messages, on_step=show, **loop), before, None)
    except CnllmError as caught:
        run = caught.run
        if run is None:
            raise
        stopped = run.stopped not in (None, "error", "cancelled")
        return _told(run, before, None if stopped else caught)


def _told(run: Run, before: int, error: BaseException | None) -> TurnResult:
    last: Reply | None = getattr(error, "reply", None)
    if last is None and (run.steps or isinstance(error, KeyboardInterrupt)):
        try:
            last = run.reply
        except CnllmError:
            last = None
    said = run.messages[before:]
    if last is None:
        return TurnResult(None, said, run.stopped, error)
    if run.steps:
        notes: dict[str, Note] = {str(n): n for s in run.steps for n in (*s.reply.notes, *s.notes)}
        notes |= {str(n): n for n in last.notes}
        last = msgspec.structs.replace(last, usage=run.usage, cost=run.cost, notes=list(notes.values()))
    return TurnResult(last, said, run.stopped, error)


_STOPPED = {
    "max_steps": ("the model called tools again and again, and was stopped", "ask it to go on, or ask differently"),
    "repeated": ("the model made the same calls again and again, and was stopped", "ask differently"),
    "incomplete": ("the model announced calls, and none came", "ask again"),
}
_FINISHED = {
    "length": ("it reached the limit of tokens", "allow more: -p max_tokens=N"),
    "content_filter": ("the endpoint withheld it", "ask differently, or ask another model"),
    "cut": ("the stream ended without proof that it was complete", "ask again, or with --no-stream"),
    "error": ("the endpoint failed in the middle", "ask again"),
}


def is_only_reasoning(reply: Reply) -> bool:
    """Whether nothing but thinking came. White space is no answer, a picture is one."""
    if reply.text.strip() or reply.tool_calls or reply.incomplete:
        return False
    kinds = {type(part).__name__ for part in reply.message.parts}
    return "Media" not in kinds and (bool(reply.reasoning) or "Reasoning" in kinds)


def exit_status(reply: Reply, stopped: str | None = None) -> int:
    """Return the exit status that stands for an answer."""
    is_whole = stopped not in _STOPPED and reply.finish not in _FINISHED and not is_only_reasoning(reply)
    return errors.WHOLE if is_whole else errors.PARTIAL


def report_ending(reply: Reply, stopped: str | None = None, hint: str | None = None) -> int:
    """Says so when the answer is not whole, and returns the exit status; `hint` goes before what is known to help."""
    if stopped in _STOPPED:
        why, help = _STOPPED[stopped]
        errors.print_error(why, hint or help)
    elif reply.finish in _FINISHED:
        why, help = _FINISHED[reply.finish]
        what = ONLY_THINKING if is_only_reasoning(reply) else "the answer is not whole"
        errors.print_error(f"{what}: {why} (finish {reply.finish})", hint or help)
    elif is_only_reasoning(reply):
        errors.print_error(ONLY_THINKING, hint or "ask again, or with less of it: --reasoning low, or off")
    return exit_status(reply, stopped)
