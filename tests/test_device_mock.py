"""Models with random halves of their nodes on an asynchronous device (tests/ext/mock_device.c) give the CPU's results.
Handles are no addresses, work is late, layouts are private, and every callback can fail."""
# Dear: every callback fails once, in each kind of device.

from __future__ import annotations

import ctypes
import functools
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import linnet
from linnet import ops
from linnet.session.device import Device
from tests import nets, zoo
from tests.capi import Allocator, Chain, ffi
from tests.graphs import in_integers
from tests.native import ROOT, SANITIZED, build, compile_c, run
from tests.test_control_flow import HEAD, RECURRENCE
from tests.test_device_bodies import nested, recurrent

pytestmark = pytest.mark.usefixtures("few_objects")

EXT = ROOT / "tests" / "ext"
# What a test may vary besides the seed; the first one is the plain device.
KINDS: dict[str, dict[str, int]] = {
    "plain": {},
    "claims": {"claims": 1, "epilogues": 1, "padding": 96, "in_place": 1},
    "layouts": {"layouts": 1, "claims": 1, "visible": 1, "in_place": 1},
    "shared": {"shared": 1, "epilogues": 1, "largest": 1 << 22},
    "in turns": {"shared": 1, "lends": 1, "pinned": 1, "in_file": 1, "epilogues": 1, "padding": 32},
    "refusals": {"refuses": 1, "claims": 1, "epilogues": 1},
    "two devices": {"reaches": 1, "layouts": 1, "claims": 1, "padding": 32, "refuses": 1},
}
FLOATS = {"rtol": 2e-3, "atol": 2e-4}


class Mock:
    """The library of the device, its settings and its counters."""

    def __init__(self, path: Path) -> None:
        self.devices = [Device(path), Device(path)]
        library = ctypes.CDLL(str(path))
        self._number = library.mock_number
        self._number.argtypes, self._number.restype = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int64], ctypes.c_int64
        self._name = library.mock_callback_name
        self._name.restype = ctypes.c_char_p
        self.callbacks = [name.decode() for name in iter(functools.partial(self._next, iter(range(99))), None)]

    def _next(self, numbers: Iterator[int]) -> Any:
        return self._name(next(numbers))

    def set(self, **numbers: int) -> None:
        for name, value in numbers.items():
            assert self._number(name.encode(), 1, value) != -1 or value >= 0, name

    def __getitem__(self, name: str) -> int:
        return int(self._number(name.encode(), 0, 0))

    def reset(self, kind: str = "plain", seed: int = 1, **more: int) -> list[Device]:
        """Returns the devices that the kind uses; each takes the same share of the nodes."""
        names = (
            "delay visible shared epilogues padding largest claims layouts reaches refuses late in_place in_file lends"
        )
        names += (
            " pinned fail_at failed turns pinned_bytes misuse uploads variables downloads copies runs fused private"
        )
        names += " overwritten waits overlaps"
        self.set(**dict.fromkeys(names.split(), 0))
        two = kind == "two devices"
        self.set(seed=seed, share=5 if two else 8, delay=40, **KINDS[kind])
        self.set(**more)
        return self.devices if two else self.devices[:1]

    def nothing_left(self) -> None:
        gc.collect()
        assert (self["live"], self["live_bytes"], self["pinned_bytes"], self["misuse"]) == (0, 0, 0, 0)


def _sources(*names: str) -> list[Path]:
    return [EXT / name for name in ("mock_device.c", "mock_queue.c", *names)]


def _options(kind: str, *more: str) -> list[str]:
    folder = build(kind, "linnet")
    return [
        f"-I{ROOT / 'runtime_c' / 'include'}", f"-L{folder}", "-llinnet", f"-Wl,-rpath,{folder}", "-pthread", *more
    ]  # fmt: skip


