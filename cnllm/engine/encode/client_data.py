"""Send what a client's own protocol means to endpoints of that protocol only.

`ClientData` in the options names its protocol. On an endpoint of another protocol, a key that has an equal there
becomes an option or a parameter; each other one is left out, with a note. A reference to what the model has to know is
refused. Endpoints of one protocol differ, too: what the registry knows of a parameter holds for a key of the client's,
which is no `extra_body` that somebody wrote for one endpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard

from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.encode.mode import Draft
from cnllm.engine.encode.params import drop_refused_keys
from cnllm.engine.encode.web_search import is_search, tool_type
from cnllm.engine.options import EXTRA_PARAMS
from cnllm.errors import ADJUST, CannotSend
from cnllm.jsonpath import get, leaves, merge_patch, nest, remove, set_value
from cnllm.protocols import fields, wire
from cnllm.protocols.fields import Fields, snake_case
from cnllm.registry import param_rules
from cnllm.registry.flags import Flags, WebSearchFlags
from cnllm.registry.model import Model
from cnllm.registry.web_search import search_rules
from cnllm.types import Note, Reply
from cnllm.types.client_data import CarriedBody, ClientData, count_text
from cnllm.types.message_memory import MessageMemory, made_of
from cnllm.types.parts import CACHE_MARK
from cnllm.types.tools import SEARCH, WebSearch

if TYPE_CHECKING:
    from cnllm.tools import Tool

__all__ = ["ask_for_object", "fit_client_data", "resolve_client_data"]

_LONGEST_NAME = 200  # characters of a tool that a refusal names
_CONTAINERS = (
    *("generationConfig", "generationConfig.thinkingConfig", "output_config", "reasoning", "text", "thinking"),
    "toolConfig",
)
"""Paths whose value is an object of settings. A note names each setting."""
_JSON_OBJECT = (
    ("response_format", {"type": "json_object"}),
    ("text.format", {"type": "json_object"}),
    ("generationConfig.responseMimeType", "application/json"),
)
"""Paths and values with which the protocols request a JSON object without a schema."""
_WITHOUT_WORD = ("generationConfig.responseMimeType",)
"""Those of them that need no word JSON in a message."""
_SEARCH_KEYS = ("web_search_options",)
"""Keys of a body that ask for a web search."""
_PORTABLE_KEYS = ("type", "function", "custom", CACHE_MARK, "defer_loading")
"""Keys of a function that stay on any wire: the engine decides about marks of the cache and about deferral."""
_CALLING = "toolConfig.functionCallingConfig"
_HINT = f"leave it out, or allow adjustments: {ADJUST}"
_MODES = {"ANY": "required", "AUTO": "auto", "VALIDATED": "auto"}


def resolve_client_data(
    options: dict[str, Any], model: Model, memory: MessageMemory | None = None
) -> tuple[dict[str, Any], list[Note]]:
    """Return the options for a model, and notes on what was left out of them. `memory` may know the tools."""
    body, headers, tools = options.get("extra_body"), options.get("extra_headers"), options.get("tools")
    if type(body) is CarriedBody:
        body = _with_carried(body, model) or None
        options = {name: value for name, value in {**options, "extra_body": body}.items() if value is not None}
    offer: list[Any] = tools if type(tools) is list else []
    has_own_tools = ClientData in map(type, offer)
    if type(body) is not ClientData and type(headers) is not ClientData and not has_own_tools:
        return options, []
    out = dict(options)
    if has_own_tools:
        out["tools"] = offer = made_of(memory, offer, _plain_tools, model.protocol)
    if type(body) is ClientData and not body and body.protocol == model.protocol:
        del out["extra_body"]
    has_search = any(type(data) is ClientData and data.search is not None for data in (body, *offer))
    notes: list[Note] = []
    inner_notes = _inner_notes(body, model) if type(body) is ClientData else []
    if has_search:
        _resolve_search(out, model, notes)
        body = out.get("extra_body")
    if _is_foreign(headers, model):
        del out["extra_headers"]
        notes += [_left_out("extra_headers", f"the header {name}", headers.protocol) for name in headers]
    if _is_foreign(body, model):
        del out["extra_body"]
        _map_settings(body, out, model, notes, inner_notes)
    if any(_is_foreign(tool, model) for tool in out.get("tools") or ()):
        _drop_tools(out, model, notes)
    if notes and options.get("on_unsupported") == "error":
        note = notes[0]
        raise CannotSend(f"{model.name}: {note.flag}: {note.said}: {note.did}", note=note, hint=_HINT)
    return out, [*notes, *inner_notes]


def _with_carried(body: CarriedBody, model: Model) -> dict[str, Any]:
    """Return a caller's `extra_body` with the data that a model's provider wants back; what the caller wrote counts."""
    out = dict(body)
    for key, path in wire(model.protocol).carried.items():
        own, name = out.get(key), path.rpartition(".")[2]
        if (value := _carried(path, body.replies, model)) is None or not (own is None or isinstance(own, Mapping)):
            continue
        out[key] = value if own is None else {name: value, **own}
    return out


def _carried(path: str, replies: Sequence[Reply], model: Model) -> Any:
    """Return the value at a path of the last reply by the model's provider that has one."""
    own = [reply for reply in replies if (reply.message.by or "").partition("/")[0] == model.provider]
    return next((value for reply in reversed(own) if (value := get(reply.extra, path)) is not None), None)


