"""The library stays small: bytes on disk, what it links, and what `import linnet` drags in.
The time of the import is a benchmark (tests/bench_peers.py); what it loads is a test."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native import build, need, run

# Everything for x86-64 (SSE2, AVX2, AVX-512, VNNI) may take 600 KB: safety checks are worth their bytes. Budgets by part come
# with the split of the library into parts.
# What distributed training adds is a library of its own, and stays well below the first.
LIMITS = {"liblinnet.so": 600_000, "liblinnet_sync.so": 230_000}
STRIP = {"release": "strip", "aarch64": "aarch64-linux-gnu-strip"}


@pytest.mark.parametrize("library", LIMITS)
@pytest.mark.parametrize("kind", STRIP)
def test_stripped_library_is_small(kind: str, library: str, tmp_path: Path) -> None:
    need(STRIP[kind])
    stripped = tmp_path / library
    shutil.copy(build(kind) / library, stripped)
    run([STRIP[kind], str(stripped)])
    size = stripped.stat().st_size
    print(f"{kind} {library}, stripped: {size} bytes")
    assert 2_000 < size <= LIMITS[library]


@pytest.mark.parametrize("library", LIMITS)
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
    for library in LIMITS:
        shutil.copy(build("release") / library, tmp_path / (library + ".0" if library == "liblinnet.so" else library))
    code = f"import ctypes; ctypes.CDLL({str(tmp_path / 'liblinnet_sync.so')!r}).linnet_sync_version"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("library", LIMITS)
def test_no_executable_stack_and_no_text_relocations(library: str) -> None:
    need("readelf")
    text = run(["readelf", "-lW", "-d", str(build("release") / library)])
    stack = next(line for line in text.splitlines() if "GNU_STACK" in line)
    assert "RWE" not in stack
    assert "TEXTREL" not in text


def test_import_stays_light() -> None:
    """`import linnet` loads NumPy and cffi, and nothing that only the converter or the command line needs."""
    code = "import sys, linnet; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.split())
    assert "linnet" in loaded and "numpy" in loaded
    heavy = {
        "onnx",
        "onnxruntime",
        "google",
        "rich",
        "typer",
        "click",
        "flatbuffers",
        "PIL",
        "asyncio",
        "pytest",
        "cffi.api",
    }
    assert not loaded & heavy, f"import linnet loads {sorted(loaded & heavy)}"
