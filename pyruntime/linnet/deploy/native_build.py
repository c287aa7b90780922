"""Builds the native tools for a processor from the C sources that linnet's wheels carry, once: the results stay in the cache.
The compiler is zig's or one of the system."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from linnet._fetch import cache_dir, unpack, write_atomic
from linnet.clib.errors import Error, FileError
from linnet.deploy.machine import architecture
from linnet.deploy.processors import PROCESSORS, STATIC, TOOLS, gcc_options, gcc_package, zig_options


class _Compiler(NamedTuple):
    """name: for messages. options: CMake's, for sources in a given folder."""

    name: str
    options: Callable[[Path], list[str]]


def build(archive: Path, folder: Path, arch: str, show: Callable[[str], None]) -> None:
    """Builds the tools into FOLDER/bin, where FOLDER does not exist yet. archive: the C sources. show: called with a
    line that says what is done. Raises FileError if a compiler or CMake is missing. Raises Error if the build fails."""
    compiler, cmake = _compiler(arch), _program("cmake")
    if compiler is None or cmake is None:
        raise _missing(arch, compiler)
    show(f"building the tools for {arch} with {compiler.name} in {folder}: a minute or two, once")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".build-") as scratch:
        sources, made, out = (Path(scratch, name) for name in ("sources", "made", "out"))
        unpack(archive, sources)
        words = [*STATIC, "-DLINNET_TESTS=OFF", "-DLINNET_INSTALL=OFF", *compiler.options(sources)]
        if ninja := _program("ninja"):
            words += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
        targets = [word for tool in TOOLS for word in ("--target", tool)]
        _run([cmake, "-S", str(sources), "-B", str(made), *words], arch, scratch)
        _run([cmake, "--build", str(made), "-j", str(os.cpu_count() or 1), *targets], arch, scratch)
        (out / "bin").mkdir(parents=True)
        for tool in TOOLS:
            shutil.copy2(made / tool, out / "bin" / tool)
        with contextlib.suppress(OSError):  # another process was faster
            out.rename(folder)


def _compiler(arch: str) -> _Compiler | None:
    """The best compiler that is installed: zig's, whose static programs run on any Linux, then GCC."""
    processor = PROCESSORS[arch]
    if zig := _zig():
        return _Compiler("zig", lambda sources: zig_options(sources, zig, processor.musl, processor.cpu))
    if processor.gcc and shutil.which(processor.gcc[0] + "gcc"):
        return _Compiler(processor.gcc[0] + "gcc", lambda sources: gcc_options(sources, processor.gcc))
    own = architecture(platform.machine(), 64 if sys.maxsize > 2**32 else 32)
    if own == arch and (program := shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")):
        return _Compiler(program, lambda sources: [f"-DCMAKE_C_COMPILER={program}"])
    return None


def _zig() -> Path | None:
    """zig's program: of the package ziglang, or of the system."""
    package = importlib.util.find_spec("ziglang")
    if package is not None and package.origin is not None:
        return Path(package.origin).parent / "zig"
    found = shutil.which("zig")
    return Path(found) if found else None


def _program(name: str) -> str | None:
    """A program of the system, or of a package that is installed beside this Python, whose folder need not be in PATH."""
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))


def _missing(arch: str, compiler: _Compiler | None) -> FileError:
    prefix = PROCESSORS[arch].gcc[:1]
    packages = [*(gcc_package(word) for word in prefix if compiler is None), "cmake"]
    return FileError(
        f"there are no tools for {arch}, and they cannot be built", code=201,
        expected="CMake, and a C compiler for it: " + " or ".join(["zig", *(word + "gcc" for word in prefix)]),
        got=f"{compiler.name}, but no CMake" if compiler else "no such compiler",
        hint="pip install 'linnet-runtime[deploy]'"
        + (f", or apt-get install {' '.join(packages)}" if prefix or compiler else ""),
    )  # fmt: skip


def _run(command: list[str], arch: str, scratch: str) -> None:
    """Runs a command of the build. If this process is interrupted, no process of the build goes on."""
    caches = {"ZIG_GLOBAL_CACHE_DIR": f"{scratch}/zig", "ZIG_LOCAL_CACHE_DIR": f"{scratch}/zig"}
    process = subprocess.Popen(
        command, env={**os.environ, **caches}, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        text = process.communicate()[0].decode(errors="replace")
    except BaseException:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if process.returncode == 0:
        return
    log = write_atomic(cache_dir() / "targets" / f"{arch}.log", text.encode())
    lines = [line for line in text.splitlines() if line.strip()]
    faults = [line for line in lines if "error" in line.lower()] or lines
    raise Error(
        f"the tools for {arch} cannot be built", code=301, expected="a compiler that builds linnet's C sources",
        got=" | ".join(line.strip() for line in faults[-2:]) or f"exit status {process.returncode}",
        hint=f"read {log}, or set the environment variable LINNET_TARGETS to a folder that has {arch}/TOOL",
    )  # fmt: skip
