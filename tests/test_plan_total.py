"""A plan's total equals the memory taken, to the byte, whatever is folded: constants with sizes that do not fill a line."""

from __future__ import annotations

import numpy as np
import pytest

from linnet import ops
from linnet.facade import Graph
from tests.capi import Allocator, Chain


@pytest.mark.parametrize("sizes", [(20_001,), (20_001, 25_003), (30_011, 22_007)])
def test_folded_constants_count_as_much_as_they_take(sizes: tuple[int, ...]) -> None:
    graph = Graph()
    x = graph.placeholder("x", (3, 1), "f32")
    results = {}
    for i, size in enumerate(sizes):
        made = x.function.emit("softmax", [x.function.constant(np.arange(size, dtype=np.float32))], {}, fold=False)[0]
        results[f"y{i}"] = ops.softmax(x + made, axis=0)
    graph.signature("infer", {"x": x}, results)
    allocator = Allocator()
    with Chain(graph.to_bytes(), allocator, copy=False) as chain:
        chain.make_store().make_plan(allocator=allocator.struct).make_session()
        info = chain.info()
        assert info.constants >= sum(4 * size for size in sizes) and info.constants % 64 == 0
        assert allocator.bytes == info.total
        chain.set({"x": np.ones((3, 1), np.float32)}).run()
        assert allocator.bytes == info.total
    assert not allocator.live and not allocator.faults
