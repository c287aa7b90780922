"""`linnet compare` and its sources: one network as ONNX, TFLite-like and quantized files, labelled pictures, scripts, and what is
said about each thing that can be wrong with them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import linnet
from linnet.quantization.accuracy import Pictures, evaluation
from linnet.quantization.agreement import Agreement
from linnet.quantization.compared_models import Subject, adapted, matched
from linnet.quantization.sources import samples_of
from linnet.report import compare as comparing
from tests.test_cli import refused

Command = Callable[..., Any]
COLOURS = {"red": (220, 30, 20), "green": (30, 200, 40), "blue": (20, 40, 230)}


def network(layout: str = "NCHW", names: tuple[str, str] = ("x", "scores"), gain: float = 1.0) -> linnet.Graph:
    """Scores of a picture of 8 x 8 pixels for red, green and blue: the means of the channels, by a convolution and a product."""
    graph = linnet.Graph()
    x = graph.placeholder(names[0], (1, 3, 8, 8) if layout == "NCHW" else (1, 8, 8, 3))
    y = x if layout == "NCHW" else linnet.ops.transpose(x, [0, 3, 1, 2])
    rng = np.random.default_rng(0)
    mix = (np.eye(3) + 0.1 * rng.standard_normal((3, 3))).astype(np.float32)
    y = linnet.ops.relu(linnet.ops.conv(y, graph.constant(mix[:, :, None, None])))
    y = linnet.ops.matmul(linnet.ops.mean(y, [2, 3]), graph.constant(np.linalg.inv(mix).T.astype(np.float32) * gain))
    graph.signature("infer", {names[0]: x}, {names[1]: y})
    return graph


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Four pictures of each colour, in folders with the colours' names. One of the red ones is green."""
    root, rng = tmp_path / "colours", np.random.default_rng(0)
    for name, colour in COLOURS.items():
        (root / name).mkdir(parents=True)
        for i in range(4):
            tone = COLOURS["green"] if name == "red" and i == 3 else colour
            pixels = np.clip(np.array(tone) + rng.integers(-20, 20, (12, 12, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}.png")
    (root / "labels.txt").write_text("Red\nGreen\nBlue\n")
    return root


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    """The network as ONNX, with channels last and other names, and at i8 with the steps for pictures inside."""
    graph = network()
    graph.to_onnx(tmp_path / "one.onnx")
    network("NHWC", ("picture", "found")).save(tmp_path / "two.lnt")
    samples = [
        {"x": np.broadcast_to(np.array(c, np.float32)[None, :, None, None] / 255, (1, 3, 8, 8)).copy()}
        for c in COLOURS.values()
    ]
    linnet.preprocess.recipe(linnet.quantize(graph, samples, "i8"), "unit").save(tmp_path / "three.lnt")
    return [tmp_path / name for name in ("one.onnx", "two.lnt", "three.lnt")]


def test_three_forms_of_a_network(models: list[Path], pictures: Path, tmp_path: Path, linnet_command: Command) -> None:
    page = tmp_path / "page.html"
    more = ("--eval", pictures, "--image", "unit", "--seconds", "0.01", "--threads", "1")
    done = linnet_command("compare", *models, *more, "--html", page)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80 and "12 samples, 1 thread" in done.stdout
    assert done.stdout.count("91.7%") >= 3 and "labels from labels.txt" in done.stdout
    text = page.read_text()
    assert "three.lnt" in text and "<script" not in text and "http" not in text
    found = json.loads(linnet_command("compare", *models, *more, "--json").stdout)
    one, two, three = found["models"]
    assert found["samples"] == 12 and [m["accuracy"] for m in (one, two, three)] == [{"top-1": 11 / 12}] * 3
    assert one["agreement"] == {} and three["dtype"] == "i8" and one["bytes"] == models[0].stat().st_size
    assert two["agreement"]["scores"]["largest"] < 1e-6 and two["agreement"]["scores"]["top1"] == 1.0
    assert 25 < three["agreement"]["scores"]["sqnr_db"] < 70 and three["agreement"]["scores"]["cosine"] > 0.999
    session = linnet.Session(linnet.load_graph(models[0]), threads=1)
    assert one["memory"] == session.memory["total"] and one["latency_ms"] > 0


def test_in_the_runtime_of_the_format(models: list[Path], tmp_path: Path, linnet_command: Command) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x=rng.random((5, 1, 3, 8, 8), np.float32))
    done = linnet_command(
        "compare", models[0], "--reference", "--data", tmp_path / "data.npz", "--seconds", "0.01", "--json"
    )
    assert done.returncode == 0, done.stderr
    mine, reference = json.loads(done.stdout)["models"]
    assert (mine["runtime"], reference["runtime"], reference["memory"]) == ("linnet", "ONNX Runtime", None)
    assert reference["agreement"]["scores"]["sqnr_db"] > 100 and reference["runs"] == 5


def test_agreement_by_hand() -> None:
    sums = Agreement()
    sums.add(np.array([[3.0, 4.0]]), np.array([[3.0, 4.5]]))
    sums.add(np.array([[0.0, 1.0]]), np.array([[1.0, 0.0]]))
    assert sums.top1 == 0.5 and sums.largest == 1.0
    assert sums.sqnr == pytest.approx(10 * np.log10(26 / 2.25))
    assert sums.cosine == pytest.approx((9 + 18) / np.sqrt(26 * (9 + 20.25 + 1)))
    pair = Agreement()
    pair.add(np.array([1, 2, 3]), np.array([1, 2, 4]))
    assert pair.top1 is None and pair.figures()["equal"] == pytest.approx(2 / 3)
    lost = Agreement()
    lost.add(np.array([1.0, 2.0]), np.array([np.nan, 2.0]))
    assert lost.sqnr == -np.inf and lost.largest == np.inf and lost.top1 == 1.0
    batch = Agreement()
    batch.add(np.eye(3), np.eye(3)[::-1].copy(), batch=3)
    assert (batch.rows, batch.same) == (3, 1)
    with pytest.raises(linnet.UsageError, match="differ in size"):
        batch.add(np.zeros(3), np.zeros(4))


def test_inputs_of_another_form() -> None:
    two = Subject(network("NHWC", ("picture", "found")), "two")
    x = np.random.default_rng(0).random((1, 3, 8, 8)).astype(np.float64)
    made = adapted({"x": x}, two.inputs)["picture"]
    assert made.dtype == np.float32 and np.array_equal(made, x.transpose(0, 2, 3, 1).astype(np.float32))
    one = Subject(network(), "one")
    assert matched(one, two) == {"scores": "found"}
    np.testing.assert_allclose(two.run({"x": x})["found"], one.run({"x": x})["scores"], atol=1e-6)
    wide = linnet.Graph()
    p = wide.placeholder("x", (1, 3, 8, 8))
    wide.signature("infer", {"x": p}, {"y": linnet.ops.mean(p, [1])})
    with pytest.raises(linnet.UsageError, match=r"'scores' of one has no counterpart in wide.*\[1, 3\].*y \[1, 8, 8\]"):
        matched(one, Subject(wide, "wide"))


SCRIPT = """
import helper_of_this_test
import numpy as np

def calibrate(inputs):
    for i in range(3):
        yield {name: np.full([d or 1 for d in spec.shape], i, np.float32) for name, spec in inputs.items()}

def plain():
    return [{"x": helper_of_this_test.VALUE}] * 2

def score(run):
    out = run({"x": np.ones((1, 3, 8, 8), np.float32)})["scores"]
    return {"sum": out.sum(), "first": out[0, 0]}

def number(run):
    return 7

def fails(run):
    return {}["nothing"]

def empty():
    return []

def lists():
    return [[1, 2]]

def word(run):
    return "good"

def none(run):
    return {}

def one():
    return {"x": 1}

def two(a, b):
    return []

value = 3
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "helper_of_this_test.py").write_text("import numpy as np\nVALUE = np.ones((1, 3, 8, 8), np.float32)\n")
    return str(tmp_path / "script.py")


def test_functions_as_sources(script: str, models: list[Path], linnet_command: Command) -> None:
    graph = network()
    samples = samples_of(graph, f"{script}:calibrate")
    assert [float(s["x"].max()) for s in samples] == [0, 1, 2] == [float(s["x"].max()) for s in samples]
    assert len(list(samples_of(graph, f"{script}:plain", 1))) == 1
    assert linnet.quantize(graph, samples, "i8").metadata["dtype"] == "i8"
    measure = evaluation(f"{script}:score")
    assert measure is not None
    found = measure.measure(Subject(graph, "one"))
    assert set(found) == {"sum", "first"} and found["first"] == pytest.approx(1.0, abs=1e-5)
    paths = comparing.paths_of(models[:2])
    compared = comparing.compare(comparing.subjects_of(models[:2]), paths, f"{script}:calibrate", measure, seconds=0.01)
    assert compared.models[1].accuracy["sum"] == pytest.approx(compared.models[0].accuracy["sum"])
    number = evaluation(f"{script}:number")
    assert number is not None and number.measure(Subject(graph, "one")) == {"score": 7.0}
    done = linnet_command("compare", *models[:2], "--data", f"{script}:plain", "--eval", f"{script}:fails")
    refused(done, "script.py:fails, line", "KeyError: 'nothing'")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("calibrat", "no function 'calibrat'; expected .*calibrate"),
        ("value", "no function 'value'"),
        ("empty", "gives no sample"),
        ("lists", "sample 0 .* is not a dictionary"),
        ("one", "must give an iterable; .*one dictionary"),
        ("two", "needs too many arguments"),
        ("fails", "line .*nothing"),
    ],
)  # fmt: skip
def test_wrong_functions_for_samples(script: str, name: str, message: str) -> None:
    with pytest.raises(linnet.UsageError, match=message):
        list(samples_of(network(), f"{script}:{name}"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("word", "must return a number"),
        ("none", "returns no number"),
        ("empty", "must take one argument"),
        ("fails", "raises an error; got KeyError"),
    ],
)
def test_wrong_functions_for_evaluation(script: str, name: str, message: str) -> None:
    with pytest.raises(linnet.UsageError, match=message):
        found = evaluation(f"{script}:{name}")
        assert found is not None
        found.measure(Subject(network(), "one"))


def test_scripts_that_cannot_be_read(tmp_path: Path, script: str) -> None:
    with pytest.raises(linnet.UsageError, match=r"the function for calibration is missing; .*calibrate"):
        samples_of(network(), script)
    with pytest.raises(linnet.UsageError, match="does not exist"):
        samples_of(network(), tmp_path / "none.py:f")
    (tmp_path / "broken.py").write_text("x = 1\ndef f(:\n")
    with pytest.raises(linnet.UsageError, match=r"broken.py:f, line 2.*SyntaxError"):
        samples_of(network(), f"{tmp_path / 'broken.py'}:f")


def classes(root: Path) -> dict[str, float]:
    measure = evaluation(root, image="unit", note=lambda text: None)
    assert isinstance(measure, Pictures)
    return measure.measure(Subject(network(), "one"))


def test_where_labels_come_from(pictures: Path) -> None:
    """From files in three forms, from numbers, from the order; and from the model's metadata."""
    expected = {"top-1": 11 / 12}
    for name, text in {
        "labels.txt": "n01440764 red, crimson\nn01440765 green\nn01440766 blue\n",
        "labels.json": '{"0": ["n1", "red"], "1": ["n2", "green"], "2": "blue"}',
        "classes.txt": "RED\nGREEN\nBLUE",
    }.items():
        for old in pictures.glob("*.*"):
            old.unlink()
        (pictures / name).write_text(text)
        assert classes(pictures) == expected, name
    (pictures / "classes.txt").unlink()
    assert classes(pictures)["top-1"] < 0.5  # sorted: blue, green, red
    for number, name in enumerate(COLOURS):
        (pictures / name).rename(pictures / str(number))
    assert classes(pictures) == expected
    graph = linnet.preprocess.top_k(network(), "scores", 2, labels=["0", "1", "2"])
    measure = evaluation(pictures, image="unit")
    assert measure is not None and measure.measure(Subject(graph, "one")) == expected
    assert any("metadata" in remark for remark in measure.remarks)


def test_wrong_labels(pictures: Path) -> None:
    (pictures / "red").rename(pictures / "gren")
    with pytest.raises(linnet.UsageError, match=r"'gren' matches no label; expected .*'Green'"):
        classes(pictures)
    (pictures / "gren").rename(pictures / "Green")
    with pytest.raises(linnet.UsageError, match="two sub-folders stand for the same class"):
        classes(pictures)
    (pictures / "labels.txt").write_text("a\nb\n")
    with pytest.raises(linnet.UsageError, match="differs from the model's number of classes; expected 3 labels, got 2"):
        classes(pictures)
    (pictures / "labels.txt").unlink()
    (pictures / "fourth").mkdir()
    with pytest.raises(linnet.UsageError, match="more sub-folders than classes"):
        classes(pictures)
    (pictures / "labels.json").write_text("{")
    with pytest.raises(linnet.UsageError, match="cannot read the labels"):
        classes(pictures)


def test_pictures_that_cannot_be_read(pictures: Path) -> None:
    (pictures / "red" / "3.png").write_bytes(b"no picture")
    said: list[str] = []
    measure = evaluation(pictures, image="unit", note=said.append)
    assert measure is not None and measure.measure(Subject(network(), "one")) == {"top-1": 1.0}
    assert len(said) == 1 and re.search(r"1 labelled pictures cannot be read .*3\.png", said[0])
    for file in pictures.rglob("*.png"):
        file.write_bytes(b"")
    with pytest.raises(linnet.UsageError, match="no labelled picture can be read"):
        classes(pictures)


def test_without_labels(models: list[Path], pictures: Path, linnet_command: Command) -> None:
    """Pictures without sub-folders have no labels, so only agreement is measured, and a note says so."""
    more = ("--image", "unit", "--seconds", "0.01", "--json")
    done = linnet_command("compare", *models[:2], "--eval", pictures / "red", *more)
    assert done.returncode == 0 and "has no sub-folders" in done.stderr
    found = json.loads(done.stdout)
    assert found["samples"] == 4 and found["models"][0]["accuracy"] == {}
    assert found["models"][1]["agreement"]["scores"]["top1"] == 1.0


def test_wrong_command_lines(models: list[Path], pictures: Path, tmp_path: Path, linnet_command: Command) -> None:
    refused(linnet_command("compare", models[0]), "one model alone", "--reference", status=2)
    refused(linnet_command("compare", *models), "no data is given", status=2)
    refused(linnet_command("compare", *models[:2], "--eval", pictures), "how pictures become its input", "--image")
    refused(linnet_command("compare", *models, "--eval", tmp_path / "none", "--data", pictures), "does not exist")
