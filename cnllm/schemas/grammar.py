"""Check texts against grammars of lark, as a program of its own.

A grammar and a text come from strangers. Both can be chosen so that reading them takes hours or all memory, in lark and
in the regular expressions of terminals, and nothing inside a process can stop these. So the check runs in a process
that can be killed: `cnllm.client.input_checks` starts this file, with the folder of lark as its argument. It reads one
JSON object a line (`grammar`, `text`, `seconds` of work) and writes one: `problem` where the text does not follow the
grammar, `unknown` where nobody can say, neither where the text is right.
"""

import contextlib
import json
import re
import signal
import sys
from typing import Any

__all__ = ["check_text"]

_MEMORY = 512 * 1024 * 1024  # bytes of the process
_PATIENCE = 10  # seconds that a second of work may take on a busy machine
_MOST_PARSERS = 16  # grammars that are kept
_MOST_EARLEY = 10_000  # characters of a text that the slow parser reads
_MOST_EXPECTED = 8  # alternatives that a message names
_EXCERPT = 80  # characters of a line that a message shows
_REPEATED = re.compile(r"((?:\((?:\?[a-z]*:)?)*(?:\.|\\[A-Za-z]|\[\^?\]?(?:[^\]\\]|\\.)*\]))\*(\)*)")
"""A pattern that is one character of some kind, any number of times, perhaps in groups."""
_OWN_IMPORTS = re.compile(r"^[ \t]*%import[ \t]+(?!(?:common|unicode|python|lark)\b)(\S+)", re.MULTILINE)


def check_text(grammar: str, text: str, parsers: dict[str, Any]) -> dict[str, str]:
    """Return the outcome of a check. `parsers` keeps the parsers of grammars."""
    from lark import UnexpectedInput

    if grammar not in parsers:
        if len(parsers) >= _MOST_PARSERS:
            parsers.clear()
        parsers[grammar] = _read_grammar(grammar)
    found = parsers[grammar]
    if isinstance(found, str):
        return {"unknown": found}
    fast, slow, sources = found
    problem = ""
    if fast is not None:
        try:
            fast.parse(text)
            return {}
        except UnexpectedInput as error:
            problem = _describe(error, text, fast, sources)
            if len(text) > _MOST_EARLEY:
                return {"problem": problem}
    try:
        slow().parse(text)
    except UnexpectedInput as error:
        return {"problem": problem or _describe(error, text, slow(), sources)}
    return {}


def _read_grammar(source: str) -> Any:
    """Return two parsers of a grammar and the patterns behind those that it uses, or why lark cannot read it.

    The first one is fast, and None where the grammar is not of its kind (LALR). It accepts nothing wrong; but where a
    grammar has conflicts it refuses right texts, too. The second one, made at its first use, decides then.
    """
    import lark
    from lark.exceptions import LarkError
    from lark.load_grammar import load_grammar

    if imported := _OWN_IMPORTS.search(source):
        return f"the grammar imports {imported[1]}, and only lark's own library can be imported"
    sources: dict[str, str] = {}
    try:
        load: Any = load_grammar
        grammar: Any = _with_filled_terminals(load(source, "<grammar>", [], False)[0], sources)
    except (LarkError, ValueError, RecursionError, re.error) as error:
        return f"lark cannot read the grammar: {_first_line(error)}"
    cache: list[Any] = []

    def slow() -> Any:
        """Return the slow parser, which reads every grammar."""
        if not cache:
            cache.append(lark.Lark(grammar, parser="earley", lexer="dynamic", ambiguity="forest"))
        return cache[0]

    try:
        return lark.Lark(grammar, parser="lalr"), slow, sources
    except (LarkError, ValueError, re.error):
        pass
    try:
        slow()
    except (LarkError, ValueError, re.error) as error:
        return f"lark cannot read the grammar: {_first_line(error)}"
    return None, slow, sources


def _with_filled_terminals(grammar: Any, sources: dict[str, str]) -> Any:
    """Return a grammar whose terminals match at least one character.

    The grammars of tools have terminals such as `/.*/`, and the parsers of lark take none that may be empty. Here each
    of them becomes one that is not, and a rule that makes it optional. `sources` gets the pattern that each one had.
    """
    from lark.grammar import NonTerminal, Rule, RuleOptions, Terminal
    from lark.lexer import PatternRE
    from lark.load_grammar import Grammar

    class FilledGrammar(Grammar):
        """A grammar without empty terminals."""

        def compile(self, start: Any, terminals_to_keep: Any) -> Any:
            """Return terminals, rules and ignored names for a parser."""
            terminals, rules, ignored = super().compile(start, terminals_to_keep)
            optional: dict[Any, Any] = {}
            for number, terminal in enumerate(terminals):
                if terminal.pattern.min_width == 0:
                    filled = _without_empty(terminal.pattern.to_regexp(), number)
                    sources[filled] = terminal.pattern.value
                    terminal.pattern = PatternRE(filled)
                    if terminal.name not in ignored:
                        optional[Terminal(terminal.name)] = NonTerminal(f"__optional_{number}")
            if not optional:
                return terminals, rules, ignored
            plain = {Terminal(symbol.name) for symbol in optional}
            out = []
            for rule in rules:
                expansion = [optional[Terminal(s.name)] if s.is_term and Terminal(s.name) in plain else s
                             for s in rule.expansion]  # fmt: skip
                out.append(Rule(rule.origin, expansion, rule.order, rule.alias, rule.options))
            for terminal, origin in optional.items():
                out.append(Rule(origin, [terminal], 0, None, RuleOptions()))
                out.append(Rule(origin, [], 1, None, RuleOptions()))
            return terminals, out, ignored

    return FilledGrammar(grammar.rule_defs, grammar.term_defs, grammar.ignore)


