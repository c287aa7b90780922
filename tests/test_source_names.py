"""Source text in which scales, zero points and constants are names (linnet_source_options.quantization_names, constant_names):
steps that differ in these numbers have one text, and the numbers in place of the names give the usual text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

import linnet
from linnet import Graph, ops
from linnet.ir.dtypes import Quantization
from linnet.ir.function import emit
from tests.capi import ffi, lib, new_struct
from tests.maps.graphs import Batch
from tests.opencl_device import opencl_device
from tests.py_device import op_of, tensor_of
from tests.test_map_source import Reading, finished, options, text_of

GRIDS = [(0.25, 3), (0.03125, -7), (2.0, 0)]


def grid(scale: float, zero: int) -> Quantization:
    return Quantization(np.array([scale], np.float32), np.array([zero], np.int32))


def real(value: float) -> str:
    return f"ln_from_bits_f({int(np.array([value], np.float32).view(np.uint32)[0]):#x}u)"


def constants_of(step: Any) -> dict[str, str]:
    """What stands for each constant without names: a constant has its type there, a factor of a multiplication has none."""
    program, numbers = new_struct("linnet_map"), dict[str, str]()
    if lib().linnet_step_get_map(step, program) != 0:
        return numbers  # a conversion
    numbers |= {f"real{i}": real(program.floats[i]) for i in range(program.float_count)}
    for i in range(program.integer_count):
        value = int(program.integers[i])
        numbers |= {f"=integer{i};": f"=(ln_i32){value % 2**32:#x}u;", f",integer{i}": f",{value}"}
    return numbers


class Texts(Reading):
    """Collects the text of each step of some ops, with names and with numbers, and its operands."""

    def __init__(self, *wanted: str) -> None:
        super().__init__(self.keep)
        self.wanted, self.seen = wanted, list[tuple[str, str, dict[str, str]]]()

    def _cost(self, step: Any) -> float:
        if op_of(step) in self.wanted:
            self.keep(step)
        return -1.0

    def keep(self, step: Any) -> None:
        write = lib().linnet_step_map_source if op_of(step) in ("map", "quantize", "dequantize") else None
        write = write or lib().linnet_step_result_source
        plain, (named, _) = text_of(write, step, ffi.NULL), options("c")
        named.quantization_names = named.constant_names = 1
        numbers: dict[str, str] = {}
        if write == lib().linnet_step_map_source:
            sides = [("x", i, tensor_of(step, i)) for i in range(lib().linnet_step_input_count(step))]
            for side, i, t in [*sides, ("y", 0, tensor_of(step, 0, output=True))]:
                if t.quant_count == 1:
                    numbers[f"{side}{i}_scale"] = real(t.scales[0])
                    numbers[f"{side}{i}_zero"] = str(t.zeros[0] if t.zeros else 0)
            numbers |= constants_of(step)
        else:
            info = ffi.new("linnet_requant *")
            info.struct_size = ffi.sizeof("linnet_requant")
            assert lib().linnet_step_get_requant(step, info) == 0
            numbers["result_zero"] = str(info.y_zero)
        self.seen.append((plain, text_of(write, step, named), numbers))


def look(made: Batch, *wanted: str) -> list[tuple[str, str, dict[str, str]]]:
    graph, feeds = finished(made)
    device = Texts(*wanted)
    linnet.Session(graph, devices=[device]).run(feeds)
    assert not device.faults, device.faults
    assert len({plain for plain, _, _ in device.seen}) == len(GRIDS), "the usual text has the numbers"
    assert len({named for _, named, _ in device.seen}) == 1, device.seen
    return device.seen


def test_maps() -> None:
    made = Batch()
    for (scale, zero), (other, second) in zip(GRIDS, GRIDS[::-1], strict=True):
        x = made.feed(np.arange(-5, 7, dtype=np.int8), "i8")
        x.quantization = grid(scale, zero)
        y = linnet.pointwise([x], lambda a: a.tanh(), ["i8"], dequantize=True, quantization=[grid(other, second)])
        y.name = f"y{len(made.main.outputs)}"
        made.main.outputs.append(y)
    for plain, named, numbers in look(made, "map"):
        assert set(re.findall(r"[xy]\d_\w+", named)) == set(numbers)
        for name, number in numbers.items():
            named = named.replace(name, number)
        assert named == plain


def test_constants() -> None:
    """Reals, integers and factors in fixed point; not f64 and i64, which no parameter of a kernel has."""
    made = Batch()
    for i in range(len(GRIDS)):
        x, n = (
            made.feed(np.linspace(-3, 3, 9).astype(np.float32), "f32"),
            made.feed(np.arange(9, dtype=np.int32), "i32"),
        )
        w = made.feed(np.arange(9, dtype=np.int64), "i64")
        y = linnet.pointwise([x], lambda a, i=i: a * (0.3 + i) + 0.5 * i)
        z = linnet.pointwise([n], lambda a, i=i: (a + (7 - 9 * i)).fixed_multiply(2**30 + i, -i))
        v = linnet.pointwise([w], lambda a: a + 5)
        for output in (y, z, v):
            output.name = f"y{len(made.main.outputs)}"
            made.main.outputs.append(output)
    graph, feeds = finished(made)
    device = Texts("map")
    linnet.Session(graph, devices=[device]).run(feeds)
    assert not device.faults, device.faults
    kinds = {"float": 2, "ln_i32": 3, "ln_i64": 0}  # names in the text of each map
    texts = {kind: [seen for seen in device.seen if f"{kind} ln_0=x0" in seen[0]] for kind in kinds}
    for kind, count in kinds.items():
        for plain, named, numbers in texts[kind]:
            assert len(set(re.findall(r"real\d+|integer\d+", named))) == count, named
            for name, number in numbers.items():
                named = named.replace(name, number)
            assert named == plain
    assert [len({named for _, named, _ in texts[kind]}) for kind in kinds] == [1, 1, 1]
    assert [len({plain for plain, _, _ in texts[kind]}) for kind in kinds] == [3, 3, 1]


def test_maps_that_differ_in_constants_share_a_program(tmp_path: Path) -> None:
    """But not those that differ in a short one, such as 0.5."""
    opencl_device()
    for folder, factors, programs in (("long", [0.3, 1.7, -2.1], 1), ("short", [0.5, 2.0, 4.0], 3)):
        graph = Graph()
        x = graph.placeholder("x", (3, 5))
        h = [ops.cumsum(linnet.pointwise([x], lambda a, f=f: a * f), axis=1) for f in factors]
        graph.signature("infer", {"x": x}, {f"y{i}": y for i, y in enumerate(h)})
        feeds = {"x": np.random.default_rng(4).standard_normal((3, 5)).astype(np.float32)}
        session = linnet.Session(graph, device=opencl_device(f"cache={tmp_path / folder}"))
        got, want = session.run(feeds), linnet.Session(graph).run(feeds)
        for name, value in want.items():
            np.testing.assert_allclose(got[name], value, rtol=1e-6)
        assert len(list((tmp_path / folder).iterdir())) == programs + 1, "and cumsum"


def test_quantize_and_dequantize() -> None:
    made = Batch()
    for scale, zero in GRIDS:
        y = emit("quantize", [made.feed(np.linspace(-3, 3, 9).astype(np.float32), "f32")], {"dtype": "i8"})[0]
        y.name, y.quantization = f"y{len(made.main.outputs)}", grid(scale, zero)
        made.main.outputs.append(y)
    for _, named, _ in look(made, "quantize"):
        assert re.search(r"ln_quantize_f\(ln_0,y0_scale,y0_zero,-128,127\)", named)
    made = Batch()
    for scale, zero in GRIDS:
        x = made.feed(np.arange(-5, 7, dtype=np.int8), "i8")
        x.quantization = grid(scale, zero)
        y = emit("dequantize", [x], {"dtype": "f32"})[0]
        y.name = f"y{len(made.main.outputs)}"
        made.main.outputs.append(y)
    for _, named, _ in look(made, "dequantize"):
        assert "x0_scale" in named and "x0_zero" in named


def test_quantize_with_operands_has_no_names() -> None:
    """Its scale and zero points are operands, not the output's quantization."""
    made = Batch()
    x, scale = made.feed(np.linspace(-3, 3, 9).astype(np.float32), "f32"), made.feed(np.ones(1, np.float32), "f32")
    y = emit("quantize", [x, scale, made.main.constant(np.full(1, 5, np.int8))], {"dtype": "i8"})[0]
    y.name = "y"
    made.main.outputs.append(y)
    graph, feeds = finished(made)
    device = Texts("quantize")
    linnet.Session(graph, devices=[device]).run(feeds)
    assert not device.faults and device.seen, device.faults
    for plain, named, _ in device.seen:
        assert plain == named and "1.0f" not in named and ",5,-128,127)" in named


