"""Writes a Graph as a .lnt file and reads it back (docs/format.md): header, flatbuffer, 64-byte-aligned segments.
The same graph always gives the same bytes."""

from __future__ import annotations

import errno
import mmap
import os
import struct
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import flatbuffers
import numpy as np
import numpy.typing as npt

from linnet._digests import CRC32C, check_segments, crc32c
from linnet._encode import BY_ID, decode_attributes, encode_attributes
from linnet._generated.fb import Function as FbFunction
from linnet._generated.fb import KeyValue, Model, Quant, Segment, Signature, Variable
from linnet._generated.fb import Node as FbNode
from linnet._generated.fb import Tensor as FbTensor
from linnet._generated.op_table import OPS
from linnet.errors import FileError, GraphError
from linnet.graph import DTYPE_IDS, DTYPE_NAMES, Function, Graph, Node, Quantization, Tensor, numpy_dtype
from linnet.graph import Variable as GraphVariable

MAGIC = b"LINNET\r\n"
FORMAT_VERSION = 1  # what this writer writes, and the newest that this reader reads
OLDEST_READER = 1  # the oldest reader that can read what this writer writes
HEADER = struct.Struct("<8sIIQQIIQ16x")  # magic, version, oldest reader, structure offset, size, crc32, 0, file size
INLINE_LIMIT = 256  # bytes: smaller constants stand in the structure
ALIGNMENT = 64


class _Piece(NamedTuple):
    """One segment to be written."""

    content: memoryview
    crc: int


class _Segments:
    """The segments of a file, in order of first use; equal content is kept once."""

    def __init__(self) -> None:
        self.pieces: list[_Piece] = []
        self._known: dict[tuple[int, int], list[int]] = {}  # by length and checksum

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


