"""linnet.fit: learning, validation, early stopping, checkpoints, records, forms of data."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import data
from tests.fit_script import STEPS_PER_EPOCH, build, examples


class Watch(linnet.Callback):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_start(self, run: linnet.training.Run) -> None:
        self.calls.append("start")

    def on_step(self, run: linnet.training.Run, metrics: Mapping[str, float]) -> None:
        self.calls.append(f"step {run.step}")

    def on_record(self, run: linnet.training.Run, record: Mapping[str, float]) -> None:
        self.calls.append(f"record {run.epoch}")

    def on_end(self, run: linnet.training.Run) -> None:
        self.calls.append("end")


def test_fit_is_the_loop_that_one_would_write_by_hand() -> None:
    history = linnet.fit(build, examples(), epochs=3, batch_size=8, seed=5)
    model = linnet.Model(linnet.passes.run(build()))
    session = linnet.Session(model, "train")
    arrays = examples()
    loader = data.Loader(data.Arrays({"x": arrays["x"], "t": arrays["t"].astype(np.int32)}), 8, seed=5)
    losses = [[(session.run(b)["loss"], len(b["t"])) for b in loader.batches(epoch)] for epoch in range(3)]
    for name in session.variables:
        np.testing.assert_array_equal(history.store[name], session.variables[name], err_msg=name)
    means = [sum(float(loss) * n for loss, n in epoch) / 52 for epoch in losses]
    np.testing.assert_allclose(history["loss"], means, rtol=1e-12)
    assert (history.step, history.epoch, history.stopped) == (21, 3, "")


def test_it_learns_and_the_result_can_be_frozen() -> None:
    arrays = examples(300)
    history = linnet.fit(build(), arrays, epochs=6, validation=0.2)
    assert history["val_accuracy"][-1] > 0.85 and history["loss"][-1] < history["loss"][0] / 2
    found = linnet.evaluate(history.model, arrays, store=history.store)
    assert found["accuracy"] == pytest.approx(found["hits"] / 300) and isinstance(found["hits"], int)
    logits = linnet.Session(history.graph.freeze()).run({"x": arrays["x"]})["logits"]
    assert (logits.argmax(1) == arrays["t"]).sum() == found["hits"]
    again = linnet.fit(history.graph, arrays, steps=1)
    assert again.steps == [] and again["loss"][0] < history["loss"][0] / 2


def test_calls_in_order() -> None:
    watch = Watch()
    linnet.fit(build, examples(20), epochs=2, batch_size=16, callbacks=[watch])
    assert watch.calls == ["start", "step 1", "step 2", "record 1", "step 3", "step 4", "record 2", "end"]
    watch = Watch()
    history = linnet.fit(build, examples(20), steps=5, batch_size=16, callbacks=[watch], validate_every=2, log_every=2)
    assert [c for c in watch.calls if c.startswith("record")] == ["record 1", "record 2"]
    assert [r["step"] for r in history.records] == [2, 4, 5] and [r["step"] for r in history.steps] == [2, 4]


def test_early_stopping_and_the_best_values(tmp_path: Path) -> None:
    class Worse(linnet.Callback):
        """Destroys the variables from the third epoch on."""

        def on_step(self, run: linnet.training.Run, metrics: Mapping[str, float]) -> None:
            if run.step > 2 * STEPS_PER_EPOCH:
                run.store["net/dense/bias"] = np.float32([40, 0, 0]) * run.step

    for directory in (None, tmp_path / "run"):
        stopping = linnet.EarlyStopping("val_loss", patience=2, restore_best=True)
        history = linnet.fit(
            build, examples(), epochs=9, batch_size=8, validation=examples(20), callbacks=[Worse(), stopping],
            directory=directory, saver=linnet.Saver(best=("val_loss", "min"), keep=None),
        )  # fmt: skip
        best = int(np.argmin(history["val_loss"]))
        assert history.epoch == best + 3 <= 5 and "val_loss has not improved since step" in history.stopped
        assert history.best == {
            "metric": "val_loss", "value": history["val_loss"][best], "step": (best + 1) * STEPS_PER_EPOCH
        }  # fmt: skip
        assert stopping.best_step == history.best["step"]
        found = linnet.evaluate(history.model, examples(20), store=history.store)
        assert found["loss"] == pytest.approx(history["val_loss"][best], rel=1e-6)
    last = linnet.load_checkpoint(tmp_path / "run" / f"checkpoint-{history.step:08d}.lnt")
    assert last.variables["net/dense/bias"][0] > 30  # checkpoints hold the run's state, not its best
    history.store.load(tmp_path / "run" / f"checkpoint-{history.step:08d}.lnt")
    history.load_best()
    assert linnet.evaluate(history.model, examples(20), store=history.store)["loss"] == pytest.approx(found["loss"])


def test_checkpoints_are_kept_and_dropped(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"steps": 11, "batch_size": 8, "validation": examples(20)}
    linnet.fit(build, examples(), directory=tmp_path / "a", saver=linnet.Saver(every=2, keep=2), **arguments)
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == [
        "checkpoint-00000010.lnt", "checkpoint-00000011.lnt", "manifest.json", "metrics.jsonl",
    ]  # fmt: skip
    saver = linnet.Saver(keep=None, best=("val_accuracy", "max"))
    history = linnet.fit(build, examples(), directory=tmp_path / "b", saver=saver, **arguments)
    names = {p.name for p in (tmp_path / "b").glob("*.lnt")}
    assert names == {"checkpoint-00000007.lnt", "checkpoint-00000011.lnt", "best.lnt"}
    assert history.best is not None and history.best["step"] == 7 and history.best_path == tmp_path / "b" / "best.lnt"
    assert linnet.load_checkpoint(tmp_path / "b" / "best.lnt").metadata["step"] == "7"


def test_checkpoints_by_time(tmp_path: Path) -> None:
    """minutes=: a checkpoint as soon as they have passed. keep_hours=: one of each hour stays besides the latest."""
    seldom = {"every": 10**6, "keep": None}
    linnet.fit(build, examples(), steps=3, directory=tmp_path / "a", saver=linnet.Saver(**seldom, minutes=1e-9))
    assert len(list((tmp_path / "a").glob("checkpoint-*.lnt"))) == 3
    linnet.fit(build, examples(), steps=3, directory=tmp_path / "b", saver=linnet.Saver(**seldom, minutes=60))
    assert len(list((tmp_path / "b").glob("checkpoint-*.lnt"))) == 1

    class Hours(linnet.Callback):
        """Makes each checkpoint look 20 minutes younger than the one before."""

        def on_step(self, run: Any, metrics: Mapping[str, float]) -> None:
            for path in run.directory.glob("checkpoint-*.lnt"):
                os.utime(path, (0, 1200 * int(path.stem.rpartition("-")[2])))

    saver = linnet.Saver(every=1, keep=2, keep_hours=1)
    linnet.fit(build, examples(), steps=14, batch_size=4, directory=tmp_path / "c", saver=saver, callbacks=[Hours()])
    # Steps 0 to 2 are the first hour, 3 to 5 the second, and so on.
    steps = sorted(int(path.stem.rpartition("-")[2]) for path in (tmp_path / "c").glob("checkpoint-*.lnt"))
    assert steps == [2, 5, 8, 11, 12, 13, 14]
    for wrong in ({"minutes": 0}, {"keep_hours": -1.0}):
        with pytest.raises(linnet.UsageError, match="must be above 0"):
            linnet.Saver(**wrong)  # type: ignore[arg-type]


def test_manifest_and_metrics(tmp_path: Path) -> None:
    history = linnet.fit(build, examples(), epochs=2, batch_size=8, directory=tmp_path / "run", seed=4, log_every=3)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["run"]["model"] == history.model.metadata("digest") and manifest["run"]["seed"] == 4
    assert manifest["run"]["examples"] == 52 and len(manifest["run"]["data"]) == 64
    assert manifest["versions"]["numpy"] == np.__version__ and manifest["machine"]["isa"] in linnet.isa_names()
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in rows if r["kind"] == "step"] == [3, 6, 9, 12]
    assert [r["loss"] for r in rows if r["kind"] == "record"] == history["loss"]


def test_forms_of_data(tmp_path: Path) -> None:
    arrays = examples()
    source = data.Arrays(arrays)

    def stream(epoch: int) -> Iterator[data.Batch]:
        return data.Loader(source, 8, seed=0).batches(epoch)

    build().save(tmp_path / "model.lnt")
    wanted = linnet.fit(build, arrays, epochs=2, batch_size=8)
    for given, arguments in (
        ((arrays["x"], arrays["t"]), {"batch_size": 8}), (source, {"batch_size": 8}), (data.Loader(source, 8), {}),
        (data.Loader(source, 8, prefetch=2), {}), (stream, {}),
    ):  # fmt: skip
        found = linnet.fit(build, given, epochs=2, **arguments)
        assert found["loss"] == wanted["loss"] and found.step == 14
    stored = linnet.fit(tmp_path / "model.lnt", arrays, epochs=2, batch_size=8)
    np.testing.assert_allclose(stored["loss"], wanted["loss"], rtol=1e-5)  # not simplified, as in a C program
    assert stored.graph.variables["net/dense/bias"].value.any()


def test_a_fixed_batch_decides_and_leaves_out_the_rest() -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (8, 3))
    w = graph.variable("w", np.ones(3, np.float32))
    loss = (x * w).mean()
    graph.signature("train", {"x": x}, {"loss": loss}, updates=linnet.SGD(0.1).minimize(loss))
    graph.signature("eval", {"x": x}, {"loss": loss})
    rows = np.ones((20, 3), np.float32)
    assert linnet.fit(graph, {"x": rows}, epochs=2, validation={"x": rows[:16]}).step == 4
    with pytest.raises(linnet.UsageError, match="a multiple of 8 examples, got 20"):
        linnet.fit(graph, {"x": rows}, validation={"x": rows})


def test_tensorboard_events(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="event files need tensorboardX: pip install 'linnet-runtime[train]'")
    from tensorboardX.proto.event_pb2 import Event

    history = linnet.fit(
        build, examples(), epochs=2, batch_size=8, validation=examples(20), directory=tmp_path,
        callbacks=[linnet.TensorBoard(every=5)],
    )  # fmt: skip
    found: dict[str, list[tuple[int, float]]] = {}
    for path in (tmp_path / "events").iterdir():
        content = path.read_bytes()
        at = 0
        while at < len(content):  # length, its checksum, the event, its checksum
            (size,) = struct.unpack_from("<Q", content, at)
            event = Event.FromString(content[at + 12 : at + 12 + size])
            at += 16 + size
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    assert [step for step, _ in found["step/loss"]] == [5, 10]
    np.testing.assert_allclose([v for _, v in found["validation/accuracy"]], history["val_accuracy"], rtol=1e-6)
    np.testing.assert_allclose([v for _, v in found["loss"]], history["loss"], rtol=1e-6)
    with pytest.raises(linnet.UsageError, match="no directory to write to"):
        linnet.fit(build, examples(), callbacks=[linnet.TensorBoard()])


def test_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots need matplotlib: pip install 'linnet-runtime[train]'")
    history = linnet.fit(build, examples(), epochs=2, batch_size=8, validation=examples(20), log_every=1)
    figure = history.plot(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    axes = {a.get_title(): [list(line.get_ydata()) for line in a.lines] for a in figure.axes}
    assert axes["loss"][1:] == [history["loss"], history["val_loss"]] and len(axes["loss"][0]) == 14
    assert set(axes) == {"loss", "val_accuracy", "val_hits"}


def test_progress_lines(capsys: pytest.CaptureFixture[str]) -> None:
    linnet.fit(build, examples(), epochs=2, batch_size=8, progress=True)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and lines[1].startswith("epoch 2  step 14 of 14  loss 0.") and not capsys.readouterr().out
    linnet.fit(build, examples(), steps=1)
    assert not capsys.readouterr().out


def test_importing_linnet_imports_nothing_of_this() -> None:
    heavy = ("rich", "tensorboardX", "matplotlib", "linnet.training", "linnet.nn", "linnet.data")
    code = f"import sys, linnet; print([m for m in {heavy!r} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_early_stopping_is_the_same_after_an_interruption_at_any_record() -> None:
    """The callback's state goes through JSON, as in a checkpoint."""

    class Place:
        """The part of a run that the callback uses."""

        def __init__(self) -> None:
            self.step, self.directory, self.reason = 0, None, ""

        def stop(self, reason: str) -> None:
            self.reason = reason

    losses = [5.0, 3.0, 3.1, 2.95, 2.0, 2.5, 1.95, 2.3, 1.0]  # 2.95 and 1.95 are not enough of an improvement

    def stops_at(mode: str, interrupted: int | None) -> tuple[int, str]:
        run: Any = Place()
        stopping = linnet.EarlyStopping("loss", mode, patience=3, min_delta=0.1)
        for at, loss in enumerate(losses):
            if at == interrupted:
                state = json.loads(json.dumps(stopping.state()))
                stopping = linnet.EarlyStopping("loss", mode, patience=3, min_delta=0.1)
                stopping.restore(state)
            run.step = 10 * at
            stopping.on_record(run, {"loss": loss if mode == "min" else 10 - loss})
            if run.reason:
                return at, run.reason
        raise AssertionError("it never stopped")

    for mode in ("min", "max"):
        expected = (7, "loss has not improved since step 40")
        assert [stops_at(mode, at) for at in (None, *range(8))] == [expected] * 9


