"""What a user of Python expects of every object: one name for an axis, comparisons as functions, helpful texts, sessions that
close, inputs as NumPy makes them, and a clear answer to pickle."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops

X = np.float32([[1, 2, 3], [4, np.inf, np.nan]])


def run(build: Callable[[linnet.Tensor], linnet.Tensor], x: Any = X) -> Any:
    graph = linnet.Graph()
    graph.signature("infer", {"x": (placed := graph.placeholder("x", np.shape(x)))}, {"y": build(placed)})
    with linnet.Session(graph) as session:
        return session.run({"x": x})["y"]


# ---- names of parameters ------------------------------------------------------------------------------------------


def _functions() -> Iterator[tuple[str, Any]]:
    for module in (linnet.ops, linnet.nn, linnet.losses, linnet.metrics, linnet.preprocess, linnet.integers):
        for name in dir(module):
            yield f"{module.__name__}.{name}", getattr(module, name)
    for name in dir(linnet.Tensor):
        if not name.startswith("_"):
            yield f"Tensor.{name}", getattr(linnet.Tensor, name)


def test_axis_is_one_word() -> None:
    asked, said = set(), 0
    for name, function in _functions():
        if callable(function) and not isinstance(function, type):
            parameters = inspect.signature(function).parameters
            said += "axis" in parameters
            asked |= {name} if {"axes", "dim", "dims"} & set(parameters) else set()
    assert asked == set()
    assert said > 30


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 1), [1], np.int64(1), ()])
def test_reductions_take_an_axis_as_numpy_does(axis: Any) -> None:
    x = np.arange(6, dtype="f4").reshape(2, 3)
    given = tuple(axis) if isinstance(axis, list) else axis
    assert np.array_equal(run(lambda t: ops.sum(t, axis), x), np.sum(x, given))
    assert np.array_equal(run(lambda t: t.max(axis=axis), x), np.max(x, given))
    assert np.array_equal(run(lambda t: ops.mean(t, axis, keep_dims=True), x), np.mean(x, given, keepdims=True))
    assert np.array_equal(run(lambda t: ops.flip(t, axis), x), np.flip(x, given))


def test_dimensions_are_added_and_removed_by_axis() -> None:
    x = np.zeros((2, 1, 3, 1), "f4")
    for axis in (None, 1, (1, 3), -1):
        assert run(lambda t, axis=axis: ops.squeeze(t, axis), x).shape == np.squeeze(x, axis).shape
    for axis in (0, (0, 2), -1):
        assert run(lambda t, axis=axis: ops.expand_dims(t, axis), x).shape == np.expand_dims(x, axis).shape


# ---- functions that users looked for -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"])
def test_comparisons_are_functions(name: str) -> None:
    other = np.float32([[1, 3, 3], [3, np.inf, np.nan]])
    for right in (other, 2.0):
        got = run(lambda t, right=right: getattr(ops, name)(t, right))
        assert got.dtype == bool
        assert np.array_equal(got, getattr(np, name)(X, right))


def test_isfinite() -> None:
    assert np.array_equal(run(ops.isfinite), np.isfinite(X))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cumsum_takes_a_number(axis: int) -> None:
    x = np.arange(1, 7, dtype="f4").reshape(2, 3)
    assert np.array_equal(run(lambda t: ops.cumsum(t, axis), x), np.cumsum(x, axis))
    back = run(lambda t: ops.cumsum(t, axis, exclusive=True, reverse=True), x)
    assert np.array_equal(back, np.flip(np.cumsum(np.flip(x, axis), axis), axis) - x)
    assert np.array_equal(run(lambda t: ops.cumsum(t, axis, product=True), x), np.cumprod(x, axis))
    graph = linnet.Graph()
    t, along = graph.placeholder("x", (2, 3)), graph.placeholder("axis", (), "i64")
    graph.signature("infer", {"x": t, "axis": along}, {"y": ops.cumsum(t, along)})
    assert np.array_equal(linnet.Session(graph).run({"x": x, "axis": axis})["y"], np.cumsum(x, axis))


# ---- what is shown -------------------------------------------------------------------------------------------------


def test_dir_lists_what_is_public() -> None:
    assert set(dir(linnet)) == {*linnet.__all__, "__version__"}
    for name in linnet.__all__:
        module = getattr(linnet, name)
        if isinstance(module, types.ModuleType):
            assert dir(module), name
            assert all(
                found.endswith("__") or (not found.startswith("_") and hasattr(module, found)) for found in dir(module)
            ), name
            assert not {"annotations", "check_all", "np", "Any", "UsageError"} & set(dir(module)), name


@pytest.fixture
def graph() -> linnet.Graph:
    graph = linnet.Graph()
    x, w = graph.placeholder("x", ("n", 3)), graph.variable("w", np.ones(3, "f4"))
    graph.signature("infer", {"x": x}, {"y": x * w})
    return graph


def test_objects_say_what_they_are(graph: linnet.Graph, tmp_path: Any) -> None:
    path = tmp_path / "net.lnt"
    graph.save(path)
    model = linnet.Model(path)
    session = linnet.Session(model)
    assert repr(graph).endswith("(input 'x'; variable 'w'; signature 'infer')>")
    assert repr(model) == f"<linnet.Model of {str(path)!r}: infer (x: f32[?, 3] -> y: f32[?, 3])>"
    assert repr(session) == f"<linnet.Session of {str(path)!r}, signature 'infer': x: f32[?, 3] -> y: f32[?, 3]>"
    assert repr(session.variables).startswith("<linnet.Store: 1 variable, ")
    session.close()
    assert ", closed: " in repr(session)


# ---- sessions end --------------------------------------------------------------------------------------------------


def test_a_session_closes_and_is_a_context_manager(graph: linnet.Graph) -> None:
    with linnet.Session(graph) as session:
        assert session.run({"x": np.ones((1, 3))})["y"].tolist() == [[1, 1, 1]]
        before = session.memory_kept
    assert session.memory_kept < before
    for use in (
        lambda: session.run({"x": np.ones((1, 3))}), lambda: session.steps, lambda: session.memory,
        lambda: session.bind({"x": np.ones((1, 3), "f4")}),
    ):  # fmt: skip
        with pytest.raises(linnet.UsageError, match=r"the session is closed.*create a new Session"):
            use()
    assert session.variables["w"].tolist() == [1, 1, 1]
    session.close()  # twice does no harm


def test_pickle_says_what_to_do_instead(graph: linnet.Graph) -> None:
    session = linnet.Session(graph)
    for thing, hint in (
        (session, "create a Session from them"),
        (session.model, "Model"),
        (session.variables, "checkpoint"),
    ):
        for act in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(linnet.UsageError, match=f"cannot be pickled or copied.*{hint}"):
                act(thing)


# ---- inputs as NumPy makes them ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f32", "f16", "i8", "u8", "i32", "i64", "bool"])
def test_arrays_of_numpys_own_dtypes_are_taken_like_lists(dtype: str) -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (2,), dtype)
    graph.signature("infer", {"x": x}, {"y": ops.reshape(x, (2,))})
    session = linnet.Session(graph)

    def result(value: Any) -> Any:
        try:
            return session.run({"x": value})["y"].tolist()
        except linnet.UsageError as error:
            return str(error)

    for values in ([1, 0], [1.0, 0.0], [0.5, 2.25], [1e300, 0.0], [300, 0], [-1, 0], [2**40, 1]):
        assert result(np.array(values)) == result(values), values
    assert result([1, 0]) == [1, 0] or dtype == "bool"
    assert ("cannot represent a value" in str(result(np.array([300, 0])))) == (dtype in ("i8", "u8", "bool"))
    assert ("cannot represent a value" in str(result([1e300, 0.0]))) == (dtype in ("f32", "f16"))


def test_arrays_of_other_dtypes_are_still_rejected(graph: linnet.Graph) -> None:
    for dtype in ("u1", "i4", "?", "c16"):
        with pytest.raises(linnet.UsageError, match="wrong dtype"):
            linnet.Session(graph).run({"x": np.ones((1, 3), dtype)})


def test_every_public_module_is_importable_by_name() -> None:
    for name in linnet.__all__:
        if isinstance(getattr(linnet, name), types.ModuleType):
            assert importlib.import_module(f"linnet.{name}") is getattr(linnet, name)
