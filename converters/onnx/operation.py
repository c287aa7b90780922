"""A rule's view of one ONNX node: operands, attributes, opset, and methods that emit runtime ops.
Attributes that a rule does not read are reported, so that nothing is dropped silently."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import AttributeProto, numpy_helper

from linnet.converters.onnx.narrow import KINDS, Kind
from linnet.converters.onnx.problems import Unknown, Unsupported
from linnet.converters.onnx.values import Maybe, Value
from linnet.ir.dtypes import Dim, Quantization, numpy_dtype
from linnet.ir.function import Function, Tensor, emit

if TYPE_CHECKING:
    from linnet.converters.onnx.importer import Importer
    from linnet.converters.onnx.scope import Scope

# ONNX element types that linnet supports.
DTYPES: dict[int, str] = {
    1: "f32", 2: "u8", 3: "i8", 4: "u16", 5: "i16", 6: "i32", 7: "i64", 9: "bool", 10: "f16", 11: "f64", 12: "u32",
    13: "u64", 16: "bf16",
}  # fmt: skip
MOST_MADE = 1 << 26  # limit of elements in constants that rules make, for a whole model
IMPLICIT = {"consumed_inputs"}  # attributes of old opsets that have no effect


def dtype_name(number: int, what: str = "it") -> str:
    """linnet's name of an ONNX element type. Raises Unsupported for strings, complex numbers, float8, 4-bit and other types."""
    if number not in DTYPES:
        try:
            name = onnx.TensorProto.DataType.Name(number).lower()
        except ValueError:
            name = f"number {number}"
        raise Unsupported(
            f"{what} has the element type {name}, which linnet does not support",
            "use one of " + ", ".join(DTYPES.values()),
        )
    return DTYPES[number]


def storage_of(number: int, what: str = "it") -> str:
    """The linnet dtype that stores an ONNX element type: the same type, or the type of the codes for a narrow type.
    Raises Unsupported."""
    return KINDS[number].storage if number in KINDS else dtype_name(number, what)


def array_of(proto: onnx.TensorProto, what: str = "a tensor") -> tuple[npt.NDArray[Any], str]:
    """The value and linnet dtype of a TensorProto. Narrow types become codes.
    Raises Unsupported or ValueError."""
    dtype = storage_of(proto.data_type, what)
    if (kind := KINDS.get(proto.data_type)) is not None:
        return kind.codes(numpy_helper.to_array(proto)), dtype
    return np.asarray(numpy_helper.to_array(proto)), dtype


