"""The space where it is declared: parameters as tables of low, high, step and log, or of choices. They become Optuna's
distributions. What a trial function suggests itself needs no declaration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from linnet.clib.errors import UsageError, nearest
from linnet.search.needed import optuna

_KEYS: Final = ("low", "high", "step", "log", "choices")


def distributions(space: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """{name: distribution of Optuna}. Raises UsageError, which names the parameter."""
    return {name: _distribution(name, value) for name, value in space.items()}


def suggest(trial: Any, space: Mapping[str, Mapping[str, Any]]) -> None:
    """Suggests all declared parameters to a trial of Optuna. `trial.params` then has their values."""
    for name, made in distributions(space).items():
        if isinstance(made, optuna.distributions.CategoricalDistribution):
            trial.suggest_categorical(name, made.choices)
        elif isinstance(made, optuna.distributions.IntDistribution):
            trial.suggest_int(name, made.low, made.high, step=made.step, log=made.log)
        else:
            trial.suggest_float(name, made.low, made.high, step=made.step, log=made.log)


def _distribution(name: str, value: Mapping[str, Any]) -> Any:
    for key in value:
        if key not in _KEYS:
            raise _wrong(name, f"only the keys {', '.join(_KEYS)}; perhaps {nearest(key, _KEYS)}", key)
    if "choices" in value:
        choices = value["choices"]
        if len(value) > 1:
            raise _wrong(name, "choices alone, or low and high", ", ".join(value))
        if not isinstance(choices, list | tuple) or not choices:
            raise _wrong(name, "a list of choices", repr(choices))
        return optuna.distributions.CategoricalDistribution(choices)
    ends = [value.get("low"), value.get("high")]
    if any(not isinstance(end, int | float) or isinstance(end, bool) for end in ends):
        raise _wrong(name, "numbers as low and high, or choices", repr(dict(value)))
    log, step = value.get("log", False), value.get("step")
    if not isinstance(log, bool):
        raise _wrong(name, "true or false as log", repr(log))
    try:
        if all(isinstance(end, int) for end in ends) and isinstance(step, int | None):
            return optuna.distributions.IntDistribution(*ends, log=log, step=1 if step is None else step)
        return optuna.distributions.FloatDistribution(*ends, log=log, step=step)
    except (TypeError, ValueError) as error:
        raise _wrong(
            name, "low below high, a step above 0, and log only for low above 0 and without a step", str(error)
        ) from None


def _wrong(name: str, expected: str, got: str) -> UsageError:
    return UsageError(
        f"the parameter {name!r} of the space is wrong", code=101, tensor=f"space.{name}", expected=expected, got=got,
        hint='for example {"low": 8, "high": 64, "step": 8} or {"choices": [3, 5]}',
    )  # fmt: skip
