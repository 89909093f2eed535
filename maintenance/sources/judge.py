"""Judge claims: what their sources say of the same value."""

from __future__ import annotations

import fnmatch
import functools
import html
import re
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from cnllm.registry import Registry
from cnllm.registry.flags import Flags
from cnllm.registry.model import Model
from cnllm.registry_files.compare import entries_for, is_near, plain_name, same_input
from cnllm.registry_files.public_lists import PublishedModel
from maintenance.sources import catalogue
from maintenance.sources.catalogue import Entry, Form
from maintenance.sources.claims import Claim
from maintenance.sources.fetch import Fetcher, Unreachable
from maintenance.sources.location import Location, locate

__all__ = ["Judge", "State", "Verdict"]

State = Literal["differs", "not-found", "agrees", "not-comparable", "not-reachable", "not-read"]
"""What a source says: another value, nothing, the same; prose may say it; it cannot be had here, or was left out."""

_DAY = re.compile(r"-(?:20)?\d{6}$")
_MOST_PROSE = 200  # files that are searched for a word: among more it occurs anyway
_LARGEST_TEXT = 20_000_000
_MARKUP = re.compile(r"<(?:script|style)\b.*?</(?:script|style)>|<[^>]+>", re.S | re.I)


class Verdict(Struct, frozen=True):
    """The result for one claim.

    `theirs` is the value of the source and `there` its place. `explained` is whether the file itself says why the
    source does not have our value. `remark` says more for a person.
    """

    claim: Claim
    state: State
    theirs: Any = None
    there: str = ""
    explained: bool = False
    remark: str = ""

    @property
    def ratio(self) -> float | None:
        """Return their number divided by ours; None where one of them is no number or zero."""
        ours = self.claim.value
        if not isinstance(ours, int | float) or not isinstance(self.theirs, int | float) or not ours or not self.theirs:
            return None
        return self.theirs / ours


class Judge:
    """Read each source once and judge all claims on it."""

    def __init__(self, registry: Registry, fetcher: Fetcher) -> None:
        self._registry, self._fetcher = registry, fetcher
        self._texts: _Texts | None = None
        self._indexes: dict[Location, list[tuple[Form, dict[str, list[Entry]]]]] = {}

    def judge(self, claim: Claim) -> Verdict:
        """Return what the source of a claim says."""
        location = locate(claim.url, claim.path)
        try:
            whole = _whole(location, claim.url)
            files = self._fetcher.files(whole)
        except Unreachable as error:
            return Verdict(claim, "not-reachable", remark=str(error).splitlines()[0])
        forms = self._forms(claim.url, whole, files) if claim.model else []
        told = [(form, index) for form, index in forms if index and _may_tell(form, claim.flag, location.path)]
        if told:
            return self._compared(claim, location, told)
        if self._texts is None or self._texts.files is not files:  # claims come source by source
            self._texts = _Texts(files)
        return _prose(claim, self._texts, location.path)

    def _forms(self, url: str, whole: Location, files: Mapping[str, bytes]) -> list[tuple[Form, Any]]:
        """Return the catalogues of a source with their entries by id."""
        if whole not in self._indexes:
            indexes = []
            for form in catalogue.forms(url):
                index: dict[str, list[Entry]] = {}
                for entry in catalogue.entries(form, files):
                    index.setdefault(entry[1].id.casefold(), []).append(entry)
                indexes.append((form, index))
            self._indexes[whole] = indexes
        return self._indexes[whole]

    def _compared(self, claim: Claim, location: Location, forms: list[tuple[Form, Any]]) -> Verdict:
        """Return what the entries of a catalogue say."""
        model = self._registry.resolve(claim.heir or claim.model)
        found: list[tuple[Any, Entry]] = []
        elsewhere: list[tuple[Any, Entry]] = []
        for form, index in forms:
            same_id = _same_id(model.id, form, index)
            path = "" if claim.heir else location.path  # which is that of the model that gives the value
            cited = [entry for entry in same_id if path and _is_inside(entry[0], path)]
            own = _own(model, form, cited or same_id)
            if not own and "*" in "".join(form["files"]):
                own = cited  # the citation says which of many files
            found += [(_theirs(claim, model, entry), (path, entry)) for path, entry in own]
            elsewhere += [(_theirs(claim, model, one[1]), one) for one in same_id if one not in own]
        explained = claim.how == "inferred" or bool(claim.heir)
        said = [(theirs, entry) for theirs, entry in found if theirs is not None]
        for theirs, entry in said:
            if _agrees(claim, model.flags, theirs):
                return Verdict(claim, "agrees", theirs, _place(entry))
        if said:
            theirs, entry = said[0]
            explained = claim.how == "inferred" or (claim.rounded and _is_close(claim.value, theirs))
            return Verdict(claim, "differs", theirs, _place(entry), explained)
        others = [(theirs, entry) for theirs, entry in elsewhere if theirs is not None]
        same = [_place(entry) for theirs, entry in others if _agrees(claim, model.flags, theirs)]
        if found:
            remark = "the entry does not have it"
        elif not others:
            remark = "no entry"
        elif same:
            remark = f"no entry of this provider; the same at {', '.join(sorted(set(same))[:3])}"
        else:
            remark = f"no entry of this provider; others have {', '.join(sorted({str(t) for t, _ in others})[:4])}"
        return Verdict(claim, "not-found", explained=explained, remark=remark)


def _may_tell(form: Form, flag: str, path: str) -> bool:
    """Whether a catalogue has a flag, and its files are the ones that the citation names."""
    folders = path.count("/") + 1
    named = not path or any(fnmatch.fnmatchcase(path, "/".join(p.split("/")[:folders])) for p in form["files"])
    return catalogue.has_flag(form, flag) and (named or "base" in form)


