"""Templates of calls: TOML files in the config folder, with a model, a system message, a prompt and options.

`$input` in a text stands for the user's text, `$name` for a variable, and `$$` for a dollar sign.
"""

from __future__ import annotations

import os
import re
import string
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w
from msgspec import Struct

from cnllm.config import paths
from cnllm.config.toml_text import parse_toml
from cnllm.errors import CnllmError
from cnllm.system import files
from cnllm.system.files import read_bounded

__all__ = [
    "Template",
    "fill",
    "read_template",
    "remove_template",
    "template_names",
    "template_path",
    "templates_dir",
    "variables_of",
    "write_template",
]

INPUT = "input"
_NAME = re.compile(r"[\w][\w.-]*")
_KINDS: dict[str, tuple[type, str]] = {
    "model": (str, "text"),
    "system": (str, "text"),
    "prompt": (str, "text"),
    "schema": (str, "text: fields as in 'name, age int', or JSON"),
    "tools": (list, "a list of tools' names"),
    "options": (dict, "a table: [options]"),
    "variables": (dict, "a table: [variables]"),
}


class Template(Struct, frozen=True, kw_only=True):
    """A template. `variables` holds the defaults of variables; one without a default has to be given."""

    name: str
    model: str | None = None
    system: str | None = None
    prompt: str | None = None
    schema: str | None = None
    tools: list[str] = []
    options: dict[str, Any] = {}
    variables: dict[str, str] = {}

    @property
    def variable_names(self) -> list[str]:
        """Return the names of all variables: of those in the texts, and of those with a default."""
        return list(dict.fromkeys([*variables_of(self.system), *variables_of(self.prompt), *self.variables]))


def templates_dir() -> Path:
    """Return the folder of the templates, whether or not it exists."""
    return paths.config_dir() / "templates"


def template_path(name: str) -> Path:
    """Return the file of a template: in the folder, or any path that ends with .toml. Raise `CnllmError`."""
    if name.endswith(".toml") and ("/" in name or os.sep in name or Path(name).exists()):
        return Path(name).expanduser()
    if not _NAME.fullmatch(name):
        raise CnllmError(f"{name!r} is not a template's name", hint="use letters, digits, dots and dashes")
    return templates_dir() / f"{name}.toml"


def template_names() -> list[str]:
    """Return the names of the templates in the folder, sorted."""
    try:
        return sorted(file.stem for file in templates_dir().iterdir() if file.suffix == ".toml")  # only reads
    except (FileNotFoundError, NotADirectoryError):
        return []


def read_template(name: str) -> Template:
    """Read a template. Raise `CnllmError` with the file and what is wrong."""
    path = template_path(name)
    try:
        text = read_bounded(path).decode("utf-8-sig")
    except FileNotFoundError as error:
        raise FileNotFoundError(str(path)) from error
    except OSError as error:
        raise CnllmError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise CnllmError(f"{path}: is not UTF-8", hint="save it as UTF-8") from None
    try:
        data = parse_toml(text.replace("\r\n", "\n"))
    except (ValueError, RecursionError) as error:  # also a number with thousands of digits, or a thousand brackets
        raise CnllmError(f"{path}: not TOML: {error}", hint="fix this line") from None
    return _template(name, path, text, data)


def _template(name: str, path: Path, text: str, data: dict[str, Any]) -> Template:
    for key, value in data.items():
        place = f"{path}:{_line(text, key)}"
        if key not in _KINDS:
            raise CnllmError(f"{place}: a template has no {key}", hint=f"it may have {', '.join(_KINDS)}")
        kind, expected = _KINDS[key]
        if type(value) is not kind or (key == "tools" and not all(type(item) is str for item in data[key])):
            raise CnllmError(f"{place}: {key} is {expected}", hint="fix this line")
    for key, value in data.get("variables", {}).items():
        if type(value) not in (str, int, float, bool):
            place = f"{path}:{_line(text, 'variables')}"
            raise CnllmError(f"{place}: the variable {key} is text or a number", hint="fix [variables]")
    defaults = {key: _as_text(value) for key, value in data.pop("variables", {}).items()}
    template = Template(name=name, variables=defaults, **data)
    if INPUT in defaults:
        raise CnllmError(f"{path}: $input is the text of the call, and has no default", hint="name it otherwise")
    return template


def _line(text: str, key: str) -> int:
    """Return the line of a key at the top level."""
    pattern = re.compile(rf"\s*(\[\s*)?[\"']?{re.escape(key)}[\"']?\s*[\].=]")
    return next((number for number, line in enumerate(text.splitlines(), 1) if pattern.match(line)), 1)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


def write_template(template: Template) -> tuple[Path, Path | None]:
    """Write a template to the folder, in one step. Return its path, and where the one before it went to, if any."""
    path = template_path(template.name)
    if path.parent != templates_dir():
        raise CnllmError(f"{template.name!r} is not a template's name", hint="use letters, digits, dots and dashes")
    data = {key: getattr(template, key) for key in _KINDS if getattr(template, key)}
    try:
        text = tomli_w.dumps(data, multiline_strings=True)
    except TypeError as error:
        raise CnllmError(f"a template cannot hold this option: {error}", hint="TOML has no null") from None
    if tomllib.loads(text) != data:  # a line break that TOML writes in another way
        text = tomli_w.dumps(data)
    backup = None

    def change(present: bytes | None) -> bytes:
        nonlocal backup
        if present is not None:
            backup = path.with_name(path.name + "~")
            files.write_file(Path(os.path.realpath(backup)), present)  # a copy: a failure leaves the template
        return text.encode()

    files.change_file(path, change)
    return path, backup


def remove_template(name: str) -> bool:
    """Remove a template from the folder. Return whether there was one."""
    path = template_path(name)
    if path.parent != templates_dir() or not path.exists():
        return False
    files.change_file(path, lambda _: None)
    return True


# ── texts ────────────────────────────────────────────────────────────────────
def variables_of(text: str | None) -> list[str]:
    """Return the names of the variables in a text, without `$input`."""
    names = [match["named"] or match["braced"] for match in string.Template.pattern.finditer(text or "")]
    return [name for name in dict.fromkeys(names) if name and name != INPUT]


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return a text with values in place of variables. What is in a value is not replaced again."""
    return string.Template(text).safe_substitute(values)
