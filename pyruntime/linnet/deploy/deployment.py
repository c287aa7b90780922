"""One deployment, from the connection to the removal of what was sent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from linnet.deploy import tools
from linnet.deploy.connection import Leftover, connected, opened
from linnet.deploy.folder import Folder
from linnet.deploy.machine import Machine, machine_of
from linnet.deploy.models import SUMS, Models, Source, Variant, prepare
from linnet.deploy.target import Target
from linnet.deploy.tool_runs import result_of, try_tool, words_of
from linnet.deploy.verify import Compared, compare, difference, run_all, run_here, send_sample
from linnet.report.tables import count


@dataclasses.dataclass
class Request:
    """The settings of a deployment. dtypes, threads: () for the defaults."""

    target: Target
    model: Path
    bench: bool
    verify: bool
    dtypes: Sequence[str] = ()
    threads: Sequence[int] = ()
    seconds: float = 2.0
    shapes: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    source: Source = dataclasses.field(default_factory=Source)
    keep: bool = False
    progress: bool = False


@dataclasses.dataclass
class Outcome(Leftover):
    """The results of a deployment so far. timed: the signature that was timed. kept: the folder that is kept at the
    user's request. commands: the commands to run in this folder."""

    machine: Machine | None = None
    files: dict[str, int] = dataclasses.field(default_factory=dict)
    results: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    compared: list[Compared] = dataclasses.field(default_factory=list)
    drawn: bool = False
    timed: str = "infer"
    kept: str = ""
    commands: list[str] = dataclasses.field(default_factory=list)


def deploy(request: Request, outcome: Outcome, show: Callable[[str], None]) -> None:
    """Runs the deployment. Fills in `outcome` on the way, so that after an error it shows what was done. show: called
    with lines of progress.

    Raises Interrupted after SIGINT or SIGTERM; UsageError, FileError and ConversionError about the model; SyncError
    about the connection; DeviceError if a tool fails or results differ. In each case nothing is left on the target,
    unless outcome.left names a folder.
    """
    target = request.target
    with connected(target, show):
        outcome.machine = machine = machine_of(target)
        show(f"{target.name}: {machine.words}")
        wanted = [name for name, on in (("linnet-bench", request.bench), ("linnet-run", request.verify)) if on]
        with target.held(), target.interrupts.at_once():
            found = {name: tools.find(machine.architecture, name, target.own_tools, show) for name in wanted}
            show(f"preparing {request.model}")
            models = prepare(
                request.model, request.dtypes, request.shapes, request.source, request.progress, request.verify
            )
            for name, shape in models.assumed.items():
                show(
                    f"the sample is a picture of {shape[1]}x{shape[0]} pixels; --shape {name}=H,W,{shape[2]} sets another size"
                )
            files = {name: path.read_bytes() for name, path in found.items()}
            files |= {variant.file: variant.content for variant in models.variants}
        outcome.files = {name: len(data) for name, data in files.items()}
        outcome.drawn, outcome.timed = models.drawn, models.timed
        with opened(target, files, sum(2 * value.nbytes for value in models.sample.values()), outcome, show) as folder:
            for name in wanted:
                try_tool(folder, name, machine.architecture)
            if request.verify:
                _verify(folder, models, outcome, show)
            if request.bench:
                _bench(request, folder, models, outcome, show)
            target.interrupts.check()
            folder.keep = request.keep
        if request.keep and not outcome.left:
            outcome.kept = folder.path
            outcome.commands = _commands(request, folder, models)


def _verify(folder: Folder, models: Models, outcome: Outcome, show: Callable[[str], None]) -> None:
    """Compares all dtypes, and then raises DeviceError if one differs."""
    interrupts = folder.target.interrupts
    words = send_sample(folder, models.sample)
    with interrupts.at_once():
        reference = None if models.reference is None else run_here(models.reference, models.sample)
    for variant, there in run_all(folder, models, words, show):
        with interrupts.at_once():
            same = reference is not None and variant is models.reference
            here = reference if same and reference is not None else run_here(variant, models.sample)
            outcome.compared += compare(variant, models, there, here, reference)
    if (error := difference(outcome.compared)) is not None:
        raise error


def _bench(request: Request, folder: Folder, models: Models, outcome: Outcome, show: Callable[[str], None]) -> None:
    """By default, measures twice: on one thread, and on the tool's own number of threads, which is the number of cores
    in the largest cluster."""
    if models.timed != "infer":
        show(f"the times are those of the signature {models.timed}: the model without the steps that prepare a picture")
    kernels: object = None
    for variant in list(models.variants):
        first = _measure(request, folder, models, variant, show, request.threads[0] if request.threads else None)
        before, kernels = kernels, first.pop("kernels")
        if variant.dtype == SUMS and kernels == before:
            models.leave_out(variant, show)
            continue
        outcome.results.append(first)
        for number in request.threads[1:] or ([] if request.threads or first["threads"] == 1 else [1]):
            again = _measure(request, folder, models, variant, show, number)
            del again["kernels"]
            outcome.results.append(again)


def _measure(
    request: Request, folder: Folder, models: Models, variant: Variant, show: Callable[[str], None], threads: int | None
) -> dict[str, Any]:
    what = f"{variant.dtype} on {'all cores' if threads is None else count(threads, 'thread')}"
    show(f"{what}: measuring for {request.seconds:g} s")
    return measure(folder, models, variant, request.seconds, threads, what)


def measure(
    folder: Folder, models: Models, variant: Variant, seconds: float, threads: int | None, what: str
) -> dict[str, Any]:
    """Runs linnet-bench. threads: None for the cores of the largest cluster. what: words for messages. The result has
    the names of the steps' kernels as "kernels"."""
    words = [
        "--seconds",
        f"{seconds:g}",
        *([] if threads is None else ["--threads", str(threads)]),
        *variant.options,
        *_signature(models),
    ]
    found = result_of(folder, "linnet-bench", variant.file, words, models.timed_open, what)
    found |= {"dtype": variant.dtype, "file_bytes": len(variant.content), "signature": models.timed}
    found.setdefault("threads", threads or 1)
    found["kernels"] = [op["kernel"] for op in found.pop("ops", [])]
    return found


def _signature(models: Models) -> list[str]:
    return [] if models.timed == "infer" else ["--signature", models.timed]


def _commands(request: Request, folder: Folder, models: Models) -> list[str]:
    lines = []
    for variant in models.variants:
        if request.bench:
            words = [*variant.options, *_signature(models)]
            lines.append(words_of(folder, "linnet-bench", variant.file, words, models.timed_open))
        if request.verify:
            lines.append(words_of(folder, "linnet-run", variant.file, ["--random", *variant.options], models.open))
    return [request.target.by_hand(f"cd {folder.path} && {line}") for line in lines]
