"""Session.bind: the caller's arrays (NumPy, and other libraries through DLPack) go in and out of runs without a copy. The bytes
that a run allocates and copies are counted; what cannot be bound says so."""
# Dear: millions of values are moved, so that a copy would show in the peak of memory.

from __future__ import annotations

import array
import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.clib.library import library
from linnet.session.memory import memory_of
from tests.capi import ffi
from tests.py_device import PyDevice
from tests.test_devices import layers

SIDE = 512
BYTES = 4 * SIDE * SIDE


def net(size: int | str = SIDE) -> linnet.Graph:
    graph = linnet.Graph()
    x = graph.placeholder("x", (size, size))
    graph.signature("infer", {"x": x}, {"y": ops.softmax(ops.relu(x, name="map"), name="soft")})
    return graph


def _peak(run: Callable[[], Any]) -> int:
    """Bytes that the call allocates through Python and NumPy at most."""
    run()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        kept = run()
        del kept
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def peak(run: Callable[[], Any]) -> int:
    """The least of three, because other threads of the test run may allocate meanwhile."""
    return min(_peak(run) for _ in range(3))


def own(binding: linnet.session.binding.Binding) -> list[np.ndarray]:
    """The session's own buffers, through which nothing goes."""
    planned = binding._planned
    return [view for _, view, _, _ in planned.feeds] + [view for _, view in planned.outputs if view is not None]


def test_nothing_is_copied() -> None:
    nothing_is_copied(lambda array: array)


def test_no_tensor_of_torch_is_copied(torch: Any) -> None:
    nothing_is_copied(torch.from_numpy)


def nothing_is_copied(given_as: Callable[[np.ndarray], Any]) -> None:
    session = linnet.Session(net(), threads=1)
    x, y = session.empty("x"), session.empty("y")
    x[:] = np.random.default_rng(0).standard_normal(x.shape)
    given = given_as(x), given_as(y)
    expected = session.run({"x": x})["y"]
    assert peak(lambda: session.run({"x": x})) >= BYTES  # it returns new arrays
    binding = session.bind({"x": given[0]}, {"y": given[1]})
    binding.run()  # the first call keeps small objects for later ones
    assert peak(binding.run) < 2000
    assert binding.run()["y"] is given[1] and binding.outputs["y"] is given[1]
    np.testing.assert_array_equal(y, expected)
    assert [step.op for step in binding.steps] == [step.op for step in session.steps]  # no step that copies is added
    assert not any(view.any() for view in own(binding))
    x *= 2  # the run reads the array as it is then
    binding.run()
    np.testing.assert_array_equal(y, session.run({"x": x})["y"])
    assert not any(view.any() for view in own(binding))


def test_torch_tensors_of_torch_s_own_memory(torch: Any) -> None:
    session = linnet.Session(net("n"))
    x, y = torch.randn(64, 64), torch.empty(64, 64)
    binding = session.bind({"x": x}, {"y": y})
    for _ in range(3):
        binding.run()
        torch.testing.assert_close(y, torch.relu(x).softmax(1))
        x.normal_()


def test_outputs_are_made_if_none_are_given() -> None:
    session = linnet.Session(net())
    x = session.empty("x")
    x[:] = 1
    binding = session.bind({"x": x})
    assert binding.run()["y"][0, 0] == np.float32(1 / SIDE) and binding.outputs["y"].ctypes.data % 64 == 0
    named = session.bind({"x": x}, ["map", "y"])
    assert list(named.run()) == ["map", "y"] and (named.outputs["map"] == 1).all()
    part = session.bind({"map": x}, ["y"])  # any tensor may be fed, as in `run`
    x[:] = 0
    assert part.run()["y"][0, 0] == np.float32(1 / SIDE) and [step.op for step in part.steps] == ["softmax"]
    del session, named
    kept = part.outputs["y"]
    del part, binding
    gc.collect()
    assert kept[0, 0] == np.float32(1 / SIDE)


def test_a_binding_and_other_runs_do_not_disturb_each_other() -> None:
    session = linnet.Session(net("n"))
    before = session.memory_kept
    x, y = session.empty("x", (16, 16)), session.empty("y", (16, 16))
    x[:], y[:] = 3, -1
    binding = session.bind({"x": x}, {"y": y})
    assert session.memory_kept >= before + binding.bytes > before
    session.run({"x": np.zeros((16, 16), np.float32)})
    assert (y == -1).all() and (x == 3).all()
    first = binding.run()["y"].copy()
    session.run({"x": np.eye(16, dtype=np.float32)})
    np.testing.assert_array_equal(binding.run()["y"], first)
    held = session.memory_kept
    del binding
    gc.collect()
    assert session.memory_kept < held


