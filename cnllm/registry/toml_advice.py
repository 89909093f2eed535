"""Say in words what is wrong with a text that is not TOML, and show the corrected line.

A correction is tried before it is shown: the text with it must parse, or fail on a later line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

__all__ = ["Advice", "advice"]

_QUOTES = str.maketrans(dict.fromkeys("“”„‟«»＂「」『』", '"') | dict.fromkeys("‘’‚‛", "'"))
_WIDE = str.maketrans("＝：，、［］【】｛｝＃．\u3000\xa0", "=:,,[][]{}#.  ")
_WORDS = dict.fromkeys(("True", "TRUE", "yes", "on"), "true") | dict.fromkeys(("False", "FALSE", "no", "off"), "false")
_WORD = re.compile(r"(=\s*|[\[,]\s*)(True|False|TRUE|FALSE|yes|no|on|off)(?=\s*(?:[,\]}#]|$))")
_NONE = re.compile(r"=\s*(?:None|null|nil|undefined)\b")
_HEADER = re.compile(r"^(\s*\[+)([^\]#]*?)(\]*)(\s*(?:#.*)?)$")
_PAIR = re.compile(r"^(\s*)([A-Za-z0-9_.\"'/-]+)\s*(.*)$")
_BARE = re.compile(r"(=\s*|[\[,]\s*)([A-Za-z_~./][^\"',\]}#\s]*)(?=\s*(?:[,\]}#]|$))")
_NUMBER_K = re.compile(r"(?<![\w.\"])(\d+(?:\.\d+)?)\s*([kKmM])\b(?!\")")
_NUMBER_COMMA = re.compile(r"(?<![\w.\"])(\d{1,3}(?:,\d{3})+)(?![\w\"])")
_NUMBER_ZERO = re.compile(r"(?<![\w.\":-])0+(\d+)(?![\w.:-])")
_MAX_JOINED = 20  # lines of a table in braces that are joined
_MAX_LINE = 4096  # characters of a line that a person may have written


class Advice(NamedTuple):
    """The line of a fault (from 1), its cause in words, and the corrected line; "" where there is none to show."""

    line: int
    cause: str
    corrected: str = ""


def advice(text: str, line: int, failure: Callable[[str], int | None]) -> Advice | None:
    """Return what is wrong about a line of a text; None where that is not known.

    `failure` returns the line at which a text fails to parse, 0 where it names none, and None where it is TOML.
    """
    lines = text.split("\n")
    if text.lstrip()[:1] == "{":
        return Advice(line, "this is JSON, and cnllm reads TOML", '[providers.home]  # then: base_url = "https://…"')
    suspects = list(_suspects(lines, line))
    if any(len(lines[number - 1]) > _MAX_LINE for number in suspects):
        return None
    if (twice := _twice(lines, line)) is not None:
        return twice
    for number in suspects:
        for cause, corrected, count in _repairs(lines, number - 1):
            fixed = "\n".join([*lines[: number - 1], corrected, *lines[number - 1 + count :]])
            after = failure(fixed)
            if after is None or after > max(line, number) - count + 1:
                return Advice(number, cause, corrected.strip())
    return None


def _suspects(lines: list[str], line: int) -> Iterator[int]:
    """Yield the lines that may hold the fault: the one that the parser names, and the one where its value begins."""
    yield min(line, len(lines))
    for number in range(min(line, len(lines)) - 1, max(0, line - _MAX_JOINED), -1):
        if "=" in lines[number - 1] or lines[number - 1].lstrip().startswith("["):
            yield number
            break


def _repairs(lines: list[str], index: int) -> Iterator[tuple[str, str, int]]:
    """Yield (cause, corrected line, number of lines it replaces), the likeliest first."""
    line = lines[index]
    quotes = line.translate(_QUOTES)
    if quotes != line:
        yield "quotes must be straight", quotes, 1
    wide = quotes.translate(_WIDE)
    if wide != quotes:
        yield "signs must be half-width, as on an English keyboard", wide, 1
    if wide.rstrip().endswith("{"):
        for end in range(index + 1, min(len(lines), index + _MAX_JOINED)):
            if lines[end].strip().startswith("}"):
                inner = ", ".join(part.strip().rstrip(",") for part in lines[index + 1 : end] if part.strip())
                single_line = f"{wide.rstrip()} {inner} {lines[end].strip()}"
                yield "a table in braces stands on one line", single_line, end - index + 1
                break
    for cause, corrected in _line_repairs(wide):
        yield cause, corrected, 1
        for second_cause, second in _line_repairs(corrected):  # two faults in a line
            yield f"{cause}; {second_cause}", second, 1


def _line_repairs(line: str) -> Iterator[tuple[str, str]]:
    stripped = line.strip()
    if stripped.startswith(("//", ";", "--")):
        yield "a comment begins with #", re.sub(r"^(\s*)(?://|;|--)\s*", r"\1# ", line)
    if header := _HEADER.match(line):
        yield from _header_repairs(*header.groups())
    if _NONE.search(line):
        yield "TOML has no empty value: leave the line out", "# " + stripped
    if _WORD.search(line):
        yield "true and false are written in small letters", _WORD.sub(lambda m: m[1] + _WORDS[m[2]], line)
    if re.search(r",\s*}", line):
        yield "a table in braces has no comma before its end", re.sub(r",\s*}", " }", line)
    if re.search(r"=>|:=|==", line):
        yield "a value follows a single =", re.sub(r"=>|:=|==", "=", line, count=1)
    if (code := _code(line)).endswith(","):
        yield "a line has no comma at its end", code[:-1] + _comment(line)
    yield from _number_repairs(line)
    yield from _pair_repairs(line)
    if line.count('"') % 2:
        yield from _quote_repairs(line)
    if re.search(r"[\"'\d]\s+[\"']", line):
        yield "the items of a list have commas between them", re.sub(r"([\"'\d])\s+(?=[\"'])", r"\1, ", line)
    if line.count("[") > line.count("]"):
        yield "a list ends with ]", f"{_code(line)}]{_comment(line)}"
    if line.count("{") > line.count("}"):
        yield "a table in braces ends with }", f"{_code(line)} }}{_comment(line)}"
    if _BARE.search(line):
        yield "a text stands in quotes", _BARE.sub(_quote, line)
    if "\\" in line:
        yield "in double quotes \\ begins an escape: use single quotes", re.sub(r'"([^"\']*\\[^"\']*)"', r"'\1'", line)


def _header_repairs(opening: str, name: str, closing: str, comment: str) -> Iterator[tuple[str, str]]:
    ends = "]" * opening.count("[")
    if closing != ends and not name.rstrip().endswith(("=", ",")):
        yield "the head of a table ends with ]", f"{opening}{name.rstrip()}{ends}{comment}"
    section, dot, id = name.strip().partition(".")
    if dot and "/" in id:
        yield "a name with a slash stands in quotes", f"{opening}{section}.{_quoted_name(id)}{ends}{comment}"
    if " " in name.strip():
        yield "a name with a space stands in quotes", f"{opening}{section}.{_quoted_name(id)}{ends}{comment}"


def _quoted_name(id: str) -> str:
    """Return the name of a model in quotes, with the tables below it outside of them."""
    id = id.replace('"', "").replace("'", "").strip()
    for table in (".sources", ".limits", ".price", ".reasoning", ".tools", ".call", ".params", ".when", ".on"):
        head, found, tail = id.partition(table)
        if found and (not tail or tail.startswith(".")):
            return f'"{head}"{table}{tail}'
    return f'"{id}"'


def _number_repairs(line: str) -> Iterator[tuple[str, str]]:
    if _NUMBER_K.search(line):
        factor = {"k": 1000, "m": 1_000_000}
        yield "a number has no letters", _NUMBER_K.sub(lambda m: f"{int(float(m[1]) * factor[m[2].lower()]):_}", line)
    if _NUMBER_COMMA.search(line):
        yield "a number has no commas", _NUMBER_COMMA.sub(lambda m: m[1].replace(",", "_"), line)
    if _NUMBER_ZERO.search(line):
        yield "a number does not begin with 0", _NUMBER_ZERO.sub(r"\1", line)


def _pair_repairs(line: str) -> Iterator[tuple[str, str]]:
    pair = _PAIR.match(line)
    if pair is None or line.lstrip().startswith("["):
        return
    indent, key, rest = pair.groups()
    if rest.startswith(":"):
        yield "a value follows =, not a colon", f"{indent}{key} = {rest[1:].lstrip()}"
    elif rest and not rest.startswith("="):
        word, equals, value = rest.partition("=")
        if equals and re.fullmatch(r"[A-Za-z0-9_ -]+", word.strip()):
            yield "a key has no spaces", f"{indent}{key}_{word.strip().replace(' ', '_')} ={value}"
        yield "a value follows =", f"{indent}{key} = {rest}"
    elif rest.startswith("=") and "/" in key and '"' not in key:
        yield "a name with a slash stands in quotes", f'{indent}"{key}" {rest}'
    elif not rest and key.endswith(":"):
        yield "a table has its name in brackets", f"{indent}[{key[:-1]}]"


def _quote_repairs(line: str) -> Iterator[tuple[str, str]]:
    code, comment = _code(line), _comment(line)
    for end in ("]", "}", ",", ""):
        if code.endswith(end):
            body = code[: len(code) - len(end)].rstrip() if end else code
            yield "a quote is missing", f'{body}"{" " if end == "}" else ""}{end}{comment}'
    if match := re.search(r"(=\s*|[\[,]\s*)([^\s\"'\[{,][^\"]*\")", line):
        yield "a quote is missing", f'{line[: match.end(1)]}"{line[match.end(1) :]}'


def _quote(match: re.Match[str]) -> str:
    return match[0] if match[2] in ("true", "false", "inf", "nan") else f'{match[1]}"{match[2]}"'


def _code(line: str) -> str:
    """Return a line without a comment at its end."""
    return re.sub(r"\s+#[^\"']*$", "", line).rstrip()


def _comment(line: str) -> str:
    return line.rstrip()[len(_code(line)) :]


def _twice(lines: list[str], line: int) -> Advice | None:
    """Return the advice on a key or a table that stands twice; None where it does not."""
    text = lines[min(line, len(lines)) - 1].strip()
    head = re.match(r"\[+[^\]]*\]+|[^=\s]+(?=\s*=)", text)
    if head is None:
        return None
    is_table = text.startswith("[")
    for number in range(line - 1, 0, -1):
        other = lines[number - 1].strip()
        if not is_table and other.startswith("["):
            return None
        if re.match(re.escape(head[0]) + (r"\s*(#|$)" if is_table else r"\s*="), other):
            what = f"{head[0]} stands twice, here and in line {number}"
            return Advice(line, f"{what}: put both together" if is_table else f"{what}: one of them has to go")
    return None