@pytest.fixture(scope="module")
def mock(tmp_path_factory: pytest.TempPathFactory) -> Mock:
    path = tmp_path_factory.mktemp("mock") / "libmock.so"
    return Mock(compile_c(_sources(), path, "-O1", "-shared", "-fPIC", *_options("release")))


@functools.cache
def _trained() -> bytes:
    """A convolution and two dense layers; signatures "infer" and "train" (momentum), over the same variables."""
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (4, 3, 8, 8))
    kernel, w = (
        graph.variable("kernel", linnet.init.glorot((8, 3, 3, 3))),
        graph.variable("w", linnet.init.he((288, 16))),
    )
    v = graph.variable("v", linnet.init.he((16, 5)))
    y = ops.tanh(ops.conv(x, kernel)).reshape(4, 288)
    y = ops.softmax(ops.tanh(y @ w) @ v, axis=1)
    graph.signature("infer", {"x": x}, {"y": y})
    loss = (y * y).mean()
    graph.signature("train", {"x": x}, {"loss": loss}, updates=linnet.Momentum(0.1).minimize(loss))
    return graph.to_bytes()


@functools.cache
def _model(name: str, dtype: str) -> tuple[linnet.Model, dict[str, np.ndarray]]:
    if name in nets.NETS:
        graph, feeds = linnet.from_onnx(nets.NETS[name]()), nets.inputs()
    else:
        path = zoo.at_hand(lambda: zoo.fetch(name))
        graph, feeds = linnet.from_onnx(path, input_shapes=zoo.input_shapes(name)), zoo.inputs(name)
    if dtype != "f32":
        if len(graph.functions) > 1:
            pytest.skip("graphs with branches or loops are not quantized")
        graph = in_integers(graph, [feeds], dtype)
    return linnet.Model(graph), feeds


def _compare(got: dict[str, np.ndarray], want: dict[str, np.ndarray], exact: bool) -> None:
    assert set(got) == set(want)
    for name, value in want.items():
        if exact or value.dtype.kind in "iub":
            np.testing.assert_array_equal(got[name], value, name)
        else:
            spread = float(np.ptp(value)) if value.size else 0.0
            np.testing.assert_allclose(
                got[name], value, rtol=FLOATS["rtol"], atol=FLOATS["atol"] * max(spread, 1e-6), err_msg=name
            )


def _halves(mock: Mock, name: str, dtype: str, kind: str, seed: int, **more: int) -> int:
    """Returns the number of steps that ran on a device. A model may be one step: a loop, or what its shapes depend on."""
    model, feeds = _model(name, dtype)
    alone = linnet.Session(model, threads=2).run(feeds)
    session = linnet.Session(model, threads=2, devices=mock.reset(kind, seed, **more))
    where = [step.device for step in session.steps]
    used = set(where)
    assert len(where) < 8 or len(used) > 1, where
    assert len(where) < 60 or used == {"cpu", "mock"} | ({"mock2"} if kind == "two devices" else set()), where
    for _ in range(2):
        _compare(session.run(feeds), alone, exact=False)
    runs = mock["runs"]
    assert len(where) < 8 or (runs > 0 and mock["uploads"] + mock["copies"] > 0)
    del session
    mock.nothing_left()
    return runs


@pytest.mark.parametrize("kind", ["claims", "layouts", "two devices"])
def test_claims_that_are_refused_when_they_are_prepared(kind: str, mock: Mock) -> None:
    """The session makes a plan of its own, in which the other steps are still on the device."""
    for seed in range(3):
        _halves(mock, "ppocr_cls", "f32", kind, seed, late=1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "dtype"), [("ppocr_cls", "f32"), ("ppocr_cls", "i8")])
def test_random_halves_of_a_model(name: str, dtype: str, kind: str, mock: Mock) -> None:
    assert _halves(mock, name, dtype, kind, seed=len(kind)) > 0


