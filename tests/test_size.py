"""Each part of the library stays within its budget of bytes; what the library links, and what `import linnet` loads.
The time of the import is a benchmark (tests/bench_peers.py); the loaded modules are tested here."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native import build, need, run
from tests.part_sizes import BUDGETS, STRIP, sizes, stripped, table

LIBRARIES = ("liblinnet.so", "liblinnet_sync.so")


@pytest.mark.more  # built as they are shipped
@pytest.mark.parametrize("part", ["everything", "sync"])
@pytest.mark.parametrize("machine", sorted({platform.machine(), "aarch64"}))
def test_stripped_library_is_small(machine: str, part: str) -> None:
    need(STRIP[machine])
    cross = "" if machine == platform.machine() else f"{machine}_"
    if part == "sync":
        library = build("aarch64" if cross else "release", "linnet_sync") / "liblinnet_sync.so"
    else:
        library = build(f"{cross}everything", "linnet") / "liblinnet.so"
    size = stripped(library, machine)
    print(f"{machine} {part}, stripped: {size} bytes")
    assert 2_000 < size <= BUDGETS[machine][part]


@pytest.mark.more
def test_baseline_is_small() -> None:
    """What every build has: the whole API, the kernels of the baseline ISA, the references."""
    machine = platform.machine()
    need(STRIP[machine])
    size = stripped(build("baseline", "linnet") / "liblinnet.so", machine)
    print(f"baseline, stripped: {size} bytes")
    assert 2_000 < size <= BUDGETS[machine]["baseline"]


@pytest.mark.soak
@pytest.mark.parametrize("machine", BUDGETS)
def test_every_part_is_in_its_budget(machine: str) -> None:
    if machine != "aarch64" and machine != platform.machine():
        pytest.skip(f"no cross build for {machine}")
    need(STRIP[machine])
    found = sizes(machine)
    print(table(machine, found))
    over = [part for part, most in BUDGETS[machine].items() if found[part] > most]
    assert not over, f"over budget: {', '.join(over)}\n{table(machine, found)}"


@pytest.mark.parametrize("library", LIBRARIES)
def test_it_links_libc_and_libm_only(library: str) -> None:
    need("readelf")
    text = run(["readelf", "-d", str(build("release") / library)])
    needed = set(re.findall(r"\(NEEDED\).*\[(.+?)\]", text))
    allowed = {
        "libc.so.6",
        "libm.so.6",
        "libpthread.so.0",
        "libdl.so.2",
        "ld-linux-x86-64.so.2",
        "ld-linux-aarch64.so.1",
    }
    assert needed <= allowed | ({"liblinnet.so.0"} if library == "liblinnet_sync.so" else set()), needed
    assert "libc.so.6" in needed


def test_sync_finds_the_library_in_its_own_folder(tmp_path: Path) -> None:
    """The pair works from any folder: $ORIGIN is the only place where liblinnet_sync.so looks besides the system's."""
    need("readelf")
    text = run(["readelf", "-d", str(build("release") / "liblinnet_sync.so")])
    assert re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.+?)\]", text) == ["$ORIGIN"]
    for library in LIBRARIES:
        shutil.copy(build("release") / library, tmp_path / (library + ".0" if library == "liblinnet.so" else library))
    code = f"import ctypes; ctypes.CDLL({str(tmp_path / 'liblinnet_sync.so')!r}).linnet_sync_version"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("library", LIBRARIES)
def test_no_executable_stack_and_no_text_relocations(library: str) -> None:
    need("readelf")
    text = run(["readelf", "-lW", "-d", str(build("release") / library)])
    stack = next(line for line in text.splitlines() if "GNU_STACK" in line)
    assert "RWE" not in stack
    assert "TEXTREL" not in text


def test_import_stays_light() -> None:
    """`import linnet` loads NumPy and cffi, and nothing that only the converter or the command line needs."""
    code = "import sys, linnet; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.split())
    assert "linnet" in loaded and "numpy" in loaded
    heavy = {
        "onnx",
        "onnxruntime",
        "google",
        "rich",
        "click",
        "flatbuffers",
        "PIL",
        "asyncio",
        "pytest",
        "cffi.api",
    }
    assert not loaded & heavy, f"import linnet loads {sorted(loaded & heavy)}"
