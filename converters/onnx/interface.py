"""Inputs and outputs of a model. Several tensors represent a sequence or an optional. A sequence `s` of any length
becomes `s.values` and `s.shapes`. One of known length becomes `s.0`, `s.1`, ... An optional adds `s.present`."""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from linnet.clib.errors import Error
from linnet.converters.onnx import narrow
from linnet.converters.onnx.loader import text_of
from linnet.converters.onnx.operation import storage_of
from linnet.converters.onnx.problems import Unsupported
from linnet.converters.onnx.values import Listed, Maybe, Packed, Value, leaves
from linnet.ir.dtypes import Dim
from linnet.ir.function import Tensor, emit

if TYPE_CHECKING:
    from linnet.converters.onnx.importer import Importer
    from linnet.converters.onnx.scope import Scope

INPUTS, OUTPUTS = "onnx_inputs", "onnx_outputs"  # metadata keys: the model's own names as JSON, if some are not tensors
MOST_ELEMENTS = 1 << 48  # limit for one input; the C library counts bytes in 64 bits
LISTS = (list, tuple, np.ndarray)
Shapes = Mapping[str, "Sequence[int] | Sequence[Sequence[int]] | None"]


def declare_inputs(importer: Importer, graph: onnx.GraphProto, scope: Scope, shapes: dict[str, Any]) -> None:
    """Creates a placeholder for every tensor of every input. shapes: see `from_onnx`."""
    for info in (*graph.input, *graph.output):
        if not isinstance(info.name, str):  # protobuf returns bytes for a name that is not UTF-8
            name = bytes(info.name).decode("utf-8", "backslashreplace")
            importer.problem(
                None, "the name of this input or output is not valid UTF-8", "export the model again", name
            )
            info.name = name
    names = [i.name for i in graph.input]
    for name in sorted(n for n, count in Counter(names).items() if count > 1):
        importer.problem(None, "two inputs of the model have this name", "give every input a unique name", name)
    inputs = [i for i in graph.input if i.name not in scope.initializers]
    known = {i.name for i in inputs}
    for name in shapes:
        if name not in known:
            importer.problem(
                None,
                "a shape is given for it, but the model has no input of this name",
                f"the inputs are {', '.join(known)}",
                name,
                "input",
            )
    symbols: dict[str, int | None] = {}
    for info in inputs:  # first pass: a later input may fix a named dimension
        if info.name in shapes and not _means_shapes(shapes[info.name], info.type):
            kind = "a list of shapes" if _sequence_in(info.type) else "a shape"
            importer.problem(
                None,
                f"input_shapes gives {shapes.pop(info.name)!r}",
                f"give {kind} made of integers",
                info.name,
                "input",
            )
        if info.type.HasField("tensor_type") and info.name in shapes:
            fixed(importer, info.name, dims_of(info.type.tensor_type), tuple(map(int, shapes[info.name])), symbols)
    if several := sorted(name for name, size in symbols.items() if size is None):
        warnings.warn(
            f"input_shapes gives different sizes for dimensions of the same name: {', '.join(map(repr, several))}. "
            "The model is converted with the sizes as given",
            stacklevel=2,
        )
    composite = False
    importer.names = []
    for info in inputs:
        start = len(importer.function.inputs)
        if info.type.HasField("tensor_type"):
            scope.values[info.name] = _tensor(importer, info, shapes.get(info.name), symbols)
            importer.names.append(info.name)
            continue
        composite = True
        try:
            scope.values[info.name] = _composite(importer, info, shapes)
        except Unsupported as error:
            importer.problem(None, error.reason, error.hint, info.name)
            scope.values[info.name] = importer.placeholder(info.name)
        importer.names += [t.name for t in importer.function.inputs[start:]]
    if composite:
        importer.graph.metadata[INPUTS] = json.dumps([i.name for i in inputs])


def _sequence_in(kind: onnx.TypeProto) -> bool:
    inner = kind.optional_type.elem_type if kind.HasField("optional_type") else kind
    return bool(inner.HasField("sequence_type"))


def _means_shapes(given: Any, kind: onnx.TypeProto) -> bool:
    """Whether the given value has a valid form for the input: a shape, a list of shapes, or None for an optional."""

    def shape(value: Any) -> bool:
        return isinstance(value, LISTS) and all(isinstance(d, (int, np.integer)) for d in value)

    if given is None:
        return bool(kind.HasField("optional_type"))
    if _sequence_in(kind):
        return isinstance(given, LISTS) and all(shape(item) for item in given)
    return shape(given)


