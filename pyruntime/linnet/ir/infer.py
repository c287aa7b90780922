"""Infers a node's outputs with the C library, and computes them at once if everything is constant.
Shape rules and arithmetic exist only in C; Python only passes operands back and forth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import GraphError
from linnet.clib.ffi import ffi
from linnet.clib.library import exception, library
from linnet.ir import symbolic, traits
from linnet.ir.dtypes import (
    DTYPE_IDS,
    DTYPE_NAMES,
    FOLD_LIMIT,
    Dim,
    Quantization,
    Spec,
    bits_of,
    bytes_of,
    dtype_of,
    nth,
    numpy_dtype,
    packed,
    unpacked,
)  # fmt: skip
from linnet.ir.encode import encode_node
from linnet.ir.operands import Callee, Known, Operand, Registered, Step, user_op_name

_MAX_RANK = 8
# Codes with which folding may fail although the graph is valid: an op has no reference kernel for a dtype, or an index
# is out of range in a branch that may never run.
_NOT_FOLDABLE = frozenset({301, 305})


class Found(NamedTuple):
    """What is known about the outputs of a node before it is created."""

    specs: list[Spec]
    values: list[npt.NDArray[Any]] | None = None  # if they are already known
    evaluated: bool = False  # whether the values were computed by arithmetic
    elements: symbolic.Elements | None = None  # what is known about the elements of the first output


def outputs_of(
    op: str,
    inputs: Sequence[Known | None],
    attributes: dict[str, Any],
    count: int,
    quantization: Sequence[Quantization | None],
    dtypes: Sequence[str],
    may_fold: Callable[[int], bool] | None,
) -> Found:
    """The outputs of a node that is not control flow. may_fold: a function that says whether this many bytes may become
    a constant; None: fold only known shapes. Raises GraphError."""
    if op == "shape" and inputs and (dims := known_shape(inputs[0], attributes)) is not None:
        return Found([("i64", dims.shape)], [dims])
    message = encode_node(op, attributes)
    specs = symbolic.named(
        lambda given: infer(message, given, count, quantization, dtypes),
        inputs,
        infer(message, inputs, count, quantization, dtypes),
    )
    if may_fold is not None and op != "assign" and _small_constant(may_fold, inputs, specs):
        values = evaluate(message, inputs, specs, quantization)
        if values is not None:
            return Found(specs, values, evaluated=True)
    wanted = symbolic.shape(op, inputs, attributes)
    if wanted is not None:
        specs = [(specs[0][0], _refined(specs[0][1], wanted)), *specs[1:]]
    known = symbolic.elements(op, inputs, attributes, specs[0])
    if may_fold is not None and (value := symbolic.constant(known, specs[0])) is not None:
        return Found(specs, [value])
    return Found(specs, elements=known)


def outputs_of_user_op(
    inputs: Sequence[Known | None],
    attributes: dict[str, Any],
    count: int,
    quantization: Sequence[Quantization | None],
    user_ops: Mapping[str, Registered],
) -> Found:
    """The outputs of a node of a user op, by the shape rule of this op. Raises GraphError."""
    name = user_op_name(attributes)
    if name not in user_ops:
        raise GraphError(
            f"the graph needs user op {name}, which was not given", code=301,
            hint="give the op when the graph is loaded: linnet.Graph.load(path, user_ops=[...])",
        )  # fmt: skip
    message, op = encode_node("user", attributes), user_ops[name].pointer

    def rule(given: Sequence[Operand | None]) -> list[Spec]:
        return infer(message, given, count, quantization, user_op=op)

    return Found(symbolic.named(rule, inputs, rule(inputs)))


def _refined(inferred: tuple[Dim, ...] | None, wanted: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Combines the inferred shape with what is known from the operand about its unknown sizes."""
    if inferred is None or len(inferred) != len(wanted):
        return wanted
    return tuple(b if a is None else a for a, b in zip(inferred, wanted, strict=True))


def known_shape(x: Operand | None, attributes: dict[str, Any]) -> np.ndarray[Any, Any] | None:
    """The result of a `shape` node, if it is known before the run."""
    if x is None or x.shape is None:
        return None
    dims = x.shape[attributes["start"] : attributes["end"]]
    return np.array(dims, np.int64) if all(isinstance(d, int) for d in dims) else None


