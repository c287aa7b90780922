"""`linnet train` gives the same run as linnet.fit, from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import linnet
from linnet.cli.main import _main, cli
from tests.fit_script import build, examples
from tests.native import build as build_native
from tests.native import run as run_native
from tests.test_data import write_idx


def run(*arguments: object) -> dict[str, Any]:
    done = CliRunner().invoke(cli, ["train", *map(str, arguments), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    build().save(tmp_path / "model.lnt")
    np.savez(tmp_path / "data.npz", **examples())
    return tmp_path / "model.lnt"


def test_it_trains_and_goes_on(model: Path) -> None:
    data, folder = model.parent / "data.npz", model.parent / "run"
    usual = [model, "--data", data, "--batch", 8, "--eval", data, "--directory", folder, "--best", "val_accuracy=max"]
    assert run(*usual, "--epochs", 1)["step"] == 7
    found = run(*usual, "--epochs", 3, "-o", model.parent / "trained.lnt")
    assert found["step"] == 21 and (folder / "best.lnt").exists()
    history = linnet.fit(model, examples(), batch_size=8, epochs=3, validation=examples())
    assert found["val_loss"] == history["val_loss"][-1] and found["loss"] == history["loss"][-1]
    trained = linnet.Graph.load(model.parent / "trained.lnt").variables["net/dense/weight"].value
    np.testing.assert_array_equal(trained, history.store["net/dense/weight"])


def test_files_of_arrays_and_pictures(model: Path) -> None:
    arrays, folder = examples(), model.parent
    np.save(folder / "x.npy", arrays["x"])
    write_idx(folder / "t.idx", arrays["t"].astype(np.uint8))
    found = run(model, "--data", f"x={folder}/x.npy,t={folder}/t.idx", "--steps", 3, "-o", folder / "o.lnt")
    assert found["loss"] == run(model, "--data", folder / "data.npz", "--steps", 3, "-o", folder / "o.lnt")["loss"]
    graph = linnet.Graph()
    x, t = graph.placeholder("x", ("batch", 3, 6, 6)), graph.placeholder("t", ("batch",), "i32")
    loss = linnet.softmax_cross_entropy(linnet.nn.dense(linnet.nn.flatten(x), 2), t).mean()
    graph.signature("train", {"x": x, "t": t}, {"loss": loss}, updates=linnet.SGD(0.01).minimize(loss))
    graph.save(folder / "pictures.lnt")
    image = pytest.importorskip("PIL.Image", reason="pictures need Pillow: pip install 'linnet-runtime[image]'")
    for name in ("a/1.png", "b/2.png"):
        (folder / "images" / name).parent.mkdir(parents=True)
        image.fromarray(np.full((9, 9, 3), 100, np.uint8)).save(folder / "images" / name)
    assert run(folder / "pictures.lnt", "--data", folder / "images", "-o", folder / "o.lnt")["step"] == 1
    write_idx(folder / "x.idx", np.full((4, 3, 6, 6), 100, np.uint8))
    write_idx(folder / "t4.idx", np.zeros(4, np.uint8))
    given = f"x={folder}/x.idx,t={folder}/t4.idx"
    assert run(folder / "pictures.lnt", "--data", given, "--scale", "x=1/255", "-o", folder / "o.lnt")["step"] == 1


def test_examples_are_reshaped_as_in_linnet_train(tmp_path: Path) -> None:
    """u8 [n, 6, 6] and [n, 36] for an input [batch, 1, 6, 6] give the same variables, bit for bit, as the native tool."""
    graph = linnet.Graph(seed=2)
    x, t = graph.placeholder("x", ("batch", 1, 6, 6)), graph.placeholder("t", ("batch",), "i32")
    loss = linnet.softmax_cross_entropy(linnet.nn.dense(linnet.nn.flatten(x), 4), t).mean()
    graph.signature("train", {"x": x, "t": t}, {"loss": loss}, updates=linnet.Adam(0.01).minimize(loss))
    graph.save(tmp_path / "m.lnt")
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (24, 6, 6)).astype(np.uint8), rng.integers(0, 4, 24).astype(np.uint8)
    found = []
    for i, pictures in enumerate((images, images.reshape(24, 36))):
        np.savez(tmp_path / "d.npz", x=pictures, t=labels)
        run(tmp_path / "m.lnt", "--data", tmp_path / "d.npz", "--scale", "x=1/255", "--batch", 8, "--epochs", 2,
            "--directory", tmp_path / str(i))  # fmt: skip
        found.append(linnet.load_checkpoint(tmp_path / str(i) / "checkpoint-00000006.lnt").variables)
    command = [build_native("release") / "linnet-train", tmp_path / "m.lnt", "--data", tmp_path / "d.npz"]
    options = ["--scale", "x=1/255", "--batch", "8", "--epochs", "2", "--checkpoint", str(tmp_path / "c")]
    run_native([*map(str, command), *options])
    for name, value in linnet.load_checkpoint(tmp_path / "c").variables.items():
        np.testing.assert_array_equal(found[0][name], value, err_msg=name)
        np.testing.assert_array_equal(found[1][name], value, err_msg=name)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--data", "data.npz", "--scale", "y=1/255", "-o", "o.lnt"],
            "--scale names an array that the data does not have",
        ),
        (["--data", "data.npz", "--scale", "x=1/255", "-o", "o.lnt"], "--scale works only on integer arrays"),
        (["--data", "data.npz"], "the result would not be saved"),
        (["--data", "data.npz", "--batch", "1000", "-o", "o.lnt"], "one batch is larger than the data"),
        (["--data", "none.npz", "-o", "o.lnt"], "'none.npz' does not exist"),
        (["--data", "model.lnt", "-o", "o.lnt"], "is not an idx file"),
        (["--data", "data.npz", "--scale", "x=1/0", "-o", "o.lnt"], "invalid --scale"),
        (["--data", "x=data.npz", "-o", "o.lnt"], "invalid --data or --eval"),
        (["--data", "data.npz", "--best", "val_loss", "-o", "o.lnt"], "unknown mode"),
    ],
)
def test_refusals(
    model: Path, arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(model.parent)
    code = _main(["train", "model.lnt", *arguments])
    error = capsys.readouterr().err
    assert code in (1, 2) and words in error and error.count("\n") == 1
    assert not (model.parent / "o.lnt").exists()
