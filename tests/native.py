"""Builds the C library, its tools and its tests, in one folder per configuration that is kept between test runs.
`build("release")` and so on return the folder. If a tool is missing, the skip message names it.
`python -m tests.native KIND...` builds before the tests start."""

from __future__ import annotations

import fcntl
import functools
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tree import NATIVE, ROOT

BUILDS = ROOT / "build-tests"
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
    "arm-linux-gnueabihf-gcc": "gcc-arm-linux-gnueabihf libc6-dev-armhf-cross",
    "aarch64-linux-gnu-objdump": "binutils-aarch64-linux-gnu",
    "qemu-aarch64": "qemu-user",
    "qemu-riscv64": "qemu-user",
    "/lib/ld-musl-x86_64.so.1": "musl",
    "qemu-arm": "qemu-user",
    "ssh": "openssh-client",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
}
# A finding of a sanitizer ends the program; leaks count too.
SANITIZED = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:exitcode=99",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=99",
}


def need(*tools: str) -> None:
    """Skips the test if a tool is missing, and says how to install it."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        packages = " ".join(_PACKAGES.get(tool, tool) for tool in missing)
        pytest.skip(f"missing: {', '.join(missing)}; get it with: apt-get install {packages}")


@dataclass(frozen=True)
class _Kind:
    """A configuration: CMake's arguments and the tools it needs."""

    arguments: tuple[str, ...]
    tools: tuple[str, ...]


