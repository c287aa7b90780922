"""The results of the conformance check: CheckReport, and the lines and rows that `linnet check-device` prints."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

STATES = ("agrees", "differs", "failed", "refused", "no step")


@dataclasses.dataclass
class Result:
    """One case. status: "agrees", "differs", "failed" (a call failed), "refused" (the device did not take the step) or
    "no step" (the planner needs none, as for a reshape). about: shapes and attributes. why: what differs or failed, or why
    the step is on the CPU. worst: the largest difference; for floats, it is divided by the largest result. where: index
    of a result that differs most. kernel: the name that the device gave its kernel."""

    id: str
    op: str
    dtype: str
    about: str
    status: str
    why: str = ""
    worst: float = 0.0
    where: tuple[int, ...] = ()
    kernel: str = ""

    @property
    def bad(self) -> bool:
        return self.status in ("differs", "failed")


@dataclasses.dataclass(frozen=True)
class Finding:
    """One check of the device's interface. status: "passed", "failed" or "skipped"."""

    name: str
    status: str
    why: str = ""


@dataclasses.dataclass
class CheckReport:
    """Returned by linnet.check_device. device: the device's name in plans. given: the name by which it was opened.
    left_out: how many cases were not run because `seconds` had passed."""

    device: str
    given: str
    results: list[Result]
    findings: list[Finding]
    seconds: float = 0.0
    left_out: int = 0

    @property
    def failures(self) -> list[Result]:
        """Cases that differ from the CPU or fail."""
        return [result for result in self.results if result.bad]

    @property
    def ok(self) -> bool:
        """Whether no case differs and nothing failed. A device may refuse any step."""
        return not self.failures and all(finding.status != "failed" for finding in self.findings)

    @property
    def refusals(self) -> dict[tuple[str, str, str], list[Result]]:
        """Refused cases by (op, dtype, why)."""
        found: dict[tuple[str, str, str], list[Result]] = {}
        for result in self.results:
            if result.status == "refused":
                found.setdefault((result.op, result.dtype, result.why), []).append(result)
        return found

    def count(self, status: str) -> int:
        """Number of cases with this status."""
        return sum(result.status == status for result in self.results)

    def by_op(self) -> dict[str, Counter[str]]:
        """For each op, how many cases have each status."""
        found: dict[str, Counter[str]] = {}
        for result in self.results:
            found.setdefault(result.op, Counter())[result.status] += 1
        return found

    def worst(self, op: str) -> tuple[float, float]:
        """Two numbers: the largest difference of floats, divided by the largest result; and the largest difference of
        integers."""
        ran = [r for r in self.results if r.op == op and r.status in ("agrees", "differs")]
        floats = [r.worst for r in ran if r.dtype in ("f32", "f16", "bf16")]
        return max(floats, default=0.0), max(
            (r.worst for r in ran if r.dtype not in ("f32", "f16", "bf16")), default=0.0
        )

    def how(self, result: Result) -> str:
        """The command that runs a case alone."""
        return f"linnet check-device {self.given} --case {result.id}"

    @property
    def summary(self) -> str:
        """The last line of the command, in plain words."""
        ran = self.count("agrees") + self.count("differs") + self.count("failed")
        left = f"; {self.left_out} cases were left out because the time was over" if self.left_out else ""
        if not ran and self.ok:
            return f"{self.device} took none of the {len(self.results)} cases, so nothing was compared{left}"
        bad = len(self.failures)
        checks = [finding for finding in self.findings if finding.status == "failed"]
        text = f"{self.device} ran {ran} of {len(self.results)} cases"
        text += f" and {bad} of them differ or fail" if bad else " and all of them agree with the CPU"
        if checks:
            text += f"; {len(checks)} of {len(self.findings)} checks of its interface failed"
        return text + left

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "device": self.device,
            "ok": self.ok,
            "summary": self.summary,
            "seconds": round(self.seconds, 3),
            "left_out": self.left_out,
            "ops": {op: dict(counts) for op, counts in self.by_op().items()},
            "cases": [_case(result) for result in self.results],
            "refused": [
                {"op": op, "dtype": dtype, "why": why, "cases": len(cases), "example": cases[0].id}
                for (op, dtype, why), cases in self.refusals.items()
            ],
            "failures": [{**_case(result), "reproduce": self.how(result)} for result in self.failures],
            "interface": [dataclasses.asdict(finding) for finding in self.findings],
        }


def _case(result: Result) -> dict[str, Any]:
    made = dataclasses.asdict(result)
    made["where"] = list(result.where)
    made["worst"] = result.worst if result.worst < float("inf") else None
    return made