def _map_settings(
    body: ClientData, out: dict[str, Any], model: Model, notes: list[Note], inner_notes: list[Note]
) -> None:
    """Put the settings of another wire's body into options that mean the same, with a note on each that has none."""
    table = fields(body.protocol)
    for path, value in _settings(body):
        if path == "tool_choice":  # one of the vendor's own tools
            _refuse_choice(str(value.get("type") if isinstance(value, Mapping) else value), model)
        if table.outcome(path) in ("refuse", "reject") and value:
            _refuse(path, body.protocol, model)
        if path == _CALLING and _allow_functions(value, out, body.protocol, inner_notes):
            continue
        if not _map_setting(path, value, out, model, table):
            notes.append(_left_out("extra_body", path, body.protocol))


def _is_foreign(data: Any, model: Model) -> TypeGuard[ClientData]:
    """Whether data are a client's for another wire than the model's."""
    return type(data) is ClientData and data.protocol != model.protocol


def _is_function(tool: Any) -> bool:
    """Whether a tool is a client's function with further keys."""
    return type(tool) is ClientData and "function" in tool and tool.get("type", "function") == "function"


def _plain_tools(tools: list[Any], protocol: str) -> list[Any]:
    """Return tools; each function of a client has the further keys that a wire may know."""
    return [
        {key: value for key, value in tool.items() if tool.protocol == protocol or key in _PORTABLE_KEYS}
        if _is_function(tool)
        else tool
        for tool in tools
    ]


def _inner_notes(body: ClientData, model: Model) -> list[Note]:
    """Return a note for each key inside messages and tools that the model's wire has no place for."""
    if body.protocol == model.protocol:
        return []
    table = fields(model.protocol)
    notes: list[Note] = []
    for (path, meaning), count in body.inner_keys.items():
        if meaning is None or not table.has_inner(meaning):
            flag = "tools" if path.startswith("tools") else "messages"
            notes.append(_left_out(flag, count_text(path, count), body.protocol))
    return notes


def ask_for_object(request: Draft, ledger: Ledger) -> Draft:
    """Return the draft with a client's request for any JSON object as a schema, unless the endpoint takes it as it is.

    Most protocols take it only beside the word JSON in a message, and some endpoints not at all, or not in every mode.
    """
    data = request.options.extra_body
    if type(data) is not ClientData or request.options.schema is not None:
        return request
    plain = dict(data)
    place = next((path for path, value in _JSON_OBJECT if get(plain, path) == value), None)
    if place is None:
        return request
    methods = request.flags.schema.methods
    takes_it = methods is None or not {"json_object", "json_schema"}.isdisjoint(methods)
    if takes_it and (place in _WITHOUT_WORD or any("json" in m.text.lower() for m in request.messages)):
        return request
    reason = "no message has the word JSON" if takes_it else "the endpoint does not take it"
    ledger.note("schema-method", "schema.methods", "any JSON object", f"asked for by a schema: {reason}")
    rest: dict[str, Any] = {}
    merge_patch(rest, plain)  # a copy, as deep as objects go
    remove(rest, place)
    options = replace(request.options, schema={"type": "object"}, extra_body=ClientData(data.protocol, rest))
    return request.with_options(options)


def _refuse(path: str, protocol: str, model: Model) -> NoReturn:
    """Raise `CannotSend` for a key without which the model would answer without its context."""
    other = snake_case(path)
    name = path if other == path else f"{path} ({other})"
    did = f"{model.name} cannot get what it refers to: only endpoints of {protocol} can"
    note = Note("reference-foreign", "extra_body", name, did)
    raise CannotSend(f"{name}: {did}", note=note, hint="send the content itself, or choose a model of that protocol")