def test_empty_tensors_are_bound() -> None:
    """At any address: nothing is read there. Two of them share no memory, wherever they are."""
    session = linnet.Session(net("n"))
    for x in (session.empty("x", (0, 0)), np.empty(64, np.float32)[1:1].reshape(0, 0)):
        assert session.run({"x": x})["y"].shape == session.bind({"x": x}).run()["y"].shape == (0, 0)
        y = np.empty((0, 0), np.float32)
        assert session.bind({"x": x}, {"y": y}).run()["y"] is y


def test_max_bytes_counts_bindings() -> None:
    x = linnet.Session(net()).empty("x")
    needed = linnet.Session(net(), input_shapes={"x": (SIDE, SIDE)}).memory["total"]
    session = linnet.Session(net(), max_bytes=needed + BYTES)
    kept = session.bind({"x": x})
    with pytest.raises(linnet.GraphError, match="max_bytes"):
        session.bind({"x": x})
    kept.run()


DTYPES = {"f64": "float64", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "u8": "uint8", "i32": "int32",
          "i64": "int64", "bool": "bool"}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_crosses_by_dlpack(dtype: str, torch: Any) -> None:
    torch_dtype = getattr(torch, DTYPES[dtype])
    graph = linnet.Graph()
    x = graph.placeholder("x", (3, 40), dtype)
    graph.signature("infer", {"x": x}, {"y": ops.transpose(x, (1, 0))})
    value, out = torch.arange(120).reshape(3, 40).to(torch_dtype), torch.zeros(40, 3, dtype=torch_dtype)
    linnet.Session(graph).bind({"x": value}, {"y": out}).run()
    assert torch.equal(out, value.T)


