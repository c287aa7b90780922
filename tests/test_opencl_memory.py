"""Memory of the host and of the OpenCL device: constants that are read in the model's file, and inputs and outputs that are
copied, go through pinned memory, or are used in place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import linnet
from tests.opencl_device import opencl_device

RNG = np.random.default_rng(5)
WEIGHTS = [RNG.standard_normal((96, 96)).astype(np.float32) for _ in range(3)]
X = RNG.standard_normal((7, 96)).astype(np.float32)


def graph_of(also_on_the_cpu: bool = False) -> linnet.Graph:
    graph = linnet.Graph()
    x = y = graph.placeholder("x", (None, 96))
    for w in WEIGHTS:
        y = y @ graph.constant(w)
    outputs = {"y": y}
    if also_on_the_cpu:
        outputs["z"] = linnet.ops.exp(x)
    graph.signature("infer", {"x": x}, outputs)
    return graph


def transfers(session: linnet.Session) -> int:
    return sum(step.op == "transfer" for step in session.steps)


def test_constants_take_no_memory_on_a_device_that_shares_it(tmp_path: Path) -> None:
    device = opencl_device()
    graph_of().save(tmp_path / "model.lnt")
    model = linnet.Model(tmp_path / "model.lnt")
    alone = linnet.Session(model).run({"x": X})["y"]
    sessions = [linnet.Session(model, device=device) for _ in range(2)]
    for session in sessions:
        np.testing.assert_allclose(session.run({"x": X})["y"], alone, rtol=1e-4, atol=1e-3)
    # The last constant of a file has no padding behind it, so it is copied.
    assert sessions[0].memory["devices"] < 2 * WEIGHTS[0].nbytes
    del session, sessions, model
    again = linnet.Session(tmp_path / "model.lnt", device=device)
    np.testing.assert_allclose(again.run({"x": X})["y"], alone, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("memory", ["copied", "pinned", "shared"])
def test_each_kind_of_memory_gives_the_same(memory: str) -> None:
    device = opencl_device(f"memory={memory}")
    alone = linnet.Session(graph_of())
    session = linnet.Session(graph_of(), device=device)
    for rows in (7, 3, 7):  # another number of rows is another plan, with memory of its own
        want = alone.run({"x": X[:rows]})["y"]
        for _ in range(2):
            np.testing.assert_allclose(session.run({"x": X[:rows]})["y"], want, rtol=1e-4, atol=1e-3)
    assert transfers(session) == (1 if memory == "shared" else 3)  # with the wait
    with pytest.raises(linnet.UsageError):
        session.run({"x": X[:, :5]})
    np.testing.assert_allclose(session.run({"x": X})["y"], alone.run({"x": X})["y"], rtol=1e-4, atol=1e-3)


def test_shared_memory_that_the_cpu_uses_too_is_transferred() -> None:
    """The host cannot use a part of the memory while the device has it."""
    graph = graph_of(also_on_the_cpu=True)
    session = linnet.Session(graph, device=opencl_device("memory=shared"), placement={"map": "cpu"})
    got, want = session.run({"x": X}), linnet.Session(graph).run({"x": X})
    np.testing.assert_allclose(got["y"], want["y"], rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(got["z"], want["z"], rtol=1e-6)
    assert {step.device for step in session.steps if step.op == "map"} == {"cpu"}
    assert transfers(session) > 1


def test_memory_on_the_device_with_shared_inputs() -> None:
    device = opencl_device("memory=shared")
    session = linnet.Session(graph_of(), device=device)
    x, y = linnet.DeviceArray(device, X.shape), linnet.DeviceArray(device, X.shape)
    x.write(X)
    binding = session.bind({"x": x}, {"y": y})
    for _ in range(2):
        binding.submit()
    binding.wait()
    np.testing.assert_allclose(y.read(), linnet.Session(graph_of()).run({"x": X})["y"], rtol=1e-4, atol=1e-3)


def test_an_option_that_is_not_known_names_those_there_are() -> None:
    opencl_device()
    with pytest.raises(linnet.UsageError, match=r"memory=copied\|pinned\|shared"):
        linnet.load_device("opencl:0,memory=fast")
