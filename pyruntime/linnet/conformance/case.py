"""A case of the conformance check: one op with its operands and attributes. `add` builds it into a graph. The values of
operands depend only on the case's id, so a case that runs alone gets the same numbers as in a list."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.builder.mapping import look_up, pointwise
from linnet.ir.dtypes import Quantization, numpy_dtype
from linnet.ir.function import Function, Tensor, emit

Array = npt.NDArray[Any]
FLOATS = ("f32", "f16", "bf16", "f64")


@dataclasses.dataclass(frozen=True)
class Operand:
    """values: "normal" (standard normal, or integers between -100 and 100), "full" (all integers of the dtype),
    "positive", "unit" (between -0.9 and 0.9), "near_one", "special" (normal with NaN, infinities and zeros), or "N..M"
    (integers, M excluded). data: these numbers instead. constant: whether the operand is part of the graph; other
    operands are fed."""

    dtype: str
    shape: tuple[int, ...]
    values: str = "normal"
    constant: bool = False
    quantization: Quantization | None = None
    data: Array | None = None

    def array(self, seed: int) -> Array:
        """The stored numbers."""
        if self.data is not None:
            return self.data
        rng = np.random.default_rng(seed)
        if ".." in self.values:
            low, high = (int(part) for part in self.values.split(".."))
            return np.asarray(rng.integers(low, high, self.shape)).astype(numpy_dtype(self.dtype))
        if self.dtype in FLOATS:
            return stored(_floats(rng, self.shape, self.values), self.dtype)
        kind = numpy_dtype(self.dtype)
        if kind == np.bool_:
            return np.asarray(rng.integers(0, 2, self.shape)).astype(bool)
        limits = np.iinfo(kind)
        low, high = (limits.min, limits.max) if self.values == "full" else (max(limits.min, -100), 100)
        if self.values == "positive":
            low = 1
        return np.asarray(rng.integers(low, high, self.shape, dtype=kind, endpoint=True))


def _floats(rng: np.random.Generator, shape: tuple[int, ...], values: str) -> Array:
    if values == "unit":
        return np.asarray(rng.uniform(-0.9, 0.9, shape))
    made = np.asarray(rng.standard_normal(shape))
    if values == "positive":
        return np.abs(made) + 0.1
    if values == "near_one":
        return 1 + np.clip(0.02 * made, -0.5, 0.5)
    if values == "special" and made.size:
        flat = made.reshape(-1)
        for i, value in enumerate((np.nan, np.inf, -np.inf, 0.0, -0.0)):
            flat[(i * 7 + 3) % flat.size] = value
    return made


def stored(array: Array, dtype: str) -> Array:
    """Floats as an array of this dtype. bf16 is truncated."""
    if dtype == "bf16":
        bits: Array = (np.asarray(array, np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        return bits.view(numpy_dtype(dtype))
    return np.asarray(array).astype(numpy_dtype(dtype))


@dataclasses.dataclass(frozen=True)
class Case:
    """One op with its operands (None for an operand that is left out). body: the expression of a map. quantization,
    dtypes: the quantizations and dtypes of the outputs. epilogue: a key of EPILOGUES, for the map after the op. depth:
    how many numbers the op adds up for each sum. usual: whether the case is in the list that runs by default. note:
    what else is special about the case."""

    op: str
    dtype: str
    operands: tuple[Operand | None, ...]
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)
    outputs: int = 1
    quantization: tuple[Quantization | None, ...] = ()
    dtypes: tuple[str, ...] = ()
    epilogue: str = ""
    body: Callable[..., Any] | None = None
    depth: int = 1
    usual: bool = False
    note: str = ""
    id: str = ""

    @property
    def about(self) -> str:
        """Shapes and attributes in words."""
        parts = [" ".join(_text(x) for x in self.operands if x is not None)]
        parts += [f"{name}={_value(value)}" for name, value in self.attributes.items()]
        parts += [f"-> {dtype}" for dtype in self.dtypes if dtype != self.dtype]
        parts += [f"then {self.epilogue}" if self.epilogue else "", self.note]
        return " ".join(part for part in parts if part)


def _text(x: Operand) -> str:
    scales = "" if x.quantization is None else " per tensor" if x.quantization.axis is None else " per channel"
    return f"{x.dtype}[{','.join(map(str, x.shape))}]{scales}"


def _value(value: Any) -> str:
    return "[" + ",".join(map(str, value)) + "]" if isinstance(value, list | tuple) else str(value)


@dataclasses.dataclass(frozen=True)
class Placed:
    """A case in a graph: the names of its nodes, the names and dtypes of its outputs, and whether the sizes of the
    outputs depend on data."""

    case: Case
    nodes: tuple[str, ...]
    outputs: tuple[str, ...]
    dtypes: tuple[str, ...]
    open: bool


def add(case: Case, main: Function, feeds: dict[str, Array], number: int) -> Placed:
    """Appends the nodes of the case to `main`, and the values that they read to `feeds`."""
    name, seed = f"c{number}", zlib.crc32(case.id.encode())
    inputs: list[Tensor | None] = []
    for i, x in enumerate(case.operands):
        if x is None:
            inputs.append(None)
            continue
        inputs.append(_operand(x, main, feeds, f"{name}_x{i}", seed + i))
    nodes = [name]
    if case.note == "table":
        table = inputs[1]
        assert inputs[0] is not None and table is not None
        made = [look_up(inputs[0], table, name=name)]
    elif case.body is not None:
        tensors = [t for t in inputs if t is not None]
        real = any(t.quantization is not None for t in tensors)
        found = pointwise(
            tensors, case.body, case.dtypes or None, name=name, quantization=case.quantization, dequantize=real
        )
        made = found if isinstance(found, list) else [found]
    else:
        made = emit(
            case.op,
            inputs,
            case.attributes,
            case.outputs,
            name,
            main,
            quantization=case.quantization,
            dtypes=case.dtypes,
        )
    if case.epilogue:
        nodes.append(f"{name}_e")
        made = [_epilogue(case, made[0], main, feeds, nodes[1], seed + 100)]
    main.outputs += made
    sizes_open = any(t.shape is None or None in t.shape for t in made)
    return Placed(case, tuple(nodes), tuple(t.name for t in made), tuple(t.dtype for t in made), sizes_open)


def _operand(x: Operand, main: Function, feeds: dict[str, Array], name: str, seed: int) -> Tensor:
    array = x.array(seed)
    if x.constant:
        return main.constant(array, name, x.dtype, x.quantization)
    fed = main.placeholder(name, x.dtype, x.shape)
    fed.quantization = x.quantization
    feeds[name] = array
    return fed


EPILOGUES: dict[str, Callable[..., Any]] = {
    "relu": lambda y: y.max(0.0),
    "clip": lambda y: y.max(-1.5).min(2.25),
    "residual": lambda y, r: y + r,
    "scale": lambda y, s: y * s + 0.5,
    "sigmoid": lambda y: y * y.sigmoid(),
    "tanh": lambda y, r: (y + r).tanh(),
}
_READS = {"residual": "residual", "tanh": "residual", "scale": "channel"}


def _epilogue(case: Case, y: Tensor, main: Function, feeds: dict[str, Array], name: str, seed: int) -> Tensor:
    shape = y.static_shape
    assert shape is not None
    more: list[Tensor] = []
    dtype = y.dtype if y.dtype in FLOATS else "f32"
    if _READS.get(case.epilogue) == "residual":
        residual = Operand(y.dtype, shape, quantization=y.quantization)
        more.append(_operand(residual, main, feeds, f"{name}_r", seed))
    if _READS.get(case.epilogue) == "channel":
        axis = case.attributes.get("channel_axis", -1 if case.op == "matmul" else 1) % len(shape)
        sizes = tuple(d if i == axis else 1 for i, d in enumerate(shape))
        more.append(_operand(Operand(dtype, sizes, "positive", constant=True), main, feeds, f"{name}_s", seed))
    kept = () if y.quantization is None else (y.quantization,)
    made = pointwise(
        [y, *more], EPILOGUES[case.epilogue], [y.dtype], name=name, quantization=kept, dequantize=bool(kept)
    )
    assert isinstance(made, Tensor)
    return made


def fed(dtype: str, *shape: int, values: str = "normal", quantization: Quantization | None = None) -> Operand:
    """An operand that is fed in each run."""
    return Operand(dtype, shape, values, quantization=quantization)


def const(dtype: str, *shape: int, values: str = "normal", quantization: Quantization | None = None) -> Operand:
    """A constant of the graph."""
    return Operand(dtype, shape, values, True, quantization)


def given(array: Any, dtype: str = "i64", constant: bool = True) -> Operand:
    """An operand with these numbers, either constant or fed."""
    data = np.asarray(array).astype(numpy_dtype(dtype))
    return Operand(dtype, data.shape, "given", constant, data=data)


def per_tensor(scale: float, zero: int = 0) -> Quantization:
    return Quantization(np.array([scale], np.float32), np.array([zero], np.int32))


def per_axis(count: int, axis: int, scale: float, zeros: bool = False) -> Quantization:
    """Scales that differ from channel to channel, with or without zero points."""
    scales = (scale * (1 + 0.37 * np.arange(count))).astype(np.float32)
    return Quantization(scales, (np.arange(count) % 5 if zeros else np.zeros(count)).astype(np.int32), axis)
