"""Whole models and a training step on a device against the CPU, for the tests of OpenCL and of CUDA."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import linnet
from linnet.session.device import Device
from tests import nets, zoo
from tests.graphs import in_integers

# Largest difference as a fraction of an output's range. Where a float on its way to an integer lies between two of them, a
# difference in its last bit becomes a step of the integer.
ALLOWED = {"f32": 1e-3, "f16": 2e-2, "i16": 2e-3, "i8": 5e-2}
DTYPES = tuple(ALLOWED)
# Where rounding to the format changes a result by more than that, the device may be as far from the float model as this
# multiple of the CPU's own distance.
OF_THE_CPUS_ERROR = 1.25


@functools.lru_cache(maxsize=1)
def float_graph(name: str) -> tuple[linnet.Graph, dict[str, np.ndarray]]:
    if name in nets.NETS:
        return linnet.from_onnx(nets.NETS[name]()), nets.inputs()
    path = zoo.at_hand(lambda: zoo.fetch(name))
    return linnet.from_onnx(path, input_shapes=zoo.input_shapes(name)), zoo.inputs(name)


def compare_model(name: str, dtype: str, device: Device) -> None:
    graph, feeds = float_graph(name)
    floats = graph
    if dtype != "f32":
        if len(graph.functions) > 1:
            pytest.skip("graphs with branches or loops are not quantized")
        graph = in_integers(graph, [feeds], dtype)
    model = linnet.Model(graph)
    try:
        want = linnet.Session(model).run(feeds)
    except linnet.Error as error:
        pytest.skip(f"the CPU does not run it: {error}")
    session = linnet.Session(model, device=device)
    steps = [step for step in session.steps if step.op != "transfer"]
    fallen = [step.name for step in steps if step.placed == "cannot"]
    most = 0.05 if name in nets.NETS else 0.2
    assert len(fallen) <= max(1, most * len(steps)), f"{len(fallen)} of {len(steps)} steps run on the CPU: {fallen}"
    for _ in range(3):  # the third run is a graph's
        got = session.run(feeds)
        for output, value in want.items():
            assert got[output].shape == value.shape and got[output].dtype == value.dtype
            if not value.size:
                continue
            if dtype == "f32" and value.dtype.kind in "iub":
                np.testing.assert_array_equal(got[output], value, output)
                continue
            wide, held = value.astype(np.float64), got[output].astype(np.float64)
            span = max(float(np.ptp(wide)), float(np.abs(wide).max()), 1e-6)
            worst = float(np.abs(held - wide).max())
            if worst > ALLOWED[dtype] * span and dtype != "f32":
                truth = linnet.Session(floats).run(feeds)[output].astype(np.float64)
                ours, cpus = float(np.abs(held - truth).max()), float(np.abs(wide - truth).max())
                assert ours <= OF_THE_CPUS_ERROR * cpus, (
                    f"{output}: {ours / span:.1e} from f32, the CPU {cpus / span:.1e}"
                )
                continue
            assert worst <= ALLOWED[dtype] * span, f"{output} differs by {worst / span:.1e} of its range"


def compare_training_step(device: Device) -> None:
    """The losses and the new variables agree after ten steps of Adam. tests/small_nets.py has whole nets."""

    def losses(**options: object) -> tuple[list[float], np.ndarray]:
        rng = np.random.default_rng(3)
        graph = linnet.Graph()
        x, target = graph.placeholder("x", (16, 12)), graph.placeholder("target", (16, 4))
        hidden = linnet.ops.tanh(x @ graph.variable("w", rng.standard_normal((12, 8)).astype(np.float32)))
        error = hidden @ graph.variable("v", rng.standard_normal((8, 4)).astype(np.float32)) - target
        loss = (error * error).mean()
        graph.signature("train", {"x": x, "target": target}, {"loss": loss}, updates=linnet.Adam(0.01).minimize(loss))
        session = linnet.Session(graph, "train", **options)
        feeds = {"x": rng.standard_normal((16, 12)), "target": rng.standard_normal((16, 4))}
        feeds = {name: value.astype(np.float32) for name, value in feeds.items()}
        if options:
            assert {step.device for step in session.steps if step.op == "matmul"} == {device.name}
        return [float(session.run(feeds)["loss"]) for _ in range(10)], np.array(session.variables["w"])

    (got, w), (want, v) = losses(device=device), losses()
    np.testing.assert_allclose(got, want, rtol=1e-5)
    np.testing.assert_allclose(w, v, rtol=0, atol=1e-5)
