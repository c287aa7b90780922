"""Export rules for control flow, random numbers and non-maximum suppression.
Functions become subgraphs, which refer to captured operands by name. Calls are inlined."""

from __future__ import annotations

import numpy as np

from linnet.converters.export.writer import TYPES, Writer, export
from linnet.converters.problems import Unsupported
from linnet.ir.function import Function, Node


def _function(node: Node, name: str) -> Function:
    found = node.attribute(name)
    assert isinstance(found, Function)
    return found


@export("if")
def if_(w: Writer, node: Node) -> list[str]:
    captured = [w.of(t) for t in node.inputs[1:]]
    branches = [w.subgraph(_function(node, f"{which}_function"), [], captured) for which in ("then", "else")]
    made = w.emit("If", [w.operand(node, 0)], len(node.outputs), then_branch=branches[0], else_branch=branches[1])
    return [made] if isinstance(made, str) else list(made)


@export("while")
def while_(w: Writer, node: Node) -> list[str]:
    function, carried = _function(node, "body_function"), int(node.attribute("carried"))
    values = [w.of(t) for t in node.inputs[2 : 2 + carried]]
    captured = [w.of(t) for t in node.inputs[2 + carried :]]
    body = w.subgraph(function, function.inputs[: 2 + carried], captured)
    trips, condition = w.operand(node, 0), w.operand(node, 1)
    made = w.emit("Loop", [trips, condition, *values], len(node.outputs), body=body)
    return [made] if isinstance(made, str) else list(made)


@export("call")
def call(w: Writer, node: Node) -> list[str]:
    return w.body(_function(node, "callee"), [w.of(t) for t in node.inputs])


@export("random")
def random(w: Writer, node: Node) -> str:
    """The exported model draws different numbers from the same distribution, because ONNX does not define the
    generator."""
    kind = str(node.attribute("kind"))
    if kind == "bits":
        raise Unsupported("ONNX has no op for raw random bits", "use kind uniform or normal")
    op = "RandomUniform" if kind == "uniform" else "RandomNormal"
    seed = float(node.attribute("seed") % (1 << 24))
    shape = w.operand(node, 1)
    if not shape:
        return str(w.emit(op, [], shape=list(node.attribute("shape")), seed=seed))
    zeros = w.emit("Expand", [w.constant(np.float32(0), "number"), shape])
    return str(w.emit(f"{op}Like", [zeros], dtype=TYPES["f32"], seed=seed))


@export("nms")
def nms(w: Writer, node: Node) -> str:
    if len(node.outputs) > 1 or node.attribute("padded") or node.attribute("soft_sigma"):
        raise Unsupported(
            "ONNX's NonMaxSuppression has no scores, padding or soft suppression",
            "leave out scores, padded and soft_sigma: ONNX returns only the selected indices",
        )
    boxes, scores, most, overlap, least = (w.operand(node, i) for i in range(5))
    most = most or w.constant(np.int64(1 << 62), "number")
    return str(
        w.emit(
            "NonMaxSuppression",
            [boxes, scores, most, overlap, least],
            center_point_box=int(node.attribute("center_point_box")),
        )
    )
