"""The texts of CUDA kernels for a GPU that is not there, and what ptxas says of each: registers and spills.
`python -m tests.cuda.texts` writes registers.json anew. tests/test_cuda_texts.py compares with it."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import linnet
from linnet.conformance.case import Case
from linnet.conformance.cases import all_cases, is_quick
from linnet.conformance.running import batch_of
from linnet.session.planner import Planner
from tests.cuda.nvcc import MISSING, find_nvcc

TABLE = Path(__file__).with_name("registers.json")
TARGETS = (75, 87, 90)


@functools.cache
def quick_cases() -> tuple[Case, ...]:
    return tuple(case for case in all_cases() if is_quick(case))


def write(folder: Path, compute: int) -> None:
    """Writes the texts of the quick cases' programs. Cases that cannot be planned together are planned apart."""
    device = linnet.load_device(f"cuda,for={compute},texts={folder}")

    def plan(cases: tuple[Case, ...]) -> None:
        try:
            Planner(batch_of(cases).graph, devices=[device], placement={"*": device.name}).plan({})
        except linnet.Error:
            if len(cases) == 1:
                return  # neither does the check of devices run it
            plan(cases[: len(cases) // 2])
            plan(cases[len(cases) // 2 :])

    plan(quick_cases())


def kernels_in(text: str) -> tuple[str, ...]:
    """The names of the kernels that a text may define: of some, the preprocessor takes one."""
    return tuple(sorted(set(re.findall(r"^LG_(?:GEMM_)?KERNEL\((lg_\w+)\)", text, re.MULTILINE))))


def chosen(folder: Path, most: int) -> list[Path]:
    """At most this many texts, with some of each kernel. The shortest of a kernel comes first, then the longest."""
    alike: dict[tuple[str, ...], list[Path]] = defaultdict(list)
    for path in sorted(folder.glob("*.cu"), key=lambda path: (path.stat().st_size, path.name)):
        alike[kernels_in(path.read_text())].append(path)
    found: list[Path] = []
    while len(found) < most and any(alike.values()):
        for paths in alike.values():
            if paths and len(found) < most:
                found.append(paths.pop(0 if len(paths) % 2 else -1))
    return found


Said = dict[str, tuple[int, int]]  # registers and bytes that are spilled, by the kernel's name


def compile_text(nvcc: str, path: Path, compute: int) -> Said:
    """What ptxas says of the kernels of a text. Raises RuntimeError with nvcc's messages if it does not compile."""
    arch = f"{compute}a" if compute == 90 else str(compute)
    command = [nvcc, "-cubin", "-std=c++17", "--fmad=false", "-w", "-gencode", f"arch=compute_{arch},code=sm_{arch}", "-Xptxas",
               "-v", "-o", os.devnull, str(path)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{path} for sm_{arch}:\n{done.stderr[:3000]}")
    found: Said = {}
    for part in done.stderr.split("Compiling entry function '")[1:]:
        spilled = sum(int(count) for count in re.findall(r"(\d+) bytes spill", part))
        found[part.partition("'")[0]] = (int(re.findall(r"Used (\d+) registers", part)[0]), spilled)
    return found


def compile_all(nvcc: str, paths: list[Path], compute: int) -> dict[str, dict[str, int]]:
    """For each kernel the number of its programs, their most registers, and the most bytes that one spills."""
    found: dict[str, dict[str, int]] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for said in pool.map(lambda path: compile_text(nvcc, path, compute), paths):
            for kernel, (registers, spilled) in said.items():
                of = found.setdefault(kernel, {"programs": 0, "registers": 0, "spilled": 0})
                of["programs"] += 1
                of["registers"], of["spilled"] = max(of["registers"], registers), max(of["spilled"], spilled)
    return dict(sorted(found.items()))


def main() -> None:
    nvcc = find_nvcc()
    if nvcc is None:
        sys.exit(MISSING)
    lines = []
    for compute in TARGETS:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), compute)
            for kernel, of in compile_all(nvcc, chosen(Path(folder), 10**6), compute).items():
                print(f"sm_{compute} {kernel}: {of}", flush=True)
                lines.append(f'"sm_{compute} {kernel}": {json.dumps(of)}')
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
