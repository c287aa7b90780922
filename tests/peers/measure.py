"""Runs workers: a fresh process per round, network, thread count and engine, so that engines take turns.
A case that fails once is left out from then on, and its cell says why."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.peers import convert, environments, load
from tests.peers.engines import RESTRICTED
from tests.peers.environments import Unavailable
from tests.peers.networks import Network, folder
from tests.peers.worker import clock

_TIMEOUT_S = 600
_ONEDNN = {
    "sse2": "SSE41",
    "avx2": "AVX2",
    "avx512": "AVX512_CORE",
    "avx512vnni": "AVX512_CORE_VNNI",
}  # the names in OpenVINO
_MOST_DIFFERENCE = 0.01  # as a fraction of the range, at f32
_LEAST_CORRELATION = 0.7  # at int8: a softmax over many classes has few steps of 1/256 in TFLite
_LEAST = ("min_ms", "load_ms", "cold_ms", "peak_mb")  # of rounds the least one counts; of others the median


@dataclass
class Case:
    """One engine, file and thread count: what is measured, what came out in each round, or why nothing did."""

    network: str
    engine: str
    threads: int
    file: Path | None = None
    input: Path | None = None
    reference: Path | None = None
    python: str = sys.executable
    isa_max: str | None = None
    error: str = ""
    rounds: list[dict[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.engine} on {self.network} with {self.threads} thread{'s' * (self.threads > 1)}"

    def row(self) -> dict[str, Any]:
        """The figures of all rounds: the minimum of minima, the median of medians."""
        row: dict[str, Any] = {"network": self.network, "engine": self.engine, "threads": self.threads}
        if self.error:
            return row | {"error": self.error}
        for key in self.rounds[0]:
            values = [found[key] for found in self.rounds]
            combine = {"share": min, "others": max, "difference": max, "correlation": min, "runs": sum}.get(
                key, min if key in _LEAST else statistics.median
            )
            value = combine(values)
            row[key] = value if isinstance(value, int) else float(f"{value:.4g}")
        return row


Work = Callable[[Case, float], dict[str, Any]]


def cases(
    networks: Iterable[Network], engines: Sequence[str], threads: Sequence[int], isa_max: str | None
) -> list[Case]:
    """All cases in the order of a round, with their files made. A file that cannot be made is the error of its cases."""
    found, broken = [], {}
    for engine in engines:
        if engine != "linnet":
            try:
                environments.install(engine)
            except Unavailable as error:
                broken[engine] = str(error)
    for network in networks:
        files: dict[str, Path] = {}
        errors = dict(broken)
        for engine in engines:
            try:
                if engine not in errors and isa_max and engine not in RESTRICTED:
                    raise Unavailable("cannot be kept to an instruction set")
                if engine not in errors:
                    files[engine] = convert.file_of(engine, network)
            except Unavailable as error:
                errors[engine] = str(error)
        for count in threads:
            for engine in engines:
                found.append(Case(
                    network.name, engine, count, files.get(engine), network.input(), network.reference(), python_of(engine),
                    isa_max, errors.get(engine, ""),
                ))  # fmt: skip
    return found


def python_of(engine: str) -> str:
    """The interpreter of an engine's environment; linnet's is the project's."""
    return sys.executable if engine == "linnet" else str(environments.program(engine))


def run(case: Case, seconds: float) -> dict[str, Any]:
    """What a fresh process measures. Raises Unavailable with the reason if it fails."""
    asked = {
        "engine": case.engine, "file": str(case.file), "input": str(case.input), "threads": case.threads,
        "reference": str(case.reference or ""), "isa_max": case.isa_max, "seconds": seconds,
    }  # fmt: skip
    environment = dict(os.environ, OMP_NUM_THREADS=str(case.threads), PYTHONPYCACHEPREFIX=str(folder("bytecode")))
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or the start of a process would compile what it imports
    if case.isa_max:
        environment["ONEDNN_MAX_CPU_ISA"] = _ONEDNN.get(case.isa_max, case.isa_max.upper())
    command = [case.python, "-m", "tests.peers.worker", json.dumps(asked | {"started": clock()})]
    meter = load.Meter()
    try:
        done = subprocess.run(
            command, cwd=convert.ROOT, env=environment, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"takes more than {_TIMEOUT_S} seconds") from error
    lines = [line for line in done.stdout.splitlines() if "@@" in line]
    if not lines:
        said = [line for line in done.stderr.splitlines() if line.strip()] or [""]
        raise Unavailable(f"ends with status {done.returncode}: {said[-1]}"[:300])
    found: dict[str, Any] = json.loads(lines[-1].split("@@", 1)[1]) | {"others": meter.others()}
    if "error" in found:
        raise Unavailable(found["error"])
    return found


def interleave(
    cases: Sequence[Case],
    rounds: int,
    seconds: float,
    *,
    busy: bool = False,
    work: Work = run,
    others: Callable[[], load.Load] = load.of_others,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Measures all cases, all of them in each round. Raises load.Busy on a busy machine unless `busy`: before the first case,
    and if a case gets too small a share of the processor three times in a row."""
    if not busy:
        load.refuse(others())
    tried: dict[tuple[str, str], str] = {}
    for (
        case
    ) in cases:  # not measured: writes bytecode, fills the page cache, finds what fails with any number of threads
        key = case.network, case.engine
        if key not in tried:
            _measured(case, 0.0, True, work, others)
            case.rounds.clear()
            tried[key] = case.error
        case.error = case.error or tried[key]
        if case.error:
            say(f"{case}: {case.error}")
    for number in range(rounds):
        for case in cases:
            _measured(case, seconds, busy, work, others)
            if case.rounds:
                found = case.rounds[-1]
                say(f"round {number + 1}: {case}: {found['min_ms']:.3f} ms, median {found['median_ms']:.3f}")


def _measured(case: Case, seconds: float, busy: bool, work: Work, others: Callable[[], load.Load]) -> None:
    if case.error:
        return
    found: dict[str, Any] = {}
    try:
        for _ in range(1 if busy else 3):
            found = work(case, seconds)
            _refuse_wrong(case, found)
            if not load.disturbed(found):
                break
    except Unavailable as error:
        case.error = str(error)
        case.rounds.clear()
        return
    if not busy:
        load.refuse_disturbed(str(case), found, others())
    case.rounds.append(found)


def _refuse_wrong(case: Case, found: Mapping[str, Any]) -> None:
    """Raises Unavailable if the results are those of another network, as a converter may make them."""
    part = found["difference"] / found["range"] if found.get("range") else 0.0
    if case.network.endswith("_int8"):
        if found.get("correlation", 0.0) < _LEAST_CORRELATION:
            raise Unavailable(f"gives other results: their correlation is {found.get('correlation', 0.0):.2f}")
    elif part > _MOST_DIFFERENCE:
        raise Unavailable(f"gives other results: the largest difference is {part:.2g} of the range")


def versions(engines: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    """Of each engine: version, and what its environment took to install."""
    import linnet

    found: dict[str, Mapping[str, Any]] = {}
    for engine in engines:
        if engine == "linnet":
            found[engine] = {"version": linnet.__version__}
            continue
        try:
            record = environments.install(engine)
        except Unavailable as error:
            found[engine] = {"error": str(error)}
            continue
        found[engine] = {
            "version": environments.version(engine, record),
            "seconds": record["seconds"],
            "megabytes": record["megabytes"],
        }
    return found
