"""ONNX's test cases of the kinds simple, pytorch-converted and pytorch-operator through linnet.onnx_backend.
linnet must pass everything that ONNX Runtime passes on this machine; both are run here."""
# Dear: all models that ONNX Runtime passes are run.

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from linnet import onnx_backend
from tests.test_onnx_nodes import compare

# Minimum numbers of passing cases: by linnet, by ONNX Runtime.
KINDS = {"simple": (15, 15), "pytorch-converted": (82, 55), "pytorch-operator": (35, 22)}


def cases(kind: str) -> list[Any]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(load_model_tests(kind=kind))


def value(path: Path, kind: onnx.TypeProto) -> Any:
    """The value in a .pb file of a model."""
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


def data_sets(case: Any, model: onnx.ModelProto) -> list[tuple[list[Any], list[Any]]]:
    """(inputs, outputs) of every data set. Inputs that are also initializers are not fed."""
    stored = {t.name for t in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in stored]
    found = []
    for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):
        given = [value(folder / f"input_{i}.pb", info.type) for i, info in enumerate(inputs)]
        wanted = [value(folder / f"output_{i}.pb", info.type) for i, info in enumerate(model.graph.output)]
        found.append((given, wanted))
    for file in sorted(Path(case.model_dir).glob("test_data_*.npz")):
        data = np.load(file, encoding="bytes")
        found.append((list(data["inputs"]), list(data["outputs"])))
    assert found, f"{case.name} has no data"
    return found


def verdict(prepare: Any, case: Any) -> str:
    """Describes what is wrong, or returns nothing."""
    model = onnx.load(Path(case.model_dir) / "model.onnx")
    try:
        run = prepare(model)
        for inputs, wanted in data_sets(case, model):
            if difference := compare(run(inputs), wanted, case.rtol, case.atol):
                return difference
    except Exception as error:  # any failure counts the same
        return f"{type(error).__name__}: {error}"
    return ""


def runtime(model: onnx.ModelProto) -> Any:
    """A function that computes outputs from inputs with ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return lambda inputs: session.run(None, dict(zip(names, inputs, strict=True)))


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_onnx_runtime_passes(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    mine, theirs, failures, total = 0, 0, [], cases(kind)
    for case in total:
        wrong = verdict(lambda model: onnx_backend.prepare(model).run, case)
        passes = not verdict(runtime, case)
        mine, theirs = mine + (not wrong), theirs + passes
        strings = (
            "the element type string" in wrong
        )  # refused with this reason: the only cases that only ONNX Runtime passes
        if wrong and passes and not strings:
            failures.append(f"{case.name}: {wrong}")
    with capsys.disabled():
        print(f"\n{kind}: linnet passes {mine} of {len(total)}, ONNX Runtime {theirs}")
    assert not failures, "\n".join(failures)
    assert (mine >= KINDS[kind][0], theirs >= KINDS[kind][1]) == (True, True), (mine, theirs)


_PLACES = [(1, (3,)), (0, (2, 3)), (-1, (4,)), (2, (1,)), (None, (3, 4))]


@pytest.mark.parametrize(
    "op, axis, shape",
    [(op, *place) for op in ("Add", "Sub", "Mul", "Div") for place in _PLACES]
    + [("PRelu", axis, shape) for axis, shape in _PLACES if axis in (1, 2)],
)
def test_broadcasting_of_opsets_below_7(op: str, axis: int | None, shape: tuple[int, ...]) -> None:
    """`axis` is the position of the second operand's dimensions; PRelu's slope always belongs to the channels."""
    keys = {} if op == "PRelu" else {"broadcast": 1} | ({} if axis is None else {"axis": axis})
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    z = (np.random.default_rng(1).random(shape) + 0.5).astype(np.float32)
    inputs = [onnx.helper.make_tensor_value_info(n, 1, a.shape) for n, a in (("x", x), ("z", z))]
    node = onnx.helper.make_node(op, ["x", "z"], ["y"], **keys)
    graph = onnx.helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 6)])
    behind = 0 if axis in (None, -1) or shape == (1,) else x.ndim - axis - z.ndim
    aligned = z.reshape(z.shape + (1,) * behind)
    wanted = {
        "Add": x + aligned, "Sub": x - aligned, "Mul": x * aligned, "Div": x / aligned,
        "PRelu": np.where(x < 0, x * aligned, x),
    }[op]  # fmt: skip
    (y,) = onnx_backend.prepare(model).run([x, z])
    np.testing.assert_allclose(y, wanted, rtol=1e-6)


def test_ops_of_other_domains_that_onnx_defines_by_functions() -> None:
    """FlexAttention of ai.onnx.preview has no rule in linnet, but a function body with a graph of the node inside."""
    found = [c for c in cases("node") if c.name.startswith("test_flexattention") and "_expanded" not in c.name]
    assert len(found) >= 11
    for case in found:
        for inputs, wanted in case.data_sets:
            difference = compare(onnx_backend.prepare(case.model).run(list(inputs)), wanted, case.rtol, case.atol)
            assert not difference, f"{case.name}: {difference}"
