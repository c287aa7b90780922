"""Which kernels could run each step of a plan, which times the cost model predicts for them, and why other kernels
cannot run it."""

from __future__ import annotations

import dataclasses
from typing import Any

from linnet.clib.errors import GraphError
from linnet.clib.ffi import ffi
from linnet.clib.library import library, new_struct
from linnet.session.model import string_of
from linnet.session.planned import info_of, steps_of
from linnet.session.step import Step

_UNSUPPORTED = 301


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A kernel of a step's op. cost_ns: the modelled time; 0 if the kernel cannot run the step. tuned: whether the
    tuning file chose it. why: why the kernel cannot run the step, "" if it can."""

    kernel: str
    cost_ns: float
    chosen: bool
    tuned: bool
    reference: bool
    why: str


@dataclasses.dataclass(frozen=True)
class Choice:
    """A step and the kernels of its op, in the order of the library's list, best first. key: names the step's call in a
    tuning file; steps with the same key have the same candidates. Transfers, loops, branches and steps of devices have
    no candidates."""

    step: Step
    key: str
    candidates: list[Candidate]


def choices_of(plan: Any) -> list[Choice]:
    """All steps of a plan that has no session yet. Raises GraphError if the library was built without this function."""
    return [Choice(step, key_of(plan, i), _candidates(plan, i)) for i, step in enumerate(steps_of(plan, None))]


def keys_of(plan: Any) -> list[str]:
    return [key_of(plan, i) for i in range(info_of(plan).steps)]


def key_of(plan: Any, step: int) -> str:
    """The key of a step's call in tuning files; "" if the step has no kernel."""
    lib = library()
    length = lib.linnet_plan_get_key(plan, step, ffi.NULL, 0)
    text = ffi.new("char[]", length + 1)
    lib.linnet_plan_get_key(plan, step, text, length + 1)
    return string_of(text)


def _candidates(plan: Any, step: int) -> list[Candidate]:
    lib, info, found = library(), new_struct("linnet_plan_candidate"), list[Candidate]()
    while not (code := lib.linnet_plan_get_candidate(plan, step, len(found), info)):
        found.append(
            Candidate(
                string_of(info.kernel), info.cost_ns, bool(info.chosen), bool(info.tuned), bool(info.reference),
                string_of(info.why),
            )
        )  # fmt: skip
    if code == _UNSUPPORTED:
        raise GraphError(
            "this build of liblinnet does not say which kernels could run a step", code=_UNSUPPORTED,
            expected="a library built with -DLINNET_TUNING=ON", hint="build the library with this option",
        )  # fmt: skip
    return found