def chunks(graph: Graph) -> Iterator[bytes | bytearray | memoryview]:
    """The file's bytes, piece by piece. Raises GraphError when the graph is not well formed."""
    segments = _Segments()
    structure = bytearray(_Writer(graph, segments).structure())
    model = Model.Model.GetRootAs(structure)
    position = HEADER.size + len(structure)
    places = []
    for i, piece in enumerate(segments.pieces):
        position = _round_up(position, ALIGNMENT)
        table = model.Segments(i)._tab
        struct.pack_into("<Q", structure, table.Pos + table.Offset(4), position)
        places.append(position)
        position += len(piece.content)
    yield HEADER.pack(
        MAGIC, FORMAT_VERSION, OLDEST_READER, HEADER.size, len(structure), zlib.crc32(structure), 0, position
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
    """Writes the file so that a reader, or a crash, sees the old file or the whole new one, never a part.

    Raises FileError when the folder cannot be written, GraphError when the graph is not well formed.
    """
    write_atomic(path, chunks(graph))


def write_atomic(path: Path, pieces: Iterator[bytes | bytearray | memoryview]) -> None:
    """The pieces into a temporary file beside `path`, flushed to the disk, then renamed. FileError when that fails.

    What a link points to is replaced, not the link; a device or pipe is written to as it is.
    """
    target, path = path, Path(os.path.realpath(path))
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.exists() and not path.is_file():
            with open(path, "wb") as file:
                for piece in pieces:
                    file.write(piece)
            return
    except OSError as error:
        raise _cannot_write(target, error) from None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise _cannot_write(target, error) from None
    try:
        with os.fdopen(handle, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise _cannot_write(target, error) from None
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _cannot_write(path: Path, error: OSError) -> FileError:
    return FileError(
        f"cannot write '{path}': {error.strerror or error}",
        code=207,
        tensor=str(path),
        hint="give a path in a folder that exists and that you may write to",
    )


def function_order(graph: Graph) -> list[Function]:
    """All functions, each before those that its nodes name. GraphError when functions call each other in a circle."""
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


def functions_of(function: Function) -> Iterator[Function]:
    """The functions that its nodes name, in order."""
    for node in function.nodes:
        for name, (_, kind, _, _) in OPS[node.op]["attributes"].items():
            if kind == "function" and node.attributes.get(name) is not None:
                yield node.attributes[name]


class _Writer:
    """One flatbuffer under construction."""

    def __init__(self, graph: Graph, segments: _Segments) -> None:
        self.graph = graph
        self.segments = segments
        self.builder = flatbuffers.Builder(1 << 16)
        functions = function_order(graph)
        self.functions = {function: i for i, function in enumerate(functions)}
        self.variables = {id(variable): i for i, variable in enumerate(graph.variables.values())}

    def structure(self) -> bytes:
        b = self.builder
        functions = self.offsets([self.function(f) for f in self.functions])
        signatures = self.offsets([self.signature(name) for name in self.graph.signatures])
        variables = self.offsets([self.variable(v) for v in self.graph.variables.values()])
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
        b.Finish(Model.End(b), b"LNT1")
        return bytes(b.Output())

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
        """Raw bytes, which begin at a multiple of `alignment`."""
        b = self.builder
        b.Prep(alignment, len(content))
        b.head -= len(content)
        b.Bytes[b.head : b.head + len(content)] = content

    def quantization(self, quantization: Quantization, where: str) -> int:
        scale = np.asarray(quantization.scale, np.float32).reshape(-1)
        zero = np.asarray(quantization.zero, np.int32).reshape(-1)
        if zero.size == 1 and scale.size > 1:
            zero = np.repeat(zero, scale.size)
        if not scale.size or zero.size != scale.size or (quantization.axis is None and scale.size != 1):
            raise GraphError(
                f"quantization of {where!r} is wrong", code=303, tensor=where,
                expected="as many zero points as scales; one of each without an axis",
                got=f"{scale.size} scales, {zero.size} zero points, axis {quantization.axis}",
            )  # fmt: skip
        scales, zeros = self.numbers(scale, "<f4"), self.numbers(zero, "<i4") if zero.any() else 0
        b = self.builder
        Quant.Start(b)
        Quant.AddScheme(b, 1 if quantization.axis is None else 2)
        Quant.AddBits(b, quantization.bits)
        Quant.AddAxis(b, quantization.axis or 0)
        Quant.AddScale(b, scales)
        if zeros:
            Quant.AddZero(b, zeros)
        return int(Quant.End(b))

    def tensor(self, tensor: Tensor) -> int:
        b = self.builder
        name = b.CreateString(tensor.name)
        dims = tensor.shape or ()
        shape = self.numbers([d if isinstance(d, int) else -1 for d in dims], "<i8") if dims else 0
        dim_names = (
            self.strings([d if isinstance(d, str) else "" for d in dims])
            if any(isinstance(d, str) for d in dims)
            else 0
        )
        quantization = self.quantization(tensor.quantization, tensor.name) if tensor.quantization else 0
        segment, data, variable = -1, 0, -1
        if tensor.data is not None:
            value = np.asarray(tensor.data)
            if value.dtype != numpy_dtype(tensor.dtype) or value.shape != tensor.shape:
                raise GraphError(
                    f"constant {tensor.name!r} does not hold what it declares", code=303, tensor=tensor.name,
                    expected=f"{tensor.dtype} {list(dims)}", got=f"{value.dtype} {list(value.shape)}",
                )  # fmt: skip
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
                raise GraphError(f"{tensor.name!r} reads a variable of another graph", code=302, tensor=tensor.name)
            variable = self.variables[id(tensor.variable)]
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

    def node(self, node: Node, index: dict[int, int]) -> int:
        b = self.builder
        inputs = self.numbers([-1 if t is None else index[id(t)] for t in node.inputs], "<i4") if node.inputs else 0
        outputs = self.numbers([index[id(t)] for t in node.outputs], "<i4")
        # A node without a name gets that of what it makes, so that every error and every timing can name it.
        given = node.name or (node.outputs[0].name if node.outputs else "")
        name = b.CreateString(given) if given else 0
        source = b.CreateSharedString(node.source) if node.source else 0
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
        return int(FbNode.End(b))

    def function(self, function: Function) -> int:
        b = self.builder
        tensors = list(function.tensors())
        index = {id(t): i for i, t in enumerate(tensors)}
        _check_order(function)
        made = self.offsets([self.tensor(t) for t in tensors])
        nodes = self.offsets([self.node(n, index) for n in function.nodes])
        inputs = self.numbers([index[id(t)] for t in function.inputs], "<i4") if function.inputs else 0
        outputs = self.numbers([index[id(t)] for t in function.outputs], "<i4") if function.outputs else 0
        name = b.CreateString(function.name)
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
        segment = self.segments.add(value) if value.size and np.any(value.reshape(-1).view(np.uint8)) else -1
        name = b.CreateString(variable.name)
        shape = self.numbers(np.shape(variable.value), "<i8")
        quantization = self.quantization(variable.quantization, variable.name) if variable.quantization else 0
        from linnet.graph import dtype_of

        Variable.Start(b)
        Variable.AddName(b, name)
        Variable.AddDtype(b, DTYPE_IDS[dtype_of(value.dtype)])
        Variable.AddShape(b, shape)
        if quantization:
            Variable.AddQuant(b, quantization)
        Variable.AddSegment(b, segment)
        Variable.AddTrainable(b, variable.trainable)
        return int(Variable.End(b))

    def signature(self, key: str) -> int:
        b = self.builder
        signature = self.graph.signatures[key]
        name, inputs, outputs = b.CreateString(key), self.strings(signature.inputs), self.strings(signature.outputs)
        Signature.Start(b)
        Signature.AddName(b, name)
        Signature.AddFunction(b, self.functions[signature.function])
        Signature.AddInputs(b, inputs)
        Signature.AddOutputs(b, outputs)
        return int(Signature.End(b))

    def segment(self, piece: _Piece) -> int:
        b = self.builder
        Segment.Start(b)
        Segment.AddOffset(b, 1)  # patched when the size of the structure is known
        Segment.AddSize(b, len(piece.content))
        Segment.AddDigestKind(b, CRC32C)
        Segment.AddDigest(b, piece.crc)
        return int(Segment.End(b))

    def pair(self, key: str, value: str) -> int:
        b = self.builder
        k, v = b.CreateString(key), b.CreateString(value)
        KeyValue.Start(b)
        KeyValue.AddKey(b, k)
        KeyValue.AddValue(b, v)
        return int(KeyValue.End(b))


def _check_order(function: Function) -> None:
    """Every input is made before it is used. GraphError otherwise: a pass or a rule put nodes in a wrong order."""
    made = {id(t) for t in function.inputs}
    for node in function.nodes:
        for t in node.inputs:
            if t is not None and id(t) not in made and t.data is None and t.variable is None:
                raise GraphError(
                    f"{t.name!r} is used before it is made, in function {function.name!r}", code=302,
                    op=node.name or node.op, tensor=t.name, hint="nodes must stand in order of execution",
                )  # fmt: skip
        made.update(id(t) for t in node.outputs)
    for t in function.outputs:
        if id(t) not in made and t.data is None and t.variable is None:
            raise GraphError(f"output {t.name!r} of function {function.name!r} is never made", code=302, tensor=t.name)


def read(path: Path) -> Graph:
    """The graph of a .lnt file. Raises FileError: missing, not a .lnt file, too new, cut short, damaged (weights, too)."""
    return from_bytes(read_bytes(path), str(path))


def read_bytes(path: Path) -> bytes:
    """The whole file. Raises FileError when it is missing or cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise FileError(f"no file '{path}'", code=201, tensor=str(path), hint="check the path") from None
    except OSError as error:
        raise FileError(
            f"cannot read '{path}': {error.strerror or error}", code=202, tensor=str(path),
            hint="give a file that you may read",
        ) from None  # fmt: skip


def from_bytes(content: bytes | mmap.mmap, where: str = "memory", verify: bool = True) -> Graph:
    """The graph of a .lnt file in memory; its constants are read-only views of `content`. verify: check the weights against
    their digests, so that nobody writes damaged ones again with digests that fit."""
    start, size = _check_header(content, where)
    try:
        reader = _Reader(content, start, size)
        if verify:
            check_segments(content, reader.model, where)
        return reader.graph()
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
            f"'{where}' is damaged: {error}", code=206, tensor=where, hint="make the file again, or copy it again"
        ) from error


def _check_header(content: bytes | mmap.mmap, where: str) -> tuple[int, int]:
    """Where the structure lies: (offset, size)."""
    again = "make the file again, or copy it again"
    if len(content) < len(MAGIC) or content[: len(MAGIC)] != MAGIC:
        raise FileError(
            f"'{where}' is not a .lnt file", code=203, tensor=where, expected="a file that begins with LINNET",
            got=f"{len(content)} bytes that begin otherwise",
            hint="convert the model first: linnet convert model.onnx -o model.lnt",
        )  # fmt: skip
    if len(content) < HEADER.size:
        raise FileError(
            f"'{where}' is cut short",
            code=205,
            tensor=where,
            expected="at least 64 bytes",
            got=str(len(content)),
            hint=again,
        )
    _, _, oldest, start, size, crc, _, file_size = HEADER.unpack_from(content)
    if oldest > FORMAT_VERSION:
        raise FileError(
            f"'{where}' needs a newer linnet", code=204, tensor=where, expected=f"format {FORMAT_VERSION} or older",
            got=f"format {oldest}", hint="upgrade linnet: pip install -U linnet",
        )  # fmt: skip
    if file_size > len(content):
        raise FileError(
            f"'{where}' is cut short", code=205, tensor=where, expected=f"{file_size} bytes",
            got=str(len(content)), hint=again,
        )  # fmt: skip
    if file_size < len(content):
        raise FileError(
            f"'{where}' goes on behind its end", code=206, tensor=where, expected=f"{file_size} bytes",
            got=str(len(content)), hint=again,
        )  # fmt: skip
    inside = HEADER.size <= start <= start + size <= len(content)
    if not inside or start % ALIGNMENT or zlib.crc32(content[start : start + size]) != crc:
        raise FileError(f"'{where}' is damaged: its checksum is wrong", code=206, tensor=where, hint=again)
    return start, size


def _text(value: bytes | None) -> str:
    return value.decode() if value is not None else ""


def _numbers(array: Any) -> list[int]:
    return [] if isinstance(array, int) else list(array.tolist())


class _Reader:
    """Makes a Graph of a flatbuffer; anything odd raises one of the exceptions that from_bytes turns into FileError."""

    def __init__(self, content: bytes | mmap.mmap, start: int, size: int) -> None:
        self.content = content
        self.size = size
        self.model = Model.Model.GetRootAs(content[start : start + size])

    def each(self, count: int) -> range:
        """Indices of a vector of offsets, which cannot be longer than the structure that holds it."""
        if count * 4 > self.size:
            raise ValueError(f"a vector of {count} entries")
        return range(count)

    def graph(self) -> Graph:
        model, graph = self.model, Graph()
        for i in self.each(model.MetadataLength()):
            pair = model.Metadata(i)
            graph.metadata[_text(pair.Key())] = _text(pair.Value())
        variables = [self.variable(graph, model.Variables(i)) for i in self.each(model.VariablesLength())]
        tables = [model.Functions(i) for i in self.each(model.FunctionsLength())]
        functions = [graph.function(_text(table.Name())) for table in tables]
        for table, function in zip(tables, functions, strict=True):
            self.function(table, function, functions, variables)
        for i in self.each(model.SignaturesLength()):
            s = model.Signatures(i)
            graph.signature(
                _text(s.Name()),
                functions[s.Function()],
                [_text(s.Inputs(j)) for j in self.each(s.InputsLength())],
                [_text(s.Outputs(j)) for j in self.each(s.OutputsLength())],
            )
        return graph

    def array(self, segment: int, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        table = self.model.Segments(segment)
        count = int(np.prod(shape, dtype=object))
        if not 0 <= segment < self.model.SegmentsLength() or count * numpy_dtype(dtype).itemsize != table.Size():
            raise ValueError(f"segment {segment} does not fit its tensor")
        return np.frombuffer(self.content, numpy_dtype(dtype), count, table.Offset()).reshape(shape)

    def quantization(self, table: Any) -> Quantization | None:
        if table is None or table.Scheme() == 0:
            return None
        if table.Scheme() not in (1, 2):
            raise ValueError(f"quantization scheme {table.Scheme()} is not known to this version")
        scale = np.array(table.ScaleAsNumpy(), np.float32)
        zero = np.zeros(scale.shape, np.int32) if table.ZeroIsNone() else np.array(table.ZeroAsNumpy(), np.int32)
        return Quantization(scale, zero, table.Axis() if table.Scheme() == 2 else None, table.Bits())

    def variable(self, graph: Graph, table: Any) -> GraphVariable:
        dtype = DTYPE_NAMES[table.Dtype()]
        shape = tuple(_numbers(table.ShapeAsNumpy()))
        value = (
            np.zeros(shape, numpy_dtype(dtype)) if table.Segment() < 0 else self.array(table.Segment(), dtype, shape)
        )
        variable = graph.variable(_text(table.Name()), value.reshape(shape), trainable=bool(table.Trainable()))
        variable.quantization = self.quantization(table.Quant())
        return variable

    def tensor(self, table: Any, function: Function, variables: list[GraphVariable]) -> Tensor:
        rank, dtype = table.Rank(), DTYPE_NAMES[table.Dtype()]
        shape: tuple[int | str | None, ...] | None = None
        if rank >= 0:
            dims = _numbers(table.ShapeAsNumpy())
            if len(dims) != rank or table.DimNamesLength() not in (0, rank):
                raise ValueError(f"tensor {table.Name()!r} of rank {rank} has {len(dims)} dimensions")
            names = [_text(table.DimNames(j)) for j in self.each(table.DimNamesLength())] or [""] * rank
            shape = tuple(d if d >= 0 else name or None for d, name in zip(dims, names, strict=True))
        tensor = Tensor(function, _text(table.Name()), dtype, shape, quantization=self.quantization(table.Quant()))
        function._names.add(tensor.name)
        known = tensor.static_shape
        if table.Segment() >= 0 and known is not None:
            tensor.data = self.array(table.Segment(), dtype, known)
        elif not table.DataIsNone() and known is not None:
            data = np.array(table.DataAsNumpy(), np.uint8) if table.DataLength() else np.empty(0, np.uint8)
            tensor.data = data.view(numpy_dtype(dtype)).reshape(known)
        elif table.Variable() >= 0:
            tensor.variable = variables[table.Variable()]
        return tensor

    def function(
        self, table: Any, function: Function, functions: list[Function], variables: list[GraphVariable]
    ) -> None:
        tensors = [self.tensor(table.Tensors(i), function, variables) for i in self.each(table.TensorsLength())]

        def pick(array: Any) -> list[Tensor]:
            return [_at(tensors, i) for i in _numbers(array)]

        function.inputs, function.outputs = pick(table.InputsAsNumpy()), pick(table.OutputsAsNumpy())
        for i in self.each(table.NodesLength()):
            n = table.Nodes(i)
            if n.Op() not in BY_ID:
                raise ValueError(f"op number {n.Op()} is not known to this version")
            op = BY_ID[n.Op()]
            if n.AttributesType() not in (0, n.Op()):
                raise ValueError(f"node {i} ({op}) has attributes of another op")
            inputs = [None if j < 0 else _at(tensors, j) for j in _numbers(n.InputsAsNumpy())]
            attributes = decode_attributes(op, n.Attributes(), functions)
            node = Node(op, inputs, pick(n.OutputsAsNumpy()), attributes, _text(n.Name()), _text(n.Source()))
            for t in node.outputs:
                t.node = node
            function.nodes.append(node)


def _at(tensors: list[Tensor], index: int) -> Tensor:
    if index < 0:
        raise ValueError(f"tensor index {index}")
    return tensors[index]
