"""User ops of a C library, in Python, on the command line, and in C programs; and both examples of examples/user_op.
tests/ext/user_ops.c is the library; tests/c/test_user.c has what only C can reach."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from examples.user_op import __main__ as example
from linnet import ops
from tests.native import ROOT, build, compile_c, run

INCLUDE = f"-I{ROOT / 'runtime_c' / 'include'}"
EXAMPLE = ROOT / "examples" / "user_op"
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def _library(source: Path, folder: Path, name: str) -> Path:
    """The library needs nothing but the public header."""
    return compile_c([source], folder / name, "-shared", "-fPIC", "-Wl,-z,defs", INCLUDE)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _library(ROOT / "tests" / "ext" / "user_ops.c", tmp_path_factory.mktemp("library"), "libuserops.so")


@pytest.fixture(scope="module")
def loaded(path: Path) -> dict[str, linnet.UserOp]:
    return {op.name.removeprefix("com.example."): op for op in linnet.load_user_ops(path)}


@pytest.fixture(scope="module")
def crop(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The example's library, and a file that names its op."""
    folder = tmp_path_factory.mktemp("crop")
    library = _library(EXAMPLE / "crop.c", folder, "libcrop.so")
    (op,) = linnet.load_user_ops(library)
    graph = linnet.Graph()
    x = graph.placeholder("x", (2, 6))
    graph.signature("infer", {"x": x}, {"y": op(x, start=1, size=3)})
    graph.save(folder / "crop.lnt")
    return library, folder / "crop.lnt"


def _single(op: linnet.UserOp, shape: tuple[Any, ...] = ("n", 3, 4), **attributes: Any) -> linnet.Graph:
    graph = linnet.Graph()
    x = graph.placeholder("x", shape)
    graph.signature("infer", {"x": x}, {"y": op(ops.relu(x), **attributes)})
    return graph


def test_ops_of_a_library(loaded: dict[str, linnet.UserOp], path: Path, tmp_path: Path) -> None:
    assert {name: op.version for name, op in loaded.items()} == {
        "scale": 3,
        "negate": 1,
        "broken": 1,
        "describe": 9,
        "positive": 1,
        "permitted": 1,
    }
    graph = _single(loaded["scale"], factor=2.5)
    assert graph.signatures["infer"].function.outputs[0].shape == ("n", 3, 4)
    graph.save(tmp_path / "scale.lnt")
    for threads in (1, 2):
        session = linnet.Session(tmp_path / "scale.lnt", user_ops=linnet.load_user_ops(path), threads=threads)
        for rows in (2, 64, 0):
            x = np.resize(X, (rows, 3, 4))
            np.testing.assert_array_equal(session.run({"x": x})["y"], 2.5 * x)
    assert linnet.Session(graph, input_shapes={"x": (2, 3, 4)}).steps[1].kernel == "com.example.scale"
    with pytest.raises(linnet.GraphError, match=r"shape rule of user op .* failed: the attribute factor is missing"):
        _single(loaded["scale"])


def test_a_gradient_for_an_op_of_a_library(path: Path) -> None:
    scale = next(op for op in linnet.load_user_ops(path) if op.name.endswith("scale"))
    graph = linnet.Graph()
    x = graph.placeholder("x", (3,))
    with pytest.raises(linnet.GraphError, match="has no gradient"):
        linnet.gradients(ops.reduce(scale(x, factor=3.0), kind="sum"), [x])
    scale.gradient = lambda inputs, outputs, gradients, factor: [scale(gradients[0], factor=factor)]
    (g,) = linnet.gradients(ops.reduce(scale(x, factor=3.0), kind="sum"), [x])
    graph.signature("infer", {"x": x}, {"g": g})
    np.testing.assert_array_equal(linnet.Session(graph).run({"x": np.ones(3, np.float32)})["g"], [3, 3, 3])


