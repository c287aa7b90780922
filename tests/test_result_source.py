"""Sums of quantized products as results, in source text (linnet_step_result_source, linnet_step_get_requant): the bits of the CPU
for every mode, dtype and op."""
# Dear: PoCL compiles a program with every kind of result.

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import linnet
from linnet.ir.dtypes import Quantization, numpy_dtype
from linnet.ir.function import emit
from tests.capi import Failure, check, ffi, lib, new_struct
from tests.maps.graphs import Batch
from tests.native import compile_c, need, run
from tests.opencl import OpenCL, need_opencl
from tests.py_device import op_of, tensor_of
from tests.test_map_source import COMPILERS, TYPES, UNDEFINED, Reading, finished, options, same, text_of

SUMS = [
    0,
    1,
    -1,
    2,
    3,
    -3,
    5,
    7,
    -8,
    100,
    -101,
    32767,
    -32768,
    70000,
    -123457,
    2**24 + 1,
    2**30,
    -(2**30) - 1,
    2**31 - 1,
    -(2**31),
]
WIDE = [*SUMS, 2**31, -(2**33) - 1, 2**40 + 2**15 + 1, 2**47 - 1, -(2**47) + 1]
SCALES = [1e-9, 3e-6, 0.00123, 0.5, 1.0, 0.9999999, 1.5, 37.7]  # of a sum, in units of the result
MODES = ("float_rne", "tflite", "tflite_single")


class Case(NamedTuple):
    op: str
    x: str
    y: str
    mode: str


def cases() -> list[Case]:
    narrow = itertools.product(
        ("matmul", "conv", "conv_transpose"), ("i8", "u8"), ("i8", "u8", "i16", "f32", "i32"), MODES
    )
    wide = itertools.product(("matmul", "conv", "conv_transpose"), ("i16",), ("i8", "i16", "f32", "i32", "i64"), MODES)
    return [Case(*c) for c in (*narrow, *wide) if not (c[0] == "conv_transpose" and c[1] == "u8")]


def sums_of(case: Case) -> np.ndarray:
    return np.tile(np.array(WIDE if case.x == "i16" else SUMS, np.int64 if case.x == "i16" else np.int32), len(SCALES))