def operands(tensors: Sequence[Operand | None], keep: list[Any]) -> Any:
    """A linnet_operand array. Objects that its pointers refer to are appended to `keep`."""
    array = ffi.new("linnet_operand[]", max(len(tensors), 1))
    for i, t in enumerate(tensors):
        if t is None:
            continue
        o = array[i]
        o.dtype = DTYPE_IDS[t.dtype]
        shape = t.shape
        if shape is None:
            o.rank = -1
        else:
            if len(shape) > _MAX_RANK:
                raise GraphError(
                    f"{t.name!r} has too many dimensions", code=306, tensor=t.name, expected=f"at most {_MAX_RANK}",
                    got=str(len(shape)),
                )  # fmt: skip
            o.rank = len(shape)
            if shape:
                o.shape = [d if d.__class__ is int else -1 for d in shape]
        if t.data is not None:
            pointer = ffi.from_buffer(packed(t.data))
            keep.append(pointer)
            o.data = pointer
        if t.quantization is not None:
            _quantize(o, t.quantization, keep)
    return array


def _quantize(operand: Any, quantization: Quantization, keep: list[Any]) -> None:
    scale = np.ascontiguousarray(quantization.scale, np.float32).reshape(-1)
    zero = np.ascontiguousarray(np.broadcast_to(np.asarray(quantization.zero, np.int32).reshape(-1), scale.shape))
    scale_pointer, zero_pointer = ffi.from_buffer("float[]", scale), ffi.from_buffer("int32_t[]", zero)
    keep += [scale, zero, scale_pointer, zero_pointer]
    operand.scales, operand.zeros, operand.quant_count = scale_pointer, zero_pointer, scale.size
    scheme = "TENSOR" if scale.size == 1 else "BLOCK" if quantization.block else "AXIS"
    operand.quant_scheme = getattr(library(), f"LINNET_QUANT_{scheme}")
    operand.quant_axis, operand.quant_block = quantization.axis or 0, quantization.block


def infer(
    message: bytes,
    inputs: Sequence[Operand | None],
    outputs: int,
    quantization: Sequence[Quantization | None] = (),
    dtypes: Sequence[str] = (),
    user_op: Any = ffi.NULL,
) -> list[Spec]:
    """(dtype, shape) of each output from the C shape rule, with None for unknown dimensions. user_op: if the message is
    a node of a user op, the linnet_user_op with the shape rule. Raises GraphError."""
    keep: list[Any] = []
    given = operands(inputs, keep)
    made = ffi.new("linnet_operand[]", max(outputs, 1))
    for i, dtype in enumerate(dtypes):
        made[i].dtype = DTYPE_IDS[dtype_of(dtype)]
    for i, q in enumerate(quantization):
        if q is not None:
            _quantize(made[i], q, keep)
    error = ffi.new("linnet_error *")
    data = ffi.from_buffer(message)
    if library().linnet_user_op_infer(user_op, data, len(message), given, len(inputs), made, outputs, error):
        raise exception(error)
    specs: list[Spec] = []
    for i in range(outputs):
        o = made[i]
        shape = None if o.rank < 0 else tuple([d if d >= 0 else None for d in list(o.shape)[: o.rank]])
        specs.append((DTYPE_NAMES[o.dtype], shape))
    return specs


def _small_constant(may_fold: Callable[[int], bool], inputs: Sequence[Operand | None], specs: list[Spec]) -> bool:
    for t in inputs:
        if t is not None and t.data is None:
            return False
    total = 0
    for dtype, shape in specs:
        if shape is None:
            return False
        count = 1
        for d in shape:
            if not isinstance(d, int):
                return False
            count *= d
        total += bytes_of(dtype, [count])
    return may_fold(total)