class Operation:
    """One node while its rule runs."""

    def __init__(
        self,
        importer: Importer,
        scope: Scope,
        node: onnx.NodeProto,
        inputs: Sequence[Value],
        opset: int,
        schema: Any,
    ) -> None:
        self.importer, self.scope, self.node, self.opset = importer, scope, node, opset
        self.function: Function = importer.function
        self.inputs: list[Value] = list(inputs)
        self._given = {a.name: a for a in node.attribute}
        self._schema = schema
        self.read: set[str] = set()

    # -- operands

    def input(self, index: int) -> Tensor:
        """Operand `index`. Raises Unsupported if it is missing."""
        tensor = self.optional(index)
        if tensor is None:
            raise Unsupported(f"input {index} is missing", "this input is required: export the model again")
        return tensor

    def optional(self, index: int) -> Tensor | None:
        """Operand `index`, or None if the node leaves it out. Raises Unsupported for a sequence or optional."""
        value = self.any(index)
        if value is not None and not isinstance(value, Tensor):
            what = "an optional" if isinstance(value, Maybe) else "a sequence"
            raise Unsupported(
                f"input {index} is {what}, not a tensor", "get a tensor first, with SequenceAt or OptionalGetElement"
            )
        return value

    def any(self, index: int) -> Value:
        """Operand `index`, of any type."""
        return self.inputs[index] if index < len(self.inputs) else None

    def all_inputs(self) -> list[Tensor]:
        """Every operand of a variadic op."""
        return [self.input(i) for i in range(len(self.inputs))]

    def rank(self, index: int = 0) -> int:
        """Rank of operand `index`. Raises Unsupported if it is unknown."""
        return rank_of(self.input(index), f"input {index}")

    def value(self, index: int) -> npt.NDArray[Any] | None:
        """The value of operand `index` if it is a constant, else None."""
        tensor = self.optional(index)
        return None if tensor is None else tensor.data

    def ints(self, index: int) -> list[int] | None:
        """The integers of a constant operand, flattened; None if it is absent or not a constant."""
        value = self.value(index)
        return None if value is None else [int(v) for v in value.reshape(-1)]

    def require_value(self, index: int, what: str) -> npt.NDArray[Any]:
        """The value of an operand that must be constant. Raises Unsupported otherwise."""
        value = self.value(index)
        if value is None:
            raise Unknown(f"{what} (input {index}) is not a constant", "make it an initializer, or set input_shapes")
        return value

    def kind(self, index: int) -> Kind | None:
        """The narrow element type of operand `index`, or None."""
        tensor = self.any(index)
        return self.importer.kinds.get(tensor) if isinstance(tensor, Tensor) else None

    def of_kind(self, tensor: Tensor, kind: Kind | None) -> Tensor:
        """Marks the tensor as codes of a narrow type and returns it."""
        if kind is not None:
            self.importer.kinds[tensor] = kind
        return tensor

    def kind_of(self, name: str) -> Kind | None:
        """The narrow type of a tensor attribute, or None."""
        return KINDS.get(self._given[name].t.data_type) if name in self._given else None

    def wants(self, index: int) -> bool:
        """Whether output `index` is used, that is, whether the node gives it a name."""
        return index < len(self.node.output) and bool(self.node.output[index])

    # -- attributes

    def has(self, name: str) -> bool:
        """Whether the node sets the attribute."""
        return name in self._given

    def attribute(self, name: str, default: Any = None) -> Any:
        """The attribute, or the schema's default, or `default`: int, float, str, list, (array, dtype) or GraphProto."""
        self.read.add(name)
        if name in self._given:
            return self._decode(self._given[name])
        if self._schema is not None and name in self._schema.attributes:
            value = self._schema.attributes[name].default_value
            if value.name:
                return self._decode(value)
        return default

    def _decode(self, attribute: AttributeProto) -> Any:
        if attribute.type == AttributeProto.TENSOR:
            return array_of(attribute.t, f"attribute {attribute.name!r}")
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if isinstance(value, (int, float, onnx.GraphProto)):
            return value
        return [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in value]

    def ignore(self, *names: str) -> None:
        """Marks attributes that need no handling as read."""
        self.read.update(names)

    def unread(self) -> list[str]:
        """Attributes of the node that the rule has not read."""
        return [name for name in self._given if name not in self.read and name not in IMPLICIT]

    # -- emitting

    def emit_all(self, op: str, inputs: Sequence[Tensor | None], outputs: int = 1, **attributes: Any) -> list[Tensor]:
        """Emits a runtime op with this node's provenance and returns all its outputs."""
        return emit(op, list(inputs), attributes, outputs, function=self.function)

    def emit(self, op: str, inputs: Sequence[Tensor | None], **attributes: Any) -> Tensor:
        """Emits a runtime op with one output."""
        return self.emit_all(op, inputs, 1, **attributes)[0]

    def constant(
        self,
        value: npt.ArrayLike,
        dtype: str | None = None,
        quantization: Quantization | None = None,
        name: str = "",
    ) -> Tensor:
        """Adds a constant. Numbers that the dtype cannot represent are converted as by NumPy."""
        data = np.asarray(value) if dtype is None else np.asarray(value).astype(numpy_dtype(dtype))
        return self.function.constant(data, name, quantization=quantization)

    def may_make(self, count: int) -> bool:
        """Whether a constant of this many elements fits into the limit for the whole model. If it does, its elements
        are counted."""
        if not 0 <= count <= MOST_MADE - self.importer.made:
            return False
        self.importer.made += count
        return True

    def limit(self, count: int, what: str) -> int:
        """Returns the element count of a constant that a rule is about to make. Raises Unsupported above the limit."""
        if not self.may_make(count):
            raise Unsupported(
                f"{what} needs a constant of {count} elements; the limit for a whole model is {MOST_MADE}",
                "make it smaller, or make it an input of the model",
            )
        return count

    def unsupported(self, reason: str, hint: str = "") -> Unsupported:
        return Unsupported(reason, hint)

    def unknown(self, reason: str, hint: str = "set the shapes of the model's inputs with input_shapes") -> Unknown:
        return Unknown(reason, hint)

    def fallback(self) -> Sequence[Value]:
        """Lowers this node through the function body of its ONNX schema. Raises Unsupported if there is none."""
        self.read.update(self._given)
        return self.importer.expand(self)

    # -- data movement in one word each

    def reshape(self, x: Tensor, shape: Sequence[int] | Tensor, allow_zero: bool = False) -> Tensor:
        if isinstance(shape, Tensor):
            if shape.data is None:
                return self.emit("copy", [x, shape], kind="reshape", allow_zero=allow_zero)
            shape = [int(v) for v in shape.data.reshape(-1)]
        if list(shape) == list(x.shape or (None,)) and 0 not in shape:
            return x
        if not shape:
            return self.emit("copy", [x, self.constant(np.zeros(0, np.int64))], kind="reshape")
        return self.emit("copy", [x], kind="reshape", shape=list(shape), allow_zero=allow_zero)

    def transpose(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        if list(perm) == list(range(len(perm))):
            return x
        return self.emit("copy", [x], kind="transpose", perm=list(perm))

    def unsqueeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        return self.emit("copy", [x], kind="unsqueeze", axes=list(axes)) if axes else x

    def squeeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        return self.emit("copy", [x], kind="squeeze", axes=list(axes)) if axes else x

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        return parts[0] if len(parts) == 1 else self.emit("copy", list(parts), kind="concat", axis=axis)

    def slice(self, x: Tensor, axis: int, start: int, end: int, step: int = 1) -> Tensor:
        return self.emit("copy", [x], kind="slice", axes=[axis], starts=[start], ends=[end], steps=[step])

    def expand(self, x: Tensor, shape: Sequence[int] | Tensor) -> Tensor:
        if isinstance(shape, Tensor):
            if shape.data is None:
                return self.emit("copy", [x, shape], kind="expand")
            shape = [int(v) for v in shape.data.reshape(-1)]
        if not shape or (x.static_shape is not None and list(x.static_shape) == list(shape)):
            return x
        return self.emit("copy", [x], kind="expand", shape=list(shape))

    def shape_of(self, x: Tensor, start: int = 0, end: int | None = None) -> Tensor:
        """Dimensions [start, end) of x as a 1-D i64 tensor, which is a constant if they are known."""
        if x.shape is not None:
            dims: Sequence[Dim] = x.shape[slice(start, end)]
            if all(isinstance(d, int) for d in dims):
                return self.constant(np.array(dims, np.int64))
        limits: dict[str, int] = {"start": start} if end is None else {"start": start, "end": end}
        return self.emit("shape", [x], **limits)

    def reduce(self, x: Tensor, kind: str, axes: Sequence[int], keep_dims: bool = True) -> Tensor:
        return self.emit("reduce", [x], kind=kind, axes=list(axes), keep_dims=keep_dims)

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        return x if x.dtype == dtype else self.emit("cast", [x], dtype=dtype)

    def map(self, inputs: Sequence[Tensor], body: Callable[..., Any], dtype: str | None = None) -> Tensor:
        """Emits one map node with one output; see program.pointwise."""
        from linnet.converters.onnx.program import pointwise

        result = pointwise(self, inputs, body, dtype)
        assert isinstance(result, Tensor)
        return result


def rank_of(tensor: Tensor, what: str) -> int:
    """Rank of a tensor. Raises Unsupported if it is unknown."""
    if tensor.rank is None:
        raise Unknown(f"the rank of {what} is unknown", "set the shapes of the model's inputs with input_shapes")
    return tensor.rank
