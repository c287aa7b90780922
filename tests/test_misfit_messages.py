"""Errors blame what is at fault: a full disk, an empty calibration array, the shape given for an input, a user's own converter
rule or gradient, and not a folder, a name, a node or linnet."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import linnet
from linnet.converters.onnx.registry import RULES, rule
from tests.native import build, run
from tests.test_docs import ROOT, snippets


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "No space left on device; the disk is full: free some space"),
        (errno.EROFS, "Read-only file system; the file system is read-only"),
        (errno.EACCES, "Permission denied; give a path in an existing folder"),
    ],
)
def test_a_full_disk_is_not_called_a_missing_folder(
    number: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(handle: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(linnet.FileError, match=message):
        linnet.Graph().save(tmp_path / "x.lnt")
    assert not list(tmp_path.iterdir())


def conv(shape: tuple[int | None, ...] | None) -> onnx.ModelProto:
    node = helper.make_node("Conv", ["image", "w"], ["y"], name="first")
    weights = helper.make_tensor("w", TensorProto.FLOAT, [4, 3, 3, 3], np.ones(108, np.float32))
    inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(helper.make_graph([node], "g", inputs, outputs, [weights]), opset_imports=opset)


def test_an_empty_calibration_array_is_called_empty(tmp_path: Path) -> None:
    np.savez(tmp_path / "empty.npz", image=np.zeros((0, 1, 3, 8, 8), np.float32))
    onnx.save(conv((1, 3, 8, 8)), tmp_path / "m.onnx")
    words = ["convert", "m.onnx", "--dtype", "i8", "--calibration", "empty.npz", "-o", "m.lnt"]
    command = [sys.executable, "-m", "linnet", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "holds no batch; expected one batch or more, got an array of shape [0, 1, 3, 8, 8]" in " ".join(
        done.stderr.split()
    )


def test_the_shape_given_for_an_input_is_blamed_on_the_input() -> None:
    with pytest.raises(linnet.ConversionError, match=r"input 'image': the shape given for it is \[1, 8, 8, 3\]"):
        linnet.from_onnx(conv((1, 3, 8, 8)), {"image": (1, 8, 8, 3)})
    with pytest.raises(linnet.ConversionError, match="input 'picture': a shape is given for it, but the model has no"):
        linnet.from_onnx(conv((1, 3, 8, 8)), {"picture": (1, 8, 8, 3)})
    with pytest.raises(linnet.ConversionError, match=r"and the shape given for 'image', \[1, 8, 8, 3\]"):
        linnet.from_onnx(conv(None), {"image": (1, 8, 8, 3)})
    graph = linnet.from_onnx(conv(None))
    session = linnet.Session(graph)
    with pytest.raises(linnet.GraphError, match=r"check the shape given for input 'image'"):
        session.run({"image": np.ones((1, 8, 8, 3), np.float32)})


@pytest.fixture
def one_op(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], onnx.ModelProto]:
    """Registers a rule for an op of the caller's, and gives a model with that op."""

    def register(function: Any) -> onnx.ModelProto:
        monkeypatch.setitem(RULES, "mine:Double", [])
        RULES["mine:Double"].clear()
        rule("Double", domain="mine")(function)
        value = helper.make_tensor_value_info
        node = helper.make_node("Double", ["x"], ["y"], name="n", domain="mine")
        ends = [value("x", TensorProto.FLOAT, [2])], [value("y", TensorProto.FLOAT, [2])]
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
        return helper.make_model(helper.make_graph([node], "g", *ends), opset_imports=opsets)

    return register


def broken(op: Any) -> Any:
    return op.input(0).no_such_method()


def no_tensor(op: Any) -> Any:
    return 3


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (broken, r"Double 'n': its rule .*\.broken raised AttributeError in line \d+ of .*test_misfit_messages.py"),
        (no_tensor, r"Double 'n': its rule .*\.no_tensor returned a value of type int; correct the rule"),
    ],
)
def test_a_fault_in_a_users_rule_is_blamed_on_the_rule(
    function: Any, message: str, one_op: Callable[[Any], onnx.ModelProto]
) -> None:
    with pytest.raises(linnet.ConversionError, match=message):
        linnet.from_onnx(one_op(function))


def same(x: Any) -> Any:
    return x


def raises(inputs: Any, outputs: Any, gradients: Any) -> Any:
    return [inputs[0] / {}["missing"]]


@pytest.mark.parametrize(
    ("gradient", "message"),
    [
        (raises, "the gradient function of user op mine.twice raised KeyError: 'missing'; correct the function"),
        (lambda x, y, g: 5, "the gradient function of user op mine.twice did not give tensors; expected one .* got 5"),
        (lambda x, y, g: [1.0], "did not give tensors"),
    ],
)
def test_an_exception_in_a_users_gradient_is_blamed_on_the_gradient(gradient: Any, message: str) -> None:
    twice = linnet.UserOp("mine.twice", same, lambda x: (x.dtype, x.shape), gradient=gradient)
    graph = linnet.Graph()
    w = graph.variable("w", np.ones(3, np.float32))
    with pytest.raises(linnet.GraphError, match=message) as error:
        linnet.gradients(twice(w).sum(), [w])
    assert error.value.code == 307


def test_the_c_example_of_the_readme_prints_its_error(tmp_path: Path) -> None:
    body = next(body for body in snippets(ROOT / "README.md", "c") if "int main" in body)
    (tmp_path / "main.c").write_text(body)
    include, library = f"-I{ROOT / 'runtime_c' / 'include'}", build("release", "linnet_static") / "liblinnet.a"
    run(
        [
            "cc",
            "-std=c99",
            str(tmp_path / "main.c"),
            include,
            str(library),
            "-lm",
            "-lpthread",
            "-o",
            str(tmp_path / "main"),
        ]
    )
    done = subprocess.run([str(tmp_path / "main"), "missing.lnt"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "not_found: 'missing.lnt'" in done.stderr
