"""Writes a Graph as a .lnt file (docs/format.md): header, flatbuffer, 64-byte-aligned segments.
The same graph always gives the same bytes."""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import flatbuffers
import numpy as np
import numpy.typing as npt

from linnet._generated.fb import Extra, ExtraKind, KeyValue, Model, Quant, Segment, Signature, Variable
from linnet._generated.fb import Function as FbFunction
from linnet._generated.fb import Node as FbNode
from linnet._generated.fb import Tensor as FbTensor
from linnet._generated.op_table import OPS, VERSIONS
from linnet.clib.errors import GraphError
from linnet.file.atomic import write_atomic
from linnet.file.digests import CRC32C, crc32c
from linnet.file.layout import ALIGNMENT, HEADER, INLINE_LIMIT, LARGE, LARGE_ALIGNMENT, MAGIC
from linnet.ir.dtypes import DTYPE_IDS, Quantization, bits_of, dtype_of, numpy_dtype, packed
from linnet.ir.encode import encode_attributes
from linnet.ir.function import Function, Node, Tensor, check_order, functions_of
from linnet.ir.function import Variable as GraphVariable
from linnet.ir.graph import Graph
from linnet.ir.node_names import node_names


class _Piece(NamedTuple):
    """One segment to write."""

    content: memoryview
    crc: int


class _Segments:
    """The segments of a file in order of first use. Equal content is stored once."""

    def __init__(self) -> None:
        self.pieces: list[_Piece] = []
        self._known: dict[tuple[int, int], list[int]] = {}  # keyed by length and checksum

    def add(self, data: npt.NDArray[Any]) -> int:
        content = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        crc = crc32c(content)
        alike = self._known.setdefault((len(content), crc), [])
        for i in alike:
            if np.array_equal(self.pieces[i].content, content):
                return i
        alike.append(len(self.pieces))
        self.pieces.append(_Piece(content.data, crc))
        return alike[-1]


def _round_up(n: int, to: int) -> int:
    return (n + to - 1) // to * to


def chunks(
    graph: Graph, packed_weights: Mapping[str, npt.NDArray[Any]] | None = None
) -> Iterator[bytes | bytearray | memoryview]:
    """The file's bytes, piece by piece. packed_weights: weights that kernels have packed, by key (linnet.pack). Raises
    GraphError if the graph is not well formed."""
    segments = _Segments()
    writer = _Writer(graph, segments, packed_weights or {})
    structure = bytearray(writer.structure())
    model = Model.Model.GetRootAs(structure)
    position = HEADER.size + len(structure)
    places = []
    for i, piece in enumerate(segments.pieces):
        position = _round_up(position, ALIGNMENT if len(piece.content) < LARGE else LARGE_ALIGNMENT)
        table = model.Segments(i)._tab
        struct.pack_into("<Q", structure, table.Pos + table.Offset(4), position)
        places.append(position)
        position += len(piece.content)
    yield HEADER.pack(
        MAGIC, writer.version, writer.version, HEADER.size, len(structure), zlib.crc32(structure), 0, position
    )
    yield structure
    position = HEADER.size + len(structure)
    for place, piece in zip(places, segments.pieces, strict=True):
        yield b"\0" * (place - position)
        yield piece.content
        position = place + len(piece.content)


def to_bytes(graph: Graph) -> bytes:
    """The whole file in memory."""
    return b"".join(chunks(graph))


def write(graph: Graph, path: Path) -> None:
    """Writes the file so that a reader sees either the old file or the complete new one, even after a crash.

    Raises FileError if the folder cannot be written. Raises GraphError if the graph is not well formed.
    """
    write_atomic(path, chunks(graph))


