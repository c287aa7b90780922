"""The .lnt container: Python writes it as specified and reads back what it wrote,
and a damaged or foreign file is refused with the right error code."""

from __future__ import annotations

import os
import struct
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import linnet
from linnet._generated.fb import Node as FbNode
from linnet._generated.op_table import OPS
from linnet.facade import Graph
from linnet.file.layout import HEADER
from linnet.file.reader import from_bytes
from linnet.file.writer import function_order, to_bytes
from linnet.ir.dtypes import DTYPE_IDS, Quantization
from linnet.ir.encode import decode_attributes, encode_node
from linnet.ir.function import Node, Tensor
from tests.graphs import GRAPHS
from tests.native import need, run
from tests.sync_protocol import crc32c


def every_feature() -> Graph:
    """A graph that uses every field of the format; made by hand, so that it needs no C library."""
    graph = Graph()
    graph.metadata = {"b": "2", "a": "1 é"}
    later = graph.function("later")  # declared before its user: the writer puts it after
    main = graph.function("main")
    x = main.placeholder("x", "f32", ("n", None, 3))
    unknown = main.placeholder("u", "i64", None)
    state = graph.variable("state", np.arange(6, dtype=np.float32).reshape(2, 3))
    state.quantization = Quantization(np.float32([0.5]), np.int32([3]))
    graph.variable("zeros", np.zeros((100, 3), np.int16), trainable=False)
    large = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    first, second = main.constant(large, "w"), main.constant(large.copy(), "same")
    small = main.constant(
        np.arange(5, dtype=np.int8),
        "small",
        quantization=Quantization(np.float32([1, 2, 3, 4, 5]), np.int32([0, 1, 2, 3, 4]), 0),
    )
    half = main.constant(np.arange(300, dtype=np.uint16).view(ml_dtypes.bfloat16), "half")
    empty, scalar = main.constant(np.zeros((0, 4), np.int64), "empty"), main.constant(np.float64(2.5), "scalar")
    flag = main.constant(np.array([True, False]), "flag")
    y = main.tensor("y", "f32", ("n", None, 8))
    node = Node("conv", [x, first, None], [y], {"pads": (1, 2), "group": 3, "auto_pad": "same_lower"}, "c", "Conv:c")
    y.node = node
    z = main.tensor("z", "f32", None)
    inputs = [y, second, small, half, empty, scalar, flag, unknown, main.read(state)]
    map_node = Node(
        "map", inputs, [z], {"program": (1, 1, 0, 0, 0), "floats": (0.5, -0.0), "integers": (-(2**63),), "dtypes": (1,)}
    )
    z.node = map_node
    v = later.placeholder("v", "f32", None)
    later.outputs = [v]
    out = main.tensor("out", "f32", None)
    branch = Node("call", [z], [out], {"callee": later}, "call")
    out.node = branch
    main.nodes, main.outputs = [node, map_node, branch], [out, z]
    graph.signature("infer", main, ["first", "second"], ["result", "inner"])
    graph.signature("again", main)
    return graph


def shape_of_graph(graph: Graph) -> object:
    """All content of a graph as plain data that compares equal for equal graphs."""

    def quantization(q: Quantization | None) -> object:
        return None if q is None else (q.scale.tolist(), q.zero.tolist(), q.axis, q.bits)

    order = function_order(graph)

    def attribute(value: object) -> object:
        return order.index(value) if isinstance(value, linnet.Function) else value

    def function(f: linnet.Function) -> object:
        index = {id(t): i for i, t in enumerate(f.tensors())}

        def numbers(tensors: Sequence[Tensor | None]) -> list[int | None]:
            return [None if t is None else index[id(t)] for t in tensors]

        tensors = []
        for t in f.tensors():
            value = None if t.data is None else (t.data.tobytes(), t.data.shape, t.data.dtype)
            variable = None if t.variable is None else t.variable.name
            tensors.append((t.name, t.dtype, t.shape, value, variable, quantization(t.quantization)))
        nodes = []
        for n in f.nodes:
            attributes = {name: attribute(n.attribute(name)) for name in OPS[n.op]["attributes"]}
            nodes.append(
                (n.op, n.name or n.outputs[0].name, n.source, numbers(n.inputs), numbers(n.outputs), attributes)
            )
        return f.name, tensors, nodes, numbers(f.inputs), numbers(f.outputs)

    variables = [
        (v.name, v.value.dtype, v.value.tobytes(), v.value.shape, quantization(v.quantization), v.trainable)
        for v in graph.variables.values()
    ]
    signatures = [
        (n, function_order(graph).index(s.function), s.inputs, s.outputs) for n, s in graph.signatures.items()
    ]
    return graph.metadata, [function(f) for f in order], variables, signatures


