"""Custom operators of TFLite files: user ops take them, with their options; without one the report says which op is missing."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

import linnet
from linnet.ir.user_op import unpack
from tests.tflite_models import G, O, T, build

Array = np.ndarray[Any, Any]
X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


PLAIN = (T("x", "f32", [2, 3]), T("y", "f32", [2, 3]))


def _model(custom: bytes, tensors: tuple[T, T] = PLAIN, code: str = "Scale", version: int = 1) -> bytes:
    """A custom operator, then a negation."""
    x, y = tensors
    nodes = [O(f"CUSTOM:{code}", [x.name], ["y"], custom=custom), O("NEG", ["y"], ["z"])]
    end = T("z", y.dtype, y.shape, y.scale, y.zero, signature=y.signature)
    return build(G([x, y, end], nodes, [x.name], ["z"]), version=version)


def _flex(**options: Any) -> bytes:
    return bytes(flexbuffers.Dumps(options))


def _scale(x: Array, factor: float, **_: Any) -> Array:
    return x * np.float32(factor)


def _same(x: Any, **_: Any) -> Any:
    return x.dtype, x.shape


def _node(graph: linnet.Graph) -> Any:
    return next(n for n in graph.signatures["infer"].function.nodes if n.op == "user")


def test_a_custom_operator_is_taken_with_its_options(tmp_path: Path) -> None:
    options = {"factor": 2.5, "count": 7, "many": [1, 2, 3], "word": "abc", "on": True, "floats": [0.5, 1.5]}
    (tmp_path / "m.tflite").write_bytes(_model(_flex(**options)))
    op = linnet.UserOp("tflite.Scale", _scale, _same)
    graph = linnet.from_tflite(tmp_path / "m.tflite", user_ops=[op])
    got = unpack(_node(graph).attributes)
    assert got == {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    np.testing.assert_array_equal(linnet.Session(graph).run({"x": X})["z"], -2.5 * X)
    graph.save(tmp_path / "m.lnt")
    with pytest.raises(linnet.GraphError, match=r"needs user op tflite\.Scale"):
        linnet.Session(tmp_path / "m.lnt")
    linnet.Session(tmp_path / "m.lnt", user_ops=[op]).run({"x": X})


@pytest.mark.parametrize(
    "custom", [struct.pack("<3i", 5, 6, 7), bytes(flexbuffers.Dumps([1, "a"])), _flex(nested={"a": 1}), b"\x01"]
)
def test_options_in_another_form_arrive_as_bytes(custom: bytes) -> None:
    seen: list[Any] = []

    def run(x: Array, **attributes: Any) -> Array:
        seen.append(attributes)
        return x

    op = linnet.UserOp("tflite.Scale", run, _same)
    linnet.Session(linnet.from_tflite(_model(custom), user_ops=[op])).run({"x": X})
    (attributes,) = seen
    raw = attributes["custom_options"]
    assert (raw if isinstance(raw, bytes) else raw.encode()) == custom


def test_no_options_and_open_shapes() -> None:
    op = linnet.UserOp("tflite.Scale", lambda x: 3 * x, lambda x: (x.dtype, x.shape))
    tensors = (T("x", "f32", [1, 3], signature=[-1, 3]), T("y", "f32", [1, 3], signature=[-1, 3]))
    session = linnet.Session(linnet.from_tflite(_model(b"", tensors), user_ops=[op]))
    for rows in (1, 4):
        x = np.resize(X, (rows, 3))
        np.testing.assert_array_equal(session.run({"x": x})["z"], -3 * x)


def test_integers_keep_their_quantization() -> None:
    op = linnet.UserOp("tflite.Scale", lambda x: x // 2, _same)
    tensors = (T("x", "i8", [2, 3], 0.5), T("y", "i8", [2, 3], 0.25))
    graph = linnet.from_tflite(_model(b"", tensors), user_ops=[op])
    (output,) = _node(graph).outputs
    assert float(output.quantization.scale[0]) == 0.25
    x = np.arange(-60, 60, 20, dtype=np.int8).reshape(2, 3)
    np.testing.assert_array_equal(linnet.Session(graph).run({"x": x})["z"], -(x // 2))


def test_without_a_rule_the_file_declares_the_shapes() -> None:
    op = linnet.UserOp("tflite.Scale", lambda x: x[:, :2])
    model = _model(b"", (T("x", "f32", [2, 3]), T("y", "f32", [2, 2])))
    np.testing.assert_array_equal(
        linnet.Session(linnet.from_tflite(model, user_ops=[op])).run({"x": X})["z"], -X[:, :2]
    )
    with pytest.raises(linnet.ConversionError, match="has no shape rule, and the shapes of the inputs differ"):
        linnet.from_tflite(model, {"x": (4, 3)}, user_ops=[op])
    open_shapes = (T("x", "f32", [1, 3], signature=[-1, 3]), T("y", "f32", [1, 2], signature=[-1, 2]))
    graph = linnet.from_tflite(_model(b"", open_shapes), user_ops=[op])  # falls back to the sizes in the file
    assert graph.signatures["infer"].function.inputs[0].shape == (1, 3)


def test_without_the_op_the_report_says_which_op_is_missing() -> None:
    with pytest.raises(linnet.ConversionError) as raised:
        linnet.from_tflite(_model(b""), user_ops=[linnet.UserOp("tflite.scale", _scale, _same)])  # case counts
    (problem,) = raised.value.problems
    assert problem.op == "CUSTOM:Scale" and "no rule for the custom op 'Scale'" in problem.reason
    assert "user_ops=[linnet.UserOp('tflite.Scale', ...)]" in problem.hint


def test_check_takes_user_ops(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(_model(b""))
    assert not linnet.check(path).converts
    assert linnet.check(path, user_ops=[linnet.UserOp("tflite.Scale", lambda x: x, _same)]).converts


def test_the_version_of_the_operator_is_the_version_of_the_op() -> None:
    model = _model(_flex(factor=2.0))
    op = linnet.UserOp("tflite.Scale", _scale, _same, version=4)
    assert _node(linnet.from_tflite(model, user_ops=[op])).attribute("version") == 1
    newer = _model(_flex(factor=2.0), version=3)
    assert _node(linnet.from_tflite(newer, user_ops=[op])).attribute("version") == 3
    old = linnet.UserOp("tflite.Scale", _scale, _same, version=2)
    with pytest.raises(linnet.ConversionError, match=r"uses version 3 of this op, and user op .* version 2"):
        linnet.from_tflite(newer, user_ops=[old])


def test_an_op_with_a_rule_can_be_replaced_and_a_failing_rule_is_a_problem() -> None:
    op = linnet.UserOp("tflite.TransformLandmarks", lambda x: x + 1, _same)
    got = linnet.Session(linnet.from_tflite(_model(b"", code="TransformLandmarks"), user_ops=[op])).run({"x": X})
    np.testing.assert_array_equal(got["z"], -(X + 1))
    broken = linnet.UserOp("tflite.Scale", _scale, lambda x: 1 / 0)
    with pytest.raises(linnet.ConversionError, match="ZeroDivisionError"):
        linnet.from_tflite(_model(b""), user_ops=[broken])


def test_convert_quantizes_around_the_op(tmp_path: Path, linnet_command: Any) -> None:
    """The command line: the op stays float between integers, and calibration runs it."""
    weights = np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)
    names = [T("x", "f32", [2, 3]), T("w", "f32", [3, 3], value=weights), T("h", "f32", [2, 3]), T("y", "f32", [2, 3])]
    dense = O("FULLY_CONNECTED", ["x", "w"], ["h"], {"activation": "none"})
    custom = O("CUSTOM:Scale", ["h"], ["y"], custom=_flex(factor=3.0))
    (tmp_path / "m.tflite").write_bytes(build(G(names, [dense, custom], ["x"], ["y"])))
    (tmp_path / "my_ops.py").write_text(
        "import numpy as np\nimport linnet\n"
        "SCALE = linnet.UserOp('tflite.Scale', lambda x, factor: x * np.float32(factor), lambda x, factor: (x.dtype, x.shape))\n"
    )
    np.savez(tmp_path / "c.npz", x=X[None])
    convert = [
        "convert",
        tmp_path / "m.tflite",
        "-o",
        tmp_path / "m.lnt",
        "--dtype",
        "i8",
        "--calibration",
        tmp_path / "c.npz",
    ]
    assert "tflite.Scale" in linnet_command(*convert).stderr
    done = linnet_command(*convert, "--user-ops", tmp_path / "my_ops.py")
    assert done.returncode == 0, done.stderr
    graph = linnet.Graph.load(tmp_path / "m.lnt", user_ops=[linnet.UserOp("tflite.Scale", _scale, _same)])
    nodes = graph.signatures["infer"].function.nodes
    assert any(t is not None and t.dtype == "i8" for n in nodes for t in n.inputs)
    assert [t.dtype for t in (*_node(graph).inputs, *_node(graph).outputs)] == ["f32", "f32"]
    np.testing.assert_allclose(linnet.Session(graph).run({"x": X})["y"], 3 * X @ weights.T, atol=0.1)
