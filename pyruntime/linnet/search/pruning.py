"""A callback of linnet.fit that reports a metric to a trial, and ends the trial if Optuna's pruner finds that it is worse
than the others were at the same point."""

from __future__ import annotations

import copy
from typing import Any

from linnet.clib.errors import UsageError
from linnet.report.tables import count
from linnet.search.needed import optuna
from linnet.training.callbacks import Callback, Metrics, Run, checked_mode, monitored


class Pruning(Callback):
    """Reports `monitor` after each record of `linnet.fit`, and raises optuna.TrialPruned if the trial is to be pruned.

    trial: the trial that the function of the search got. monitor: a metric of the records, val_... after a validation.
    mode: "max" or "min", the better direction of the metric; None: the direction of the study's objective.

    Raises UsageError if the study has several objectives: a model that is worse in one of them may be the best in
    another, so Optuna prunes only studies with one objective. Limits may be used beside it.
    """

    def __init__(self, trial: optuna.trial.Trial, monitor: str = "val_accuracy", mode: str | None = None) -> None:
        if len(trial.study.directions) > 1:
            raise UsageError(
                "a study with several objectives cannot be pruned", code=101, expected="one objective",
                got=f"{len(trial.study.directions)} objectives",
                hint="keep one objective, and give limits for the other figures",
            )  # fmt: skip
        upwards = trial.study.direction == optuna.study.StudyDirection.MAXIMIZE
        self.trial, self.monitor = trial, monitor
        self._sign = 1.0 if mode is None or (checked_mode(mode) == "max") == upwards else -1.0
        # A trial that is repeated after its process was killed has reported before, and Optuna keeps these values.
        known = trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values
        self._known, self._records = set(known), 0

    def on_record(self, run: Run, record: Metrics) -> None:
        value = self._sign * monitored(record, self.monitor)
        if self._records not in self._known:
            self.trial.report(value, self._records)
        self._records += 1
        if self.trial.should_prune():
            raise optuna.TrialPruned(
                f"{self.monitor} {record[self.monitor]:.4g} after {count(self._records, 'record')}"
            )


class AmongFeasible(optuna.pruners.BasePruner):  # type: ignore[misc]
    """Prunes as another pruner does that knows only the feasible trials. Large models, which are beyond a limit, would
    otherwise set a mark that the models within the limits do not reach."""

    def __init__(self, pruner: Any) -> None:
        self._pruner = pruner

    def prune(self, study: Any, trial: Any) -> bool:
        def get_trials(deepcopy: bool = True, states: Any = None) -> list[Any]:
            found = study.get_trials(deepcopy=deepcopy, states=states)
            return [each for each in found if all(excess <= 0 for excess in each.constraints.values())]

        feasible = copy.copy(study)
        feasible.get_trials = get_trials
        return bool(self._pruner.prune(feasible, trial))
