"""ONNX's test cases of the kinds simple, pytorch-converted and pytorch-operator through linnet.onnx_backend.
What ONNX Runtime passes on this machine, linnet must pass; both are run here."""

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

KINDS = {"simple": 15, "pytorch-converted": 55, "pytorch-operator": 22}  # how many ONNX Runtime passes, at least


def cases(kind: str) -> list[Any]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(load_model_tests(kind=kind))


def value(path: Path, kind: onnx.TypeProto) -> Any:
    """The value in a .pb file beside a model."""
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


def data_sets(case: Any, model: onnx.ModelProto) -> list[tuple[list[Any], list[Any]]]:
    """(inputs, outputs) of every data set; inputs that are initializers too are not fed."""
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
    """What is wrong, or nothing."""
    model = onnx.load(Path(case.model_dir) / "model.onnx")
    try:
        run = prepare(model)
        for inputs, wanted in data_sets(case, model):
            if difference := compare(run(inputs), wanted, case.rtol, case.atol):
                return difference
    except Exception as error:  # any failure counts as one
        return f"{type(error).__name__}: {error}"
    return ""


def runtime(model: onnx.ModelProto) -> Any:
    """A function from inputs to outputs by ONNX Runtime."""
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
        strings = "the element type string" in wrong  # refused, and said so: the one thing that ONNX Runtime has more
        if wrong and passes and not strings:
            failures.append(f"{case.name}: {wrong}")
    with capsys.disabled():
        print(f"\n{kind}: linnet passes {mine} of {len(total)}, ONNX Runtime {theirs}")
    assert not failures, "\n".join(failures)
    assert theirs >= KINDS[kind]
