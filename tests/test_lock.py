"""The locks of what CI installs fit what the project asks for. Skips where there is no lock (an installed sdist)."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TOP = Path(__file__).parent.parent
LOCK = TOP / ".ci" / "requirements.lock"
OTHERS = {"daft": TOP / ".ci" / "daft.lock", "ray": TOP / ".ci" / "ray.lock"}
"""The locks of extras that have an environment of their own."""
APART = {"pyarrow"}
"""What an extra needs in another version: Daft takes no pyarrow from 26 on."""


def wanted() -> list[tuple[Requirement, Path]]:
    """Each requirement, and the lock that has it."""
    said = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))
    project = said["project"]
    main = [*project["dependencies"], *said["build-system"]["requires"]]
    extras = [(r, OTHERS.get(extra, LOCK)) for extra, rs in project["optional-dependencies"].items() for r in rs]
    return [(Requirement(r), lock) for r, lock in [*((r, LOCK) for r in main), *extras]]


def versions(lock: Path) -> dict[str, str]:
    """The version of each package in a lock, of which each file has a hash."""
    text = re.sub(r"\s*\\\n\s*", " ", lock.read_text(encoding="utf-8"))
    assert "://" not in text.replace("# What", ""), "an address stands in the lock"
    locked: dict[str, str] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            pin, *hashes = line.split(" --hash=")
            name, _, version = pin.partition("==")
            assert version, f"{name} has no version"
            assert hashes, f"{name} has no hash"
            assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one.strip()) for one in hashes), name
            locked[canonicalize_name(name)] = version.partition(";")[0].strip()
    return locked


@pytest.mark.skipif(not LOCK.exists(), reason="the lock is not here: it belongs to the repository")
def test_every_dependency_is_locked_by_its_hash_at_a_version_that_is_allowed() -> None:
    locked = {lock: versions(lock) for lock in (LOCK, *OTHERS.values())}
    for requirement, lock in wanted():
        version = locked[lock].get(canonicalize_name(requirement.name), "none")
        assert version in requirement.specifier, f"{requirement}, but {lock.name} has {version}"


@pytest.mark.skipif(not LOCK.exists(), reason="the lock is not here: it belongs to the repository")
def test_the_locks_agree() -> None:
    main = versions(LOCK)
    for lock in OTHERS.values():
        both = {name: (version, main[name]) for name, version in versions(lock).items() if name in main}
        both = {name: pair for name, pair in both.items() if name not in APART}
        assert {name: pair for name, pair in both.items() if pair[0] != pair[1]} == {}
