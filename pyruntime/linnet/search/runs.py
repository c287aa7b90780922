"""`run` makes the trials of a search until the study has the wanted number of them; `load` reads what it has found so
far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from linnet.clib.errors import DeviceError, Error, GraphError, ResourceError, TrainingError
from linnet.search import space
from linnet.search.boards import Pool
from linnet.search.figures import figures_of
from linnet.search.journal import Opened
from linnet.search.needed import optuna
from linnet.search.result import Found, Row, found_of
from linnet.search.settings import Settings

# These end a trial, not the search: the model of these parameters cannot be built, trained or run. Others are mistakes in
# the function or in the settings; their trial is repeated when the study is resumed.
_FAILURES = (TrainingError, GraphError, ResourceError, DeviceError)


def run(function: Callable[[Any], Any], settings: Settings, show: Callable[[Row], object] = lambda row: None) -> Found:
    """Calls a function with trials until the study has `settings.trials` of them, and returns what was found.

    function: gets an optuna.Trial, suggests parameters by it (trial.suggest_int and so on), and returns a model (a Graph, a
        History of linnet.fit, or the path of a file), {figure: number}, both as a tuple, or one number if there is one
        objective. It may raise optuna.TrialPruned (see linnet.search.Pruning). A trial in which it raises TrainingError,
        GraphError, ResourceError or DeviceError has failed, and the search goes on.
    show: called with the row of each trial that this process has finished.

    With a journal, a process that is killed loses nothing but its running trial, which the next run of the study, or
    another process that shares it, repeats with the same parameters. The trials are those of an undisturbed run if one
    process makes them, and if the function gives the same figures for the same parameters.

    Raises UsageError if settings do not fit the journal or a figure is missing; FileError about the journal; SyncError if no
    board answers; Error if all trials have failed.
    """
    opened = Opened(settings)
    pool = Pool(settings.boards, opened.folder)
    while True:
        with opened.next_trial() as trial:
            if trial is None:
                break
            _run_one(function, opened, trial, pool)
        show(found_of(opened).rows[trial.number])
    opened.clean()
    found = found_of(opened)
    if found.rows and all(row.state == "failed" for row in found.rows):
        raise Error(
            "all trials of the search have failed", got=found.rows[0].error,
            hint="correct the function or the space, and give another journal",
        )  # fmt: skip
    return found


def load(settings: Settings) -> Found:
    """What the study in a journal has found so far. Runs no trial. Raises UsageError or FileError if there is no such study."""
    return found_of(Opened(settings, create=False))


def _run_one(function: Callable[[Any], Any], opened: Opened, trial: Any, pool: Pool) -> None:
    settings, study = opened.settings, opened.study
    figures = trial.user_attrs.get("figures")  # of a process that was killed just before it told them
    try:
        if figures is None:
            space.suggest(trial, settings.space)
            figures = _measured(function, opened, trial, pool)
    except optuna.TrialPruned as reason:
        trial.set_user_attr("error", str(reason))
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        return
    except _FAILURES as error:
        trial.set_user_attr("error", str(error))
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return
    for name in settings.limits.keys() - trial.constraints.keys():
        trial.set_constraint(name, settings.excess(name, figures[name]))
    study.tell(trial, [figures[name] for name in settings.directions])


def _measured(function: Callable[[Any], Any], opened: Opened, trial: Any, pool: Pool) -> dict[str, float]:
    measured = figures_of(function(trial), opened.settings, pool)
    if measured.board:
        trial.set_user_attr("board", measured.board)
    trial.set_user_attr("figures", measured.figures)
    return measured.figures
