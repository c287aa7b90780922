"""Making one node: encode it, let the C library infer its outputs, compute it at once when everything is constant.
Shape rules and arithmetic exist once, in C; Python only carries operands there and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from linnet import symbolic
from linnet._encode import complete, encode_node
from linnet._generated.ffi import ffi
from linnet._generated.op_table import OPS
from linnet._library import exception, library
from linnet.errors import Error, GraphError
from linnet.graph import (
    DTYPE_IDS,
    DTYPE_NAMES,
    FOLD_LIMIT,
    Dim,
    Function,
    Graph,
    Node,
    Quantization,
    Tensor,
    numpy_dtype,
)

CONTROL_FLOW = frozenset({"if", "while", "call"})
_MAX_RANK = 8
# Where folding may fail without the graph being wrong: the reference kernel of an op is missing for a dtype, or an index
# is bad in a branch that may never run.
_NOT_FOLDABLE = frozenset({301, 305})


def emit(
    op: str,
    inputs: list[Tensor | None],
    attributes: dict[str, Any],
    outputs: int = 1,
    name: str = "",
    function: Function | None = None,
    quantization: Sequence[Quantization | None] = (),
    dtypes: Sequence[str] = (),
    fold: bool = True,
) -> list[Tensor]:
    """See linnet.graph.emit. fold: False keeps a node even where all its operands are constants."""
    if op not in OPS:
        raise GraphError(f"there is no op {op!r}", code=301, op=name or op, hint=f"ops are: {', '.join(OPS)}")
    attributes = complete(op, attributes)
    if function is None:
        function = next((t.function for t in inputs if t is not None), None)
        if function is None:
            raise GraphError(f"{op} without inputs needs to be told its function", code=302, op=name or op)
    if bodies := function.graph.bodies:
        function = bodies[-1]
        inputs = [None if t is None else bodies[-1].own(t) for t in inputs]
    while inputs and inputs[-1] is None:
        inputs = inputs[:-1]
    if op in CONTROL_FLOW:
        specs = _control_flow(op, inputs, attributes, outputs, name)
        return _append(op, inputs, attributes, specs, name, function, quantization)
    if op == "shape" and inputs and (dims := known_shape(inputs[0], attributes)) is not None:
        return [function.constant(dims, name)]
    message = encode_node(op, attributes)
    try:
        specs = symbolic.named(
            lambda given: infer(message, given, outputs, quantization, dtypes),
            inputs,
            infer(message, inputs, outputs, quantization, dtypes),
        )
        if fold and op != "assign" and _small_constant(function.graph, inputs, specs):
            values = evaluate(message, inputs, specs, quantization)
            if values is not None:
                function.graph.folded += sum(value.nbytes for value in values)
                widest = max((t for t in inputs if t is not None), key=_elements, default=None)
                name = name or (widest.name if widest is not None else "")  # what is made of a weight is that weight
                return [
                    function.constant(
                        value, name if i == 0 else f"{name}_{i}" if name else "", dtype, _nth(quantization, i)
                    )
                    for i, (value, (dtype, _)) in enumerate(zip(values, specs, strict=True))
                ]
    except Error as error:
        error.op = name or error.op or op
        raise
    wanted = symbolic.shape(op, inputs, attributes)
    if wanted is not None:
        specs = [(specs[0][0], _refined(specs[0][1], wanted)), *specs[1:]]
    known = symbolic.elements(op, inputs, attributes, specs[0])
    if fold and (value := symbolic.constant(known, specs[0])) is not None:
        return [function.constant(value, name)]
    made = _append(op, inputs, attributes, specs, name, function, quantization)
    made[0].elements = known
    return made


def _refined(inferred: tuple[Dim, ...] | None, wanted: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """What the shape rule found, and what the operand says of the rest."""
    if inferred is None or len(inferred) != len(wanted):
        return wanted
    return tuple(b if a is None else a for a, b in zip(inferred, wanted, strict=True))


def known_shape(x: Tensor | None, attributes: dict[str, Any]) -> np.ndarray[Any, Any] | None:
    """What a `shape` node gives, where it is known before running."""
    if x is None or x.shape is None:
        return None
    dims = x.shape[attributes["start"] : attributes["end"]]
    return np.array(dims, np.int64) if all(isinstance(d, int) for d in dims) else None


def _nth(items: Sequence[Any], i: int) -> Any:
    return items[i] if i < len(items) else None


def _append(
    op: str,
    inputs: list[Tensor | None],
    attributes: dict[str, Any],
    specs: list[tuple[str, tuple[Dim, ...] | None]],
    name: str,
    function: Function,
    quantization: Sequence[Quantization | None],
) -> list[Tensor]:
    made = []
    for i, (dtype, shape) in enumerate(specs):
        tensor = function.tensor((name or op) if i == 0 else f"{name or op}_{i}", dtype, shape)
        tensor.quantization = _nth(quantization, i)
        made.append(tensor)
    node = Node(op, inputs, made, attributes, name and function.graph.prefix + name, function.source)
    for tensor in made:
        tensor.node = node
    function.nodes.append(node)
    return list(made)  # a rule may put another tensor in its place; the node's own list stays


def operands(tensors: Sequence[Tensor | None], keep: list[Any]) -> Any:
    """A linnet_operand array. `keep` holds what the pointers in it point to."""
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
            pointer = ffi.from_buffer(t.data)
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
    operand.scale, operand.zero, operand.quant_count = scale_pointer, zero_pointer, scale.size
    operand.quant_axis = quantization.axis or 0


def infer(
    message: bytes,
    inputs: Sequence[Tensor | None],
    outputs: int,
    quantization: Sequence[Quantization | None] = (),
    dtypes: Sequence[str] = (),
) -> list[tuple[str, tuple[Dim, ...] | None]]:
    """(dtype, shape) of each output by the C shape rule; unknown dimensions are None. Raises GraphError."""
    keep: list[Any] = []
    given = operands(inputs, keep)
    made = ffi.new("linnet_operand[]", max(outputs, 1))
    for i, dtype in enumerate(dtypes):
        made[i].dtype = DTYPE_IDS[dtype]
    for i, q in enumerate(quantization):
        if q is not None:
            _quantize(made[i], q, keep)
    error = ffi.new("linnet_error *")
    if library().linnet_op_infer(ffi.from_buffer(message), len(message), given, len(inputs), made, outputs, error):
        raise exception(error)
    specs: list[tuple[str, tuple[Dim, ...] | None]] = []
    for i in range(outputs):
        o = made[i]
        shape = None if o.rank < 0 else tuple([d if d >= 0 else None for d in list(o.shape)[: o.rank]])
        specs.append((DTYPE_NAMES[o.dtype], shape))
    return specs


def _elements(tensor: Tensor) -> int:
    return 0 if tensor.data is None else tensor.data.size


def _small_constant(graph: Graph, inputs: list[Tensor | None], specs: list[tuple[str, tuple[Dim, ...] | None]]) -> bool:
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
        total += count * numpy_dtype(dtype).itemsize
    return graph.may_fold(total)


def evaluate(
    message: bytes,
    inputs: Sequence[Tensor | None],
    specs: list[tuple[str, tuple[Dim, ...] | None]],
    quantization: Sequence[Quantization | None] = (),
) -> list[np.ndarray[Any, Any]] | None:
    """The outputs' values by the reference kernel; None when the library cannot compute this one. Raises GraphError."""
    keep: list[Any] = []
    given = operands(inputs, keep)
    made = ffi.new("linnet_operand[]", max(len(specs), 1))
    values = []
    for i, (dtype, shape) in enumerate(specs):
        dims = [d if isinstance(d, int) else -1 for d in shape or ()]
        value = np.empty(dims, numpy_dtype(dtype))
        pointer = ffi.from_buffer(value, require_writable=True)
        keep.append(pointer)
        o = made[i]
        o.dtype, o.rank, o.data = DTYPE_IDS[dtype], len(dims), pointer
        if dims:
            o.shape = dims
        if (q := _nth(quantization, i)) is not None:
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
    return values


