"""`python -m tests.search_script JOURNAL WHERE`: makes the trials of a study, and ends itself by SIGKILL where it is told to.
tests/test_search_resume.py starts it, also twice on one journal."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import optuna

from linnet import search

TRIALS = 14


def settings(journal: Path) -> search.Settings:
    return search.Settings({"score": "maximize"}, limits={"size": 60}, trials=TRIALS, seed=5, journal=journal)


class Ending:
    """Ends the process at a moment of trial 9: "suggested" after the first parameter, "reported" after the first report,
    "figured" when the figures are written but the trial is not told, "finished" between two trials."""

    def __init__(self, where: str) -> None:
        self.where = where

    def at(self, where: str, number: int) -> None:
        if (where, number) == (self.where, 9):
            os.kill(os.getpid(), signal.SIGKILL)

    def objective(self, trial: Any) -> dict[str, float]:
        """A score with its best at width 7 and depth 2. Trials whose reports are low are pruned."""
        width = trial.suggest_int("width", 0, 9)
        self.at("suggested", trial.number)
        depth = trial.suggest_int("depth", 0, 3)
        rate = trial.suggest_float("rate", 1e-4, 1e-1, log=True)
        score = -((width - 7) ** 2) - 3 * (depth - 2) ** 2 - rate
        known = trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values
        for step in range(3):
            if step not in known:
                trial.report(score - 3 + step, step)
            self.at("reported", trial.number)
            if trial.should_prune():
                raise optuna.TrialPruned
        return {"score": score, "size": 10 * width}


def main() -> None:
    ending = Ending(sys.argv[2])
    written = optuna.trial.Trial.set_user_attr

    def set_user_attr(trial: Any, key: str, value: Any) -> None:
        written(trial, key, value)
        if key == "figures":
            ending.at("figured", trial.number)

    optuna.trial.Trial.set_user_attr = set_user_attr
    search.run(ending.objective, settings(Path(sys.argv[1])), lambda row: ending.at("finished", row.number))


if __name__ == "__main__":
    main()
