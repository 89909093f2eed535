"""Run `cnllm call`: send one request and print the answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal

from cnllm.cli import client_factory, option_parsing, turn_log
from cnllm.cli.attachments import require_readable
from cnllm.cli.call_template import apply_template
from cnllm.cli.input import read_call
from cnllm.cli.output import answer, errors, stdio, stdout
from cnllm.cli.questions import can_ask
from cnllm.cli.turn import report_ending, run_turn
from cnllm.config import redact
from cnllm.engine import build_request
from cnllm.errors import CnllmError
from cnllm.registry.routing import origin_of
from cnllm.types.checks import plural

if TYPE_CHECKING:
    from cnllm.cli.call_template import FilledTemplate
    from cnllm.cli.tools import CommandTools
    from cnllm.client.sync_client import Client
    from cnllm.engine import Plan
    from cnllm.types import Message, Quote

__all__ = ["CallRunner"]

PLACEHOLDER = "{key}"
SIMULATED = "simulated: this answer is made up on this machine; no model was asked"


class CallRunner:
    """One run of `cnllm call`."""

    def __init__(self, **params: Any) -> None:
        self.params = params
        template = apply_template(params)
        self.form: str | None = params["form"]
        if params["quote"] and self.form not in (None, "json"):
            raise errors.UsageError(f"--quote and --{self.form} print different things", "give one of them")
        self.by: Literal["sentence"] | None = "sentence" if params["sentences"] else None
        self.options = option_parsing.call_options(
            params["parameters"],
            params["extra_body"],
            params["tools"],
            params["schema"],
            reasoning=params["reasoning"],
            tool_choice=params["tool_choice"],
        )
        self.box = self._tools()
        with ExitStack() as stack:
            if self.box is not None:
                stack.callback(self.box.close)
            self._prepare(template, stack)
            self._open = stack.pop_all()

    def _prepare(self, template: FilledTemplate, stack: ExitStack) -> None:
        """Build the request. Its errors are raised before a key is read or anything is sent."""
        from cnllm.registry import Registry

        self.new: list[Message] = read_call(self.params, template)
        sends = not self.params["quote"] and self.form not in ("plan", "curl")
        self.log = turn_log.open_log(self.params, "cnllm call", writes=sends and not self.params["no_log"])
        stack.callback(self.log.close)
        self.messages = self.log.messages(self.new)
        self.registry = Registry.load()
        if self.box is not None:
            self.box.open()
            self.options["tools"] = self.box.tools
        elif self.params["web_search"]:
            from cnllm.tools import web_search  # a call without tools does not load it

            self.options["tools"] = [*self.options.get("tools", ()), web_search()]
        self.model = turn_log.choose_model(
            self.registry, self.params, self.log, self.messages, self.options, sends=sends
        )
        defaults = self.model.flags.call or {}
        self.stream: bool = defaults.get("stream", True) if self.params["stream"] is None else self.params["stream"]
        if "schema" in self.options:  # a stream is corrected where the call asks for it
            self.options.setdefault("corrections", defaults.get("corrections", 1))
        require_readable(self.registry, self.model, self.new, self.options)
        self.plan = self._build_plan()
        template.require_known(self.plan.notes)

    def _tools(self) -> CommandTools | None:
        params = self.params
        if not (params["tool"] or params["mcp"] or params["mcp_env"]):
            return None
        if params["tools"] is not None:
            raise errors.UsageError("--tools only describes tools, --tool and --mcp run them", "give one of them")
        from cnllm.cli import tools
        from cnllm.cli.chat_input import terminal_answer

        return tools.command_tools(params, terminal_answer if can_ask() else None, web_search=params["web_search"])

    def _build_plan(self) -> Plan:
        """Build the request. Its errors are raised before a key is read or anything is sent."""
        try:
            with errors.correcting():
                return build_request(self.model, self.messages, stream=self.stream, **self.options)
        except LookupError as error:
            raise errors.UsageError(
                f"{self.model.name} speaks {self.model.protocol}, which this version does not know"
            ) from error

    def run(self) -> int:
        """Send the request, or print it."""
        with self._open:
            self.log.print_beginning()
            if self.params["quote"]:
                return self._show_quote()
            if self.form == "plan":
                return self._show_plan()
            if self.form == "curl":
                return self._show_curl()
            with self._client() as client:
                if client.simulate:
                    stdio.print_line(f"cnllm: {SIMULATED}")
                status = self._answer(client)
                if self.params["replay"] is not None:
                    stdio.print_line("cnllm: replayed: this answer was recorded before; nothing was sent or paid")
                return status

    def _client(self) -> Client:
        params = self.params
        offline = params["simulate"] or params["replay"] is not None
        return client_factory.build_client(
            self.registry,
            api_key=client_factory.read_key(self.model, params["key_env"], required=not offline),
            simulate=params["simulate"],
            timeout=params["timeout"],
            replay=params["replay"],
            records=tuple(path for path in (*params["record"], self.log.exchange) if path),
        )

    # ── showing ──────────────────────────────────────────────────────────────
    def _show_quote(self) -> int:
        """Print what the call has in tokens and may cost."""
        from cnllm.estimates.worst_case import quote

        found = quote(self.plan)
        lines = _quote_lines(self.model.name, found, loops=self.box is not None)
        stdout.print_report(found, lines, as_json=self.form == "json")
        return errors.WHOLE

    def _show_plan(self) -> int:
        plan, secrets = self.plan, errors.hide_secrets()
        headers = plan.headers
        if not client_factory.sends_key(self.model, self.params["key_env"], plan.url):
            headers = {name: value for name, value in headers.items() if PLACEHOLDER not in value}
        request = {
            "method": plan.method,
            "url": redact.redact_url(plan.url, secrets),
            "headers": redact.redact_headers(redact.redact_request_headers(headers, secrets)),
            "body": plan.body,
            "notes": plan.notes,
        }
        stdout.print_json(request)
        return errors.WHOLE

    def _show_curl(self) -> int:
        from cnllm.cli.output import curl

        plan, variable = self.plan, client_factory.key_variable(self.model, self.params["key_env"])
        own = variable if self.params["key_env"] is None else None
        if own is not None and not self.model.trusts(own, origin_of(plan.url)):
            errors.print_error(
                f"{variable} is not for this address", "the command names another variable: put your key in it"
            )
            variable = client_factory.PLACE_OF_KEY
        headers = redact.redact_request_headers(plan.headers)
        if hidden := [name for name, value in headers.items() if redact.MARK in value]:
            errors.print_error(f"the value of {', '.join(hidden)} is not shown", "insert it before you paste this")
        if variable is None:  # the registry names no key for this model
            headers = {name: value for name, value in headers.items() if PLACEHOLDER not in value}
        elif not client_factory.is_set(variable):
            errors.print_error(f"{variable} is not set in this shell", f"export {variable} before you paste this")
        url, name = redact.redact_url(plan.url), variable or ""
        stdout.print_line(curl.curl_command(plan.method, url, headers, plan.body, placeholder=PLACEHOLDER, env=name))
        return errors.WHOLE

    # ── sending ──────────────────────────────────────────────────────────────
    def _answer(self, client: Client) -> int:
        """Send the request and print the answer, with tools after as many calls as the model makes."""
        view = self._view()
        params = self.params
        origin = "replayed" if params["replay"] is not None else "simulated" if params["simulate"] else "endpoint"
        with self.log.turn(self.new, self.model, origin, params["protocol"], params["base_url"]) as turn:
            result = run_turn(
                client, self.model, self.messages, self.box, view, stream=self.stream, by=self.by, **self.options
            )
            reply, error, messages = result.reply, result.error, None if self.box is None else result.messages
            if error is None:
                assert reply is not None
                turn.finish(reply, messages)
                view.end(reply)
                return report_ending(reply, result.stopped)
            turn.fail(error, reply, messages)
            if isinstance(error, KeyboardInterrupt):
                view.interrupt(reply)
            elif isinstance(error, CnllmError):
                has_content = errors.has_content(reply)
                view.end(reply if has_content else None)
                if not has_content and self.box is None and self.form is None and not params["simulate"]:
                    client_factory.print_site(self.model)
            raise error

    def _view(self) -> answer.View:
        if self.form == "json":
            return answer.SilentView()
        if self.form == "events":
            return answer.EventLinesView()
        return answer.TextView(
            reasoning=self.params["show_reasoning"],
            raw=self.params["raw"],
            hold=self.plan.if_cut == "again-whole" or (self.plan.answer is not None and self.plan.corrections > 0),
            markdown=not (self.params["plain"] or self.params["schema"] or self.params["sentences"]),
            hidden=("simulated",) if self.params["simulate"] else (),  # the first line says it
        )


def _quote_lines(model: str, quote: Quote, *, loops: bool) -> Iterator[str]:
    """Yield the lines of a quote. `loops`: more calls follow where the model calls a tool."""
    yield f"the first call of {model}; nothing was sent" if loops else f"a call of {model}; nothing was sent"
    spread = ""
    if quote.input_errors is not None:
        half, most = quote.input_errors
        spread = f" (usually within {100 * half:.0f} %, nearly always within {100 * most:.0f} %)"
    yield f"input: about {quote.input:,} token{plural(quote.input)}{spread}"
    if quote.cached is not None:
        yield f"sent before: about {quote.cached:,} of them, which the endpoint's cache may have"
    if quote.output_max is not None:
        yield f"output: {quote.output_max:,} token{plural(quote.output_max)} at most"
    low, high = ("unknown" if amount is None else f"{amount:f}" for amount in (quote.low, quote.high))
    yield f"cost: {low} {quote.currency} at least, {high} at most" if {low, high} != {"unknown"} else "cost: unknown"
    for name in quote.unknown:
        yield f"not known: {name}"
