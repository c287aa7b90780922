"""Rules for reductions, argmax and argmin, softmax and running sums.
Axes are an attribute in old opsets and an operand in new ones."""

from __future__ import annotations

from collections.abc import Callable

from linnet.converters.onnx.operation import Operation, rank_of
from linnet.converters.onnx.program import Expr
from linnet.converters.onnx.registry import rule
from linnet.converters.onnx.rules.movement import flattened
from linnet.ir.function import Tensor

KINDS = {
    "ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod",
    "ReduceL1": "l1", "ReduceL2": "l2", "ReduceSumSquare": "sum_square", "ReduceLogSum": "log_sum",
    "ReduceLogSumExp": "log_sum_exp",
}  # fmt: skip


def _by_attribute(kind: str) -> Callable[[Operation], Tensor]:
    def lower(op: Operation) -> Tensor:
        return op.reduce(op.input(0), kind, op.attribute("axes", []), bool(op.attribute("keepdims")))

    return lower


def _by_operand(kind: str) -> Callable[[Operation], Tensor]:
    def lower(op: Operation) -> Tensor:
        x, axes = op.input(0), op.optional(1)
        keep, noop = bool(op.attribute("keepdims")), bool(op.attribute("noop_with_empty_axes"))
        if axes is not None and axes.data is None and axes.static_shape != (0,):
            return op.emit("reduce", [x, axes], kind=kind, keep_dims=keep, noop_with_empty_axes=noop)
        known = [] if axes is None or axes.data is None else [int(v) for v in axes.data.reshape(-1)]
        if not known and noop:
            return _elementwise(op, x, kind)
        return op.reduce(x, kind, known, keep)

    return lower


def _elementwise(op: Operation, x: Tensor, kind: str) -> Tensor:
    """The reduction over no axes: its function applied to each element."""
    if kind == "l1":
        return op.map([x], lambda v: v.unary("abs"))
    if kind == "l2":
        return op.map([x], lambda v: v.unary("abs"))
    if kind == "sum_square":
        return op.map([x], lambda v: v * v)
    if kind == "log_sum":
        return op.map([x], lambda v: v.unary("log"))
    return x


for _name, _kind in KINDS.items():
    rule(_name)(_by_attribute(_kind))
    rule(_name, since=13 if _name == "ReduceSum" else 18)(_by_operand(_kind))


@rule("ArgMax", "ArgMin")
def arg_extremum(op: Operation) -> Tensor:
    return op.emit(
        "reduce",
        [op.input(0)],
        kind=op.node.op_type.lower(),
        axes=[op.attribute("axis")],
        keep_dims=bool(op.attribute("keepdims")),
        select_last_index=bool(op.attribute("select_last_index", 0)),
    )


def _flattened(op: Operation, lower: Callable[[Tensor], Tensor]) -> Tensor:
    """Before opset 13, softmax flattened its input to two dimensions at `axis` and worked on the second."""
    x = op.input(0)
    rank = rank_of(x, "input 0")
    axis = op.attribute("axis")
    axis += rank if axis < 0 else 0
    if axis == rank - 1:
        return lower(x)
    return op.reshape(lower(flattened(op, x, axis)), op.shape_of(x), True)


@rule("Softmax", "LogSoftmax")
def softmax_flattening(op: Operation) -> Tensor:
    log = op.node.op_type == "LogSoftmax"
    return _flattened(op, lambda x: op.emit("softmax", [x], axis=-1, log=log))


@rule("Softmax", "LogSoftmax", since=13)
def softmax(op: Operation) -> Tensor:
    return op.emit("softmax", [op.input(0)], axis=op.attribute("axis"), log=op.node.op_type == "LogSoftmax")


def _hardmax(op: Operation, x: Tensor, axis: int) -> Tensor:
    rank = rank_of(x, "input 0")
    axis += rank if axis < 0 else 0
    best = op.emit("reduce", [x], kind="argmax", axes=[axis], keep_dims=True)

    def body(index: Expr, value: Expr) -> Expr:
        return index.iota(axis).binary("eq", index).cast(value.kind)

    return op.map([best, x], body, x.dtype)


@rule("Hardmax")
def hardmax_flattening(op: Operation) -> Tensor:
    return _flattened(op, lambda x: _hardmax(op, x, -1))


@rule("Hardmax", since=13)
def hardmax(op: Operation) -> Tensor:
    return _hardmax(op, op.input(0), op.attribute("axis"))


@rule("CumSum", "CumProd")
def cumsum(op: Operation) -> Tensor:
    x, axis = op.input(0), op.input(1)
    axis = op.reshape(axis, []) if axis.rank else axis
    return op.emit(
        "cumsum",
        [op.cast(x, "i64") if x.dtype == "bool" else x, axis],  # not valid ONNX, but PyTorch exports it to count
        exclusive=bool(op.attribute("exclusive")),
        reverse=bool(op.attribute("reverse")),
        product=op.node.op_type == "CumProd",
    )