def test_several_outputs_without_a_rule(loaded: dict[str, linnet.UserOp]) -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (2, 3, 4))
    a, _, c = loaded["negate"](x, outputs=[("f32", (2, 3, 4))] * 3)
    graph.signature("infer", {"x": x}, {"a": a, "c": c + 1.0})
    got = linnet.Session(graph).run({"x": X})
    np.testing.assert_array_equal(got["a"], -X)
    np.testing.assert_array_equal(got["c"], 1 - X)


def test_c_sees_every_attribute(loaded: dict[str, linnet.UserOp]) -> None:
    graph = linnet.Graph()
    given = {
        "length": 200, "numbers": [1, -2], "empty": [], "half": 0.5, "floats": [1.5, 2.5], "word": "gr\u00f6", "words": ["a", ""],
        "raw": b"\xff",
    }  # fmt: skip
    graph.signature("infer", {}, {"y": loaded["describe"](function=graph.main, **given)})
    got = bytes(linnet.Session(graph).run({})["y"])
    text = b"version 9; length:0[-1] 200 numbers:0[2] 1 -2 empty:0[0] half:1[-1] 0.5 floats:1[2] 1.5 2.5 "
    text += "word:2[-1] 'gr\u00f6'/4 words:2[2] 'a'/1 ''/0 ".encode() + b"raw:3[-1] '\xff'/1"
    assert got.rstrip(b"\0") == text


def test_a_library_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(linnet.UsageError, match="cannot load user ops"):
        linnet.load_user_ops(tmp_path / "missing.so")
    other = compile_c([EXAMPLE / "crop.c"], tmp_path / "libother.so", "-shared", "-fPIC", INCLUDE,
                      "-Dlinnet_extension_user_ops=another_name")  # fmt: skip
    with pytest.raises(linnet.UsageError, match="must export linnet_extension_user_ops"):
        linnet.load_user_ops(other)


def test_an_op_of_a_library_cannot_be_pickled(loaded: dict[str, linnet.UserOp]) -> None:
    import pickle

    with pytest.raises(linnet.UsageError, match="is in a C library"):
        pickle.dumps(loaded["scale"])
    with pytest.raises(linnet.UsageError, match="kernel of this user op is in a C library"):
        loaded["scale"].run(X)


# ---- command lines -----------------------------------------------------------------------------------------------------


@pytest.fixture
def cli(linnet_command: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., str]:
    """Runs `linnet ARGUMENTS`, checks its exit status, and returns what it prints."""

    def run_it(*arguments: object, status: int = 0) -> str:
        done = linnet_command(*arguments)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stderr if status else done.stdout

    return run_it


@pytest.mark.parametrize("command", [("run", "--random"), ("bench", "--seconds", 0.01), ("plan",)])
def test_commands_take_user_ops(
    command: tuple[object, ...], crop: tuple[Path, Path], tmp_path: Path, cli: Callable[..., str]
) -> None:
    library, model = crop
    name, *rest = command
    assert "needs user op com.example.crop" in cli(name, model, *rest, status=1)
    cli(name, model, *rest, "--user-ops", library)
    source = tmp_path / "my_ops.py"
    source.write_text("import linnet\nCROP = linnet.UserOp('com.example.crop', lambda x, start, size: "
                      "x[:, start : start + size], lambda x, start, size: (x.dtype, (2, size)))\nother = 3\n")  # fmt: skip
    cli(name, model, *rest, "--user-ops", source)
    cli(name, model, *rest, "--user-ops", f"{source}:CROP")
    assert "there is no linnet.UserOp" in cli(name, model, *rest, "--user-ops", f"{source}:other", status=2)
    assert "cannot be imported" in cli(name, model, *rest, "--user-ops", tmp_path / "none.py", status=2)
    assert "cannot be imported" in cli(name, model, *rest, "--user-ops", "no.such.module", status=2)


def test_inspect_and_verify_need_no_user_ops(crop: tuple[Path, Path], cli: Callable[..., str]) -> None:
    _, model = crop
    report = json.loads(cli("inspect", model, "--json"))
    assert report["ops"] == {"user": 1}
    (node,) = report["functions"][0]["nodes"]
    assert node["attributes"] == {"op": "com.example.crop", "version": 1, "start": 1, "size": 3}
    assert "intact" in cli("verify", model)