def _is_inside(file: str, path: str) -> bool:
    """Whether a file is the one at a path, or below it."""
    return file == path or file.startswith(path.rstrip("/") + "/")


def _whole(location: Location, url: str) -> Location:
    """Return the location that is fetched: all of it where an entry may be in several files."""
    is_part = location.kind == "repository" and not any("base" in form for form in catalogue.forms(url))
    keep = location.path if is_part else ""
    return Location(location.kind, location.name, location.version, keep)


def _same_id(id: str, form: Form, index: Mapping[str, list[Entry]]) -> list[Entry]:
    """Return the entries of an id; else those of the same one with other signs, or without the day at its end."""
    if exact := index.get(id.casefold()):
        return exact
    spelled = {plain_name(id)}
    if form.get("without_day"):
        spelled.add(plain_name(_DAY.sub("", id)))
    return [entry for name, entries in index.items() if plain_name(name) in spelled for entry in entries]


def _own(model: Model, form: Form, entries: list[Entry]) -> list[Entry]:
    """Return the entries of a model's provider."""
    names = {provider: set(map(plain_name, theirs)) for provider, theirs in form.get("names", {}).items()}
    own_names = names.pop(model.provider, set())
    if named := [entry for entry in entries if plain_name(entry[1].provider) in own_names]:
        return named
    if (name := plain_name(model.provider)) in set().union(*names.values()):  # there it is the name of another one
        entries = [entry for entry in entries if plain_name(entry[1].provider) != name]
    matches = entries_for(model, [entry for _, entry in entries])
    own = [entry for entry in entries if any(entry[1] is match for match in matches)]
    return own or (entries if form.get("any_provider") else [])


def _theirs(claim: Claim, model: Model, entry: PublishedModel) -> Any:
    """Return the value of an entry for the flag of a claim, None where it says nothing."""
    if claim.flag == "input":
        return None if entry.input is None else sorted(entry.input)
    if claim.flag == "reasoning.mode":
        return entry.reasoning
    if claim.flag == "tools.supported":
        return entry.tools
    value = entry.values.get(claim.flag)
    currency = model.flags.price.currency if model.flags.price else None
    if value is not None and claim.flag.startswith("price.") and currency != entry.currency:
        return f"{value:g} {entry.currency}"
    if claim.flag == "limits.context" and entry.input_only and value is not None and isinstance(claim.value, int):
        output = max(entry.values.get("limits.output", 0), model.flags.limits.output or 0)
        return claim.value if value <= claim.value <= value + output else value
    return value


def _agrees(claim: Claim, flags: Flags, theirs: Any) -> bool:
    """Whether a value of an entry is ours."""
    if claim.flag == "input":
        return isinstance(claim.value, list) and same_input(claim.value, theirs, flags)
    if claim.flag == "reasoning.mode":
        return bool(theirs == (claim.value != "never"))
    if claim.flag == "tools.supported":
        return bool(theirs == claim.value)
    both = isinstance(claim.value, int | float) and isinstance(theirs, int | float)
    return both and is_near(float(claim.value), float(theirs))


def _is_close(ours: Any, theirs: Any) -> bool:
    """Whether two numbers may be one that was rounded."""
    both = isinstance(ours, int | float) and isinstance(theirs, int | float) and ours and theirs
    return bool(both) and abs(ours / theirs - 1) <= 0.06


def _place(entry: Entry) -> str:
    """Return where an entry stands: its file and its name."""
    path, model = entry
    return f"{path}: {model.provider}/{model.id}"


class _Texts:
    """The texts of one source, each read and made plain once. A file that cannot be read has an empty text."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files
        self.text = functools.cache(self._text)
        self.has = functools.cache(self._has)
        self._plain = functools.cache(lambda name: _plain(self.text(name)))

    def _content(self, name: str) -> bytes:
        try:
            return self.files[name]
        except (KeyError, ValueError):
            return b""

    def _text(self, name: str) -> str:
        content = self._content(name)
        return content.decode("utf-8", "replace") if len(content) < _LARGEST_TEXT else ""

    def _has(self, name: str, quote: str) -> bool:
        """Whether a file has a quotation: a text in any case and spacing, a program among its bytes as it is."""
        return _plain(quote) in self._plain(name) or (not self.text(name) and quote.encode() in self._content(name))


def _prose(claim: Claim, texts: _Texts, path: str) -> Verdict:
    """Return whether a source in prose, or in a form that nobody has described, has our quotation or our words."""
    inside = [name for name in texts.files if not path or _is_inside(name, path)]
    if not inside:
        return Verdict(claim, "not-found", explained=claim.how == "inferred", remark=f"no file {path}")
    if claim.quote:
        for name in inside:
            if texts.has(name, claim.quote):
                return Verdict(claim, "agrees", claim.quote, name)
        return Verdict(claim, "not-found", explained=claim.how == "inferred", remark="the quotation is not there")
    word = str(claim.value) if isinstance(claim.value, str | int | float) and claim.value not in (True, False) else ""
    if len(word) < 3 or len(inside) > _MOST_PROSE:
        return Verdict(claim, "not-comparable")
    there = next((name for name in inside if word in texts.text(name)), None)
    return Verdict(claim, "not-comparable", there=there or "", remark="" if there else f"{word!r} is not there")


def _plain(text: str) -> str:
    """Return text without markup, with single spaces and in lower case."""
    return " ".join(html.unescape(_MARKUP.sub(" ", text)).casefold().split())