# Neither compiler includes float-cast-overflow (a float that does not fit the integer type) in -fsanitize=undefined.
_UNDEFINED = "address,undefined,float-cast-overflow"
_RELEASE = {  # as they are shipped, with link-time optimization: the parts, whose sizes are measured
    "aarch64": _Kind(
        (f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/runtime_c/toolchains/gcc.cmake",), ("cmake", "aarch64-linux-gnu-gcc")
    ),
    platform.machine(): _Kind(("-DCMAKE_BUILD_TYPE=Release",), ("cmake", "cc")),
}
_QUICK = "-DLINNET_LTO=OFF"  # links in a second, not in 18
_KINDS = {
    "release": _Kind(("-DCMAKE_BUILD_TYPE=Release", _QUICK), ("cmake", "cc")),
    "address": _Kind((f"-DLINNET_SANITIZE={_UNDEFINED}",), ("cmake", "cc")),
    # Clang's and GCC's sanitizers find different faults: arithmetic on NULL, calls through another type.
    "address-clang": _Kind(
        (f"-DLINNET_SANITIZE={_UNDEFINED}", "-DCMAKE_C_COMPILER=clang"),
        ("cmake", "clang"),
    ),
    "thread": _Kind(("-DLINNET_SANITIZE=thread",), ("cmake", "cc")),
    "deploy-aarch64": _Kind(  # static tools, as `linnet deploy` sends them
        (
            f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/runtime_c/toolchains/gcc.cmake",
            _QUICK,
            "-DCMAKE_EXE_LINKER_FLAGS=-static",
            *(f"-DLINNET_{part}=OFF" for part in ("TESTS", "OPENCL", "MEDIA")),
        ),
        ("cmake", "aarch64-linux-gnu-gcc"),
    ),
    "aarch64": _Kind(
        (f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/runtime_c/toolchains/gcc.cmake", _QUICK), ("cmake", "aarch64-linux-gnu-gcc")
    ),
    "armv7": _Kind(  # as pyruntime/linnet/deploy/processors.py has it, which tests may not yet find
        (
            f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/runtime_c/toolchains/gcc.cmake",
            "-DLINNET_GCC=arm-linux-gnueabihf-;-march=armv7-a;-mfpu=neon;-mthumb",
            _QUICK,
        ),
        ("cmake", "arm-linux-gnueabihf-gcc"),
    ),
}
# The tests that every change must pass take the first of each; `make test-more` takes the others too. Every sanitizer and every
# processor finds something that the others do not.
SANITIZERS = ["address", pytest.param("address-clang", marks=pytest.mark.more)]
ARM_CPUS = ["cortex-a53", pytest.param("max", marks=pytest.mark.more)]
ISAS = {"x86_64": ("sse42", "avx2", "avx512", "avx512vnni"), "aarch64": ("crc", "dotprod", "i8mm", "fp16", "bf16")}


PARTS = ("training", "checkpoints", "tuning", "devices", "user_ops")


def _without(part: str) -> str:
    return f"-DLINNET_{part.upper()}=OFF"


def parts(machine: str = platform.machine()) -> dict[str, tuple[str, ...]]:
    """Builds of liblinnet alone that leave parts out (docs/building.md): name and CMake's options. Those of another machine
    have its name in front of theirs."""
    isas = ISAS.get(machine, ())
    lean = tuple(map(_without, ("tuning", "devices", "user_ops")))
    options = {
        "everything": (),
        "baseline": ("-DLINNET_ISAS=", *lean),
        **{isa: (f"-DLINNET_ISAS={isa}", *lean) for isa in isas},
        "no_training": ("-DLINNET_TRAINING=OFF",),
        "no_checkpoints": ("-DLINNET_CHECKPOINTS=OFF",),
        **{f"no_{part}": (_without(part),) for part in PARTS},
        "inference": (f"-DLINNET_ISAS={isas[1] if isas else ''}", *(_without(part) for part in PARTS)),
        "smallest": ("-DLINNET_ISAS=", *(_without(part) for part in PARTS)),
    }
    cross = "" if machine == platform.machine() else f"{machine}_"
    return {cross + name: words for name, words in options.items()}


for _machine in {platform.machine(), "aarch64"}:
    _base = _RELEASE[_machine]
    for _name, _options in parts(_machine).items():
        _KINDS[_name] = _Kind((*_base.arguments, "-DLINNET_SYNC=OFF", "-DLINNET_TESTS=OFF", *_options), _base.tools)


@functools.cache
def build(kind: str, *targets: str) -> Path:
    """Builds a configuration (all targets, unless some are named) and returns its folder.

    Skips if a tool is missing; fails with the compiler's output if the build fails.
    """
    need(*_KINDS[kind].tools)
    folder = NATIVE if kind == "release" else BUILDS / kind
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # parallel test processes share the folder
        return _build(kind, folder, targets)


def _build(kind: str, folder: Path, targets: tuple[str, ...]) -> Path:
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    words, made = "\n".join(_KINDS[kind].arguments), folder / ".arguments"
    if not made.exists() or made.read_text() != words or not (folder / "CMakeCache.txt").exists():
        (folder / "CMakeCache.txt").unlink(missing_ok=True)  # it would keep options of another kind
        strict = f"-DLINNET_WERROR={os.environ.get('LINNET_WERROR', 'ON')}"  # a mutation may leave a variable unused
        run(["cmake", "-S", str(ROOT), "-B", str(folder), strict, *generator, *_KINDS[kind].arguments])
        made.write_text(words)
    jobs = str(os.cpu_count() or 2)
    names = [word for target in targets for word in ("--target", target)]
    run(["cmake", "--build", str(folder), "-j", jobs, *names])
    return folder


def run(
    command: list[str],
    *,
    cwd: Path | None = None,
    timeout: float = 900,
    status: int = 0,
    env: dict[str, str] | None = None,
) -> str:
    """Returns the command's standard output. On another exit status, fails the test with all output."""
    done = subprocess.run(
        command,
        cwd=cwd,
        timeout=timeout,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        errors="replace",
    )
    if done.returncode != status:
        lines = (done.stdout + done.stderr).splitlines()
        text = "\n".join(line for line in lines if not line.startswith("["))[-6000:]  # omits ninja's progress
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
    """The command that runs a C test. Tests with random cases get the number of rounds (ten times as many with LINNET_SOAK)."""
    repeats = "argc > 1 ? atoi(argv[1])" in (ROOT / "tests" / "c" / f"{name}.c").read_text()
    return [str(folder / name), *([str(rounds * (10 if os.environ.get("LINNET_SOAK") else 1))] if repeats else [])]


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        begun = time.monotonic()
        try:
            build(wanted)
            print(f"built {wanted} in {time.monotonic() - begun:.0f} s", flush=True)
        except pytest.skip.Exception as missing:  # the tests that need it say so too
            print(f"not built: {wanted}: {missing}", flush=True)
        except pytest.fail.Exception as failure:
            sys.exit(f"{wanted}: {failure}")
