"""Variables are accepted wherever tensors are: by every function of ops, nn, losses and metrics, alone and inside loops; uses
that a gradient cannot see are refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import losses, metrics, nn, ops
from linnet.facade import Graph
from linnet.ir.function import Tensor, Variable

ARRAYS = [np.ones((2, 3), np.float32), np.ones((2, 3, 4, 4), np.float32), np.zeros(2, np.int32)]


def functions(module: ModuleType) -> list[Callable[..., Any]]:
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    found = (getattr(module, name) for name in names)
    return [f for f in found if inspect.isfunction(f) and "Tensor" in str(inspect.signature(f).return_annotation)]


def attempt(function: Callable[..., Any], arrays: tuple[np.ndarray[Any, Any], ...], variables: bool) -> str:
    """The type of the result or of the error, for variables or constants with these values."""
    graph = Graph()
    made = [graph.variable(f"v{i}", a) if variables else graph.placeholder(f"v{i}", a.shape, str(a.dtype)[0] + "32")
            for i, a in enumerate(arrays)]  # fmt: skip
    arguments: list[Any] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.default is not parameter.empty or parameter.kind not in (0, 1):
            continue
        kind, last = str(parameter.annotation), made[min(len(arguments), len(made) - 1)]
        if kind.startswith("Sequence[Operators"):
            arguments.append([last])
        elif "Operators" in kind or parameter.name in ("a", "b", "target", "targets", "labels"):
            arguments.append(last)
        else:
            arguments.append({"Graph": graph, "str": "name"}.get(kind, 1))
    try:
        return type(function(*arguments)).__name__
    except Exception as error:
        return f"{type(error).__name__} {getattr(error, 'what', '')[:30]}"


@pytest.mark.parametrize("module", [ops, nn, losses, metrics], ids=lambda m: m.__name__)
def test_every_function_takes_variables_as_it_takes_tensors(module: ModuleType) -> None:
    ran = 0
    for function in functions(module):
        for arrays in [(a, b) for a in ARRAYS for b in ARRAYS]:
            expected = attempt(function, arrays, variables=False)
            assert attempt(function, arrays, variables=True) == expected, function.__name__
            ran += expected in ("Tensor", "list", "tuple", "Running")
    assert ran > len(functions(module))


def test_a_layer_that_does_nothing_still_gives_a_tensor() -> None:
    v = Graph().variable("v", np.ones((2, 3), np.float32))
    for made in (nn.dropout(v, 0.5, False), nn.gaussian_noise(v, 0.0, True)):
        assert isinstance(made, Tensor) and made.variable is v


def test_variables_know_their_shape() -> None:
    v = Graph().variable("v", np.ones((2, 3), np.float32))
    assert (v.shape, v.static_shape, v.rank, v.dtype) == ((2, 3), (2, 3), 2, "f32")
    with pytest.raises(linnet.UsageError, match="does not belong to a graph"):
        ops.relu(Variable("alone", np.ones(2, np.float32)))


def test_a_loop_captures_variables_that_its_functions_take(torch: Any) -> None:
    graph = Graph()
    x, v = graph.placeholder("x", (4, 3)), graph.variable("v", np.float32([-1, 0.5, 2]))
    last, _ = linnet.scan(lambda h, row: (h * ops.tanh(v) + row, None), ops.relu(v), x)
    (slope,) = linnet.gradients(last.sum(), [v])
    graph.signature("slope", {"x": x}, {"slope": slope})
    rows = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    w = torch.tensor([-1, 0.5, 2], requires_grad=True)
    h = torch.relu(w)
    for row in torch.from_numpy(rows):
        h = h * torch.tanh(w) + row
    h.sum().backward()
    np.testing.assert_allclose(linnet.Session(graph, "slope").run({"x": rows})["slope"], w.grad.numpy(), rtol=1e-5)


def test_a_variable_is_a_loss() -> None:
    graph = Graph()
    v = graph.variable("v", np.float32(3))
    graph.signature("train", {}, {"loss": v}, updates=linnet.SGD(0.5).minimize(v))
    session = linnet.Session(graph, "train")
    assert session.run({})["loss"] == 3 and session.variables["v"] == 2.5


def test_a_variable_that_a_branch_reads_by_itself_is_refused() -> None:
    """Functions built by hand, as importers build them, may read variables; their gradient would be lost."""
    graph = Graph()
    x, v = graph.placeholder("x", (3,)), graph.variable("v", np.ones(3, np.float32))
    w = graph.variable("w", np.ones(3, np.float32))
    branches = []
    for name in ("then", "else"):
        function = graph.function(name)
        given = function.placeholder("given", "f32", (3,))
        function.outputs = [given * function.read(v)]
        branches.append(function)
    (y,) = ops.if_((x.sum() > 0.0), [x * w], then_function=branches[0], else_function=branches[1], outputs=1)
    for attempt in (lambda: linnet.gradients(y.sum(), [v]), lambda: linnet.SGD(0.1).minimize(y.sum())):
        with pytest.raises(
            linnet.GraphError, match="'v' is read inside function 'then', where no gradient can reach it"
        ):
            attempt()
    assert linnet.gradients(y.sum(), [w])[0].shape == (3,)


@pytest.mark.parametrize("where", ["scan", "cond"])
def test_batch_norm_does_not_train_inside_a_loop(where: str) -> None:
    graph = Graph()
    x = graph.placeholder("x", (4, 2, 3))

    def layer(h: Tensor) -> Tensor:
        return nn.batch_norm(h, training=True)

    with pytest.raises(linnet.UsageError, match="batch_norm cannot train inside a branch or loop"):
        if where == "scan":
            linnet.scan(lambda h, row: (layer(h + row), None), graph.constant(np.zeros((2, 3), np.float32)), x)
        else:
            linnet.cond(x.sum() > 0.0, lambda: layer(x), lambda: x)
    assert not graph.bodies


def test_what_is_no_tensor_is_refused_in_words() -> None:
    graph = Graph()
    x, array = graph.placeholder("x", ("batch", 3)), np.ones((3, 2), np.float32)
    wrong: list[Any] = [array, None, 3.0]
    for value in wrong:
        for attempt in (lambda v: ops.matmul(x, v) if v is not None else ops.relu(v), lambda v: nn.dense(v, 3),
                        lambda v: metrics.accuracy(x, v)):  # fmt: skip
            with pytest.raises(linnet.UsageError, match="must be a tensor or variable"):
                attempt(value)


def test_a_comparison_is_no_truth_value() -> None:
    x = Graph().placeholder("x", ())
    with pytest.raises(linnet.UsageError, match=r"no truth value while the graph is being built.*linnet\.cond"):
        bool(x > 0.0)
    assert x in [x] and x == x
