"""Element types that linnet's tensors do not have: integers of 2 and 4 bits, floats of 4, 6 and 8 bits.
A tensor of such a type holds one byte per element (`codes`); the importer stores the type separately (`Importer.kinds`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper

from linnet.converters.onnx.problems import Unsupported
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor
from linnet.ir.program import REGISTER, Instruction, Program, Store

if TYPE_CHECKING:
    from linnet.converters.onnx.operation import Operation
    from linnet.converters.onnx.values import Value

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Kind:
    """A narrow element type. Integers are stored sign-extended as i8 or u8, floats as their bits in u8.

    The numbers describe floats. Sign, exponent and mantissa bits are as in ONNX's names. top: the code of the largest
    number. nan, inf: the codes of these values (nan None: the type has no NaN). The types are OCP 8-bit and
    Microscaling formats; for fnuz types see arXiv 2206.02915.
    """

    name: str
    number: int
    bits: int
    storage: str = "u8"
    mantissa: int = 0
    bias: int = 0
    top: int = 0
    nan: int | None = None
    inf: int | None = None

    @property
    def integer(self) -> bool:
        return self.bias == 0

    @property
    def numpy(self) -> np.dtype[Any]:
        """The element type (from ml_dtypes) of arrays that users see."""
        dtype: np.dtype[Any] = helper.tensor_dtype_to_np_dtype(self.number)
        return dtype

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest integer."""
        return (
            (-1 << (self.bits - 1), (1 << (self.bits - 1)) - 1) if self.storage == "i8" else (0, (1 << self.bits) - 1)
        )

    def codes(self, values: npt.ArrayLike) -> Array:
        """Encodes an array as bytes. If the array already consists of bytes, they are taken to be codes."""
        array = np.asarray(values)
        if array.dtype == self.numpy and not self.integer:
            return array.view(np.uint8)
        return array.astype(np.int8 if self.storage == "i8" else np.uint8)

    def values(self, codes: Array) -> Array:
        """The inverse of `codes`."""
        return codes.astype(self.numpy) if self.integer else codes.astype(np.uint8).view(self.numpy)


def _kinds() -> dict[int, Kind]:
    """Every narrow type that the installed onnx package knows, by its number."""
    rows: list[tuple[str, Any]] = [(f"{sign}INT{n}", (n, "u8" if sign else "i8")) for n in (2, 4) for sign in ("", "U")]
    rows += [  # bits, storage, mantissa, bias, top, nan, inf
        ("FLOAT8E4M3FN", (8, "u8", 3, 7, 0x7E, 0x7F)),
        ("FLOAT8E4M3FNUZ", (8, "u8", 3, 8, 0x7F, 0x80)),
        ("FLOAT8E5M2", (8, "u8", 2, 15, 0x7B, 0x7E, 0x7C)),
        ("FLOAT8E5M2FNUZ", (8, "u8", 2, 16, 0x7F, 0x80)),
        ("FLOAT8E8M0", (8, "u8", 0, 127, 0xFE, 0xFF)),
        ("FLOAT6E2M3", (6, "u8", 3, 1, 0x1F)),
        ("FLOAT6E3M2", (6, "u8", 2, 3, 0x1F)),
        ("FLOAT4E2M1", (4, "u8", 1, 1, 0x7)),
    ]
    numbers = dict(TensorProto.DataType.items())
    return {numbers[name]: Kind(name.lower(), numbers[name], *row) for name, row in rows if name in numbers}


KINDS = _kinds()
BY_NAME = {kind.name: kind for kind in KINDS.values()}

# Ops that only move elements: their result has the type of the first operand.
MOVERS = frozenset(
    {
        "Concat",
        "DepthToSpace",
        "Dropout",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Identity",
        "Pad",
        "Reshape",
        "ReverseSequence",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "TensorScatter",
        "Transpose",
        "Unsqueeze",
    }
)
# Ops whose rules handle narrow types, or never read the elements.
AWARE = frozenset(
    {
        "BitCast",
        "Cast",
        "CastLike",
        "ConcatFromSequence",
        "Constant",
        "ConstantOfShape",
        "DequantizeLinear",
        "GatherBlockQuantized",
        "If",
        "IsInf",
        "IsNaN",
        "Loop",
        "Optional",
        "OptionalGetElement",
        "OptionalHasElement",
        "QuantizeLinear",
        "Scan",
        "SequenceAt",
        "SequenceConstruct",
        "SequenceErase",
        "SequenceInsert",
        "SequenceLength",
        "SequenceMap",
        "Shape",
        "Size",
        "SplitToSequence",
    }
)
# fmt: on
METADATA = "type."  # prefix of the metadata key for the type of an input or output


