"""linnet.search after kill -9, and by several processes: the trials are those of an undisturbed run, and exactly as many as
were wanted."""
# Dear: processes are killed and started again, and each of them imports Optuna.

from __future__ import annotations

import dataclasses
import functools
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import optuna
import pytest

import linnet
from linnet import search
from linnet.search.locks import Lock
from tests import search_script
from tests.native import ROOT
from tests.test_search import learner, points


def start(journal: Path, where: str = "nowhere") -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.search_script", str(journal), where]
    return subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> int:
    _, err = process.communicate(timeout=200)
    assert "Traceback" not in err, err
    return process.returncode


def trials(found: search.Found) -> list[Any]:
    return [(row.number, row.state, row.params, row.figures, row.front) for row in found.rows]


@functools.cache
def undisturbed() -> list[Any]:
    objective = search_script.Ending("nowhere").objective
    settings = search.Settings({"score": "maximize"}, limits={"size": 60}, trials=search_script.TRIALS, seed=5)
    return trials(search.run(objective, settings))


def test_the_undisturbed_study_has_every_kind_of_trial() -> None:
    """Otherwise the comparisons below would compare little."""
    assert {row[1] for row in undisturbed()} == {"complete", "infeasible", "pruned"}
    assert undisturbed()[9][1] != "pruned", "the trial that is killed must come to its end"


@pytest.mark.parametrize("where", ["suggested", "reported", "figured", "finished"])
def test_resumed_after_kill_it_is_the_undisturbed_study(where: str, tmp_path: Path) -> None:
    journal = tmp_path / "study.journal"
    assert ended(start(journal, where)) == -signal.SIGKILL
    before = search.load(search_script.settings(journal))
    assert len(before.rows) == 10
    assert before.rows[9].state == ("running" if where != "finished" else undisturbed()[9][1])
    objective = search_script.Ending("nowhere").objective
    again = search.run(objective, search_script.settings(journal))
    assert trials(again) == undisturbed()
    assert trials(search.load(search_script.settings(journal))) == undisturbed()


