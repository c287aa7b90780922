"""The functions that build graphs (linnet.ops) give the results of the same formulas in NumPy and SciPy.
Every public function of elementwise.py and shaping.py has a case; a function without one fails the first test."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.builder import elementwise, shaping

X = np.random.default_rng(0).uniform(-3, 3, (2, 3, 4)).astype(np.float32)
POSITIVE, UNIT = np.abs(X) + np.float32(0.1), (X / 3.1).astype(np.float32)
SPECIAL = np.float32([1, np.nan, -np.inf, np.inf, 0])
Y = np.random.default_rng(1).uniform(-3, 3, (3, 1)).astype(np.float32)
YES = X > 0

erf = np.vectorize(math.erf)
sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
softplus = lambda x: np.log1p(np.exp(x))  # noqa: E731

UNARY: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "exp": (X, np.exp), "log": (POSITIVE, np.log), "expm1": (X, np.expm1), "log1p": (POSITIVE, np.log1p),
    "sqrt": (POSITIVE, np.sqrt), "reciprocal": (POSITIVE, np.reciprocal), "rsqrt": (POSITIVE, lambda x: x**-0.5),
    "square": (X, np.square), "absolute": (X, np.abs), "negative": (X, np.negative), "sign": (X, np.sign), "sin": (X, np.sin),
    "cos": (X, np.cos), "tan": (UNIT, np.tan), "arcsin": (UNIT, np.arcsin), "arccos": (UNIT, np.arccos),
    "arctan": (X, np.arctan), "sinh": (X, np.sinh), "cosh": (X, np.cosh), "tanh": (X, np.tanh), "arcsinh": (X, np.arcsinh),
    "arccosh": (POSITIVE + 1, np.arccosh), "arctanh": (UNIT, np.arctanh), "erf": (X, erf), "floor": (X, np.floor),
    "ceil": (X, np.ceil), "trunc": (X, np.trunc), "rint": (X, np.rint), "logical_not": (YES, np.logical_not),
    "isnan": (SPECIAL, np.isnan), "isinf": (SPECIAL, np.isinf), "isfinite": (SPECIAL, np.isfinite), "sigmoid": (X, sigmoid),
    "relu": (X, lambda x: np.maximum(x, 0)), "relu6": (3 * X, lambda x: np.clip(x, 0, 6)), "silu": (X, lambda x: x * sigmoid(x)),
    "softplus": (X, softplus), "softsign": (X, lambda x: x / (1 + np.abs(x))),
    "hard_sigmoid": (2 * X, lambda x: np.clip(x / 6 + 0.5, 0, 1)),
    "hard_swish": (2 * X, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "mish": (X, lambda x: x * np.tanh(softplus(x))), "gelu": (X, lambda x: x * (1 + erf(x / math.sqrt(2))) / 2),
    "selu": (X, lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x))),
    "elu": (X, lambda x: np.where(x > 0, x, np.expm1(x))), "leaky_relu": (X, lambda x: np.where(x > 0, x, 0.01 * x)),
    "flatten": (X, lambda x: x.reshape(2, -1)), "matrix_transpose": (X, lambda x: np.swapaxes(x, -1, -2)),
}  # fmt: skip
BINARY: dict[str, tuple[Any, Any, Callable[[Any, Any], Any]]] = {
    "add": (X, Y, np.add), "subtract": (X, Y, np.subtract), "multiply": (X, Y, np.multiply), "divide": (X, Y, np.divide),
    "power": (POSITIVE, Y, np.power), "mod": (X, Y, np.mod), "maximum": (X, Y, np.maximum), "minimum": (X, Y, np.minimum),
    "arctan2": (X, Y, np.arctan2), "logical_and": (YES, Y > 0, np.logical_and), "logical_or": (YES, Y > 0, np.logical_or),
    "logical_xor": (YES, Y > 0, np.logical_xor), "equal": (YES, Y > 0, np.equal), "not_equal": (YES, Y > 0, np.not_equal),
    "less": (X, Y, np.less), "less_equal": (X, Y, np.less_equal), "greater": (X, Y, np.greater),
    "greater_equal": (X, Y, np.greater_equal),
}  # fmt: skip
LABELS = np.array([[0, 2], [3, 9]], np.int32)
OTHER: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "clip": (lambda x: ops.clip(x, -1, 2), lambda x: np.clip(x, -1, 2)),
    "scale": (lambda x: ops.scale(x, 2, 1), lambda x: 2 * x + 1),
    "where": (lambda x: ops.where(x > 0, x, -1.0), lambda x: np.where(x > 0, x, -1.0)),
    "reshape": (lambda x: ops.reshape(x, [4, -1]), lambda x: x.reshape(4, -1)),
    "transpose": (lambda x: ops.transpose(x, [2, 0, 1]), lambda x: x.transpose(2, 0, 1)),
    "expand_dims": (lambda x: ops.expand_dims(x, [0, -1]), lambda x: x[None, ..., None]),
    "squeeze": (lambda x: ops.squeeze(x[:, :1], 1), lambda x: x[:, 0]),
    "broadcast_to": (lambda x: ops.broadcast_to(x[:, :1], (5, 2, 3, 4)), lambda x: np.broadcast_to(x[:, :1], (5, 2, 3, 4))),
    "tile": (lambda x: ops.tile(x, [1, 2, 3]), lambda x: np.tile(x, [1, 2, 3])),
    "concat": (lambda x: ops.concat([x, x[:, :1]], 1), lambda x: np.concatenate([x, x[:, :1]], 1)),
    "stack": (lambda x: ops.stack([x, x + 1], 1), lambda x: np.stack([x, x + 1], 1)),
    "split": (lambda x: ops.split(x, [1, 3], -1)[1], lambda x: x[..., 1:]),
    "pad": (lambda x: ops.pad(x, [(0, 0), (1, 2), (0, 1)], "reflect"), lambda x: np.pad(x, [(0, 0), (1, 2), (0, 1)], "reflect")),
    "flip": (lambda x: ops.flip(x, [0, 2]), lambda x: np.flip(x, [0, 2])),
    "sum": (lambda x: ops.sum(x, 1), lambda x: x.sum(1)),
    "mean": (lambda x: ops.mean(x, [0, 2], keep_dims=True), lambda x: x.mean((0, 2), keepdims=True)),
    "max": (ops.max, np.max),
    "min": (lambda x: ops.min(x, -1), lambda x: x.min(-1)),
    "prod": (lambda x: ops.prod(x, 2), lambda x: x.prod(2)),
    "logsumexp": (lambda x: ops.logsumexp(x, 1), lambda x: np.log(np.exp(x).sum(1))),
    "argmax": (lambda x: ops.argmax(x, 1), lambda x: x.argmax(1)),
    "argmin": (lambda x: ops.argmin(x, -1), lambda x: x.argmin(-1)),
    "one_hot": (
        lambda x: ops.one_hot(x.function.constant(LABELS), 4) + x.sum() * 0,
        lambda x: (LABELS[..., None] == np.arange(4)).astype(np.float32),
    ),
}  # fmt: skip


def run(build: Callable[..., linnet.Tensor], *values: np.ndarray) -> np.ndarray:
    """Runs a graph of one signature on inputs with these values."""
    graph = linnet.Graph()
    dtypes = ["bool" if v.dtype == bool else "f32" for v in values]
    inputs = [graph.placeholder(f"x{i}", v.shape, d) for i, (v, d) in enumerate(zip(values, dtypes, strict=True))]
    graph.signature("infer", {t.name: t for t in inputs}, {"y": build(*inputs)})
    session = linnet.Session(linnet.Model(graph.to_bytes()))
    return session.run({t.name: v for t, v in zip(inputs, values, strict=True)})["y"]


def same(found: np.ndarray, wanted: Any) -> None:
    wanted = np.asarray(wanted)
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype or wanted.dtype == np.float64
    np.testing.assert_allclose(found, wanted, rtol=3e-6, atol=1e-6)


def test_every_function_has_a_case() -> None:
    public = {
        name for module in (elementwise, shaping) for name, value in vars(module).items()
        if callable(value) and name in ops.__all__ and getattr(value, "__module__", "") == module.__name__
    }  # fmt: skip
    assert public == {*UNARY, *BINARY, *OTHER}
    assert all(getattr(ops, name).__doc__ for name in public)


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one(name: str) -> None:
    x, reference = UNARY[name]
    same(run(getattr(ops, name), x), reference(x))


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_broadcast_and_take_numbers(name: str) -> None:
    x, y, reference = BINARY[name]
    function = getattr(ops, name)
    same(run(function, x, y), reference(x, y))
    same(run(lambda t: function(t, y), x), reference(x, y))
    if x.dtype != bool:
        same(run(lambda t: function(t, 2), x), reference(x, np.float32(2)))
        same(run(lambda t: function(2.5, t), POSITIVE), reference(np.float32(2.5), POSITIVE))


@pytest.mark.parametrize("name", OTHER)
def test_functions_with_arguments(name: str) -> None:
    build, reference = OTHER[name]
    same(run(build, X), reference(X))


def test_gelu_approximate() -> None:
    wanted = X * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (X + 0.044715 * X**3)))
    same(run(lambda x: ops.gelu(x, approximate=True), X), wanted)


def test_softplus_does_not_overflow() -> None:
    x = np.float32([-200, -20, 0, 20, 200])
    same(run(ops.softplus, x), np.logaddexp(0, x.astype(np.float64)))


def test_a_shape_may_be_one_tuple() -> None:
    same(run(lambda x: x.reshape((4, 6)).transpose([1, 0]) + x.reshape(6, -1), X), X.reshape(4, 6).T + X.reshape(6, 4))


def test_variables_are_operands() -> None:
    graph = linnet.Graph()
    w = graph.variable("w", np.float32([1, 4]))
    graph.signature("infer", {}, {"y": ops.sqrt(w) + ops.maximum(2.0, w) + ops.sum(w)})
    same(linnet.Session(linnet.Model(graph.to_bytes())).run({})["y"], np.float32([1 + 2 + 5, 2 + 4 + 5]))


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(linnet.Error, match="tensor or variable"):
        ops.maximum(1.0, 2.0)
    x = linnet.Graph().placeholder("x", (2, 3))
    with pytest.raises(linnet.Error, match=r"split evenly.*multiple of 2.*got 3.*list"):
        ops.split(x, 2, 1)
    with pytest.raises(linnet.Error, match="both are numbers"):
        ops.where(x > 0, 1.0, 2.0)