@pytest.mark.soak
@pytest.mark.parametrize("dtype", ["f32", "i16", "i8"])
@pytest.mark.parametrize("name", [*zoo.names(), *nets.NETS])
def test_random_halves_of_all_models(name: str, dtype: str, mock: Mock) -> None:
    assert sum(_halves(mock, name, dtype, kind, seed) for seed, kind in enumerate(KINDS)) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_trains_alike(kind: str, mock: Mock) -> None:
    """Losses and variables of three steps; the variables stay on the device and go up only after they have changed."""
    data, feeds = _trained(), None
    sessions = []
    for devices in ([], mock.reset(kind, 3, share=7 if kind == "two devices" else 11)):
        model = linnet.Model(data)
        session = linnet.Session(model, "train", threads=2, devices=devices, store=linnet.Store(model))
        rng = np.random.default_rng(0)
        feeds = {
            spec.name: rng.integers(0, 2, spec.shape).astype(spec.dtype)
            if spec.dtype.startswith(("i", "u"))
            else rng.standard_normal(spec.shape).astype(np.float32)
            for spec in session.inputs
        }
        results = [session.run(feeds) for _ in range(3)]
        sessions.append((results, {name: np.array(session.variables[name]) for name in session.variables}))
    assert mock["runs"] > 0
    for got, want in zip(sessions[1][0], sessions[0][0], strict=True):
        _compare(got, want, exact=False)
    _compare(sessions[1][1], sessions[0][1], exact=False)
    del session, model
    mock.nothing_left()


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=pytest.mark.more) if k in ("claims", "layouts", "shared") else k for k in KINDS]
)
def test_views_leave_the_device(kind: str, mock: Mock) -> None:
    """Results, and new values of variables, that are views: of a step's result, of another view, of a variable. The
    constant `c` is an operand of several steps, and claims pack some of them only."""
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (4, 6))
    a = graph.variable("a", np.arange(24, dtype=np.float32).reshape(4, 6))
    b = graph.variable("b", np.zeros(24, np.float32))
    c = graph.constant(np.full((4, 6), 0.5, np.float32), "c")
    y = ops.tanh(x * a)
    named = {
        "flat": y.reshape(24),
        "rows": (y * c)[1:3].reshape(12),
        "turned": ops.transpose(ops.exp(y - c), (1, 0)).reshape(3, 8),
        "both": (y + c).reshape(2, 12),
    }
    named["lone"] = ops.transpose(x.reshape(1, 4, 6), (1, 0, 2)) + named["flat"].reshape(4, 1, 6)
    graph.signature("infer", {"x": x}, named, updates={b: a.reshape(24), a: (a + y * c).reshape(24).reshape(4, 6)})
    data = graph.to_bytes()
    feeds = {"x": np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)}
    for seed in range(6):
        results = []
        for devices in ([], mock.reset(kind, seed, share=8 if seed % 2 else 16)):
            model = linnet.Model(data)
            session = linnet.Session(model, devices=devices, store=linnet.Store(model))
            results.append([session.run(feeds) for _ in range(3)])
            results[-1].append({name: np.array(session.variables[name]) for name in ("a", "b")})
        assert mock["runs"] > 0
        for got, want in zip(results[1], results[0], strict=True):
            _compare(got, want, exact=False)
        del session, model
        mock.nothing_left()


# ---- bodies of loops and branches ----------------------------------------------------------------------------------


