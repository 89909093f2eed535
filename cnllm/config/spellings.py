"""Where a secret stands in a text, also where each of its characters is written in another way.

A character may stand as itself, percent-encoded, as a JSON escape or as an HTML entity, each differently; the whole
may stand in hexadecimal or in base64, wherever in it the secret began. What is cut off counts too, at the end of a
text or before "…".
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from functools import cache, cached_property, lru_cache

__all__ = ["SecretFinder", "secret_finder"]

_HEAD = 8
"""So many characters of a secret, or of another spelling of it, are looked for before the rest is compared."""
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
_CUT = re.compile(r"(?:[%\\&][#%\\ux0-9a-zA-Z]{0,9})?(?:…|\.\.\.|\Z)")
_BETWEEN = ":?"
_BEGIN = 3
_SIGNS = ("%", "&", "\\u", "\\x")
_LONG = 64


class SecretFinder:
    """Finds secrets in texts. Make it once for the same secrets: see `finder`."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self._secrets = secrets
        self._always = False
        needles: set[bytes] = set()
        begins: set[str] = set()
        digits: set[str] = set()
        for secret in secrets:
            raw = secret.encode("utf-8", "surrogatepass")
            # what JSON escapes is not looked for
            part = max(re.findall(r"[!#-.0-\[\]-~]*", secret[:_HEAD]), key=len)
            if len(part) > 2:
                needles.add(part.lower().encode())
            else:
                self._always = True
            pairs = [f"{byte:02x}" for byte in raw[:4]]
            needles.update(between.join(pairs).encode() for between in ("", ":"))
            digits.update(between.join(pairs[:3]) for between in ("", ":"))
            begins.add(secret[:_BEGIN])
            for core in _cores(raw):
                # what stands for + and / is written in several ways: a part without them is looked for
                parts = re.split("[+/]", core)
                needles.add(max(parts, key=len)[:_HEAD].lower().encode())
                begins.add(max(parts[:2], key=len)[:4])
        self._needles = tuple(sorted(needles))
        self._begins = tuple(sorted(begins))
        self._digits = tuple(sorted(digits))

    @cached_property
    def _escapes(self) -> dict[str, re.Pattern[str]]:
        return _escapes({char for secret in self._secrets for char in secret})

    @cached_property
    def _forms(self) -> list[tuple[re.Pattern[str], list[re.Pattern[str]], bool]]:
        """Each spelling as the pattern of its head and of each of its characters; True: inside of a base64 text."""
        forms: list[tuple[list[str], bool]] = []
        for secret in self._secrets:
            raw = secret.encode("utf-8", "surrogatepass")
            pairs = [f"(?i:{byte:02x})" for byte in raw]
            forms.append(([_char_pattern(char) for char in secret], False))
            forms.append(([pairs[0], *(_BETWEEN + pair for pair in pairs[1:])], False))
            forms += [([_base64_pattern(char) for char in core], True) for core in _cores(raw)]
        return [(re.compile("".join(form[:_HEAD])), [*map(_compiled, form)], inside) for form, inside in forms]

    def may_begin(self, text: str) -> bool:
        """Whether a secret may begin in a text, in any spelling; of one that does, the first few characters count."""
        for begin in self._begins:
            if begin in text:
                return True
        lowered = text.lower()
        return any(begin in lowered for begin in self._digits) or self._escaped(lowered)

    def _escaped(self, lowered: str) -> bool:
        """Whether a character of a secret is not written as itself."""
        signs = [sign for sign in _SIGNS if sign in lowered]
        return any(self._escapes[sign].search(lowered) is not None for sign in signs)

    def may_hold(self, data: bytes) -> bool:
        """Whether UTF-8 may hold a secret in any spelling. False is certain; it costs a few searches."""
        lowered = data.lower()
        for needle in self._needles:
            if needle in lowered:
                return True
        if self._always:
            return True
        if b"%" in lowered or b"&" in lowered or b"\\u" in lowered or b"\\x" in lowered:
            return self._escaped(lowered.decode("latin-1"))
        return False

    def spans(self, text: str, *, cut: bool = False) -> list[tuple[int, int]]:
        """Where secrets stand, as (start, end) in order, none touching another. `cut`: beginnings at an end count."""
        if len(text) > _LONG and not self.may_hold(text.encode("utf-8", "surrogatepass")):
            return []
        found: list[tuple[int, int]] = []
        for head, form, inside in self._forms:
            at = 0
            while (match := head.search(text, at)) is not None:
                at = match.start() + 1
                end = _rest(form, text, match.end(), cut)
                if end is None:
                    continue
                start = match.start()
                if inside:
                    start, end = _widened(text, start, end)
                found.append((start, end))
                at = max(end, at)
        return _joined(found)


