"""Apply a template to the parameters of a call or a chat, and save one from them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from cnllm.cli.option_parsing import CALL_OPTIONS, call_options, is_json, is_short_form, parse_parameter, read_schema
from cnllm.cli.options import level
from cnllm.cli.output import errors, stdio, terminal
from cnllm.cli.output.errors import UsageError
from cnllm.config.redact import is_secret_name, looks_secret

if TYPE_CHECKING:
    from cnllm.config.templates import Template
    from cnllm.types import Note

__all__ = ["FilledTemplate", "apply_template", "load_template", "save_template"]

_OPTIONS = ("reasoning", "tool_choice")
_SAVED = frozenset(("text", "model", "system", "schema", "tool", "parameters", "save", *_OPTIONS))
_OF_THE_RUN = frozenset(("simulate", "no_log", "debug", "show_reasoning", "plain", "raw"))  # and of a terminal


class FilledTemplate:
    """The texts of a template, with its variables filled in. `parameters` are the user's own, beside the variables."""

    def __init__(
        self,
        name: str = "",
        prompt: str | None = None,
        values: dict[str, str] | None = None,
        parameters: Sequence[str] = (),
    ) -> None:
        self._name = name
        self._prompt = prompt
        self._values = values or {}
        self._names = {parameter.partition("=")[0].partition(".")[0] for parameter in parameters}

    @property
    def needs_text(self) -> bool:
        """Whether the user's text is needed."""
        return self._prompt is None or self._takes_input

    @property
    def _takes_input(self) -> bool:
        return any(mark in (self._prompt or "") for mark in ("$input", "${input}"))

    def require_known(self, notes: Sequence[Note]) -> None:
        """Raise `UsageError` for a parameter that is neither a variable nor, by the notes of the request, known."""
        unknown = [note.said for note in notes if (note.code, note.flag) == ("param-unknown", "params")]
        names = (said.partition("=")[0].partition(".")[0] for said in unknown)
        if self._values and (wrong := next((name for name in names if name in self._names), None)):
            raise UsageError(
                f"the template {self._name} has no variable {wrong}",
                f"it has {', '.join(self._values)}; --extra-body sends a parameter that nobody knows",
            )

    def prompt(self, text: str) -> str:
        """Return the prompt with the user's text in it, at `$input` or at its end."""
        if self._prompt is None:
            return text
        from cnllm.config.templates import fill

        filled = fill(self._prompt, {**self._values, "input": text})
        return filled if self._takes_input or not text.strip() else f"{filled}\n\n{text}"


def load_template(name: str) -> Template:
    """Read a template. Raise `UsageError` with similar names if there is none."""
    from cnllm.cli.output.suggestion import suggest
    from cnllm.config import templates

    try:
        return templates.read_template(name)
    except FileNotFoundError:
        hint = suggest(name, templates.template_names(), "cnllm templates list shows them; --save NAME makes one")
        raise UsageError(f"there is no template {name}", hint) from None


def apply_template(params: dict[str, Any]) -> FilledTemplate:
    """Add what `-t` names to the parameters, which win over it. Return the template's prompt."""
    name = params.get("template")
    if name is None:
        return FilledTemplate()
    template = load_template(name)
    _check(template)
    values = _take_variables(params, template)
    own = params["parameters"]
    if params["model"] is None and not (params.get("continues") or params.get("conversation")):
        params["model"] = template.model
    if params["system"] is None and template.system is not None:
        from cnllm.config.templates import fill

        params["system"] = fill(template.system, values)
    if "schema" in params:
        params["schema"] = params["schema"] or template.schema
    if not params["tool"] and not params.get("tools"):
        params["tool"] = _tools(template)
    rest = dict(template.options)
    for option in _OPTIONS:
        value = rest.pop(option, None)
        if value is not None and option in params and params[option] is None:
            params[option] = level(str(value), f"{name}: ") if option == "reasoning" else str(value)
    params["parameters"] = (*(f"{key}={json.dumps(value)}" for key, value in rest.items()), *params["parameters"])
    return FilledTemplate(name, template.prompt, values, own)


def _check(template: Template) -> None:
    """Raise `UsageError` for a wrong option, a variable with a parameter's name, or a file as a schema."""
    if bad := [name for name in template.variable_names if name in CALL_OPTIONS]:
        raise UsageError(f"the template {template.name} has a variable {bad[0]}", "a parameter has this name")
    if template.schema is not None and not (is_short_form(template.schema) or is_json(template.schema)):
        raise UsageError(f"the template {template.name} names a file as its schema", "write fields or JSON there")
    for option, value in template.options.items():
        if option not in _OPTIONS:
            try:
                call_options((f"{option}={json.dumps(value, allow_nan=False)}",))
            except UsageError as error:
                what = str(error).partition(": ")[2]
            except (TypeError, ValueError):
                what = f"{value} is not a JSON value"
            else:
                continue
            raise UsageError(f"the template {template.name}: {option}: {what}", "correct [options]")


