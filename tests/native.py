"""Builds of the C library, its tools and its tests, one folder per configuration, kept between test runs.
`build("release")` and so on give the folder; what is missing on the machine is said in the skip message."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILDS = Path(os.environ.get("LINNET_TEST_BUILDS", ROOT / "build-tests"))
_PACKAGES = {
    "cmake": "cmake",
    "cc": "gcc",
    "clang": "clang libclang-rt-14-dev",
    "g++": "g++",
    "flatc": "flatbuffers-compiler",
    "openssl": "openssl",
    "objdump": "binutils",
    "strip": "binutils",
    "nm": "binutils",
    "readelf": "binutils",
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    "aarch64-linux-gnu-objdump": "binutils-aarch64-linux-gnu",
    "qemu-aarch64": "qemu-user",
}
# What a sanitizer found ends the program, and a leak counts.
SANITIZED = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:exitcode=99",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=99",
}


def need(*tools: str) -> None:
    """Skips the test, with the words to install them, when a tool is missing."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        packages = " ".join(_PACKAGES.get(tool, tool) for tool in missing)
        pytest.skip(f"missing: {', '.join(missing)}; get it with: apt-get install {packages}")


@dataclass(frozen=True)
class _Kind:
    """A configuration: CMake's arguments and the tools that it needs."""

    arguments: tuple[str, ...]
    tools: tuple[str, ...]


# Neither compiler counts a float that no integer of its type can hold among what is undefined.
_UNDEFINED = "address,undefined,float-cast-overflow"
_KINDS = {
    "release": _Kind(("-DCMAKE_BUILD_TYPE=Release",), ("cmake", "cc")),
    # -O1: sanitized code at -O2 takes twice as long to build and finds the same.
    "address": _Kind((f"-DLINNET_SANITIZE={_UNDEFINED}", "-DCMAKE_C_FLAGS_RELEASE=-O1"), ("cmake", "cc")),
    # Clang's sanitizers see what GCC's do not, and the other way round: arithmetic on NULL, calls by another type.
    "address-clang": _Kind(
        (f"-DLINNET_SANITIZE={_UNDEFINED}", "-DCMAKE_C_FLAGS_RELEASE=-O1", "-DCMAKE_C_COMPILER=clang"),
        ("cmake", "clang"),
    ),
    "thread": _Kind(("-DLINNET_SANITIZE=thread", "-DCMAKE_C_FLAGS_RELEASE=-O1"), ("cmake", "cc")),
    "aarch64": _Kind((f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/.ci/aarch64.cmake",), ("cmake", "aarch64-linux-gnu-gcc")),
}


@functools.cache
def build(kind: str, *targets: str) -> Path:
    """The build folder of a configuration, brought up to date (all targets unless some are named).

    Skips when a tool is missing; fails with the compiler's output when the build does.
    """
    need(*_KINDS[kind].tools)
    folder = BUILDS / kind
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test processes side by side share the folder
        return _build(kind, folder, targets)


def _build(kind: str, folder: Path, targets: tuple[str, ...]) -> Path:
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    if not (folder / "CMakeCache.txt").exists():
        run(["cmake", "-S", str(ROOT), "-B", str(folder), *generator, *_KINDS[kind].arguments])
    jobs = str(os.cpu_count() or 2)
    names = [word for target in targets for word in ("--target", target)]
    run(["cmake", "--build", str(folder), "-j", jobs, *names])
    return folder


def run(
    command: list[str],
    *,
    cwd: Path | None = None,
    timeout: float = 600,
    status: int = 0,
    env: dict[str, str] | None = None,
) -> str:
    """The command's standard output; fails the test, with all that it wrote, on another exit status."""
    done = subprocess.run(
        command,
        cwd=cwd,
        timeout=timeout,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        errors="replace",
    )
    if done.returncode != status:
        lines = (done.stdout + done.stderr).splitlines()
        text = "\n".join(line for line in lines if not line.startswith("["))[-6000:]  # without ninja's progress
        pytest.fail(
            f"exit status {done.returncode}, expected {status}: {' '.join(map(str, command))}\n{text}", pytrace=False
        )
    return done.stdout


def c_tests() -> list[str]:
    """Names of the C test programs."""
    return sorted(path.stem for path in (ROOT / "tests" / "c").glob("test_*.c"))


def compile_c(sources: list[Path], out: Path, *options: str, compiler: str = "cc") -> Path:
    """Compiles and links a program or, with -shared among the options, a library."""
    need(compiler)
    run([compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", *map(str, sources), "-o", str(out), *options])
    return out


def c_test(folder: Path, name: str, rounds: int) -> list[str]:
    """The command that runs a C test; those that repeat random cases take the number of rounds (ten times with LINNET_SOAK)."""
    repeats = "argc > 1 ? atoi(argv[1])" in (ROOT / "tests" / "c" / f"{name}.c").read_text()
    return [str(folder / name), *([str(rounds * (10 if os.environ.get("LINNET_SOAK") else 1))] if repeats else [])]
