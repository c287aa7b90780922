"""Memory, queues and graphs of liblinnet_cuda on the stand-ins for CUDA's driver: inputs and outputs that are copied or go
through pinned memory, arrays of the device, runs that overlap, waits with a limit, two sessions at once, and what is missing."""
# Dear: more blocks than 65535 along an axis need as many blocks.

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import linnet
from tests.cuda_device import clean, cuda_device
from tests.cuda_rig import CUDA, NVRTC, environment, standin
from tests.graphs import in_integers
from tests.tree import ROOT

pytestmark = pytest.mark.usefixtures("few_objects")

RNG = np.random.default_rng(5)
WEIGHTS = [0.1 * RNG.standard_normal((96, 96)).astype(np.float32) for _ in range(3)]
X = RNG.standard_normal((7, 96)).astype(np.float32)


@pytest.fixture(autouse=True)
def nothing_wrong() -> Iterator[None]:
    """Each test calls the driver rightly and leaves nothing."""
    with clean():
        yield
        gc.collect()


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


def same(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


def alone(x: np.ndarray = X) -> np.ndarray:
    return linnet.Session(graph_of()).run({"x": x})["y"]


@pytest.mark.parametrize("options", ["memory=copied", "memory=pinned", "graphs=off", "memory=copied,graphs=off"])
def test_each_kind_of_memory_gives_the_same(options: str) -> None:
    session = linnet.Session(graph_of(), device=cuda_device(options))
    for rows in (7, 3, 7):  # another number of rows is another plan, with memory of its own
        for _ in range(3):
            same(session.run({"x": X[:rows]})["y"], alone(X[:rows]))
    with pytest.raises(linnet.UsageError):
        session.run({"x": X[:, :5]})
    same(session.run({"x": X})["y"], alone())


def test_repeated_runs_are_graphs() -> None:
    counted = {}
    for options in ("graphs=on", "graphs=off"):
        session = linnet.Session(graph_of(), device=cuda_device(options))
        before = standin().count("graphs")
        results = [session.run({"x": X})["y"] for _ in range(5)]
        counted[options] = standin().count("graphs") - before
        assert all(np.array_equal(result, results[0]) for result in results)
    assert counted == {"graphs=on": 4, "graphs=off": 0}


def test_steps_of_the_cpu_between_those_of_the_device() -> None:
    graph = graph_of(also_on_the_cpu=True)
    session = linnet.Session(graph, device=cuda_device(), placement={"map": "cpu"})
    for _ in range(3):
        got = session.run({"x": X})
        same(got["y"], alone())
        np.testing.assert_allclose(got["z"], np.exp(X), rtol=1e-6)
    assert {step.device for step in session.steps if step.op == "map"} == {"cpu"}


@pytest.mark.parametrize("order", [0, 1, 9])
def test_values_on_the_device_and_runs_that_overlap(order: int) -> None:
    device = cuda_device()
    session = linnet.Session(graph_of(), device=device)
    x, y = linnet.DeviceArray(device, X.shape), linnet.DeviceArray(device, X.shape)
    x.write(X)
    binding = session.bind({"x": x}, {"y": y})
    with environment(LINNET_STANDIN_ORDER=order):
        for _ in range(4):
            binding.submit()
        binding.wait(timeout=30)
        same(y.read(), alone())
        second = session.bind({"x": y})  # one model's result is the next one's input
        second.submit()
        same(second.wait()["y"], alone(alone()))


def test_a_wait_with_a_limit_ends_and_can_be_repeated() -> None:
    device = cuda_device()
    session = linnet.Session(graph_of(), device=device)
    x = linnet.DeviceArray(device, X.shape)
    x.write(X)
    binding = session.bind({"x": x})
    same(binding.run()["y"], alone())
    standin().hold(1 << 30)
    binding.submit()
    try:
        with pytest.raises(linnet.DeadlineExceeded):
            binding.wait(timeout=0.05)
    finally:
        standin().hold(0)
    same(binding.wait(timeout=30)["y"], alone())
    same(session.run({"x": X})["y"], alone())


def test_two_sessions_of_two_threads() -> None:
    device, model = cuda_device(), linnet.Model(graph_of())
    problems = []

    def work(rows: int) -> None:
        try:
            session = linnet.Session(model, device=device)
            want = alone(X[:rows])
            for _ in range(10):
                same(session.run({"x": X[:rows]})["y"], want)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in (3, 7, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


def test_a_session_that_is_freed_while_it_has_work() -> None:
    session = linnet.Session(graph_of(), device=cuda_device())
    binding = session.bind({"x": session.empty("x", X.shape)})
    binding.run()
    for _ in range(2):
        binding.submit()
    del binding, session
    gc.collect()


@pytest.mark.parametrize("dtype", ["f16", "i8", "i16"])
def test_other_formats(dtype: str) -> None:
    feeds = {"x": X}
    graph = in_integers(graph_of(), [feeds], dtype)
    want = linnet.Session(graph).run(feeds)["y"].astype(np.float64)
    session = linnet.Session(graph, device=cuda_device())
    for _ in range(3):
        got = session.run(feeds)["y"].astype(np.float64)
        assert np.abs(got - want).max() <= (2e-2 if dtype == "f16" else 1e-3) * np.ptp(want)


def test_an_index_out_of_range_is_named() -> None:
    graph = linnet.Graph()
    x, rows = graph.placeholder("x", (7, 96)), graph.placeholder("rows", (2,), "i64")
    graph.signature("infer", {"x": x, "rows": rows}, {"y": linnet.ops.gather(x, rows)})
    session = linnet.Session(graph, device=cuda_device())
    for rows_of in ([1, 2], [3, 7], [6, 0], [0, 1]):
        feeds = {"x": X, "rows": np.array(rows_of, np.int64)}
        if max(rows_of) < 7:
            np.testing.assert_array_equal(session.run(feeds)["y"], X[rows_of])
            continue
        with pytest.raises(linnet.Error, match="the index 7 is out of range for an axis of size 7"):
            session.run(feeds)


def test_variables_stay_on_the_device() -> None:
    def trained(**options: object) -> np.ndarray:
        graph = linnet.Graph()
        x, w = graph.placeholder("x", (7, 96)), graph.variable("w", WEIGHTS[0])
        loss = ((x @ w) * (x @ w)).mean()
        graph.signature("train", {"x": x}, {"loss": loss}, updates=linnet.SGD(0.01).minimize(loss))
        session = linnet.Session(graph, "train", **options)
        for _ in range(5):
            session.run({"x": X})
        return np.array(session.variables["w"])

    np.testing.assert_allclose(trained(device=cuda_device()), trained(), rtol=0, atol=1e-5)


def test_more_blocks_than_65535_along_any_axis() -> None:
    """A product with 300000 rows of 4 columns, and with as many matrices."""
    for shape, other in (((300000, 2), (2, 4)), ((70000, 2, 2), (70000, 2, 2))):
        graph = linnet.Graph()
        a, b = graph.placeholder("a", shape), graph.placeholder("b", other)
        graph.signature("infer", {"a": a, "b": b}, {"y": a @ b})
        feeds = {"a": RNG.standard_normal(shape).astype(np.float32), "b": RNG.standard_normal(other).astype(np.float32)}
        got = linnet.Session(graph, device=cuda_device()).run(feeds)["y"]
        np.testing.assert_allclose(got, feeds["a"] @ feeds["b"], rtol=1e-4, atol=1e-5)


def test_a_device_that_is_full() -> None:
    with environment(LINNET_STANDIN_MEGABYTES=1):
        graph = linnet.Graph()
        x = graph.placeholder("x", (1024, 1024))
        graph.signature("infer", {"x": x}, {"y": linnet.ops.exp(x)})
        with pytest.raises(linnet.ResourceError, match="memory"):
            linnet.Session(graph, device=cuda_device()).run({"x": np.zeros((1024, 1024), np.float32)})


def test_an_option_that_is_not_known_names_those_there_are() -> None:
    cuda_device()
    with pytest.raises(linnet.UsageError, match=r"memory=copied\|pinned"):
        linnet.load_device("cuda:0,memory=fast")


# ---- what is there ---------------------------------------------------------------------------------------------------


def listed(**variables: str) -> str:
    """What `linnet devices` prints of CUDA, in a process with these variables."""
    code = "import linnet\nfor d in linnet.devices('cuda'): print(d.name, d.hardware, d.missing, sep='|')"
    names = {"LINNET_CUDA": str(CUDA), "LINNET_NVRTC": str(NVRTC), **variables}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **names}, capture_output=True, text=True,
                          timeout=120, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_gpus_are_two_devices() -> None:
    assert [line.split("|")[0] for line in listed(LINNET_STANDIN_DEVICES="2").splitlines()] == ["cuda:0", "cuda:1"]


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"LINNET_CUDA": "/nowhere/libcuda.so"}, "LINNET_CUDA names a library that cannot be opened"),
        ({"LINNET_CUDA": str(NVRTC)}, "the CUDA driver has no cu"),
        ({"LINNET_STANDIN_DEVICES": "0"}, "cannot start"),
        ({"LINNET_NVRTC": "/nowhere/libnvrtc.so"}, "LINNET_NVRTC names a library that cannot be opened"),
        ({"LINNET_NVRTC": str(CUDA)}, "NVRTC has no nvrtc"),
    ],
)
def test_what_is_missing_is_said(variables: dict[str, str], words: str) -> None:
    assert words in listed(**variables)
