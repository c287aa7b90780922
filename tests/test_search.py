"""linnet.search: what it finds, the figures that it measures, limits, pruning, boards, and errors."""

from __future__ import annotations

import json
import re
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

import linnet
from linnet import nn, search
from linnet.clib.errors import DeviceError, SyncError
from linnet.search import figures
from linnet.search.boards import Pool
from tests.native import build, run


def dense(width: int) -> linnet.Graph:
    """x f32 [1, 8] -> y f32 [1, 3], with `width` units between."""
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (1, 8))
    graph.signature("infer", {"x": x}, {"y": nn.dense(nn.dense(x, width, activation="relu"), 3)})
    return graph


def learner(rate: float, seed: int = 0) -> linnet.Graph:
    """A graph that learns to tell points on both sides of a line."""
    graph = linnet.Graph(seed=seed)
    x, t = graph.placeholder("x", ("batch", 4)), graph.placeholder("t", ("batch",), "i32")
    logits = nn.dense(nn.dense(x, 8, activation="relu"), 2)
    outputs = {"loss": linnet.softmax_cross_entropy(logits, t).mean(), "accuracy": linnet.metrics.accuracy(logits, t)}
    graph.signature("train", {"x": x, "t": t}, outputs, updates=linnet.SGD(rate).minimize(outputs["loss"]))
    graph.signature("eval", {"x": x, "t": t}, outputs)
    graph.signature("infer", {"x": x}, {"y": logits})
    return graph


def points() -> dict[str, np.ndarray]:
    x = np.random.default_rng(0).standard_normal((256, 4)).astype(np.float32)
    return {"x": x, "t": (x.sum(axis=1) > 0).astype(np.int32)}


def test_a_planted_best_of_40_is_found_in_20() -> None:
    """At twelve places, each with other draws. Drawing 20 of 40 at random finds half of them."""
    found = 0
    for seed, (width, depth) in enumerate([(w, d) for w in (1, 4, 9) for d in range(4)]):

        def objective(trial: Any, width: int = width, depth: int = depth) -> float:
            apart = (trial.suggest_int("width", 0, 9) - width) / 10, (trial.suggest_int("depth", 0, 3) - depth) / 4
            return 1 - apart[0] ** 2 - apart[1] ** 2

        result = search.run(objective, search.Settings(["accuracy"], trials=20, seed=seed))
        assert len(result.rows) == 20 and result.best is not None
        found += result.best.params == {"width": width, "depth": depth}
    assert found >= 10


def test_the_front_is_that_of_all_pairs() -> None:
    def objective(trial: Any) -> dict[str, float]:
        a, b = trial.suggest_int("a", 0, 6), trial.suggest_float("b", 0, 1)
        return {"accuracy": round(b * a, 1), "cost": a + round(b, 1), "loss": abs(b - 0.3), "size": a * a}

    settings = search.Settings(
        {"accuracy": "maximize", "cost": "minimize", "loss": "minimize"}, limits={"size": 30}, trials=60, seed=2
    )
    result = search.run(objective, settings)
    able = [row for row in result.rows if row.figures["size"] <= 30]
    assert 0 < len(able) < 60, "the limit must decide something"
    points = np.array([[-row.figures["accuracy"], row.figures["cost"], row.figures["loss"]] for row in able])
    expected = {
        row.number
        for row, point in zip(able, points, strict=True)
        if not any((other <= point).all() and (other < point).any() for other in points)
    }
    assert {row.number for row in result.front} == expected and 1 < len(expected) < len(able)
    accuracies = [row.figures["accuracy"] for row in result.front]
    assert accuracies == sorted(accuracies, reverse=True) and result.best == result.front[0]


def test_the_same_seed_makes_the_same_trials() -> None:
    def params(seed: int, sampler: Any = "tpe") -> list[Any]:
        settings = search.Settings(["loss"], trials=14, seed=seed, sampler=sampler)
        return [r.params for r in search.run(lambda trial: trial.suggest_float("x", -1, 1) ** 2, settings).rows]

    assert params(1) == params(1) != params(2)
    assert params(1, "random") == params(1, "random") != params(1)
    grown = params(1, lambda seed: optuna.samplers.TPESampler(seed=seed, multivariate=True))
    assert grown == params(1, lambda seed: optuna.samplers.TPESampler(seed=seed, multivariate=True))


