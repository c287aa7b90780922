"""Reads a .lnt file into a Graph (docs/format.md)."""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from linnet._generated.fb import Model
from linnet.clib.errors import FileError, checkpoint_as_model
from linnet.file.digests import check_segments
from linnet.file.layout import ALIGNMENT, CHECKPOINT_KEY, FORMAT_VERSION, HEADER, MAGIC
from linnet.ir.dtypes import DTYPE_NAMES, Quantization, blocks_of, bytes_of, unpacked, zeros
from linnet.ir.encode import BY_ID, decode_attributes
from linnet.ir.function import Function, Node, Tensor, Variable
from linnet.ir.graph import Graph

G = TypeVar("G", bound=Graph)


def read(path: Path, kind: type[G]) -> G:
    """Reads a .lnt file into a graph of class `kind`. Raises FileError if it is missing, not a .lnt file, too new,
    truncated or damaged (weights are checked too), or if it is a checkpoint."""
    return read_model(kind(), read_linnet(path), str(path))


def read_model(graph: G, content: bytes | mmap.mmap, where: str) -> G:
    """Like read_into, but also raises FileError for a checkpoint."""
    if (digest := read_into(graph, content, where).metadata.get(CHECKPOINT_KEY)) is not None:
        raise checkpoint_as_model(where, digest)
    return graph