def test_outputs_that_share_memory_in_other_plans_are_bound() -> None:
    """Views of one tensor, halves of it, a tensor fetched twice, an input, and a constant."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (4, 16))
    soft = ops.softmax(x, name="soft")
    left, right = ops.split(soft, 2, axis=0)
    flat = ops.reshape(soft, [64])
    graph.signature("infer", {"x": x}, {"a": soft, "left": left, "right": right, "flat": flat, "x2": x,
                                        "one": graph.constant(np.ones(16, np.float32))})  # fmt: skip
    session = linnet.Session(graph)
    value = session.empty("x")
    value[:] = np.random.default_rng(1).standard_normal((4, 16))
    names = ["a", "left", "right", "flat", "x2", "one", "soft"]
    found = session.bind({"x": value}, names).run()
    for name, wanted in session.run({"x": value}, names).items():
        np.testing.assert_array_equal(found[name], wanted, err_msg=name)
    assert len({array.ctypes.data for array in found.values()} | {value.ctypes.data}) == len(names) + 1


def test_later_segments_and_loops_read_what_is_bound() -> None:
    graph = linnet.Graph()
    x, y = graph.placeholder("x", (6,)), graph.placeholder("y", (6,))
    places = ops.nonzero(x.cast("i64"))
    total, rows = linnet.scan(lambda s, v: (s + v, v * s), graph.constant(np.float32(0)), y)
    picked = ops.gather(y, places[0]).sum()
    graph.signature("infer", {"x": x, "y": y}, {"picked": picked, "total": total, "rows": rows})
    session = linnet.Session(graph)
    a, b = session.empty("x"), session.empty("y")
    binding = session.bind({"x": a, "y": b}, ["total", "rows"])
    with pytest.raises(linnet.UsageError, match=r"'picked' cannot be bound.*depends on data"):
        session.bind({"x": a, "y": b})
    for seed in range(3):
        a[:], b[:] = (np.random.default_rng(seed).integers(0, 2, 6) for _ in range(2))
        found = binding.run()
        wanted = session.run({"x": a, "y": b})
        np.testing.assert_array_equal(found["rows"], wanted["rows"])
        assert found["total"] == wanted["total"]


def test_the_segment_after_a_bound_input_is_bound_again() -> None:
    """C binds other memory after a later segment was planned."""
    graph = linnet.Graph()
    x, y = graph.placeholder("x", (6,)), graph.placeholder("y", (6,))
    graph.signature("infer", {"x": x, "y": y}, {"picked": ops.gather(y, ops.nonzero(x.cast("i64"))[0])})
    session = linnet.Session(graph)
    a, b, other = session.empty("x"), session.empty("y"), session.empty("y")
    a[:], b[:], other[:] = [0, 1, 0, 1, 0, 0], range(6), range(10, 16)
    planned = session._planned({"x": (6,), "y": (6,)}, None)
    lib, error = library(), ffi.new("linnet_error *")
    for i, array_ in ((0, a), (1, b)):
        assert not lib.linnet_session_bind_input(planned.session, i, ffi.cast("void *", array_.ctypes.data), 24, error)
    assert planned.run(session._runner, None)["picked"].tolist() == [1, 3]
    assert not lib.linnet_session_bind_input(planned.session, 1, ffi.cast("void *", other.ctypes.data), 24, error)
    assert planned.run(session._runner, None)["picked"].tolist() == [11, 13]


class Elsewhere:
    """An array that says that it is on a GPU."""

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("not asked for")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


def refused(session: linnet.Session, feeds: dict[str, Any], outputs: Any, words: list[str]) -> None:
    with pytest.raises(linnet.UsageError) as caught:
        session.bind(feeds, outputs)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_what_cannot_be_bound_says_so() -> None:
    session = linnet.Session(net(64))
    x, y = session.empty("x"), session.empty("y")
    odd = np.empty(64 * 64 + 17, np.float32)
    misaligned = odd[(-odd.ctypes.data % 64) // 4 + 1 :][: 64 * 64].reshape(64, 64)
    frozen = session.empty("y")
    frozen.flags.writeable = False
    wrong: list[tuple[dict[str, Any], Any, list[str]]] = [
        (
            {"x": misaligned},
            None,
            ["'x' is not aligned", "multiple of 64", "a multiple plus 4 bytes", "session.empty('x')"],
        ),
        ({"x": x.T}, None, ["'x' is not contiguous"]),
        ({"x": np.zeros((128, 64), np.float32)[::2]}, None, ["'x' is not contiguous"]),
        ({"x": x.astype(np.float64)}, None, ["'x' has the wrong dtype", "expected f32", "got f64"]),
        ({"x": x.astype(">f4")}, None, ["'x' has the wrong dtype", ">f4"]),
        ({"x": x[:1]}, None, ["'x' has the wrong shape", "[64, 64]", "[1, 64]"]),
        ({"x": x}, {"y": y[0]}, ["'y' has the wrong shape"]),
        ({"x": x}, {"y": frozen}, ["'y' is read-only"]),
        ({"x": x}, {"y": x}, ["overlaps other memory"]),
        ({"x": x}, {"y": [[0.0]]}, ["memory for 'y'", "NumPy array"]),
        ({"x": array.array("f", [1])}, None, ["memory for 'x'", "__dlpack__"]),
        ({"x": Elsewhere()}, None, ["'x' is not on the CPU", "DLPack device 2"]),
        ({"z": x}, None, ["no input, output, step or tensor named 'z'"]),
        ({}, None, ["no value is given for input 'x'"]),
        ({"x": x}, {"nothing": y}, ["nothing"]),
    ]
    for feeds, outputs, words in wrong:
        refused(session, feeds, outputs, words)
    session.bind({"x": x}, {"y": y}).run()


def test_tensors_of_torch_that_cannot_be_bound_say_so(torch: Any) -> None:
    session = linnet.Session(net(64))
    refused(session, {"x": torch.zeros(128, 64)[::2]}, None, ["'x' is not contiguous"])
    complex_zeros = torch.zeros(64, 64, dtype=torch.complex64)
    refused(session, {"x": complex_zeros}, None, ["wrong dtype", "DLPack type 5 of 64 bits"])
    refused(session, {"x": torch.zeros(64, 64, requires_grad=True)}, None, ["'x' gives no access", "detach"])


def test_elements_that_share_bytes_are_not_bound() -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (4,), "i4")
    graph.signature("infer", {"x": x}, {"y": ops.reshape(x, [2, 2])})
    session = linnet.Session(graph)
    for feeds in ({"x": session.empty("x")}, {"y": session.empty("y")}):
        with pytest.raises(linnet.UsageError, match="4 bits"):
            session.bind(feeds)


class InPlace(PyDevice):
    """A device that sees the memory of the host."""

    def _import(self, memory: Any, size: int, buffer: Any) -> int:
        self._new(buffer)
        self.buffers[buffer[0]] = ffi.buffer(memory, size)
        return 0


@pytest.mark.parametrize("shared", [False, True])
def test_with_a_device(shared: bool) -> None:
    """Transfers read and write what is bound. A device that sees the session's memory itself would not notice."""
    device = InPlace({"matmul": 1.0}, shared=1) if shared else PyDevice({"matmul": 1.0})
    session = linnet.Session(layers(), devices=[device])
    x = session.empty("x")
    x[:] = np.random.default_rng(0).standard_normal(x.shape)
    if shared:
        with pytest.raises(linnet.Error, match="reads the inputs and outputs of this session in place"):
            session.bind({"x": x})
        return
    binding = session.bind({"x": x})
    for _ in range(2):
        np.testing.assert_array_equal(binding.run()["y"], session.run({"x": x})["y"])
        x *= 2


def test_read_only_memory_may_be_fed() -> None:
    """NumPy's own DLPack capsules say whether memory is read-only."""
    values = linnet.Session(net(64)).empty("x")
    values.flags.writeable = False

    class Wrapped:
        def __dlpack__(self, **how: Any) -> Any:
            return values.__dlpack__(**how)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    memory = memory_of(Wrapped(), "x")
    assert (memory.address, memory.writable, memory.dense) == (values.ctypes.data, False, True)
    session = linnet.Session(net(64))
    session.bind({"x": Wrapped()}).run()
    with pytest.raises(linnet.UsageError, match="read-only"):
        session.bind({"x": session.empty("x")}, {"y": Wrapped()})