@pytest.mark.parametrize("mode", ["min", "max"])
def test_an_improvement_is_larger_than_the_least_one(mode: str) -> None:
    from linnet.training.callbacks import better

    sign = 1 if mode == "min" else -1
    assert better(mode, 5.0, None) and not better(mode, float("nan"), None)
    assert not better(mode, float("nan"), 3.0) and not better(mode, 3.0, 3.0)
    assert better(mode, 3.0 - sign * 0.2, 3.0, 0.1)
    assert not better(mode, 3.0 - sign * 0.05, 3.0, 0.1) and not better(mode, 3.0 + sign * 0.05, 3.0, 0.1)


def test_the_total_counts_the_last_step_of_an_epoch_although_it_has_fewer_batches() -> None:
    from linnet.training.run_setup import total_of

    assert total_of(3, None, 10, 4) == 9 and total_of(3, None, 8, 4) == 6
    assert total_of(3, 7, 10, 4) == 7 and total_of(3, 70, 10, 4) == 9
    assert total_of(3, None, None, 1) is None and total_of(None, 5, None, 1) == 5


def test_only_orders_that_the_native_trainer_has_are_described_for_it() -> None:
    """linnet-train shuffles whole batches of one worker."""
    from linnet.training.feeding import feed_of

    inputs = linnet.Model(build()).inputs("train")

    def native(count: int, **options: Any) -> dict[str, int]:
        given = {"batch_size": 8, "seed": 5, **options}
        if given.get("drop_last") or given.get("shard"):
            return feed_of(
                data.Loader(data.Arrays(examples(count)), **given), inputs, batch_size=1, shuffle=False, seed=0
            ).native
        return feed_of(examples(count), inputs, **{"shuffle": True, **given}).native

    whole = {"seed": 5, "batch": 8, "examples": 48}
    assert native(48) == whole and native(52) == {} and native(52, drop_last=True) == {**whole, "examples": 52}
    assert native(48, shuffle=False) == {} and native(48, shard=(0, 2), drop_last=True) == {}
    assert native(48, augment=[data.flip("x")]) == {}