def _tensor(importer: Importer, info: onnx.ValueInfoProto, wanted: Any, symbols: dict[str, int | None]) -> Tensor:
    number, shape, dtype = info.type.tensor_type.elem_type, dims_of(info.type.tensor_type), "f32"
    try:
        dtype = storage_of(number)
    except Unsupported as error:
        importer.problem(None, f"the input is not supported: {error.reason}", error.hint, info.name)
    if wanted is not None:
        if shape is None:
            importer.shaped.append(f"{info.name!r}, {list(wanted)}")
        shape = fixed(importer, info.name, shape, tuple(int(d) for d in wanted), symbols)
    if shape is not None and any(isinstance(d, int) and d < 0 for d in shape):
        importer.problem(
            None, f"the input has a negative dimension: {list(shape)}", "make it positive or symbolic", info.name
        )
        shape = tuple(None if isinstance(d, int) and d < 0 else d for d in shape)
    if shape is not None:
        sizes = {name: size for name, size in symbols.items() if size is not None}
        shape = tuple(sizes.get(d, d) if isinstance(d, str) else d for d in shape)
        if not sensible(shape):
            importer.problem(
                None, f"the input has too many elements: {list(shape)}", "the limit is 2^48 elements", info.name
            )
            shape = (None,) * len(shape)
    tensor = importer.function.placeholder(info.name, dtype, shape)
    note(importer, tensor, narrow.KINDS.get(number), info.name)
    return tensor


def _composite(importer: Importer, info: onnx.ValueInfoProto, shapes: dict[str, Any]) -> Value:
    """Creates a sequence or optional input. Raises Unsupported."""
    function, name, kind = importer.function, info.name, info.type
    optional = kind.HasField("optional_type")
    if optional:
        kind = kind.optional_type.elem_type
    sequence = kind.HasField("sequence_type")
    if sequence:
        kind = kind.sequence_type.elem_type
    if not kind.HasField("tensor_type"):
        raise Unsupported("the input is not a tensor, a sequence of tensors or an optional", "use tensors as inputs")
    number, dims = kind.tensor_type.elem_type, dims_of(kind.tensor_type)
    try:
        dtype = storage_of(number, "the input's element")
    except Unsupported as error:
        raise Unsupported(f"the input is not supported: {error.reason}", error.hint) from None
    narrow_kind = narrow.KINDS.get(number)
    text = narrow_kind.name if narrow_kind is not None else dtype
    text = f"sequence({text})" if sequence else text
    importer.graph.metadata[narrow.METADATA + name] = f"optional({text})" if optional else text
    if name in shapes and shapes[name] is None:
        return None
    present = function.placeholder(f"{name}.present", "bool", ()) if optional and name not in shapes else None

    def made(suffix: str, shape: Sequence[Dim] | None, element: bool = True) -> Tensor:
        tensor = function.placeholder(name + suffix, dtype if element else "i64", shape)
        if narrow_kind is not None and element:
            importer.kinds[tensor] = narrow_kind
        return tensor

    value: Tensor | Listed | Packed
    rank = None if dims is None else len(dims)
    if not sequence:
        value = made(
            "" if present is None else ".value", shapes.get(name) or (None if dims is None else [None] * len(dims))
        )
    elif name in shapes:
        items = tuple(made(f".{i}", shape) for i, shape in enumerate(shapes[name]))
        value = Listed(items, dtype, narrow_kind)
    else:
        value = Packed(made(".values", [None]), made(".shapes", [None, 9 if rank is None else rank], False), rank)
    return value if present is None else Maybe(present, value)


def fixed(
    importer: Importer,
    name: str,
    shape: tuple[Dim, ...] | None,
    wanted: tuple[int, ...],
    symbols: dict[str, int | None],
) -> tuple[Dim, ...] | None:
    """Compares the shape that the caller gives for an input with the model's shape. symbols: collects the size of each
    dimension name; None if sizes conflict."""
    if shape is None:
        return wanted
    fits = len(shape) == len(wanted)
    for mine, theirs in zip(shape, wanted, strict=False):
        fits = fits and theirs >= 0 and (not isinstance(mine, int) or mine == theirs)
        if isinstance(mine, str):
            symbols[mine] = theirs if symbols.get(mine, theirs) == theirs else None
    if not fits:
        text = ", ".join("?" if d is None else str(d) for d in shape)
        importer.problem(
            None,
            f"the shape given for it is {list(wanted)}, but the model declares [{text}]",
            "give a shape that fits the declared one",
            name,
            "input",
        )
        return shape
    return wanted


