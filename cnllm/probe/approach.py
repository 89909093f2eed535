"""Find an endpoint: its models, its wire, its path, the header of its key, and a request that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from cnllm.errors import CnllmError, EndpointError, TransportError
from cnllm.jsonpath import get
from cnllm.probe.bodies import Bodies
from cnllm.probe.exchange import Ask, ProbeAnswer, on_one_line
from cnllm.probe.facts import FlagFact
from cnllm.probe.place import KEY_HEADERS, EndpointPlace, ProbeTarget, model_at, places
from cnllm.probe.question import HELLO
from cnllm.registry.model import Model
from cnllm.registry.registry import Registry

__all__ = ["ProbedEndpoint", "approach"]

_FINAL = ("quota", "rate", "busy", "network")
"""What another path of the same host will not change."""
_SELF_PATHS = ("/props", "/version")
"""Paths below the root of a host where self-hosted servers describe themselves."""

_WINDOWS = (
    "context_length",
    "context_window",
    "max_context_length",
    "max_model_len",
    "max_input_tokens",
    "inputTokenLimit",
    "meta.n_ctx",
    "default_generation_settings.n_ctx",
)
_SOFTWARE = ("build_info", "version")
_MOST_WORDS = 80
_ROOM = 12_000
"""The output tokens of a request on a wire where their number is required."""


class ProbedEndpoint(Struct, frozen=True):
    """An endpoint that answers: its place, its model, what builds its requests, and what was learnt on the way.

    `context` is the window that it states, `remarks` what it says of itself.
    """

    place: EndpointPlace
    id: str
    bodies: Bodies
    facts: tuple[FlagFact, ...] = ()
    context: int | None = None
    remarks: tuple[str, ...] = ()


Listing = list[tuple[str, ProbeAnswer]]
"""The answers to requests for the list of models, with the base of each."""

Exchanger = Callable[..., ProbeAnswer]


class _FirstRequests:
    """A search for the endpoint. `exchange` sends a request, and `seen` are the answers to first requests."""

    def __init__(self, registry: Registry, exchange: Exchanger, *, has_key: bool) -> None:
        self.registry = registry
        self.exchange = exchange
        self.has_key = has_key
        self.seen: list[ProbeAnswer] = []

    def models(self, candidates: list[EndpointPlace]) -> tuple[list[str], Listing]:
        """Ask for the list of models at the bases that are tried, until one has it."""
        listing: Listing = []
        for base in dict.fromkeys(place.base_url for place in candidates):
            place = next(p for p in candidates if p.base_url == base)
            answer = self.exchange(Ask(path=f"{base}/models", why="the list of models"), place)
            listing.append((base, answer))
            ids = list(_model_ids(answer.data))
            if ids or answer.status not in (404, 405) or len(listing) > 2:
                return ids, listing
        return [], listing

    def describe(self, place: EndpointPlace) -> list[ProbeAnswer]:
        """Ask a server of one's own what it says of itself."""
        parts = urlsplit(place.base_url)
        asks = [Ask(path=f"{parts.scheme}://{parts.netloc}{path}", why=path) for path in _SELF_PATHS if place.is_own]
        answers = [self.exchange(ask, place) for ask in asks]
        return [answer for answer in answers if answer.status == 200 and isinstance(answer.data, dict)]

    def first_request(self, place: EndpointPlace, id: str) -> ProbedEndpoint | None:
        """Try one place, with each header of a key, and with what a refusal asks for."""
        bodies, stream = Bodies(model_at(self.registry, place, id)), False
        model = bodies.model
        facts: list[FlagFact] = []
        rule = (model.flags.params or {}).get("max_tokens")
        if getattr(rule, "default", None) is not None:
            bodies = replace(bodies, base={bodies.path("max_tokens"): _ROOM})
        tries_headers = place.auth is None and self.has_key and all(answer.problem != "key" for answer in self.seen)
        own = ((model.flags.auth and model.flags.auth.header) or "").lower()
        others = KEY_HEADERS if tries_headers else ()
        headers = iter([header for header in others if header[0].lower() != own])
        for _ in range(8):
            ask = Ask(body=bodies.build([HELLO], stream=stream), why="a first request", stream=stream, control=True)
            answer = self.exchange(ask, place, id)
            self.seen.append(answer)
            if answer.passed and not (answer.text or answer.reasoning):
                self.seen[-1] = replace(answer, problem="form", message="an answer without a text")
                return None
            if answer.passed:
                if stream:
                    whole = Ask(body=bodies.build([HELLO]), why="a first request again, whole")
                    again = self.exchange(whole, place, id)
                    if again.refused:
                        facts.append(FlagFact("stream.required", True, "refused", quote=again.message))
                if bodies.drop:
                    facts.append(FlagFact("body.drop", list(bodies.drop), "refused"))
                facts += self.key_facts(model, place, id, ask)
                return ProbedEndpoint(place, id, bodies, tuple(facts))
            if answer.problem == "key" and self.has_key:
                header = next(headers, None)
                if header is None:
                    return None
                place = replace(place, auth=header)
                continue
            change = _remedy(bodies, answer, stream=stream) if answer.refused else None
            if change is None:
                return None
            bodies, stream = change
        return None

    def key_facts(self, model: Model, place: EndpointPlace, id: str, ask: Ask) -> list[FlagFact]:
        """Ask once without the key: only a refusal proves that the header carries it."""
        if not self.has_key:
            return []
        answer = self.exchange(replace(ask, keyless=True, why="no key"), place, id)
        if answer.problem != "key" and not (answer.refused and answer.status in (401, 403)):
            return []
        own = model.flags.auth
        header, value = place.auth or ((own.header, own.value) if own is not None else (None, None))
        return [FlagFact("auth.header", header, "works"), FlagFact("auth.value", value, "works")]


