"""Judge the facts of a probe by the registry's own flags."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from benchmarks.probe import variants
from benchmarks.probe.shown import Endpoint
from cnllm import Registry
from cnllm.jsonpath import leaves, set_value
from cnllm.simulator.codec import read_request
from cnllm.simulator.request import flags_for
from cnllm.simulator.respond import Endpoints

_PATCHES = ("reasoning.on.set.", "reasoning.off.set.", "reasoning.effort.", "reasoning.budget.")


class Verdict(NamedTuple):
    """The result for a flag: `word` is recovered, another, default, wrong, or missed."""

    flag: str
    word: str
    fact: Any = None
    truth: Any = None
    request: str = ""


def judge(endpoint: Endpoint, shown: Sequence[str], facts: Sequence[Any]) -> list[Verdict]:
    """Return a verdict for every flag that shows, and for each other fact that changes an answer."""
    verdicts: dict[str, Verdict] = {}
    for fact in facts:
        flag = _spelled(endpoint.flags, fact.flag)
        if fact.answer == "unknown" or flag.startswith(("keys", "base_url", "protocol", "path", "limits.context")):
            continue
        value = msgspec.to_builtins(fact.value)
        truth = variants.get(endpoint.flags, flag)
        changed = variants.changed(endpoint.flags, flag, value)
        for other in facts if flag.startswith("usage.") else ():  # the paths of counts are paths in the object at `at`
            if other.flag.startswith("usage.") and other.answer != "unknown":
                changed = variants.changed(changed, other.flag, msgspec.to_builtins(other.value))
        told = None if _is_same(flag, value, truth) else endpoint.tells_apart(changed, foreign=True)
        if told is None:
            verdicts[flag] = Verdict(flag, "recovered" if flag in shown else "silent", value, truth)
        elif (flag.startswith(_PATCHES) and _does_the_same(endpoint, flag, facts)) or (
            flag.startswith("auth.") and _takes_the_key(endpoint, facts)
        ):
            verdicts[flag] = Verdict(flag, "another", value, truth)
        else:
            verdicts[flag] = Verdict(flag, "wrong", value, truth, told.content.decode()[:600])
    said: set[str] = set()
    for flag in shown:
        if flag not in verdicts:
            default = variants.get(endpoint.plain, flag)
            unsaid = variants.changed(endpoint.flags, flag, default)
            for other in facts:  # what holds in one mode alone may be said of that mode
                if other.flag.startswith("when.") and other.flag.endswith(f".{flag}") and other.answer != "unknown":
                    unsaid = variants.changed(unsaid, other.flag, msgspec.to_builtins(other.value))
                    said.add(flag)
            word = "missed" if endpoint.tells_apart(unsaid) is not None else "recovered" if flag in said else "default"
            verdicts[flag] = Verdict(flag, word, default, variants.get(endpoint.flags, flag))
    return [v for v in verdicts.values() if v.word != "silent"]


# ── what cannot be found ─────────────────────────────────────────────────────
def hidden(endpoint: Endpoint, registry: Registry, flags: Sequence[str]) -> set[str]:
    """Return the flags with a name that stands neither in the registry nor in any answer, and what depends on them.

    A model that reasons only with a switch of such a name shows nothing of its reasoning.
    """
    known = _known_names(registry, endpoint.model.protocol)
    found = {f for f in flags if any(n not in known and not endpoint.knows(n) for n in _names(endpoint.flags, f))}
    reasoning = endpoint.flags.get("reasoning", {})
    paths = {side: [f for f in endpoint.names if f.startswith(f"reasoning.{side}")] for side in ("on", "off")}
    ways = [f for place in ("effort", "budget") if place in reasoning for f in (f"reasoning.{place}.at",)]
    unseen = {f for f in (*paths["on"], *paths["off"], *ways) if any(n not in known for n in _names(endpoint.flags, f))}
    if reasoning.get("mode") == "toggle" and set(paths["on"]) & unseen and set(ways) <= unseen:
        is_on = reasoning.get("default") == "on"
        modes = ("when.no-reasoning", "reasoning.mode") if is_on else ("reasoning.", "when.reasoning")
        found |= {f for f in flags if f.startswith(modes)}
    return found


def _known_names(registry: Registry, protocol: str) -> set[str]:
    """Return the names that any table of a wire has: paths of patches, and texts."""
    out: set[str] = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            out.update(map(str, value), leaves(value))
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)
        else:
            out.add(str(value))

    for table in registry.flag_tables(protocol):
        walk(msgspec.to_builtins(table))
    return out


def _names(flags: variants.Tree, flag: str) -> list[str]:
    """Return the names in a flag: the path of a patch with its word, and texts that are no words of the schema."""
    value = variants.get(flags, flag)
    path = flag.partition(".set.")[2]
    texts = value if isinstance(value, list) else [value]
    own = [] if variants.words(variants.split(flag)) else [t for t in texts if isinstance(t, str) and t != "ignored"]
    return [*([path] if path else []), *own]


# ── comparing ────────────────────────────────────────────────────────────────
def _is_same(flag: str, value: Any, truth: Any) -> bool:
    """Whether two values are the same: a header's name in any case, and of fields to read those that come first.

    An endpoint sends reasoning in the first field of the list; the others are names that cnllm reads too.
    """
    if flag == "reasoning.fields" and isinstance(value, list) and isinstance(truth, list):
        return bool(value) and value == truth[: len(value)]
    if flag == "auth.header" and isinstance(value, str) and isinstance(truth, str):
        return value.casefold() == truth.casefold()
    return bool(value == truth)


def _spelled(flags: variants.Tree, flag: str) -> str:
    """Return a parameter's flag as this registry spells it: its path, or the `as` of its table."""
    if flag.startswith("params.") and flag.count(".") == 1 and isinstance(variants.get(flags, flag), dict):
        return f"{flag}.as"
    if flag.endswith(".as") and isinstance(variants.get(flags, flag[:-3]), str):
        return flag[:-3]
    return flag