def declare_outputs(importer: Importer, graph: onnx.GraphProto, scope: Scope) -> None:
    """Makes the model's outputs the outputs of the function and creates the signature. If a module returns one tensor
    twice, PyTorch lists its name twice; the two become one output."""
    function, outputs, composite = importer.function, [], False
    given = set(function.outputs)
    declared = {info.name: info for info in graph.output}
    for info in declared.values():
        try:
            value = importer.resolve(scope, info.name)
        except (KeyError, Unsupported) as error:
            if isinstance(error, Unsupported) or not importer.problems:
                importer.problem(None, "nothing produces this output of the model", "export the model again", info.name)
            continue
        if value is None and not info.type.HasField("optional_type"):
            importer.problem(None, "this output of the model never has a value", "remove it", info.name)
            continue
        composite = composite or not isinstance(value, Tensor)
        for tensor, suffix in zip(leaves(value), _suffixes(value), strict=True):
            kind = importer.kinds.get(tensor)
            if (tensor.node is None and tensor.data is None) or tensor in given:  # an input, or an output listed twice
                function.source = f"Identity:{info.name}"
                try:
                    tensor = emit("copy", [tensor], {"kind": "identity"}, 1, function=function)[0]
                except Error as error:
                    importer.problem(None, str(error), "export the model again", info.name)
                    continue
            function.outputs.append(tensor)
            given.add(tensor)
            outputs.append(info.name + suffix)
            if isinstance(value, Tensor):
                note(importer, tensor, kind, info.name)
                said = dims_of(info.type.tensor_type) if info.type.HasField("tensor_type") else None
                if tensor.shape is None and said is not None:
                    tensor.shape = (None,) * len(said)
        if not isinstance(value, Tensor):
            importer.graph.metadata[narrow.METADATA + info.name] = _described(importer, value)
    if not graph.output:
        importer.problem(
            None, "the graph has no outputs", "declare the outputs that the model computes", graph.name or "graph"
        )
    if composite:
        importer.graph.metadata[OUTPUTS] = json.dumps(list(declared))
    importer.graph.signature("infer", function, importer.names, outputs)


def _suffixes(value: Value) -> list[str]:
    """The suffixes that name the tensors of a value."""
    if isinstance(value, Maybe):
        return [".present", *(s or ".value" for s in _suffixes(value.value))]
    if isinstance(value, Packed):
        return [".values", ".shapes"]
    return [f".{i}" for i in range(len(value.items))] if isinstance(value, Listed) else [""] * (value is not None)


def _described(importer: Importer, value: Value) -> str:
    """The type of an output as text: f32, int4, sequence(f32), optional(...)."""
    if value is None:
        return "optional()"
    if isinstance(value, Maybe):
        return f"optional({_described(importer, value.value)})"
    if isinstance(value, Tensor):
        kind = importer.kinds.get(value)
        return kind.name if kind is not None else value.dtype
    kind = value.kind if isinstance(value, Listed) else importer.kinds.get(value.values)
    dtype = value.dtype if isinstance(value, Listed) else value.values.dtype
    return f"sequence({kind.name if kind is not None else dtype})"


def note(importer: Importer, tensor: Tensor, kind: narrow.Kind | None, name: str) -> None:
    """Records the original type of an input or output, in the importer and in the file's metadata."""
    if kind is not None:
        importer.kinds[tensor] = kind
        importer.graph.metadata[narrow.METADATA + name] = kind.name


def sensible(shape: Sequence[Dim]) -> bool:
    """Whether the known dimensions are possible sizes of a tensor."""
    known = [d for d in shape if isinstance(d, int)]
    return min(known, default=0) >= 0 and math.prod(known) <= MOST_ELEMENTS


def dims_of(kind: Any) -> tuple[Dim, ...] | None:
    """The shape of a TypeProto.Tensor. Exporters also write -1, or the name "?", for an unknown dimension."""
    if not kind.HasField("shape"):
        return None
    dims: list[Dim] = []
    for d in kind.shape.dim:
        if d.HasField("dim_value"):
            dims.append(None if d.dim_value == -1 else d.dim_value)
        else:
            dims.append(text_of(d.dim_param) if d.dim_param not in ("", "?") else None)
    return tuple(dims)
