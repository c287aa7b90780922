"""Dynamic quantization: products multiply 8-bit weights by activations that each run quantizes over their own range. It needs
no calibration data. The arithmetic is that of ONNX's DynamicQuantizeLinear and MatMulInteger, with one scale per column."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from linnet.builder.mapping import pointwise
from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.ir import traits
from linnet.ir.dtypes import Quantization
from linnet.ir.expr import Expr
from linnet.ir.function import Function, Node, Tensor, emit
from linnet.passes.pipeline import simplify
from linnet.passes.rewrite import put_in_place, splice
from linnet.quantization import embeddings, recurrent
from linnet.quantization.scheme import RECURRENT, table_of, weight_parameters

LARGE = 1 << 12  # weights of a product; with fewer, quantizing the activations takes longer than the product
LEAST_DEPTH = 16  # products that are added up in one result; with fewer, converting the results takes longer
MOST_DEPTH = 1 << 16  # above this, a sum of products of u8 by i8 may not fit in 32 bits
_CONVOLUTIONS = frozenset(op for op in traits.PRODUCTS if traits.output_axis(op) == 0)


def quantize_dynamic(graph: Graph, weight_bits: int = 8) -> Graph:
    """Returns a copy of a float graph whose products with large constant weights compute in 8 bits.

    Such a product is a matmul by a constant matrix [k, n], or a conv with one group; k is the number of products per result.
    The weights are symmetric i8 with one scale per output channel. The other operand is quantized to u8 in each run, with one
    scale for the whole tensor, from its least and its greatest value. Products are summed exactly in i32, and the results are
    f32. Large tables of embeddings are stored in i8, with one scale per row, and so are the weights that multiply the states of
    recurrent layers. Products of two activations and depthwise convolutions stay in floats.
    Raises UsageError if the graph has no product that can be quantized.
    """
    made = graph.copy()
    count = sum(_rewrite(function, weight_bits) + _narrow_recurrent(function) for function in made.functions)
    if not count:
        raise UsageError(
            "the model has no product that can be quantized dynamically", code=103,
            expected=f"a matmul or a conv (group 1) in f32 with {LARGE:,} constant weights or more",
            got="products of other kinds only", hint="pass dtype='i8' and calibration data, or dtype='f16'",
        )  # fmt: skip
    for function in made.functions:
        _narrow_tables(function, weight_bits)
        simplify(function)
    made.metadata["dtype"] = "i8"
    return made


def refuse_with_dynamic(dtype: str, given: Mapping[str, object]) -> None:
    """Raises UsageError if dynamic quantization cannot take these arguments of `linnet.quantize`. given: arguments that must be
    None."""
    if dtype != "i8":
        raise UsageError("dynamic quantization has only 8 bits", code=101, expected="dtype='i8'", got=repr(dtype))
    for name, value in given.items():
        if value is not None:
            raise UsageError(
                f"dynamic quantization takes no {name}, because each run finds the ranges", code=101, expected="None",
                got=type(value).__name__, hint=f"leave out {name}, or dynamic=True",
            )  # fmt: skip


def _narrow_tables(function: Function, bits: int) -> None:
    """Stores the constants of which only lookups read rows in 8 bits."""
    readers = function.consumers()
    for table in [t for t in map(table_of, function.nodes) if t is not None]:
        lookups = readers.get(table, [])
        assert table.data is not None
        if table.data.nbytes < embeddings.LARGE or any(table_of(node) is not table for node in lookups):
            continue
        if table in function.outputs or not np.isfinite(table.data).all():
            continue
        values, parameters = embeddings.narrow(table.data, "i8", bits)
        stored = function.constant(values, table.name, quantization=parameters)
        for node in lookups:
            node.inputs[0], node.attributes = stored, {**node.attributes, "dtype": "f32"}


def _narrow_recurrent(function: Function) -> int:
    """Stores constant weights of recurrent layers in 8 bits. Each step then quantizes the state. Returns their number."""
    count = 0
    for node in function.nodes:
        w = node.inputs[1] if node.op in RECURRENT else None
        if w is not None and w.data is not None and w.data.size >= LARGE and recurrent.scheme_of(node, "i8"):
            node.inputs[1] = recurrent.stored_weights(function, node, "w8", None)
            count += 1
    return count


def _axis(node: Node) -> int | None:
    """The axis of the weights along which there is one slice per output channel; None if the node stays in floats."""
    if node.op not in traits.MATRICES | _CONVOLUTIONS or len(node.inputs) < 2 or len(node.outputs) != 1:
        return None
    x, w = node.inputs[0], node.inputs[1]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if x is None or w is None or w.data is None or w.dtype != "f32" or x.dtype != "f32" or x.data is not None:
        return None
    if x.rank is None or x.rank < 2 or node.outputs[0].dtype != "f32" or not np.isfinite(w.data).all():
        return None
    if bias is not None and (bias.data is None or bias.dtype != "f32"):
        return None
    if node.op in traits.MATRICES and (w.data.ndim != 2 or node.attribute("transpose_a")):
        return None
    if node.op in _CONVOLUTIONS and (node.attribute("channel_axis") != 1 or node.attribute("group") != 1):
        return None
    axis = traits.weight_axis(node.op, node.attributes, w.data.ndim)
    if axis is None or w.data.size < LARGE or w.data.shape[axis] == 0:
        return None
    depth = w.data.size // w.data.shape[axis]
    padded = node.op in _CONVOLUTIONS and node.attribute("auto_pad") not in ("explicit", "valid")
    return axis if LEAST_DEPTH <= depth <= MOST_DEPTH and not padded else None


def _rewrite(function: Function, weight_bits: int) -> int:
    """Rewrites the products of a function. Returns their number."""
    places: dict[Node, list[Node]] = {}
    quantized: dict[Tensor, tuple[Tensor, Tensor, Tensor]] = {}
    for node in list(function.nodes):
        axis = _axis(node)
        if axis is not None:
            before = len(function.nodes)
            result = _product(function, node, axis, weight_bits, quantized)
            put_in_place(places, node, result, before, node.source or f"{node.op}:{node.name}")
    splice(function, places)
    return len(places)


def _emit(function: Function, op: str, inputs: list[Tensor | None], **attributes: object) -> Tensor:
    return emit(op, inputs, attributes, function=function)[0]


def _quantized(function: Function, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x as u8, its scale and its zero point. The range contains 0, so that padding and relu are exact."""
    low = _emit(function, "reduce", [x], kind="min", axes=[], keep_dims=False)
    high = _emit(function, "reduce", [x], kind="max", axes=[], keep_dims=False)

    def step(a: Expr, b: Expr) -> Expr:
        span = b.max(0) - a.min(0)
        return span.eq(0).select(1, span / 255)

    scale = pointwise([low, high], step)
    zero = pointwise([low, scale], lambda a, s: (0 - a.min(0) / s).max(0).min(255).unary("round"), "u8")
    return _emit(function, "quantize", [x, scale, zero], dtype="u8"), scale, zero