def test_results_of_products() -> None:
    for mode in ("float_rne", "tflite", "tflite_single"):
        made = Batch()
        for scale, zero in GRIDS:
            x = made.feed(np.ones((2, 3), np.int8), "i8")
            x.quantization = grid(0.5, zero)
            w = made.main.constant(np.ones((3, 4), np.int8), quantization=grid(0.25, 0))
            y = emit("matmul", [x, w], {"requant": mode})[0]
            y.name, y.quantization = f"y{len(made.main.outputs)}", grid(scale, zero)
            made.main.outputs.append(y)
        for plain, named, numbers in look(made, "matmul"):
            assert named.replace("result_zero", numbers["result_zero"]) == plain != named


def test_layers_of_a_quantized_net_share_programs(tmp_path: Path) -> None:
    """Convolutions, residual sums and activations that differ only in their quantization, bit for bit the CPU's."""
    opencl_device()
    rng, graph = np.random.default_rng(3), Graph()
    h = x = graph.placeholder("x", (1, 8, 6, 6))
    for i in range(5):
        w = graph.constant((rng.standard_normal((8, 8, 1, 1)) * 2.0**i).astype(np.float32), f"w{i}")
        h = ops.conv(h, w, graph.constant(rng.standard_normal(8).astype(np.float32), f"b{i}")) + h
        h = ops.sigmoid(h) * h
    graph.signature("infer", {"x": x}, {"y": h})
    feeds = {"x": rng.standard_normal((1, 8, 6, 6)).astype(np.float32)}
    made = linnet.quantize(graph, [feeds], dtype="i8", effort="fast")
    session = linnet.Session(made, device=opencl_device(f"cache={tmp_path}"))
    assert session.plan_info["fallbacks"] == 0
    np.testing.assert_array_equal(session.run(feeds)["y"], linnet.Session(made).run(feeds)["y"])
    steps = [step for step in session.steps if step.op != "transfer"]
    assert len(steps) == 6 and len(list(tmp_path.iterdir())) == 4, "quantize, and the first, middle and last layers"
