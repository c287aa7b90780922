"""Control flow and state of TFLite models: WHILE, IF, CALL and CALL_ONCE, with variables inside, against LiteRT's reference
kernels over several runs. If no comparison is possible, the expected numbers are computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

import linnet
from tests.tflite_models import G, O, T, build

litert = pytest.importorskip(
    "ai_edge_litert.interpreter", reason="LiteRT is the reference: pip install ai-edge-litert (22 MB)"
)
ADD = {"activation": "none"}


def compare(model: bytes, *steps: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Runs both over the steps, keeping state between them; returns linnet's results."""
    made = litert.Interpreter(
        model_content=model, num_threads=1, experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF
    )
    made.allocate_tensors()
    session = linnet.Session(linnet.from_tflite(model))
    results = []
    for feeds in steps:
        for detail in made.get_input_details():
            made.set_tensor(detail["index"], feeds[detail["name"]])
        made.invoke()
        got = session.run(feeds)
        results.append(got)
        for detail in made.get_output_details():
            wanted, own = made.get_tensor(detail["index"]), got[detail["name"]]
            assert (own.shape, own.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_allclose(own, wanted, rtol=1e-6)
    return results


def counted(limit: str = "n") -> tuple[G, G]:
    """The condition i < n, and the body (i + 1, n, x * 2)."""
    ports = [T("i", "i32", []), T("n", "i32", []), T("x", "f32", [3])]
    test = G([*ports, T("more", "bool", [])], [O("LESS", ["i", "n"], ["more"])], ["i", "n", "x"], ["more"])
    body = G(
        [*ports, T("one", "i32", [], value=np.int32(1)), T("j", "i32", []), T("y", "f32", [3])],
        [O("ADD", ["i", "one"], ["j"], ADD), O("ADD", ["x", "x"], ["y"], ADD)], ["i", "n", "x"], ["j", "n", "y"],
    )  # fmt: skip
    return test, body


def test_while_repeats_as_often_as_its_condition_says() -> None:
    main = G(
        [T("start", "i32", [], value=np.int32(0)), T("n", "i32", []), T("x", "f32", [3]), T("i", "i32", []),
         T("m", "i32", []), T("y", "f32", [3])],
        [O("WHILE", ["start", "n", "x"], ["i", "m", "y"], {"cond_subgraph": 1, "body_subgraph": 2})], ["n", "x"], ["i", "y"],
    )  # fmt: skip
    x = np.float32([1, 2, 3])
    steps = [{"n": np.int32(n), "x": x} for n in (3, 0, 5)]
    assert [r["y"].tolist() for r in compare(build(main, *counted()), *steps)] == [[8, 16, 24], [1, 2, 3], [32, 64, 96]]


def variable(name: str = "v") -> O:
    return O("VAR_HANDLE", [], [name], {"shared_name": "total", "container": ""})


def start(value: float = 10) -> G:
    """total = value * value, computed when the model is initialized."""
    tensors = [T("v", "resource"), T("c", "f32", [2], value=np.full(2, value, np.float32)), T("s", "f32", [2])]
    return G(tensors, [variable(), O("MUL", ["c", "c"], ["s"], ADD), O("ASSIGN_VARIABLE", ["v", "s"], [])], [], [])


def added(sign: str) -> G:
    """total = total + x (or - x), which is also the result."""
    tensors = [T("x", "f32", [2]), T("v", "resource"), T("old", "f32", [2]), T("new", "f32", [2])]
    operators = [
        variable(), O("READ_VARIABLE", ["v"], ["old"]), O(sign, ["old", "x"], ["new"], ADD),
        O("ASSIGN_VARIABLE", ["v", "new"], []),
    ]  # fmt: skip
    return G(tensors, operators, ["x"], ["new"])


def test_a_variable_may_start_with_a_computed_value() -> None:
    x = np.float32([1, 2])
    main = added("ADD")
    main.operators = [O("CALL_ONCE", [], [], {"subgraph": 1}), *main.operators]
    results = compare(build(main, start(3)), {"x": x}, {"x": x})
    assert results[1]["new"].tolist() == [11, 13]


def test_branches_read_and_assign_variables() -> None:
    """The else branch does not touch the variable."""
    main = G(
        [T("c", "bool", []), T("x", "f32", [2]), T("y", "f32", [2]), T("v", "resource"), T("after", "f32", [2])],
        [O("CALL_ONCE", [], [], {"subgraph": 3}), O("IF", ["c", "x"], ["y"], {"then_subgraph": 1, "else_subgraph": 2}),
         variable(), O("READ_VARIABLE", ["v"], ["after"])], ["c", "x"], ["y", "after"],
    )  # fmt: skip
    other = G([T("x", "f32", [2]), T("z", "f32", [2])], [O("NEG", ["x"], ["z"])], ["x"], ["z"])
    x = np.float32([1, 2])
    steps = [{"c": np.array(c), "x": x} for c in (True, False, True, True)]
    results = compare(build(main, added("SUB"), other, start()), *steps)
    assert [r["after"].tolist() for r in results] == [[99, 98], [99, 98], [98, 96], [97, 94]]


def test_a_loop_assigns_a_variable() -> None:
    """Each iteration adds x. The handle is made inside and outside."""
    test, _ = counted()
    test.tensors = [T("i", "i32", []), T("n", "i32", []), T("x", "f32", [2]), T("more", "bool", [])]
    inner = added("ADD")
    body = G(
        [T("i", "i32", []), T("n", "i32", []), *inner.tensors, T("one", "i32", [], value=np.int32(1)), T("j", "i32", [])],
        [*inner.operators, O("ADD", ["i", "one"], ["j"], ADD)], ["i", "n", "x"], ["j", "n", "x"],
    )  # fmt: skip
    main = G(
        [T("i0", "i32", [], value=np.int32(0)), T("n", "i32", []), T("x", "f32", [2]), T("i", "i32", []), T("m", "i32", []),
         T("z", "f32", [2]), T("v", "resource"), T("after", "f32", [2])],
        [O("CALL_ONCE", [], [], {"subgraph": 3}),
         O("WHILE", ["i0", "n", "x"], ["i", "m", "z"], {"cond_subgraph": 1, "body_subgraph": 2}),
         variable(), O("READ_VARIABLE", ["v"], ["after"])], ["n", "x"], ["i", "after"],
    )  # fmt: skip
    x = np.float32([1, 2])
    results = compare(build(main, test, body, start(1)), *({"n": np.int32(n), "x": x} for n in (2, 0, 3)))
    assert [r["after"].tolist() for r in results] == [[3, 5], [3, 5], [6, 11]]


@pytest.mark.parametrize("op", ["CALL", "STABLEHLO_COMPOSITE"])
def test_a_call_is_its_subgraph(op: str) -> None:
    """LiteRT has no kernel for CALL."""
    main = G([T("x", "f32", [2]), T("y", "f32", [2])], [O(op, ["x"], ["y"], {"subgraph": 1})], ["x"], ["y"])
    session = linnet.Session(linnet.from_tflite(build(main, added("SUB"))))
    x = np.float32([1, 2])
    assert [session.run({"x": x})["y"].tolist() for _ in range(2)] == [[-1, -2], [-2, -4]]


def test_a_branch_that_cannot_be_converted_is_a_problem_of_its_own() -> None:
    main = G([T("c", "bool", []), T("x", "f32", [2]), T("y", "f32", [2])],
             [O("IF", ["c", "x"], ["y"], {"then_subgraph": 1, "else_subgraph": 1})], ["c", "x"], ["y"])  # fmt: skip
    bad = G([T("a", "f32", [2]), T("b", "f32", [2])], [O("LSH_PROJECTION", ["a"], ["b"])], ["a"], ["b"])
    with pytest.raises(linnet.ConversionError) as caught:
        linnet.from_tflite(build(main, bad))
    assert {p.op for p in caught.value.problems} == {"LSH_PROJECTION"}
    assert all("then_y/" in p.node or "else_y/" in p.node for p in caught.value.problems)


def test_subgraphs_that_call_each_other_are_refused() -> None:
    main = G([T("x", "f32", [2]), T("y", "f32", [2])], [O("CALL", ["x"], ["y"], {"subgraph": 0})], ["x"], ["y"])
    with pytest.raises(linnet.ConversionError, match="calls itself"):
        linnet.from_tflite(build(main))
