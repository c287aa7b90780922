"""Reads a TFLite file with the `flatbuffers` package, using the field ids of the public TFLite schema (version 3).
`Reader` is a checked view of one table; `Model` is the whole file as plain Python objects."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from flatbuffers import number_types
from flatbuffers.table import Table

from linnet.clib.errors import FileError
from linnet.converters.tflite.problems import Unsupported
from linnet.ir.dtypes import Quantization

MAX_TABLES = 1 << 20  # limit of entries in a vector of tables, far above any real model
MAX_BYTES = 1 << 30  # limit for a tensor made during conversion

# The index of an op is its number.
OPS = [
    "ADD", "AVERAGE_POOL_2D", "CONCATENATION", "CONV_2D", "DEPTHWISE_CONV_2D", "DEPTH_TO_SPACE", "DEQUANTIZE",
    "EMBEDDING_LOOKUP", "FLOOR", "FULLY_CONNECTED", "HASHTABLE_LOOKUP", "L2_NORMALIZATION", "L2_POOL_2D",
    "LOCAL_RESPONSE_NORMALIZATION", "LOGISTIC", "LSH_PROJECTION", "LSTM", "MAX_POOL_2D", "MUL", "RELU",
    "RELU_N1_TO_1", "RELU6", "RESHAPE", "RESIZE_BILINEAR", "RNN", "SOFTMAX", "SPACE_TO_DEPTH", "SVDF", "TANH",
    "CONCAT_EMBEDDINGS", "SKIP_GRAM", "CALL", "CUSTOM", "EMBEDDING_LOOKUP_SPARSE", "PAD",
    "UNIDIRECTIONAL_SEQUENCE_RNN", "GATHER", "BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND", "TRANSPOSE", "MEAN", "SUB",
    "DIV", "SQUEEZE", "UNIDIRECTIONAL_SEQUENCE_LSTM", "STRIDED_SLICE", "BIDIRECTIONAL_SEQUENCE_RNN", "EXP",
    "TOPK_V2", "SPLIT", "LOG_SOFTMAX", "DELEGATE", "BIDIRECTIONAL_SEQUENCE_LSTM", "CAST", "PRELU", "MAXIMUM",
    "ARG_MAX", "MINIMUM", "LESS", "NEG", "PADV2", "GREATER", "GREATER_EQUAL", "LESS_EQUAL", "SELECT", "SLICE",
    "SIN", "TRANSPOSE_CONV", "SPARSE_TO_DENSE", "TILE", "EXPAND_DIMS", "EQUAL", "NOT_EQUAL", "LOG", "SUM", "SQRT",
    "RSQRT", "SHAPE", "POW", "ARG_MIN", "FAKE_QUANT", "REDUCE_PROD", "REDUCE_MAX", "PACK", "LOGICAL_OR", "ONE_HOT",
    "LOGICAL_AND", "LOGICAL_NOT", "UNPACK", "REDUCE_MIN", "FLOOR_DIV", "REDUCE_ANY", "SQUARE", "ZEROS_LIKE", "FILL",
    "FLOOR_MOD", "RANGE", "RESIZE_NEAREST_NEIGHBOR", "LEAKY_RELU", "SQUARED_DIFFERENCE", "MIRROR_PAD", "ABS",
    "SPLIT_V", "UNIQUE", "CEIL", "REVERSE_V2", "ADD_N", "GATHER_ND", "COS", "WHERE", "RANK", "ELU",
    "REVERSE_SEQUENCE", "MATRIX_DIAG", "QUANTIZE", "MATRIX_SET_DIAG", "ROUND", "HARD_SWISH", "IF", "WHILE",
    "NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5", "SCATTER_ND", "SELECT_V2", "DENSIFY", "SEGMENT_SUM",
    "BATCH_MATMUL", "PLACEHOLDER", "CUMSUM", "CALL_ONCE", "BROADCAST_TO", "RFFT2D", "CONV_3D", "IMAG", "REAL",
    "COMPLEX_ABS", "HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE", "REDUCE_ALL",
    "CONV_3D_TRANSPOSE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "BROADCAST_ARGS",
    "RANDOM_STANDARD_NORMAL", "BUCKETIZE", "RANDOM_UNIFORM", "MULTINOMIAL", "GELU", "DYNAMIC_UPDATE_SLICE",
    "RELU_0_TO_1", "UNSORTED_SEGMENT_PROD", "UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_SUM", "ATAN2",
    "UNSORTED_SEGMENT_MIN", "SIGN", "BITCAST", "BITWISE_XOR", "RIGHT_SHIFT",
]  # fmt: skip
# Later ops, of which TFLite's own interpreter can run only a few.
LATER = [
    "LOGISTIC", "ADD", "DIVIDE", "MULTIPLY", "MAXIMUM", "RESHAPE", "CLAMP", "CONCATENATE", "BROADCAST_IN_DIM", "CONVOLUTION",
    "SLICE", "CUSTOM_CALL", "REDUCE", "ABS", "AND", "COSINE", "EXPONENTIAL", "FLOOR", "LOG", "MINIMUM", "NEGATE", "OR",
    "POWER", "REMAINDER", "RSQRT", "SELECT", "SUBTRACT", "TANH", "SCATTER", "COMPARE", "CONVERT", "DYNAMIC_SLICE",
    "DYNAMIC_UPDATE_SLICE", "PAD", "IOTA", "DOT_GENERAL", "REDUCE_WINDOW", "SORT", "WHILE", "GATHER", "TRANSPOSE", "DILATE",
    "RNG_BIT_GENERATOR", "REDUCE_WINDOW_2", "COMPOSITE", "SHIFT_LEFT", "CBRT", "CASE",
]  # fmt: skip
NAMES = [*OPS, *(name if name == "DILATE" else f"STABLEHLO_{name}" for name in LATER)]
DTYPES = {
    0: "f32", 1: "f16", 2: "i32", 3: "u8", 4: "i64", 6: "bool", 7: "i16", 9: "i8", 10: "f64", 12: "u64", 15: "u32",
    16: "u16", 17: "i4", 18: "bf16", 19: "i2", 20: "u4",
}  # fmt: skip
NARROW = {
    "i4": ("i8", 4),
    "i2": ("i8", 2),
    "u4": ("u8", 4),
}  # narrow types of constants: the type that holds them, and their bits
TYPE_NAMES = {
    5: "STRING", 8: "COMPLEX64", 11: "COMPLEX128", 13: "RESOURCE", 14: "VARIANT", 21: "FLOAT8_E4M3FN", 22: "FLOAT8_E5M2",
}  # fmt: skip
ACTIVATIONS = ("none", "relu", "relu_n1_to_1", "relu6", "tanh", "sign_bit")

# Fields of the builtin options that rules read: (field id, kind), and the default if it is not 0.
_CONV = {"padding": (0, "i8"), "stride_w": (1, "i32"), "stride_h": (2, "i32")}
_LSTM = {"activation": (0, "i8"), "cell_clip": (1, "f32"), "projection_clip": (2, "f32")}
OPTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "CONV_2D": {**_CONV, "activation": (3, "i8"), "dilation_w": (4, "i32", 1), "dilation_h": (5, "i32", 1)},
    "DEPTHWISE_CONV_2D": {
        **_CONV, "multiplier": (3, "i32"), "activation": (4, "i8"), "dilation_w": (5, "i32", 1), "dilation_h": (6, "i32", 1),
    },
    "TRANSPOSE_CONV": {**_CONV, "activation": (3, "i8")},
    **{
        op: {
            "padding": (0, "i8"), "stride_d": (1, "i32"), "stride_w": (2, "i32"), "stride_h": (3, "i32"),
            "activation": (4, "i8"), "dilation_d": (5, "i32", 1), "dilation_w": (6, "i32", 1), "dilation_h": (7, "i32", 1),
        }
        for op in ("CONV_3D", "CONV_3D_TRANSPOSE")
    },
    "FULLY_CONNECTED": {
        "activation": (0, "i8"), "weights_format": (1, "i8"), "keep_dims": (2, "bool"), "asymmetric": (3, "bool"),
    },
    "SOFTMAX": {"beta": (0, "f32")}, "CONCATENATION": {"axis": (0, "i32"), "activation": (1, "i8")},
    "L2_NORMALIZATION": {"activation": (0, "i8")}, "RESHAPE": {"shape": (0, "ints")},
    "LOCAL_RESPONSE_NORMALIZATION": {"radius": (0, "i32"), "bias": (1, "f32"), "alpha": (2, "f32"), "beta": (3, "f32")},
    "RESIZE_BILINEAR": {"align_corners": (2, "bool"), "half_pixel_centers": (3, "bool")},
    "RESIZE_NEAREST_NEIGHBOR": {"align_corners": (0, "bool"), "half_pixel_centers": (1, "bool")},
    "GATHER": {"axis": (0, "i32"), "batch_dims": (1, "i32")}, "SQUEEZE": {"axes": (0, "ints")},
    "STRIDED_SLICE": {
        "begin_mask": (0, "i32"), "end_mask": (1, "i32"), "ellipsis_mask": (2, "i32"), "new_axis_mask": (3, "i32"),
        "shrink_mask": (4, "i32"), "offset": (5, "bool"),
    },
    "CUMSUM": {"exclusive": (0, "bool"), "reverse": (1, "bool")}, "LEAKY_RELU": {"alpha": (0, "f32")},
    "MIRROR_PAD": {"mode": (0, "i8")}, "ONE_HOT": {"axis": (0, "i32")}, "PACK": {"count": (0, "i32"), "axis": (1, "i32")},
    "UNPACK": {"count": (0, "i32"), "axis": (1, "i32")},
    "BATCH_MATMUL": {"adjoint_x": (0, "bool"), "adjoint_y": (1, "bool"), "asymmetric": (2, "bool")},
    "GELU": {"approximate": (0, "bool")}, "SHAPE": {"output_type": (0, "i8")},
    "ARG_MAX": {"output_type": (0, "i8")}, "ARG_MIN": {"output_type": (0, "i8")},
    "IF": {"then_subgraph": (0, "i32"), "else_subgraph": (1, "i32")},
    "WHILE": {"cond_subgraph": (0, "i32"), "body_subgraph": (1, "i32")}, "CALL": {"subgraph": (0, "i32")},
    "STABLEHLO_COMPOSITE": {"name": (0, "string"), "subgraph": (1, "i32")},
    "LSTM": {**_LSTM, "kernel": (3, "i8"), "asymmetric": (4, "bool")},
    "UNIDIRECTIONAL_SEQUENCE_LSTM": {
        **_LSTM, "time_major": (3, "bool"), "asymmetric": (4, "bool"), "diagonal": (5, "bool"),
    },
    "BIDIRECTIONAL_SEQUENCE_LSTM": {
        **_LSTM, "merge": (3, "bool"), "time_major": (4, "bool", True), "asymmetric": (5, "bool"),
    },
    "RNN": {"activation": (0, "i8"), "asymmetric": (1, "bool")},
    "UNIDIRECTIONAL_SEQUENCE_RNN": {"time_major": (0, "bool"), "activation": (1, "i8"), "asymmetric": (2, "bool")},
    "BIDIRECTIONAL_SEQUENCE_RNN": {
        "time_major": (0, "bool"), "activation": (1, "i8"), "merge": (2, "bool"), "asymmetric": (3, "bool"),
    },
    "SVDF": {"rank": (0, "i32"), "activation": (1, "i8"), "asymmetric": (2, "bool")},
    "REVERSE_SEQUENCE": {"sequence_axis": (0, "i32"), "batch_axis": (1, "i32")}, "BUCKETIZE": {"boundaries": (0, "floats")},
    "EMBEDDING_LOOKUP_SPARSE": {"combiner": (0, "i8")},
    "UNIQUE": {"index_type": (0, "i8", 2)},
    "CALL_ONCE": {"subgraph": (0, "i32")}, "VAR_HANDLE": {"container": (0, "string"), "shared_name": (1, "string")},
    "FAKE_QUANT": {"min": (0, "f32"), "max": (1, "f32"), "bits": (2, "i32"), "narrow": (3, "bool")},
    **{op: {"activation": (0, "i8")} for op in ("ADD", "SUB", "MUL", "DIV")},
    **{op: {"seed": (0, "i64"), "seed2": (1, "i64")} for op in ("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "MULTINOMIAL")},
    **{op: {"block": (0, "i32")} for op in ("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")},
    **{op: {"count": (0, "i32")} for op in ("SPLIT", "SPLIT_V")},
    **{
        op: {**_CONV, "filter_w": (3, "i32"), "filter_h": (4, "i32"), "activation": (5, "i8")}
        for op in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
    },
    **{
        op: {"keep_dims": (0, "bool")}
        for op in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL")
    },
}  # fmt: skip

_FLAGS: dict[str, Any] = {
    "i8": number_types.Int8Flags, "u8": number_types.Uint8Flags, "bool": number_types.BoolFlags,
    "i64": number_types.Int64Flags, "i32": number_types.Int32Flags, "u32": number_types.Uint32Flags,
    "u64": number_types.Uint64Flags, "f32": number_types.Float32Flags,
}  # fmt: skip


class Reader:
    """One table of the file. Fields are read by id and checked against the end of the file."""

    def __init__(self, content: bytes, position: int) -> None:
        if not 0 < position <= len(content) - 4:
            raise ValueError("a table is outside the file")
        fields = position - struct.unpack_from("<i", content, position)[0]
        if not 0 <= fields <= len(content) - 4 or fields + struct.unpack_from("<H", content, fields)[0] > len(content):
            raise ValueError("the fields of a table are outside the file")
        self.content, self.table = content, Table(content, position)

    def _at(self, field: int, width: int = 4) -> int:
        """Position of a field's value of `width` bytes, or 0 if the table omits the field."""
        offset: int = self.table.Offset(4 + 2 * field)
        position = self.table.Pos + offset
        if offset and not 0 < position <= len(self.content) - width:
            raise ValueError("a field is outside the file")
        return position if offset else 0

    def scalar(self, field: int, kind: str, default: Any = 0) -> Any:
        at = self._at(field, _FLAGS[kind].bytewidth)
        return self.table.Get(_FLAGS[kind], at) if at else default

    def _vector(self, field: int, width: int) -> tuple[int, int] | None:
        """(position of the first element, count)."""
        at = self._at(field)
        if not at:
            return None
        start = self.table.Indirect(at)
        if not 0 < start <= len(self.content) - 4:
            raise ValueError("a vector is outside the file")
        (count,) = struct.unpack_from("<I", self.content, start)
        if start + 4 + count * width > len(self.content):
            raise ValueError("a vector ends outside the file")
        return start + 4, count

    def array(self, field: int, dtype: npt.DTypeLike) -> npt.NDArray[Any] | None:
        """A vector of numbers as a read-only view."""
        kind = np.dtype(dtype).newbyteorder("<")
        found = self._vector(field, kind.itemsize)
        return None if found is None else np.frombuffer(self.content, kind, found[1], found[0])

    def ints(self, field: int) -> list[int] | None:
        value = self.array(field, np.int32)
        return None if value is None else [int(v) for v in value]

    def string(self, field: int) -> str:
        found = self._vector(field, 1)
        return "" if found is None else self.content[found[0] : found[0] + found[1]].decode("utf-8", "replace")

    def child(self, field: int) -> Reader | None:
        at = self._at(field)
        return Reader(self.content, self.table.Indirect(at)) if at else None

    def children(self, field: int) -> list[Reader]:
        found = self._vector(field, 4)
        if found is None:
            return []
        start, count = found
        if count > MAX_TABLES:
            raise ValueError("a vector has too many entries")
        return [Reader(self.content, self.table.Indirect(start + 4 * i)) for i in range(count)]


