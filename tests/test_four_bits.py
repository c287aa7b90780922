"""i4 and u4 (two elements in a byte) and quantization per block, from the graph through the file to C and back."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import linnet
from linnet.facade import Graph
from linnet.file.layout import HEADER
from linnet.ir.dtypes import Quantization, blocks_of, bytes_of, packed, unpacked

Array = npt.NDArray[Any]
NUMPY = {"i4": ml_dtypes.int4, "u4": ml_dtypes.uint4, "i8": np.int8, "u8": np.uint8}
RANGES = {"i4": (-8, 7), "u4": (0, 15), "i8": (-128, 127), "u8": (0, 255)}


def integers(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Array:
    low, high = RANGES[dtype]
    return np.random.default_rng(seed).integers(low, high + 1, shape).astype(NUMPY[dtype])


def blocks(dtype: str, shape: tuple[int, ...], axis: int, block: int, zeros: bool = True) -> Quantization:
    generator, grid = np.random.default_rng(5), blocks_of(shape, axis, block)
    zero = integers(dtype, grid, 6).astype(np.int32) if zeros else np.zeros(grid, np.int32)
    scale = generator.uniform(0.25, 2, grid).astype(np.float32)
    return Quantization(scale, zero, axis, 4 if dtype in ("i4", "u4") else 8, block)


def real(stored: Array, q: Quantization) -> Array:
    """The values that a quantized tensor stands for, in f32."""
    scale, zero = q.scale, q.zero
    if q.block:
        assert q.axis is not None
        n = stored.shape[q.axis]
        scale, zero = (np.repeat(a, q.block, q.axis).take(range(n), q.axis) for a in (scale, zero))
    elif q.axis is not None:
        shape = [-1 if d == q.axis else 1 for d in range(stored.ndim)]
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    return (stored.astype(np.int32) - zero).astype(np.float32) * scale


def one(op: str, *inputs: Any, quantization: Quantization | None = None, **attributes: Any) -> Array:
    """The result of one node, computed in a session."""
    graph = Graph()
    main = graph.function("main")
    feeds, operands = {}, []
    for i, value in enumerate(inputs):
        if isinstance(value, tuple):  # a constant with its quantization
            operands.append(main.constant(value[0], f"c{i}", quantization=value[1]))
        else:
            operands.append(main.placeholder(f"x{i}", linnet.ir.dtypes.dtype_of(value.dtype), value.shape))
            feeds[f"x{i}"] = value
    y = main.emit(op, operands, attributes, quantization=[quantization], fold=False)[0]
    main.outputs = [y]
    graph.signature("infer", main, outputs=["y"])
    return linnet.Session(graph).run(feeds)["y"]


@pytest.mark.parametrize("dtype", ["i4", "u4"])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 3, 4), (0, 3)])
def test_two_elements_share_a_byte(dtype: str, shape: tuple[int, ...]) -> None:
    array = integers(dtype, shape)
    stored = packed(array)
    assert stored.nbytes == bytes_of(dtype, shape) == (array.size + 1) // 2
    codes = array.reshape(-1).astype(np.int8)
    for i, code in enumerate(codes):
        assert stored[i // 2] >> (i % 2 * 4) & 15 == code & 15  # the first element is in the low half
    if array.size % 2:
        assert stored[-1] >> 4 == 0
    assert np.array_equal(unpacked(stored, dtype, shape), array)


@pytest.mark.parametrize("dtype", ["i4", "u4"])
@pytest.mark.parametrize("shape", [(3, 5), (40, 64)])  # inside the structure, and in a segment
def test_constants_are_as_narrow_in_the_file(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    value = integers(dtype, shape)
    graph = Graph()
    main = graph.function("main")
    w = main.constant(value, "w", quantization=Quantization(np.ones(1, np.float32), np.array([1], np.int32), bits=4))
    main.outputs = main.emit("dequantize", [w], {}, fold=False)
    graph.signature("infer", main, outputs=["y"])
    graph.save(tmp_path / "m.lnt")
    content = (tmp_path / "m.lnt").read_bytes()
    assert packed(value).tobytes() in content
    assert HEADER.unpack_from(content)[1:3] == (2, 2)  # an older reader says that it is too old
    again = Graph.load(tmp_path / "m.lnt")
    (w,) = (t for f in again.functions for t in f.tensors() if t.data is not None)
    assert w.data is not None and w.dtype == dtype and np.array_equal(w.data, value)
    assert np.array_equal(linnet.Session(tmp_path / "m.lnt").run({})["y"], value.astype(np.float32) - 1)


def test_other_files_stay_version_1() -> None:
    graph = Graph()
    main = graph.function("main")
    main.outputs = [main.placeholder("x", "i8", (2,))]
    graph.signature("infer", main)
    assert HEADER.unpack_from(graph.to_bytes())[1:3] == (1, 1)


@pytest.mark.parametrize(
    "attributes, version",
    [({}, 1), ({"axis": 1}, 1), ({"from_end": True}, 1), ({"from_end": False}, 2), ({"dtype": "f32"}, 2)],
)
def test_an_attribute_that_older_readers_ignore_makes_version_2(attributes: dict[str, Any], version: int) -> None:
    graph = Graph()
    main = graph.function("main")
    scheme = Quantization(np.full(1, 0.5, np.float32), np.zeros(1, np.int32))
    table = main.constant(np.arange(6, dtype=np.int8).reshape(2, 3), "table", quantization=scheme)
    index = main.placeholder("i", "i64", (2,))
    main.outputs = main.emit("gather", [table, index], {"kind": "take", **attributes})
    graph.signature("infer", main)
    content = graph.to_bytes()
    assert HEADER.unpack_from(content)[1:3] == (version, version)
    assert linnet.Session(content).run({"i": np.array([1, 0])})


@pytest.mark.parametrize("dtype", ["i4", "u4"])
@pytest.mark.parametrize("other", ["i8", "u8", "i16", "i32", "i64", "f32", "f16", "i4", "u4"])
@pytest.mark.parametrize("shape", [(3, 5), (64, 33)])
def test_casts(dtype: str, other: str, shape: tuple[int, ...]) -> None:
    value = integers(dtype, shape)
    low, high = RANGES[dtype]
    there = linnet.ir.dtypes.numpy_dtype(other)
    # to integers: the low bits
    assert np.array_equal(one("cast", value, dtype=other), value.astype(np.int8).astype(there))
    wide = np.random.default_rng(1).integers(-40, 40, shape).astype(np.int8).astype(there)
    back = one("cast", wide, dtype=dtype)
    numbers = wide.astype(np.float64) if other in ("f32", "f16") else wide.astype(np.int64)
    if other in ("f32", "f16"):
        expected = np.clip(np.trunc(numbers), low, high)
    else:
        expected = ((numbers.astype(np.int64) & 15) ^ 8) - 8 if dtype == "i4" else numbers.astype(np.int64) & 15
    assert back.dtype == NUMPY[dtype] and np.array_equal(back.astype(np.int64), expected.astype(np.int64))


SCHEMES = [("tensor", None, 0), ("axis", 0, 0), ("axis", 1, 0), ("block", 0, 2), ("block", 1, 4), ("block", 1, 100)]


def quantization_of(scheme: str, axis: int | None, block: int, dtype: str, shape: tuple[int, ...]) -> Quantization:
    if scheme == "block":
        return blocks(dtype, shape, axis or 0, block)
    n = 1 if axis is None else shape[axis]
    generator = np.random.default_rng(3)
    bits, zero = linnet.ir.dtypes.bits_of(dtype), integers(dtype, (n,)).astype(np.int32)
    return Quantization(generator.uniform(0.25, 2, n).astype(np.float32), zero, axis, bits)


@pytest.mark.parametrize("dtype", ["i4", "u4", "i8", "u8"])
@pytest.mark.parametrize("scheme, axis, block", SCHEMES)
def test_dequantize_and_quantize(dtype: str, scheme: str, axis: int | None, block: int) -> None:
    shape = (5, 11)
    q = quantization_of(scheme, axis, block, dtype, shape)
    stored = integers(dtype, shape)
    expected = real(stored, q)
    assert np.array_equal(one("dequantize", (stored, q)), expected)
    assert np.array_equal(one("quantize", expected, quantization=q, dtype=dtype), stored)
    low, high = RANGES[dtype]
    assert one("quantize", expected * 1000, quantization=q, dtype=dtype).astype(np.int64).min() >= low
    assert one("quantize", expected * 1000, quantization=q, dtype=dtype).astype(np.int64).max() <= high


def test_inputs_and_outputs_are_arrays_of_ml_dtypes() -> None:
    graph = Graph()
    main = graph.function("main")
    x = main.placeholder("x", "i4", (3, 3))
    main.outputs = [x, *main.emit("cast", [x], {"dtype": "i8"})]
    graph.signature("infer", main, outputs=["same", "wide"])
    session = linnet.Session(graph)
    value = integers("i4", (3, 3))
    for given in (value, value.astype(np.int8), value.astype(np.int64), value.astype(int).tolist()):
        for _ in range(2):  # the second run takes the fast path
            result = session.run({"x": given})
            assert result["same"].dtype == ml_dtypes.int4 and np.array_equal(result["same"], value)
            assert np.array_equal(result["wide"], value.astype(np.int8))
    for wrong in (np.full((3, 3), 8), np.zeros((3, 3), np.float32), np.zeros((3, 3), ml_dtypes.uint4) + 0.5):
        with pytest.raises(linnet.UsageError, match="dtype"):
            session.run({"x": wrong})


def test_variables(tmp_path: Path) -> None:
    value = integers("u4", (3, 5))
    graph = Graph()
    v = graph.variable("v", value)
    main = graph.function("main")
    main.outputs = main.emit("cast", [main.read(v)], {"dtype": "u8"})
    graph.signature("infer", main, outputs=["y"])
    graph.save(tmp_path / "m.lnt")
    session = linnet.Session(tmp_path / "m.lnt")
    assert np.array_equal(session.run({})["y"], value.astype(np.uint8))
    assert np.array_equal(session.variables["v"], value)
    changed = integers("u4", (3, 5), 9)
    session.variables["v"] = changed
    assert np.array_equal(session.run({})["y"], changed.astype(np.uint8))
    session.variables.save(tmp_path / "c.lnt")
    assert HEADER.unpack_from((tmp_path / "c.lnt").read_bytes())[1:3] == (2, 2)
    other = linnet.Session(tmp_path / "m.lnt")
    other.variables.load(tmp_path / "c.lnt")
    assert np.array_equal(other.variables["v"], changed)


@pytest.mark.parametrize(
    "op, attributes", [("copy", {"kind": "transpose"}), ("reduce", {"kind": "max"}), ("softmax", {})]
)
def test_other_ops_refuse_them(op: str, attributes: dict[str, Any]) -> None:
    with pytest.raises(linnet.Error, match=f"{op} is not defined for i4.*cast (it|the operand) to i8"):
        one(op, integers("i4", (2, 3)), **attributes)
    stored = integers("i8", (4, 8))
    if op != "copy":
        with pytest.raises(linnet.Error, match=f"{op} is not defined for i8 with quantization per block"):
            one(op, (stored, blocks("i8", (4, 8), 1, 4)), **attributes)


def quantized_file(dtype: str, shape: tuple[int, ...], q: Quantization) -> bytes:
    graph = Graph()
    main = graph.function("main")
    x = main.placeholder("x", dtype, shape)
    x.quantization = q
    main.outputs = [x]
    graph.signature("infer", main)
    return graph.to_bytes()


def test_the_file_has_a_scale_for_every_block() -> None:
    shape = (3, 10)
    for axis, block, count in ((0, 1, 30), (0, 2, 20), (0, 3, 10), (0, 7, 10), (1, 4, 9), (1, 5, 6), (1, 10, 3)):
        q = blocks("i4", shape, axis, block)
        assert q.scale.size == count
        linnet.Model(quantized_file("i4", shape, q))
        for wrong in (count - 1, count + 1):
            bad = Quantization(np.ones(wrong, np.float32), np.zeros(wrong, np.int32), axis, 4, block)
            with pytest.raises(
                linnet.FileError, match=f"differs from the number of blocks.*{count} blocks.*got {wrong}"
            ):
                linnet.Model(quantized_file("i4", shape, bad))


def test_faults_of_blocks() -> None:
    q = blocks("i4", (4, 8), 1, 4)
    for axis in (-1, 2):
        with pytest.raises(linnet.FileError, match="axis is out of range"):
            linnet.Model(quantized_file("i4", (4, 8), Quantization(q.scale, q.zero, axis, 4, 4)))
    with pytest.raises(linnet.FileError, match="4 or 8 bits"):
        linnet.Model(quantized_file("i16", (4, 8), q))
    with pytest.raises(linnet.FileError, match="needs a known shape"):
        linnet.Model(quantized_file("i4", (None, 8), q))  # type: ignore[arg-type]
    for zero in (-9, 8):
        with pytest.raises(linnet.FileError, match=f"zero point does not fit.*got {zero}"):
            linnet.Model(quantized_file("i4", (4, 8), Quantization(q.scale, np.full_like(q.zero, zero), 1, 4, 4)))
    for scale in (0.0, -1.0, np.nan, np.inf):
        bad = q.scale.copy()
        bad[2, 1] = scale
        with pytest.raises(linnet.FileError, match=r"not a positive number.*scale number 5"):
            linnet.Model(quantized_file("i4", (4, 8), Quantization(bad, q.zero, 1, 4, 4)))


def test_an_older_reader_is_told_so() -> None:
    content = bytearray(quantized_file("i4", (4, 8), blocks("i4", (4, 8), 1, 4)))
    struct.pack_into("<II", content, 8, 3, 3)  # what this reader says of a file of version 3
    with pytest.raises(linnet.FileError, match="needs a newer version of linnet"):
        linnet.Model(bytes(content))


def test_inspect_names_the_blocks(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from linnet.cli.main import cli

    (tmp_path / "m.lnt").write_bytes(quantized_file("u4", (4, 64), blocks("u4", (4, 64), 1, 32)))
    out = CliRunner().invoke(cli, ["inspect", str(tmp_path / "m.lnt")], terminal_width=200).output
    assert "4 bits, blocks of 32 along axis 1 (8 scales)" in " ".join(out.split())


@pytest.mark.parametrize("shape", [(3, 5), (0, 4), (300, 301)])
def test_reshapes_move_whole_bytes(shape: tuple[int, int]) -> None:
    value = integers("u4", shape)
    assert np.array_equal(one("copy", value, kind="identity"), value)
    assert np.array_equal(
        one("copy", value, kind="reshape", shape=[shape[1], shape[0]], allow_zero=True), value.reshape(shape[::-1])
    )
    assert np.array_equal(one("copy", value, kind="unsqueeze", axes=[0]), value[None])
    assert np.array_equal(one("copy", value, kind="bitcast", dtype="i4"), value.view(ml_dtypes.int4))


def test_the_public_description_has_the_blocks() -> None:
    from linnet.clib.ffi import ffi
    from linnet.clib.library import library, new_struct

    q = blocks("i4", (4, 10), 1, 4)
    model = linnet.Model(quantized_file("i4", (4, 10), q))
    info = new_struct("linnet_tensor_info")
    assert library().linnet_model_get_input(model.pointer, 0, 0, info) == 0
    assert (info.bits, info.bytes, info.quant_scheme, info.quant_axis, info.quant_block) == (4, 20, 3, 1, 4)
    assert (info.quant_count, info.scale, info.zero) == (12, 0, 0)
    assert ffi.unpack(info.scales, 12) == q.scale.reshape(-1).tolist()
    assert ffi.unpack(info.zeros, 12) == q.zero.reshape(-1).tolist()
    assert library().linnet_dtype_size(info.dtype) == 0  # two elements in a byte
