"""How the file reader handles numbers at the ends of their ranges: zero points of every stored type, scales per axis, shifts
of map programs, depths of calls, assigned variables. The writer here writes any value."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
import pytest

import linnet
from linnet._generated.op_table import OPCODES
from linnet.facade import Graph
from linnet.file.layout import HEADER
from linnet.ir.dtypes import Quantization, numpy_dtype
from linnet.ir.function import Node, Tensor

RANGES = {"i8": (-128, 127), "u8": (0, 255), "i16": (-(1 << 15), (1 << 15) - 1), "u16": (0, (1 << 16) - 1)}


def quantized(dtype: str, zero: list[int], shape: tuple[int, ...] = (2, 3), axis: int | None = None) -> bytes:
    """A file with a quantized input and a quantized constant."""
    graph = Graph()
    main = graph.function("main")
    scale = np.linspace(0.25, 1, len(zero), dtype=np.float32)
    quantization = Quantization(scale, np.array(zero, np.int32), axis)
    x = main.placeholder("x", dtype, shape)
    w = main.constant(np.zeros(shape, numpy_dtype(dtype)), "w", quantization=quantization)
    x.quantization = quantization
    main.outputs = [x, w]
    graph.signature("infer", main)
    return graph.to_bytes()


@pytest.mark.parametrize("dtype", RANGES)
def test_zero_points_are_numbers_of_the_stored_type(dtype: str) -> None:
    low, high = RANGES[dtype]
    for zero in (low, high):
        linnet.Model(quantized(dtype, [zero]))
        linnet.Model(quantized(dtype, [0, 0, zero], axis=1))
    for zero in (low - 1, high + 1):
        for zeros, axis in (([zero], None), ([0, 0, zero], 1)):
            with pytest.raises(linnet.FileError, match=f"zero point does not fit.*got {zero}"):
                linnet.Model(quantized(dtype, zeros, axis=axis))


@pytest.mark.parametrize("axis", [0, 1])
def test_scales_are_as_many_as_the_axis_is_long(axis: int) -> None:
    size = (2, 3)[axis]
    linnet.Model(quantized("i8", [0] * size, axis=axis))
    for count in (size - 1, size + 1, 5 * size):
        if count == 1:
            continue  # one scale for all
        with pytest.raises(linnet.FileError, match=f"number of scales differs from the size.*got {count}"):
            linnet.Model(quantized("i8", [0] * count, axis=axis))


@pytest.mark.parametrize("axis", [-1, 2, 3])
def test_the_axis_of_scales_is_one_of_the_tensor(axis: int) -> None:
    with pytest.raises(linnet.FileError, match="axis is out of range"):
        linnet.Model(quantized("i8", [0, 0], axis=axis))


def _programmed(*steps: tuple[str, int, int, int], integers: tuple[int, ...] = ()) -> bytes:
    """A map from i32 to i32 with an unchecked program: opcodes with their operands."""
    graph = Graph()
    main = graph.function("main")
    x, y = main.placeholder("x", "i32", (4,)), main.tensor("y", "i32", (4,))
    i32 = linnet.ir.dtypes.DTYPE_IDS["i32"]
    program = tuple(n for code, *operands in steps for n in (OPCODES[code][0], i32, *operands))
    y.node = Node("map", [x], [y], {"program": program, "integers": integers, "dtypes": (i32,)})
    main.nodes, main.outputs = [y.node], [y]
    graph.signature("infer", main)
    return graph.to_bytes()


def _shifted(shift: int) -> bytes:
    steps = (("load", 0, 0, 0), ("fixed_multiply", 0, 0, 1), ("store", 1, 0, 0))
    return _programmed(*steps, integers=(1 << 30, shift))


def test_a_store_makes_no_value() -> None:
    linnet.Model(_programmed(("load", 0, 0, 0), ("cast", 0, 0, 0), ("store", 1, 0, 0)))
    with pytest.raises(linnet.Error, match="has no value yet"):
        linnet.Model(_programmed(("load", 0, 0, 0), ("store", 0, 0, 0), ("cast", 1, 0, 0)))
    with pytest.raises(linnet.Error, match="has no value yet"):
        linnet.Model(_programmed(("load", 0, 0, 0), ("cast", 1, 0, 0), ("store", 1, 0, 0)))


def test_shifts_of_a_fixed_multiplication() -> None:
    for shift in (-30, 0, 31):
        linnet.Model(_shifted(shift))
    for shift in (-31, 32):
        with pytest.raises(linnet.Error, match=r"shift is outside \[-30, 31\]"):
            linnet.Model(_shifted(shift))


def _assigning(times: int) -> bytes:
    graph = Graph()
    v = graph.variable("v", np.zeros(2, np.float32))
    w = graph.variable("w", np.zeros(2, np.float32))
    main = graph.function("main")
    x = main.placeholder("x", "f32", (2,))
    outputs: list[Tensor] = []
    for k, variable in enumerate([v] * times + [w]):
        y = main.tensor(f"y{k}", "f32", (2,))
        y.node = Node("assign", [main.read(variable), x], [y], {})
        main.nodes.append(y.node)
        outputs.append(y)
    main.outputs = outputs
    graph.signature("infer", main)
    return graph.to_bytes()


def test_a_function_assigns_a_variable_once() -> None:
    linnet.Model(_assigning(1))
    with pytest.raises(linnet.FileError, match=r"assigned twice.*'v'|'v'.*assigned twice"):
        linnet.Model(_assigning(2))


def _calling(depth: int, each: Callable[[int], int]) -> bytes:
    """A chain of `depth` functions, in which function i calls the next one each(i) times."""
    graph = Graph()
    functions = [graph.function(f"f{i}") for i in range(depth)]
    for i, function in enumerate(functions):
        value = function.placeholder("v", "f32", (1,))
        for k in range(each(i) if i + 1 < depth else 0):
            y = function.tensor(f"y{k}", "f32", (1,))
            y.node = Node("call", [value], [y], {"callee": functions[i + 1]})
            function.nodes.append(y.node)
            value = y
        function.outputs = [value]
    graph.signature("infer", functions[0])
    return graph.to_bytes()


def test_calls_end_at_a_depth_and_at_a_number() -> None:
    linnet.Model(_calling(65, lambda i: 1))
    with pytest.raises(linnet.Error, match="nested function calls"):
        linnet.Model(_calling(66, lambda i: 1))
    with pytest.raises(linnet.Error, match="nested function calls"):
        linnet.Model(_calling(40, lambda i: 2))


@pytest.mark.parametrize("kept", [1, 2, 4])
def test_zero_points_are_as_many_as_scales(kept: int) -> None:
    """The writer cannot write such a file, so the length of the vector is changed afterwards."""
    content = quantized("i8", [70, 71, 72], axis=1)
    start, size, crc = HEADER.unpack_from(content)[3:6]
    structure = content[start : start + size]
    vector = np.array([3, 70, 71, 72], np.int32).tobytes()
    assert structure.count(vector) >= 1 and zlib.crc32(structure) == crc
    changed = structure.replace(vector, np.int32(kept).tobytes() + vector[4:])
    fields = list(HEADER.unpack_from(content))
    fields[5] = zlib.crc32(changed)
    with pytest.raises(linnet.FileError, match="number of zero points"):
        linnet.Model(HEADER.pack(*fields) + changed + content[start + size :])