@dataclasses.dataclass
class TensorSpec:
    """A tensor as declared in the file. dtype: linnet's name (or one of NARROW, for constants); "" if linnet has no such type."""

    name: str
    dtype: str
    type_name: str
    shape: tuple[int, ...]
    signature: tuple[int, ...]  # -1 for dimensions that may change
    quantization: Quantization | None
    buffer: int
    is_variable: bool
    sparsity: Reader | None
    blocks: tuple[int, int] | None = None  # for weights quantized in blocks of a row: (index of the scales, block size)


@dataclasses.dataclass
class OperatorSpec:
    """An operator: op name, tensor indices (-1: left out), options table, and the option bytes of a custom op.
    intermediates: tensors of recurrent integer ops that are used only for their quantization. version: version of the
    op."""

    op: str
    inputs: list[int]
    outputs: list[int]
    options: Reader | None
    custom: bytes = b""
    intermediates: list[int] = dataclasses.field(default_factory=list)
    version: int = 1


@dataclasses.dataclass
class SubgraphSpec:
    name: str
    tensors: list[TensorSpec]
    inputs: list[int]
    outputs: list[int]
    operators: list[OperatorSpec]


@dataclasses.dataclass
class SignatureSpec:
    """Names of a subgraph's inputs and outputs: {tensor index: name}."""

    key: str
    subgraph: int
    inputs: dict[int, str]
    outputs: dict[int, str]