def evaluate_node(node: Node, limit: int = 0) -> list[np.ndarray[Any, Any]] | None:
    """Values of a node whose inputs are all constants; None when it cannot be computed ahead, or when they have more bytes than
    `limit`, or four times those of the inputs where these are more."""
    message = encode_node(node.op, node.attributes)
    quantization = [t.quantization for t in node.outputs]
    specs = infer(message, node.inputs, len(node.outputs), quantization, [t.dtype for t in node.outputs])
    if any(shape is None or not all(isinstance(d, int) for d in shape) for _, shape in specs):
        return None
    read = sum(t.data.nbytes for t in node.inputs if t is not None and t.data is not None)
    if sum(_bytes(dtype, shape) for dtype, shape in specs) > max(limit, FOLD_LIMIT, 4 * read):
        return None
    return evaluate(message, node.inputs, specs, quantization)


def _bytes(dtype: str, shape: tuple[Dim, ...] | None) -> int:
    return math.prod(d for d in shape or () if isinstance(d, int)) * numpy_dtype(dtype).itemsize


def common_shape(*shapes: tuple[Dim, ...] | None) -> tuple[Dim, ...] | None:
    """What is known of a value that has one of these shapes."""
    first = shapes[0]
    for other in shapes[1:]:
        if first is None or other is None or len(first) != len(other):
            return None
        first = tuple(a if a == b else None for a, b in zip(first, other, strict=True))
    return first


def _trips(inputs: list[Tensor | None], body: Function) -> Dim:
    """How often a loop runs, where nothing ends it but its number of trips and that is known."""
    begins = inputs[1] if len(inputs) > 1 else None
    ends = begins is not None and (begins.data is None or body.outputs[0] is not body.inputs[1])
    known = None if ends else symbolic.elements_of(inputs[0] if inputs else None)
    return known[0] if known else None


def _control_flow(
    op: str, inputs: list[Tensor | None], attributes: dict[str, Any], outputs: int, name: str
) -> list[tuple[str, tuple[Dim, ...] | None]]:
    """Outputs of if, while and call follow from the functions they name."""
    names = {"if": ("then_function", "else_function"), "while": ("body_function",), "call": ("callee",)}[op]
    functions: list[Function] = []
    for key in names:
        if attributes[key] is None:
            raise GraphError(f"{op} needs {key}", code=302, op=name or op)
        functions.append(attributes[key])
    if op == "while":
        carried = attributes["carried"]
        body = functions[0].outputs[1:]
        trips = _trips(inputs, functions[0])
        specs: list[tuple[str, tuple[Dim, ...] | None]] = []
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
                    f"the branches of {name or op!r} give different types", code=303, op=name or op,
                    expected=" ".join(t.dtype for t in functions[0].outputs),
                    got=" ".join(t.dtype for t in other.outputs),
                )  # fmt: skip
        specs = [
            (group[0].dtype, common_shape(*(t.shape for t in group)))
            for group in zip(*(f.outputs for f in functions), strict=True)
        ]
    if len(specs) != outputs:
        raise GraphError(
            f"{op} gives another number of outputs", code=303, op=name or op, expected=str(len(specs)), got=str(outputs)
        )
    return specs
