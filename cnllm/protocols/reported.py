"""Read what an endpoint reports about a reply, on any wire: finish reasons, errors, indexes and token counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec

from cnllm.jsonpath import get, get_first
from cnllm.protocols.counts import LARGEST_COUNT, MOST_VALUES, as_count, forget_earlier, merge_counts, parts_within
from cnllm.protocols.pieces import Counts, ExtraPiece, FinishWord, Piece
from cnllm.registry.flags import Flags, UsagePaths
from cnllm.types import Note, Usage
from cnllm.types.checks import short_text

__all__ = [
    "CODES",
    "NUMBERS",
    "Candidates",
    "CountsReader",
    "InvalidCounts",
    "ReplyStart",
    "add_counts",
    "as_count",
    "as_index",
    "count_pieces",
    "counts_reader",
    "find_fault",
    "finish_kind",
    "finish_word",
    "is_error",
    "key_name",
    "known_keys",
    "merge_counts",
    "number_text",
    "other_counts",
    "read_finish",
    "sentence_of",
]

NUMBERS = ("code", "status", "statuscode", "httpcode", "httpstatus", "errorcode", "errcode")
"""Names (see `key_name`) of fields that may hold the status of an error, as a number."""
_SENTENCES = ("message", "msg", "error", "errormsg", "errormessage", "detail", "title", "statusmsg", "description")
_ERRORS = ("error", "errors", "errormsg", "errormessage", "errmsg", "exception", "fault", "detail")
"""Names of fields that stand only in errors, or are empty elsewhere."""
_WRAPPED_ERRORS = ("error", "errors", "exception", "fault")
"""The same, in an object within an object that is no part of a reply."""
CODES = tuple(name for name in NUMBERS if name not in ("status", "httpstatus"))
"""Names of fields that may hold the code of an error, also as a word."""
_TELLING = frozenset([*NUMBERS, *_SENTENCES, *_ERRORS, "type"])
"""Names of fields. An object without any of them, and without an exception in a name, is no error by its names."""
_NO_FAILURE = frozenset(["", "0", "200", "ok", "success"])
"""Codes and sentences of an object that reports success, in lower case."""
_ERROR_CODES = ("errorcode", "errcode")
"""Names of fields with the code of an error, which is 0 or empty where there is none."""
_LAST = 1_000  # behind every path
_MAX_DIGITS = 9  # of an index that is written as text
_COUNTS = ("reasoning", "cached", "cache_write", "output", "input", "total", "cache_write_1h", "tool_input")
_CountPlace = tuple[int, int, str | None]
"""The index of a count in `_COUNTS`, the rank of a path among those of the count, and the path behind its first key."""

InvalidCounts = dict[str, list[tuple[str, Any]]]
"""The paths and the values of invalid counts, by their names."""

CountsReader = Callable[[dict[str, Any], InvalidCounts], Usage]
"""Returns the counts of a usage object; an invalid one is unknown, and gets its path and its value under its name."""


class ReplyStart:
    """Tells whether an event of a stream that begins a reply begins another one."""

    __slots__ = ("_id", "has_ended")

    def __init__(self) -> None:
        self._id: str | None = None
        self.has_ended = False  # the event came that ends the reply

    def is_another(self, id: Any, *, has_content: bool) -> bool:
        """Whether a reply with this id is another one: content came before, and the end or another id."""
        is_other = type(id) is str and self._id not in (None, id)
        if has_content and (self.has_ended or is_other):
            return True
        self._id = id if type(id) is str else self._id
        return False


def key_name(key: str) -> str:
    """Return a key in lower case, without the characters between its words: endpoints write keys in every way."""
    return key.replace("_", "").replace("-", "").lower()


def has_error_status(data: dict[str, Any]) -> bool:
    """Whether an object names the status of an HTTP error, as a number or as text."""
    for key, value in data.items():
        if key_name(key) not in NUMBERS:
            continue
        if type(value) is str and len(value) == 3 and value.isascii() and value.isdigit():
            value = int(value)
        if isinstance(value, int | float) and 400 <= value <= 599:
            return True
    return False


def find_fault(data: dict[str, Any], flags: Flags, reply: object, *, is_event: bool = False) -> Any:
    """Return the error in a body or a chunk, or None: at a place that the flags declare, or by the names of its keys.

    `reply` is the reply beside it, empty where there is none. An object with 0 as its code reports success. A plain
    sentence, or a list of them, is no failure beside a reply, except where an object beside it has it as its error. The
    names say nothing beside a reply, and in an event of a known type (`is_event`). Elsewhere `data` itself is an error
    where it has a code and a sentence at the declared places.
    """
    paths = flags.error
    for path in paths.at or ():
        error = get(data, path)
        if not error:
            continue
        if type(error) is str and path.endswith(".error"):
            return {"error": error}
        if type(error) is dict:
            code, message = get_first(error, paths.code), get_first(error, paths.message)
            if code not in (0, "0") and (message or code or has_error_status(error)):
                return error
        elif not reply:
            return data
    if reply or is_event:
        return None
    if (fault := _find_error(data)) is not None or _is_success(get_first(data, paths.code)):
        return fault
    message = get_first(data, paths.message)
    return data if type(message) is str and not _is_success(message) else None


def _find_error(data: dict[str, Any]) -> dict[str, Any] | None:
    """Return an object that is no part of a reply if it is an error: it names one, has a status, or says it failed.

    Some gateways put it into an object of their own: `{"Response": {"Error": …}}` (Tencent Cloud's API 3.0), or one
    named by its class, `{"internalServerException": {"message": …}}` (streams of Amazon Bedrock).
    """
    if data.get("object") == "error" or data.get("success") is False:
        return data
    names = key_name("\n".join(chain(data, *[value for value in data.values() if type(value) is dict])))
    if "exception" not in names and _TELLING.isdisjoint(names.split("\n")):
        return None
    for key, value in data.items():
        name = key_name(key)
        if name in _ERRORS and is_error(value):
            return data
        if name in _ERROR_CODES and type(value) in (str, int) and value not in ("", "0", 0):
            return data
        if name in ("type", "status") and type(value) is str and value.lower() in ("error", "failed"):
            return data
        if type(value) is dict:
            if name.endswith("exception") and sentence_of(value):
                return value
            if any(key_name(inner) in _WRAPPED_ERRORS and is_error(part) for inner, part in value.items()):
                return value
            if _has_failed(value):
                return value
    return data if _has_failed(data) or (sentence_of(data) and has_error_status(data)) else None


def _has_failed(data: dict[str, Any]) -> bool:
    """Whether an object without a type has a sentence and a code that is not that of success.

    Such are `{"code": "InvalidParameter", "message": …}` (Alibaba), `{"header": {"code": 10013, "message": …}}`
    (iFLYTEK) and `{"base_resp": {"status_code": 1004, "status_msg": …}}` (MiniMax).
    """
    if "type" in data or _is_success(sentence_of(data)):
        return False
    codes = [value for key, value in data.items() if key_name(key) in CODES and type(value) in (str, int)]
    return not all(map(_is_success, codes))


def _is_success(word: Any) -> bool:
    """Whether a code or a sentence is that of success, or there is none."""
    return word is None or f"{word}".lower() in _NO_FAILURE


def sentence_of(data: dict[str, Any]) -> Any:
    """Return the sentence for people in an object, as errors have one; None where there is none."""
    return next((value for key, value in data.items() if value and key_name(key) in _SENTENCES), None)


def is_error(value: Any) -> bool:
    """Whether the value of a field for errors reports one. 0 as the code of an object reports success."""
    if type(value) is not dict:
        return bool(value)
    facts = {key_name(key): inner for key, inner in value.items() if inner not in (None, "", [], {})}
    codes = [code for name, code in facts.items() if name in NUMBERS]
    return any(code not in (0, "0") for code in codes or facts.values())


def finish_word(value: Any) -> str:
    """Return a finish reason as text, a number as its digits; "" where there is none."""
    text = number_text(value)
    return text if type(text) is str and text.strip() else ""


def number_text(value: Any) -> Any:
    """Return a number, true or false as text: servers that parse an answer as JSON send them bare."""
    return msgspec.json.encode(value).decode() if type(value) in (int, float, bool) else value


def as_index(value: Any) -> Any:
    """Return an index, as a number where it is one in a text; None for a list or an object."""
    if type(value) is str and len(value) <= _MAX_DIGITS and value.isascii() and value.isdigit():
        return int(value)
    return None if type(value) in (list, dict) else value


class Candidates:
    """Picks the candidate that is the reply: the one with index 0, or the first one where none has that index.

    In a stream that is known at its end: until then the other candidates wait.
    """

    __slots__ = ("_word", "is_found", "waiting")

    def __init__(self, word: str) -> None:
        self._word = word  # for a candidate, as the wire calls it
        self.is_found = False  # the one with index 0 has come
        self.waiting: list[dict[str, Any]] = []

    def pick(
        self, choices: Any, is_empty: Callable[[dict[str, Any]], bool], *, whole: bool
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the candidates of a chunk, or of a body, that are the reply, and the others, which are left out."""
        found: list[dict[str, Any]] = []
        others: list[dict[str, Any]] = []
        index = _first_index(choices) if whole and type(choices) is list else 0
        for position, choice in enumerate(choices if type(choices) is list else ()):
            if type(choice) is not dict:
                continue
            # One more with the same index is another candidate.
            if _index(choice, position) == index and (not found or (not whole and is_empty(choice))):
                found.append(choice)
            else:
                others.append(choice)
        if found and not self.is_found:
            self.is_found = True
            others, self.waiting = [*self.waiting, *others], []
        elif not self.is_found:
            self.waiting += others
            others = []
        return found, others

    def rest(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the candidates that are the reply because no other one came, and the others."""
        waiting, self.waiting = self.waiting, []
        index = _first_index(waiting)
        found = [choice for choice in waiting if _index(choice, 0) == index]
        return found, [choice for choice in waiting if _index(choice, 0) != index]

    def note(self, choice: dict[str, Any]) -> Note:
        """Return the note on a candidate that is left out."""
        index = repr(choice["index"]) if "index" in choice else "without an index"
        return Note("choice-dropped", "n", f"{self._word} {index}", f"left out: the first {self._word} is the reply")


def _index(choice: dict[str, Any], position: int) -> Any:
    """Return the index of a candidate: its own, or its position in the list."""
    own = as_index(choice.get("index"))
    return position if own is None else own


def _first_index(choices: Sequence[Any]) -> Any:
    """Return the index of the candidate that is the reply: 0, or that of the first where none has it."""
    indexes = [_index(choice, position) for position, choice in enumerate(choices) if type(choice) is dict]
    return indexes[0] if indexes and 0 not in indexes else 0


def read_finish(value: Any, flags: Flags) -> FinishWord | None:
    """Return a finish reason with its meaning; None where there is none."""
    word = finish_word(value)
    return FinishWord(word, finish_kind(word, flags)) if word else None


def finish_kind(word: str, flags: Flags) -> str | None:
    """Return what a finish reason means by the registry; None for an unknown word.

    Case, outer white space and the character between the parts of a word do not matter where no word fits exactly.
    """
    words = flags.finish or {}
    if (kind := words.get(word)) is not None:
        return kind
    plain = _plain_word(word)
    return next((kind for known, kind in words.items() if _plain_word(known) == plain), None)


def _plain_word(word: str) -> str:
    return word.strip().lower().replace("-", "_").replace(" ", "_")


def count_pieces(data: dict[str, Any], flags: Flags, last: dict[str, Any] | None = None) -> Iterator[Piece]:
    """Yield the counts of a usage object, with a note on each that is no count.

    `last` is the part of the object that came last; None where all of it came at once.
    """
    read = counts_reader(flags)
    invalid: InvalidCounts = {}
    usage = read(data, invalid)
    new = usage if last is None else read(last, {})
    has_output = bool(new.output) or (new.total or 0) > (new.input or 0)  # a 0 says nothing
    has_output = has_output or _has_bill(data if last is None else last, flags)
    unknown = frozenset([name for name in invalid if getattr(usage, name, None) is None])
    yield Counts(usage, unknown, has_output)
    yield ExtraPiece("usage", other_counts(data, known_keys(flags)))
    for path, value in chain.from_iterable(invalid.values()) if invalid else ():
        did = "unknown: a count of tokens is a whole number from 0 to 2**53"
        yield Note("usage-invalid", "usage", f"{path} = {short_text(value)}", did)


def _has_bill(data: dict[str, Any], flags: Flags) -> bool:
    """Whether a usage object has the endpoint's own bill, which is for all output before it."""
    bill = flags.usage.cost
    return bill is not None and bill.path is not None and get(data, bill.path) is not None


@lru_cache(maxsize=256)
def known_keys(flags: Flags) -> frozenset[str]:
    """Return the declared paths of counts, and their first keys.

    The hourly writes and the tokens of tools are not among them: a gateway passes such counts on as they came.
    """
    paths = flags.usage
    lists = (paths.input, paths.output, paths.total, paths.reasoning, paths.cached, paths.cache_write)
    declared = [path for names in lists for path in names or ()]
    return frozenset([*declared, *(path.partition(".")[0] for path in declared)])


def other_counts(data: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """Return the keys of a usage object, and of the objects in it, that no declared path names."""
    out: dict[str, Any] = {}
    for key, value in data.items():
        if key not in known:
            rest = value
            # A copy, as the decoder goes on counting in it. A longer one stands in a whole body, where nobody counts.
            if type(value) is dict and not merge_counts(rest := {}, value):
                rest = value
        elif type(value) is dict:
            rest = {k: v for k, v in value.items() if v is not None and f"{key}.{k}" not in known} or None
        else:
            continue
        if rest is not None:
            out[key] = rest
    return out


@lru_cache(maxsize=256)
def counts_reader(flags: Flags) -> CountsReader:
    """Return the reader of counts for these flags."""
    paths = flags.usage
    places = _places(paths)
    excluded: frozenset[str] = frozenset(paths.excluded_from_totals or ())

    def read(data: dict[str, Any], invalid: InvalidCounts) -> Usage:
        counts: list[int | None] = [None] * len(_COUNTS)
        ranks = [_LAST] * len(_COUNTS)
        for outer, value in data.items():
            for index, rank, inner in places.get(outer, ()):
                count = value
                if inner is not None:
                    count = value.get(inner) if type(value) is dict and "." not in inner else get(value, inner)
                if count is None:
                    continue
                number = count if type(count) is int and 0 <= count <= LARGEST_COUNT else as_count(count)
                if number is None:
                    path = f"{outer}.{inner}" if inner else outer
                    invalid.setdefault(_COUNTS[index], []).append((path, count))
                elif rank < ranks[index]:
                    counts[index], ranks[index] = number, rank
        reasoning, cached, written, output, input, total, hourly, by_tools = counts
        if excluded:
            names = (("cached", cached), ("cache_write", written), ("tool_input", by_tools), ("reasoning", reasoning))
            parts: dict[str, int] = {name: count for name, count in names if count and name in excluded}
            for name in parts_within(parts, input, output, total):
                del parts[name]
            output = _plus(output, parts.pop("reasoning", None))
            for count in parts.values():
                input = _plus(input, count)
            if unknown := invalid.keys() & excluded:  # a sum with an unknown part is unknown
                unknown &= {name for name, count in zip(_COUNTS, counts, strict=True) if count is None}
                output = None if "reasoning" in unknown else output
                input = None if unknown - {"reasoning"} else input
        if total is None and input is not None and output is not None:
            total = _bound(input + output)
        return Usage(input, output, total, reasoning, cached, written, hourly)

    return read


def _places(paths: UsagePaths) -> dict[str, list[_CountPlace]]:
    """Return the places of counts by the first keys of their paths."""
    places: dict[str, list[_CountPlace]] = {}
    for index, name in enumerate(_COUNTS):
        for rank, path in enumerate(getattr(paths, name) or ()):
            outer, _, inner = path.partition(".")
            places.setdefault(outer, []).append((index, rank, inner or None))
    return places


def _plus(count: int | None, addition: int | None) -> int | None:
    """Return a count plus another one, if both are known."""
    return count if count is None or addition is None else _bound(count + addition)


def _bound(count: int) -> int | None:
    """Return a sum; None where it is larger than a count can be."""
    return count if count <= LARGEST_COUNT else None


def add_counts(
    counts: dict[str, Any], data: dict[str, Any], flags: Flags, left_out: Sequence[str] = ()
) -> Iterator[Piece]:
    """Merge the counts in a chunk, which come in parts, into the known ones, and yield all of them.

    Without counts in it there is nothing to yield. `left_out` are keys of them that say nothing.
    """
    addition = get_first(data, flags.usage.at)
    if type(addition) is not dict:
        return
    if left_out:
        addition = {key: value for key, value in addition.items() if key not in left_out}
    last = None
    if counts:
        last = addition
        forget_earlier(counts, addition, flags.usage)
    yield from merge_with_notes(counts, addition)
    yield from count_pieces(counts, flags, last)


def merge_with_notes(counts: dict[str, Any], addition: dict[str, Any]) -> list[Note]:
    """Merge counts as `merge_counts` does, and return the note on what was left out."""
    if merge_counts(counts, addition):
        return []
    did = f"what stands behind its first {MOST_VALUES} values is left out"
    return [Note("usage-invalid", "usage", "a usage object with more values", did)]
