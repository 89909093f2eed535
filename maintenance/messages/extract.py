"""Find the messages of the command line in the source: help, errors and their hints, notes, progress.

A message is a text with words, wherever it stands in a file that can print one. An f-string is a template: its values
become `{0}`, `{1}` and so on. A text of several lines is a message a line, but the help of a command is one message.
Heads of tables, and words that `localize_word` gets, are entries that begin with `word|`.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from cnllm.cli.language.catalogue import WORD
from cnllm.cli.output.errors import command_line_form
from cnllm.probe.questions import QUESTIONS

__all__ = ["OTHER", "PACKAGE", "PRINTED", "SKIPPED", "Message", "messages"]

PACKAGE = Path(__file__).parents[2] / "cnllm"

SKIPPED = {
    "__init__.py": "names of the package",
    "batch/plot.py": "a picture",
    "batch/shared/": "what a program in Python reads",
    "comparison/figures.py": "what a report says, in both languages",
    "comparison/page.py": "a page in HTML, in both languages",
    "comparison/run.py": "a report on stdout, and what a model reads",
    "comparison/tasks.py": "what a model reads",
    "daft/": "what a program in Python reads",
    "ray/": "what a program in Python reads",
    "cli/matrix/": "a page in HTML, and what it is made of",
    "cli/output/curl.py": "a command for a shell",
    "cli/builtin_tools.py": "what a model reads",
    "client/verb_help.py": "docstrings",
    "engine/history/prompted_tools.py": "what a model reads",
    "gateway/": "what clients of a gateway read, in JSON, and its log",
    "leaks/prompt.py": "what a model reads",
    "launch/script.py": "a script for a shell",
    "probe/questions/": "what a model reads, and the names of questions in a report",
    "probe/question.py": "what a model reads",
    "probe/report.py": "a report in a file",
    "probe/overlay.py": "a registry file",
    "protocols/": "what clients of a gateway read, in JSON",
    "registry/flags/": "the documentation of flags",
    "registry/data_rules.py": "the documentation of a file",
    "registry_files/toml_format.py": "a registry file",
    "registry_export/": "files for other programs",
    "registry_files/updates/patch_file.py": "a registry file",
    "schemas/": "what a model reads of its own answer",
    "simulator/": "what an endpoint would say",
    "store/records.py": "SQL",
    "store/search.py": "SQL",
    "store/costs.py": "SQL",
    "tool_trial/": "what a model reads, and a report on stdout",
    "tools/arguments.py": "what a model reads of its own calls",
    "transports/headers.py": "bytes of HTTP",
    "types/media.py": "names of files",
    "types/note_codes.py": "documentation",
}
"""Maps the beginning of a path to the reason why no message of it is for the user of the command line."""

PRINTED = frozenset(
    f"{name}.py"
    for name in (
        "gateway/access",
        "gateway/limits/book",
        "gateway/limits/keys",
        "gateway/limits/redis_book",
        "gateway/limits/sqlite_book",
        "gateway/model_names",
        "gateway/monitoring/prometheus",
        "gateway/monitoring/spans",
        "gateway/monitoring/table",
        "gateway/server",
        "gateway/store/__init__",
        "gateway/store/redis",
        "simulator/unfaithful",
    )
)
"""The files of skipped folders whose errors the command line prints: a server that does not start says why."""

OTHER = (
    "Usage: ",
    "Options",
    "Commands",
    "Capabilities",
    "Example:",
    "Examples:",
    "Show this message and exit.",
    "[required]",
    "[Errno {0}] {1}",
    "Address already in use",
    "Connection refused",
    "Connection reset by peer",
    "File exists",
    "Is a directory",
    "Name or service not known",
    "Network is unreachable",
    "No route to host",
    "No space left on device",
    "No such file or directory",
    "Not a directory",
    "Permission denied",
    "Read-only file system",
    "Temporary failure in name resolution",
    "Too many open files",
    "[default: {0}]",
    "[default: {0}; required]",
    "aborted!",
    "choose from: {0}",
    "file {0} does not exist",
    "path {0} does not exist",
    "got unexpected extra argument ({0})",
    "got unexpected extra arguments ({0})",
    "invalid value for {0}: {1}",
    "invalid value: {0}",
    "Print it as JSON.",
    "missing argument {0}",
    "missing command",
    "missing option {0}",
    "missing parameter: {0}",
    "no such command {0}",
    "no such command {0}. Did you mean {1}?",
    "no such command {0}. (Did you mean one of: {1}?)",
    "no such option {0}",
    "no such option {0}. Did you mean {1}?",
    "no such option {0}. (Did you mean one of: {1}?)",
    "no such option: {0}",
    "no such option: {0} Did you mean {1}?",
    "no such option: {0} (Did you mean one of: {1}?)",
    "option {0} does not take a value",
    "option {0} requires an argument",
    "option {0} requires {1} arguments",
    "{0} does not match the formats {1}",
    "{0} is not a number",
    "{0} is not a valid {1}",
    "{0} is not a whole number",
    "{0} is not in the range {1}",
    "{0} is not one of {1}",
    # words that stand alone in the source
    "interrupted",
    "note",
    "thinking…",
    "warning",
    "written",
    "a default",
    # what the source puts together from words
    "the next question goes with this system message",
    "the next question goes without one",
    "{0} answer{1}",
    "{0} change{1}",
    "{0} conversation{1}",
    "{0} day{1}",
    "{0} disagreement{1}",
    "{0} fault{1}",
    "{0} flag{1}",
    "{0} in",
    "{0} in ({1} cached)",
    "{0} line{1}",
    "{0} message{1}",
    "{0} model{1}",
    "{0} out",
    "{0} out ({1} reasoning)",
    "{0} provider{1}",
    "{0} cache write",
    "{0} cached",
    "{0} cached where marked",
    "on by default",
    "off by default",
    "{0} times",
    "retired since {0}",
    "{0} s",
    "{0} source{1}",
    "{0} table{1}",
    "{0} turn{1}",
    "{0} min {1} s left",
    "{0} h {1} min left",
    "{0} s left",
    "{0} of ~{1} {2}",
    "{0} or {1}",
    "{0} of {1} request{2} a minute",
    "{0} of {1} token{2} a minute",
    "{0} of {1} request{2} in flight",
    "{0} of {1} {2} a day",
    "{0} of {1} {2} a week",
    "{0} of {1} {2} a month",
    "{0} {1} a day",
    "{0} {1} a week",
    "{0} {1} a month",
    "{0} of {1} {2}",
    "write: {0}",
    "a list",
    "a text",
    "a whole number",
    "a number",
    "true or false",
    "a key in use is called {0}",
    "a team in use is called {0}",
    "choose another name, or revoke that key first",
    "no key in use is called {0}",
    "no team in use is called {0}",
    "cnllm serve keys list shows the names",
    "cnllm serve teams list shows the names",
    "a number of at least {0} is expected",
    "a number of at most {0} is expected",
    "a number above {0} is expected",
    "a number below {0} is expected",
    "weights={0}; a list of {1} numbers from 0, one for each target and not all 0, is expected",
    "(no key)",
    "{0}/s",
    "{0} {1} s",
    "it takes no images",
    "it takes no audio",
    "it takes no files",
    ", at character {0}",
    "{0} is not a type: use str, int, float, bool, [list], {{object}} or (one | other)",
    "here a field's name is missing",
    "the field {0} stands twice",
    "after {0} a comma is missing",
    "there are no fields",
    "too many brackets",
    "choices look like (one | other)",
    "schema is not a JSON Schema: {0}",
    "expecting ',' delimiter",
    "expecting ':' delimiter",
    "expecting value",
    "expecting property name enclosed in double quotes",
    "extra data",
    "Input data was truncated",
    "JSON is malformed: {0} (byte {1})",
    "invalid character",
    "it takes no video",
    "simulated: {0}/PROVIDER answers for every provider; Ctrl-C ends it",
    "simulated: {0}/v1 answers for every model; Ctrl-C ends it",
    "cnllm {0} has {1}",
    "a JSON Schema",
    "{0}: not JSON: JSON is malformed: {1} (byte {2})",
    "native tools",
    "tools in the prompt",
    # the problems of the tasks of a trial
    "the answer lacks {0}",
    "a tool got: {0}",
    "no tool got: {0}",
    "a tool was called for nothing",
    "the answer is not Chinese",
    "a tool got another city",
    "the right code was not used",
    "the key is empty",
    "the key holds a space, a control character or a letter outside ASCII",
    "line {0}: not valid JSON: {1}",
    "there is no capability {0}",
    "there is no provider {0}",
    "there is no modality {0}",
    "there is no currency {0}",
    "{0} tok/s",
    "{0} tokens/s",
    "It completes commands, options, models and providers.",
    "To install:",
    "Then open a new shell.",
)
"""Messages of click and of the system, as the command line prints them, and texts that are put together from words."""

WORDS = (
    # states and origins of conversations, and of keys of a gateway
    "done", "partial", "failed", "interrupted", "running", "simulated", "replayed", "in use", "in a keys file",
    "revoked", "expired",
    # how a model reasons, what it reads, and whether it is served
    "toggle", "always", "never", "no-reasoning", "text", "image", "audio", "video", "file", "retired", "preview",
    "current",
    # what the examples of the help say to a model
    "Why is the sky blue?", "Review this.", "Say hi", "And at sunset?", "Sum it up.", "What is new in the chart?",
    "Translate into $lang.", "Good morning", "Add up the numbers in sums.txt", "What time is it in Oslo?",
    "Translate: {text}", "List the files of this folder", "Answer in French.", "sunset",
    "Why is the sky blue?\\nAnd at sunset?\\n",
)  # fmt: skip
"""Words of tables that come from data, and of examples."""

_NO_MESSAGES = frozenset(
    {"compile", "examples", "execute", "execute_many", "executemany", "executescript", "partition"}
)
"""The functions whose arguments are no messages."""
_EXAMPLES = re.compile(r"\n\nExamples?:\n")  # at the end of the docstring of a command
_HEADS = re.compile(r"(?:HEADS|heads|STATES|TITLES)$")
_PLACEHOLDER = re.compile(r"\{\d+\}")
_WORD = re.compile(r"(?<![\w./:=$-])[A-Za-z]?[a-z]{2,}(?![\w=(/])|(?<!-)\b(?:in|of|by)\b")
_CODE = re.compile(
    r"\\[sdSbw]|\(\?|CREATE |PRAGMA |INTEGER|SELECT |UPDATE |^<|^\[|^https?://\S*$|^pip install [^,]*$"
    r"|^(?:\w+, ){4,}\w+$|=$|\$$|\x00"
    r"|redis\.call|ARGV|^local |^for .* do$|^return [01{]|^if .* then|\bBLOB\b|\bTEXT\b|ALTER TABLE |\bREAL\b|^, with "
)


class Message(msgspec.Struct, frozen=True):
    """A message. The values of a template stand as `{0}`, `{1}`; `values` are their expressions."""

    text: str
    is_template: bool = False
    values: tuple[str, ...] = ()


@functools.cache
def messages() -> dict[Message, list[str]]:
    """Return the messages, each with the files that hold it, in their order."""
    found: dict[Message, list[str]] = {}
    by_text: dict[str, Message] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name.startswith(tuple(SKIPPED)) and name not in PRINTED:
            continue
        for message in _file_messages(path.read_text(encoding="utf-8"), is_cli=name.startswith("cli/")):
            known = by_text.setdefault(message.text, message)
            files = found.setdefault(known, [])
            if name not in files:
                files.append(name)
    for text in OTHER:
        found.setdefault(Message(text, is_template="{0}" in text), [])
    for word in (*WORDS, *(question.name for question in QUESTIONS)):
        found.setdefault(Message(WORD + word), [])
    return found


def _file_messages(source: str, *, is_cli: bool) -> Iterator[Message]:
    tree = ast.parse(source)
    if is_cli:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and _is_command(node) and (doc := ast.get_docstring(node)):
                yield Message(_EXAMPLES.split(doc)[0])
    yield from sorted(dict.fromkeys(_texts(tree)), key=lambda message: message.text)


def _is_command(function: ast.FunctionDef) -> bool:
    """Whether a decorator of click makes a function a command."""
    names = [ast.unparse(node.func if isinstance(node, ast.Call) else node) for node in function.decorator_list]
    return any(name.rpartition(".")[2] in ("command", "group") for name in names)


def _texts(node: ast.AST) -> Iterator[Message]:
    """Yield the messages below a node, without those of docstrings, patterns and examples."""
    if isinstance(node, ast.Constant | ast.JoinedStr):
        message = _message(node)
        if message is not None:
            for line in message.text.splitlines():
                text = command_line_form(line.strip("\b ·").removeprefix("cnllm: "))
                if _is_message(text, is_template=message.is_template):
                    yield msgspec.structs.replace(message, text=text)
        if isinstance(node, ast.JoinedStr):
            for value in node.values:
                if isinstance(value, ast.FormattedValue):
                    yield from _texts(value.value)
        return
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in _NO_MESSAGES:
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if words := list(_words(node)):
        yield from words
        if not any(isinstance(one, ast.Call | ast.JoinedStr) for one in ast.walk(node)):
            return
    for child in ast.iter_child_nodes(node):
        yield from _texts(child)


def _words(node: ast.AST) -> Iterator[Message]:
    """Yield the heads of a table, the names of a list of fields, and the words of a call of `localize_word`."""
    match node:
        case ast.Assign(targets=[ast.Name(id="pairs")], value=ast.List(elts=items)):
            values = [item.elts[0] for item in items if isinstance(item, ast.Tuple)]
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if _HEADS.search(name):
            value = node.value
            values = value.values if isinstance(value, ast.Dict) else [value] if value is not None else []
        case ast.Call(func=ast.Name(id="localize_word" | "table"), args=[first, *_]):
            values = [first]
        case _:
            return
    for value in values:
        parts = ast.iter_child_nodes(value) if isinstance(value, ast.Tuple | ast.List | ast.IfExp) else [value]
        for one in parts:
            if isinstance(one, ast.Constant) and isinstance(one.value, str) and one.value.strip():
                yield Message(WORD + one.value)


def _message(node: ast.Constant | ast.JoinedStr) -> Message | None:
    if isinstance(node, ast.Constant):
        return Message(node.value) if isinstance(node.value, str) else None
    text, values = "", list[str]()
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            text += f"{{{len(values)}}}"
            values.append(ast.unparse(part.value))
        elif isinstance(part, ast.Constant):
            text += str(part.value).replace("{", "{{").replace("}", "}}")
    return Message(text, is_template=bool(values), values=tuple(values))


def _is_message(text: str, *, is_template: bool) -> bool:
    """Whether a text holds words for a person. A word alone is a name."""
    if _CODE.search(text):
        return False
    words = _WORD.findall(_PLACEHOLDER.sub(" ", text))
    return bool(words) and " " in text.strip()