def add(made: Batch, case: Case) -> None:
    """A product that is 0, with the sums as its bias: x is its zero point. Each channel has a scale of its own."""
    sums = sums_of(case)
    n, zero = len(sums), {"i8": -5, "u8": 7, "i16": 0}[case.x]
    scale = np.repeat(np.array(SCALES, np.float32), n // len(SCALES))
    x = made.feed(np.full((1, 1) if case.op == "matmul" else (1, 1, 1, 1), zero, numpy_dtype(case.x)), case.x)
    x.quantization = Quantization(np.array([0.5], np.float32), np.array([zero], np.int32))
    shape, axis = {"matmul": ((1, n), 1), "conv": ((n, 1, 1, 1), 0), "conv_transpose": ((1, n, 1, 1), 1)}[case.op]
    zeros = np.arange(n, dtype=np.int32) % 3
    w = made.main.constant(np.ones(shape, np.int8), quantization=Quantization(scale * np.float32(0.5), zeros, axis))
    y = emit(case.op, [x, w, made.main.constant(sums)], {"requant": case.mode, "output_dtype": case.y})[0]
    if case.y in ("i8", "u8", "i16"):
        y.quantization = Quantization(np.array([0.25], np.float32), np.array([0 if case.y == "i16" else 3], np.int32))
    y.name = f"y{len(made.main.outputs)}"
    made.main.outputs.append(y)


class Products(Reading):
    def _cost(self, step: Any) -> float:
        if op_of(step) in ("matmul", "conv", "conv_transpose"):
            self.look(step)
        return -1.0


class Tables(NamedTuple):
    info: Any
    scale: np.ndarray
    fixed: np.ndarray
    shift: np.ndarray
    w_zero: np.ndarray


def tables_of(step: Any) -> Tables:
    info, error = new_struct("linnet_requant"), ffi.new("linnet_error *")
    check(lib().linnet_step_get_requant(step, info), error)
    n = info.channels
    made = Tables(info, np.zeros(n, np.float32), *(np.zeros(n, np.int32) for _ in range(3)))
    info.capacity = n
    for field, array in zip(made._fields[1:], made[1:], strict=True):
        setattr(info, field, ffi.cast("float *" if field == "scale" else "int32_t *", array.ctypes.data))
    check(lib().linnet_step_get_requant(step, info), error)
    return made


class Kernel(NamedTuple):
    text: str
    output: str
    tables: Tables


def kernel(step: Any, number: int, language: str) -> Kernel:
    """A kernel whose threads are channels."""
    block = text_of(lib().linnet_step_result_source, step, options(language)[0])
    y, tables = tensor_of(step, 0, output=True), tables_of(step)
    space, head = {"c": ("", ""), "opencl": ("__global ", "__kernel"), "cuda": ("", 'extern "C" __global__')}[language]
    channel = {"c": "", "opencl": "long channel = get_global_id(0);", "cuda": "long channel = threadIdx.x;"}[language]
    given = ", long channel" if language == "c" else ""
    arrays = (
        f"{space}const ln_i{64 if tables.info.wide else 32} *sums, {space}const float *result_scale, "
        f"{space}const ln_i32 *result_fixed, "
        f"{space}const ln_i32 *result_shift, {space}{TYPES[y.dtype]} *y{given}"
    )
    unused = "(void)result_scale; (void)result_fixed; (void)result_shift;"
    text = (
        f"{head} void k{number}({arrays}) {{\n{channel} ln_i{64 if tables.info.wide else 32} sum = sums[channel];\n"
        f"{TYPES[y.dtype]} result;\n{unused}\n{block}y[channel] = result;\n}}\n"
    )
    return Kernel(text, ffi.string(y.name).decode(), tables)


def kernels_of(language: str) -> tuple[list[Kernel], dict[str, np.ndarray], str]:
    """The kernels of all cases, what the CPU computes, and the whole text."""
    made, kernels = Batch(), dict[str, Kernel]()
    for case in cases():
        add(made, case)

    def look(step: Any) -> None:
        found = kernel(step, int(ffi.string(tensor_of(step, 0, output=True).name)[1:]), language)
        kernels.setdefault(found.output, found)

    graph, feeds = finished(made)
    device = Products(look)
    want = linnet.Session(graph, devices=[device]).run(feeds)
    assert not device.faults, device.faults
    assert len(kernels) == len(cases())
    whole = "".join(k.text for k in kernels.values())
    prelude = text_of(lib().linnet_map_prelude, options(language)[0], whole.encode())
    assert ("ln_fixed_multiply_wide(" in prelude) and (
        "double" not in prelude.replace("cl_khr_fp64", "") or language != "c"
    )
    return [kernels[f"y{i}"] for i in range(len(cases()))], want, prelude + whole


def agree(language: str, start: Callable[[str], Callable[[str, list[np.ndarray], int], None]]) -> None:
    kernels, want, whole = kernels_of(language)
    call = start(whole)
    for i, (case, made) in enumerate(zip(cases(), kernels, strict=True)):
        got, sums = np.zeros_like(want[made.output]), sums_of(case)
        call(f"k{i}", [sums, made.tables.scale, made.tables.fixed, made.tables.shift, got], len(sums))
        same(got, want[made.output], f"{case}\n{made.text}")


def test_c_computes_the_same_bits(tmp_path: Path) -> None:
    def start(whole: str) -> Callable[[str, list[np.ndarray], int], None]:
        (tmp_path / "results.c").write_text(whole)
        library = ctypes.CDLL(str(compile_c(
            [tmp_path / "results.c"], tmp_path / "results.so", *UNDEFINED.split(), "-fno-sanitize-recover=all",
            "-shared", "-fPIC", "-ffp-contract=off",
        )))  # fmt: skip

        def call(name: str, arrays: list[np.ndarray], n: int) -> None:
            for channel in range(n):
                getattr(library, name)(*(ctypes.c_void_p(a.ctypes.data) for a in arrays), ctypes.c_long(channel))

        return call

    agree("c", start)


def test_opencl_computes_the_same_bits() -> None:
    need_opencl()

    def start(whole: str) -> Callable[[str, list[np.ndarray], int], None]:
        device = OpenCL(whole)
        return lambda name, arrays, n: device.run(name, [*arrays], [len(arrays) - 1], n)

    agree("opencl", start)


@pytest.mark.parametrize("language", COMPILERS)
def test_compilers_of_devices_accept_it(language: str, tmp_path: Path) -> None:
    need(COMPILERS[language][0])
    (tmp_path / "kernels.txt").write_text(kernels_of(language)[2])
    unused = ["-Wno-unused-function"] if language == "opencl" else []
    run([*COMPILERS[language], *unused, str(tmp_path / "kernels.txt"), "-o", str(tmp_path / "out")])


def test_tables() -> None:
    """What they contain, arrays that are too short or missing, prefixes, and steps that have none."""
    made, seen = Batch(), []
    add(made, Case("matmul", "u8", "i8", "float_rne"))
    add(made, Case("conv", "i16", "i16", "tflite"))
    add(made, Case("conv", "i8", "i32", "tflite"))
    floats = made.feed(np.ones((2, 2), np.float32), "f32")
    made.main.outputs.append(emit("matmul", [floats, floats], {})[0])
    made.main.outputs[-1].name = "floats"

    def look(step: Any) -> None:
        name = ffi.string(tensor_of(step, 0, output=True).name).decode()
        info, length = new_struct("linnet_requant"), ffi.new("size_t *")
        if name == "floats":
            assert lib().linnet_step_get_requant(step, info) == lib().linnet_step_result_source(
                step, ffi.NULL, ffi.NULL, 0, length
            )
            with pytest.raises(Failure):
                check(lib().linnet_step_get_requant(step, info), ffi.new("linnet_error *"))
            seen.append(name)
            return
        tables = tables_of(step)
        n = tables.info.channels
        assert (tables.w_zero == np.arange(n) % 3).all()
        short = np.full(5, -1, np.int32)
        info.capacity, info.w_zero = 3, ffi.cast("int32_t *", short.ctypes.data)
        check(lib().linnet_step_get_requant(step, info), ffi.new("linnet_error *"))
        assert short.tolist() == [0, 1, 2, -1, -1]
        got = tables.info
        seen.append((name, got.table, got.mode, got.wide, got.x_zero, got.y_zero, got.low, got.high))
        if got.table == 1:
            scales = np.repeat(np.array(SCALES, np.float32), n // len(SCALES)) * np.float32(0.5)
            np.testing.assert_array_equal(tables.scale, np.float32(0.5) * scales / np.float32(0.25))
        named, kept = options("c", prefix="my_")
        plain = text_of(lib().linnet_step_result_source, step, ffi.NULL)
        assert text_of(lib().linnet_step_result_source, step, named).replace("my_", "") == plain
        del kept

    graph, feeds = finished(made)
    device = Products(look)
    linnet.Session(graph, devices=[device]).run(feeds)
    assert not device.faults, device.faults
    assert set(seen) == {
        ("y0", 1, 0, 0, 7, 3, -128, 127), ("y1", 2, 1, 1, 0, 0, -32768, 32767), ("y2", 0, 1, 0, -5, 0, 0, 0), "floats",
    }  # fmt: skip
