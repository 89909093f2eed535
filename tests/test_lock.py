"""The lock of what CI installs fits what the project asks for. Skips where there is no lock (an installed sdist)."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TOP = Path(__file__).parent.parent
LOCK = TOP / ".ci" / "requirements.lock"
HEAVY = TOP / ".ci" / "long-extras.txt"


def wanted() -> list[Requirement]:
    said = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))
    project = said["project"]
    every = [*project["dependencies"], *(r for extra in project["optional-dependencies"].values() for r in extra)]
    return [Requirement(one) for one in [*every, *said["build-system"]["requires"]]]


@pytest.mark.skipif(not LOCK.exists(), reason="the lock is not here: it belongs to the repository")
def test_every_dependency_is_locked_by_its_hash_at_a_version_that_is_allowed() -> None:
    text = re.sub(r"\s*\\\n\s*", " ", LOCK.read_text(encoding="utf-8"))
    locked: dict[str, str] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            pin, *hashes = line.split(" --hash=")
            name, _, version = pin.partition("==")
            assert version, f"{name} has no version"
            assert hashes, f"{name} has no hash"
            assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one.strip()) for one in hashes), name
            locked[canonicalize_name(name)] = version.partition(";")[0].strip()
    for line in HEAVY.read_text(encoding="utf-8").splitlines():  # extras that .ci/long alone installs
        if line and not line.startswith("#"):
            name, _, version = line.partition("==")
            locked[canonicalize_name(name.partition("[")[0])] = version
    for requirement in wanted():
        version = locked.get(canonicalize_name(requirement.name), "none")
        assert version in requirement.specifier, f"{requirement}, but the lock has {version}"
    assert "://" not in text.replace("# What", ""), "an address stands in the lock"
