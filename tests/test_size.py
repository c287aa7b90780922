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

# 500 KB is the goal, also for x86-64 with its four sets of kernels (SSE2, AVX2, AVX-512, VNNI).
LIMITS = {"release": (500_000, "strip"), "aarch64": (500_000, "aarch64-linux-gnu-strip")}


@pytest.mark.parametrize("kind", LIMITS)
def test_stripped_library_is_small(kind: str, tmp_path: Path) -> None:
    limit, strip = LIMITS[kind]
    need(strip)
    stripped = tmp_path / "liblinnet.so"
    shutil.copy(build(kind) / "liblinnet.so", stripped)
    run([strip, str(stripped)])
    size = stripped.stat().st_size
    print(f"{kind} liblinnet.so, stripped: {size} bytes")
    assert 20_000 < size <= limit


def test_it_links_libc_and_libm_only() -> None:
    need("readelf")
    text = run(["readelf", "-d", str(build("release") / "liblinnet.so")])
    needed = set(re.findall(r"\(NEEDED\).*\[(.+?)\]", text))
    assert needed <= {"libc.so.6", "libm.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}, (
        needed
    )
    assert "libc.so.6" in needed


def test_no_executable_stack_and_no_text_relocations() -> None:
    need("readelf")
    text = run(["readelf", "-lW", "-d", str(build("release") / "liblinnet.so")])
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
