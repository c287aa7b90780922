"""Pointwise expressions for rules, as in linnet.mapping, except that one-element constants become immediates. A
body gets one expression per operand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from linnet.ir.expr import Expr
from linnet.ir.function import Tensor
from linnet.ir.program import REGISTER, Program, Store

if TYPE_CHECKING:
    from linnet.converters.onnx.operation import Operation

__all__ = ["FLOATS", "REGISTER", "Expr", "float_value", "pointwise"]

FLOATS = ("f32", "f64", "f16", "bf16")


def float_value(tensor: Tensor) -> npt.NDArray[Any] | None:
    """The value of a constant, with bf16 as f32; None for other tensors."""
    if tensor.data is None:
        return None
    return tensor.data.astype(np.float32) if tensor.dtype == "bf16" else tensor.data


def _immediate(tensor: Tensor, others: Sequence[Tensor]) -> float | int | None:
    """The number in a one-element constant, if the operand can be omitted without changing the iteration shape; else
    None."""
    if tensor.data is None or tensor.data.size != 1:
        return None
    if not any(o is not tensor and o.data is None and (o.rank or 0) >= tensor.data.ndim for o in others):
        return None
    value = float_value(tensor)
    assert value is not None
    number = value.reshape(-1)[0]
    return float(number) if tensor.dtype in FLOATS else int(number)


def pointwise(
    op: Operation,
    inputs: Sequence[Tensor],
    body: Callable[..., Any],
    dtypes: str | Sequence[str] | None = None,
) -> Any:
    """Emits one map node. body(*expressions) returns one expression, or a tuple with one per output.

    dtypes: element types of the outputs (default: that of the first input). Returns a tensor, or a list if dtypes is a list.
    """
    program, expressions = Program(), []
    operands: dict[Tensor, int] = {}
    for tensor in inputs:
        number = _immediate(tensor, inputs)
        if number is not None:
            expressions.append(Expr.constant(program, number, tensor.dtype))
            continue
        place = operands.setdefault(tensor, len(operands))
        expressions.append(Expr.load(program, tensor.dtype, place))
    result = body(*expressions)
    results = list(result) if isinstance(result, tuple) else [result]
    single = dtypes is None or isinstance(dtypes, str)
    names = [str(dtypes or inputs[0].dtype)] if single else [str(d) for d in dtypes or ()]
    program.stores = [Store(e.for_store(name).register, False) for e, name in zip(results, names, strict=True)]
    outputs = op.emit_all("map", list(operands), len(names), **program.attributes(names))
    return outputs[0] if single else outputs
