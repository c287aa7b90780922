"""Random valid ONNX graphs of all op families against ONNX Runtime (tests/onnx_graphs): default and reference plans, 1 and 2
threads, scalar kernels. `python -m tests.onnx_graphs.reduce SEED` shows the failing part of a graph. `make soak`: 6,000."""
# Dear: random graphs are compared with ONNX Runtime, and on every instruction set.

from __future__ import annotations

import random
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest

import linnet
from linnet.session.model import isa_names
from tests.graphs import in_integers
from tests.native import ROOT

ACCEPTED = {"pass", "none", "refused", "reference"}
SAME_BITS = {
    "map",
    "copy",
    "cast",
    "quantize",
    "gather",
    "shape",
    "resize",
}  # ops whose float results are rounded the same way everywhere
# Reasons for which linnet may refuse a valid graph: a rule needs something that depends on data.
REFUSALS = re.compile(r"(is|are) (not known|unknown)|is not a constant")


def _judge(first: int, last: int) -> None:
    from tests.onnx_graphs.__main__ import judged

    counts, ops, lines = judged(first, last)
    print(dict(counts), f"{len(ops)} ops")
    assert set(counts) <= ACCEPTED, "\n".join(lines)
    for line in lines:
        assert " refused: " not in line or REFUSALS.search(line), line
    total = last - first
    assert counts["pass"] >= 0.9 * total and counts["refused"] <= max(0.01 * total, 2), counts
    assert counts["reference"] <= max(0.01 * total, 2), "\n".join(lines)  # ONNX Runtime disagrees with two others
    assert len(ops) > 120, ops


def test_seeded_graphs_agree_with_onnx_runtime() -> None:
    _judge(0, 400)


def test_graphs_of_hypothesis_agree_with_onnx_runtime() -> None:
    """Runs in its own process, so that a crash affects nothing else."""
    command = [sys.executable, "-m", "tests.onnx_graphs", "hypothesis", "300"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


@pytest.mark.soak
@pytest.mark.parametrize("part", range(12))
def test_seeded_graphs_at_length(part: int) -> None:
    _judge(1000 + 500 * part, 1500 + 500 * part)


@pytest.mark.parametrize("dtype", ["i8", "i16"])
def test_random_quantized_graphs_give_the_same_bits_on_every_isa(dtype: str) -> None:
    from tests.onnx_graphs.judge import QUANTIZABLE, make

    stored = 0
    for seed in range(200):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's overflow warnings
            case = make(random.Random(seed), QUANTIZABLE, "float32")
        arrays = [] if case is None else [*case[1].values(), *(v.array for v in case[2].values())]
        if case is None or not all(np.isfinite(a).all() for a in arrays):
            continue
        if case[1] and not any(np.any(value) for value in case[1].values()):
            continue  # data that are all zero say nothing of the range
        graph = in_integers(linnet.from_onnx(case[0]), [case[1]], dtype)
        nodes = graph.signatures["infer"].function.nodes
        if any(n.op not in SAME_BITS and n.inputs[0] is not None and n.inputs[0].dtype[0] == "f" for n in nodes):
            continue  # sums of floats may differ between instruction sets
        stored += sum(t.dtype == dtype for node in nodes for t in node.outputs)
        plain = linnet.Session(graph, threads=1, isa_max="scalar").run(case[1])
        for isa in isa_names()[1:]:
            for name, value in linnet.Session(graph, threads=2, isa_max=isa).run(case[1]).items():
                np.testing.assert_array_equal(value, plain[name], f"seed {seed}, {isa}, {name}")
    assert stored > 40  # otherwise the graphs contain nothing to compare
