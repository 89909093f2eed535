"""The name under which pip installs this package, and the other project that PyPI has under the package's own name."""

from __future__ import annotations

from cnllm._version import VERSION

__all__ = ["NAME", "import_failure", "install_command", "installed_version", "warning"]

NAME = "cnllm-client"
"""The name of the distribution. PyPI's `cnllm` is another project, whose package has the same name."""

_PACKAGE = "cnllm"
_PROGRAM = "cnllm.cli:"  # the entry point of this project's command, which the other project has not


def install_command(extra: str | None = None) -> str:
    """Return the command that installs this package, with one of its extras."""
    return f"pip install {NAME}" if extra is None else f"pip install '{NAME}[{extra}]'"


def installed_version() -> str:
    """Return the version of this package."""
    from importlib import metadata

    try:
        return metadata.version(NAME)
    except metadata.PackageNotFoundError:  # it runs from a folder that pip did not install
        return VERSION


def warning() -> tuple[str, str] | None:
    """Return what is wrong and what to do where the other project is installed; None where it is not."""
    from importlib import metadata

    for distribution in metadata.distributions(name=_PACKAGE):
        if any(entry.value.startswith(_PROGRAM) for entry in distribution.entry_points):
            continue  # an older installation of this project
        return (
            f"the package {_PACKAGE} {distribution.version} of another project is installed here, in the same folder "
            f"as this one",
            f"pip uninstall {_PACKAGE}, then: pip install --force-reinstall --no-deps {NAME}",
        )
    return None


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
    return f"{error}: files of {NAME} are missing", f"pip install --force-reinstall --no-deps {NAME}"
