"""NaN that comes in comes out, on every ISA, with the limits of an activation behind the op and at every width."""

from __future__ import annotations

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.graph import Graph
from linnet.model import isa_names


@pytest.mark.parametrize("columns", [1, 7, 32, 45])
def test_limits_keep_nan(columns: int) -> None:
    rng = np.random.default_rng(columns)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((6, 9), (9, columns)))
    a[2, 3] = np.nan
    graph = Graph()
    x = graph.placeholder("x", a.shape, "f32")
    y = ops.clip(x @ graph.constant(b), -1.0, 1.0)
    graph.signature("infer", {"x": x}, {"y": y})
    expected = np.clip(a @ b, -1, 1)
    assert np.isnan(expected[2]).all() and not np.isnan(expected[3]).any()
    for isa in isa_names():
        for reference in (False, True):
            found = linnet.Session(graph, isa_max=isa, reference=reference).run({"x": a})["y"]
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=isa)
