"""The processors for which the native tools are built, and CMake's words for the compilers that build them.
`.ci/cross.py` loads this file by its path, so it imports nothing of linnet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

TOOLS: Final = ("linnet-bench", "linnet-run", "linnet-train", "linnet-parameter-server", "linnet-host")
# A static program cannot open the library of a device. It is one file, so it links no decoders of pictures either.
STATIC: Final = (
    "-DLINNET_LTO=OFF", "-DLINNET_OPENCL=OFF", "-DLINNET_CUDA=OFF", "-DLINNET_MEDIA=OFF",
    "-DCMAKE_EXE_LINKER_FLAGS=-static -s",
)  # fmt: skip


class Processor(NamedTuple):
    """What compilers call a target. musl: for tools, which are static and run on any Linux, Android included. glibc:
    for the library, with the oldest version of the C library that it then runs with. cpu: the least processor, as zig
    spells it. gcc: the prefix of GCC's programs, and its flags. abi: Android's name of the target."""

    musl: str
    glibc: str
    cpu: str
    gcc: tuple[str, ...] = ()
    abi: str = ""


PROCESSORS: Final[Mapping[str, Processor]] = {
    "x86_64": Processor("x86_64-linux-musl", "x86_64-linux-gnu.2.17", "x86_64", ("x86_64-linux-gnu-",)),
    "aarch64": Processor("aarch64-linux-musl", "aarch64-linux-gnu.2.17", "generic", ("aarch64-linux-gnu-",)),
    "armv7": Processor(  # Cortex-A8: NEON, and neither division nor fused products
        "arm-linux-musleabihf", "arm-linux-gnueabihf.2.17", "cortex_a8",
        ("arm-linux-gnueabihf-", "-march=armv7-a", "-mfpu=neon", "-mthumb"),
    ),
    "armv6": Processor("arm-linux-musleabihf", "arm-linux-gnueabihf.2.17", "arm1176jzf_s"),  # Raspberry Pi 1 and Zero
    "riscv64": Processor("riscv64-linux-musl", "riscv64-linux-gnu.2.27", "baseline_rv64", ("riscv64-linux-gnu-",)),
    "android-arm64": Processor("aarch64-linux-musl", "", "generic", abi="arm64-v8a"),
    "android-armv7": Processor("arm-linux-musleabihf", "", "cortex_a8", abi="armeabi-v7a"),
}  # fmt: skip


def zig_options(sources: Path, program: Path, triple: str, cpu: str) -> list[str]:
    """CMake's options for zig's compiler. sources: the root of linnet's sources."""
    own = {"ZIG": program, "ZIG_TARGET": triple, "ZIG_CPU": cpu}
    return [_toolchain(sources, "zig"), *(f"-DLINNET_{key}={value}" for key, value in own.items())]


def gcc_options(sources: Path, words: Sequence[str]) -> list[str]:
    """CMake's options for a GCC of the system. words: the prefix of its programs, and its flags."""
    return [_toolchain(sources, "gcc"), f"-DLINNET_GCC={';'.join(words)}"]


def gcc_package(prefix: str) -> str:
    """Debian's package of a GCC."""
    return "gcc-" + prefix[:-1].replace("_", "-")


def _toolchain(sources: Path, name: str) -> str:
    return f"-DCMAKE_TOOLCHAIN_FILE={sources / 'runtime_c' / 'toolchains' / name}.cmake"
