"""Sessions from Python: valid and invalid feeds, fetches, changing shapes, variables that train, shared stores, threads that
do not change results, and a plan's figures about itself."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.builder.mapping import pointwise
from linnet.facade import Graph
from linnet.session.options import SessionFields
from tests.capi import ffi
from tests.capi import lib as library
from tests.graphs import bytes_of, feeds


def affine() -> Graph:
    """a f32 [2,3], b f32 [2,3] -> sum = a + b, product = (a + b) * a; "middle" is an inner tensor."""
    graph = Graph()
    main = graph.function()
    a, b = main.placeholder("a", "f32", (2, 3)), main.placeholder("b", "f32", (2, 3))
    total = ops.add(a, b, name="total")
    middle = ops.matmul(total, main.constant(np.eye(3, dtype=np.float32) * 2, "double"), name="middle")
    main.outputs = [total, ops.multiply(middle, a, name="scaled")]
    graph.signature("infer", main, ["a", "b"], ["sum", "product"])
    return graph


A, B = np.arange(6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 0.5, np.float32)


@pytest.fixture(scope="module")
def session() -> linnet.Session:
    return linnet.Session(affine(), threads=1)


def test_runs_from_graph_bytes_path_and_model(tmp_path: Path) -> None:
    graph = affine()
    path = tmp_path / "affine.lnt"
    graph.save(path)
    model = linnet.Model(path)
    for source in (graph, graph.to_bytes(), path, str(path), model):
        found = linnet.Session(source).run({"a": A, "b": B})
        assert list(found) == ["sum", "product"]
        np.testing.assert_array_equal(found["sum"], A + B)
        np.testing.assert_allclose(found["product"], (A + B) * 2 * A, rtol=1e-6)


def test_specs(session: linnet.Session) -> None:
    assert [(s.name, s.dtype, s.shape) for s in session.inputs] == [("a", "f32", (2, 3)), ("b", "f32", (2, 3))]
    assert [s.name for s in session.outputs] == ["sum", "product"]
    dynamic = linnet.Session(bytes_of("dynamic"))
    assert dynamic.inputs[0].shape == (None, 3)


def test_outputs_are_copies(session: linnet.Session) -> None:
    first = session.run({"a": A, "b": B})["sum"]
    kept = first.copy()
    session.run({"a": A + 1, "b": B})
    np.testing.assert_array_equal(first, kept)
    first[...] = 7
    np.testing.assert_array_equal(session.run({"a": A, "b": B})["sum"], kept)


def test_lists_strides_and_byte_order_are_taken(session: linnet.Session) -> None:
    wide = np.zeros((2, 6), np.float32)
    wide[:, ::2] = A
    for a in (A.tolist(), wide[:, ::2], np.asfortranarray(A), A.astype(">f4"), [[0, 1, 2], [3, 4, 5]]):
        np.testing.assert_array_equal(session.run({"a": a, "b": B})["sum"], A + B)


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ({"a": A}, 105, ["'b'", "missing"]),
        ({}, 105, ["missing"]),
        ({"a": A, "b": B, "c": B}, 102, ["'c'", "a or b"]),
        ({"a": A, "bb": B}, 102, ["'bb'"]),
        ({"a": A, "b": B.astype(np.uint8)}, 103, ["'b'", "f32", "u8"]),
        ({"a": A, "b": B.astype(np.int32)}, 103, ["'b'", "f32", "i32"]),
        ({"a": A, "b": np.array([["x"] * 3] * 2)}, 103, ["'b'"]),
        ({"a": A, "b": B[:1]}, 104, ["'b'", "[2, 3]", "[1, 3]"]),
        ({"a": A, "b": B.reshape(3, 2)}, 104, ["[3, 2]"]),
        ({"a": A, "b": 1.0}, 104, ["[]"]),
    ],
)
def test_wrong_feeds_say_what_is_wrong(
    session: linnet.Session, given: dict[str, object], code: int, words: list[str]
) -> None:
    with pytest.raises(linnet.UsageError) as error:
        session.run(given)  # type: ignore[arg-type]
    assert error.value.code == code
    for word in words:
        assert word in str(error.value)
    assert "\n" not in str(error.value)
    np.testing.assert_array_equal(session.run({"a": A, "b": B})["sum"], A + B)  # still usable


def test_integer_feeds_out_of_range() -> None:
    session = linnet.Session(bytes_of("gather"))
    with pytest.raises(linnet.UsageError, match="wrong_dtype"):
        session.run({"indices": [0.5, 1.0, 2.0]})
    with pytest.raises(linnet.GraphError) as error:
        session.run({"indices": [0, 1, 5]})
    assert error.value.code == 305
    assert session.run({"indices": [0, 1, 2]})["y"].shape == (3, 4)


def test_unknown_signature_fetch_and_isa() -> None:
    with pytest.raises(linnet.UsageError, match=r"'train'.*expected infer"):
        linnet.Session(affine(), "train")
    with pytest.raises(linnet.UsageError) as error:
        linnet.Session(affine(), fetches=["nothing"])
    assert error.value.code == 102 and "nothing" in str(error.value)
    with pytest.raises(linnet.UsageError) as error:
        linnet.Session(affine(), isa_max="avx9")
    assert error.value.code == 102
    assert linnet.isa_names()


def test_fetches(session: linnet.Session) -> None:
    found = session.run({"a": A, "b": B}, ["middle", "sum"])
    assert list(found) == ["middle", "sum"]
    np.testing.assert_allclose(found["middle"], (A + B) * 2, rtol=1e-6)
    assert list(session.run({"a": A, "b": B})) == ["sum", "product"]
    only = linnet.Session(affine(), fetches=["product"])
    assert list(only.run({"a": A, "b": B})) == ["product"]


def test_unneeded_input_may_be_left_out() -> None:
    graph = Graph()
    main = graph.function()
    a, b = main.placeholder("a", "f32", (2,)), main.placeholder("b", "f32", (2,))
    main.outputs = [ops.relu(a, name="left"), ops.relu(b, name="right")]
    graph.signature("infer", main)
    session = linnet.Session(graph)
    np.testing.assert_array_equal(session.run({"a": np.float32([1, -1])}, ["left"])["left"], [1, 0])
    with pytest.raises(linnet.UsageError, match="missing_input"):
        session.run({"a": np.float32([1, -1])}, ["right"])


def test_every_dtype_goes_in_and_out() -> None:
    graph = Graph()
    main = graph.function()
    values = {}
    for dtype in ("f32", "f16", "bf16", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool"):
        x = main.placeholder(dtype, dtype, (2, 2))
        main.outputs.append(ops.transpose(x, name=f"{dtype}_out"))
        values[dtype] = np.array([[0, 1], [1, 1]]).astype(linnet.ir.dtypes.numpy_dtype(dtype))  # type: ignore[attr-defined]
    graph.signature("infer", main)
    found = linnet.Session(graph).run(values)
    for dtype, value in values.items():
        assert found[f"{dtype}_out"].dtype == value.dtype
        np.testing.assert_array_equal(found[f"{dtype}_out"], value.T)


def test_scalars_and_empty_tensors() -> None:
    graph = Graph()
    main = graph.function()
    x, y = main.placeholder("x", "f32", ()), main.placeholder("y", "f32", ("n", 3))
    main.outputs = [ops.scale(x, 2.0, name="twice"), ops.relu(y, name="positive")]
    graph.signature("infer", main)
    session = linnet.Session(graph)
    found = session.run({"x": 4.0, "y": np.zeros((0, 3), np.float32)})
    assert found["twice"].shape == () and found["twice"] == 8.0
    assert found["positive"].shape == (0, 3)


def test_new_shapes_are_planned_and_kept() -> None:
    session = linnet.Session(bytes_of("dynamic"))
    with pytest.raises(linnet.UsageError, match="nothing is planned yet"):
        _ = session.memory
    for n in (1, 5, 1, 7, 5):
        x = np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32)
        (value,) = session.run({"x": x}).values()
        np.testing.assert_allclose(value, x + 1, rtol=1e-6)
    assert len(session._plans) == 3
    for n in range(10, 30):
        session.run({"x": np.zeros((n, 3), np.float32)})
    assert len(session._plans) == 8
    with pytest.raises(linnet.UsageError) as error:
        session.run({"x": np.zeros((4, 4), np.float32)})
    assert error.value.code == 104 and "[?, 3]" in str(error.value)


def test_kept_plans_share_packed_weights() -> None:
    rng = np.random.default_rng(5)
    graph = Graph()
    main = graph.function()
    x = main.placeholder("x", "f32", (None, 256))
    main.outputs = [ops.matmul(x, main.constant(rng.standard_normal((256, 256)).astype(np.float32), "w"))]
    graph.signature("infer", main)
    session = linnet.Session(graph, threads=1)
    kept = []
    for rows in (1, 7, 100, 30, 2, 3, 4, 5, 6, 8):
        session.run({"x": np.ones((rows, 256), np.float32)})
        kept.append(session.memory_kept)
        if rows == 1:
            assert kept[0] == session.memory["total"]
    assert session.memory["packed_weights"] > 256 * 256 * 4
    assert kept[-1] < kept[0] + 8 * 100 * 256 * 4 * 2  # eight plans: inputs and outputs, and the weights once


def test_segments_of_the_same_run_are_not_dropped_to_make_room() -> None:
    """Four stages, each with the memory of its own shapes. The later ones read what the earlier ones computed."""

    def feeds_of(count: int) -> dict[str, np.ndarray]:
        value = np.zeros(50_000, np.float32)
        value[:count] = 9
        return {"x": value}

    graph = Graph()
    x = value = graph.placeholder("x", (50_000,))
    for _ in range(4):
        value = ops.gather(value, ops.nonzero(ops.cast(value, dtype="i64"))[0]) - 1.0
    graph.signature("infer", {"x": x}, {"y": value.sum()})
    session = linnet.Session(graph, threads=1)
    least = session.memory_kept
    session.run(feeds_of(40_000))
    most = session.memory_kept
    for part in (0.3, 0.5, 0.8, 0.97):
        tight = linnet.Session(graph, threads=1, max_bytes=int(least + part * (most - least)))
        for _ in range(2):
            assert tight.run(feeds_of(2000))["y"] == 10_000
            with pytest.raises(linnet.GraphError, match=r"more memory than .*max_bytes"):
                tight.run(feeds_of(40_000))
    enough = linnet.Session(graph, threads=1, max_bytes=most + 1000)
    for count in (100, 2000, 40_000, 100, 40_000):  # segments of other runs are dropped
        assert enough.run(feeds_of(count))["y"] == 5 * count


def test_input_shapes_plan_at_once() -> None:
    session = linnet.Session(bytes_of("dynamic"), input_shapes={"x": (4, 3)})
    assert session.memory["total"] > 0
    with pytest.raises(linnet.UsageError, match="wrong_shape"):
        linnet.Session(bytes_of("dynamic"), input_shapes={"x": (4, 5)})
    with pytest.raises(linnet.UsageError, match="'z'"):
        linnet.Session(bytes_of("dynamic"), input_shapes={"z": (4, 5)})


def test_shapes_that_depend_on_data() -> None:
    session = linnet.Session(bytes_of("data_dependent"))
    assert session.plan_info["segments"] > 1
    for seed, zeros in ((1, 0), (2, 4), (3, 12)):
        x = np.random.default_rng(seed).standard_normal((2, 6)).astype(np.float32)
        x.reshape(-1)[:zeros] = 0
        (value,) = session.run({"x": x}).values()
        np.testing.assert_allclose(value, x[x != 0].reshape(2, -1) * 10, rtol=1e-6)


def linear_training() -> Graph:
    """Fits y = w * x with SGD on the mean square error, with a hand-written gradient."""
    graph = Graph()
    weight = graph.variable("w", np.float32([0.0]))
    infer = graph.function("infer")
    infer.outputs = [ops.multiply(infer.placeholder("x", "f32", (8,)), infer.read(weight), name="y")]
    graph.signature("infer", infer)
    train = graph.function("train")
    x, target = train.placeholder("x", "f32", (8,)), train.placeholder("target", "f32", (8,))
    w = train.read(weight)
    error = pointwise([x, w, target], lambda x, w, t: x * w - t, name="error")
    loss = ops.mean(pointwise([error], lambda e: e * e), name="loss")
    gradient = ops.mean(pointwise([error, x], lambda e, x: e * x * 2.0), keep_dims=True, name="gradient")
    update = ops.assign(w, pointwise([w, gradient], lambda w, g: w - g * 0.1), name="new_w")
    train.outputs = [loss, update]
    graph.signature("train", train, ["x", "target"], ["loss", "w"])
    return graph


def test_sgd_trains_a_weight_that_another_session_sees() -> None:
    model = linnet.Model(linear_training())
    store = linnet.Store(model)
    train, serve = linnet.Session(model, "train", store=store), linnet.Session(model, "infer", store=store)
    generator, weight, losses = np.random.default_rng(0), np.float32(0), []
    for _ in range(60):
        x = generator.standard_normal(8).astype(np.float32)
        found = train.run({"x": x, "target": x * 3})
        assert found["loss"] == pytest.approx(
            float(np.mean((x * weight - x * 3) ** 2)), rel=1e-4
        )  # with the old weight
        weight -= np.float32(0.1) * np.float32(np.mean(2 * (x * weight - x * 3) * x))
        assert found["w"][0] == pytest.approx(weight, rel=1e-4)
        losses.append(float(found["loss"]))
    assert losses[-1] < 1e-3 * losses[0]
    assert store["w"][0] == pytest.approx(3, abs=0.05)
    np.testing.assert_allclose(serve.run({"x": np.ones(8, np.float32)})["y"], np.full(8, store["w"][0]), rtol=1e-6)


def test_store_reads_and_writes() -> None:
    session = linnet.Session(bytes_of("counter"), "train")
    np.testing.assert_array_equal(session.variables["total"], [0, 1, 2, 3])
    session.variables["total"] = np.float32([10, 10, 10, 10])
    np.testing.assert_array_equal(session.run({"x": np.ones(4, np.float32)})["y"], [11, 11, 11, 11])
    assert list(session.variables) == ["total"] and "total" in session.variables and len(session.variables) == 1
    np.testing.assert_array_equal(session.variables.as_dict()["total"], [11, 11, 11, 11])
    with pytest.raises(linnet.UsageError, match="'nothing'"):
        session.variables["nothing"] = np.float32([1])
    with pytest.raises(linnet.UsageError, match="wrong_shape"):
        session.variables["total"] = np.float32([1])
    with pytest.raises(linnet.UsageError, match="wrong_dtype"):
        session.variables["total"] = np.arange(4, dtype=np.uint8)


def test_private_stores_do_not_meet() -> None:
    model = linnet.Model(bytes_of("counter"))
    first, second = linnet.Session(model, "train"), linnet.Session(model, "train")
    first.run({"x": np.ones(4, np.float32)})
    np.testing.assert_array_equal(second.variables["total"], [0, 1, 2, 3])
    with pytest.raises(linnet.UsageError, match="another model"):
        linnet.Session(bytes_of("counter"), "train", store=linnet.Store(model))


def test_threads_share_a_store_without_losing_updates() -> None:
    model = linnet.Model(bytes_of("counter"))
    store = linnet.Store(model)
    store["total"] = np.zeros(4, np.float32)

    def work() -> None:
        session = linnet.Session(model, "train", store=store, threads=1)
        for _ in range(200):
            session.run({"x": np.ones(4, np.float32)})

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(store["total"], np.full(4, 800, np.float32))


def test_workers_bind_themselves_to_cores() -> None:
    """Each worker stays on one core; the thread that runs keeps all of its cores, and so does a session without it."""

    def threads() -> set[int]:
        return {int(task) for task in os.listdir("/proc/self/task")}

    def masks(which: set[int]) -> list[int]:
        return [len(os.sched_getaffinity(task)) for task in which]

    graph = Graph()
    x = graph.placeholder("x", (64, 256))
    graph.signature("infer", {"x": x}, {"y": ops.matmul(x, graph.constant(np.ones((256, 256), np.float32)))})
    own = os.sched_getaffinity(0)
    # Only threads that are new are looked at: those of an earlier test may end at any time.
    before = threads()
    plain = linnet.Session(graph, threads=3)
    assert masks(threads() - before) == [len(own)] * 2
    before = threads()
    bound = linnet.Session(graph, threads=3, bind_threads=True)
    workers = threads() - before
    feeds = {"x": np.ones((64, 256), np.float32)}
    until = time.monotonic() + 60  # a worker binds itself when it starts
    while masks(workers) != [1, 1] and time.monotonic() < until:
        bound.run(feeds)
    assert masks(workers) == [1, 1]
    assert os.sched_getaffinity(0) == own
    np.testing.assert_array_equal(bound.run(feeds)["y"], plain.run(feeds)["y"])


def test_a_thread_binds_itself_to_a_core() -> None:
    """In threads of their own, which may run on all cores of this process, or on one."""
    lib, error, own = library(), ffi.new("linnet_error *"), os.sched_getaffinity(0)

    def work(allowed: set[int], i: int) -> None:
        os.sched_setaffinity(0, allowed)
        assert lib.linnet_bind_thread(i, error) == 0
        assert len(os.sched_getaffinity(0)) == 1 and os.sched_getaffinity(0) <= allowed
        assert lib.linnet_bind_thread(-1, error) == 0
        assert os.sched_getaffinity(0) >= allowed

    for i in (0, 1, 1000):
        for allowed in (own, {max(own)}):
            with ThreadPoolExecutor(1) as pool:
                pool.submit(work, allowed, i).result()
    assert os.sched_getaffinity(0) == own
    assert lib.linnet_bind_thread(-2, error) == lib.LINNET_INVALID_ARGUMENT
    text = ffi.new("char[500]")
    lib.linnet_error_format(error, text, 500)
    assert b"-2" in ffi.string(text) and b"count from 0" in ffi.string(text)


def test_one_session_may_be_used_by_threads_in_turn(session: linnet.Session) -> None:
    failures = []

    def work(seed: int) -> None:
        generator = np.random.default_rng(seed)
        for _ in range(200):
            a, b = generator.standard_normal((2, 2, 3)).astype(np.float32)
            if not np.array_equal(session.run({"a": a, "b": b})["sum"], a + b):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize("name", ["mlp", "conv_net", "conv_net_i8", "branch"])
def test_thread_count_does_not_change_bits(name: str) -> None:
    given = feeds(name)
    found = [linnet.Session(bytes_of(name), threads=n).run(given) for n in (1, 2, 3)]
    for other in found[1:]:
        for key, value in found[0].items():
            np.testing.assert_array_equal(value, other[key])


def test_memory_steps_and_trace() -> None:
    session = linnet.Session(bytes_of("conv_net"), trace=True, threads=1)
    memory = session.memory
    parts = ("activations", "scratch", "packed_weights", "constants", "variables", "io", "bookkeeping")
    assert memory["total"] == sum(memory[part] for part in parts)
    assert 0 < memory["lower_bound"] <= memory["activations"] <= memory["naive"]
    for _ in range(3):
        session.run(feeds("conv_net"))
    assert len(session.steps) == session.plan_info["steps"]
    for step in session.steps:
        assert step.runs == 3 and step.ms > 0 and step.kernel and step.layout in ("dense", "channels_last")
    convs = [step for step in session.steps if step.op == "conv"]
    assert sum(step.flops for step in convs) >= 2 * 8 * 64 * 27
    assert session.plan_info["threads"] == 1 and session.plan_info["isa"] in linnet.isa_names()


def test_reference_agrees_with_fast_kernels() -> None:
    given = feeds("conv_net")
    (fast,) = linnet.Session(bytes_of("conv_net")).run(given).values()
    (slow,) = linnet.Session(bytes_of("conv_net"), reference=True).run(given).values()
    np.testing.assert_allclose(fast, slow, rtol=1e-4, atol=1e-5)


def aligned(size: int) -> np.ndarray:
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size]


def test_arena_of_the_caller() -> None:
    plain = linnet.Session(bytes_of("conv_net"))
    expected = plain.run(feeds("conv_net"))["y"]
    needed = plain.memory["activations"] + plain.memory["scratch"]
    arena = aligned(needed)
    session = linnet.Session(bytes_of("conv_net"), arena=arena)
    np.testing.assert_array_equal(session.run(feeds("conv_net"))["y"], expected)
    assert arena.any()
    with pytest.raises(linnet.ResourceError) as error:
        linnet.Session(bytes_of("conv_net"), arena=aligned(needed - 64))
    assert error.value.code == 402 and str(needed) in str(error.value) and str(needed - 64) in str(error.value)


def test_special_values_are_counted() -> None:
    graph = Graph()
    main = graph.function()
    main.outputs = [pointwise([main.placeholder("x", "f32", (5,))], lambda v: v.unary("log"), name="y")]
    graph.signature("infer", main)
    session = linnet.Session(graph, count_special=True)
    session.run({"x": np.float32([1, 0, -1, -2, 5])})
    (counts,) = session.special
    assert counts == {"saturated": 0, "infinite": 1, "not_a_number": 2}
    with pytest.raises(linnet.UsageError, match="count_special"):
        _ = linnet.Session(bytes_of("mlp")).special


def test_max_bytes_refuses() -> None:
    with pytest.raises(linnet.GraphError) as error:
        linnet.Session(bytes_of("conv_net"), max_bytes=100)
    assert error.value.code == 306


def test_model_outlives_what_it_was_made_of() -> None:
    session = linnet.Session(bytes(bytearray(bytes_of("mlp"))))
    expected = session.run(feeds("mlp"))
    session.model._signature("infer")
    gc.collect()
    for _ in range(50):
        bytearray(1 << 20)
    for key, value in session.run(feeds("mlp")).items():
        np.testing.assert_array_equal(value, expected[key])


def test_device_library_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(
        linnet.FileError, match=r"cannot load a device from '.*none\.so'; expected a shared library"
    ) as no:
        linnet.load_device(tmp_path / "none.so")
    assert no.value.tensor == str(tmp_path / "none.so")


def test_feeds_and_fetches_of_a_wrong_type_are_usage_errors() -> None:
    session = linnet.Session(bytes_of("mlp"))
    given = feeds("mlp")
    with pytest.raises(linnet.UsageError, match=r"dictionary with x"):
        session.run(given["x"])  # type: ignore[arg-type]
    with pytest.raises(linnet.UsageError, match=r"list of names"):
        session.run(given, "y")
    session.run(given)
    with pytest.raises(linnet.UsageError, match=r"dictionary with x"):  # also after a run, on the fast path
        session.run(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "options", "expected"),
    [
        ((None,), {}, "a path, the bytes of a .lnt file, or a linnet.Graph"),
        ((affine(),), {"threads": "a"}, "a number of threads"),
        ((affine(),), {"threads": -1}, "a number of threads"),
        ((affine(),), {"isa_max": 3}, "scalar"),
    ],
)
def test_wrong_types_are_said(arguments: tuple[Any, ...], options: dict[str, Any], expected: str) -> None:
    with pytest.raises(linnet.UsageError) as raised:
        linnet.Session(*arguments, **options)
    assert expected in raised.value.expected and raised.value.got


def test_the_options_of_sessions_are_declared_once() -> None:
    """Session takes the fields of SessionOptions, with their types and defaults, and so does the type checker's list."""
    fields = {field.name: (field.default, field.type) for field in dataclasses.fields(linnet.SessionOptions)}
    parameters = inspect.signature(linnet.Session).parameters
    assert {name: (parameters[name].default, parameters[name].annotation) for name in fields} == fields
    assert {n: getattr(t, "__forward_arg__", t) for n, t in SessionFields.__annotations__.items()} == {
        name: kind for name, (_, kind) in fields.items()
    }
    with pytest.raises(TypeError, match=r"max_byte.*Did you mean .*max_bytes"):
        linnet.Session(linnet.Graph(), max_byte=3)  # type: ignore[call-arg]
