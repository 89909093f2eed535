"""What `cnllm call` does: ask once."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from cnllm.cli import client_factory, option_parsing, turn_log
from cnllm.cli import input as prompt
from cnllm.cli import turn as went
from cnllm.cli.output import answer, errors, stdio
from cnllm.errors import CnllmError

if TYPE_CHECKING:
    from cnllm.cli.tools import Toolbox
    from cnllm.client.sync_client import Client
    from cnllm.engine import Plan
    from cnllm.registry.model import Model
    from cnllm.types import Message, Reply

__all__ = ["CallRunner"]

PLACEHOLDER = "{key}"
SIMULATED = "simulated: this answer is made up on this machine; no model was asked"


class CallRunner:
    """One invocation."""

    def __init__(self, **given: Any) -> None:
        from cnllm.registry import Registry

        self.given = given
        self.form: str | None = given["form"]
        self.options = option_parsing.call_options(
            given["parameters"],
            given["extra_body"],
            given["tools"],
            given["schema"],
            reasoning=given["reasoning"],
            tool_choice=given["tool_choice"],
        )
        self.box = self._toolbox()
        if self.box is not None:
            self.options["tools"] = self.box.tools
        said = prompt.read_text(given["text"], needed=not given["images"])
        self.new: list[Message] = prompt.read_messages(said, given["system"], given["images"])
        self.log = self._log()
        self.messages = self.log.messages(self.new)
        self.registry = Registry.load()
        self.model = self._model()
        self.stream = self._streams()
        self.plan = self._planned()

    def _log(self) -> turn_log.TurnLog:
        given = self.given
        if given["continues"] and given["conversation"] is not None:
            raise errors.UsageError("-c and --conversation ask for two conversations", "give one of them")
        which = "last" if given["continues"] else given["conversation"]
        if which is None and given["model"] is None:
            raise errors.UsageError("missing option '-m' / '--model'", "cnllm call --help shows how it is used")
        writes = not given["no_log"] and self.form not in ("plan", "curl")
        return turn_log.TurnLog(which, writes=writes)

    def _toolbox(self) -> Toolbox | None:
        given = self.given
        if not given["tool"]:
            return None
        if given["tools"] is not None:
            raise errors.UsageError("--tools offers what is not executed, --tool what is", "give one of them")
        from cnllm.cli import tools

        return tools.Toolbox(given["tool"], given["approve"])

    def _model(self) -> Model:
        """The model that is named, or the first of a tier that will do, or the conversation's last."""
        given = self.given
        if given["model"] is None:
            given |= self.log.last_choice(protocol=given["protocol"], base_url=given["base_url"])
        return client_factory.resolve_model(
            self.registry,
            given["model"],
            self.messages,
            self.options,
            protocol=given["protocol"],
            base_url=given["base_url"],
            offline=given["simulate"] or given["replay"] is not None,
        )

    def _streams(self) -> bool:
        """Is the answer taken as it comes? The model's own default holds where nothing is given."""
        given: bool | None = self.given["stream"]
        default: bool = (self.model.flags.call or {}).get("stream", True)
        return default if given is None else given

    def _planned(self) -> Plan:
        """The request. What is wrong about it is known before a key is looked for or anything is sent."""
        from cnllm.engine import build_request

        try:
            return build_request(self.model, self.messages, stream=self.stream, **self.options)
        except (TypeError, ValueError) as error:
            raise errors.UsageError(str(error)) from error
        except LookupError as error:
            raise errors.UsageError(
                f"{self.model.name} speaks {self.model.protocol}, which is not known here"
            ) from error

    def run(self) -> int:
        """Sends, or shows what would be sent."""
        with closing(self.log):
            return self._run()

    def _run(self) -> int:
        if self.form == "plan":
            return self._show_plan()
        if self.form == "curl":
            return self._show_curl()
        with self._client() as client:
            if client.simulate:
                stdio.print_line(f"cnllm: {SIMULATED}")
            return self._answer(client)

    def _client(self) -> Client:
        given = self.given
        offline = given["simulate"] or given["replay"] is not None
        return client_factory.build_client(
            self.registry,
            api_key=client_factory.read_key(self.model, given["key_env"], needed=not offline),
            simulate=given["simulate"],
            timeout=given["timeout"],
            replay=given["replay"],
            records=tuple(place for place in (given["record"], given["raw_log"], self.log.exchange) if place),
        )

    # ── showing ──────────────────────────────────────────────────────────────
    def _show_plan(self) -> int:
        from cnllm.config import redact

        plan, secrets = self.plan, errors.hide_secrets()
        shown = {
            "method": plan.method,
            "url": redact.redact_url(plan.url, secrets),
            "headers": redact.redact_headers(redact.redact_request_headers(plan.headers, secrets)),
            "body": plan.body,
            "notes": msgspec.to_builtins(plan.notes),
        }
        answer.print_json(shown)
        return errors.WHOLE

    def _show_curl(self) -> int:
        from cnllm.cli.output import curl
        from cnllm.config import redact

        plan, variable = self.plan, client_factory.key_variable(self.model, self.given["key_env"])
        if (
            variable is not None
            and self.given["key_env"] is None
            and not client_factory.may_send_key(self.model, variable, plan.url)
        ):
            errors.print_error(
                f"{variable} is not for this address", "the command names another variable: put your key there"
            )
            variable = client_factory.PLACE_OF_KEY
        headers = redact.redact_request_headers(plan.headers)
        if hidden := [name for name, value in headers.items() if redact.MARK in value]:
            errors.print_error(f"what is in {', '.join(hidden)} is not shown", "put it there before you paste this")
        if variable is None:  # no key is known to be needed
            headers = {name: value for name, value in headers.items() if PLACEHOLDER not in value}
        elif not client_factory.is_set(variable):
            errors.print_error(f"{variable} is not set in this shell", f"export {variable} before you paste this")
        place, name = redact.redact_url(plan.url), variable or ""
        answer.print_line(curl.curl_command(plan.method, place, headers, plan.body, placeholder=PLACEHOLDER, env=name))
        return errors.WHOLE

    # ── sending ──────────────────────────────────────────────────────────────
    def _answer(self, client: Client) -> int:
        view = self._view()
        given = self.given
        origin = "replayed" if given["replay"] is not None else "simulated" if given["simulate"] else "endpoint"
        with self.log.turn(self.new, self.model, origin, given["protocol"], given["base_url"]) as turn:
            if self.box is not None:
                return self._looped(client, view, turn)
            try:
                reply = self._streamed(client, view, turn) if self.stream else self._whole(client, view)
            except CnllmError as error:
                turn.fail(error)
                view.end(error.reply if errors.has_content(error.reply) else None)
                raise
            turn.finish(reply)
        view.end(reply)
        return went.report_ending(reply)

    def _looped(self, client: Client, view: answer.View, turn: turn_log.LoggedTurn) -> int:
        """With tools that are executed here: the answer after as many calls as the model makes."""
        assert self.box is not None
        options = {name: value for name, value in self.options.items() if name != "tools"}
        did = went.run_turn(
            client, self.model, self.messages, self.box, view, stream=self.stream, by=self._by(), **options
        )
        if did.error is None:
            assert did.reply is not None
            turn.finish(did.reply, did.said)
            view.end(did.reply)
            return went.report_ending(did.reply, did.stopped)
        turn.fail(did.error, did.reply, did.said)
        if isinstance(did.error, KeyboardInterrupt):
            view.interrupted(did.reply)
        elif isinstance(did.error, CnllmError):
            view.end(did.reply if errors.has_content(did.reply) else None)
        raise did.error

    def _by(self) -> Literal["sentence"] | None:
        return "sentence" if self.given["sentences"] else None

    def _view(self) -> answer.View:
        if self.form == "json":
            return answer.SilentView()
        if self.form == "events":
            return answer.EventLinesView()
        anew = self.plan.if_cut == "again-whole"
        return answer.TextView(reasoning=self.given["show_reasoning"], raw=self.given["raw"], hold=anew)

    def _streamed(self, client: Client, view: answer.View, turn: turn_log.LoggedTurn) -> Reply:
        with client.stream(self.model, self.messages, by=self._by(), **self.options) as stream:
            try:
                for event in stream:
                    view.event(event)
            except KeyboardInterrupt as error:
                reply = stream.stop()
                turn.fail(error, reply)
                view.interrupted(reply)
                raise
            except OSError as error:  # nobody reads on, or there is no room for it
                turn.fail(error, stream.stop())
                raise
            return stream.reply

    def _whole(self, client: Client, view: answer.View) -> Reply:
        reply = client.call(self.model, self.messages, **self.options)
        view.whole(reply)
        return reply