def evaluate(
    message: bytes,
    inputs: Sequence[Operand | None],
    specs: list[Spec],
    quantization: Sequence[Quantization | None] = (),
) -> list[np.ndarray[Any, Any]] | None:
    """The outputs' values from the reference kernel, or None if the library cannot compute this op. Raises
    GraphError."""
    keep: list[Any] = []
    given = operands(inputs, keep)
    made = ffi.new("linnet_operand[]", max(len(specs), 1))
    values = []
    for i, (dtype, shape) in enumerate(specs):
        dims = [d if isinstance(d, int) else -1 for d in shape or ()]
        value = np.empty(dims, numpy_dtype(dtype)) if bits_of(dtype) >= 8 else np.empty(bytes_of(dtype, dims), np.uint8)
        pointer = ffi.from_buffer(value, require_writable=True)
        keep.append(pointer)
        o = made[i]
        o.dtype, o.rank, o.data = DTYPE_IDS[dtype], len(dims), pointer
        if dims:
            o.shape = dims
        if (q := nth(quantization, i)) is not None:
            _quantize(o, q, keep)
        values.append(value)
    error = ffi.new("linnet_error *")
    code = library().linnet_op_evaluate(
        ffi.from_buffer(message), len(message), given, len(inputs), made, len(specs), error
    )
    if code in _NOT_FOLDABLE:
        return None
    if code:
        raise exception(error)
    return [
        value if bits_of(dtype) >= 8 else unpacked(value, dtype, [d if isinstance(d, int) else -1 for d in shape or ()])
        for value, (dtype, shape) in zip(values, specs, strict=True)
    ]


def evaluate_node(node: Step, limit: int = 0) -> list[np.ndarray[Any, Any]] | None:
    """Values of a node whose inputs are all constants. None if the node cannot be computed in advance. Also None if its
    results have more bytes than `limit` and more than four times the bytes of the inputs."""
    message = encode_node(node.op, node.attributes)
    quantization = [t.quantization for t in node.outputs]
    specs = infer(message, node.inputs, len(node.outputs), quantization, [t.dtype for t in node.outputs])
    if any(shape is None or not all(isinstance(d, int) for d in shape) for _, shape in specs):
        return None
    read = sum(bytes_of(t.dtype, t.data.shape) for t in node.inputs if t is not None and t.data is not None)
    if sum(_bytes(dtype, shape) for dtype, shape in specs) > max(limit, FOLD_LIMIT, 4 * read):
        return None
    return evaluate(message, node.inputs, specs, quantization)


def _bytes(dtype: str, shape: tuple[Dim, ...] | None) -> int:
    return bytes_of(dtype, [d for d in shape or () if isinstance(d, int)])


def common_shape(*shapes: tuple[Dim, ...] | None) -> tuple[Dim, ...] | None:
    """What is known about a value that has one of these shapes."""
    first = shapes[0]
    for other in shapes[1:]:
        if first is None or other is None or len(first) != len(other):
            return None
        first = tuple(a if a == b else None for a, b in zip(first, other, strict=True))
    return first


def _trips(inputs: Sequence[Known | None], body: Callee) -> Dim:
    """The number of iterations of a loop, if it is known and nothing else ends the loop."""
    begins = inputs[1] if len(inputs) > 1 else None
    ends = begins is not None and (begins.data is None or body.outputs[0] is not body.inputs[1])
    known = None if ends else symbolic.elements_of(inputs[0] if inputs else None)
    return known[0] if known else None


def control_flow(
    op: str, inputs: Sequence[Known | None], attributes: dict[str, Any], outputs: int, name: str
) -> list[Spec]:
    """The outputs of if, while and call, derived from the functions that they refer to."""
    functions: list[Callee] = []
    for key in traits.functions(op):
        if attributes[key] is None:
            raise GraphError(f"{op} needs the attribute {key}", code=302, op=name or op)
        functions.append(attributes[key])
    if op == "while":
        carried = attributes["carried"]
        body = functions[0].outputs[1:]
        trips = _trips(inputs, functions[0])
        specs: list[Spec] = []
        for i, t in enumerate(body):
            initial = inputs[2 + i] if i < carried and 2 + i < len(inputs) else None
            if i < carried:
                specs.append((t.dtype, common_shape(t.shape, initial.shape) if initial is not None else t.shape))
            else:
                specs.append((t.dtype, None if t.shape is None else (trips, *t.shape)))
    else:
        for other in functions[1:]:
            if [t.dtype for t in other.outputs] != [t.dtype for t in functions[0].outputs]:
                raise GraphError(
                    f"the branches of {name or op!r} return different dtypes", code=303, op=name or op,
                    expected=" ".join(t.dtype for t in functions[0].outputs),
                    got=" ".join(t.dtype for t in other.outputs),
                )  # fmt: skip
        specs = [
            (group[0].dtype, common_shape(*(t.shape for t in group)))
            for group in zip(*(f.outputs for f in functions), strict=True)
        ]
    if len(specs) != outputs:
        raise GraphError(
            f"{op} has the wrong number of outputs", code=303, op=name or op, expected=str(len(specs)), got=str(outputs)
        )
    return specs
