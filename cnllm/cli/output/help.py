"""Show the help of commands in the user's language, in lines as wide as their characters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from copy import copy

import click

from cnllm.cli.language.messages import translate, translate_word
from cnllm.cli.output import terminal

__all__ = ["TranslatedHelp", "translate_command", "wrap"]

_ATOM = re.compile(r"\s+|[\u2e80-\uffef]|[^\s\u2e80-\uffef]+")
_CLOSING = frozenset("，。；：、！？）》」』”’…")  # begin no line
_OPENING = frozenset("（《「『“‘")  # end no line
_EXTRA = re.compile(r"(.*?)(?:  (\[[^\[\]]*\]))?", re.DOTALL)
_QUOTED = re.compile(r"""(?P<mark>['"])(?P<text>[^'"\n]+)(?P=mark)""")
_FIRST_SENTENCE = re.compile(r"[^。\n]*")


class TranslatedHelp(click.HelpFormatter):
    """A formatter of help that translates headings and options, and counts a Chinese character as two columns."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the line of usage."""
        super().write_usage(prog, args, translate("Usage: ") if prefix is None else prefix)

    def write_heading(self, heading: str) -> None:
        """Write the heading of a section."""
        colon = "：" if (translated := translate(heading)) != heading else ":"
        self.write(f"{' ' * self.current_indent}{translated}{colon}\n")

    def write_text(self, text: str) -> None:
        """Write paragraphs, each wrapped, except for those that begin with a backspace."""
        indent = " " * self.current_indent
        for index, paragraph in enumerate(re.split(r"\n{2,}", text.strip("\n"))):
            if index:
                self.write_paragraph()
            first, *rest = paragraph.split("\n")
            is_written = first.strip() == "\b"
            for line in rest if is_written else wrap(_join([first, *rest]), self.width - self.current_indent):
                self.write(f"{indent}{line}".rstrip() + "\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write rows of a name and its help."""
        rows = list(rows)
        widths = [terminal.display_width(name) for name, _ in rows]
        first = min(max(widths, default=0), col_max) + col_spacing
        indent = " " * self.current_indent
        for (name, text), width in zip(rows, widths, strict=True):
            lines = wrap(_translate_row(text), max(self.width - first - 2 - self.current_indent, 10))
            begins_beside = width <= first - col_spacing
            self.write(f"{indent}{name}" + ("" if begins_beside or not lines else "\n"))
            for index, line in enumerate(lines):
                beside = index == 0 and begins_beside
                self.write(" " * (first - width if beside else first + self.current_indent) + line + "\n")
            if not lines:
                self.write("\n")


class _HelpContext(click.Context):
    formatter_class = TranslatedHelp


def translate_command(command: click.Command) -> click.Command:
    """Return a copy of a command whose help, and that of its subcommands, is in the user's language.

    Its options are translated as they are shown.
    """
    command = copy(command)
    command.context_class = _HelpContext
    if command.help:
        command.help = translate(inspect.cleandoc(command.help))
        sentence = _FIRST_SENTENCE.match(command.help)
        assert sentence is not None
        command.short_help = translate(command.short_help) if command.short_help else sentence[0]
    if command.epilog:
        command.epilog = _QUOTED.sub(_translate_quoted, translate(command.epilog))
    if isinstance(command, click.Group):
        command.commands = {name: translate_command(child) for name, child in command.commands.items()}
    return command


def _translate_quoted(match: re.Match[str]) -> str:
    """Translate what an example says to a model, where the catalogue has it as a word."""
    return f"{match['mark']}{translate_word(match['text'])}{match['mark']}"


def _translate_row(text: str) -> str:
    """Translate the help of an option, and what click adds to it in brackets."""
    match = _EXTRA.fullmatch(text)
    assert match is not None
    return translate(match[1]) + (f"  {translate(match[2])}" if match[2] else "")


def _join(lines: Iterable[str]) -> str:
    """Return lines as one text: with a space between them, but with none after a mark of Chinese."""
    return re.sub(r"(?<=[\u3000-\u303f\uff00-\uffef]) ", "", " ".join(lines))


def wrap(text: str, width: int) -> list[str]:
    """Return a text in lines of at most `width` columns. Chinese breaks between any two characters, but not before a
    mark that closes, nor after one that opens.
    """
    lines, line, column = list[str](), "", 0
    for atom in _atoms(text.strip()):
        size = terminal.display_width(atom.rstrip())
        if line.strip() and column + size > width:
            lines.append(line.rstrip())
            line, column = "", 0
        if line or not atom.isspace():
            line += atom
            column += terminal.display_width(atom)
    return [*lines, line.rstrip()] if line.strip() else lines


def _atoms(text: str) -> Iterator[str]:
    """Yield the pieces between which a line may break; joined, they are the text."""
    atom = ""
    for match in _ATOM.finditer(text):
        piece = match[0]
        if atom and not (piece in _CLOSING or atom[-1] in _OPENING or piece.isspace()):
            yield atom
            atom = ""
        atom += piece
    if atom:
        yield atom
