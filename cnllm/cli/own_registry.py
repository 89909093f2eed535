"""Find and change the user's own registry file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from cnllm.cli.output import errors

__all__ = ["change_file", "default_file", "is_among"]


def default_file(files: Sequence[str]) -> Path:
    """Return the file to write to: the last one in use, else providers.toml in the config folder."""
    from cnllm.config import paths

    return Path(files[-1]) if files else paths.config_dir() / "providers.toml"


def is_among(path: Path, files: Sequence[str]) -> bool:
    """Whether a path is one of these files."""
    return any(Path(name).resolve() == path.resolve() for name in files)


def change_file(change: Callable[[str, str], str], path: Path | None = None) -> Path:
    """Change the text of a registry file, the user's own by default, and return its path.

    `change` takes the text and the file's name. The file is replaced in one step, and only if it has no new fault.
    """
    from cnllm.registry.read import overlay_paths
    from cnllm.registry.trusted_files import is_trusted
    from cnllm.registry_files.edit import change_registry_file

    in_use = [str(name) for name in overlay_paths()]
    place = path or default_file(in_use)
    ends_trust = False

    def rewrite(old: str) -> str:
        nonlocal ends_trust
        text = change(old, str(place))
        ends_trust = text != old and is_trusted(place, old.encode())
        return text

    try:
        change_registry_file(place, rewrite, in_use)
    except UnicodeDecodeError:
        raise errors.UsageError(f"{place} is not UTF-8", "save it as UTF-8; nothing was written") from None
    if ends_trust:
        errors.print_error(f"{place} has changed since you trusted it", f"trust it again: cnllm registry trust {place}")
    return place