def _tools(template: Template) -> tuple[str, ...]:
    """Return the template's tools. A file from elsewhere may not name code that runs on this machine."""
    code = [tool for tool in template.tools if ":" in tool]
    if code and template.name.endswith(".toml"):
        raise UsageError(
            f"{template.name} names the tool {code[0]}, which is code", f"if you trust it: --tool {code[0]}"
        )
    return tuple(template.tools)


def _take_variables(params: dict[str, Any], template: Template) -> dict[str, str]:
    """Take the template's variables out of `-p`, and return the value of each. Raise `UsageError` for a missing one."""
    names = template.variable_names
    values = dict(template.variables)
    parameters = []
    for parameter in params["parameters"]:
        name, equals, value = parameter.partition("=")
        if equals and name in names:
            values[name] = value
        else:
            parameters.append(parameter)
    params["parameters"] = tuple(parameters)
    if missing := [name for name in names if name not in values]:
        listed = " ".join(f"-p {name}=…" for name in missing)
        raise UsageError(f"the template {template.name} needs {', '.join(missing)}", f"give it: {listed}")
    return values


# ── saving ───────────────────────────────────────────────────────────────────
def save_template(params: dict[str, Any]) -> int:
    """Write the parameters of a call as a template, and send nothing."""
    from cnllm.config import templates
    from cnllm.registry import Registry, tiers

    name = params["save"]
    if params.get("template") is not None:
        raise UsageError("-t and --save name two templates", "give one of them")
    _refuse_others(click.get_current_context())
    prompt = params.get("text")
    if prompt == "-":
        raise UsageError("--save does not read stdin", "give the prompt as TEXT; $input in it stands for stdin")
    texts = [params["system"], prompt]
    variables = [variable for text in texts for variable in templates.variables_of(text)]
    if bad := [v for v in variables if v in CALL_OPTIONS]:
        raise UsageError(f"${bad[0]} is the name of a parameter", "name the variable otherwise")
    if params["model"] is not None and not params["model"].startswith(tiers.PREFIX):
        Registry.load().resolve(params["model"])  # raises what is wrong with the name
    options = {option: params[option] for option in _OPTIONS if params.get(option) is not None}
    defaults: dict[str, str] = {}
    arguments: list[str] = []
    for parameter in params["parameters"]:
        key, value = parse_parameter(parameter)
        if key in variables:
            defaults[key] = parameter.partition("=")[2]
        else:
            _require_harmless(key, value)
            options[key] = value
            arguments.append(parameter)
    _require_parameters(params["model"], arguments)
    if (schema := params.get("schema")) is not None:
        parsed = read_schema(schema)
        schema = schema if is_short_form(schema) else json.dumps(parsed, ensure_ascii=False)
    template = templates.Template(
        name=name,
        model=params["model"],
        system=params["system"],
        prompt=prompt,
        schema=schema,
        tools=list(params["tool"]),
        options=options,
        variables=defaults,
    )
    if not any(getattr(template, field) for field in ("model", "system", "prompt", "schema", "tools", "options")):
        raise UsageError("there is nothing to save", f"for example: cnllm call --save {name} -s 'Answer in French.'")
    path, backup = templates.write_template(template)
    stdio.print_line(terminal.escape(f"saved as {path}; use it with -t {name}"))
    if backup is not None:
        stdio.print_line(terminal.escape(f"  the one before is {backup}"))
    return errors.WHOLE


def _refuse_others(context: click.Context) -> None:
    """Raise `UsageError` for an option that was given and that no template holds."""
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in _SAVED or name in _OF_THE_RUN or name.startswith("param_"):
            continue
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = "--tools, only --tool" if name == "tools" else parameter.opts[0]
            raise UsageError(f"a template does not hold {option}", "leave it out")


def _require_harmless(name: str, value: Any) -> None:
    """Raise `UsageError` for a key or an address, which no template holds."""
    if isinstance(value, str) and is_secret_name(name.rpartition(".")[2]) and looks_secret(value):
        raise UsageError(f"-p {name}: a template holds no key", "cnllm keys set NAME stores it")
    if name in ("api_key", "base_url"):
        raise UsageError(f"a template does not hold {name}", "leave it out")


def _require_parameters(model: str | None, parameters: list[str]) -> None:
    """Raise `UsageError` for a mistyped parameter. Without a model, the first of the default models stands in."""
    from cnllm.client.sync_client import Client

    options = call_options(tuple(parameters))
    hint = "variables of a template stand as $name in its texts"
    with Client(simulate=True) as client, errors.correcting(hint=hint):
        client.plan(model or client.registry.default_models[0], "Hi", **options)