def test_measured_figures_are_those_of_the_model() -> None:
    settings = search.Settings(
        ["accuracy", "bytes", "memory", "macs"], trials=3, space={"width": {"low": 4, "high": 90}}
    )
    result = search.run(lambda trial: (dense(trial.params["width"]), {"accuracy": 0.5, "note": 3}), settings)
    for row in result.rows:
        width, model = row.params["width"], dense(row.params["width"]).freeze()
        session = linnet.Session(model, input_shapes={"x": (1, 8)}, threads=1)
        assert row.figures == {
            "accuracy": 0.5, "note": 3, "bytes": len(model.to_bytes()), "memory": session.memory["total"], "macs": 11 * width
        }  # fmt: skip
        assert row.state == "complete" and row.board == ""


def test_models_are_quantized_before_they_are_measured(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    samples = [{"x": rng.standard_normal((1, 8)).astype(np.float32)} for _ in range(4)]
    np.savez(tmp_path / "samples.npz", x=np.stack([s["x"] for s in samples]))
    path = tmp_path / "model.lnt"
    dense(400).save(path)
    seen = []

    def evaluate(run: Any) -> float:
        seen.append(run(samples[0])["y"])
        return 0.25

    def bytes_of(answer: Any, **how: Any) -> float:
        result = search.run(
            lambda trial: answer, search.Settings(["bytes", "accuracy"], trials=1, evaluate=evaluate, **how)
        )
        assert result.rows[0].figures["accuracy"] == 0.25
        return result.rows[0].figures["bytes"]

    full = bytes_of(dense(400))
    assert bytes_of(path) == bytes_of(str(path), dtype="f32") == full
    eights = [
        bytes_of(dense(400), dtype="i8", calibration=how)
        for how in (samples, iter(samples), tmp_path / "samples.npz", None)
    ]
    assert max(eights) < 0.5 * full
    assert np.abs(seen[0] - seen[1]).max() == 0 < np.abs(seen[0] - seen[3]).max() < 0.5


def test_limits_make_trials_infeasible() -> None:
    settings = search.Settings(
        {"accuracy": "maximize"}, limits={"accuracy": 0.2, "size": 5, "zero": 0}, trials=12,
        space={"x": {"low": 0, "high": 9}},
    )  # fmt: skip
    result = search.run(
        lambda trial: {"accuracy": trial.params["x"] / 10, "size": trial.params["x"], "zero": 0}, settings
    )
    for row in result.rows:
        x = row.params["x"]
        assert row.beyond == (["accuracy"] if x < 2 else ["size"] if x > 5 else [])
        assert row.state == ("infeasible" if row.beyond else "complete")
    assert result.best is not None and result.best.params == {"x": 5}
    none = search.Settings(["accuracy"], limits={"size": -1}, trials=2)
    result = search.run(lambda trial: {"accuracy": 1, "size": 3}, none)
    assert result.best is None and result.front == []


def test_pruning_stops_a_fit() -> None:
    steps: dict[int, int] = {}

    def objective(trial: Any) -> float:
        rate = trial.suggest_categorical("rate", [0.3, 1e-6])
        try:
            callbacks = [search.Pruning(trial), Counting(trial.number, steps)]
            history = linnet.fit(
                learner(rate), points(), epochs=4, batch_size=64, validation=points(), callbacks=callbacks
            )
        finally:
            trial.set_user_attr("epochs", steps.get(trial.number, 0))
        return history["val_accuracy"][-1]

    settings = search.Settings(["accuracy"], trials=8, seed=0, pruner=optuna.pruners.MedianPruner(n_startup_trials=2))
    result = search.run(objective, settings)
    pruned = [row for row in result.rows if row.state == "pruned"]
    assert pruned and all(row.params["rate"] == 1e-6 and steps[row.number] < 16 for row in pruned)
    assert all(re.match(r"val_accuracy 0\.\d+ after \d records?", row.error) for row in pruned)
    assert result.best is not None and result.best.params["rate"] == 0.3 and steps[result.best.number] == 16


class Counting(linnet.Callback):
    """Counts the steps of a run."""

    def __init__(self, number: int, steps: dict[int, int]) -> None:
        self.number, self.steps = number, steps

    def on_step(self, run: Any, metrics: Any) -> None:
        self.steps[self.number] = run.step


def test_pruning_knows_only_feasible_trials() -> None:
    """Large models learn better here, and are beyond the limit. They must not prune the others."""

    def objective(trial: Any) -> dict[str, float]:
        large = trial.number < 4
        trial.report(0.9 if large else 0.5 - 0.1 * (trial.number == 7), 0)
        if trial.should_prune():
            raise optuna.TrialPruned("too low")
        return {"accuracy": 0.9 if large else 0.5, "bytes": 10 if large else 1}

    pruner = optuna.pruners.MedianPruner(n_startup_trials=2)
    result = search.run(objective, search.Settings(["accuracy"], limits={"bytes": 5}, trials=8, pruner=pruner))
    assert [row.state for row in result.rows] == ["infeasible"] * 4 + ["complete"] * 3 + ["pruned"]
    assert result.rows[7].error == "too low"


def test_pruning_by_a_loss_in_a_study_of_accuracy() -> None:
    reports = []

    study = optuna.create_study(direction="maximize")

    class Trial(optuna.trial.Trial):
        def report(self, value: float, step: int) -> None:
            reports.append((value, step))

        def should_prune(self) -> bool:
            return False

    for mode in (None, "max", "min"):
        callback = search.Pruning(Trial(study, study.ask()._trial_id), "val_loss", mode)
        callback.on_record(None, {"val_loss": 2.0})  # type: ignore[arg-type]
        callback.on_record(None, {"val_loss": 1.0})  # type: ignore[arg-type]
    assert reports == [(2, 0), (1, 1), (2, 0), (1, 1), (-2, 0), (-1, 1)]
    with pytest.raises(linnet.UsageError, match="no metric named 'val_loss'"):
        callback.on_record(None, {"loss": 2.0})  # type: ignore[arg-type]


def test_a_study_with_several_objectives_is_not_pruned() -> None:
    with pytest.raises(linnet.UsageError, match="several objectives cannot be pruned; expected one objective, got 2"):
        search.run(search.Pruning, search.Settings(["accuracy", "loss"], trials=1))


def test_times_are_measured_on_a_board(tmp_path: Path) -> None:
    tool = build("release", "linnet-bench") / "linnet-bench"
    dense(16).freeze().save(tmp_path / "model.lnt")
    words = [str(tool), str(tmp_path / "model.lnt"), "--threads", "1", "--seconds", "0.01", "--json"]
    memory = json.loads(run(words))["memory"]["total"]
    settings = search.Settings(["ms", "memory"], limits={"p95_ms": 1e9}, trials=2, boards=["local"], seconds=0.02)
    result = search.run(lambda trial: dense(16), settings)
    for row in result.rows:
        assert row.board == "local" and 0 < row.figures["ms"] <= row.figures["p95_ms"] < 1e9
        assert row.figures["memory"] == memory


def test_a_board_is_taken_by_one_at_a_time(tmp_path: Path) -> None:
    """Four threads, each with a pool of its own as processes have, share two boards; one of the pools is another study's."""
    pools = [Pool(["a", "b", "a"], tmp_path) for _ in range(3)] + [Pool(["a", "b"])]
    busy: dict[str, int] = {"a": 0, "b": 0}
    taken: list[str] = []
    both = threading.Barrier(2, timeout=60)

    def work(pool: Pool, wait: bool) -> None:
        for i in range(20):
            with pool.board() as address:
                busy[address] += 1
                assert busy[address] == 1
                if wait and i == 0:
                    both.wait()  # two measure at the same time, so both boards are in use
                taken.append(address)
                busy[address] -= 1

    threads = [threading.Thread(target=work, args=(pool, i < 2)) for i, pool in enumerate(pools)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 80 and set(taken) == {"a", "b"}


def test_a_board_that_does_not_answer_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def deploy(request: Any, outcome: Any, show: Any) -> None:
        asked.append(request.target.name)
        if request.target.name != "local3":
            raise SyncError("no route", code=601)
        outcome.results.append({"median_ms": 2.0, "p95_ms": 3.0, "memory": {"total": 7}})

    monkeypatch.setattr(figures, "deploy", deploy)
    settings = search.Settings(["ms"], trials=3, boards=["local1", "local2", "local3"])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = search.run(lambda trial: dense(4), settings)
    assert asked == ["local1", "local2", "local3", "local3", "local3"]
    assert [row.board for row in result.rows] == ["local3"] * 3
    assert len([w for w in seen if "is left out from here on" in str(w.message)]) == 2
    with pytest.raises(SyncError, match="no route"):
        search.run(lambda trial: dense(4), search.Settings(["ms"], trials=3, boards=["local1"]))


def test_models_that_cannot_run_fail_their_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    def objective(trial: Any) -> float:
        kind = trial.number
        if kind == 0:
            raise linnet.GraphError("the kernel does not fit", code=303)
        if kind == 1:
            raise linnet.TrainingError("the loss became NaN")
        if kind == 2:
            raise DeviceError("linnet-bench failed", code=501)
        return 1.0

    result = search.run(objective, search.Settings(["loss"], trials=4))
    assert [row.state for row in result.rows] == ["failed"] * 3 + ["complete"]
    assert result.rows[0].error == "shape_mismatch: the kernel does not fit" and result.best == result.rows[3]
    with pytest.raises(linnet.Error, match="all trials of the search have failed; got shape_mismatch"):
        search.run(objective, search.Settings(["loss"], trials=2))


def test_a_declared_space() -> None:
    settings = search.Settings(
        ["loss"], trials=6,
        space={
            "width": {"low": 8, "high": 64, "step": 8}, "rate": {"low": 1e-4, "high": 1e-1, "log": True},
            "kernel": {"choices": [3, 5]}, "drop": {"low": 0, "high": 0.5, "step": 0.25},
        },
    )  # fmt: skip
    rows = search.run(lambda trial: trial.suggest_float("own", 0, 1), settings).rows
    for row in rows:
        assert list(row.params) == ["width", "rate", "kernel", "drop", "own"]
        assert row.params["width"] % 8 == 0 and 1e-4 <= row.params["rate"] <= 0.1
        assert row.params["kernel"] in (3, 5) and row.params["drop"] in (0, 0.25, 0.5)


def test_the_result_as_json() -> None:
    settings = search.Settings(["accuracy", "bytes"], limits={"bytes": 10**6}, trials=2, seed=4)
    made = search.run(lambda trial: (dense(4), {"accuracy": 0.5}), settings).as_dict()
    assert made["objectives"] == {"accuracy": "maximize", "bytes": "minimize"} and made["front"] == [0, 1]
    assert made["limits"] == {"bytes": 10**6} and made["seed"] == 4
    assert made["trials"][1]["figures"]["accuracy"] == 0.5 and made["trials"][1]["state"] == "complete"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"objectives": []}, "setting 'objectives' .* expected at least one name"),
        ({"objectives": "accuracy"}, "setting 'objectives'"),
        ({"objectives": ["score"]}, "direction of the objective 'score' is not known; expected maximize or minimize, got none"),
        ({"objectives": {"score": "up"}}, "expected maximize or minimize, got 'up'"),
        ({"limits": {"bytes": "many"}}, "'limits' .* expected a finite number for bytes, got 'many'"),
        ({"limits": {"bytes": float("nan")}}, "expected a finite number for bytes, got nan"),
        ({"trials": 0}, "'trials' .* expected an integer of at least 1, got 0"),
        ({"seed": -1}, "'seed' .* at least 0, got -1"),
        ({"seconds": 0}, "'seconds' .* expected a number above 0, got 0"),
        ({"sampler": "tp"}, "'sampler' .* expected tpe"),
        ({"dtype": "i7"}, "'dtype' .* got 'i7'"),
        ({"boards": "local"}, "'boards' .* expected a list of addresses"),
        ({"boards": ["a b:x:y"]}, "the target is not a valid address"),
        ({"objectives": ["ms"], "boards": ["emulate:cortex-a53"]}, "ms cannot be measured on an emulated board"),
        ({"space": {"w": {"lo": 1}}}, "parameter 'w' .* perhaps low"),
        ({"space": {"w": {"low": 1}}}, "expected numbers as low and high, or choices"),
        ({"space": {"w": {"low": 3, "high": 1}}}, "'w' .* expected low below high"),
        ({"space": {"w": {"low": 0, "high": 1, "log": True}}}, "log only for low above 0"),
        ({"space": {"w": {"low": 1, "high": 2, "log": 1}}}, "expected true or false as log"),
        ({"space": {"w": {"choices": []}}}, "expected a list of choices"),
        ({"space": {"w": {"choices": [1], "low": 1}}}, "expected choices alone"),
    ],
)  # fmt: skip
def test_wrong_settings(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(linnet.UsageError, match=message):
        search.Settings(**{"objectives": ["loss"], **wrong})


@pytest.mark.parametrize(
    ("answer", "objectives", "message"),
    [
        (None, ["loss"], "returned something else than a model or figures; expected a graph"),
        (1.0, ["loss", "bytes"], "returned something else than a model or figures"),
        ((1, {"loss": 2}), ["loss"], "returned something else"),
        ({"los": 1}, ["loss"], "gives no figure named 'loss'; expected los, got los; give it in the dictionary"),
        ({"loss": 1}, ["loss", "bytes"], "no figure named 'bytes'; expected a model to measure, got loss; return the graph"),
        ({"loss": float("nan")}, ["loss"], "the figure 'loss' of a trial is not a number; expected a finite number, got nan"),
        ({"loss": "low"}, ["loss"], "got 'low'"),
        ("graph", ["ms"], r"needs a board; .* boards = \['pi@raspberrypi.local'\]"),
    ],
)  # fmt: skip
def test_wrong_answers(answer: Any, objectives: list[str], message: str) -> None:
    given = dense(4) if answer == "graph" else answer
    with pytest.raises(linnet.UsageError, match=message):
        search.run(lambda trial: given, search.Settings(objectives, trials=1))