def test_a_line_that_was_written_in_part_is_removed(tmp_path: Path) -> None:
    """At each length of the last line, from none of it to all but its end."""
    journal = tmp_path / "study.journal"
    objective = search_script.Ending("nowhere").objective
    search.run(objective, search_script.settings(journal))
    whole = journal.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    assert len(whole) - last > 10
    for length in (last + 1, (last + len(whole)) // 2, len(whole) - 1):
        journal.write_bytes(whole[:length])
        assert trials(search.run(objective, search_script.settings(journal))) == undisturbed()


def test_two_processes_make_the_total_together(tmp_path: Path) -> None:
    journal = tmp_path / "study.journal"
    processes = [start(journal), start(journal)]
    assert [ended(process) for process in processes] == [0, 0]
    found = search.load(search_script.settings(journal))
    assert [row.number for row in found.rows] == list(range(search_script.TRIALS))
    assert {row.state for row in found.rows} <= {"complete", "infeasible", "pruned"}


def test_the_trial_of_a_killed_process_is_made_by_another(tmp_path: Path) -> None:
    """A process waits for trials that others run, and takes them over if these end."""
    journal = tmp_path / "study.journal"
    killed, other = start(journal, "suggested"), start(journal, "nowhere")
    assert ended(other) == 0
    ended(killed)  # by SIGKILL if it has got trial 9
    found = search.load(search_script.settings(journal))
    assert len(found.rows) == search_script.TRIALS and "running" not in {row.state for row in found.rows}


def test_a_trial_that_runs_elsewhere_is_not_taken(tmp_path: Path) -> None:
    journal = tmp_path / "study.journal"
    assert ended(start(journal, "suggested")) == -signal.SIGKILL
    lock = Lock(tmp_path / "study.journal.locks" / "search.trial-9")
    assert lock.try_acquire(), "kill -9 has left the trial locked"
    seen = []

    def objective(trial: Any) -> dict[str, float]:
        seen.append(trial.number)
        if trial.number == 13:
            lock.release()  # now the process of trial 9 has ended
        return search_script.Ending("nowhere").objective(trial)

    search.run(objective, search_script.settings(journal))
    assert seen == [10, 11, 12, 13, 9]


def test_a_mistake_in_the_function_is_repeated(tmp_path: Path) -> None:
    settings = search.Settings({"score": "maximize"}, trials=4, journal=tmp_path / "study.journal")

    def wrong(trial: Any) -> float:
        if trial.suggest_int("x", 0, 5) >= 0 and trial.number == 2:
            raise ZeroDivisionError
        return float(trial.params["x"])

    with pytest.raises(ZeroDivisionError):
        search.run(wrong, settings)
    found = search.run(lambda trial: float(trial.suggest_int("x", 0, 5)), settings)
    alone = search.run(
        lambda trial: float(trial.suggest_int("x", 0, 5)), search.Settings({"score": "maximize"}, trials=4)
    )
    assert trials(found) == trials(alone)


def test_a_fit_that_reports_again_is_pruned_alike(tmp_path: Path) -> None:
    """Values that a trial has reported before it was broken off are known, and are not reported twice."""
    broken = [1, 5]

    def objective(trial: Any) -> float:
        rate = trial.suggest_float("rate", 1e-6, 1, log=True)
        breaking = [Breaking()] if broken[:1] == [trial.number] else []
        callbacks = [search.Pruning(trial), *breaking]
        history = linnet.fit(learner(rate), points(), epochs=4, batch_size=64, validation=points(), callbacks=callbacks)
        return history["val_accuracy"][-1]

    pruner = optuna.pruners.MedianPruner(n_startup_trials=2)
    settings = search.Settings(["accuracy"], trials=8, seed=1, journal=tmp_path / "study.journal", pruner=pruner)
    while broken:
        with pytest.raises(ZeroDivisionError):
            search.run(objective, settings)
        del broken[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = search.run(objective, settings)
    alone = search.run(objective, dataclasses.replace(settings, journal=None))
    assert trials(found) == trials(alone) and {row.state for row in alone.rows} == {"complete", "pruned"}

    def reports(result: search.Found) -> list[Any]:
        return [trial.intermediate_values for trial in result.study.trials]

    assert reports(found) == reports(alone)


class Breaking(linnet.Callback):
    """Breaks off at the second record."""

    def on_record(self, run: Any, record: Any) -> None:
        if run.epoch == 2:
            raise ZeroDivisionError


def test_more_trials_continue_a_study(tmp_path: Path) -> None:
    objective = search_script.Ending("nowhere").objective
    settings = {"limits": {"size": 60}, "seed": 5, "journal": tmp_path / "study.journal"}
    assert len(search.run(objective, search.Settings({"score": "maximize"}, trials=5, **settings)).rows) == 5
    assert trials(search.run(objective, search.Settings({"score": "maximize"}, trials=14, **settings))) == undisturbed()


def test_another_study_in_the_journal(tmp_path: Path) -> None:
    journal = tmp_path / "study.journal"

    def settings(**changed: Any) -> search.Settings:
        return search.Settings(**{"objectives": ["loss"], "trials": 2, "journal": journal, **changed})

    search.run(lambda trial: trial.suggest_float("x", 0, 1), settings())
    with pytest.raises(linnet.UsageError, match=r"other settings; expected seed: 0, got seed: 1; give another journal"):
        search.run(lambda trial: trial.suggest_float("x", 0, 1), settings(seed=1))
    assert len(search.run(lambda trial: trial.suggest_float("x", 0, 1), settings(seed=1, name="b/c")).rows) == 2
    assert len(search.load(settings()).rows) == 2
    with pytest.raises(linnet.UsageError, match="no study named 'd'; expected search or b/c"):
        search.load(settings(name="d"))


def test_bad_journals(tmp_path: Path) -> None:
    with pytest.raises(linnet.FileError, match="no journal of this study"):
        search.load(search.Settings(["loss"], journal=tmp_path / "none"))
    (tmp_path / "text").write_text("no journal\nat all\n")
    with pytest.raises(linnet.FileError, match=r"'.*text'.*not a journal of Optuna, or it is damaged"):
        search.run(lambda trial: 0.0, search.Settings(["loss"], journal=tmp_path / "text"))
    (tmp_path / "file").write_text("")
    with pytest.raises(linnet.FileError, match="cannot be written"):
        search.run(lambda trial: 0.0, search.Settings(["loss"], journal=tmp_path / "file" / "study.journal"))
