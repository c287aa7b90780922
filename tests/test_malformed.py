"""Damaged ONNX and TFLite files (tests/fuzz/converting): an error record or a result, never a crash, a hang, another
exception, or more memory than `converting.MEMORY`. `make soak` tries 20,000 of each. Hand-written cases follow below."""
# Dear: thousands of damaged ONNX files are imported.

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import linnet
from tests.native import ROOT


def _try(kind: str, first: int, last: int) -> None:
    from tests.fuzz.converting import tried

    counts, lines = tried(kind, first, last)
    print(kind, dict(counts))
    assert not lines, "\n".join(lines)
    total = last - first
    # Some files must be refused and some accepted.
    assert counts["ran"] > total // 20 and counts["refused: ConversionError"] > total // 10, counts


@pytest.mark.parametrize("kind", ["onnx", "tflite"])
def test_damaged_files(kind: str) -> None:
    _try(kind, 20_000, 20_600)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("kind", ["onnx", "tflite"])
def test_damaged_files_at_length(kind: str, part: int) -> None:
    _try(kind, 2000 * part, 2000 * (part + 1))


def _model(
    nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], functions: tuple[onnx.FunctionProto, ...] = ()
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_empty_tensor_value_info(o) for o in nodes[-1].output],
        [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=9)


def _function(name: str, *calls: str) -> onnx.FunctionProto:
    """b = the last of calls(...(a)), each applied to the result of the previous one."""
    steps = ["a", *(f"s{i}" for i in range(len(calls) - 1)), "b"]
    nodes = [
        helper.make_node(c, [steps[i]], [steps[i + 1]], domain="own" if c[0] == "f" else "")
        for i, c in enumerate(calls)
    ]
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a"], ["b"], nodes, imports)


def test_a_function_that_calls_itself() -> None:
    start = [helper.make_node("f0", ["x"], ["y"], domain="own")]
    with pytest.raises(linnet.ConversionError, match="calls itself"):
        linnet.from_onnx(_model(start, {}, (_function("f0", "f1"), _function("f1", "Neg", "f0"))))


def test_functions_that_double_thirty_times() -> None:
    start = [helper.make_node("f0", ["x"], ["y"], domain="own")]
    functions = [_function(f"f{i}", f"f{i + 1}", f"f{i + 1}") for i in range(29)]
    with pytest.raises(linnet.ConversionError, match="more than 100 nodes for each"):
        linnet.from_onnx(_model(start, {}, (*functions, _function("f29", "Neg"))))


def test_attributes_of_another_type_name_both() -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], axis="last")
    with pytest.raises(linnet.ConversionError, match="attribute 'axis' has type string, not int"):
        linnet.from_onnx(_model([node], {}))


GROWING = """
import resource, sys
import numpy as np, onnx, linnet
from tests.test_malformed import _model
from onnx import helper
w = np.random.default_rng(0).normal(size=(512, 2048)).astype(np.float32)
nodes = [helper.make_node("Transpose", ["w" if i == 0 else f"t{i - 1}"], [f"t{i}"], perm=[1, 0]) for i in range(200)]
nodes += [helper.make_node("Expand", ["w", "size"], [f"e{i}"]) for i in range(200)]
nodes.append(helper.make_node("Identity", ["t199"], ["y"]))
for i in range(200):  # each is read, so that none is dropped early
    nodes.insert(-1, helper.make_node("ReduceMax", [f"t{i}"], [f"r{i}"], keepdims=0))
nodes.append(helper.make_node("Sum", [f"r{i}" for i in range(200)], ["z"]))
model = _model(nodes, {"w": w, "size": np.array([64, 512, 2048])})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
graph = linnet.from_onnx(model)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_moving_one_weight_two_hundred_times_does_not_hold_two_hundred_copies() -> None:
    """A file of 4 MB that asks for 800 MB of transposed copies and for 50 GB of expanded ones."""
    done = subprocess.run(
        [sys.executable, "-c", GROWING], cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
    )
    assert int(done.stdout) < 200, done.stdout


@pytest.mark.parametrize("location", ["data\0.bin", "x" * 5000, "/dev/zero", ".", ""])
def test_external_data_at_places_that_cannot_be(location: str, tmp_path: Path) -> None:
    model = _model([helper.make_node("Add", ["x", "w"], ["y"])], {"w": np.ones(4, np.float32)})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(linnet.ConversionError, match="in the model's folder"):
        linnet.from_onnx(path)


def test_a_pad_beyond_the_bound_is_refused_before_its_tables_are_made() -> None:
    """Planning used to walk 2^31 places of a reflected pad to prepare a copy that no memory could hold."""
    node = helper.make_node("Pad", ["x", "p"], ["y"], mode="reflect")
    graph = linnet.from_onnx(_model([node], {"p": np.array([0, 2**33], np.int64)}))
    with pytest.raises(linnet.GraphError, match=r"more memory than .*max_bytes"):
        linnet.Session(graph, max_bytes=1 << 26)