def read_bytes(path: Path) -> bytes:
    """The whole file. Raises FileError if it does not exist or cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise FileError(
            f"the file '{path}' does not exist", code=201, tensor=str(path), hint="check the path"
        ) from None
    except OSError as error:
        raise FileError(
            f"cannot read '{path}': {error.strerror or error}",
            code=202,
            tensor=str(path),
            hint="give a file that you have permission to read",
        ) from None


def read_linnet(path: Path) -> bytes:
    """The whole .lnt file. Raises FileError as read_bytes does, and before it reads the rest if the file begins as no .lnt
    file does."""
    try:
        with path.open("rb") as file:
            begin = file.read(len(MAGIC))
            if begin == MAGIC and file.seekable():
                file.seek(0)
                return file.read()
            if begin == MAGIC:
                return begin + file.read()
            size = os.fstat(file.fileno()).st_size
    except OSError:
        return read_bytes(path)  # says what is wrong
    raise _not_linnet(str(path), size)


def _not_linnet(where: str, size: int) -> FileError:
    return FileError(
        f"'{where}' is not a .lnt file", code=203, tensor=where,
        expected="a file that begins with the bytes LINNET", got=f"{size} bytes with another beginning",
        hint="convert the model first: linnet convert model.onnx -o model.lnt",
    )  # fmt: skip


def from_bytes(content: bytes | mmap.mmap, where: str = "memory", verify: bool = True) -> Graph:
    """The graph of a .lnt file in memory. Its constants are read-only views of `content`. verify: whether to check the
    weights against their digests. Otherwise, damaged weights could be written again with matching digests."""
    return read_into(Graph(), content, where, verify)


def read_into(graph: G, content: bytes | mmap.mmap, where: str, verify: bool = True) -> G:
    """Fills an empty graph from a .lnt file in memory: see from_bytes."""
    start, size = _check_header(content, where)
    try:
        reader = _Reader(content, start, size)
        if verify:
            check_segments(content, reader.model, where)
        reader.fill(graph)
        return graph
    except (
        struct.error,
        IndexError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        StopIteration,
        OverflowError,
        MemoryError,
    ) as error:
        raise FileError(
            f"'{where}' is damaged: {error}", code=206, tensor=where, hint="create or copy the file again"
        ) from error


def _check_header(content: bytes | mmap.mmap, where: str) -> tuple[int, int]:
    """Checks the header and returns (offset, size) of the structure."""
    again = "create or copy the file again"
    if len(content) < len(MAGIC) or content[: len(MAGIC)] != MAGIC:
        raise _not_linnet(where, len(content))
    if len(content) < HEADER.size:
        raise FileError(
            f"'{where}' is truncated",
            code=205,
            tensor=where,
            expected="at least 64 bytes",
            got=str(len(content)),
            hint=again,
        )
    _, _, oldest, start, size, crc, _, file_size = HEADER.unpack_from(content)
    if oldest > FORMAT_VERSION:
        raise FileError(
            f"'{where}' needs a newer version of linnet",
            code=204,
            tensor=where,
            expected=f"format {FORMAT_VERSION} or older",
            got=f"format {oldest}",
            hint="upgrade linnet: pip install -U linnet-runtime",
        )
    if file_size > len(content):
        raise FileError(
            f"'{where}' is truncated", code=205, tensor=where, expected=f"{file_size} bytes",
            got=str(len(content)), hint=again,
        )  # fmt: skip
    if file_size < len(content):
        raise FileError(
            f"'{where}' has extra bytes at its end", code=206, tensor=where, expected=f"{file_size} bytes",
            got=str(len(content)), hint=again,
        )  # fmt: skip
    inside = HEADER.size <= start <= start + size <= len(content)
    if not inside or start % ALIGNMENT or zlib.crc32(content[start : start + size]) != crc:
        raise FileError(f"'{where}' is damaged: its checksum does not match", code=206, tensor=where, hint=again)
    return start, size


def _numbers(array: Any) -> list[int]:
    return [] if isinstance(array, int) else list(array.tolist())


class _Reader:
    """Builds a Graph from a flatbuffer. Malformed content raises one of the exceptions that from_bytes converts to
    FileError."""

    def __init__(self, content: bytes | mmap.mmap, start: int, size: int) -> None:
        self.content = content
        self.size = size
        self.left = 4 * size + 4096  # bytes of strings and lists, which may be shared, within this limit
        self.model = Model.Model.GetRootAs(content[start : start + size])

    def each(self, count: int) -> range:
        """The indices of a vector of offsets. It cannot be longer than the structure that contains it."""
        if count * 4 > self.size:
            raise ValueError(f"a vector has an impossible length of {count} entries")
        return range(count)

    def spend(self, size: int) -> None:
        """Counts bytes that are copied, because a small structure can refer to the same bytes many times."""
        self.left -= size
        if self.left < 0:
            raise ValueError("the same bytes are referenced too many times")

    def text(self, value: bytes | None) -> str:
        if value is None:
            return ""
        self.spend(len(value))
        return value.decode()

    def fill(self, graph: Graph) -> None:
        model = self.model
        for i in self.each(model.MetadataLength()):
            pair = model.Metadata(i)
            graph.metadata[self.text(pair.Key())] = self.text(pair.Value())
        variables = [self.variable(graph, model.Variables(i)) for i in self.each(model.VariablesLength())]
        tables = [model.Functions(i) for i in self.each(model.FunctionsLength())]
        functions = [graph.function(self.text(table.Name())) for table in tables]
        for table, function in zip(tables, functions, strict=True):
            self.function(table, function, functions, variables)
        for i in self.each(model.SignaturesLength()):
            s = model.Signatures(i)
            graph.signature(
                self.text(s.Name()),
                functions[s.Function()],
                [self.text(s.Inputs(j)) for j in self.each(s.InputsLength())],
                [self.text(s.Outputs(j)) for j in self.each(s.OutputsLength())],
            )

    def array(self, segment: int, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        table = self.model.Segments(segment)
        size = bytes_of(dtype, shape)
        if not 0 <= segment < self.model.SegmentsLength() or size != table.Size():
            raise ValueError(f"segment {segment} does not match its tensor")
        return unpacked(np.frombuffer(self.content, np.uint8, size, table.Offset()), dtype, shape)

    def quantization(self, table: Any, shape: Sequence[Any] | None) -> Quantization | None:
        if table is None or table.Scheme() == 0:
            return None
        if table.Scheme() not in (1, 2, 3):
            raise ValueError(f"quantization scheme {table.Scheme()} is unknown to this version")
        scale = np.array(table.ScaleAsNumpy(), np.float32)
        zero = np.zeros(scale.shape, np.int32) if table.ZeroIsNone() else np.array(table.ZeroAsNumpy(), np.int32)
        self.spend(scale.nbytes)
        if table.Scheme() != 3:
            return Quantization(scale, zero, table.Axis() if table.Scheme() == 2 else None, table.Bits())
        axis, block = table.Axis(), table.Block()
        if shape is None or not all(isinstance(d, int) for d in shape) or not 0 <= axis < len(shape) or block < 1:
            raise ValueError("quantization per block does not fit the shape of its tensor")
        blocks = blocks_of(shape, axis, block)
        return Quantization(scale.reshape(blocks), zero.reshape(blocks), axis, table.Bits(), block)

    def variable(self, graph: Graph, table: Any) -> Variable:
        dtype = DTYPE_NAMES[table.Dtype()]
        shape = tuple(_numbers(table.ShapeAsNumpy()))
        value = zeros(shape, dtype) if table.Segment() < 0 else self.array(table.Segment(), dtype, shape)
        variable = graph.variable(
            self.text(table.Name()), value.reshape(shape), trainable=bool(table.Trainable()), copy=False
        )
        variable.placement = self.text(table.Placement())
        variable.quantization = self.quantization(table.Quant(), shape)
        return variable

    def tensor(self, table: Any, function: Function, variables: list[Variable]) -> Tensor:
        rank, dtype = table.Rank(), DTYPE_NAMES[table.Dtype()]
        shape: tuple[int | str | None, ...] | None = None
        if rank >= 0:
            dims = _numbers(table.ShapeAsNumpy())
            if len(dims) != rank or table.DimNamesLength() not in (0, rank):
                raise ValueError(f"tensor {table.Name()!r} of rank {rank} has {len(dims)} dimensions")
            names = [self.text(table.DimNames(j)) for j in self.each(table.DimNamesLength())] or [""] * rank
            shape = tuple(d if d >= 0 else name or None for d, name in zip(dims, names, strict=True))
        tensor = Tensor(
            function, self.text(table.Name()), dtype, shape, quantization=self.quantization(table.Quant(), shape)
        )
        function._names.add(tensor.name)
        known = tensor.static_shape
        if table.Segment() >= 0 and known is not None:
            tensor.data = self.array(table.Segment(), dtype, known)
        elif not table.DataIsNone() and known is not None:
            data = np.array(table.DataAsNumpy(), np.uint8) if table.DataLength() else np.empty(0, np.uint8)
            if len(data) != bytes_of(dtype, known):
                raise ValueError(f"the data of tensor {tensor.name!r} does not match its shape")
            self.spend(len(data))
            tensor.data = unpacked(data, dtype, known)
        elif table.Variable() >= 0:
            tensor.variable = variables[table.Variable()]
        return tensor

    def function(self, table: Any, function: Function, functions: list[Function], variables: list[Variable]) -> None:
        tensors = [self.tensor(table.Tensors(i), function, variables) for i in self.each(table.TensorsLength())]

        def pick(array: Any) -> list[Tensor]:
            return [_at(tensors, i) for i in _numbers(array)]

        function.inputs, function.outputs = pick(table.InputsAsNumpy()), pick(table.OutputsAsNumpy())
        for i in self.each(table.NodesLength()):
            n = table.Nodes(i)
            if n.Op() not in BY_ID:
                raise ValueError(f"op number {n.Op()} is unknown to this version")
            op = BY_ID[n.Op()]
            if n.AttributesType() not in (0, n.Op()):
                raise ValueError(f"node {i} ({op}) has the attributes of another op")
            inputs = [None if j < 0 else _at(tensors, j) for j in _numbers(n.InputsAsNumpy())]
            attributes = decode_attributes(op, n.Attributes(), functions)
            self.spend(sum(len(value) for value in attributes.values() if isinstance(value, tuple | list | bytes)))
            node = Node(op, inputs, pick(n.OutputsAsNumpy()), attributes, self.text(n.Name()), self.text(n.Source()))
            node.placement = self.text(n.Placement())
            for t in node.outputs:
                t.node = node
            function.nodes.append(node)


def _at(tensors: list[Tensor], index: int) -> Tensor:
    if index < 0:
        raise ValueError(f"tensor index {index} is negative")
    return tensors[index]