class Model:
    """A parsed file. Raises FileError if it is not a TFLite file or is damaged."""

    def __init__(self, content: bytes, name: str = "") -> None:
        self.content, self.file = content, name
        if len(content) < 16 or content[4:8] != b"TFL3":
            raise FileError(
                "is not a TFLite model: the identifier TFL3 is missing",
                tensor=name,
                code=203,
                hint="use a .tflite file",
            )
        try:
            self._read(Reader(content, struct.unpack_from("<I", content, 0)[0]))
        except (struct.error, ValueError, IndexError, OverflowError, TypeError) as error:
            raise FileError(
                f"is a damaged TFLite model: {error}", tensor=name, code=206, hint="export the model again"
            ) from None

    def _read(self, root: Reader) -> None:
        version = root.scalar(0, "u32")
        if version != 3:
            raise ValueError(f"the schema version is {version}; expected 3")
        codes = [max(c.scalar(0, "i8"), c.scalar(3, "i32")) for c in root.children(1)]
        names = [c.string(1) for c in root.children(1)]
        self.versions = [max(c.scalar(2, "i32"), 1) for c in root.children(1)]  # 1 if left out
        self.ops = [
            f"CUSTOM:{names[i]}" if code == 32 else NAMES[code] if 0 <= code < len(NAMES) else f"op {code}"
            for i, code in enumerate(codes)
        ]
        self.description = root.string(3)
        self.buffers = root.children(4)
        self.subgraphs = [self._subgraph(s) for s in root.children(2)]
        if not self.subgraphs:
            raise ValueError("it has no subgraph")
        self.signatures = [self._signature(s) for s in root.children(7)]

    def _subgraph(self, table: Reader) -> SubgraphSpec:
        tensors = [self._tensor(t, i) for i, t in enumerate(table.children(0))]

        def indices(values: list[int] | None, least: int = 0) -> list[int]:
            for value in values or ():
                if not least <= value < len(tensors):
                    raise ValueError(f"tensor index {value} is out of range; there are {len(tensors)} tensors")
            return values or []

        operators = []
        for entry in table.children(3):
            code = entry.scalar(0, "u32")
            if code >= len(self.ops):
                raise ValueError(f"op code index {code} is out of range; there are {len(self.ops)} op codes")
            inputs, outputs = indices(entry.ints(1), -1), indices(entry.ints(2))
            custom = entry.array(5, np.uint8)
            operators.append(OperatorSpec(
                self.ops[code], inputs, outputs, entry.child(4) or entry.child(12), b"" if custom is None else custom.tobytes(),
                indices(entry.ints(8), -1), self.versions[code],
            ))  # fmt: skip
        return SubgraphSpec(table.string(4), tensors, indices(table.ints(1)), indices(table.ints(2)), operators)

    def _tensor(self, table: Reader, index: int) -> TensorSpec:
        shape = tuple(table.ints(0) or ())
        kind, buffer = table.scalar(1, "i8"), table.scalar(2, "u32")
        if buffer >= max(len(self.buffers), 1):
            raise ValueError(f"buffer {buffer} is out of range; there are {len(self.buffers)} buffers")
        signature = tuple(table.ints(7) or shape)
        described = table.child(4)
        quantization = _quantization(described, DTYPES.get(kind, ""), len(shape))
        details = described.child(5) if described is not None and described.scalar(4, "u8") == 2 else None
        blocks = None if details is None else (details.scalar(0, "i32"), details.scalar(2, "i32"))
        return TensorSpec(
            table.string(3) or f"tensor_{index}", DTYPES.get(kind, ""), TYPE_NAMES.get(kind, str(kind)), shape, signature,
            quantization, buffer, bool(table.scalar(5, "bool")), table.child(6), blocks,
        )  # fmt: skip

    def _signature(self, table: Reader) -> SignatureSpec:
        inputs, outputs = ({m.scalar(1, "u32"): m.string(0) for m in table.children(f)} for f in (0, 1))
        subgraph = table.scalar(4, "u32")
        if subgraph >= len(self.subgraphs):
            raise ValueError(f"subgraph {subgraph} is out of range; there are {len(self.subgraphs)} subgraphs")
        return SignatureSpec(table.string(2), subgraph, inputs, outputs)

    def has_data(self, spec: TensorSpec) -> bool:
        return spec.buffer > 0 and self._bytes(spec).size > 0

    def _bytes(self, spec: TensorSpec) -> npt.NDArray[Any]:
        """Raw bytes of a constant: in its buffer or, in files above 2 GiB, after the flatbuffer."""
        try:
            return self._raw(spec)
        except (struct.error, ValueError, IndexError) as error:
            raise Unsupported(f"the data of {spec.name!r} is damaged: {error}", "export the model again") from None

    def _raw(self, spec: TensorSpec) -> npt.NDArray[Any]:
        table = self.buffers[spec.buffer]
        offset, size = table.scalar(1, "u64"), table.scalar(2, "u64")
        if offset > 1:
            if offset + size > len(self.content):
                raise Unsupported(
                    f"the data of {spec.name!r} ends outside the file", "the file is truncated: copy it again"
                )
            return np.frombuffer(self.content, np.uint8, size, offset)
        data = table.array(0, np.uint8)
        return np.zeros(0, np.uint8) if data is None else data

    def value(self, spec: TensorSpec) -> npt.NDArray[Any]:
        """The value of a constant. Narrow integers are widened and sparse weights are made dense. Raises Unsupported."""
        from linnet.converters.tflite.sparse import densify
        from linnet.ir.dtypes import numpy_dtype

        if not spec.dtype:
            raise Unsupported(
                f"constant {spec.name!r} has the unsupported type {spec.type_name}", "export it with a supported type"
            )
        raw = self._bytes(spec)
        if any(d < 0 for d in spec.shape):
            raise Unsupported(
                f"constant {spec.name!r} has a negative dimension: {list(spec.shape)}", "export the model again"
            )
        count = 1
        for d in spec.shape:
            count *= d
        if spec.dtype in NARROW:  # the first element is in the lowest bits of a byte
            holder, bits = NARROW[spec.dtype]
            parts = np.stack([raw >> bits * i & (1 << bits) - 1 for i in range(8 // bits)], -1).reshape(-1)
            if parts.size // (8 // bits) != -(-count * bits // 8):
                raise Unsupported(
                    f"constant {spec.name!r} has {raw.size} bytes for {count} elements", "export the model again"
                )
            half = 1 << bits - 1
            values: npt.NDArray[Any] = parts if holder == "u8" else (parts ^ half).astype(np.int8) - np.int8(half)
            values = values[:count]
        else:
            dtype = numpy_dtype(spec.dtype)
            if raw.size % dtype.itemsize:
                raise Unsupported(
                    f"constant {spec.name!r} of {spec.dtype} has {raw.size} bytes", "export the model again"
                )
            values = np.frombuffer(raw.tobytes(), dtype.newbyteorder("<")).astype(dtype)
        if spec.sparsity is not None:
            if count * values.itemsize > MAX_BYTES:
                raise Unsupported(f"constant {spec.name!r} is too large when dense", "export the constant dense")
            return densify(values, spec.shape, spec.sparsity, spec.name)
        if values.size != count:
            got = f"{values.size} elements for shape {list(spec.shape)}"
            raise Unsupported(f"constant {spec.name!r} has {got}", "the model is damaged: export it again")
        return values.reshape(spec.shape)


def _quantization(table: Reader | None, dtype: str, rank: int) -> Quantization | None:
    if table is None or dtype in ("", "f32", "f16", "bf16", "f64", "bool"):
        return None
    scale, zero, axis = table.array(2, np.float32), table.array(3, np.int64), table.scalar(6, "i32")
    if scale is None or scale.size == 0:
        return None
    if not np.all(np.isfinite(scale)) or not np.all(scale > 0):
        return None  # a placeholder that converters write, not a quantization
    zeros: npt.NDArray[Any] = np.zeros(scale.size, np.int64) if zero is None or zero.size == 0 else zero
    if rank == 1:
        axis = 0  # some files write the axis of the weights for a bias too
    if scale.size > 1 and not 0 <= axis < rank:
        raise ValueError(f"quantized dimension {axis} is out of range for rank {rank}")
    stored = np.broadcast_to(zeros, scale.shape).astype(np.int32)
    return Quantization(scale.astype(np.float32), stored, axis if scale.size > 1 else None)


def option(operator: OperatorSpec, name: str) -> Any:
    """A field of the operator's options, or the schema's default. Lists are None if absent. Raises KeyError."""
    entry = OPTIONS[operator.op][name]
    field, kind = entry[0], entry[1]
    table = operator.options
    if kind == "floats":
        return None if table is None else table.array(field, np.float32)
    if kind in ("ints", "string"):
        get: Callable[[int], Any] | None = None if table is None else table.ints if kind == "ints" else table.string
        return get(field) if get else None
    default = entry[2] if len(entry) > 2 else 0
    value = default if table is None else table.scalar(field, kind, default)
    return bool(value) if kind == "bool" else value
