"""Makers of control flow: If, Loop and Scan with bodies of a few ops that read outer values.
Some bodies change the shapes of carried values, so that all ways of planning loops are used."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from tests.onnx_graphs.builder import FLOATS, Array, Builder, Refused, Value, declared, maker, type_number

UNARY = ("Relu", "Tanh", "Sigmoid", "Neg", "Abs", "Identity")


def info(name: str, dtype: str, rank: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, type_number(dtype), [None] * rank)


def steps(b: Builder, first: str, others: list[str], prefix: str) -> tuple[list[NodeProto], str]:
    """Adds a few pointwise nodes, starting at `first`, which may read `others`."""
    nodes: list[NodeProto] = []
    for i in range(b.integer(1, 3)):
        name = f"{prefix}_{i}"
        if others and b.chance(50):
            nodes.append(helper.make_node(b.choice(["Add", "Mul", "Sub"]), [first, b.choice(others)], [name]))
        else:
            nodes.append(helper.make_node(b.choice(UNARY), [first], [name]))
        first = name
    return nodes, first


def branch(b: Builder, x: Value, prefix: str, outputs: int) -> GraphProto:
    nodes: list[NodeProto] = []
    results, initializers = [], []
    for i in range(outputs):
        others = [x.name]
        if b.chance(50):
            initializers.append(numpy_helper.from_array(np.asarray(0.5 + i, x.dtype), f"{prefix}_half{i}"))
            others.append(f"{prefix}_half{i}")
        more, name = steps(b, x.name, others, f"{prefix}_{i}")
        if b.chance(25) and x.rank:
            more.append(helper.make_node("Concat", [name, x.name], [f"{prefix}_{i}_wide"], axis=0))
            name = f"{prefix}_{i}_wide"
        nodes += more
        results.append(info(name, x.dtype, x.rank))
    return helper.make_graph(nodes, prefix, [], results, initializers)


@maker("control", 3)
def condition(b: Builder) -> None:
    x = b.pick(*FLOATS)
    outputs = b.integer(1, 2)
    if b.chance(40):
        test = b.given(np.asarray(b.chance(50)))
    else:
        found = b.pick("bool")
        if found.array.size != 1:
            whole = b.add("Cast", [found], to=TensorProto.FLOAT)
            axes = list(range(whole.rank))
            total = b.add("ReduceMax", [whole], keepdims=0) if axes else whole
            test = b.add("Greater", [total, b.const(np.asarray(0.5, np.float32))])
        else:
            test = b.add("Reshape", [found, b.const(np.zeros(0, np.int64))])
    name = b.fresh("branch")
    graphs = {
        "then_branch": branch(b, x, f"{name}_then", outputs),
        "else_branch": branch(b, x, f"{name}_else", outputs),
    }
    b.node("If", [test], outputs, captures=[x], noise=4.0, **graphs)


@maker("control", 3)
def loop(b: Builder) -> None:
    """A loop with a carried value, a scanned output, and a condition that may end it early."""
    x = b.pick("float32", "float64", ranks=[0, 1, 2, 3])
    if x.array.size > 200 or not np.isfinite(x.array).all():
        raise Refused("large")
    outside = b.const(b.data(x.dtype, (), "positive"))
    name = b.fresh("loop")
    nodes, last = steps(b, f"{name}_v", [outside.name, f"{name}_v"], name)
    keep = f"{name}_keep"
    limit = b.integer(0, 5)
    initializers = [numpy_helper.from_array(np.asarray(limit, np.int64), f"{name}_limit")]
    early = b.chance(40)
    nodes.append(
        helper.make_node("Less", [f"{name}_i", f"{name}_limit"], [keep]) if early
        else helper.make_node("Identity", [f"{name}_c"], [keep])
    )  # fmt: skip
    nodes.append(helper.make_node("Identity" if b.chance(50) else "Neg", [last], [f"{name}_scan"]))
    graph = helper.make_graph(
        nodes, name,
        [helper.make_tensor_value_info(f"{name}_i", TensorProto.INT64, []),
         helper.make_tensor_value_info(f"{name}_c", TensorProto.BOOL, []), info(f"{name}_v", x.dtype, x.rank)],
        [helper.make_tensor_value_info(keep, TensorProto.BOOL, []), info(last, x.dtype, x.rank),
         info(f"{name}_scan", x.dtype, x.rank)],
        initializers,
    )  # fmt: skip
    trips = b.given(np.asarray(b.integer(1, 4), np.int64)) if b.chance(80) or not early else None
    # the specification uses the body's condition only if the loop has one; ONNX Runtime always uses it
    start = b.given(np.asarray(True)) if early or b.chance(50) else None
    captures = [outside] if any(outside.name in n.input for n in nodes) else []
    b.node("Loop", [trips, start, x], 2, captures=captures, noise=4.0, body=graph)


@maker("control", 2)
def scan(b: Builder) -> None:
    x = b.pick("float32", "float64", ranks=[1, 2, 3])
    if not 0 < x.array.size <= 300 or not np.isfinite(x.array).all():
        raise Refused("large, or empty, which ends ONNX Runtime")
    if b.opset < 9:
        raise Refused("old")
    axis = b.integer(0, x.rank - 1) if b.chance(50) else 0
    rest = x.shape[:axis] + x.shape[axis + 1 :]
    state: Array = b.data(x.dtype, rest, "mild")
    name = b.fresh("scan")
    nodes, last = steps(b, f"{name}_s", [f"{name}_e", f"{name}_e"], name)
    nodes.append(helper.make_node("Add", [last, f"{name}_e"], [f"{name}_y"]))
    graph = helper.make_graph(
        nodes, name, [info(f"{name}_s", x.dtype, len(rest)), info(f"{name}_e", x.dtype, len(rest))],
        [info(last, x.dtype, len(rest)), info(f"{name}_y", x.dtype, len(rest))],
    )  # fmt: skip
    named = {"scan_input_axes": [axis], "num_scan_inputs": 1}
    if b.chance(40):
        named["scan_input_directions"] = [b.integer(0, 1)]
    if b.chance(40):
        named["scan_output_directions"] = [b.integer(0, 1)]
    if b.chance(30):
        named["scan_output_axes"] = [b.integer(-len(rest) - 1, len(rest)) if b.opset >= 11 else b.integer(0, len(rest))]
    b.node("Scan", [b.given(state), x], 2, noise=4.0, body=graph, **named)


__all__ = ["declared"]
