"""Large initializers of an ONNX file are read straight from the file: the same graphs and errors as by protobuf alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import linnet
from linnet.converters.onnx import loader, outside

TYPES = ("float32", "float16", "float64", "int8", "uint8", "int32", "int64")


def model(dtype: str = "float32", name: str = "w") -> onnx.ModelProto:
    """y = x + w, and a small constant; w has 128 KiB or more, at an offset that is no multiple of its element."""
    random = np.random.default_rng(7)
    value = (random.standard_normal((128, 1024)) * 50).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    shape = [128, 1024]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", name], ["z"]), helper.make_node("Add", ["z", "small"], ["y"])],
        "g" * 3,
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, shape)],
        [numpy_helper.from_array(value, name), numpy_helper.from_array(np.ones(1, dtype), "small")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], producer_name="p" * 5)


@pytest.mark.parametrize("dtype", TYPES)
def test_same_graph(dtype: str, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    onnx.save(model(dtype), file)
    parsed, _ = loader.load(file)
    assert parsed.graph.initializer[0].data_location == TensorProto.EXTERNAL and parsed.ByteSize() < 2000
    assert not parsed.graph.initializer[1].external_data
    link = tmp_path / "link.onnx"
    link.symlink_to(file)
    expected = linnet.from_onnx(model(dtype)).to_bytes()
    for path in (file, link):
        assert linnet.from_onnx(path).to_bytes() == expected


def test_the_graph_outlives_the_file(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    onnx.save(model(), file)
    graph = linnet.from_onnx(file)
    file.write_bytes(b"")  # a mapped file would end the process here
    assert graph.to_bytes() == linnet.from_onnx(model()).to_bytes()


def test_a_file_that_changes_meanwhile(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    onnx.save(model(), file)
    parsed, folder = loader.load(file)
    with pytest.raises(linnet.Error, match="another file") as raised:
        linnet.from_onnx(parsed)  # as of any ModelProto with external data
    assert raised.value.code == 301
    proto = parsed.graph.initializer[0]
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(Exception, match="needs 524288 bytes at offset"):
        loader.array_from(proto, folder)


@pytest.mark.parametrize("dims", [[128, 1023], [128, -1024], [1 << 40, 1 << 40], []])
def test_wrong_sizes_are_left_to_protobuf(dims: list[int], tmp_path: Path) -> None:
    damaged = model()
    del damaged.graph.initializer[0].dims[:]
    damaged.graph.initializer[0].dims.extend(dims)
    onnx.save(damaged, tmp_path / "m.onnx")
    assert loader.load(tmp_path / "m.onnx")[0] == damaged
    with pytest.raises(linnet.ConversionError) as from_file:
        linnet.from_onnx(tmp_path / "m.onnx")
    with pytest.raises(linnet.ConversionError) as from_memory:
        linnet.from_onnx(damaged)
    assert [p.reason for p in from_file.value.problems] == [p.reason for p in from_memory.value.problems]


def test_other_forms_of_data(tmp_path: Path) -> None:
    """Typed fields, unpacked dims, two lists of raw data, and a graph in two parts are protobuf's business."""
    typed = model()
    value = numpy_helper.to_array(typed.graph.initializer[0])
    typed.graph.initializer[0].ClearField("raw_data")
    typed.graph.initializer[0].float_data.extend(value.reshape(-1).tolist())
    onnx.save(typed, tmp_path / "typed.onnx")
    assert loader.load(tmp_path / "typed.onnx")[0] == typed
    assert linnet.from_onnx(tmp_path / "typed.onnx").to_bytes() == linnet.from_onnx(model()).to_bytes()
    twice = model().SerializeToString() + onnx.ModelProto(graph=onnx.GraphProto(name="again")).SerializeToString()
    (tmp_path / "twice.onnx").write_bytes(twice)
    assert linnet.from_onnx(tmp_path / "twice.onnx").metadata["model"] == "again"


def test_damaged_files_end_as_by_protobuf(tmp_path: Path) -> None:
    content, random, file = model().SerializeToString(), np.random.default_rng(1), tmp_path / "m.onnx"
    places = [i for i in range(len(content)) if i < 300 or i > len(content) - 300]
    both = 0
    for i in range(300):
        damaged = bytearray(content)
        for _ in range(int(random.integers(1, 3))):
            damaged[int(random.choice(places))] = int(random.integers(256))
        if i % 3 == 0:
            damaged = damaged[: int(random.integers(len(damaged)))] or damaged
        file.write_bytes(damaged)
        wanted: onnx.ModelProto | None = onnx.ModelProto()
        try:
            wanted.ParseFromString(bytes(damaged))  # type: ignore[union-attr]
        except Exception:
            wanted = None
        try:
            got, folder = loader.load(file)
        except linnet.FileError:
            assert wanted is None or not wanted.HasField("graph")
            continue
        assert wanted is not None
        for proto in got.graph.initializer:
            entries = {e.key: e.value for e in proto.external_data}
            if outside.INSIDE in entries and entries.get("location") == "m.onnx":
                array, _ = loader.array_from(proto, folder)
                proto.raw_data = array.tobytes()
                proto.ClearField("external_data")
                proto.ClearField("data_location")
        both += got.SerializeToString(deterministic=True) == wanted.SerializeToString(deterministic=True)
    assert both > 50