def approach(registry: Registry, target: ProbeTarget, exchange: Exchanger, *, thorough: bool) -> ProbedEndpoint:
    """Find the endpoint. Raises `CnllmError` with one clear line where there is none to ask.

    `thorough`: there are enough requests to ask a server what it says of itself.
    """
    search = _FirstRequests(registry, exchange, has_key=target.api_key is not None)
    candidates = [target.place] if target.place is not None else places(registry, target.base_url, target.protocol)
    models, listing = search.models(candidates)
    id = target.id or next(iter(models), None)
    if id is None:
        raise _no_list(listing, target.base_url)
    for place in _order_places(candidates, listing):
        found = search.first_request(place, id)
        if found is not None:
            answers = [answer for _, answer in listing]
            if thorough:
                answers += search.describe(found.place)
            remarks = tuple(dict.fromkeys(_stated_remarks([*answers, search.seen[-1]])))
            return replace(found, context=_stated_context(answers, id), remarks=remarks)
        if search.seen[-1].problem in _FINAL:
            break
    raise _failure(target.base_url, search.seen)


# ── metadata ─────────────────────────────────────────────────────────────────
def _no_list(listing: Listing, url: str) -> CnllmError:
    """Return the error for an endpoint whose list of models says nothing."""
    answers = [answer for _, answer in listing if answer.problem not in _OF_A_LIST]
    hint = "name the model: --model ID (in Python: model=…)"
    return _failure(url, answers) if answers else CnllmError(f"{url} lists no models", hint=hint)


def _order_places(candidates: list[EndpointPlace], listing: Listing) -> list[EndpointPlace]:
    """Return the places with those first whose base has the list of models."""
    bases = {base for base, answer in listing if list(_model_ids(answer.data))}
    wires = list(dict.fromkeys(p.protocol for p in candidates))
    return sorted(candidates, key=lambda p: (wires.index(p.protocol), p.base_url not in bases))


# ── what an endpoint says of itself ──────────────────────────────────────────
def _model_ids(data: Any) -> Iterator[str]:
    """Yield the ids of the models in a list. They end up in files and on a terminal, as they are."""
    for entry in _entries(data):
        id = entry.get("id") or entry.get("name")
        if isinstance(id, str) and id and id.isprintable() and len(id) < 200:
            yield id.removeprefix("models/")


