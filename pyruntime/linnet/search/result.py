"""What a search has found: a row for each trial, and the best of them, or the Pareto front of several objectives."""

from __future__ import annotations

import dataclasses
from typing import Any

from linnet.search.journal import Opened
from linnet.search.needed import optuna
from linnet.search.settings import Settings


@dataclasses.dataclass(frozen=True)
class Row:
    """A trial. state: complete, infeasible (beyond a limit), pruned, failed or running. beyond: the figures that are beyond
    their limits. front: whether it is the best, or on the Pareto front. board: the board that measured times, or "". error:
    why a trial failed, or was pruned."""

    number: int
    state: str
    params: dict[str, Any]
    figures: dict[str, float]
    beyond: list[str]
    front: bool
    board: str
    error: str


@dataclasses.dataclass(frozen=True)
class Found:
    """The result of a search. study: the study of Optuna, for its own reports."""

    settings: Settings
    rows: list[Row]
    study: Any = dataclasses.field(repr=False)

    @property
    def front(self) -> list[Row]:
        """The Pareto front: the feasible trials that no other feasible trial surpasses in all objectives. With one
        objective, the best trial. Sorted by the first objective, the best first."""
        name, direction = next(iter(self.settings.directions.items()))
        sign = -1 if direction == "maximize" else 1
        return sorted((row for row in self.rows if row.front), key=lambda row: (sign * row.figures[name], row.number))

    @property
    def best(self) -> Row | None:
        """The first trial of `front`, or None if no trial is feasible."""
        return next(iter(self.front), None)

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        settings = self.settings
        return {
            "objectives": settings.directions, "limits": dict(settings.limits), "seed": settings.seed,
            "trials": [dataclasses.asdict(row) for row in self.rows], "front": [row.number for row in self.front],
        }  # fmt: skip


def found_of(opened: Opened) -> Found:
    """The result of a study as it is now."""
    study, settings = opened.study, opened.settings
    if len(settings.directions) == 1:
        try:
            best = {study.best_trial.number}
        except ValueError:  # no trial is complete and feasible
            best = set()
    else:
        best = {trial.number for trial in study.best_trials}
    return Found(settings, [_row(trial, settings, trial.number in best) for trial in opened.trials()], study)


def _row(trial: Any, settings: Settings, front: bool) -> Row:
    states = optuna.trial.TrialState
    words = {states.COMPLETE: "complete", states.PRUNED: "pruned", states.FAIL: "failed"}
    figures = dict(trial.user_attrs.get("figures", {}))
    beyond = [name for name in settings.limits if name in figures and settings.excess(name, figures[name]) > 0]
    state = words.get(trial.state, "running")
    if state == "complete" and beyond:
        state = "infeasible"
    about = trial.user_attrs.get("board", ""), trial.user_attrs.get("error", "")
    return Row(trial.number, state, dict(trial.params), figures, beyond, front, *about)