def _takes_the_key(endpoint: Endpoint, facts: Sequence[Any]) -> bool:
    """Whether the endpoint takes a key in the header that the probe found: it may take several.

    It then answers as it does with a key in each header; it may refuse what was asked for all that.
    """
    found = {f.flag: str(f.value) for f in facts if f.flag.startswith("auth.") and f.answer != "unknown"}
    headers = {found.get("auth.header", "").lower(): found.get("auth.value", "").replace("{key}", "k")}
    model = variants.make(endpoint.model, endpoint.flags)
    first = endpoint.first

    def status(headers: dict[str, str]) -> int:
        return Endpoints(strict=True).respond(model, headers, first.content, first.path, public_name="m").status

    return status(headers) == status(dict(first.headers)) != status({})


def _does_the_same(endpoint: Endpoint, flag: str, facts: Sequence[Any]) -> bool:
    """Whether the probe's patch is taken by the endpoint, and turns reasoning on or off as the probe says."""
    group = ".".join(flag.split(".")[:3]) if ".set." in flag else flag
    patch = {
        f.flag[len(group) + 1 :]: f.value for f in facts if f.flag.startswith(group + ".") and f.answer != "unknown"
    }
    if ".set." not in flag:
        return False
    model = variants.make(endpoint.model, endpoint.flags)
    hi = json.loads(endpoint.first.content)
    body = dict(hi)
    for path, value in patch.items():
        set_value(body, path, value)
    response = Endpoints(strict=True).respond(
        model,
        dict(endpoint.first.headers),
        json.dumps(body).encode(),
        endpoint.first.path,
        public_name="m",
    )
    if response.status != 200:
        return False
    _, thinks = flags_for(model, read_request(model, body, endpoint.first.path))
    return thinks is (group == "reasoning.on.set")