def _entries(data: Any) -> list[dict[str, Any]]:
    lists = [found for key in ("data", "models") if isinstance(found := get(data, key), list)]
    return [entry for entry in (lists[0] if lists else ()) if isinstance(entry, dict)]


def _stated_context(answers: list[ProbeAnswer], id: str) -> int | None:
    """Return the window that the endpoint states for a model. It is a hint and no fact: nobody tried it."""
    places: list[Any] = []
    for data in (answer.data for answer in answers):
        own = [e for e in _entries(data) if id in (e.get("id"), str(e.get("name")).removeprefix("models/"))]
        places += [*own, data]
    values = (get(place, path) for place in places for path in _WINDOWS)
    return next((value for value in values if type(value) is int and 256 <= value <= 20_000_000), None)


def _stated_remarks(answers: list[ProbeAnswer]) -> Iterator[str]:
    """Yield what the endpoint says of its software, for people."""
    server = next((a.headers["server"] for a in answers if a.headers.get("server")), "")
    if server:
        yield f"the header server says: {on_one_line(server, _MOST_WORDS)}"
    for answer in answers:
        for key in _SOFTWARE:
            value = answer.data.get(key) if isinstance(answer.data, dict) else None
            if isinstance(value, str) and value:
                yield f"it gives its {key.replace('_', ' ')} as: {on_one_line(value, _MOST_WORDS)}"


# ── the first request ────────────────────────────────────────────────────────
def _remedy(bodies: Bodies, answer: ProbeAnswer, *, stream: bool) -> tuple[Bodies, bool] | None:
    """Return what builds the request that a refusal asks for, and whether it streams; None where nobody knows."""
    words = answer.message.casefold()
    if answer.status in (404, 405):
        return None
    if not stream and "stream" in words:
        return bodies, True
    path, base = bodies.path("max_tokens"), bodies.base
    if path.rpartition(".")[2].casefold() in words and base.get(path) != 1000:
        return replace(bodies, base={**base, path: 1000 if base.get(path) == 4000 else 4000}), stream
    own = bodies.model.flags.body.set or {}
    key = next((k for k in own if k not in bodies.drop and k.casefold() in words), None)
    return None if key is None else (replace(bodies, drop=(*bodies.drop, key)), stream)


# ── failures ─────────────────────────────────────────────────────────────────
_UNCLEAR = "check the address, --model and --protocol"
_HINTS = {
    "key": "name the variable of a key with the right to use this model: --key-env NAME",
    "quota": "the account needs credit before it can be asked anything",
    "rate": "try again later",
    "busy": "try again later",
    "redirect": "give the address that it leads to",
    "page": "give the URL of the API, not of the web site",
    "endless": _UNCLEAR,
    "form": _UNCLEAR,
    "failed": _UNCLEAR,
    "network": "check the address, and that the server runs",
    "": _UNCLEAR,
}
"""The hint for each problem of an endpoint. The problems that say most come first."""
_OF_A_LIST = ("form", "failed", "")
"""Problems with a list of models that say nothing of the endpoint."""


def _failure(url: str, seen: list[ProbeAnswer]) -> CnllmError:
    """Return the error for an endpoint that took no request: the answer that says most."""
    order = list(_HINTS)
    answer = min(seen, key=lambda answer: (answer.status == 404, order.index(answer.problem)))
    host, hint = urlsplit(url).netloc or url, _HINTS[answer.problem]
    words = on_one_line(answer.message, 200)
    match answer.problem:
        case "network":
            return TransportError(f"{host}: {words}", hint=hint)
        case "key":
            text = f"{host} does not accept the key: {words}"
        case "quota":
            text = f"{host} says that the quota is spent: {words}"
        case "redirect":
            text = f"{host} redirects; cnllm does not follow"
        case "page":
            text = f"{host} answers with a page, not with an API"
        case "endless":
            text = f"{host} answers without an end"
        case "form":
            text = f"{host} answers, but not with a reply of any known wire"
        case "rate" | "busy" | "failed":
            text = f"{host} gives no answer now ({answer.status}): {words}"
        case _:
            text = f"{host} refuses a plain request ({answer.status}): {words}"
    return EndpointError(text, status=answer.status, hint=hint)
