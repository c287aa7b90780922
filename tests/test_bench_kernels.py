"""The bench of the kernels: every kernel that this machine can run has a case, and the figures are those of the plan."""

from __future__ import annotations

import platform
import re
import subprocess
import sys

import pytest

from linnet._generated.op_table import OPS
from tests.bench_kernels import Case, cases, planned, timings
from tests.native import ROOT

pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="needs kernels with vectors")


def test_every_kernel_has_a_case() -> None:
    """A kernel that no case can measure, or an op without cases, is named."""
    known: set[str] = set()
    measured: set[str] = set()
    for case in cases():
        if case.name.startswith("deepbench"):  # larger, and of the same kinds
            continue
        candidates = [c for c in planned(case, 1)[1].candidates if not c.reference]
        known |= {c.kernel for c in candidates if not c.why.startswith("needs ")}
        measured |= {c.kernel for c in candidates if not c.why}
    assert len(known) > 20 and known == measured


def test_no_op_with_a_fast_kernel_is_left_out() -> None:
    """The cases name every op of the lists of kernels, and only ops that exist."""
    listed = {
        op
        for folder in ("kernels_x86", "kernels_arm")
        for path in (ROOT / folder).glob("*.inc")
        for op in re.findall(r"^LN_KERNEL\((\w+),", path.read_text(), re.MULTILINE)
    }
    benched = {case.op for case in cases()}
    assert len(listed) >= 20 and listed <= set(OPS), listed - set(OPS)
    assert benched <= set(OPS)
    assert listed <= benched, f"{listed - benched} have fast kernels and no case in tests/bench_kernels.py"


def test_the_figures_of_a_case() -> None:
    (case,) = [case for case in cases() if case.op == "matmul" and case.name == "f32 64x64x64"]
    found = timings(case, 1, 0.05)
    assert sum(t.chosen for t in found) == 1 and len({t.kernel for t in found}) == len(found)
    for t in found:
        assert t.us > 0 and t.gflops == pytest.approx(2 * 64**3 / t.us / 1e3)
        assert t.gbytes == pytest.approx(3 * 4 * 64**2 / t.us / 1e3) and t.ratio > 0
    assert isinstance(case, Case)


def test_the_command_prints_one_block_for_each_case() -> None:
    words = ["-m", "tests.bench_kernels", "--op", "softmax", "--case", "[8, 5]", "--seconds", "0.01"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
    assert "softmax: [8, 5]" in done.stdout and done.stdout.count("chosen") == 1
