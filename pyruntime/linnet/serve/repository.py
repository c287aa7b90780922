"""The models of a server: found in folders, loaded within the memory that is allowed, exchanged when their files change.
Everything here runs in the event loop's thread, except loading and closing."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from linnet.clib.errors import Error, GraphError, UsageError
from linnet.serve.load import Loaded, load, read_file
from linnet.serve.settings import Refused, Settings
from linnet.serve.stats import Stats

log = logging.getLogger("linnet.serve")
_TOO_LARGE = 306
_IDLE = 1.0  # seconds without a request after which a model counts as idle
Stamp = tuple[int, int, int]


@dataclasses.dataclass
class Version:
    """One version of a model. state: as the protocol names it. stamp: of the file that was loaded last, or tried. asleep:
    unloaded to make room; the next request loads it. unloaded: a client has unloaded it."""

    name: str
    version: str
    path: Path
    state: str = "UNAVAILABLE"
    reason: str = "not loaded yet"
    loaded: Loaded | None = None
    stamp: Stamp | None = None
    asleep: bool = False
    unloaded: bool = False
    stats: Stats = dataclasses.field(default_factory=Stats)

    @property
    def label(self) -> str:
        return f"{self.name}/{self.version}"


def scan(sources: Sequence[Path]) -> dict[tuple[str, str], Path]:
    """{(name, version): file}. A source is a .lnt file, or a folder with NAME.lnt, NAME/VERSION.lnt or
    NAME/VERSION/ANY.lnt; versions are numbers, and a file without one is version 1. Raises UsageError."""
    found: dict[tuple[str, str], Path] = {}

    def add(name: str, version: str, path: Path) -> None:
        other = found.setdefault((name, version), path)
        if other != path:
            raise UsageError(
                f"two files are version {version} of model {name!r}", code=101, tensor=name, got=f"{other} and {path}",
                hint="rename one of them",
            )  # fmt: skip

    for source in sources:
        if source.is_dir():
            for path in sorted(source.glob("*.lnt")):
                add(path.stem, "1", path)
            for path in sorted([*source.glob("*/*.lnt"), *source.glob("*/*/*.lnt")]):
                name, *rest = path.relative_to(source).parts
                version = Path(rest[0]).stem if len(rest) == 1 else rest[0]
                if version.isascii() and version.isdigit():
                    add(name, str(int(version)), path)
        elif source.exists():
            add(source.stem, "1", source)
        else:
            raise UsageError(f"there is no model '{source}'", code=201, tensor=str(source), hint="check the path")
    return found


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class Repository:
    """The versions of all models. `start` loads them, `watch` follows their files, `close` ends them."""

    def __init__(self, sources: Sequence[Path], settings: Settings) -> None:
        self.settings, self._sources = settings, list(sources)
        self.versions: dict[str, dict[str, Version]] = {}
        self.decoders = asyncio.Semaphore(2)  # photos at once: one takes much more memory than its file
        self._lock = asyncio.Lock()  # one version is loaded at a time
        for (name, version), path in scan(self._sources).items():
            self._add(name, version, path)

    def _add(self, name: str, version: str, path: Path) -> Version:
        made = self.versions.setdefault(name, {})[version] = Version(name, version, path)
        return made

    def all(self) -> list[Version]:
        return [version for versions in self.versions.values() for version in versions.values()]

    @property
    def bytes(self) -> int:
        """What all loaded versions take at most."""
        return sum(version.loaded.bytes for version in self.all() if version.loaded is not None)

    async def start(self) -> None:
        """Loads every version. What cannot be loaded is logged, and stays unavailable with the reason."""
        if not self.all():
            log.warning("there is no model yet", extra={"in": " ".join(map(str, self._sources))})
        for version in self.all():
            await self._load(version, make_room=False)

    async def close(self) -> None:
        """Answers all requests that wait, and frees the models."""
        for version in self.all():
            await self._release(version, "the server ends")

    def find(self, name: str, version: str = "") -> Version:
        """A version; "": the highest that is ready, or else the highest. Raises Refused (404)."""
        versions = self.versions.get(name)
        if not versions:
            names = ", ".join(self.versions) or "none"
            raise Refused(404, f"there is no model named {name!r}; the models are {names}")
        if version:
            if version not in versions:
                raise Refused(404, f"model {name!r} has no version {version!r}; it has {', '.join(versions)}")
            return versions[version]
        ready = [one for one in versions.values() if one.loaded is not None or one.asleep]
        return max(ready or versions.values(), key=lambda one: int(one.version))

    async def ready(self, name: str, version: str = "") -> tuple[Version, Loaded]:
        """A version that is loaded, which one without memory becomes first if it was asleep. Raises Refused. Between this
        and `Lane.submit` there must be no await, because the version may be exchanged then."""
        while True:
            found = self.find(name, version)
            if found.loaded is not None:
                return found, found.loaded
            if not found.asleep:
                raise Refused(503, f"model {found.label!r} is not ready: {found.reason}", [(b"retry-after", b"5")])
            await self._load(found, make_room=True)
            if found.loaded is None:
                raise Refused(503, f"model {found.label!r} is not ready: {found.reason}", [(b"retry-after", b"5")])

    def index(self) -> list[dict[str, Any]]:
        return [
            {
                "name": one.name, "version": one.version, "state": one.state, "reason": one.reason,
                "bytes": one.loaded.bytes if one.loaded is not None else 0,
            }
            for one in self.all()
        ]  # fmt: skip

    async def load(self, name: str) -> None:
        """What a client asks for: loads all versions of a model again. Raises Refused."""
        self._look()
        self.find(name)
        for version in list(self.versions[name].values()):
            version.unloaded = False
            await self._load(version, make_room=True, again=True)
        failed = [one for one in self.versions.get(name, {}).values() if one.reason]
        if failed:
            raise Refused(400, f"failed to load {failed[0].label!r}: {failed[0].reason}")

    async def unload(self, name: str) -> None:
        """What a client asks for: frees all versions of a model, once they have answered. Raises Refused."""
        self.find(name)
        for version in list(self.versions[name].values()):
            version.unloaded, version.asleep = True, False
            async with self._lock:
                await self._release(version, "unloaded")

    def _room(self) -> int | None:
        return self.settings.max_bytes - self.bytes if self.settings.max_bytes else None

    async def _load(self, version: Version, make_room: bool, again: bool = False) -> None:
        """Loads or exchanges a version. If that fails, what is loaded stays, and `reason` says why. make_room: idle models
        may be unloaded for it. again: even if it is loaded by now."""
        async with self._lock:
            if make_room and not again and version.loaded is not None:
                return  # another request has loaded it
            if version.loaded is None:
                version.state, version.reason = "LOADING", ""
            version.stamp = _stamp(version.path)
            try:
                made = await self._made(version, make_room)
            except (Error, OSError, MemoryError) as error:
                fits_later = isinstance(error, GraphError) and error.code == _TOO_LARGE and self.settings.unload_idle
                version.reason = str(error) or "out of memory"
                if version.loaded is None:
                    version.state, version.asleep = "UNAVAILABLE", fits_later
                log.error(
                    "model cannot be loaded",
                    extra={"model": version.label, "file": str(version.path), "reason": version.reason},
                )
                return
            old, version.loaded = version.loaded, made
            version.state, version.reason, version.asleep = "READY", "", False
            log.info(
                "model loaded" if old is None else "model exchanged",
                extra={
                    "model": version.label, "bytes": made.bytes, "seconds": round(made.seconds, 3),
                    "signature": made.signature, "batches": list(made.batches), "unbounded": made.unbounded,
                },
            )  # fmt: skip
            if old is not None:
                await asyncio.to_thread(old.lane.close)

    async def _made(self, version: Version, make_room: bool) -> Loaded:
        content = await asyncio.to_thread(read_file, version.path)
        while True:
            try:
                return await asyncio.to_thread(load, content, self.settings, self._room())
            except GraphError as error:
                if error.code != _TOO_LARGE or not (make_room and self.settings.unload_idle):
                    raise
                idle = self._longest_idle(version)
                if idle is None:
                    raise
                log.info("model unloaded to make room", extra={"model": idle.label, "for": version.label})
                idle.asleep = True
                await self._release(idle, "unloaded to make room; a request loads it again")

    def _longest_idle(self, but: Version) -> Version | None:
        now = time.monotonic()
        idle = [
            (one.loaded.used, one.label, one)
            for one in self.all()
            if one is not but and one.loaded is not None and not one.loaded.busy and now - one.loaded.used >= _IDLE
        ]
        return min(idle, key=lambda each: each[:2])[2] if idle else None

    async def _release(self, version: Version, reason: str) -> None:
        old, version.loaded = version.loaded, None
        version.state, version.reason = "UNAVAILABLE", reason
        if old is not None:
            await asyncio.to_thread(old.lane.close)

    def _look(self) -> list[Version]:
        """Follows the folders: returns the versions whose files are new or have changed."""
        try:
            found = scan([source for source in self._sources if source.exists()])
        except UsageError as error:
            log.error("the models cannot be listed", extra={"reason": str(error)})
            return []
        for (name, version), path in found.items():
            have = self.versions.get(name, {}).get(version)
            if have is None:
                self._add(name, version, path)
            else:
                have.path = path
        return [
            one for one in self.all()
            if (one.name, one.version) in found and not one.unloaded and (s := _stamp(one.path)) is not None and s != one.stamp
        ]  # fmt: skip

    async def look(self) -> None:
        """Loads what is new or has changed, and frees what is gone."""
        for version in self._look():
            await self._load(version, make_room=False)
        for version in self.all():
            if _stamp(version.path) is None:
                async with self._lock:
                    await self._release(version, "the file is gone")
                del self.versions[version.name][version.version]
                if not self.versions[version.name]:
                    del self.versions[version.name]
                log.info("model gone", extra={"model": version.label})

    async def watch(self, every: float) -> None:
        """Looks at the files again and again."""
        while True:
            await asyncio.sleep(every)
            try:
                await self.look()
            except Exception:  # whatever it is, the models that are loaded serve on
                log.exception("the models' files cannot be followed")
