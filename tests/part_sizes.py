"""The size of each part of the library, stripped, against its budget: `python -m tests.part_sizes [aarch64]` prints the table
of docs/building.md. It builds liblinnet once for each line; tests/test_size.py holds the budgets."""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
from pathlib import Path

from tests.native import ISAS, PARTS, build, parts, run

STRIP = {"x86_64": "strip", "aarch64": "strip" if platform.machine() == "aarch64" else "aarch64-linux-gnu-strip"}
# Bytes at most. A part is what it adds: an ISA to the baseline, the others to everything. The linker rounds up to pages of 4,096,
# so that a budget is a few pages more than what was measured.
BUDGETS = {
    "x86_64": {
        "everything": 1_110_000,
        "baseline": 585_728,
        "sse42": 5_000,
        "avx2": 200_704,
        "avx512": 196_608,
        "avx512vnni": 69_632,
        "training": 60_000,
        "checkpoints": 10_000,
        "tuning": 16_384,
        "devices": 69_632,
        "user_ops": 16_384,
        "sync": 300_000,
    },
    "aarch64": {
        "everything": 880_000,
        "baseline": 730_000,
        "crc": 5_000,
        "fp16": 65_536,
        "bf16": 16_384,
        "dotprod": 50_000,
        "i8mm": 60_000,
        "training": 60_000,
        "checkpoints": 10_000,
        "tuning": 12_000,
        "devices": 55_000,
        "user_ops": 10_000,
        "sync": 300_000,
    },
}
OPTIONS = {part: f"-DLINNET_{part.upper()}=OFF" for part in (*PARTS, "sync")}


def stripped(library: Path, machine: str) -> int:
    """The size of a library without its symbols."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / library.name
        shutil.copy(library, copy)
        run([STRIP[machine], str(copy)])
        return copy.stat().st_size


def sizes(machine: str) -> dict[str, int]:
    """Every part of BUDGETS, measured."""
    cross = "" if machine == platform.machine() else f"{machine}_"
    whole = {
        name.removeprefix(cross): stripped(build(name, "linnet") / "liblinnet.so", machine) for name in parts(machine)
    }
    found = {"everything": whole["everything"], "baseline": whole["baseline"]}
    found |= {isa: whole[isa] - whole["baseline"] for isa in ISAS[machine]}
    found |= {part: whole["everything"] - whole[f"no_{part}"] for part in PARTS}
    release = build("aarch64" if cross else "release", "linnet_sync")
    found["sync"] = stripped(release / "liblinnet_sync.so", machine)
    return found | {name: whole[name] for name in ("inference", "smallest")}


def table(machine: str, found: dict[str, int]) -> str:
    """One line per part: what it is, its option, its bytes, its budget."""
    lines = [f"{'part':15} {'option':28} {'bytes':>9} {'at most':>9}   {machine}"]
    for part, size in found.items():
        isa = f"-DLINNET_ISAS=...;{part}" if part in ISAS[machine] else ""
        option = OPTIONS.get(part, isa)
        most = BUDGETS[machine].get(part)
        lines.append(f"{part:15} {option:28} {size:9} {most or '':>9}{'  too large' if most and size > most else ''}")
    return "\n".join(lines)


if __name__ == "__main__":
    wanted = sys.argv[1] if len(sys.argv) > 1 else platform.machine()
    print(table(wanted, sizes(wanted)))
