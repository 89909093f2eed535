"""Write the reference pages and pictures of the manual, and the options for `help`, from the program itself.

    python -m docs.generate            write docs/reference/ and docs/static/
    python -m docs.generate --check    name the pages that are out of date; exit status 1 if there are any

`pytest --update` writes them too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from docs import status
from docs.generate import (
    architecture,
    batch_plot,
    benchmark_plot,
    commands,
    dependencies,
    drawings,
    errors,
    events,
    faults,
    film,
    flags,
    issues,
    man,
    notes,
    option_docs,
    options,
    provider_pages,
    providers,
    python,
    questions,
    settings,
    terminal,
    vendors_zh,
    wires,
)

__all__ = ["FOLDER", "PAGES", "outdated", "write"]

FOLDER = Path(__file__).parent.parent / "reference"

PAGES: dict[str, Callable[[], str]] = {
    "commands": commands.page,
    "options": options.page,
    "settings": settings.page,
    "dependencies": dependencies.page,
    "python": python.page,
    "events": events.page,
    "errors": errors.page,
    "notes": notes.page,
    "flags": flags.page,
    "providers": providers.page,
    "known-issues": issues.page,
    "probe-questions": questions.page,
    "wires": wires.page,
}
"""Name of a page in docs/reference → the function that writes it."""

PAGES_ZH: dict[str, Callable[[], str]] = {"commands": commands.page_zh, "wires": wires.page_zh}
"""The same for docs/zh/reference."""

MODULES: dict[Path, Callable[[], str]] = {
    FOLDER / "cnllm.1": man.page,
    option_docs.HELP: option_docs.help_module,
}
"""Other files that are generated: modules of the package, and the man page."""

PICTURES: dict[Path, Callable[[], str]] = {
    **{
        FOLDER.parent / "static" / f"{name}-{shade}.svg": getattr(module, shade)
        for name, module in (
            ("architecture", architecture),
            ("batch", batch_plot),
            ("benchmarks", benchmark_plot),
            ("faults", faults),
            ("terminal", terminal),
        )
        for shade in ("light", "dark")
    },
    **{FOLDER.parent / "static" / name: draw for name, draw in (drawings.PICTURES | film.PICTURES).items()},
}
"""Pictures of the manual that are generated, each for a light page and for a dark one."""

_NOTICE = "<!-- Written by `python -m docs.generate`. Change the code that it names, not this page. -->\n\n"
_NOT_IN_THE_MENU = "---\norphan: true\n---\n\n"  # each page of the site holds the menu


def _path(name: str) -> Path:
    return FOLDER / f"{name}.md"


def _provider_folder() -> Path:
    return FOLDER / "providers"


def outdated() -> list[str]:
    """List the files that are out of date, and those of providers that are gone."""
    files = dict(_files())
    return [path.stem for path, text in files.items() if not _same(path, text)] + [path.stem for path in _gone(files)]


def _gone(files: Collection[Path]) -> list[Path]:
    """List the pages of providers that the registry no longer has."""
    return [path for path in sorted(_provider_folder().glob("*.md")) if path not in files]


def _files() -> Iterator[tuple[Path, str]]:
    """Yield each generated file and its text."""
    for path, picture in PICTURES.items():
        yield path, picture()
    for path, module in MODULES.items():
        yield path, module()
    for installing in status.PAGES:
        yield installing, status.current(installing)
    for name, page in PAGES.items():
        yield _path(name), _NOTICE + page()
    for provider, text in provider_pages.pages():
        yield _provider_folder() / f"{provider}.md", _NOT_IN_THE_MENU + _NOTICE + text
    for name, page in PAGES_ZH.items():
        yield FOLDER.parent / "zh" / "reference" / f"{name}.md", _NOTICE + page()
    for vendor, text in vendors_zh.pages():
        yield FOLDER.parent / "zh" / "vendors" / f"{vendor}.md", _NOTICE + text


def _same(path: Path, text: str) -> bool:
    return path.is_file() and terminal.same(path.read_text(encoding="utf-8"), text)


def write() -> list[str]:
    """Write the files that are out of date, remove those of providers that are gone, and return their names."""
    changed = []
    files = dict(_files())
    for path, text in files.items():
        if not _same(path, text):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            changed.append(path.stem)
    for path in _gone(files):
        path.unlink()
        changed.append(path.stem)
    return changed
