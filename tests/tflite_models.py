"""Small TFLite models for tests: `build` writes a file of operators over named tensors with the `flatbuffers` package.
Field ids are those of the public TFLite schema, as in linnet.converters.tflite.schema."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import flatbuffers
import numpy as np
from flatbuffers import number_types

from linnet.converters.tflite.schema import ACTIVATIONS, NAMES, OPTIONS

TYPES = {
    "f32": 0, "f16": 1, "i32": 2, "u8": 3, "i64": 4, "bool": 6, "i16": 7, "complex64": 8, "i8": 9, "resource": 13, "i4": 17,
    "i2": 19,
}  # fmt: skip
# BuiltinOptions union: the number of an op's table (Conv2DOptions = 1, DepthwiseConv2DOptions = 2, ...).
UNION = {
    "CONV_2D": 1, "DEPTHWISE_CONV_2D": 2, "AVERAGE_POOL_2D": 5, "MAX_POOL_2D": 5, "FULLY_CONNECTED": 8, "SOFTMAX": 9,
    "CONCATENATION": 10, "ADD": 11, "L2_NORMALIZATION": 12, "RESIZE_BILINEAR": 15, "RESHAPE": 17, "MUL": 21, "PAD": 22,
    "GATHER": 23, "TRANSPOSE": 26, "MEAN": 27, "SUM": 27, "REDUCE_MAX": 27, "SUB": 28, "DIV": 29, "SQUEEZE": 30,
    "STRIDED_SLICE": 32, "SPLIT": 35, "TRANSPOSE_CONV": 49, "PACK": 59, "UNPACK": 64, "RESIZE_NEAREST_NEIGHBOR": 74,
    "LEAKY_RELU": 75, "IF": 92, "BATCH_MATMUL": 101, "CUMSUM": 102, "CALL_ONCE": 103, "VAR_HANDLE": 111, "GELU": 116,
    "MIRROR_PAD": 77, "SPLIT_V": 79, "SPACE_TO_DEPTH": 19, "DEPTH_TO_SPACE": 94, "ONE_HOT": 61,
    "SHAPE": 55, "CONV_3D": 106, "FAKE_QUANT": 58, "L2_POOL_2D": 5, "LOCAL_RESPONSE_NORMALIZATION": 13,
    "WHILE": 93, "CALL": 16, "LSTM": 14, "UNIDIRECTIONAL_SEQUENCE_LSTM": 71, "BIDIRECTIONAL_SEQUENCE_LSTM": 69, "RNN": 7,
    "UNIDIRECTIONAL_SEQUENCE_RNN": 31, "BIDIRECTIONAL_SEQUENCE_RNN": 70, "SVDF": 6, "UNIQUE": 80, "REVERSE_SEQUENCE": 87,
    "SPARSE_TO_DENSE": 50, "EMBEDDING_LOOKUP_SPARSE": 20, "BUCKETIZE": 115, "RANDOM_UNIFORM": 114,
    "RANDOM_STANDARD_NORMAL": 114, "MULTINOMIAL": 114, "CONV_3D_TRANSPOSE": 106,
    "REDUCE_MIN": 27, "REDUCE_PROD": 27, "REDUCE_ANY": 27, "REDUCE_ALL": 27, "ARG_MIN": 56, "ARG_MAX": 40,
}  # fmt: skip
_FLAGS = {
    "i8": number_types.Int8Flags, "bool": number_types.BoolFlags, "i32": number_types.Int32Flags,
    "i64": number_types.Int64Flags, "f32": number_types.Float32Flags,
}  # fmt: skip


@dataclasses.dataclass
class T:
    """A tensor. scale, zero: numbers, or lists along `axis`. value: for a constant."""

    name: str
    dtype: str = "f32"
    shape: Sequence[int] = ()
    scale: Any = None
    zero: Any = 0
    axis: int = 0
    value: Any = None
    variable: bool = False
    signature: Sequence[int] = ()
    blocks: tuple[str, int] | None = None  # quantized in blocks: (name of the tensor of scales, size of a block)


@dataclasses.dataclass
class O:  # noqa: E742
    """An operator: op, names of the inputs ("" leaves one out) and outputs, and options by the names of `OPTIONS`.

    custom: the option bytes of a custom op ("CUSTOM:name"). intermediates: names, for recurrent integer ops."""

    op: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    intermediates: Sequence[str] = ()
    custom: bytes = b""


@dataclasses.dataclass
class G:
    """A subgraph."""

    tensors: Sequence[T]
    operators: Sequence[O]
    inputs: Sequence[str]
    outputs: Sequence[str]


def _table(b: flatbuffers.Builder, fields: dict[int, tuple[Any, Any]]) -> int:
    """fields: {id: (flags, number)} or {id: ("offset", position)}."""
    b.StartObject(max(fields, default=-1) + 1)
    for number, (flags, value) in fields.items():
        if isinstance(flags, str):
            b.PrependUOffsetTRelativeSlot(number, value, 0)
        else:
            b.PrependSlot(flags, number, value, None)
    return int(b.EndObject())


def _offsets(b: flatbuffers.Builder, items: Sequence[int]) -> int:
    b.StartVector(4, len(items), 4)
    for item in reversed(items):
        b.PrependUOffsetTRelative(item)
    return int(b.EndVector())


def _numbers(b: flatbuffers.Builder, value: Any, dtype: Any) -> int:
    return int(b.CreateNumpyVector(np.asarray(value, dtype)))


def _options(b: flatbuffers.Builder, operator: O) -> int:
    fields: dict[int, tuple[Any, Any]] = {}
    for name, value in operator.options.items():
        field, kind = OPTIONS[operator.op][name][:2]
        if name == "activation":
            value = ACTIVATIONS.index(value)
        if kind in ("ints", "floats"):
            fields[field] = ("offset", _numbers(b, value, np.int32 if kind == "ints" else np.float32))
        elif kind == "string":
            fields[field] = ("offset", b.CreateString(value))
        else:
            fields[field] = (_FLAGS[kind], value)
    return _table(b, fields)


def build(*subgraphs: G, version: int = 1) -> bytes:
    """The file. version: of the custom ops."""
    b = flatbuffers.Builder(1024)
    buffers: list[bytes] = [b""]
    codes = sorted({o.op for g in subgraphs for o in g.operators})
    graphs = []
    for g in subgraphs:
        places = {t.name: i for i, t in enumerate(g.tensors)} | {"": -1}
        tensors = []
        for t in g.tensors:
            index = 0
            if t.value is not None:
                index = len(buffers)
                stored = np.ascontiguousarray(t.value)
                if t.dtype in ("i4", "i2"):  # several per byte, the first one low
                    bits = int(t.dtype[1])
                    parts = stored.reshape(-1, 8 // bits).view(np.uint8) & (1 << bits) - 1
                    stored = np.bitwise_or.reduce(parts << np.arange(0, 8, bits, dtype=np.uint8), axis=1)
                buffers.append(stored.tobytes())
            fields: dict[int, tuple[Any, Any]] = {
                0: ("offset", _numbers(b, t.shape, np.int32)), 1: (number_types.Int8Flags, TYPES[t.dtype]),
                2: (number_types.Uint32Flags, index), 3: ("offset", b.CreateString(t.name)),
            }  # fmt: skip
            if t.scale is not None:
                scale = np.atleast_1d(np.asarray(t.scale, np.float32))
                zero = np.broadcast_to(np.asarray(t.zero, np.int64), scale.shape)
                quantization = {
                    2: ("offset", _numbers(b, scale, np.float32)),
                    3: ("offset", _numbers(b, zero, np.int64)),
                }
                fields[4] = ("offset", _table(b, {**quantization, 6: (number_types.Int32Flags, t.axis)}))
            if t.blocks is not None:
                details = _table(b, {
                    0: (number_types.Int32Flags, places[t.blocks[0]]), 1: (number_types.Int32Flags, -1),
                    2: (number_types.Int32Flags, t.blocks[1]),
                })  # fmt: skip
                fields[4] = ("offset", _table(b, {4: (number_types.Uint8Flags, 2), 5: ("offset", details)}))
            if t.variable:
                fields[5] = (number_types.BoolFlags, True)
            if t.signature:
                fields[7] = ("offset", _numbers(b, t.signature, np.int32))
            tensors.append(_table(b, fields))
        operators = []
        for o in g.operators:
            fields = {
                0: (number_types.Uint32Flags, codes.index(o.op)),
                1: ("offset", _numbers(b, [places[n] for n in o.inputs], np.int32)),
                2: ("offset", _numbers(b, [places[n] for n in o.outputs], np.int32)),
            }
            if o.op == "STABLEHLO_COMPOSITE":
                fields[11] = (number_types.Uint8Flags, 21)
                fields[12] = ("offset", _options(b, o))
            if o.op in UNION:
                fields[3] = (number_types.Uint8Flags, UNION[o.op])
                fields[4] = ("offset", _options(b, o))
            if o.custom:
                fields[5] = ("offset", b.CreateByteVector(o.custom))
            if o.intermediates:
                fields[8] = ("offset", _numbers(b, [places[n] for n in o.intermediates], np.int32))
            operators.append(_table(b, fields))
        ports = [_numbers(b, [places[n] for n in names], np.int32) for names in (g.inputs, g.outputs)]
        fields = {0: ("offset", _offsets(b, tensors)), 1: ("offset", ports[0]), 2: ("offset", ports[1])}
        graphs.append(_table(b, {**fields, 3: ("offset", _offsets(b, operators))}))
    table = []
    for data in buffers:
        if not data:
            table.append(_table(b, {}))
            continue
        b.StartVector(1, len(data), 16)  # TFLite reads numbers in place: 16-byte alignment
        b.head -= len(data)
        b.Bytes[b.head : b.head + len(data)] = data
        place = b.EndVector()
        table.append(_table(b, {0: ("offset", place)}))
    opcodes = []
    for code in codes:
        number = NAMES.index(code.split(":")[0])
        fields = {0: (number_types.Int8Flags, min(number, 127)), 3: (number_types.Int32Flags, number),
                  2: (number_types.Int32Flags, 2 if code == "BROADCAST_TO" else version if ":" in code else 1)}  # fmt: skip
        if ":" in code:
            fields[1] = ("offset", b.CreateString(code.split(":")[1]))
        opcodes.append(_table(b, fields))
    root = _table(b, {
        0: (number_types.Uint32Flags, 3), 1: ("offset", _offsets(b, opcodes)), 2: ("offset", _offsets(b, graphs)),
        4: ("offset", _offsets(b, table)),
    })  # fmt: skip
    b.Finish(root, file_identifier=b"TFL3")
    return bytes(b.Output())