def test_round_trip_keeps_everything() -> None:
    graph = every_feature()
    content = to_bytes(graph)
    again = from_bytes(content)
    assert shape_of_graph(again) == shape_of_graph(graph)
    assert to_bytes(again) == content


def test_same_graph_same_bytes() -> None:
    assert to_bytes(every_feature()) == to_bytes(every_feature())


@pytest.mark.parametrize("name", GRAPHS)
def test_built_graphs_round_trip(name: str) -> None:
    content = GRAPHS[name]().to_bytes()
    assert to_bytes(from_bytes(content)) == content


def test_header_and_segments_are_as_specified() -> None:
    content = to_bytes(every_feature())
    magic, version, oldest, start, size, crc, zero, file_size = struct.unpack_from("<8sIIQQIIQ", content)
    assert (magic, version, oldest, start, zero, file_size) == (b"LINNET\r\n", 1, 1, 64, 0, len(content))
    assert content[48:64] == bytes(16)
    structure = content[start : start + size]
    assert zlib.crc32(structure) == crc
    assert structure[4:8] == b"LNT1"
    from linnet._generated.fb import Model

    model = Model.Model.GetRootAs(structure)
    assert model.SegmentsLength() == 3  # three values: w (shared with `same`), half and state; zeros are not stored
    end = start + size
    for i in range(model.SegmentsLength()):
        segment = model.Segments(i)
        assert segment.Offset() % 64 == 0 and segment.Offset() >= end
        data = content[segment.Offset() : segment.Offset() + segment.Size()]
        assert len(data) == segment.Size() >= 24 and segment.DigestKind() == 2 and segment.Digest() == crc32c(data)
        end = segment.Offset() + segment.Size()
    assert end == len(content)
    inline = 0
    for f in range(model.FunctionsLength()):
        function = model.Functions(f)
        for i in range(function.TensorsLength()):
            tensor = function.Tensors(i)
            if not tensor.DataIsNone():
                vector = tensor._tab.Vector(tensor._tab.Offset(18))
                assert vector % 16 == 0
                inline += 1
        for i in range(function.NodesLength()):  # functions that a node names come after it
            node = function.Nodes(i)
            for name, value in _functions_named(node).items():
                assert value > f, name
    assert inline == 4


def _functions_named(node: FbNode.Node) -> dict[str, int]:
    op = next(name for name, row in OPS.items() if row["id"] == node.Op())
    names = list(range(64))
    attributes = decode_attributes(op, node.Attributes(), names)  # type: ignore[arg-type]
    kinds = {name: kind for name, (_, kind, _, _) in OPS[op]["attributes"].items()}
    return {name: value for name, value in attributes.items() if kinds[name] == "function"}


def test_flatc_reads_what_is_written(tmp_path: Path) -> None:
    need("flatc")
    content = to_bytes(every_feature())
    _, _, _, start, size, *_ = HEADER.unpack_from(content)
    (tmp_path / "structure.bin").write_bytes(content[start : start + size])
    schema = Path(__file__).resolve().parent.parent / "schema"
    run(
        [
            "flatc",
            "--json",
            "--raw-binary",
            "--strict-json",
            "-I",
            str(schema),
            str(schema / "linnet.fbs"),
            "--",
            "structure.bin",
        ],
        cwd=tmp_path,
    )
    import json

    model = json.loads((tmp_path / "structure.json").read_text())
    main = next(f for f in model["functions"] if f["name"] == "main")
    conv, mapped, call = main["nodes"]
    assert conv["attributes_type"] == "ConvAttributes"
    assert conv["attributes"] == {"pads": [1, 2], "group": 3, "auto_pad": 2}
    assert mapped["attributes"]["integers"] == [-(2**63)] and mapped["attributes"]["floats"] == [0.5, -0.0]
    assert call["attributes"] == {"callee": 1}
    assert main["tensors"][0]["dim_names"] == ["n", "", ""] and main["tensors"][0]["shape"] == [-1, -1, 3]


def _sample(kind: str, values: dict[str, int] | None, salt: int) -> object:
    if kind == "enum":
        assert values is not None
        return list(values)[salt % len(values)]
    numbers = (0, 1, -1, 2**40 + salt)
    return {
        "int": numbers[salt % 4], "float": float(numbers[salt % 4]) / 3, "bool": bool(salt % 2),
        "dtype": list(DTYPE_IDS)[salt % len(DTYPE_IDS)], "ints": tuple(range(salt % 5)),
        "floats": tuple(0.5 * i for i in range(salt % 4)), "bytes": bytes(range(salt % 11)),
    }[kind]  # fmt: skip