def _refuse_choice(name: str, model: Model) -> NoReturn:
    """Raise `CannotSend` for a choice that forces a call of a vendor's tool."""
    did = f"{model.name} cannot execute it, and the request demands that it is called"
    name = name[:_LONGEST_NAME]
    note = Note("tool-foreign", "tool_choice", name, did)
    hint = "offer a function, or let the model choose (tool_choice 'auto')"
    raise CannotSend(f"tool_choice: {name}: {did}", note=note, hint=hint)


def fit_client_data(
    data: ClientData, params: dict[str, Any], flags: Flags, ledger: Ledger
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a client's keys of the body without those for which the endpoint has a rule, and the parameters with them.

    Keys that the endpoint never takes, or that turn on or off what the model cannot turn, are left out with a note. A
    list that cnllm sends in every request has its entries, too. Raises `CannotSend` for a key that holds the context of
    the request and that the endpoint does not take.
    """
    rest: dict[str, Any] = {}
    merge_patch(rest, data)  # a copy, as deep as objects go
    found = dict(params)
    table = fields(data.protocol)
    for name, rule in (flags.params or {}).items():
        if get(rest, name) and table.outcome(name) == "refuse" and param_rules.state(rule) in ("refused", "ignored"):
            ledger.refuse("reference-foreign", f"params.{name}", name, "the endpoint does not take it")
        for place in dict.fromkeys((param_rules.path(name, rule), name)):
            if (value := get(rest, place)) is not None and rule is not True:
                remove(rest, place)
                found.setdefault(name, value)
    drop_refused_keys(rest, flags, ledger)
    _join_lists(rest, flags, ledger)
    return ClientData(data.protocol, rest), found


def _join_lists(keys: dict[str, Any], flags: Flags, ledger: Ledger) -> None:
    """Add the entries that every body of this mode has to the client's own lists."""
    for place, own in leaves(flags.body.set or {}).items():
        value = get(keys, place)
        if type(own) is not list or type(value) is not list or place in (flags.body.drop or ()):
            continue
        if missing := [entry for entry in own if entry not in value]:
            set_value(keys, place, [*value, *missing])
            did = f"{', '.join(map(str, missing))} is sent, too, as in every request"
            ledger.note("param-default", "body.set", place, did)


def _left_out(flag: str, subject: str, protocol: str) -> Note:
    """Return the note on a key that was left out. It does not contain the value, which may be personal."""
    return Note("key-foreign", flag, subject, f"left out: only endpoints of {protocol} know it")


def _settings(body: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and value of each setting in a body."""
    for key, value in body.items():
        path = f"{prefix}{key}"
        if path in _CONTAINERS and isinstance(value, Mapping) and value:
            yield from _settings(value, f"{path}.")
        else:
            yield path, value


def _map_setting(path: str, value: Any, options: dict[str, Any], model: Model, table: Fields) -> bool:
    """Add the option or the parameter that is equal to a setting. Return False if there is none."""
    if (path, value) in _JSON_OBJECT:
        options.setdefault("schema", {"type": "object"})
        return True
    row = table.row(path)
    meaning = snake_case(path) if row is None else row.meaning
    if not _forward(meaning, value, options, model, is_portable=row is not None and row.outcome == "forward"):
        return False
    state = param_rules.state((model.flags.params or {}).get("logprobs"))
    if meaning == "top_logprobs" and value and state in ("works", "unknown"):
        _forward("logprobs", True, options, model, is_portable=True)  # wires with both need both
    return True


def _forward(meaning: str, value: Any, options: dict[str, Any], model: Model, *, is_portable: bool) -> bool:
    """Add a setting as the model's wire, or its registry, calls it. Return False where neither knows it."""
    if meaning in EXTRA_PARAMS and meaning in (model.flags.params or {}):
        options.setdefault(meaning, value)
        return True
    place = fields(model.protocol).place(meaning) if is_portable else None
    if place is None:
        return False
    params = dict(options.get("params") or {})
    merge_patch(params, nest(place, value))
    options["params"] = params
    return True


def _allow_functions(config: Any, options: dict[str, Any], protocol: str, notes: list[Note]) -> bool:
    """Offer only the functions that a config of calls allows, in its mode. Keys beside them are noted."""
    match config:
        case {"mode": str(mode), "allowedFunctionNames": list(names), **rest} if mode in _MODES:
            if not (tools := options.get("tools")):
                return False
            from cnllm.protocols.client_tools import narrowed_note  # most calls need nothing of it
            from cnllm.tools.values import Tool

            # A web search is no function, and stays.
            offer = [tool for tool in tools if isinstance(tool, Tool) or tool.get("function", {}).get("name") in names]
            options["tools"], options["tool_choice"] = offer, _MODES[mode]
            notes += narrowed_note("allowedFunctionNames", tools, offer)
            notes += [_left_out("extra_body", f"{_CALLING}.{key}", protocol) for key in rest]
            return True
    return False


def _search_tool(search: WebSearch) -> Tool:
    from cnllm.tools.values import Tool  # most calls need nothing of it

    return Tool(SEARCH, search=search)


def _resolve_search(options: dict[str, Any], model: Model, notes: list[Note]) -> None:
    """Put a client's own web search into the form for all endpoints, unless the endpoint takes the client's form."""
    rules = search_rules(model)
    body = options.get("extra_body")
    data = body if type(body) is ClientData else ClientData()
    choice = options.get("tool_choice", data.get("tool_choice"))
    offer = list(options.get("tools") or ())
    searches = [tool for tool in offer if type(tool) is ClientData and tool.search is not None]
    names = {name for tool in searches for name in _tool_names(tool)}
    kind = choice.get("type") if isinstance(choice, Mapping) else None
    is_named = _choice_name(choice) in names or (isinstance(kind, str) and kind in names)
    if rules is None:
        for tool in [*searches, *([data] if data.search is not None else [])]:
            if tool.protocol == model.protocol:
                did = "sent as it is: whether this endpoint searches is unknown"
                notes.append(Note("web-search", "web_search", tool_type(tool) if tool is not data else "the body", did))
        return
    own = model.flags.web_search  # that of the client's wire, where the model is asked over it
    search = None
    for index, tool in enumerate(offer):
        if tool not in searches or (tool.protocol == model.protocol and own is not None and is_search(tool, own)):
            continue
        search = offer[index] = _search_tool(replace(tool.search, is_offer=True))
    if search is not None:
        options["tools"] = offer
    if data.search is not None and not (data.protocol == model.protocol and _is_own_key(data, own)):
        search = _search_tool(data.search)
        options["tools"] = [*offer, search]
        rest = {key: value for key, value in data.items() if key not in _SEARCH_KEYS}
        options["extra_body"] = data = ClientData(data.protocol, rest)
    if search is not None and is_named:
        options["tool_choice"] = SEARCH
        if "tool_choice" in data:
            rest = {key: value for key, value in data.items() if key != "tool_choice"}
            options["extra_body"] = ClientData(data.protocol, rest)


def _is_own_key(data: ClientData, rules: WebSearchFlags | None) -> bool:
    """Whether the endpoint itself takes the key of a body that asks for a search."""
    accepted = {*(rules.set or ()), *(rules.forms or ())} if rules is not None else set()
    return any(key in data and key in accepted for key in _SEARCH_KEYS)


def _tool_names(tool: ClientData) -> list[str]:
    """Return what a choice may call a tool of a client: its type and its name."""
    return [name for name in (tool_type(tool), tool.get("name")) if isinstance(name, str)]


def _drop_tools(options: dict[str, Any], model: Model, notes: list[Note]) -> None:
    """Leave out the tools of another protocol, and a choice that needs one of them."""
    rest: list[Any] = []
    dropped: set[Any] = set()
    for index, tool in enumerate(options["tools"]):
        if not _is_foreign(tool, model):
            rest.append(tool)
            continue
        kind = tool_type(tool)
        dropped.update(_tool_names(tool))
        did = f"left out: only endpoints of {tool.protocol} execute it"
        notes.append(Note("tool-foreign", "tools", f"tools[{index}]: {kind}", did))
    choice = options.get("tool_choice")
    name = _choice_name(choice)
    if (name in dropped) if name is not None else (choice in ("required", "any") and not rest):
        _refuse_choice(name or ", ".join(sorted(map(str, dropped))), model)
    if not rest:
        for key in ("tools", "tool_choice", "parallel_tool_calls"):
            options.pop(key, None)
    else:
        options["tools"] = rest


def _choice_name(choice: Any) -> str | None:
    """Return the name of the tool that a choice names, or None."""
    if isinstance(choice, Mapping):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, Mapping) else choice.get("name")
        return name if isinstance(name, str) else None
    return choice if isinstance(choice, str) and choice not in ("auto", "none", "required", "any") else None
