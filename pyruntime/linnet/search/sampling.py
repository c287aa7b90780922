"""A sampler whose draws depend on the seed, the number of the trial, the parameter and the finished trials, and on nothing
else. Optuna's samplers draw from one stream of random numbers, which a resumed process would begin anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from linnet.search.needed import optuna
from linnet.search.settings import Settings, seed_of


def sampler_of(settings: Settings) -> Any:
    """The sampler of a study."""
    kinds = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
    kind = kinds.get(settings.sampler) if isinstance(settings.sampler, str) else None
    if kind is not None:
        return Repeatable(lambda seed: kind(seed=seed), settings.seed)
    assert callable(settings.sampler)
    return Repeatable(settings.sampler, settings.seed)


class Repeatable(optuna.samplers.BaseSampler):  # type: ignore[misc]
    """make: makes a sampler from a seed. Each draw asks a new one."""

    def __init__(self, make: Callable[[int], Any], seed: int) -> None:
        self._make, self._seed = make, seed

    def _of(self, trial: Any, what: str) -> Any:
        return self._make(seed_of(self._seed, trial.number, what))

    def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
        return self._of(trial, "").infer_relative_search_space(study, trial)

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> Any:
        return self._of(trial, "").sample_relative(study, trial, search_space)

    def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
        sampler = self._of(trial, param_name)
        return sampler.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Any, trial: Any) -> None:
        self._of(trial, "").before_trial(study, trial)

    def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
        self._of(trial, "").after_trial(study, trial, state, values)
