"""Builds the library, the driver and the plugin, runs a model under qemu, and reads what was counted.
plugin.c says what the classes are; driver.c says where its marks stand."""

from __future__ import annotations

import bisect
import dataclasses
import os
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from linnet.deploy.processors import PROCESSORS, gcc_options
from tests import native

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build-tests" / "count"
HERE = ROOT / "tests" / "count"

CLASSES = ("all", "fma", "imac", "dot", "mmla", "fp16", "vload", "vstore", "load", "store", "branch", "vother",
           "loaded", "stored", "accesses", "misses")  # fmt: skip
Counts = dict[str, int]

# Numbers of marks of driver.c.
_OPENING, _PLANNING, _CREATING, _CREATED, _WARM, _DONE, _TRACED = 0, 1, 2, 3, 6, 7, 8


class Processor(NamedTuple):
    """A kind of processor: the program of qemu, Debian's compiler and its package, the kind of build (tests/native.py), and
    the flags of the compiler."""

    qemu: str
    prefix: str
    package: str
    build: str
    flags: tuple[str, ...] = ()


_ARM64 = Processor("qemu-aarch64", "aarch64-linux-gnu-", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross", "aarch64")
_ARM32 = Processor(
    "qemu-arm", "arm-linux-gnueabihf-", "gcc-arm-linux-gnueabihf libc6-dev-armhf-cross", "armv7",
    PROCESSORS["armv7"].gcc[1:],
)  # fmt: skip
_CORES_32 = ("cortex-a7", "cortex-a8", "cortex-a9", "cortex-a15")


def processor_of(cpu: str) -> Processor:
    return _ARM32 if cpu in _CORES_32 else _ARM64


class CountError(Exception):
    """What is wrong, and what to do about it."""


@dataclasses.dataclass(frozen=True)
class Step:
    op: str
    kernel: str
    macs: int
    name: str
    counts: Counts


@dataclasses.dataclass(frozen=True)
class Counted:
    """A model on a processor. Counts are of one warm inference with one thread; `load`, `plan` and `create` are numbers of
    instructions before it; `functions` is empty unless they were asked for."""

    isa: str
    total_bytes: int
    packed_bytes: int
    load: int
    plan: int
    create: int
    warm: Counts
    steps: list[Step]
    functions: dict[str, Counts]


def need(tool: str, package: str) -> None:
    if shutil.which(tool) is None:
        raise CountError(f"{tool} is not installed; get it with: apt-get install {package}")


def _run(command: list[str], cwd: Path | None = None, timeout: float = 1800) -> str:
    done = subprocess.run(command, cwd=cwd, timeout=timeout, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CountError(f"{' '.join(command)}\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def plugin() -> Path:
    """The compiled plugin of qemu."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    made, source = FOLDER / "plugin.so", HERE / "plugin.c"
    newest = max(file.stat().st_mtime for file in (source, HERE / "plugin_arm32.h"))
    if not made.exists() or made.stat().st_mtime < newest:
        part = FOLDER / f"plugin.{os.getpid()}.so"  # another process may use the old one
        _run(["cc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", str(source), "-o", str(part)])
        part.replace(made)
    return made


def driver(cpu: str = "") -> Path:
    """The driver with the library of this tree, for any 64-bit ARM, or for any ARMv7 with NEON if the cpu is one of 32
    bits, compiled by Debian's gcc."""
    processor = processor_of(cpu)
    _need_compiler(processor)
    folder = native.build(processor.build, "linnet_static")
    return _linked(processor, folder, ROOT, FOLDER / f"driver-{processor.build}")


def _need_compiler(processor: Processor) -> None:
    need(f"{processor.prefix}gcc", processor.package)
    need("cmake", "cmake")


def _driver(processor: Processor, tree: Path, name: str) -> Path:
    """The driver with the library of another tree."""
    _need_compiler(processor)
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "CMakeCache.txt").exists():
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        parts = [f"-DLINNET_{part}=OFF" for part in ("LTO", "TESTS", "SYNC", "OPENCL", "MEDIA")]
        _run(["cmake", "-S", str(tree), "-B", str(folder), *generator, *parts, "-DCMAKE_BUILD_TYPE=Release",
              *gcc_options(ROOT, (processor.prefix, *processor.flags))])  # fmt: skip
    _run(["cmake", "--build", str(folder), "-j", str(os.cpu_count() or 2), "--target", "linnet_static"])
    return _linked(processor, folder, tree, folder / "driver")


def _linked(processor: Processor, folder: Path, tree: Path, made: Path) -> Path:
    FOLDER.mkdir(parents=True, exist_ok=True)
    part = made.with_suffix(f".{os.getpid()}")  # another process may run the old one
    words = ["-std=c11", "-O2", "-static", f"-I{tree / 'runtime_c' / 'include'}", str(HERE / "driver.c")]
    _run([f"{processor.prefix}gcc", *processor.flags, *words, str(folder / "liblinnet.a"),
          "-Wl,--wrap=clock_gettime", "-lm", "-lpthread", "-o", str(part)])  # fmt: skip
    part.replace(made)
    return made


def driver_of_revision(revision: str, cpu: str = "") -> Path:
    """The driver with the library of a commit, which is checked out in a folder of its own."""
    full = _run(["git", "rev-parse", "--verify", f"{revision}^{{commit}}"], cwd=ROOT).strip()
    tree = FOLDER / f"source-{full[:12]}"
    if not tree.exists():
        part = tree.with_suffix(f".{os.getpid()}")
        part.mkdir(parents=True)
        files = subprocess.Popen(["git", "archive", full], cwd=ROOT, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", str(part)], stdin=files.stdout, check=True)
        if files.wait() != 0:
            raise CountError(f"git archive {full} failed")
        part.rename(tree)
    processor = processor_of(cpu)
    return _driver(processor, tree, full[:12] if processor is _ARM64 else f"{full[:12]}-{processor.build}")


def _difference(after: Counts, before: Counts) -> Counts:
    return {name: after[name] - before[name] for name in after}


def added(counts: list[Counts]) -> Counts:
    return {name: sum(c[name] for c in counts) for name in CLASSES}


def _functions(prefix: str, driver: Path, lines: list[list[str]]) -> dict[str, Counts]:
    """Instructions by function: what blocks ran between the two marks, by the program's symbols."""
    symbols = []
    for line in _run([f"{prefix}nm", "-n", str(driver)]).splitlines():
        words = line.split()
        if len(words) == 3 and words[1] in "tTwW" and not words[2].startswith("$"):
            symbols.append((int(words[0], 16), words[2]))
    addresses = [address for address, _ in symbols]
    found: dict[str, Counts] = defaultdict(lambda: dict.fromkeys(CLASSES, 0))
    for words in lines:
        sign = 1 if int(words[1]) == _DONE else -1
        at = bisect.bisect_right(addresses, int(words[2], 16)) - 1
        counts = found[symbols[at][1] if at >= 0 else "?"]
        for name, number in zip(CLASSES, words[4:], strict=False):
            counts[name] += sign * int(words[3]) * int(number)
    return {name: counts for name, counts in found.items() if counts["all"]}


def count(
    model: Path, cpu: str, driver: Path, isa: str | None = None, functions: bool = False, cache: str | None = None,
    precision: str | None = None,
) -> Counted:  # fmt: skip
    """Runs a .lnt model whose shapes are known. cpu: a name that qemu-aarch64 knows, or qemu-arm, whichever the driver
    is for. cache: bytes:ways of a data cache whose accesses and misses are counted, which takes some ten times as long."""
    processor, out = processor_of(cpu), FOLDER / f"counts.{os.getpid()}"
    need(processor.qemu, "qemu-user")
    words = f"{plugin()},out={out}" + (f",cache={cache}" if cache else "")
    words += f",from={_WARM},to={_DONE}" if functions else ""
    options = [isa or "-", precision] if precision else [isa] if isa else []
    try:
        text = _run([processor.qemu, "-cpu", cpu, "-plugin", words, str(driver), str(model), *options])
        lines = [line.split() for line in out.read_text().splitlines()]
    finally:
        out.unlink(missing_ok=True)
    marks = [dict(zip(CLASSES, map(int, line[1:]), strict=True)) for line in lines if line[0] == "mark"]
    plan, *rows = [line.split(" ", 4) for line in text.splitlines()]
    traced = marks[_TRACED + 1 : -1]
    if len(traced) < 2 * len(rows):
        raise CountError(f"the trace has {len(traced)} marks for {len(rows)} steps")
    steps = [
        Step(op, kernel, int(flops) // 2, name, _difference(traced[2 * i + 1], traced[2 * i]))
        for i, (_, op, kernel, flops, name) in enumerate(rows)
    ]
    return Counted(
        plan[1], int(plan[2]), int(plan[3]), marks[_PLANNING]["all"] - marks[_OPENING]["all"],
        marks[_CREATING]["all"] - marks[_PLANNING]["all"], marks[_CREATED]["all"] - marks[_CREATING]["all"],
        _difference(marks[_DONE], marks[_WARM]), steps,
        _functions(processor.prefix, driver, [line for line in lines if line[0] == "block"]) if functions else {},
    )  # fmt: skip
