"""Compiles cases of gemm_cases.py to cubins with nvcc and reads what ptxas says of them: registers, spills, shared memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gemm_cases as g


def compile_case(case: g.Case, arch: str, folder: Path) -> dict[str, int]:
    """Writes the case's text and cubin; returns its resources."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"{case.name}_{arch}"
    stem.with_suffix(".cu").write_text(g.text(case))
    code = f"arch=compute_{arch},code=sm_{arch}"
    command = ["nvcc", "-cubin", "-std=c++17", "--fmad=false", "-diag-suppress=177,550", "-gencode", code, "-Xptxas", "-v", "-o",
               f"{stem}.cubin", f"{stem}.cu"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{case.name} for sm_{arch}:\n{done.stderr[:4000]}")
    said = done.stderr
    out = {"registers": int(re.findall(r"Used (\d+) registers", said)[0])}
    out["spills"] = sum(int(v) for v in re.findall(r"(\d+) bytes spill", said)) + int(re.findall(r"(\d+) bytes stack frame", said)[0])
    out["shared"] = case.tile.shared(case.cluster)
    for line in said.splitlines():
        if "warning" in line.lower() or "serialized" in line:
            print(case.name, line)
    return out


def all_cases() -> list[g.Case]:
    """What is compiled for the table of resources."""
    cases: list[g.Case] = []
    for dtype in ("f16", "bf16", "tf32", "s8"):
        cases += [g.Case(dtype, t) for t in (g.M128, g.M128W, g.M64, g.M64N128, g.M128N64, g.M32, g.M64N32)]
        cases += [g.Case(dtype, t) for t in (g.G128, g.G256, g.G64N128, g.G64, g.G128N64)]
    cases += [g.Case(d, t) for d in ("f16", "bf16", "tf32", "s8") for t in (g.T256, g.T128)]
    cases += [g.Case("f32", t) for t in (g.F128, g.F64, g.F32)]
    return cases


def main(pattern: str, archs: list[str]) -> None:
    """Compiles the cases whose name matches."""
    folder = Path(os.environ.get("OUT", "/tmp/linnet_gemm"))
    jobs = [(c, a) for c in all_cases() for a in archs if re.search(pattern, c.name) and (c.tile.math < 2 or a == "90a")]
    with ThreadPoolExecutor(2) as pool:
        futures = [(c, a, pool.submit(compile_case, c, a, folder)) for c, a in jobs]
        for c, a, future in futures:
            print(c.name, a, future.result(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2].split(",") if len(sys.argv) > 2 else ["90a"])