@functools.cache
def _loops() -> tuple[linnet.Model, dict[str, np.ndarray]]:
    """A loop over rows with a branch and a loop in its body, then a product."""
    rng = np.random.default_rng(4)
    text = RECURRENCE % ", ".join(f"{v:.3f}" for v in rng.standard_normal(64))
    feeds = {"x": rng.standard_normal((9, 4, 8)), "h": rng.standard_normal((4, 8))}
    return linnet.Model(linnet.from_onnx(onnx.parser.parse_model(HEAD + text))), {
        name: value.astype(np.float32) for name, value in feeds.items()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_random_halves_of_bodies(kind: str, mock: Mock) -> None:
    """Each seed places other nodes of the bodies. The plan counts what the device allocates, and a trace takes the times."""
    model, feeds = _loops()
    alone = linnet.Session(model, threads=2).run(feeds)
    content = model._content
    assert content is not None
    for seed in range(3):
        devices = mock.reset(kind, seed, delay=0, share=5 if kind == "two devices" else 12)
        session = linnet.Session(model, threads=2, devices=devices, trace=seed % 2 == 1)
        for _ in range(2):
            _compare(session.run(feeds), alone, exact=False)
        assert mock["runs"] > 9  # the loop has 9 trips, so most of the runs are in its body
        del session
        mock.nothing_left()
        allocator, pointers = Allocator(), ffi.new("const linnet_device *[]", [device.pointer for device in devices])
        with Chain(content, allocator, copy=False) as chain:
            shapes = {name: value.shape for name, value in feeds.items()}
            chain.make_store().make_plan(
                allocator=allocator.struct, devices=pointers, device_count=len(devices), shapes=shapes
            )
            chain.make_session()
            held = mock["live_bytes"] + mock["pinned_bytes"]
            assert allocator.bytes + held == chain.info().total and mock["live_bytes"] > 0
            chain.set(feeds).run()
            assert allocator.bytes + held == chain.info().total
        mock.nothing_left()


@pytest.mark.parametrize(
    "kind", [kind if kind == "claims" else pytest.param(kind, marks=pytest.mark.more) for kind in KINDS]
)
def test_failures_in_bodies_are_errors(kind: str, mock: Mock) -> None:
    """The first call of each callback fails, and one in the middle of the loop."""
    model, feeds = _loops()
    alone = linnet.Session(model).run(feeds)
    seen = set()
    for nth in (1, 20):
        for number, name in enumerate(mock.callbacks):
            devices = mock.reset(kind, 3, delay=0, fail=number, share=5 if kind == "two devices" else 12)
            mock.set(fail_at=nth)
            try:
                session = linnet.Session(model, devices=devices, trace=True)
                session.run(feeds)
            except linnet.DeviceError as error:
                assert name in error.got and "mock" in str(error), (name, error)
                seen.add(name)
            mock.set(fail_at=0)
            for _ in range(2):
                _compare(session.run(feeds), alone, exact=False)
            del session
            mock.nothing_left()
    assert {"ALLOCATE", "RUN", "WORK", "UPLOAD", "WAIT", "RECORD"} <= seen


def test_constants_are_read_in_the_file(mock: Mock, tmp_path: Path) -> None:
    """The device has no copy of those whose place in the file it can use, and no plan counts them."""
    rng = np.random.default_rng(0)
    graph = linnet.Graph()
    x = y = graph.placeholder("x", (4, 64))
    for _ in range(6):
        y = ops.tanh(y @ graph.constant(rng.standard_normal((64, 64)).astype(np.float32)))
    graph.signature("infer", {"x": x}, {"y": y})
    graph.save(tmp_path / "model.lnt")  # a mapped file begins at a page
    model, feeds = linnet.Model(tmp_path / "model.lnt"), {"x": rng.standard_normal((4, 64)).astype(np.float32)}
    alone = linnet.Session(model).run(feeds)
    held = []
    for in_file in (0, 1):
        devices = mock.reset(share=16, in_file=in_file, padding=64)
        sessions = [linnet.Session(model, devices=devices) for _ in range(2)]
        for session in sessions:
            _compare(session.run(feeds), alone, exact=False)
        held.append(sessions[0].memory["devices"])
        del session, sessions
        mock.nothing_left()
    assert held[1] <= held[0] - 2 * 64 * 64 * 4
    devices = mock.reset(share=16, in_file=1, fail=mock.callbacks.index("IMPORT_CONSTANTS"))
    mock.set(fail_at=1)  # a device that cannot is no error
    _compare(linnet.Session(model, devices=devices).run(feeds), alone, exact=False)
    assert mock["failed"] == 1
    mock.nothing_left()


def test_inputs_and_outputs_in_place_take_turns(mock: Mock) -> None:
    """All nodes are the device's, so it has the memory of inputs and outputs during a run, and the host before and after."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (4, 8))
    graph.signature("infer", {"x": x}, {"y": ops.softmax(ops.tanh(x @ graph.constant(np.eye(8, 8, dtype=np.float32))))})
    model, feeds = linnet.Model(graph), {"x": np.arange(32, dtype=np.float32).reshape(4, 8)}
    alone = linnet.Session(model).run(feeds)
    session = linnet.Session(model, devices=mock.reset("in turns", share=16))
    constants = mock["uploads"]
    for runs in (1, 2):
        _compare(session.run(feeds), alone, exact=True)
        assert (mock["turns"], mock["uploads"], mock["downloads"]) == (2 * runs, constants, 0) and mock[
            "pinned_bytes"
        ] > 0
    mock.set(fail=mock.callbacks.index("WORK"), fail_at=2)  # after the memory has changed hands
    with pytest.raises(linnet.DeviceError):
        session.run(feeds)
    mock.set(fail_at=0)
    _compare(session.run(feeds), alone, exact=True)
    assert mock["turns"] % 2 == 0
    del session
    mock.nothing_left()


def test_variables_stay_on_the_device(mock: Mock) -> None:
    data = _trained()
    model = linnet.Model(data)
    store = linnet.Store(model)
    session = linnet.Session(model, "infer", devices=mock.reset(share=16), store=store)
    feeds = {spec.name: np.ones(spec.shape, np.float32) for spec in session.inputs}
    session.run(feeds)
    first = mock["variables"]
    session.run(feeds)
    assert first > 0 and mock["variables"] == first
    name = next(iter(session.variables))
    session.variables[name] = np.asarray(session.variables[name]) + 1
    session.run(feeds)
    assert mock["variables"] > first
    del session, store, model
    mock.nothing_left()


def test_transfers_do_not_stop_the_device(mock: Mock) -> None:
    """The host submits transfers while earlier work is in the queue, and waits only for what it reads."""
    model, feeds = _model("ppocr_cls", "f32")
    session = linnet.Session(model, devices=mock.reset(seed=2, delay=400))
    session.run(feeds)
    assert mock["overlaps"] > 0
    assert mock["waits"] <= mock["downloads"] + 1
    del session
    mock.nothing_left()


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_counts_what_is_allocated(kind: str, mock: Mock) -> None:
    """Host memory by a counting allocator, the device's by its own count."""
    model, feeds = _model("ppocr_cls", "f32")
    devices = mock.reset(kind, 5)
    allocator = Allocator()
    pointers = ffi.new("const linnet_device *[]", [device.pointer for device in devices])
    content = model._content
    assert content is not None
    with Chain(content, allocator, copy=False) as chain:
        chain.make_store().make_plan(allocator=allocator.struct, devices=pointers, device_count=len(devices))
        chain.make_session()
        assert mock["live_bytes"] > 0
        assert allocator.bytes + mock["live_bytes"] + mock["pinned_bytes"] == chain.info().total
        chain.set(feeds).run()
        assert allocator.bytes + mock["live_bytes"] + mock["pinned_bytes"] == chain.info().total
    assert not allocator.live and not allocator.faults
    mock.nothing_left()


@pytest.mark.parametrize("kind", ["plain", "layouts"])
def test_maps_overwrite_operands_where_the_device_allows_it(kind: str, mock: Mock) -> None:
    """The device then needs less memory, and the results are the same."""
    model, feeds = _model("ppocr_cls", "f32")
    results, sizes, overwritten = [], [], []
    for allowed in (0, 1):
        session = linnet.Session(model, threads=2, devices=mock.reset(kind, 3, share=16, in_place=allowed))
        results.append(session.run(feeds))
        sizes.append(mock["live_bytes"])
        overwritten.append(mock["overwritten"])
        del session
        mock.nothing_left()
    _compare(results[1], results[0], exact=True)
    assert sizes[1] <= sizes[0] and overwritten[0] == 0 < overwritten[1]


def test_device_times_and_kernels_are_in_the_trace(mock: Mock) -> None:
    model, feeds = _model("ppocr_cls", "f32")
    session = linnet.Session(model, trace=True, devices=mock.reset("claims", 4))
    session.run(feeds)
    steps = [step for step in session.steps if step.device == "mock" and step.kernel.startswith("mock")]
    assert {step.kernel for step in steps} == {"mock", "mock_fused"}
    del session
    mock.nothing_left()


def _attempt(make: Callable[[], linnet.Session], feeds: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    session = make()
    results = []
    for again in range(3):
        try:
            results.append(session.run(feeds))
        except linnet.DeviceError:
            assert not again, "a run after a failed run must succeed"
    return results


REST = [("claims", 1), ("claims", 7), ("layouts", 1), ("shared", 1), ("two devices", 1), ("two devices", 2)]


@pytest.mark.parametrize(
    ("kind", "nth"),
    [("plain", 1), *(pytest.param(kind, nth, marks=pytest.mark.more) for kind, nth in REST)],
)
def test_failures_are_errors(kind: str, nth: int, mock: Mock) -> None:
    """The nth call of each callback fails: an error with the device and the callback, nothing left, and the next run or
    the next session works."""
    model, feeds = _model("ppocr_cls", "f32")
    alone = linnet.Session(model).run(feeds)
    seen = set()
    for number, name in enumerate(mock.callbacks):
        devices = mock.reset(kind, 6, delay=0, fail=number)
        mock.set(fail_at=nth)
        try:
            session = linnet.Session(model, devices=devices, trace=True)
        except linnet.DeviceError as error:
            assert name in error.got and "mock" in str(error), (name, error)
            seen.add(name)
            del error
            mock.nothing_left()
            continue
        try:
            session.run(feeds)
        except linnet.DeviceError as error:
            assert name in error.got and "mock" in str(error), (name, error)
            seen.add(name)
        for _ in range(2):
            _compare(session.run(feeds), alone, exact=False)
        del session
        mock.nothing_left()
        assert mock["failed"] == (name in seen), name
    assert {"ALLOCATE", "RUN", "WORK", "UPLOAD"} & seen or nth > 1
    mock.set(fail_at=0)


@pytest.mark.parametrize("kind", ["address", pytest.param("thread", marks=pytest.mark.more)])
def test_under_sanitizers(kind: str, tmp_path: Path) -> None:
    """tests/ext/mock_driver.c runs the models of this file, inference and training, in one process without Python."""
    sanitizer = "-fsanitize=" + ("thread" if kind == "thread" else "address,undefined")
    driver = compile_c(
        _sources("mock_driver.c"), tmp_path / "mock_driver", "-O1", "-g", sanitizer, *_options(kind, "-lm")
    )
    (tmp_path / "train.lnt").write_bytes(_trained())
    _model("ppocr_cls", "f32")
    content = _model("ppocr_cls", "f32")[0]._content
    assert content is not None
    (tmp_path / "model.lnt").write_bytes(content)
    prefix = ["setarch", "-R"] if kind == "thread" else []
    (tmp_path / "nested.lnt").write_bytes(nested().to_bytes())
    (tmp_path / "loop.lnt").write_bytes(recurrent().to_bytes())
    files = {"model.lnt": "infer", "train.lnt": "train", "nested.lnt": "infer", "loop.lnt": "infer"}
    for file, signature in files.items():
        out = run([*prefix, str(driver), str(tmp_path / file), signature, "3"], env=SANITIZED)
        assert "agree" in out