def enter(op: Operation) -> None:
    """Called before a rule runs. Raises Unsupported if the rule would treat codes as numbers."""
    kinds, op_type = op.importer.kinds, op.node.op_type
    operands = [t for t in op.inputs if isinstance(t, Tensor)]
    found = {kinds[t].name for t in operands if t in kinds}
    if not found:
        return
    if op_type in ("IsInf", "IsNaN"):
        op.inputs = [decoded(op, t, kinds[t]) if t in kinds else t for t in operands]
        return
    hint = "convert it to float32 first, with Cast or DequantizeLinear"
    if op_type not in MOVERS and op_type not in AWARE:
        raise Unsupported(f"{op_type} does not support the element type {', '.join(sorted(found))}", hint)
    plain = {t.dtype for t in operands if t not in kinds and t.dtype in ("i8", "u8")}
    if op_type in MOVERS and len(found | plain) > 1:
        raise Unsupported(
            f"{op_type} has operands of different element types: {', '.join(sorted(found | plain))}", hint
        )


def leave(op: Operation, results: Sequence[Value]) -> None:
    """Called after a rule has run. If the op only moves elements, records the narrow type of its results."""
    kind = op.kind(0) if op.node.op_type in MOVERS else None
    for tensor in results:
        if isinstance(tensor, Tensor) and kind is not None and tensor.dtype == kind.storage:
            op.of_kind(tensor, kind)


def decoded(op: Operation, codes: Tensor, kind: Kind, dtype: str = "f32") -> Tensor:
    """The numbers of a tensor of a narrow type: f32 (or dtype) for floats, the stored integers for integers."""
    if kind.integer:
        return codes
    size = 1 << kind.bits
    table = op.constant(np.arange(size, dtype=np.uint8).view(kind.numpy).astype(np.float32))
    program = Program()
    code = Expr(program, program.add(Instruction("load", "i32", operand=0))) & (size - 1)
    program.stores = [Store(code.table(1).cast(REGISTER[dtype]).register, False)]
    return op.emit("map", [codes, table], **program.attributes([dtype]))


def encoded(op: Operation, x: Tensor, kind: Kind, saturate: bool = True, round_mode: str = "up") -> Tensor:
    """Encodes numbers as codes of a narrow type, rounding half to even. Values that are too large become `top`, inf or
    NaN.

    Integers keep their low bits; floats are truncated first. round_mode (up, down, nearest): only for float8e8m0.
    """
    if kind.integer:
        return op.map([x], lambda v: _low_bits(v.cast("i64") if v.kind == "i64" else v.cast("i32"), kind), kind.storage)
    x = op.cast(x, "f32")
    bits = op.emit("copy", [x], kind="bitcast", dtype="i32")
    if kind.mantissa == 0:
        if round_mode not in ("up", "down", "nearest"):
            raise op.unsupported(f"round_mode {round_mode!r} is not supported", "use up, down or nearest")
        return op.map([bits], lambda u: _power(u, saturate, round_mode), "u8")
    top_bit, drop = 1 << (kind.bits - 1), 23 - kind.mantissa

    def body(v: Expr, u: Expr) -> Expr:
        size, sign = u & 0x7FFFFFFF, u.binary("shift_right_logical", 31) * top_bit
        half = (1 << (drop - 1)) - 1 + (size.binary("shift_right", drop) & 1)
        normal = (size + half).binary("shift_right", drop) - ((127 - kind.bias) << kind.mantissa)
        small = (abs(v) * 2.0 ** (kind.bias - 1 + kind.mantissa)).unary("round").cast("i32")
        code = (size < ((128 - kind.bias) << 23)).select(small, normal)
        if saturate or kind.nan is None:
            code = code.min(kind.top)
        else:
            code = (code > kind.top).select(kind.nan if kind.inf is None else kind.inf, code)
        is_nan = size > 0x7F800000
        if kind.nan == top_bit:  # fnuz types have no negative zero and no signed NaN
            plain = (code | sign) * code.ne(0)
            return (is_nan | code.eq(kind.nan)).select(kind.nan, plain)
        return is_nan.select(sign ^ (top_bit if kind.nan is None else kind.nan), code | sign)

    return op.map([x, bits], body, "u8")


def _power(u: Expr, saturate: bool, round_mode: str) -> Expr:
    """The e8m0 code for the bits of an f32: its rounded exponent. A code means 2^(code - 127); 255 is NaN."""
    exponent, rest, size = u.binary("shift_right", 23) & 0xFF, u & 0x7FFFFF, u & 0x7FFFFFFF
    if round_mode == "up":
        exponent = exponent + (rest > 0)
    elif round_mode == "nearest":
        exponent = exponent + ((rest >= 0x400000) & (size > 0x400000))
    return (size > 0x7F800000).select(0xFF, exponent.min(0xFE if saturate else 0xFF))


def _low_bits(v: Expr, kind: Kind) -> Expr:
    if kind.storage == "u8":
        return v & ((1 << kind.bits) - 1)
    left = (64 if v.kind == "i64" else 32) - kind.bits
    return v.binary("shift_left", left).binary("shift_right", left)


def bit_cast(op: Operation, x: Tensor, source: Kind | None, target: Kind | None, dtype: str) -> Tensor:
    """Reinterprets bits if one side is a narrow type. dtype: the storage type of the result."""
    if target is not None and target.integer:
        return op.map([x], lambda v: _low_bits(v, target), dtype)
    mask = (1 << source.bits) - 1 if source is not None else 0xFF
    return op.map([x], lambda v: v & mask, dtype)