def test_convert_takes_user_ops(crop: tuple[Path, Path], tmp_path: Path, cli: Callable[..., str]) -> None:
    import onnx
    from onnx import TensorProto, helper

    library, _ = crop
    node = helper.make_node("crop", ["x"], ["y"], domain="com.example", size=2)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, d]) for n, d in (("x", 6), ("y", 2)))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    onnx.save(
        helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=opsets, ir_version=9),
        tmp_path / "m.onnx",
    )
    assert "com.example.crop" in cli("convert", tmp_path / "m.onnx", "-o", tmp_path / "m.lnt", status=1)
    cli("convert", tmp_path / "m.onnx", "-o", tmp_path / "m.lnt", "--user-ops", library)
    cli("convert", tmp_path / "m.onnx", "--check", "--user-ops", library)
    cli("run", tmp_path / "m.lnt", "--random", "--user-ops", library)


@pytest.mark.parametrize("tool", [("linnet-run", "--random"), ("linnet-bench", "--seconds", "0.01")])
def test_native_tools_take_user_ops(tool: tuple[str, ...], crop: tuple[Path, Path], tmp_path: Path) -> None:
    library, model = crop
    command = [str(build("release", "linnet-run", "linnet-bench") / tool[0]), str(model), *tool[1:]]

    def done(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *more], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    missing = done()
    assert missing.returncode == 1 and "needs user op com.example.crop" in missing.stderr
    given = done("--user-ops", str(library))
    assert given.returncode == 0, given.stderr
    for wrong in ("none.so", str(model)):
        failed = done("--user-ops", wrong)
        assert failed.returncode == 1 and "cannot be loaded" in failed.stderr and len(failed.stderr.splitlines()) == 1


# ---- examples ----------------------------------------------------------------------------------------------------------


def test_the_example_in_c(crop: tuple[Path, Path], tmp_path: Path) -> None:
    """The op inside a C program, compiled with the command of the file's first comment."""
    _, model = crop
    found = re.search(r"^ \*\s+(cc .+)$", (EXAMPLE / "main.c").read_text(), re.MULTILINE)
    assert found
    words = found.group(1).replace("../../build/", f"{build('release')}/").split()
    run([*words[:-1], str(tmp_path / "crop"), "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"], cwd=EXAMPLE)
    assert run([str(tmp_path / "crop"), str(model)]) == "1 2 3 7 8 9\n"
    plain = _single(example.SPARSEMAX, (2, 3))
    plain.save(tmp_path / "other.lnt")
    other = subprocess.run(
        [str(tmp_path / "crop"), str(tmp_path / "other.lnt")], capture_output=True, text=True, check=False
    )
    assert other.returncode == 1 and "needs user op com.example.sparsemax" in other.stderr


def test_the_example_in_c_refuses_what_it_cannot_do(crop: tuple[Path, Path]) -> None:
    (op,) = linnet.load_user_ops(crop[0])
    graph = linnet.Graph()
    x = graph.placeholder("x", (2, 6))
    for operand, attributes, text in (
        (x, {}, "'size' is missing"), (x, {"size": -1}, "negative"), (x, {"start": 4, "size": 3}, "too long"),
        (graph.placeholder("i", (2,), "i8"), {"size": 1}, "only f32"), (graph.placeholder("s", ()), {"size": 1}, "a scalar"),
    ):  # fmt: skip
        with pytest.raises(linnet.GraphError, match=text):
            op(operand, **attributes)


def test_the_example_in_python() -> None:
    assert example.slope_error() < 1e-7
    losses, path = example.train(200)
    assert losses[-1] < 0.01 * losses[0]
    done = subprocess.run(
        [sys.executable, "-m", "examples.user_op"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "100%" not in done.stdout and "sum to 1.000" in done.stdout, (
        done.stdout + done.stderr
    )
    with pytest.raises(linnet.GraphError, match=r"needs user op com\.example\.sparsemax"):
        linnet.Session(path)