def _plain(function: Function, x: Tensor) -> Tensor:
    """The same integers as numbers with a scale of 1, as a product of integers needs them."""
    made = _emit(function, "copy", [x], kind="identity")
    made.quantization = Quantization(np.ones(1, np.float32), np.zeros(1, np.int32))
    return made


def _product(
    function: Function, node: Node, axis: int, weight_bits: int, quantized: dict[Tensor, tuple[Tensor, Tensor, Tensor]]
) -> Tensor:
    """Emits the integer form of a product. quantized: the activations that earlier products of the function have
    quantized."""
    x, w = node.inputs[0], node.inputs[1]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    assert x is not None and w is not None and w.data is not None
    if x not in quantized:
        quantized[x] = _quantized(function, x)
    stored, scale, zero = quantized[x]
    values, parameters = weight_parameters(w.data, axis, bits=weight_bits)
    sums = values.sum(tuple(i for i in range(values.ndim) if i != axis), dtype=np.int32)
    attributes = dict(node.attributes)
    left = _plain(function, stored)
    tail: list[int] = []
    if node.op in _CONVOLUTIONS:
        tail = [1] * (w.data.ndim - 2)
        left = _padded(function, left, zero, attributes)
    weights = function.constant(
        values, w.name, quantization=Quantization(np.ones(1, np.float32), np.zeros(1, np.int32))
    )
    y = _emit(function, node.op, [left, weights], **{**attributes, "output_dtype": "i32"})

    def row(numbers: np.ndarray[tuple[int, ...], np.dtype[np.generic]], name: str) -> Tensor:
        return function.constant(numbers.reshape([-1, *tail]), f"{w.name}/{name}")

    operands = [y, zero, row(sums, "sums"), scale, row(parameters.scale, "scales")]
    if bias is not None and bias.data is not None:
        operands.append(row(bias.data, "bias"))

    def real(v: Expr, z: Expr, s: Expr, a: Expr, b: Expr, *c: Expr) -> Expr:
        product = (v - z.cast("i32") * s).cast("f32") * (a * b)
        return product + c[0] if c else product

    result: Tensor = pointwise(operands, real, "f32", name=node.name)
    return result


def _padded(function: Function, x: Tensor, zero: Tensor, attributes: dict[str, object]) -> Tensor:
    """x padded with its zero point, which is known only in the run. The pads are removed from the attributes."""
    pads = attributes.pop("pads", None)
    if not isinstance(pads, list | tuple) or not any(pads):
        return x
    half = len(pads) // 2
    amounts = np.array([0, 0, *pads[:half], 0, 0, *pads[half:]], np.int64)
    made = _emit(function, "copy", [x, function.constant(amounts, "pads"), zero], kind="pad")
    made.quantization = x.quantization
    return made