def function_order(graph: Graph) -> list[Function]:
    """All functions, each before those that its nodes refer to. Raises GraphError if functions call each other in a
    cycle."""
    order: list[Function] = []
    state: dict[Function, int] = {}

    def visit(function: Function) -> None:
        if state.get(function) == 2:
            return
        if state.get(function) == 1:
            raise GraphError(
                f"function {function.name!r} calls itself", code=302, hint="use `while` to repeat a function"
            )
        state[function] = 1
        for used in reversed(list(functions_of(function))):
            visit(used)
        state[function] = 2
        order.append(function)

    roots = dict.fromkeys(s.function for s in graph.signatures.values())
    for function in reversed(list(dict.fromkeys([*roots, *graph.functions]))):
        visit(function)
    return order[::-1]


class _Writer:
    """A flatbuffer under construction."""

    def __init__(self, graph: Graph, segments: _Segments, packed_weights: Mapping[str, npt.NDArray[Any]]) -> None:
        self.graph = graph
        self.packed_weights = packed_weights
        self.segments = segments
        self.version = 1  # the lowest version that has everything written so far
        self.builder = flatbuffers.Builder(1 << 16)
        functions = function_order(graph)
        self.functions = {function: i for i, function in enumerate(functions)}
        self.variables = {id(variable): i for i, variable in enumerate(graph.variables.values())}

    def structure(self) -> bytes:
        b = self.builder
        functions = self.offsets([self.function(f) for f in self.functions])
        signatures = self.offsets([self.signature(name) for name in self.graph.signatures])
        variables = self.offsets([self.variable(v) for v in self.graph.variables.values()])
        extras = self.offsets([self.packed(key) for key in sorted(self.packed_weights)]) if self.packed_weights else 0
        segments = self.offsets([self.segment(piece) for piece in self.segments.pieces])
        metadata = self.offsets([self.pair(k, v) for k, v in sorted(self.graph.metadata.items())])
        producer = b.CreateString("linnet 0.1.0")
        Model.Start(b)
        Model.AddProducer(b, producer)
        Model.AddFunctions(b, functions)
        Model.AddSignatures(b, signatures)
        Model.AddVariables(b, variables)
        Model.AddSegments(b, segments)
        Model.AddMetadata(b, metadata)
        if extras:
            Model.AddExtras(b, extras)
        b.Finish(Model.End(b), b"LNT1")
        return bytes(b.Output())

    def needs(self, kind: str, name: str) -> None:
        """Raises the file's version number to the one that schema/versions.toml demands for the item that is being
        written."""
        self.version = max(self.version, VERSIONS[kind].get(name, 1))

    def offsets(self, items: list[int]) -> int:
        b = self.builder
        b.StartVector(4, len(items), 4)
        for item in reversed(items):
            b.PrependUOffsetTRelative(item)
        return int(b.EndVector())

    def strings(self, items: list[str]) -> int:
        return self.offsets([self.builder.CreateSharedString(item) for item in items])

    def numbers(self, values: Any, dtype: str) -> int:
        return int(self.builder.CreateNumpyVector(np.asarray(values, dtype)))

    def blob(self, content: bytes | mmap.mmap | memoryview, alignment: int) -> None:
        """Writes raw bytes that start at a multiple of `alignment`."""
        b = self.builder
        b.Prep(alignment, len(content))
        b.head -= len(content)
        b.Bytes[b.head : b.head + len(content)] = content

    def quantization(self, quantization: Quantization, where: str, dtype: str) -> int:
        scheme = "tensor" if quantization.axis is None else "block" if quantization.block else "axis"
        self.needs("schemes", scheme)
        scale = np.asarray(quantization.scale, np.float32).reshape(-1)
        zero = np.asarray(quantization.zero, np.int32).reshape(-1)
        if zero.size == 1 and scale.size > 1:
            zero = np.repeat(zero, scale.size)
        if not scale.size or zero.size != scale.size or (quantization.axis is None and scale.size != 1):
            raise GraphError(
                f"the quantization of {where!r} has inconsistent sizes", code=303, tensor=where,
                expected="equally many zero points and scales, and one of each if there is no axis",
                got=f"{scale.size} scales, {zero.size} zero points, axis {quantization.axis}",
            )  # fmt: skip
        scales, zeros = self.numbers(scale, "<f4"), self.numbers(zero, "<i4") if zero.any() else 0
        b = self.builder
        Quant.Start(b)
        Quant.AddScheme(b, {"tensor": 1, "axis": 2, "block": 3}[scheme])
        Quant.AddBits(b, min(quantization.bits, bits_of(dtype)))
        Quant.AddAxis(b, quantization.axis or 0)
        Quant.AddBlock(b, quantization.block)
        Quant.AddScale(b, scales)
        if zeros:
            Quant.AddZero(b, zeros)
        return int(Quant.End(b))

    def tensor(self, tensor: Tensor) -> int:
        b = self.builder
        name = b.CreateSharedString(tensor.name)
        dims = tensor.shape or ()
        shape = self.numbers([d if isinstance(d, int) else -1 for d in dims], "<i8") if dims else 0
        dim_names = (
            self.strings([d if isinstance(d, str) else "" for d in dims])
            if any(isinstance(d, str) for d in dims)
            else 0
        )
        quantization = self.quantization(tensor.quantization, tensor.name, tensor.dtype) if tensor.quantization else 0
        segment, data, variable = -1, 0, -1
        if tensor.data is not None:
            value = np.asarray(tensor.data)
            if value.dtype != numpy_dtype(tensor.dtype) or value.shape != tensor.shape:
                raise GraphError(
                    f"constant {tensor.name!r} does not match its declared dtype and shape",
                    code=303,
                    tensor=tensor.name,
                    expected=f"{tensor.dtype} {list(dims)}",
                    got=f"{value.dtype} {list(value.shape)}",
                )
            value = packed(value)
            if value.nbytes >= INLINE_LIMIT:
                segment = self.segments.add(value)
            else:
                content = value.tobytes()
                b.StartVector(1, len(content), 16)
                b.head -= len(content)
                b.Bytes[b.head : b.head + len(content)] = content
                data = b.EndVector()
        elif tensor.variable is not None:
            if id(tensor.variable) not in self.variables:
                raise GraphError(
                    f"{tensor.name!r} reads a variable that belongs to another graph",
                    code=302,
                    tensor=tensor.name,
                    hint="build all parts of a model in one linnet.Graph",
                )
            variable = self.variables[id(tensor.variable)]
        self.needs("dtypes", tensor.dtype)
        FbTensor.Start(b)
        FbTensor.AddName(b, name)
        FbTensor.AddDtype(b, DTYPE_IDS[tensor.dtype])
        FbTensor.AddRank(b, -1 if tensor.shape is None else len(dims))
        if shape:
            FbTensor.AddShape(b, shape)
        if dim_names:
            FbTensor.AddDimNames(b, dim_names)
        if quantization:
            FbTensor.AddQuant(b, quantization)
        FbTensor.AddSegment(b, segment)
        if data:
            FbTensor.AddData(b, data)
        FbTensor.AddVariable(b, variable)
        return int(FbTensor.End(b))

    def node(self, node: Node, given: str, index: dict[int, int]) -> int:
        b = self.builder
        inputs = self.numbers([-1 if t is None else index[id(t)] for t in node.inputs], "<i4") if node.inputs else 0
        outputs = self.numbers([index[id(t)] for t in node.outputs], "<i4")
        name = b.CreateSharedString(given) if given else 0
        source = b.CreateSharedString(node.source) if node.source else 0
        placement = b.CreateSharedString(node.placement) if node.placement else 0
        for attribute in VERSIONS["attributes"]:
            op, _, key = attribute.partition(".")
            if op == node.op and node.attributes.get(key, default := OPS[op]["attributes"][key][2]) != default:
                self.needs("attributes", attribute)
        content, table = encode_attributes(node.op, node.attributes, self.functions)
        self.blob(content, 8)
        attributes = b.Offset() - table
        number = OPS[node.op]["id"]
        FbNode.Start(b)
        FbNode.AddOp(b, number)
        if inputs:
            FbNode.AddInputs(b, inputs)
        FbNode.AddOutputs(b, outputs)
        FbNode.AddAttributesType(b, number)
        FbNode.AddAttributes(b, attributes)
        if name:
            FbNode.AddName(b, name)
        if source:
            FbNode.AddSource(b, source)
        if placement:
            FbNode.AddPlacement(b, placement)
        return int(FbNode.End(b))

    def function(self, function: Function) -> int:
        b = self.builder
        tensors = list(function.tensors())
        index = {id(t): i for i, t in enumerate(tensors)}
        check_order(function)
        made = self.offsets([self.tensor(t) for t in tensors])
        names = node_names(function.nodes)
        nodes = self.offsets([self.node(n, name, index) for n, name in zip(function.nodes, names, strict=True)])
        inputs = self.numbers([index[id(t)] for t in function.inputs], "<i4") if function.inputs else 0
        outputs = self.numbers([index[id(t)] for t in function.outputs], "<i4") if function.outputs else 0
        name = b.CreateSharedString(function.name)
        FbFunction.Start(b)
        FbFunction.AddName(b, name)
        FbFunction.AddTensors(b, made)
        FbFunction.AddNodes(b, nodes)
        if inputs:
            FbFunction.AddInputs(b, inputs)
        if outputs:
            FbFunction.AddOutputs(b, outputs)
        return int(FbFunction.End(b))

    def variable(self, variable: GraphVariable) -> int:
        b = self.builder
        value = np.ascontiguousarray(variable.value)
        segment = self.segments.add(packed(value)) if value.size and np.any(value.reshape(-1).view(np.uint8)) else -1
        name = b.CreateSharedString(variable.name)
        shape = self.numbers(np.shape(variable.value), "<i8")
        quantization = (
            self.quantization(variable.quantization, variable.name, variable.dtype) if variable.quantization else 0
        )
        placement = b.CreateSharedString(variable.placement) if variable.placement else 0
        self.needs("dtypes", variable.dtype)
        Variable.Start(b)
        Variable.AddName(b, name)
        Variable.AddDtype(b, DTYPE_IDS[dtype_of(value.dtype)])
        Variable.AddShape(b, shape)
        if quantization:
            Variable.AddQuant(b, quantization)
        Variable.AddSegment(b, segment)
        Variable.AddTrainable(b, variable.trainable)
        if placement:
            Variable.AddPlacement(b, placement)
        return int(Variable.End(b))

    def signature(self, key: str) -> int:
        b = self.builder
        signature = self.graph.signatures[key]
        name, inputs, outputs = (
            b.CreateSharedString(key),
            self.strings(signature.inputs),
            self.strings(signature.outputs),
        )
        Signature.Start(b)
        Signature.AddName(b, name)
        Signature.AddFunction(b, self.functions[signature.function])
        Signature.AddInputs(b, inputs)
        Signature.AddOutputs(b, outputs)
        return int(Signature.End(b))

    def segment(self, piece: _Piece) -> int:
        b = self.builder
        Segment.Start(b)
        Segment.AddOffset(b, 1)  # patched once the size of the structure is known
        Segment.AddSize(b, len(piece.content))
        Segment.AddDigestKind(b, CRC32C)
        Segment.AddDigest(b, piece.crc)
        return int(Segment.End(b))

    def packed(self, key: str) -> int:
        b = self.builder
        segment, target = self.segments.add(self.packed_weights[key]), b.CreateString(key)
        Extra.Start(b)
        Extra.AddKind(b, ExtraKind.ExtraKind.packed_weights)
        Extra.AddTarget(b, target)
        Extra.AddSegment(b, segment)
        return int(Extra.End(b))

    def pair(self, key: str, value: str) -> int:
        b = self.builder
        k, v = b.CreateSharedString(key), b.CreateSharedString(value)
        KeyValue.Start(b)
        KeyValue.AddKey(b, k)
        KeyValue.AddValue(b, v)
        return int(KeyValue.End(b))
