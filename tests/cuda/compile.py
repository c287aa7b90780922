"""Compiles cases of gemm_cases.py to cubins with nvcc and reads what ptxas says of them: registers, spills, shared memory.
`python tests/cuda/compile.py [PATTERN]` compares with resources.json beside it; `--write` writes that."""

from __future__ import annotations

import json
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
    out["spills"] = sum(int(v) for v in re.findall(r"(\d+) bytes spill", said)) + int(
        re.findall(r"(\d+) bytes stack frame", said)[0]
    )
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


ARCHS = ("75", "87", "90a")


def jobs() -> list[tuple[g.Case, str]]:
    """Each case for each architecture that has its instructions and its shared memory."""
    out = []
    for case in all_cases():
        for arch in ARCHS:
            if case.tile.math >= 2 and arch != "90a":
                continue
            if arch == "75" and (case.dtype in ("bf16", "tf32") or case.tile.shared(False) > 64 << 10):
                continue
            out.append((case, arch))
    return out


def names() -> list[str]:
    """The lines of the table."""
    return [f"{case.name} sm_{arch}" for case, arch in jobs()]


def main(pattern: str, writes: bool) -> int:
    """Compiles the cases whose line matches, and compares them with the table or writes it."""
    folder = Path(os.environ.get("OUT", "/tmp/linnet_gemm"))
    table = Path(__file__).with_name("resources.json")
    known = json.loads(table.read_text()) if table.exists() else {}
    chosen = [(c, a) for c, a in jobs() if re.search(pattern, f"{c.name} sm_{a}")]
    found: dict[str, dict[str, int]] = {}
    with ThreadPoolExecutor(2) as pool:
        for (c, a), result in zip(chosen, pool.map(lambda job: compile_case(*job, folder), chosen), strict=True):
            found[f"{c.name} sm_{a}"] = result
    wrong = [f"{name}: {known.get(name)} -> {values}" for name, values in found.items() if known.get(name) != values]
    print("\n".join(wrong) or "as in the table")
    if writes:
        lines = [f"{json.dumps(name)}: {json.dumps(values)}" for name, values in found.items()]
        table.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return 0 if writes else len(wrong)


if __name__ == "__main__":
    arguments = [v for v in sys.argv[1:] if v != "--write"]
    sys.exit(main(arguments[0] if arguments else "", "--write" in sys.argv) > 0)
