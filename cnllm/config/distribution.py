"""The source from which pip installs this package, and the other project that PyPI has under the package's own name."""

from __future__ import annotations

import sys
from typing import Any

from cnllm._version import MARKER, VERSION

__all__ = ["NAME", "RELEASED", "import_failure", "install_command", "installed_version", "replacement", "warning"]

NAME = "cnllm-client"
"""The name of the distribution. PyPI's `cnllm` is another project, whose package has the same name."""

RELEASED = False
"""Whether PyPI has the distribution. `python -m docs.generate` brings README and the manual in line with it."""

_PACKAGE = "cnllm"
_PROGRAM = "cnllm.cli:"  # the entry point of this project's command, which the other project has not


def install_command(extra: str | None = None) -> str:
    """Return the command that installs this package, with one of its extras."""
    return f"pip install {_requirement(extra)}"


def _requirement(extra: str | None = None) -> str:
    """Return what pip takes: the name, or before a release what this copy was installed from (PEP 610)."""
    import shlex

    extras = f"[{extra}]" if extra else ""
    if RELEASED:
        return shlex.quote(NAME + extras)
    origin = _origin()
    url = str(origin.get("url", ""))
    if url and not url.startswith("file:"):
        vcs = origin.get("vcs_info", {})
        address = f"{vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else url
        folder = f"#subdirectory={origin['subdirectory']}" if "subdirectory" in origin else ""
        return shlex.quote(f"{NAME}{extras} @ {address}{folder}")
    from pathlib import Path
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    path = Path(url2pathname(urlsplit(url).path)) if url else Path(__file__).parents[2]
    if not (path.is_file() or (path / "pyproject.toml").is_file()):
        return f"{shlex.quote(f'.{extras}')}  # in a checkout of {_PACKAGE}"
    is_editable = origin.get("dir_info", {}).get("editable")
    return f"{'-e ' if is_editable else ''}{shlex.quote(f'{path}{extras}')}"


def _origin() -> dict[str, Any]:
    """Return what pip recorded of the installation from a folder, a file or an address; empty for none."""
    import json  # loading it takes longer than all of this module
    from importlib import metadata

    try:
        return dict(json.loads(metadata.distribution(NAME).read_text("direct_url.json") or "{}"))
    except (metadata.PackageNotFoundError, ValueError):
        return {}


def installed_version() -> str:
    """Return the version of this package."""
    from importlib import metadata

    try:
        return metadata.version(NAME)
    except metadata.PackageNotFoundError:  # it runs from a folder that pip did not install
        return VERSION


def _reinstall_command() -> str:
    return f"pip install --force-reinstall --no-deps {_requirement()}"


def warning() -> tuple[str, str] | None:
    """Return what is wrong and what to do where the other project is installed; None where it is not."""
    from importlib import metadata

    for distribution in metadata.distributions(name=_PACKAGE):
        if any(entry.value.startswith(_PROGRAM) for entry in distribution.entry_points):
            continue  # an older installation of this project
        return (
            f"the package {_PACKAGE} {distribution.version} of another project is installed here, in the same folder "
            f"as this one",
            f"pip uninstall {_PACKAGE}, then: {_reinstall_command()}",
        )
    return None


def replacement() -> tuple[str, str] | None:
    """Return what is wrong and what to do where our `__init__.py` is replaced or missing; else None.

    The usual answer takes no look at what is installed.
    """
    module = sys.modules[_PACKAGE]
    if getattr(module, "_MARKER", None) is MARKER:
        return None
    other = warning()
    detail = f": {other[0]}" if other else ""
    hint = other[1] if other else f"reinstall it: {_reinstall_command()}"
    if getattr(module, "__file__", None) is None:  # its removal took ours along
        return f"{_PACKAGE}/__init__.py is missing{detail}", hint
    return f"{_PACKAGE}/__init__.py belongs to another project{detail}", hint


def import_failure(error: BaseException) -> tuple[str, str] | None:
    """Return what is wrong and what to do for a module that cannot be imported; None for any other failure."""
    is_own_attribute = isinstance(error, AttributeError) and getattr(error.obj, "__name__", "") == _PACKAGE
    if not is_own_attribute and not isinstance(error, ImportError):
        return None
    name = _PACKAGE if is_own_attribute else str(getattr(error, "name", None) or "")
    if name.partition(".")[0] != _PACKAGE:
        return str(error), f"{install_command()} installs what it needs"
    if (other := warning()) is not None:
        return f"{error}: {other[0]}", other[1]
    return f"{error}: files of {NAME} are missing", _reinstall_command()