@pytest.mark.parametrize("op", OPS)
def test_attributes_of_every_op_round_trip(op: str) -> None:
    """Each attribute alone, and all together, through the message that shape inference reads."""
    specs = {n: s for n, s in OPS[op]["attributes"].items() if s[1] != "function"}
    for salt in range(6):
        together = {
            name: _sample(kind, values, salt + i) for i, (name, (_, kind, _, values)) in enumerate(specs.items())
        }
        for attributes in ({}, together, *({name: value} for name, value in together.items())):
            node = FbNode.Node.GetRootAs(encode_node(op, attributes))
            assert node.Op() == OPS[op]["id"] == node.AttributesType()
            table = node.Attributes()
            assert table is not None and table.Pos % 4 == 0
            read = decode_attributes(op, table, [])
            for name, (_, kind, default, _) in OPS[op]["attributes"].items():
                assert read[name] == attributes.get(name, None if kind == "function" else default), name


def _with_header(content: bytes, **fields: int | bytes) -> bytes:
    names = ("magic", "version", "oldest", "start", "size", "crc", "zero", "file_size")
    values = dict(zip(names, HEADER.unpack_from(content), strict=True))
    values.update(fields)
    return HEADER.pack(*values.values()) + content[HEADER.size :]


BAD = {
    "wrong magic": (203, lambda c: _with_header(c, magic=b"PK\3\4aaaa")),
    "empty": (203, lambda c: b""),
    "newer format": (204, lambda c: _with_header(c, version=9, oldest=9)),
    "header cut": (205, lambda c: c[:40]),
    "segments cut": (205, lambda c: c[:-1]),
    "structure cut": (205, lambda c: c[:200]),
    "structure changed": (206, lambda c: c[:200] + bytes([c[200] ^ 1]) + c[201:]),
    "structure outside": (206, lambda c: _with_header(c, start=64, size=2**40)),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_file_is_refused_alike_by_python_and_c(name: str, tmp_path: Path) -> None:
    code, damage = BAD[name]
    path = tmp_path / "bad.lnt"
    path.write_bytes(damage(to_bytes(GRAPHS["mlp"]())))
    with pytest.raises(linnet.FileError) as python:
        Graph.load(path)
    with pytest.raises(linnet.FileError) as c:
        linnet.Session(path)
    assert python.value.code == code
    assert c.value.code == code
    for error in (python.value, c.value):
        assert "\n" not in str(error) and "bad.lnt" in str(error)


def test_missing_file_and_unreadable_folder(tmp_path: Path) -> None:
    with pytest.raises(linnet.FileError, match="not_found") as error:
        Graph.load(tmp_path / "none.lnt")
    assert error.value.code == 201 and isinstance(error.value, OSError)
    with pytest.raises(linnet.FileError) as error:
        Graph.load(tmp_path)
    assert error.value.code == 202


def test_random_damage_never_escapes_as_another_exception() -> None:
    """The checksum is corrected, so that the reader after it is tested."""
    content = to_bytes(every_feature())
    _, _, _, start, size, *_ = HEADER.unpack_from(content)
    generator = np.random.default_rng(1)
    for _ in range(1500):
        structure = bytearray(content[start : start + size])
        for _ in range(int(generator.integers(1, 4))):
            structure[generator.integers(size)] = generator.integers(256)
        damaged = _with_header(content[:start] + structure + content[start + size :], crc=zlib.crc32(structure))
        try:
            from_bytes(damaged)
        except linnet.FileError as error:
            assert error.code == 206


def test_save_is_atomic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.lnt"
    graph = every_feature()
    graph.save(path)
    before = path.read_bytes()

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    graph.metadata["c"] = "3"
    with pytest.raises(linnet.FileError, match="No space left"):
        graph.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["m.lnt"]


def test_malformed_graph_is_not_written(tmp_path: Path) -> None:
    graph = every_feature()
    main = graph.functions[1]
    main.nodes.reverse()
    with pytest.raises(linnet.GraphError, match="before it is created"):
        graph.save(tmp_path / "m.lnt")
    assert os.listdir(tmp_path) == []
    graph = Graph()
    function = graph.function()
    x = function.tensor("x", "f32", (2,))
    function.nodes.append(Node("call", [], [x], {"callee": function}))
    function.outputs = [x]
    with pytest.raises(linnet.GraphError, match="calls itself"):
        graph.to_bytes()


def test_unwritable_folder(tmp_path: Path) -> None:
    with pytest.raises(linnet.FileError, match="cannot write"):
        every_feature().save(tmp_path / "no" / "such" / "folder.lnt")


def test_import_is_light() -> None:
    """`import linnet` loads neither onnx nor rich nor the command line."""
    import sys

    code = (
        "import sys, linnet; print([m for m in ('onnx', 'rich', 'click', 'cffi.api', 'pycparser') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
