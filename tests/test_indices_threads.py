"""Look-ups that are shared out among threads: every one gets its own part, no more, wherever rows are cut."""

from __future__ import annotations

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.graph import Graph


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("dtype", ["f32", "f64", "u8"])
def test_parts_of_a_look_up(dtype: str, width: int) -> None:
    kind = linnet.graph.numpy_dtype(dtype)
    rng = np.random.default_rng(width)
    table = rng.integers(0, 200, (50, width) if width > 1 else 50).astype(kind)
    for shape in ((40_001,), (7, 9_001)):
        graph = Graph()
        ids = graph.placeholder("ids", shape, "i64")
        graph.signature("infer", {"ids": ids}, {"y": ops.gather(graph.constant(table, dtype=dtype), ids)})
        given = rng.integers(-50, 50, shape)
        for threads in (1, 2, 3, 5):
            found = linnet.Session(graph, threads=threads).run({"ids": given})["y"]
            np.testing.assert_array_equal(found, table[given])
