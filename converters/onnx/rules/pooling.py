"""Rules for pooling. Global pools are reductions over the spatial axes.
Integers that the runtime cannot pool are pooled in f32, which holds them exactly."""

from __future__ import annotations

from typing import Any

from linnet.converters.onnx.operation import Operation, rank_of
from linnet.converters.onnx.registry import rule
from linnet.converters.onnx.rules.convolution import auto_pad
from linnet.ir.function import Tensor


def pool_attributes(op: Operation, kind: str) -> dict[str, Any]:
    result: dict[str, Any] = {"kind": kind, "kernel": list(op.attribute("kernel_shape"))}
    if not 1 <= len(result["kernel"]) <= 3:
        raise op.unsupported(f"{len(result['kernel'])} spatial dimensions are not supported", "use 1 to 3")
    for name in ("strides", "dilations", "pads"):
        value = op.attribute(name)
        if value:
            result[name] = list(value)
    mode = auto_pad(op)
    if mode != "explicit":
        result["auto_pad"] = mode
        result.pop("pads", None)
    result["ceil_mode"] = bool(op.attribute("ceil_mode", 0))
    return result


@rule("MaxPool")
def max_pool(op: Operation) -> list[Tensor]:
    attributes = pool_attributes(op, "max")
    attributes["storage_order"] = op.attribute("storage_order", 0)
    return op.emit_all("pool", [op.input(0)], 2 if op.wants(1) else 1, **attributes)


@rule("AveragePool")
def average_pool(op: Operation) -> Tensor:
    attributes = pool_attributes(op, "average")
    return op.emit("pool", [op.input(0)], count_include_pad=bool(op.attribute("count_include_pad", 0)), **attributes)


@rule("LpPool")
def lp_pool(op: Operation) -> Tensor:
    attributes = pool_attributes(op, "lp")
    return op.emit("pool", [op.input(0)], p=op.attribute("p"), **attributes)


def _spatial(op: Operation) -> list[int]:
    return list(range(2, rank_of(op.input(0), "input 0")))


@rule("GlobalAveragePool")
def global_average_pool(op: Operation) -> Tensor:
    return op.reduce(op.input(0), "mean", _spatial(op))


@rule("GlobalMaxPool")
def global_max_pool(op: Operation) -> Tensor:
    return op.reduce(op.input(0), "max", _spatial(op))


@rule("GlobalLpPool")
def global_lp_pool(op: Operation) -> Tensor:
    x, p = op.input(0), op.attribute("p")
    if p in (1, 2):
        return op.reduce(x, f"l{p}", _spatial(op))
    wide = "f32" if x.dtype in ("f16", "bf16") else x.dtype  # the powers would overflow
    powers = op.map([x], lambda v: v.unary("abs").binary("pow", p), wide)
    return op.map([op.reduce(powers, "sum", _spatial(op))], lambda v: v.binary("pow", 1 / p), x.dtype)