def _without_empty(pattern: str, number: int) -> str:
    """Return a pattern that matches what another one does, but never the empty text.

    `all` is the text from here to its end, `rest` what a match of the pattern leaves of it. A match that leaves all of
    it was empty. Then as many characters are matched as it takes until the rest follows; at least one, which lark has
    to see.
    """
    if match := _REPEATED.fullmatch(pattern):  # nearly all of them: quick, because nothing is looked up
        return f"{match[1]}+{match[2]}"
    all, rest = f"all_{number}", f"rest_{number}"
    ahead = f"(?=(?P<{all}>(?s:.*)))(?=(?:{pattern})(?!(?P={all})\\Z)(?P<{rest}>(?s:.*)))"
    return f"{ahead}(?s:..*?)(?=(?P={rest})\\Z)"


def _describe(error: Any, text: str, parser: Any, sources: dict[str, str]) -> str:
    """Return the place of an error, what stands there, and what the grammar has there."""
    place = error.pos_in_stream
    if type(place) is not int or place < 0 or getattr(getattr(error, "token", None), "type", "") == "$END":
        place = len(text)
    line, column = text.count("\n", 0, place) + 1, place - (text.rfind("\n", 0, place) + 1) + 1
    rest = text[place:].partition("\n")[0] if place < len(text) else None
    if rest is None:
        found = "the text ends here"
    elif not rest:
        found = "the line ends here"
    else:
        found = f"there is {_excerpt(rest)}"
    names = getattr(error, "accepts", None) or getattr(error, "expected", None) or getattr(error, "allowed", None) or ()
    expected = sorted({_show(name, parser, sources) for name in names if name != "$END"})
    more = f" or {len(expected) - _MOST_EXPECTED} other things" if len(expected) > _MOST_EXPECTED else ""
    expectation = f", and the grammar has here {' or '.join(expected[:_MOST_EXPECTED])}{more}" if expected else ""
    if not expected and "$END" in names:
        expectation = ", and the grammar has here the end of the text"
    return f"line {line}, column {column}: {found}{expectation}"


def _show(name: Any, parser: Any, sources: dict[str, str]) -> str:
    """Return a terminal as the grammar writes it."""
    name = getattr(name, "name", name)
    with contextlib.suppress(KeyError, AttributeError):
        pattern = parser.get_terminal(name).pattern
        if pattern.type == "str":
            return json.dumps(pattern.value, ensure_ascii=False)
        if str(name).startswith("__"):
            return f"/{sources.get(pattern.value, pattern.value)}/"
    return str(name)


def _excerpt(line: str) -> str:
    """Return the beginning of a line."""
    return json.dumps(line if len(line) <= _EXCERPT else f"{line[:_EXCERPT]}…", ensure_ascii=False)


def _first_line(error: BaseException) -> str:
    """Return the first line of an error."""
    text = str(error).strip().partition("\n")[0]
    return text[:300] or type(error).__name__


def _limit_process() -> None:
    """Set a limit on the memory of this process, where the system can do that."""
    try:
        import resource
    except ImportError:  # Windows
        return
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def _set_timers(seconds: float) -> None:
    """Let the system end this process after some seconds of work. 0 is never.

    It also ends it after a longer time, for the case that the program that sent the request has gone. Nothing in the
    process itself runs during a search in `re`.
    """
    if hasattr(signal, "setitimer"):  # not on Windows
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, seconds * _PATIENCE)


def main() -> None:
    """Answer the requests of standard input until it ends."""
    sys.path.append(sys.argv[1])
    _limit_process()
    with contextlib.suppress(ImportError):
        import lark  # noqa: F401 now: it is no part of the work for a text
    parsers: dict[str, Any] = {}
    for line in sys.stdin.buffer:
        request = json.loads(line)
        _set_timers(request["seconds"])
        is_last = False
        try:
            answer = check_text(request["grammar"], request["text"], parsers)
        except RecursionError:
            answer = {"unknown": "the grammar or the text is nested too deeply"}
        except MemoryError:
            answer, is_last = {"unknown": f"the check needs more than {_MEMORY // 1024 // 1024} MB"}, True
        except Exception as error:  # noqa: BLE001 a fault in lark, or a grammar that it takes and cannot use
            answer = {"unknown": f"lark cannot use the grammar: {type(error).__name__}: {_first_line(error)}"}
        _set_timers(0)
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()
        if is_last:
            return


if __name__ == "__main__":
    main()
