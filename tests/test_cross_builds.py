"""`make cross`: what it builds for each target, that the static tools run there with the integers of this machine, and what it
says when something is missing. The compiler decides the processor."""
# Dear: the library is built by another compiler.

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet import ops
from tests.cross_builds import CPUS, cross, need_zig
from tests.graphs import in_integers
from tests.native import ROOT, build, need, run

pytestmark = pytest.mark.more

SCRIPT = str(ROOT / ".ci" / "cross.py")
TOOLS = ("linnet-bench", "linnet-run", "linnet-parameter-server", "linnet-train", "linnet-host")
MACHINES = {"aarch64": "AArch64", "armv7": "ARM", "armv6": "ARM", "riscv64": "RISC-V",
            "android-arm64": "AArch64", "android-armv7": "ARM"}  # fmt: skip


def _net() -> tuple[linnet.Graph, dict[str, np.ndarray]]:
    """Convolutions of three kinds, a residual sum, pooling and a classifier, small enough for reference kernels in qemu."""
    random = np.random.default_rng(31)

    def weight(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    graph = linnet.Graph()
    main = graph.function("infer")
    x = main.placeholder("x", "f32", (1, 3, 20, 20))
    y = ops.relu(ops.conv(x, main.constant(weight(16, 3, 3, 3)), pads=[1] * 4, strides=[2, 2]))
    z = ops.relu(ops.conv(y, main.constant(weight(16, 1, 3, 3)), pads=[1] * 4, group=16))
    z = ops.add(y, ops.conv(z, main.constant(weight(16, 16, 1, 1))))
    flat = ops.mean(ops.pool(z, kind="max", kernel=[2, 2], strides=[2, 2])[0], [2, 3])
    main.outputs = [ops.softmax(ops.matmul(flat, main.constant(weight(16, 11))))]
    graph.signature("infer", main)
    return graph, {"x": random.standard_normal((1, 3, 20, 20)).astype(np.float32)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Quantized models, their inputs, and the outputs on this machine."""
    made = tmp_path_factory.mktemp("models")
    graph, feeds = _net()
    for name, value in feeds.items():
        np.save(made / f"{name}.npy", value)
    for dtype in ("i8", "i16"):
        in_integers(graph, [feeds], dtype).save(made / f"{dtype}.lnt")
        run([str(build("release") / "linnet-run"), *_words(made, dtype), "-o", str(made / f"here-{dtype}")])
    return made


def _words(folder: Path, dtype: str) -> list[str]:
    inputs = [f"{path.stem}={path}" for path in sorted(folder.glob("*.npy"))]
    return [str(folder / f"{dtype}.lnt"), *(word for given in inputs for word in ("--input", given))]


@pytest.mark.parametrize("target", CPUS)
def test_static_tools_give_the_integers_of_this_machine(target: str, folder: Path) -> None:
    need(CPUS[target][0], "readelf")
    made = cross(target)
    for tool in TOOLS:
        header = run(["readelf", "-hlW", str(made / "bin" / tool)])
        assert MACHINES[target] in header and "INTERP" not in header, "the tools are static"
        assert run([*CPUS[target], str(made / "bin" / tool), "--version"]) == f"{tool} {linnet.__version__}\n"
    # On aarch64, whose library may have 880,000 bytes with everything, the static C library and zig's code add 160,000.
    # NEON code of zig for 32 bits is larger than that of GCC, whose library has 700,000.
    assert (made / "bin" / "linnet-bench").stat().st_size <= (1_110_000 if "armv7" in target else 1_040_000)
    for dtype in ("i8", "i16"):
        there = folder / f"{target}-{dtype}"
        run([*CPUS[target], str(made / "bin" / "linnet-run"), *_words(folder, dtype), "-o", str(there)], timeout=300)
        here = sorted((folder / f"here-{dtype}").glob("*.npy"))
        assert here and all((there / path.name).read_bytes() == path.read_bytes() for path in here)


@pytest.mark.parametrize(
    "target", ["aarch64", "armv7", *(pytest.param(x, marks=pytest.mark.soak) for x in ("armv6", "riscv64"))]
)
def test_libraries_are_for_old_systems(target: str) -> None:
    need("readelf")
    made = cross(target, library=True)
    cuda = ("liblinnet_cuda.so",) if target == "aarch64" else ()
    assert (made / "lib" / "liblinnet_cuda.so").exists() == bool(cuda)
    for name in ("liblinnet.so", "liblinnet_sync.so", "liblinnet_opencl.so", "liblinnet_remote.so", *cuda):
        text = run(["readelf", "-hVW", str(made / "lib" / name)])
        assert MACHINES[target] in text
        versions = {
            tuple(map(int, word[6:].rstrip(")").split("."))) for word in text.split() if word.startswith("GLIBC_")
        }
        assert versions and max(versions) <= (2, 27 if target == "riscv64" else 17)
    assert (made / "include" / "linnet.h").is_file() and (made / "lib" / "liblinnet.a").is_file()


def _said(*arguments: str, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, SCRIPT, *arguments], env={"PATH": "/usr/bin:/bin", **environment}, capture_output=True, text=True,
        check=False, cwd=ROOT,
    )  # fmt: skip
    return done.returncode, done.stderr.strip()


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    need_zig()
    assert _said("vax") == (1, "make cross: TARGET=vax is not known; expected one of x86_64, aarch64, armv7, armv6, "
                               "riscv64, android-arm64, android-armv7")  # fmt: skip
    code, text = _said("armv6", "--compiler", "gcc", "--out", str(tmp_path / "a"))
    assert code == 1 and "no GCC is known that compiles for armv6" in text
    code, text = _said("riscv64", "--compiler", "gcc", "--out", str(tmp_path / "b"), PATH=str(tmp_path))
    assert code == 1 and "apt-get install gcc-riscv64-linux-gnu" in text
    code, text = _said("android-arm64", "--out", str(tmp_path / "c"), ANDROID_NDK=str(tmp_path))
    assert code == 1 and "build/cmake/android.toolchain.cmake; expected the folder of Android's NDK" in text
    assert not list(tmp_path.iterdir())


# Records what it was asked for, and compiles with zig in place of the NDK's clang.
STAND_IN = """file(WRITE {seen} "${{ANDROID_ABI}} ${{ANDROID_PLATFORM}}")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ANDROID_ABI ANDROID_PLATFORM)
set(LINNET_ZIG {zig})
set(LINNET_ZIG_TARGET aarch64-linux-musl)
set(LINNET_ZIG_CPU generic)
include({root}/runtime_c/toolchains/zig.cmake)
"""


def _zig(made: Path) -> str:
    """The program with which `make cross` compiled."""
    return (made / "tools" / "CMakeCache.txt").read_text().partition("LINNET_ZIG:UNINITIALIZED=")[2].split()[0]


def test_the_library_for_android_is_built_by_the_ndk(tmp_path: Path) -> None:
    need_zig()
    ndk, seen, zig = tmp_path / "ndk", tmp_path / "seen", _zig(cross("android-arm64"))
    (ndk / "build" / "cmake").mkdir(parents=True)
    chain = ndk / "build" / "cmake" / "android.toolchain.cmake"
    chain.write_text(STAND_IN.format(seen=seen, zig=zig, root=ROOT))
    text = run([sys.executable, SCRIPT, "android-arm64", "--out", str(tmp_path / "out")], env={"ANDROID_NDK": str(ndk)})
    assert seen.read_text() == "arm64-v8a android-30"
    assert "lib/liblinnet.so.0.1.0" in text and "bin/linnet-bench" in text
    assert "AArch64" in run(["readelf", "-h", str(tmp_path / "out" / "lib" / "liblinnet.so")])


def test_without_an_ndk_the_tools_are_built_and_the_message_says_what_is_missing(tmp_path: Path) -> None:
    need_zig()
    cross("android-armv7")
    done = subprocess.run([sys.executable, SCRIPT, "android-armv7"], capture_output=True, text=True, check=True)
    assert "liblinnet.so for Android is not built, because ANDROID_NDK is not set" in done.stderr
    assert "build-android-armv7/bin/linnet-run" in done.stdout


def test_the_compiler_decides_the_processor(tmp_path: Path) -> None:
    """A 32-bit system on a 64-bit kernel: the machine is called aarch64, and its compiler makes code for 32 bits."""
    need_zig()
    zig = _zig(cross("armv7"))
    tool = tmp_path / "cc"
    tool.write_text(f'#!/bin/sh\nexec {zig} cc -target arm-linux-musleabihf -mcpu=cortex_a8 "$@"\n')
    tool.chmod(0o755)
    chain = tmp_path / "chain.cmake"
    chain.write_text(
        f"set(CMAKE_SYSTEM_NAME Linux)\nset(CMAKE_SYSTEM_PROCESSOR aarch64)\nset(CMAKE_C_COMPILER {tool})\n"
        "set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)\n"
    )
    words = [f"-DCMAKE_TOOLCHAIN_FILE={chain}", "-DLINNET_TESTS=OFF", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    run(["cmake", "-S", str(ROOT), "-B", str(tmp_path / "out"), *words])
    compiled = (tmp_path / "out" / "compile_commands.json").read_text()
    assert "runtime_c/run/run.c" in compiled and set(re.findall(r"kernels_arm/(\w+)/", compiled)) == {"v7"}
