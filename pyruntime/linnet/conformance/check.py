"""linnet.check_device: runs the cases on a device, compares them with the CPU, and checks the device's interface."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from linnet._generated.op_table import OPS
from linnet.clib.errors import UsageError
from linnet.conformance.case import Case
from linnet.conformance.cases import all_cases, is_quick
from linnet.conformance.interface import check_interface
from linnet.conformance.refusals import explain
from linnet.conformance.report import CheckReport, Result
from linnet.conformance.running import quiet, run_cases
from linnet.session.device import Device, load_device

_TOGETHER = 64  # cases in one graph
_OF_INTERFACE = 12  # cases on which the interface is checked
_REPEATED = 8  # most cases of one graph that are repeated because they differ
_LISTS: dict[str, Callable[[Case], bool]] = {
    "quick": is_quick,
    "usual": lambda case: case.usual,
    "all": lambda case: True,
}


def check_device(
    device: str | Path | Device,
    *,
    ops: Sequence[str] | None = None,
    seconds: float | None = None,
    cases: str = "usual",
    case: str | None = None,
) -> CheckReport:
    """Compares a device with the CPU, for every op, dtype and shape of the lists that the device can run.

    device: a device, or its name as for load_device.
    ops: names of ops (docs/ops.md); None: all of them.
    seconds: no more cases start after this time; None: all cases run.
    cases: the list of cases to run: "quick" (one dtype for most ops), "usual" (about a fifth of all cases), or "all".
    case: the id of one case, which runs alone.
    Raises FileError if there is no such device. Raises UsageError if an argument is wrong.
    """
    begun = time.monotonic()
    chosen = _chosen(ops, cases, case, seconds)
    opened = device if isinstance(device, Device) else load_device(device)
    report = CheckReport(opened.name, opened.name if isinstance(device, Device) else os.fspath(device), [], [])
    taken: list[Case] = []
    by_id: dict[str, Result] = {}
    with quiet():
        for together in _batches(chosen):
            if seconds is not None and time.monotonic() - begun >= seconds:
                report.left_out += len(together)
                continue
            results = run_cases(opened, together)
            _repeat_alone(opened, together, results)
            by_id |= {result.id: result for result in results}
            good = [c for c, result in zip(together, results, strict=True) if result.status == "agrees"]
            taken += good[:2] if len(taken) < _OF_INTERFACE else []
        if case is None:
            report.findings = check_interface(opened, taken[:_OF_INTERFACE])
    report.results = [by_id[c.id] for c in chosen if c.id in by_id]
    explain([c for c in chosen if c.id in by_id], report.results)
    report.seconds = time.monotonic() - begun
    return report


def _repeat_alone(device: Device, cases: Sequence[Case], results: Sequence[Result]) -> None:
    """Runs each case that differs once more, alone. If it then agrees, adds a note, because the command that is printed
    for the case would find nothing."""
    bad = [(case, result) for case, result in zip(cases, results, strict=True) if result.status == "differs"]
    for case, result in bad[:_REPEATED] if len(cases) > 1 else ():
        (alone,) = run_cases(device, [case])
        if not alone.bad:
            result.why += f"; alone the case agrees, so run it with the others: --ops {case.op}"


def _chosen(ops: Sequence[str] | None, which: str, case: str | None, seconds: float | None) -> list[Case]:
    if isinstance(ops, str):
        raise UsageError(
            "'ops' is a single name instead of a list",
            code=101,
            expected="a list of names of ops",
            got=repr(ops),
            hint=f"give [{ops!r}]",
        )
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0):
        raise UsageError("'seconds' is out of range", code=101, expected="a number above 0, or None", got=repr(seconds))
    cases = all_cases()
    known = dict.fromkeys(c.op for c in cases)
    for name in ops or ():
        if name not in known:
            raise UsageError(
                "the check has no cases of this op" if name in OPS else "there is no op of this name", code=102,
                expected="one of " + ", ".join(known), got=repr(name),
            )  # fmt: skip
    if case is not None:
        found = [c for c in cases if c.id == case]
        if not found:
            raise UsageError(
                "there is no case with this id", code=102, expected="OP.DTYPE.NUMBER, such as matmul.f32.0", got=repr(case),
                hint="take the id from the output of `linnet check-device`",
            )  # fmt: skip
        return found
    if which not in _LISTS:
        raise UsageError("cases is not the name of a list", code=101, expected=" or ".join(_LISTS), got=repr(which))
    wanted = _LISTS[which]
    return [c for c in cases if (ops is None or c.op in ops) and wanted(c)]


def _batches(cases: Sequence[Case]) -> Iterator[list[Case]]:
    """Batches of cases of one op and dtype, which share kernels. The first batches of all ops and dtypes come before
    the second ones."""
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.op, case.dtype), []).append(case)
    for start in range(0, max((len(group) for group in groups.values()), default=0), _TOGETHER):
        for group in groups.values():
            if group[start:]:
                yield group[start : start + _TOGETHER]
