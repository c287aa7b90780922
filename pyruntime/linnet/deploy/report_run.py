"""Measures a machine for `linnet report`: several models in several dtypes, in one connection and one folder."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import platform
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from linnet.clib.errors import DeviceError
from linnet.deploy import report_file, standard_models, tools
from linnet.deploy.connection import Leftover, connected, opened
from linnet.deploy.deployment import measure
from linnet.deploy.folder import Folder
from linnet.deploy.machine import Machine, machine_of
from linnet.deploy.models import DTYPES, Models, Variant, make, own_dtype, random_sample
from linnet.deploy.target import Target
from linnet.deploy.tool_runs import try_tool
from linnet.deploy.verify import compare, run_all, run_here, send_sample
from linnet.report.tables import count

TOOLS: Final = ("linnet-bench", "linnet-run")
_BESIDES: Final = 1.5  # seconds that a measurement takes besides its runs, about, on a Raspberry Pi 4
_CHECK: Final = 3.0  # and seconds that a comparison takes


@dataclasses.dataclass
class Request:
    """The settings of a report. models: names of standard models, and paths. dtypes, threads: () for the defaults."""

    target: Target
    models: Sequence[str | Path]
    dtypes: Sequence[str] = ()
    threads: Sequence[int] = ()
    seconds: float = 3.0
    shapes: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    trust_pickle: bool = False


@dataclasses.dataclass
class Found(Leftover):
    """The report so far. When `rows` is complete, the file can be written. bad: the results that differed, in words."""

    machine: dict[str, Any] = dataclasses.field(default_factory=dict)
    models: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    verified: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    bad: list[str] = dataclasses.field(default_factory=list)
    version: str = ""

    def report(self, request: Request) -> dict[str, Any]:
        """The content of the file, after the same checks that a reader makes."""
        return report_file.checked(
            {
                "format": report_file.FORMAT, "linnet": self.version,
                "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(), "target": request.target.kind,
                "seconds": request.seconds, "machine": self.machine, "models": self.models, "verified": self.verified,
                "rows": self.rows,
            },
            "the report of this run",
        )  # fmt: skip


@dataclasses.dataclass
class _Subject:
    name: str
    models: Models
    floats: Variant


def measure_all(request: Request, found: Found, show: Callable[[str], None]) -> None:
    """Measures everything. Fills in `found` on the way, so that after an error it shows what was measured. show: called
    with lines of progress. Raises whatever `deployment.deploy` raises, with one exception: different results are noted
    in `found` and are not an error."""
    target = request.target
    with connected(target, show):
        machine = machine_of(target)
        show(f"{target.name}: {machine.words}")
        subjects = []
        with target.held(), target.interrupts.at_once():
            found_tools = {name: tools.find(machine.architecture, name, target.own_tools, show) for name in TOOLS}
            files = {name: path.read_bytes() for name, path in found_tools.items()}
            for i, model in enumerate(request.models):
                show(f"preparing {model}")
                subjects.append(_prepared(model, f"{i}-", request, found))
        variants = [variant for subject in subjects for variant in subject.models.variants]
        files |= {variant.file: variant.content for variant in variants}
        samples = sum(2 * value.nbytes for subject in subjects for value in subject.models.sample.values())
        with opened(target, files, samples, found, show) as folder:
            for name in TOOLS:
                try_tool(folder, name, machine.architecture)
            each = (len(request.threads) or 2) * (request.seconds + _BESIDES) + _CHECK
            show(
                f"{count(len({v.file for v in variants}), 'model file')} to measure: about {_duration(len(variants) * each)}"
            )
            for subject in subjects:
                _verify(folder, subject, found, show)
                for variant in subject.models.variants:
                    _bench(request, folder, machine, subject, variant, found, show)
            target.interrupts.check()


def _prepared(model: str | Path, prefix: str, request: Request, found: Found) -> _Subject:
    from linnet.converters.formats import load_graph
    from linnet.converters.recognition import is_linnet
    from linnet.quantization.entry import quantize
    from linnet.report.report import operations
    from linnet.session.model import Model
    from linnet.session.session import Session

    standard = isinstance(model, str)
    shapes = {} if standard else request.shapes
    if isinstance(model, str):
        graph = standard_models.MODELS[model]()
        content, name = graph.to_bytes(), model
    else:
        linnet_file = is_linnet(model)
        graph = load_graph(model, None if linnet_file else shapes or None, trust_pickle=request.trust_pickle)
        content = model.read_bytes() if linnet_file else graph.to_bytes()
        name = report_file.plain(model.stem, 60) or "model"
    while any(known["name"] == name for known in found.models):
        name += "+"  # two files of one name in two folders
    own = own_dtype(graph)
    dtypes = (request.dtypes or DTYPES) if own == "f32" else (own,)
    sample, *_ = random_sample(content, "infer", shapes)
    models = make(
        graph, content, dtypes, lambda dtype: quantize(graph, [sample], dtype=dtype, effort="fast"), None, shapes
    )
    for variant in models.variants:
        variant.prefix = prefix
    floats = models.reference or models.variants[0]
    timed, *_ = random_sample(content, models.timed, shapes)
    session = Session(
        Model(content), models.timed, input_shapes={n: v.shape for n, v in timed.items()}, isa_max="scalar"
    )
    macs = sum(row.macs for row in operations(session.steps))
    digest = hashlib.sha256(floats.content).hexdigest()
    found.models.append({"name": name, "sha256": digest, "macs": macs, "standard": standard})
    return _Subject(name, models, floats)


def _verify(folder: Folder, subject: _Subject, found: Found, show: Callable[[str], None]) -> None:
    """Compares with scalar kernels on the host. If the host is also the target, fast kernels would be compared with
    themselves."""
    models, interrupts = subject.models, folder.target.interrupts
    words = send_sample(folder, models.sample)
    for variant, there in run_all(folder, models, words, lambda line: show(f"{subject.name}, {line}")):
        with interrupts.at_once():
            rows = compare(variant, models, there, run_here(variant, models.sample, "scalar"), None)
        worst = max(row.worst for row in rows)
        found.verified.append({
            "model": subject.name, "dtype": variant.dtype, "same_bits": all(row.equal for row in rows),
            "worst": worst if worst < 1e30 else None, "allowed": max(row.tolerance for row in rows),
        })  # fmt: skip
        found.bad += [
            f"the results of {subject.name} in {variant.dtype} differ from those of scalar kernels by {row.worst:.3g} of the "
            f"range of {row.output}, and {row.tolerance:g} is allowed"
            for row in rows
            if not row.good
        ]


def _bench(
    request: Request, folder: Folder, machine: Machine, subject: _Subject, variant: Variant, found: Found,
    show: Callable[[str], None],
) -> None:  # fmt: skip
    """By default, measures on the cores of the largest cluster, and then on one thread."""
    wanted: list[int | None] = [*request.threads] or [None, 1]
    first, done = len(found.rows), set[int]()
    for threads in wanted:
        if threads in done:
            continue
        what = f"{subject.name}, {variant.dtype} on {'all cores' if threads is None else count(threads, 'thread')}"
        show(f"{what}: measuring for {request.seconds:g} s")
        result = measure(folder, subject.models, variant, request.seconds, threads, what)
        emulated = bool(folder.target.prefix)
        try:
            row = _row(result, subject.name, emulated)
            if not found.machine:
                found.machine, found.version = _machine(result, machine, emulated), result["version"]
        except (KeyError, TypeError) as error:
            raise DeviceError(
                f"linnet-bench on {folder.target.name} does not report a required field", code=501, tensor=what,
                expected=f"the field {error}", hint="use tools of this version of linnet",
            ) from None  # fmt: skip
        if row["threads"] not in done:
            found.rows.append(row)
        done.add(row["threads"])
    found.rows[first:] = sorted(found.rows[first:], key=lambda row: int(row["threads"]))


def _row(result: dict[str, Any], name: str, emulated: bool) -> dict[str, Any]:
    return {
        "model": name, "dtype": result["dtype"], "threads": result["threads"], "median_ms": result["median_ms"],
        "p95_ms": result["p95_ms"], "min_ms": result["min_ms"], "runs": result["runs"],
        "plan_bytes": result["memory"]["total"], "peak_rss": result["peak_rss"], "file_bytes": result["file_bytes"],
        "before": _state(result["before"], emulated), "after": _state(result["after"], emulated),
    }  # fmt: skip


def _machine(result: dict[str, Any], machine: Machine, emulated: bool) -> dict[str, Any]:
    """The facts from linnet-bench without anything that could identify the owner. The release name of a self-compiled
    Linux kernel may end with the name of a host, so only its numbers are taken."""
    facts = result["machine"]
    system = re.match(r"(\S+) (\d+(?:\.\d+)*)?", facts["system"])
    kernel = f"{system[1]} {system[2] or ''}".strip() if system else platform.system()
    return {
        "name": None if emulated else report_file.plain(facts["name"]),
        "cpu": report_file.plain(machine.cpu if emulated else facts["cpu"]), "cores": facts["cores"], "ram": facts["ram"],
        "system": f"{report_file.plain(kernel) or 'unknown'} {report_file.plain(machine.machine) or ''}".strip(),
        "architecture": machine.architecture, "isa": result["isa"], "virtual": machine.virtual,
    }  # fmt: skip


def _state(state: dict[str, Any], emulated: bool) -> dict[str, Any]:
    """The state of the machine. The clock is the fastest core's. An emulated CPU has neither clock nor
    temperature."""
    clocks = [mhz for mhz in state["mhz"] if mhz]
    if emulated:
        return {"celsius": None, "mhz": None, "throttled": None}
    return {"celsius": state["celsius"], "mhz": max(clocks, default=None), "throttled": state["throttled"]}


def _duration(seconds: float) -> str:
    return count(max(1, round(seconds)), "second") if seconds < 90 else count(round(seconds / 60), "minute")
