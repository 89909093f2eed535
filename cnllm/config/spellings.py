"""Find a secret in a text, also where its characters are written in other ways.

Each character may be plain, percent-encoded, a JSON escape or an HTML entity, independently of the others. The whole
secret may be in hexadecimal or in base64, at any offset. A secret that is cut off counts too, at the end of a text or
before "…".
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from functools import cache, cached_property, lru_cache

__all__ = ["SecretFinder", "secret_finder"]

_HEAD = 8
"""This many characters of a secret, or of another spelling of it, are searched before the rest is compared."""
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
_CUT_END = re.compile(r"(?:[%\\&][#%\\ux0-9a-zA-Z]{0,9})?(?:…|\.\.\.|\Z)")
_SEPARATOR = ":?"
_PREFIX_SIZE = 3
_SIGNS = ("%", "&", "\\u", "\\x")
_has_code = re.compile(rb"\\[ux]").search


class SecretFinder:
    """Finds secrets in texts. `secret_finder` returns one finder for the same secrets."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self.secrets = secrets
        self._unsearchable = False
        needles: set[bytes] = set()
        prefixes: set[str] = set()
        digits: set[str] = set()
        for secret in secrets:
            raw = secret.encode("utf-8", "surrogatepass")
            # characters that JSON escapes are not searched for
            part = max(re.findall(r"[!#-.0-\[\]-~]*", secret[:_HEAD]), key=len)
            if len(part) > 2:
                needles.add(part.lower().encode())
            else:
                self._unsearchable = True
            pairs = [f"{byte:02x}" for byte in raw[:4]]
            needles.update(between.join(pairs).encode() for between in ("", ":"))
            digits.update(between.join(pairs[:3]) for between in ("", ":"))
            prefixes.add(secret[:_PREFIX_SIZE])
            for core in _cores(raw):
                # + and / have several spellings: search for a part without them
                parts = re.split("[+/]", core)
                needles.add(max(parts, key=len)[:_HEAD].lower().encode())
                prefixes.add(max(parts[:2], key=len)[:4])
        self._needles = tuple(sorted(needles))
        self._prefixes = tuple(sorted(prefixes))
        self._digits = tuple(sorted(digits))

    @cached_property
    def _escapes(self) -> dict[str, re.Pattern[str]]:
        """Return, for each escape sign, a pattern of escaped characters of the secrets in lower-case text."""
        percent: set[str] = set()
        unicode: set[str] = set()
        entities = {"#"}
        for char in set().union(*self.secrets):
            percent.update(f"{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
            units = char.encode("utf-16-be", "surrogatepass")
            unicode.update((f"u{units[0]:02x}{units[1]:02x}", f"u{{0*{ord(char):x}"))
            entities.update(f"{name.lower()};" for name in _entity_names().get(char, ()))
        code = "|".join(sorted(percent))
        return {
            "%": re.compile(f"%(?:25)*(?:{code})"),
            "\\u": re.compile(rf"\\(?:{'|'.join(sorted(unicode))})"),
            "\\x": re.compile(rf"\\x(?:{code})"),
            "&": re.compile(rf"&(?:amp;)*(?:{'|'.join(sorted(entities))})"),
        }

    @cached_property
    def _forms(self) -> list[tuple[re.Pattern[str], list[re.Pattern[str]], bool]]:
        """Return for each spelling the patterns of its head and its characters, and whether it is base64."""
        forms: list[tuple[list[str], bool]] = []
        for secret in self.secrets:
            raw = secret.encode("utf-8", "surrogatepass")
            pairs = [f"(?i:{byte:02x})" for byte in raw]
            forms.append(([_char_pattern(char) for char in secret], False))
            forms.append(([pairs[0], *(_SEPARATOR + pair for pair in pairs[1:])], False))
            forms += [([_base64_pattern(char) for char in core], True) for core in _cores(raw)]
        return [(re.compile("".join(form[:_HEAD])), [*map(_compile, form)], is_base64) for form, is_base64 in forms]

    def may_begin(self, text: str) -> bool:
        """Whether a secret may begin in a text, in any spelling. Its first few characters are enough."""
        for prefix in self._prefixes:
            if prefix in text:
                return True
        lower_text = text.lower()
        return any(prefix in lower_text for prefix in self._digits) or self._has_escapes(lower_text)

    def _has_escapes(self, lower_text: str) -> bool:
        """Whether a character of a secret is written in escaped form."""
        signs = [sign for sign in _SIGNS if sign in lower_text]
        return any(self._escapes[sign].search(lower_text) is not None for sign in signs)

    def may_hold(self, data: bytes) -> bool:
        """Whether UTF-8 data may hold a secret in any spelling. False is certain. It costs a few searches."""
        lower_data = data.lower()
        find = lower_data.find  # `in` first tries whether the bytes on its left are a number, which costs more
        if self._unsearchable or max(map(find, self._needles), default=-1) >= 0:
            return True
        if find(b"%") < 0 and find(b"&") < 0 and _has_code(lower_data) is None:
            return False
        return self._has_escapes(lower_data.decode("latin-1"))

    def spans(self, text: str, *, cut: bool = False) -> list[tuple[int, int]]:
        """Return the places of secrets as sorted (start, end) without overlaps. `cut`: beginnings at an end count."""
        if not self.may_hold(text.encode("utf-8", "surrogatepass")):
            return []
        spans: list[tuple[int, int]] = []
        for head, form, is_base64 in self._forms:
            position = 0
            while (match := head.search(text, position)) is not None:
                position = match.start() + 1
                end = _match_end(form, text, match.end(), cut=cut)
                if end is None:
                    continue
                start = match.start()
                if is_base64:
                    start, end = _widen(text, start, end)
                spans.append((start, end))
                position = max(end, position)
        return _merge(spans)


@lru_cache(maxsize=16)
def secret_finder(secrets: tuple[str, ...]) -> SecretFinder:
    """Return the finder of these secrets."""
    return SecretFinder(secrets)


def _match_end(form: list[re.Pattern[str]], text: str, position: int, *, cut: bool) -> int | None:
    """Return the end of a spelling whose head ended at `position`, or None where other text follows."""
    for char in form[_HEAD:]:
        match = char.match(text, position)
        if match is None:
            if cut and (cut_end := _CUT_END.match(text, position)) is not None:
                return cut_end.end() - len(cut_end[0].lstrip("%\\&#ux0123456789abcdefABCDEF"))
            return None
        position = match.end()
    return position


def _char_pattern(char: str) -> str:
    """Return a pattern of one character in every spelling."""
    code = ord(char)
    raw = char.encode("utf-8", "surrogatepass")
    spellings = [r"\\*" + re.escape(char) if char in "\"'\\/" else re.escape(char)]
    spellings.append("".join(rf"%(?:25)*{byte:02x}" for byte in raw))
    units = char.encode("utf-16-be", "surrogatepass")
    spellings.append("".join(rf"\\+u{units[index]:02x}{units[index + 1]:02x}" for index in range(0, len(units), 2)))
    spellings.append(rf"\\+u\{{0*{code:x}\}}")
    spellings.append("".join(rf"\\+x{byte:02x}" for byte in raw))
    spellings.append(rf"&(?:amp;)*#0*{code};?")
    spellings.append(rf"&(?:amp;)*#x0*{code:x};?")
    spellings += [rf"&(?:amp;)*{name};" for name in _entity_names().get(char, ())]
    return f"(?:{spellings[0]}|(?i:{'|'.join(spellings[1:])}))"


@cache
def _entity_names() -> dict[str, list[str]]:
    """Return the HTML entity names of each character."""
    from html.entities import html5

    names: dict[str, list[str]] = {}
    for name, char in html5.items():
        if len(char) == 1 and name.endswith(";"):
            names.setdefault(char, []).append(name[:-1])
    return names


def _cores(raw: bytes) -> Iterator[str]:
    """Yield the base64 characters that encode only this secret, for each of the three offsets."""
    for offset in range(3):
        padded = b"\0" * offset + raw
        padded = padded[: len(padded) // 3 * 3]  # the last incomplete triple mixes with the next bytes
        core = base64.b64encode(padded).decode()[4 if offset else 0 :]
        if len(core) >= _HEAD:
            yield core


def _base64_pattern(char: str) -> str:
    if char == "+":
        return r"(?:[+\-]|(?i:%(?:25)*2b|\\+u002b|&#43;|&#x2b;|&plus;))"
    if char == "/":
        return r"(?:\\*/|_|(?i:%(?:25)*2f|\\+u002f|&#47;|&#x2f;|&sol;))"
    return char


@lru_cache(maxsize=512)
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _widen(text: str, start: int, end: int) -> tuple[int, int]:
    """Widen a span to the whole base64 text around it: the rest may be the secret's end, or a user's name."""
    while start and text[start - 1] in _BASE64:
        start -= 1
    while end < len(text) and (text[end] in _BASE64 or text[end] == "="):
        end += 1
    return start, end


def _merge(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge overlapping spans."""
    if len(spans) < 2:
        return spans
    spans.sort()
    merged = [spans[0]]
    for start, end in spans[1:]:
        previous = merged[-1]
        if start < previous[1]:
            merged[-1] = (previous[0], max(end, previous[1]))
        else:
            merged.append((start, end))
    return merged
