"""A rule's view of one TFLite operator: operands, options, declared outputs, and methods that emit runtime ops. Quantized
tensors are integers with a quantization. `real` returns the real numbers that they represent, and `store` quantizes again."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from linnet.builder.mapping import pointwise
from linnet.converters.tflite.fixed_point import LIMITS, RANGES, quantize_multiplier
from linnet.converters.tflite.problems import Unsupported
from linnet.converters.tflite.schema import ACTIVATIONS, OperatorSpec, TensorSpec, option
from linnet.ir.dtypes import Quantization, dtype_of, numpy_dtype
from linnet.ir.expr import Expr
from linnet.ir.function import Function, Tensor, emit
from linnet.ir.program import REGISTER, Program, Store

MOST_ELEMENTS, MOST_MADE = (
    1 << 24,
    1 << 26,
)  # limits of elements: of one constant that a rule makes, and of all such constants in a model

if TYPE_CHECKING:
    from linnet.converters.tflite.importer import Importer
    from linnet.converters.tflite.scope import Scope


class Operation:
    """A rule's view of an operator."""

    def __init__(
        self,
        importer: Importer,
        scope: Scope,
        spec: OperatorSpec,
        inputs: Sequence[Tensor | None],
        outputs: list[TensorSpec],
    ) -> None:
        self.importer, self.scope, self.spec, self.outputs = importer, scope, spec, outputs
        self.function: Function = scope.function
        self.inputs = list(inputs)

    # -- operands

    def input(self, index: int) -> Tensor:
        """Operand `index`. Raises Unsupported if it is missing."""
        tensor = self.optional(index)
        if tensor is None:
            raise Unsupported(f"input {index} is missing", "the model is damaged: export it again")
        return tensor

    def optional(self, index: int) -> Tensor | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def ints(self, index: int) -> list[int] | None:
        """The integers of a constant operand; None if it is absent or not a constant."""
        tensor = self.optional(index)
        return None if tensor is None or tensor.data is None else [int(v) for v in tensor.data.reshape(-1)]

    def require(self, index: int, what: str) -> npt.NDArray[Any]:
        """The value of an operand that must be constant. Raises Unsupported otherwise."""
        value = self.input(index).data
        if value is None:
            raise Unsupported(
                f"{what} (input {index}) is not a constant", "export it as a constant, or set input_shapes"
            )
        return value

    def rank(self, index: int = 0) -> int:
        rank = self.input(index).rank
        if rank is None:
            raise Unsupported(f"the rank of input {index} is unknown", "set the input shapes with input_shapes")
        return rank

    def axis(self, value: int, rank: int) -> int:
        """An axis, converted to count from the front."""
        if not -rank <= value < rank:
            raise Unsupported(
                f"axis {value} is out of range for a tensor of rank {rank}", "the model is damaged: export it again"
            )
        return value % rank

    def option(self, name: str) -> Any:
        return option(self.spec, name)

    def output(self, index: int = 0) -> TensorSpec:
        """The declaration of output `index`."""
        if index >= len(self.outputs):
            raise Unsupported(f"output {index} is missing", "the model is damaged: export it again")
        return self.outputs[index]

    def limit(self, count: int) -> int:
        """Returns the element count of a constant that a rule is about to make. Raises Unsupported above the limit, which only a
        damaged file reaches."""
        if not self.may_make(count):
            raise Unsupported(
                f"it needs a constant of {count} elements; the limit is {MOST_ELEMENTS}, and {MOST_MADE} for a whole model",
                "check the sizes in the model",
            )
        return count

    def may_make(self, count: int) -> bool:
        """Whether a constant of this many elements fits into the limits. If it does, its elements are counted."""
        if not 0 <= count <= min(MOST_ELEMENTS, MOST_MADE - self.importer.made):
            return False
        self.importer.made += count
        return True

    def within(self, function: Function) -> Operation:
        """The same operator, but with its nodes in another function (the body of a loop)."""
        other = copy.copy(self)
        other.function = function
        return other

    def keep(self, index: int, value: Tensor) -> None:
        """Assigns a new value to the state that operand `index` reads. The state is a variable tensor, so the next run
        starts with this value."""
        place = self.spec.inputs[index]
        spec = self.scope.subgraph.tensors[place]
        if spec.is_variable:
            self.importer.assign_variable(self.scope, self.importer.state_name(self.scope, spec), value)
            self.scope.values[place] = value

    def unsupported(self, reason: str, hint: str = "") -> Unsupported:
        return Unsupported(reason, hint)

    # -- emitting

    def emit_all(
        self,
        op: str,
        inputs: Sequence[Tensor | None],
        outputs: int = 1,
        quantization: Sequence[Quantization | None] = (),
        **attributes: Any,
    ) -> list[Tensor]:
        return emit(op, list(inputs), attributes, outputs, function=self.function, quantization=quantization)

    def emit(
        self, op: str, inputs: Sequence[Tensor | None], quantization: Quantization | None = None, **attributes: Any
    ) -> Tensor:
        return self.emit_all(op, inputs, 1, () if quantization is None else (quantization,), **attributes)[0]

    def constant(self, value: npt.ArrayLike, quantization: Quantization | None = None) -> Tensor:
        return self.function.constant(np.asarray(value), quantization=quantization)

    def map(self, inputs: Sequence[Tensor], body: Callable[..., Any], dtype: str | None = None) -> Tensor:
        """Emits one map over stored values: integers are not dequantized. One-element constants become immediates."""

        def immediate(t: Tensor) -> bool:
            wider = any(o is not t and o.data is None and (o.rank or 0) >= (t.rank or 0) for o in inputs)
            return t.data is not None and t.data.size == 1 and wider

        loaded = [t for t in inputs if not immediate(t)]

        def whole(*values: Expr) -> Expr:
            program, left = values[0].program, list(values)
            operands = []
            for t in inputs:
                if immediate(t):
                    assert t.data is not None
                    number = t.data.reshape(-1)[0].item()
                    operands.append(Expr.constant(program, number, t.dtype))
                else:
                    operands.append(left.pop(0))
            result: Expr = body(*operands)
            return result

        made: Tensor = pointwise(loaded, whole, dtype or inputs[0].dtype, function=self.function)
        return made

    def map_with_tables(
        self, inputs: Sequence[Tensor], tables: Sequence[npt.NDArray[Any]], body: Callable[..., Expr | Sequence[Expr]],
        *dtypes: str,
    ) -> list[Tensor]:  # fmt: skip
        """Emits one map. Its body also gets a function per table, which returns the element at an index."""
        # the opcode `table` reads its input without broadcasting it, so the node is built by hand
        program, count = Program(), len(inputs)
        loaded = [Expr.load(program, t.dtype, i) for i, t in enumerate(inputs)]

        def looker(number: int, dtype: str) -> Callable[[Expr], Expr]:
            return lambda index: index.table(number, REGISTER[dtype])

        lookers = [looker(count + i, dtype_of(t.dtype)) for i, t in enumerate(tables)]
        made = body(*loaded, *lookers)
        results = [made] if isinstance(made, Expr) else made
        program.stores = [Store(r.for_store(d).register, False) for r, d in zip(results, dtypes, strict=True)]
        operands = [*inputs, *(self.function.constant(t) for t in tables)]
        return self.emit_all("map", operands, len(dtypes), **program.attributes(dtypes))

    def lookup(self, x: Tensor, table: npt.NDArray[Any], least: int) -> Tensor:
        """table[x - least] for an integer tensor. The result has the table's element type."""
        return self.map_with_tables([x], [table], lambda v, t: t(v - least), dtype_of(table.dtype))[0]

    # -- quantization

    def real(self, tensor: Tensor) -> Tensor:
        """The numbers of a tensor: dequantized if it is quantized, else as f32 or f64."""
        if tensor.quantization is not None:
            axis = tensor.quantization.axis
            if tensor.data is not None:
                return self.constant(dequantized(tensor.data, tensor.quantization))
            return self.emit("dequantize", [tensor], None, axis=1 if axis is None else axis)
        return tensor if tensor.dtype in ("f32", "f64") else self.cast(tensor, "f32")

    def store(self, value: Tensor, index: int = 0) -> Tensor:
        """Converts real numbers to the declared output type. Quantization rounds half away from zero, as in TFLite."""
        spec = self.output(index)
        if spec.quantization is None or spec.dtype not in RANGES:
            return self.cast(value, spec.dtype)
        scale, zero = per_tensor(spec.quantization, "the output")
        low, high = RANGES[spec.dtype]

        def body(x: Expr) -> Expr:
            divided = (x / float(scale)).max(float(low - zero)).min(float(high - zero))
            return round_away(divided).cast("i32") + zero

        return self.quantized(self.map([value], body, spec.dtype), spec)

    def quantized(self, tensor: Tensor, spec: TensorSpec) -> Tensor:
        """The same stored integers, marked with the declared quantization."""
        if tensor.data is not None:
            return self.function.constant(tensor.data, dtype=tensor.dtype, quantization=spec.quantization)
        tensor.quantization = spec.quantization
        return tensor

    def as_declared(self, tensor: Tensor, index: int = 0) -> Tensor:
        """Gives a tensor of moved elements the declared quantization. Requantizes it if its own quantization
        differs."""
        spec = self.output(index)
        if tensor.dtype == spec.dtype and spec.quantization is not None:
            if tensor.quantization is None or same_quantization(tensor.quantization, spec.quantization):
                return self.quantized(tensor, spec)
            return self.requantize(tensor, spec)
        return tensor

    def requantize(self, x: Tensor, spec: TensorSpec) -> Tensor:
        """Converts integers to another quantization, as TFLite's Requantize does."""
        assert x.quantization is not None and spec.quantization is not None
        sx, zx = per_tensor(x.quantization, "the input")
        sy, zy = per_tensor(spec.quantization, "the output")
        fixed, shift = quantize_multiplier(float(sx) / float(sy))
        if spec.dtype not in LIMITS:
            raise Unsupported(f"integers cannot be requantized to {spec.dtype}", "export the model again")
        low, high = LIMITS[spec.dtype]

        def body(v: Expr) -> Expr:
            return (scaled(v - zx, fixed, shift).cast("i64") + zy).max(low).min(high)

        narrow = lambda v: (scaled(v - zx, fixed, shift) + zy).max(low).min(high)  # noqa: E731
        return self.quantized(self.map([x], body if spec.dtype == "i32" else narrow, spec.dtype), spec)

    def activate(self, y: Tensor, name: str | None = None, index: int = 0) -> Tensor:
        """Applies the fused activation: a clamp of numbers, or of integers with the output's quantization."""
        kind = name or self.activation()
        if kind == "none":
            return y
        bounds: tuple[float, float | None] | None
        bounds = {"relu": (0.0, None), "relu6": (0.0, 6.0), "relu_n1_to_1": (-1.0, 1.0)}.get(kind)
        if y.quantization is not None or y.dtype in RANGES:
            low, high = self.limits(kind, index)
            full = RANGES[y.dtype]
            if (low, high) == full:
                return y
            return self.quantized(self.map([y], lambda v: v.max(low).min(high)), self.output(index))
        if kind == "tanh":
            return self.map([y], lambda v: v.tanh())
        if bounds is None:
            raise Unsupported(f"the fused activation {kind!r} is not supported", "export the model without it")
        least, most = bounds
        integer = y.dtype in ("i32", "i64")
        least_number, most_number = (int(least), None if most is None else int(most)) if integer else (least, most)
        if most_number is None:
            return self.map([y], lambda v: v.max(least_number))
        return self.map([y], lambda v: v.max(least_number).min(most_number))

    def activation(self) -> str:
        """The name of the fused activation."""
        number = self.option("activation")
        return ACTIVATIONS[number] if 0 <= number < len(ACTIVATIONS) else "?"

    def limits(self, kind: str, index: int = 0) -> tuple[int, int]:
        """The range of stored values after a fused activation (CalculateActivationRangeQuantized)."""
        spec = self.output(index)
        low, high = RANGES[spec.dtype]
        if kind == "none":
            return low, high
        if spec.quantization is None:
            raise Unsupported(
                f"output {spec.name!r} has a fused activation but no quantization", "export the model again"
            )
        scale, zero = per_tensor(spec.quantization, "the output")

        def stored(number: float) -> int:
            quotient = float(np.float32(number) / scale)
            return zero + int(np.floor(abs(quotient) + 0.5)) * (1 if quotient >= 0 else -1)

        if kind == "relu":
            return max(low, stored(0.0)), high
        if kind == "relu6":
            return max(low, stored(0.0)), min(high, stored(6.0))
        if kind == "relu_n1_to_1":
            return max(low, stored(-1.0)), min(high, stored(1.0))
        raise Unsupported(f"the fused activation {kind!r} is not supported on integers", "export the model without it")

    def is_quantized(self, index: int = 0) -> bool:
        """Whether operand `index` is an integer with a quantization."""
        tensor = self.input(index)
        return tensor.quantization is not None and tensor.dtype in RANGES

    # -- data movement in one word each; what is moved keeps its quantization

    def copy(self, inputs: Sequence[Tensor], **attributes: Any) -> Tensor:
        return self.emit("copy", inputs, inputs[0].quantization, **attributes)

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        if not shape:
            return self.copy([x, self.constant(np.zeros(0, np.int64))], kind="reshape")
        return self.copy([x], kind="reshape", shape=list(shape), allow_zero=True)

    def transpose(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        return self.copy([x], kind="transpose", perm=list(perm))

    def slice(self, x: Tensor, axis: int, start: int, end: int, step: int = 1) -> Tensor:
        return self.copy([x], kind="slice", axes=[axis], starts=[start], ends=[end], steps=[step])

    def pad(self, x: Tensor, pads: Sequence[int], value: float = 0, mode: str = "constant") -> Tensor:
        return self.copy([x], kind="pad", pads=list(pads), value=float(value), pad_mode=mode)

    def reduce(self, x: Tensor, kind: str, axes: Sequence[int], keep_dims: bool = True) -> Tensor:
        return self.emit("reduce", [x], kind=kind, axes=list(axes), keep_dims=keep_dims)

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        if x.dtype == dtype:
            return x
        if x.data is not None and dtype in ("i32", "i64") and x.dtype in ("i32", "i64"):
            return self.constant(x.data.astype(numpy_dtype(dtype)))
        return self.emit("cast", [x], dtype=dtype)

    def indices(self, index: int) -> Tensor:
        """A shape or index operand as i64."""
        return self.cast(self.input(index), "i64")


def scaled(x: Expr, fixed: int, shift: int) -> Expr:
    """An i32 times fixed * 2^(shift - 31). For too large shifts, TFLite's result is undefined; here it saturates. Only
    scales of unused tensors need such shifts."""
    return x.sign() * (1 << 30) if shift > 30 else x.fixed_multiply(fixed, -shift)


def round_away(x: Expr) -> Expr:
    """Rounds an f32 to the nearest whole number, half away from zero."""
    whole = x.trunc()
    rest = x - whole
    return (abs(rest) < 0.5).select(whole, whole + x.sign())


def per_tensor(quantization: Quantization, what: str) -> tuple[np.float32, int]:
    """(scale, zero point). Raises Unsupported for quantization per axis."""
    if quantization.axis is not None or quantization.scale.size != 1:
        raise Unsupported(
            f"{what} is quantized per axis", "quantize it per tensor: only weights may have a scale per axis"
        )
    return np.float32(quantization.scale.reshape(-1)[0]), int(quantization.zero.reshape(-1)[0])


def same_quantization(a: Quantization, b: Quantization) -> bool:
    return a.axis == b.axis and np.array_equal(a.scale, b.scale) and np.array_equal(a.zero, b.zero)


def dequantized(data: npt.NDArray[Any], quantization: Quantization) -> npt.NDArray[np.float32]:
    """(stored - zero) * scale as f32."""
    shape = [1] * data.ndim
    if quantization.axis is not None:
        shape[quantization.axis] = -1
        scale, zero = quantization.scale.reshape(shape), quantization.zero.reshape(shape)
    else:
        scale, zero = quantization.scale.reshape(-1)[:1], quantization.zero.reshape(-1)[:1]
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    result: npt.NDArray[np.float32] = ((data.astype(np.int64) - zero) * scale.astype(np.float64)).astype(np.float32)
    return result
