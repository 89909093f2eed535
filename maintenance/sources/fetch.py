"""Get a source, from the cache or from where it is published."""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from maintenance.sources.archive import LARGEST_FILE, open_archive
from maintenance.sources.location import Location

__all__ = ["Fetcher", "Unreachable"]

HERE = Path(__file__).resolve().parent
_SECONDS = 300


class Unreachable(Exception):
    """A source that cannot be had here."""


class Fetcher:
    """Get sources once each.

    The folder of the cache holds packages as their clients save them, clones of repositories at `OWNER/NAME` under
    `repositories`, single files at `OWNER/NAME@COMMIT/PATH` under `files`, and pages under `pages`. What it lacks is
    downloaded into it, unless `offline`.
    """

    def __init__(self, cache: Path, *, offline: bool = False) -> None:
        self._cache, self._offline = cache, offline
        self._addresses = tomllib.loads((HERE / "catalogues.toml").read_text(encoding="utf-8"))["addresses"]
        self._hosts: dict[str, str] = {}
        self._outcome = functools.cache(self._outcome_of)

    def files(self, location: Location) -> Mapping[str, bytes]:
        """Return the files of a source by path; those of a page or a thread under "". Raises `Unreachable`.

        Of a repository only those below the location's `path` are sure to be there. What could not be had is not tried
        again, nor is another address of a host with which no connection came about.
        """
        outcome = self._outcome(location)
        if isinstance(outcome, str):
            raise Unreachable(outcome)
        return outcome

    def _outcome_of(self, location: Location) -> Mapping[str, bytes] | str:
        """Return the files of a source, or why they cannot be had."""
        try:
            return self._files(location)
        except Unreachable as error:
            return str(error)

    def _files(self, location: Location) -> Mapping[str, bytes]:
        """Return the files of a source. Raises `Unreachable`."""
        try:
            if location.kind in ("npm", "pypi"):
                return open_archive(self._package(location), root=1 if location.kind == "npm" else 0)
            if location.kind == "repository":
                return self._repository(location)
            if location.kind in ("page", "thread"):
                url = location.name
                if location.kind == "thread":
                    url = self._addresses["thread"].format(name=location.name, number=location.version)
                return {"": self._download(url, self._cache / "pages" / quote(url, safe="")[:200]).read_bytes()}
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise Unreachable(str(error)) from error
        raise Unreachable("not an address")

    def _package(self, location: Location) -> Path:
        """Return the archive of a package, which its registry's own client downloads without running anything of it."""
        folder = self._cache / "packages"
        if location.kind == "npm":
            stem = location.name.removeprefix("@").replace("/", "-")
            pattern = f"{stem}-{location.version}.tgz" if location.version else f"{stem}-[0-9]*.tgz"
            at = f"@{location.version}" if location.version else ""
            command = ["npm", "pack", "--silent", "--ignore-scripts", f"{location.name}{at}"]
        else:
            stem = location.name.replace("-", "_")
            pattern = f"{stem}-{location.version or '[0-9]'}*.whl"
            at = f"=={location.version}" if location.version else ""
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--ignore-requires-python"]
            command += ["--only-binary=:all:", f"{location.name}{at}"]  # pip runs a source package to learn its name
        for _ in range(2):
            if found := sorted(folder.glob(pattern)):
                return found[-1]
            if self._offline:
                break
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as inbox:  # half a download must not look like a whole one
                if subprocess.run(command, capture_output=True, cwd=inbox, timeout=_SECONDS).returncode:
                    break
                for file in Path(inbox).iterdir():
                    file.replace(folder / file.name)
        raise Unreachable(
            "not in the cache" if self._offline else f"{location.kind} has no such package for this system"
        )

    def _repository(self, location: Location) -> Mapping[str, bytes]:
        """Return the files of a commit: from a clone, from single files, or from the archive of the commit."""
        name = f"{location.name.replace('/', '+')}@{location.version}"
        clone = self._cache / "repositories" / location.name
        if clone.exists():
            name += quote(f":{location.path}", safe="")  # the largest files of a clone may be missing
            file = self._cache / "packages" / f"{name}.tar"
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                part = file.with_name(f"{name}.part")
                command = ["git", "-C", str(clone.resolve()), "archive", "--format=tar", "--prefix=files/"]
                command += ["--output", str(part.resolve()), location.version or "HEAD"]
                command += ["--", location.path] if location.path else []
                try:
                    if subprocess.run(command, capture_output=True, timeout=_SECONDS).returncode:
                        raise Unreachable("the clone lacks the commit, the file or a part of it")
                    part.replace(file)
                finally:
                    part.unlink(missing_ok=True)
            return open_archive(file, root=1)
        folder = self._cache / "files" / f"{location.name}@{location.version}"
        if folder.is_dir():
            return {f.relative_to(folder).as_posix(): f.read_bytes() for f in folder.rglob("*") if f.is_file()}
        url = self._addresses["commit"].format(name=location.name, commit=location.version or "HEAD")
        return open_archive(self._download(url, self._cache / "packages" / f"{name}.tar.gz"), root=1)

    def _download(self, url: str, file: Path) -> Path:
        """Return the file with the content of an address, downloaded where it is not in the cache."""
        if file.exists():
            return file
        if self._offline:
            raise Unreachable("not in the cache")
        import httpx

        host = httpx.URL(url).host
        if host in self._hosts:
            raise Unreachable(self._hosts[host])
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(file.name[:180] + ".part")
        try:
            with httpx.stream("GET", url, follow_redirects=True, timeout=20) as answer, part.open("wb") as out:
                answer.raise_for_status()
                size = 0
                for chunk in answer.iter_bytes():
                    size += len(chunk)
                    if size > LARGEST_FILE:
                        raise Unreachable(f"larger than {LARGEST_FILE} bytes")
                    out.write(chunk)
            part.replace(file)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
            self._hosts[host] = f"no connection: {error or type(error).__name__}"
            raise Unreachable(self._hosts[host]) from error
        except httpx.HTTPStatusError as error:
            raise Unreachable(f"status {error.response.status_code}") from error
        except httpx.HTTPError as error:
            raise Unreachable(str(error) or type(error).__name__) from error
        finally:
            part.unlink(missing_ok=True)
        return file