@lru_cache(maxsize=16)
def secret_finder(secrets: tuple[str, ...]) -> SecretFinder:
    """Return the finder of these secrets."""
    return SecretFinder(secrets)


def _rest(form: list[re.Pattern[str]], text: str, at: int, cut: bool) -> int | None:
    """Where a spelling ends whose head ended at `at`, or None where something else follows."""
    for char in form[_HEAD:]:
        match = char.match(text, at)
        if match is None:
            if cut and (broken := _CUT.match(text, at)) is not None:
                return broken.end() - len(broken[0].lstrip("%\\&#ux0123456789abcdefABCDEF"))
            return None
        at = match.end()
    return at


def _char_pattern(char: str) -> str:
    """A pattern of one character in every way that it may be written."""
    code = ord(char)
    raw = char.encode("utf-8", "surrogatepass")
    ways = [r"\\*" + re.escape(char) if char in "\"'\\/" else re.escape(char)]
    ways.append("".join(rf"%(?:25)*{byte:02x}" for byte in raw))
    units = char.encode("utf-16-be", "surrogatepass")
    ways.append("".join(rf"\\+u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2)))
    ways.append(rf"\\+u\{{0*{code:x}\}}")
    ways.append("".join(rf"\\+x{byte:02x}" for byte in raw))
    ways.append(rf"&(?:amp;)*#0*{code};?")
    ways.append(rf"&(?:amp;)*#x0*{code:x};?")
    ways += [rf"&(?:amp;)*{name};" for name in _named().get(char, ())]
    return f"(?:{ways[0]}|(?i:{'|'.join(ways[1:])}))"


@cache
def _named() -> dict[str, list[str]]:
    """What HTML calls each character."""
    from html.entities import html5

    named: dict[str, list[str]] = {}
    for name, char in html5.items():
        if len(char) == 1 and name.endswith(";"):
            named.setdefault(char, []).append(name[:-1])
    return named


def _escapes(chars: set[str]) -> dict[str, re.Pattern[str]]:
    """What text in small letters holds where a character of a secret is not written as itself, by how it begins."""
    percent: set[str] = set()
    unicode: set[str] = set()
    entities = {"#"}
    for char in chars:
        percent.update(f"{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
        units = char.encode("utf-16-be", "surrogatepass")
        unicode.update((f"u{units[0]:02x}{units[1]:02x}", f"u{{0*{ord(char):x}"))
        entities.update(f"{name.lower()};" for name in _named().get(char, ()))
    code = "|".join(sorted(percent))
    return {
        "%": re.compile(f"%(?:25)*(?:{code})"),
        "\\u": re.compile(rf"\\(?:{'|'.join(sorted(unicode))})"),
        "\\x": re.compile(rf"\\x(?:{code})"),
        "&": re.compile(rf"&(?:amp;)*(?:{'|'.join(sorted(entities))})"),
    }


def _cores(raw: bytes) -> Iterator[str]:
    """The characters that encode this secret and nothing beside it, wherever it stood."""
    for before in range(3):
        padded = b"\0" * before + raw
        padded = padded[: len(padded) // 3 * 3]  # the last incomplete triple mixes with what follows
        core = base64.b64encode(padded).decode()[4 if before else 0 :]
        if len(core) >= _HEAD:
            yield core


def _base64_pattern(char: str) -> str:
    if char == "+":
        return r"(?:[+\-]|(?i:%(?:25)*2b|\\+u002b|&#43;|&#x2b;|&plus;))"
    if char == "/":
        return r"(?:\\*/|_|(?i:%(?:25)*2f|\\+u002f|&#47;|&#x2f;|&sol;))"
    return char


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _widened(text: str, start: int, end: int) -> tuple[int, int]:
    """Widen to the whole base64 text around: its rest is the secret's end, or a user's name."""
    while start and text[start - 1] in _BASE64:
        start -= 1
    while end < len(text) and (text[end] in _BASE64 or text[end] == "="):
        end += 1
    return start, end


def _joined(found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    if len(found) < 2:
        return found
    found.sort()
    joined = [found[0]]
    for start, end in found[1:]:
        last = joined[-1]
        if start < last[1]:
            joined[-1] = (last[0], max(end, last[1]))
        else:
            joined.append((start, end))
    return joined
