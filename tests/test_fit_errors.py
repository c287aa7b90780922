"""Errors in training say what, where, and what to do, and nothing that was saved is lost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import data, ops
from tests.fit_script import build, examples


def test_a_loss_that_is_not_finite_names_step_and_op(tmp_path: Path) -> None:
    """w grows by 1 per step. sqrt of 5 - w is NaN in step 7, but only the loss of step 8 shows it."""
    graph = linnet.Graph()
    x = graph.placeholder("x", ("batch",))
    with graph.scope("net"):
        w, v = graph.variable("w", 0.0), graph.variable("v", np.float64(1))
        root = linnet.pointwise([5.0 - w.tensor()], lambda a: a.sqrt(), name="root")
    loss = (x * v.tensor().cast("f32")).mean() + ops.scale(w.tensor(), 0.0)
    graph.signature("train", {"x": x}, {"loss": loss}, updates={w: w + 1.0, v: v + root.cast("f64")})
    rows = {"x": np.ones(20, np.float32)}
    arguments: dict[str, Any] = {"batch_size": 1, "directory": tmp_path, "saver": linnet.Saver(every=3)}
    with pytest.raises(linnet.TrainingError) as raised:
        linnet.fit(graph, rows, **arguments)
    error = raised.value
    assert error.step == 8 and "output 'loss' became nan in step 8 (epoch 1)" in str(error)
    assert "in step 7" in str(error) and "1 NaN and 0 infinite values" in str(error)
    assert "root" in error.op and "checkpoint-00000006.lnt" in str(error), str(error)
    assert [p.name for p in sorted(tmp_path.glob("*.lnt"))] == ["checkpoint-00000003.lnt", "checkpoint-00000006.lnt"]
    assert linnet.load_checkpoint(tmp_path / "checkpoint-00000006.lnt").variables["net/w"] == 6


def test_divergence_and_usual_infinities() -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", ("batch", 2))
    w = graph.variable("w", np.ones(2, np.float32))
    masked = linnet.pointwise([x * w], lambda v: (v > 1e30).select(v, -np.inf), name="mask")
    loss = ((x * w) ** 2).mean() + linnet.pointwise([masked], lambda v: (v > 0.0).select(v, 0.0)).mean()
    graph.signature("train", {"x": x}, {"loss": loss}, updates=linnet.SGD(1e6).minimize(loss))
    with pytest.raises(linnet.TrainingError) as raised:
        linnet.fit(graph, {"x": np.ones((40, 2), np.float32)}, batch_size=2)
    assert 2 < raised.value.step < 8 and "mask" not in raised.value.op and "infinite values" in str(raised.value)


def test_data_that_is_not_finite_is_named() -> None:
    arrays = examples()
    arrays["x"][17, 1, 2, 2] = np.nan
    with pytest.raises(
        linnet.TrainingError, match=r"in step 3 \(epoch 1\); .*input 'x' contains nan in example 1 of the"
    ):
        linnet.fit(build, arrays, batch_size=8, shuffle=False)


def test_labels_out_of_range(tmp_path: Path) -> None:
    arrays = examples()
    arrays["t"][20] = 7
    with pytest.raises(linnet.GraphError) as raised:
        linnet.fit(build, arrays, batch_size=8, shuffle=False, directory=tmp_path)
    assert "in batch 3 of epoch 1 (step 3)" in str(raised.value) and "'t' has values 0 to 7" in str(raised.value)
    assert raised.value.status == "index_out_of_range"
    assert linnet.load_checkpoint(tmp_path / "checkpoint-00000002.lnt").metadata["step"] == "2"


def test_a_batch_is_not_larger_than_the_data() -> None:
    """Asked for, it is an error. Without a batch size, a batch has 32 examples, or all of them if there are fewer."""
    rows = examples(20)
    for arguments in ({"batch_size": 21}, {"batch_size": 64, "validation": 0.5}):
        with pytest.raises(
            linnet.UsageError, match=r"one batch is larger than the data; expected at most (20|10) examples"
        ):
            linnet.fit(build, rows, **arguments)
    with pytest.raises(linnet.UsageError, match="one batch is larger than the data"):
        linnet.fit(build, data.Loader(data.Arrays(rows), 21))
    with pytest.raises(linnet.UsageError, match=r"larger than the data; expected at most 10 examples, got 11"):
        linnet.fit(build, data.Loader(data.Arrays(rows), 11, shard=(0, 2)))
    assert linnet.fit(build, rows, batch_size=20, epochs=2).step == 2
    assert linnet.fit(build, rows, epochs=2)["loss"] == linnet.fit(build, rows, batch_size=20, epochs=2)["loss"]
    assert linnet.fit(build, examples(52)).step == 2  # 32 and 20
    assert linnet.evaluate(build(), rows, batch_size=64)["loss"] > 0  # evaluation has no such limit


def changed(**arrays: Any) -> dict[str, Any]:
    return {name: value for name, value in {**examples(), **arrays}.items() if value is not None}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            changed(x=np.zeros((52, 2, 4, 5), np.float32)),
            r"'x'.*wrong shape, in batch 1 .*\[\?, 2, 5, 5\], got \[8, 2, 4",
        ),
        (changed(x=np.zeros((52, 2, 5, 5), np.uint8)), r"'x'.*wrong dtype.*f32.*got u8.*astype"),
        (changed(t=np.zeros(52, np.float32)), "'t'.*wrong dtype.*i32.*got f32"),
        (changed(t=np.full(52, 1 << 40)), "values in the range of i32, got 1099511627776"),
        (changed(t=None), r"has no array for input 't', in batch 1 .*; expected x and t, got x"),
        (
            changed(y=np.zeros(52)),
            r"the data has an array named 'y', but the model has no such input.*; expected x or t",
        ),
        (changed(t=np.zeros(51)), "52 in 'x', 51 in 't'"),
        ((np.zeros(3),), "for the inputs x, t.*got 1 arrays"),
        (12, "training data has an unsupported type.*got int"),
        (lambda epoch: [], "epoch 0 of the data has no batch"),
        (lambda epoch: [np.zeros(3)], "a batch must be a mapping"),
    ],
)
def test_wrong_data(given: Any, words: str) -> None:
    with pytest.raises(linnet.UsageError, match=words):
        linnet.fit(build, given, batch_size=8)


def test_wrong_arguments(tmp_path: Path) -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", ("batch",))
    graph.signature("infer", {"x": x}, {"y": x * 2.0})
    (tmp_path / "file").write_text("")
    for make, words in (
        (
            lambda: linnet.fit(graph, {"x": np.zeros(3)}),
            "no signature 'train' for training; expected infer; .*minimize",
        ),
        (lambda: linnet.fit(build, examples(), validation=2.0), "share is out of range"),
        (lambda: linnet.fit(build, examples(), eval="test", validation=0.5), "no signature 'test' for validation"),
        (lambda: linnet.fit(build, lambda e: [], validation=0.5), "cannot be a fraction of this kind of data"),
        (lambda: linnet.fit(lambda: 3, examples()), "must return a graph"),
        (lambda: linnet.Saver(every=0), "invalid interval"),
        (lambda: linnet.Saver(keep=0), "keep must be at least 1"),
        (lambda: linnet.Saver(best=("loss", "least")), "unknown mode"),
        (lambda: linnet.EarlyStopping(patience=0), "patience"),
        (
            lambda: linnet.fit(build, examples(), callbacks=[linnet.EarlyStopping()]),
            "no metric named 'val_loss'.*expected loss",
        ),
        (lambda: linnet.fit(build, examples())["acc"], "no metric named 'acc'; expected step or epoch or loss"),
        (lambda: linnet.fit(build, examples()).load_best(), "no best checkpoint"),
    ):
        with pytest.raises(linnet.UsageError, match=words):
            make()
    with pytest.raises(linnet.FileError, match="cannot write to"):
        linnet.fit(build, examples(), directory=tmp_path / "file" / "run")


def test_a_loader_thread_ends_with_its_run() -> None:
    import threading

    before = threading.enumerate()  # of earlier tests

    class Stop(linnet.Callback):
        def on_step(self, run: linnet.training.Run, metrics: Mapping[str, float]) -> None:
            run.stop("enough")

    history = linnet.fit(build, data.Loader(data.Arrays(examples()), 4, prefetch=3), callbacks=[Stop()])
    assert (history.step, history.stopped) == (1, "enough")
    assert not [t for t in threading.enumerate() if t.name == "linnet-loader" and t not in before]


def test_a_run_that_failed_before_its_first_checkpoint_can_begin_anew(tmp_path: Path) -> None:
    wrong = examples() | {"x": np.zeros((len(examples()["t"]), 2), np.float32)}
    with pytest.raises(linnet.UsageError, match="wrong shape"):
        linnet.fit(build(), wrong, batch_size=8, directory=tmp_path, saver=linnet.Saver(every=100))
    for checkpoint in tmp_path.glob("*.lnt"):
        checkpoint.unlink()
    history = linnet.fit(build(), examples(), batch_size=4, steps=2, directory=tmp_path, resume=True)
    assert history.step == 2 and [p.name for p in tmp_path.glob("*.lnt")] == ["checkpoint-00000002.lnt"]


@pytest.mark.parametrize("existed", [False, True])
def test_a_failed_first_step_leaves_nothing(existed: bool, tmp_path: Path) -> None:
    """The corrected run can use the same directory, whatever was wrong: labels out of range, or a loss of NaN."""
    place, wrong = tmp_path / "run", examples()
    if existed:
        place.mkdir()
        (place / "notes.txt").write_text("mine")
    wrong["t"] = wrong["t"] + 3
    not_finite = examples()
    not_finite["x"][:] = np.nan
    for given, kind in ((wrong, linnet.GraphError), (not_finite, linnet.TrainingError)):
        with pytest.raises(kind):
            linnet.fit(build(), given, batch_size=8, directory=place, progress=False)
        assert [path.name for path in place.glob("*")] == (["notes.txt"] if existed else [])
        assert place.exists() == existed
    history = linnet.fit(build(), examples(), steps=2, batch_size=8, directory=place, progress=False)
    assert history.step == 2 and (place / "checkpoint-00000002.lnt").exists()


def test_a_later_failure_keeps_the_steps_before_it(tmp_path: Path) -> None:
    wrong = examples()
    wrong["t"][20:24] = 9
    with pytest.raises(linnet.GraphError):
        linnet.fit(build(), wrong, batch_size=8, directory=tmp_path, shuffle=False, progress=False)
    assert (tmp_path / "checkpoint-00000002.lnt").exists() and (tmp_path / "manifest.json").exists()


@pytest.mark.parametrize("limit", [{"epochs": -1}, {"steps": -1}])
def test_a_negative_length_is_refused(limit: dict[str, int]) -> None:
    graph = linnet.Graph()
    x, w = graph.placeholder("x", ("n", 2)), graph.variable("w", np.ones(2, np.float32))
    loss = (x * w.tensor(x)).mean()
    graph.signature("train", {"x": x}, {"loss": loss}, updates=linnet.SGD(0.1).minimize(loss))
    with pytest.raises(linnet.UsageError, match=f"'{next(iter(limit))}' is out of range; expected 0 or more, got -1"):
        linnet.fit(graph, {"x": np.ones((4, 2), np.float32)}, **limit)  # type: ignore[arg-type]
