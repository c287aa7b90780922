"""Cases of one op for tests of the OpenCL device, or another: all in one graph, compared with the CPU. Floats within a fraction
of the range, integers bit for bit. Sizes are arguments of a program, so many shapes take few programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import linnet
from linnet.facade import Graph
from linnet.ir.dtypes import Quantization, numpy_dtype
from linnet.ir.function import emit
from linnet.session.device import Device
from tests.opencl_device import opencl_device

FLOATS = {"f32": 1e-5, "f16": 2e-3, "bf16": 1.6e-2, "f64": 1e-14}
INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool")


def bf16(array: np.ndarray) -> np.ndarray:
    return (np.asarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16).view(numpy_dtype("bf16"))


def widened(array: np.ndarray, dtype: str) -> np.ndarray:
    return array.astype(np.float32) if dtype == "bf16" else array


def values(dtype: str, *shape: int, most: int = 1000) -> np.ndarray:
    """Seeded by the shape."""
    rng = np.random.default_rng(shape)
    if dtype in FLOATS:
        floats = rng.standard_normal(shape).astype(np.float32)
        return bf16(floats) if dtype == "bf16" else floats.astype(numpy_dtype(dtype))
    kind = numpy_dtype(dtype)
    if kind == np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    limits = np.iinfo(kind)
    return rng.integers(max(limits.min, -most), min(limits.max, most), shape, dtype=kind, endpoint=True)


class Cases:
    """A graph of independent ops, each with a fed operand."""

    def __init__(self, op: str, device_of: Callable[[str], Device] = opencl_device) -> None:
        self.device_of = device_of
        self.op, self.graph, self.feeds = op, Graph(), dict[str, np.ndarray]()
        self.main = self.graph.function()
        self.notes: list[tuple[str, str]] = []  # the dtype and the description of each output
        self.steps = 0

    def add(self, x: np.ndarray, dtype: str, *constants: np.ndarray | None, outputs: int = 1,
            quantization: Quantization | None = None, dtypes: tuple[str, ...] = (), more: Sequence[np.ndarray | None] = (),
            **attributes: Any) -> None:  # fmt: skip
        """`dtypes`: of the outputs, where the op leaves them open. `more`: further fed operands, of the same dtype or i32."""
        name, main = f"x{len(self.feeds)}", self.main
        fed = main.placeholder(name, dtype, x.shape)
        fed.quantization = quantization
        self.feeds[name] = x
        inputs = [fed, *(None if c is None else main.constant(c, f"{name}_{i}") for i, c in enumerate(constants))]
        for array in more:
            also = None
            if array is not None:
                own = f"x{len(self.feeds)}"
                also = main.placeholder(own, "i32" if array.dtype == np.int32 else dtype, array.shape)
                self.feeds[own] = array
            inputs.append(also)
        kept = [quantization] if quantization is not None and not dtypes else []
        made = emit(self.op, inputs, attributes, outputs, quantization=kept, dtypes=dtypes)
        self.notes += [(t.dtype, f"{x.shape} {dtype} {attributes} output {i}") for i, t in enumerate(made)]
        main.outputs += made
        self.steps += 1

    def session(self, options: str = "", precision: str = "f32") -> linnet.Session:
        self.graph.signature("infer", self.main)
        return linnet.Session(self.graph, devices=[self.device_of(options)], precision=precision)

    def check(self, options: str = "", tolerance: float = 0, kernel: str = "", precision: str = "f32") -> None:
        """Every step of the op runs on the device, by the kernel if it is given; results agree with the CPU's."""
        device, session = self.device_of(options), self.session(options, precision)
        ran = [step for step in session.steps if step.op == self.op]
        assert {step.device for step in ran} == {device.name}, [s.name for s in ran if s.device != device.name]
        assert not kernel or {step.kernel for step in ran} == {kernel}
        assert len(ran) == self.steps
        got, want = session.run(self.feeds), linnet.Session(self.graph).run(self.feeds)
        for (dtype, note), name in zip(self.notes, want, strict=True):
            a, b = widened(np.asarray(got[name]), dtype), widened(np.asarray(want[name]), dtype)
            assert a.shape == b.shape and a.dtype == b.dtype, note
            if dtype not in FLOATS:
                np.testing.assert_array_equal(a, b, err_msg=note)
                continue
            a, b = a.astype(np.float64), b.astype(np.float64)
            span = float(np.abs(b[np.isfinite(b)]).max(initial=1e-6))
            np.testing.assert_allclose(a, b, rtol=0, atol=(tolerance or FLOATS[dtype]) * span, err_msg=note)
