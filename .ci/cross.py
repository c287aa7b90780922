#!/usr/bin/env python3
"""Builds the library and the static tools for another processor: `make cross TARGET=armv7`. zig's C compiler brings the C
libraries of all targets; COMPILER=gcc takes the compilers of the system. docs/building.md says what comes out."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent

# Loaded by its path, because the package linnet needs packages that `make cross` does not install.
_SPEC = importlib.util.spec_from_file_location("processors", ROOT / "pyruntime" / "linnet" / "deploy" / "processors.py")
assert _SPEC is not None and _SPEC.loader is not None
processors = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(processors)
TARGETS, TOOLS = processors.PROCESSORS, processors.TOOLS

LIBRARIES = ("linnet", "linnet_static", "linnet_sync", "linnet_sync_static", "linnet_opencl", "linnet_remote")
WITH_CUDA = ("x86_64", "aarch64")  # as in CMakeLists.txt: 64-bit Linux, where NVIDIA has drivers
ANDROID_API = 30  # Android 11; aligned_alloc alone needs 28


def fail(text: str, who: str = "make cross") -> NoReturn:
    sys.exit(f"{who}: {text}")


def run(*command: str, env: Mapping[str, str] | None = None) -> None:
    """Runs a command; prints what it printed, but for ninja's progress, only if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=env)
    if done.returncode:
        print("\n".join(line for line in done.stdout.splitlines() if not line.startswith("[")), file=sys.stderr)
        fail(f"exit status {done.returncode} of: {' '.join(command)}")


def build(folder: Path, targets: Sequence[str], jobs: str, *options: str) -> None:
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    run("cmake", "-S", str(ROOT), "-B", str(folder), *generator, "-DLINNET_WERROR=ON", "-DLINNET_LTO=OFF", *options)
    words = [word for target in targets for word in ("--target", target)]
    run("cmake", "--build", str(folder), "-j", jobs, *words)


def zig(triple: str, cpu: str) -> list[str]:
    """CMake's options for zig's compiler."""
    package = importlib.util.find_spec("ziglang")
    if package is None or package.origin is None:
        fail("the package ziglang is not installed; run: pip install ziglang")
    program = Path(package.origin).parent / "zig"
    return processors.zig_options(ROOT, program, triple, cpu)


def gcc(name: str) -> list[str]:
    """CMake's options for GCC of the system."""
    words = TARGETS[name].gcc
    if not words:
        fail(f"no GCC is known that compiles for {name}; leave COMPILER=gcc out, and zig's compiler does")
    if shutil.which(words[0] + "gcc") is None:
        package = processors.gcc_package(words[0])
        fail(f"{words[0]}gcc is not installed; leave COMPILER=gcc out, or run: apt-get install {package}")
    return processors.gcc_options(ROOT, words)


def ndk(name: str) -> list[str]:
    """CMake's options for Android's native development kit; none if there is none here."""
    folder = os.environ.get("ANDROID_NDK", "")
    file = Path(folder) / "build" / "cmake" / "android.toolchain.cmake"
    if not folder:
        print(
            "make cross: liblinnet.so for Android is not built, because ANDROID_NDK is not set. Unpack Android's NDK "
            f"(r23 or newer) and run: ANDROID_NDK=FOLDER make cross TARGET={name}. The static tools need no NDK.",
            file=sys.stderr,
        )
        return []
    if not file.is_file():
        fail(f"ANDROID_NDK is {folder}, which has no {file.relative_to(folder)}; expected the folder of Android's NDK")
    return [
        f"-DCMAKE_TOOLCHAIN_FILE={file}",
        f"-DANDROID_ABI={TARGETS[name].abi}",
        f"-DANDROID_PLATFORM=android-{ANDROID_API}",
    ]


def library(folder: Path, jobs: str, options: Sequence[str], out: Path, cuda: bool) -> None:
    """Builds and installs the libraries and headers."""
    targets = (*LIBRARIES, "linnet_cuda") if cuda else LIBRARIES
    build(folder, targets, jobs, "-DLINNET_TOOLS=OFF", "-DLINNET_TESTS=OFF", "-DCMAKE_INSTALL_LIBDIR=lib",
          f"-DLINNET_CUDA={'ON' if cuda else 'OFF'}", "-DCMAKE_SHARED_LINKER_FLAGS=-s", "-DCMAKE_MODULE_LINKER_FLAGS=-s",
          *options)  # fmt: skip
    run("cmake", "--install", str(folder), "--prefix", str(out))


def tools(folder: Path, jobs: str, options: Sequence[str], out: Path, tests: bool) -> None:
    """Builds the static tools, and the C tests on request."""
    build(folder, ["all"] if tests else TOOLS, jobs, f"-DLINNET_TESTS={'ON' if tests else 'OFF'}",
          *processors.STATIC, *options)  # fmt: skip
    (out / "bin").mkdir(parents=True, exist_ok=True)
    for tool in TOOLS:
        shutil.copy2(folder / tool, out / "bin" / tool)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", help=", ".join(TARGETS))
    parser.add_argument("--compiler", choices=("zig", "gcc"), default="zig")
    parser.add_argument("--tests", action="store_true", help="build the C tests too, in OUT/tools")
    parser.add_argument("--tools-only", action="store_true", help="leave out the library")
    parser.add_argument("--jobs", default=str(os.cpu_count() or 2))
    parser.add_argument("--out", type=Path, help="folder for the results; default: build-TARGET")
    given = parser.parse_args()
    if given.target not in TARGETS:
        fail(f"TARGET={given.target} is not known; expected one of {', '.join(TARGETS)}")
    target, out = TARGETS[given.target], (given.out or ROOT / f"build-{given.target}").resolve()
    of_tools = gcc(given.target) if given.compiler == "gcc" else zig(target.musl, target.cpu)
    if given.tools_only:
        of_library = []
    elif target.abi:
        of_library = ndk(given.target)
    else:
        of_library = of_tools if given.compiler == "gcc" else zig(target.glibc, target.cpu)
    tools(out / "tools", given.jobs, of_tools, out, given.tests)
    if of_library:
        library(out / "library", given.jobs, of_library, out, given.target in WITH_CUDA)
    devices = [path for name in ("cuda", "opencl") for path in (out / "lib").glob(f"*{name}.so")]
    for file in sorted([*(out / "bin").glob("*"), *(out / "lib").glob("*.so.*.*.*"), *devices]):
        print(f"{os.path.relpath(file)}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
