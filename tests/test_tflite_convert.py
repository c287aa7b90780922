"""The TFLite importer alone: float16 and sparse weights, state, branches, open shapes, refusals, damaged files, and the command
line. Nothing here needs TensorFlow or LiteRT."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

import linnet
from tests.tflite_models import G, O, T, build


def dense(value: np.ndarray, **keys: object) -> bytes:
    """y = relu(x @ w.T) with the given w."""
    names = {"float32": "f32", "float16": "f16", "int8": "i8"}
    tensors = [
        T("x", "f32", [2, 3]), T("w", names[str(value.dtype)], value.shape, value=value, **keys), T("y", "f32", [2, 4]),
    ]  # fmt: skip
    return build(G(tensors, [O("FULLY_CONNECTED", ["x", "w", ""], ["y"], {"activation": "relu"})], ["x"], ["y"]))


X = np.array([[1, -2, 0.5], [0.25, 3, -1]], np.float32)
W = np.arange(12, dtype=np.float32).reshape(4, 3) - 5


def run(model: bytes, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    return linnet.Session(linnet.from_tflite(model)).run(feeds)


def test_float_weights() -> None:
    np.testing.assert_allclose(run(dense(W), x=X)["y"], np.maximum(X @ W.T, 0), rtol=1e-6)


def test_float16_weights_become_floats_while_converting() -> None:
    half = W.astype(np.float16)
    tensors = [
        T("x", "f32", [2, 3]), T("h", "f16", [4, 3], value=half), T("w", "f32", [4, 3]), T("y", "f32", [2, 4]),
    ]  # fmt: skip
    operators = [O("DEQUANTIZE", ["h"], ["w"]), O("FULLY_CONNECTED", ["x", "w", ""], ["y"], {"activation": "none"})]
    graph = linnet.from_tflite(build(G(tensors, operators, ["x"], ["y"])))
    assert [node.op for node in graph.functions[0].nodes] == ["matmul"]
    np.testing.assert_allclose(linnet.Session(graph).run({"x": X})["y"], X @ half.astype(np.float32).T, rtol=1e-6)


def test_hybrid_weights_stay_integers_and_activations_are_rounded_to_8_bits() -> None:
    """Rounds row by row, symmetrically; test_tflite_ops.py compares with LiteRT."""
    stored = np.clip(W * 9, -127, 127).astype(np.int8)
    scale = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    graph = linnet.from_tflite(dense(stored, scale=scale, zero=0))
    assert graph.metadata["tflite.hybrid"].startswith("1 operators")
    constants = [t for t in graph.functions[0].tensors() if t.data is not None and t.data.shape == (4, 3)]
    assert [t.dtype for t in constants] == ["i8"]
    step = np.abs(X).max(1, keepdims=True) / 127
    expected = (np.round(X / step) @ stored.T.astype(np.float32)) * step * scale
    np.testing.assert_allclose(linnet.Session(graph).run({"x": X})["y"], np.maximum(expected, 0), rtol=1e-5)


def accumulator() -> bytes:
    """total += x; returns the new total. CALL_ONCE initializes it to 10."""
    ports = [T("x", "f32", [2]), T("once", "resource"), T("old", "f32", [2]), T("y", "f32", [2])]
    variable = O("VAR_HANDLE", [], ["once"], {"shared_name": "total", "container": ""})
    main = G(ports, [
        O("CALL_ONCE", [], [], {"subgraph": 1}), variable, O("READ_VARIABLE", ["once"], ["old"]),
        O("ADD", ["x", "old"], ["y"], {"activation": "none"}), O("ASSIGN_VARIABLE", ["once", "y"], []),
    ], ["x"], ["y"])  # fmt: skip
    start = G([T("once", "resource"), T("ten", "f32", [2], value=np.float32([10, 10]))],
              [variable, O("ASSIGN_VARIABLE", ["once", "ten"], [])], [], [])  # fmt: skip
    return build(main, start)


def test_variables_keep_state_between_runs_and_start_as_call_once_says() -> None:
    session = linnet.Session(linnet.from_tflite(accumulator()))
    step = np.float32([1, 2])
    assert session.run({"x": step})["y"].tolist() == [11, 12]
    assert session.run({"x": step})["y"].tolist() == [12, 14]


def test_both_branches_of_if_become_functions() -> None:
    main = G([T("c", "bool", []), T("x", "f32", [3]), T("y", "f32", [3])],
             [O("IF", ["c", "x"], ["y"], {"then_subgraph": 1, "else_subgraph": 2})], ["c", "x"], ["y"])  # fmt: skip
    branches = [
        G([T("a", "f32", [3]), T("b", "f32", [3])], [O(op, ["a"], ["b"])], ["a"], ["b"]) for op in ("EXP", "NEG")
    ]
    session = linnet.Session(linnet.from_tflite(build(main, *branches)))
    x = np.float32([0.5, -1, 2])
    np.testing.assert_allclose(session.run({"c": np.array(True), "x": x})["y"], np.exp(x), rtol=1e-6)
    np.testing.assert_array_equal(session.run({"c": np.array(False), "x": x})["y"], -x)


def test_open_dimensions_stay_open_and_can_be_fixed() -> None:
    tensors = [T("x", "f32", [1, 4], signature=[-1, 4]), T("y", "f32", [1, 4], signature=[-1, 4])]
    model = build(G(tensors, [O("TANH", ["x"], ["y"])], ["x"], ["y"]))
    graph = linnet.from_tflite(model)
    assert graph.functions[0].inputs[0].shape == (None, 4)
    assert linnet.Session(graph).run({"x": np.zeros((5, 4), np.float32)})["y"].shape == (5, 4)
    assert linnet.from_tflite(model, {"x": (3, 4)}).functions[0].outputs[0].shape == (3, 4)
    with pytest.raises(linnet.UsageError, match="names 'z', but the model has no input"):
        linnet.from_tflite(model, {"z": (3, 4)})
    with pytest.raises(linnet.UsageError, match="rank"):
        linnet.from_tflite(model, {"x": (3,)})


def test_sparse_weights_are_made_dense() -> None:
    """CSR: the second dimension of [4, 3] is compressed."""
    from linnet.converters.tflite.sparse import densify

    class Fake:
        """A table with the given fields."""

        def __init__(self, **fields: object) -> None:
            self.fields = fields

        def ints(self, field: int) -> object:
            return self.fields.get(f"f{field}")

        def scalar(self, field: int, kind: str, default: int = 0) -> object:
            return self.fields.get(f"f{field}", default)

        children = child = ints

        def array(self, field: int, dtype: object) -> object:
            return np.asarray(self.fields[f"f{field}"], dtype)

    rows = Fake(f0=0, f1=4)
    columns = Fake(f0=1, f2=1, f3=Fake(f0=[0, 1, 1, 3, 4]), f4=1, f5=Fake(f0=[2, 0, 1, 1]))
    sparsity = Fake(f0=[0, 1], f1=[], f2=[rows, columns])
    values = np.float32([7, 8, 9, 10])
    expected = [[0, 0, 7], [0, 0, 0], [8, 9, 0], [0, 10, 0]]
    np.testing.assert_array_equal(densify(values, (4, 3), sparsity, "w"), expected)  # type: ignore[arg-type]
    # the same, stored as blocks of [2, 1]: rows of blocks, compressed columns, then the block
    blocks = Fake(f0=1, f2=1, f3=Fake(f0=[0, 1, 3]), f4=1, f5=Fake(f0=[2, 0, 1]))
    sparsity = Fake(f0=[0, 1, 2], f1=[0], f2=[Fake(f0=0, f1=2), blocks, Fake(f0=0, f1=2)])
    dense_blocks = densify(np.float32([7, 0, 8, 0, 9, 10]), (4, 3), sparsity, "w")  # type: ignore[arg-type]
    np.testing.assert_array_equal(dense_blocks, expected)


def test_every_problem_is_reported_at_once() -> None:
    tensors = [T("x", "f32", [4]), T("a", "f32", [4]), T("b", "f32", [4]), T("s", "i32", [2]), T("y", "f32", [2, 2])]
    operators = [
        O("LSH_PROJECTION", ["x"], ["a"]), O("SKIP_GRAM", ["a"], ["b"]), O("EXP", ["b"], ["a"]), O("RESHAPE", ["x", "s"], ["y"]),
    ]  # fmt: skip
    with pytest.raises(linnet.ConversionError) as caught:
        linnet.from_tflite(build(G(tensors, operators, ["x"], ["y"])))
    assert [p.op for p in caught.value.problems] == ["LSH_PROJECTION", "SKIP_GRAM", "RESHAPE"]
    assert all(p.hint for p in caught.value.problems)
    assert "'s', but no input" in caught.value.problems[2].reason


def test_files_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(linnet.FileError, match="TFL3"):
        linnet.from_tflite(b"12345678")
    with pytest.raises(linnet.FileError, match="damaged"):
        linnet.from_tflite(b"\xff\xff\xff\x7fTFL3" + b"\xff" * 40)
    with pytest.raises(linnet.FileError, match="not_found"):
        linnet.from_tflite(tmp_path / "none.tflite")


@pytest.mark.parametrize("seed", range(4))
def test_mutated_files_give_an_error_record_or_a_graph(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for original in (dense(W), accumulator()):
        for _ in range(75):
            content = bytearray(original)
            for _ in range(int(rng.integers(1, 6))):
                content[int(rng.integers(0, len(content)))] = int(rng.integers(0, 256))
            if rng.random() < 0.2:
                content = content[: int(rng.integers(0, len(content)))]
            try:
                linnet.from_tflite(bytes(content))
            except linnet.Error as error:
                assert str(error)


def test_the_command_takes_tflite_files(tmp_path: Path, linnet_command: Callable[..., CompletedProcess[str]]) -> None:
    source, target = tmp_path / "m.bin", tmp_path / "m.lnt"  # recognized by its identifier
    source.write_bytes(dense(W))
    done = linnet_command("convert", source, "-o", target)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(linnet.Session(target).run({"x": X})["y"], np.maximum(X @ W.T, 0), rtol=1e-6)
    (tmp_path / "bad.tflite").write_bytes(b"nothing")
    done = linnet_command("convert", tmp_path / "bad.tflite", "-o", target)
    assert done.returncode == 1 and "TFLite" in done.stderr
