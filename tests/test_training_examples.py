"""The training examples: their commands learn what they claim, and draw plots. Short runs here; full runs are soak tests.
Examples that fetch data need the package index, and skip if it cannot be reached."""
# Dear: networks are trained until their accuracy can be compared.

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import linnet
from examples import datasets
from examples.training import embedding, mean_shift, plot
from examples.training.text import Text
from tests.native import ROOT
from tests.opencl import need_opencl


def command(name: str, folder: Path, *arguments: object) -> str:
    """Returns its output; its image must have more than one colour."""
    picture = folder / "curve.png"
    words = [sys.executable, "-m", f"examples.training.{name}", "--out", str(picture), *map(str, arguments)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=1500, check=False)
    if done.returncode and "cannot fetch" in done.stderr:
        pytest.skip(f"the data is out of reach: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    with Image.open(picture) as image:
        assert len(image.convert("RGB").getcolors(1 << 24) or []) > 10
    return done.stdout


def number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found, text
    return float(found[1].replace(",", ""))


def test_a_graph_by_hand(tmp_path: Path) -> None:
    text = command("graph_abc", tmp_path)
    assert "a = 9, d = 3, e = 3, da/db = 3, da/dc = 6" in text
    c = number(r"c learnt for a = 42: ([\d.]+)", text)
    assert abs((2 + c) * (c + 2) - 42) < 0.02


def test_linear_regression_is_least_squares(tmp_path: Path) -> None:
    text = command("linear_regression", tmp_path)
    rows = [[float(n) for n in re.findall(r"-?\d+\.\d{4}", line)] for line in text.splitlines()[:3]]
    np.testing.assert_allclose(rows[1], rows[2], atol=2e-4)
    np.testing.assert_allclose(rows[0], rows[2], atol=0.05)


def test_mean_shift_finds_the_clouds(tmp_path: Path) -> None:
    text = command("mean_shift", tmp_path, "--clusters", 5, "--each", 60)
    assert "300 points: 5 clusters" in text and "100.0 %" in text


def test_mean_shift_runs_on_another_device(tmp_path: Path) -> None:
    """The same program with --device finds the same clouds."""
    need_opencl()
    text = command("mean_shift", tmp_path, "--clusters", 5, "--each", 60, "--device", "opencl:0")
    assert "300 points: 5 clusters" in text and "100.0 %" in text
    assert number(r"opencl:0 ran (\d+) nodes of the graph", text) > 0


def test_an_encoder_and_a_decoder_write_dates(tmp_path: Path) -> None:
    text = command("dates", tmp_path, "--steps", 300, "--check", 60)
    assert number(r"([\d.]+) % of 60 new dates are right \(greedy\)", text) > 80
    assert number(r"([\d.]+) % of 60 new dates are right \(4 beams\)", text) > 80
    assert "3rd of March 1987 -> 1987-03-03" in text


def test_mean_shift_is_numpys() -> None:
    points, _ = mean_shift.sample_points(3, 20, np.random.default_rng(0))
    model = linnet.Model(mean_shift.build(points, 0.7).to_bytes())
    store = linnet.Store(model)
    session, expected = linnet.Session(model, "train", store=store), points.astype(np.float64)
    for _ in range(3):
        session.run({})
        apart = expected[:, None] - points
        weight = np.exp(-(apart**2).sum(2) / (2 * 0.7**2))
        expected = weight @ points / weight.sum(1, keepdims=True)
    np.testing.assert_allclose(store["points"], expected, rtol=1e-5, atol=1e-5)


def test_a_pole_is_balanced(tmp_path: Path) -> None:
    text = command("policy_gradient", tmp_path)
    assert number(r"stood (\d+) steps in the first episodes", text) < 60
    assert number(r"(\d+) of 200 in the last five", text) > 150


def test_two_networks_against_each_other(tmp_path: Path) -> None:
    text = command("gan", tmp_path, "--steps", 1500)
    assert number(r"(\d) of 8 clouds", text) >= 4


@pytest.mark.network
def test_softmax_regression_as_the_introduction_has_it(tmp_path: Path) -> None:
    assert 90.5 < number(r"test accuracy ([\d.]+) %", command("softmax_mnist", tmp_path)) < 93


@pytest.mark.network
def test_convolutional_network(tmp_path: Path) -> None:
    model = tmp_path / "digits.lnt"
    text = command("conv_mnist", tmp_path, "--epochs", 1, "--train-on", 6400, "--save", model)
    assert number(r"MNIST: test accuracy ([\d.]+) %", text) > 93
    assert model.stat().st_size > 100_000


@pytest.mark.more
@pytest.mark.network
@pytest.mark.parametrize("name", ["char_lstm", "transformer"])
def test_language_models_write(name: str, tmp_path: Path) -> None:
    text = command(name, tmp_path, "--steps", 60, "--batch", 16)
    assert 1.5 < number(r"held out ([\d.]+) nats", text) < 3.1
    assert len(text.split("It writes:")[1]) > 300


@pytest.mark.network
def test_word_vectors(tmp_path: Path) -> None:
    text = command("embedding", tmp_path, "--steps", 100)
    assert "rows of the tables" in text or "a step by rows" in text
    assert number(r"([\d.]+) % of the text hashed", text.replace(" %", ".0 %")) > 5


@pytest.mark.more
@pytest.mark.network
def test_a_pretrained_network_learns_photographs(tmp_path: Path) -> None:
    text = command("transfer", tmp_path, "--tiles", 6, "--save", tmp_path / "photos.lnt")
    assert number(r"right: ([\d.]+) %", text) > 80
    assert "brick/000.png: brick" in text and (tmp_path / "photos.lnt").is_file()


def test_rare_words_share_rows() -> None:
    known = embedding.Vocabulary(["the"] * 9 + ["whale"] * 6 + ["rare", "rarer"], buckets=4)
    assert (known["the"], known["whale"]) == (0, 1) and known.rows == 6
    assert 2 <= known["rare"] < 6 and known["rare"] == known["rare"] and 2 <= known["never seen"] < 6


def test_text_windows_are_shifted_by_one() -> None:
    text = Text.of("abcdefghij" * 30)
    made = text.windows(7, 5, np.random.default_rng(0))
    assert made["ids"].shape == made["next"].shape == (7, 5)
    np.testing.assert_array_equal(made["ids"][:, 1:], made["next"][:, :-1])
    assert text.decode(made["ids"][0]) in "abcdefghij" * 3


def test_smoothing_is_a_running_mean() -> None:
    np.testing.assert_allclose(plot.smooth([2, 4, 6, 8], 2), [2, 3, 5, 7])


def test_bad_data_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"GIF89a..")
    with pytest.raises(linnet.FileError, match=r"is not an idx file"):
        datasets.mnist(tmp_path)
    with pytest.raises(datasets.FetchError, match="has no file train-images"):
        datasets.mnist(tmp_path / "nowhere")
    done = subprocess.run(
        [sys.executable, "-m", "examples.training.char_lstm", "--text", "nowhere.txt"], cwd=ROOT, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and done.stderr.startswith("char_lstm: ") and len(done.stderr.splitlines()) == 1


@pytest.mark.soak
@pytest.mark.network
@pytest.mark.parametrize(("arguments", "least"), [((), 99.2), (("--fashion",), 91.0)])
def test_whole_training_reaches_the_accuracy(arguments: tuple[str, ...], least: float, tmp_path: Path) -> None:
    text = command("conv_mnist", tmp_path, *arguments)
    print(text)
    assert number(r"test accuracy ([\d.]+) %", text) >= least


@pytest.mark.soak
def test_the_generator_finds_the_whole_ring(tmp_path: Path) -> None:
    assert number(r"(\d) of 8 clouds", command("gan", tmp_path)) >= 7
