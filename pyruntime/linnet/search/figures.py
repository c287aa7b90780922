"""The figures of a trial: those that the function gives, and those that linnet measures of its model, as it is or quantized,
on this machine or on a board."""

from __future__ import annotations

import dataclasses
import math
import numbers
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from linnet.clib.errors import SyncError, UsageError, nearest
from linnet.deploy.address import target_of
from linnet.deploy.deployment import Outcome, Request, deploy
from linnet.deploy.models import random_sample
from linnet.facade import Graph
from linnet.quantization.entry import quantize
from linnet.report.report import operations
from linnet.search.boards import Pool
from linnet.search.settings import MEASURED, ON_BOARD, Settings
from linnet.session.model import Model
from linnet.session.session import Session
from linnet.training.history import History


@dataclasses.dataclass(frozen=True)
class Measurement:
    """figures: by name. board: the board that measured times, or ""."""

    figures: dict[str, float]
    board: str = ""


def figures_of(answer: object, settings: Settings, pool: Pool) -> Measurement:
    """The figures that objectives and limits name, and what else the function gives. answer: what the function returned: a
    model (Graph, History, path of a file), {figure: number}, both as a tuple, or the number of the only objective.

    Raises UsageError if a figure is missing or is not a finite number.
    """
    model, given = _parts(answer, settings)
    board = ""
    wanted = list(dict.fromkeys((*settings.directions, *settings.limits)))
    if model is not None:
        graph = _graph(model)
        if settings.dtype is not None:
            graph = _quantized(graph, settings)
        content = graph.to_bytes()
        if settings.evaluate is not None:
            given |= _evaluated(settings, content)
        measured, board = _measured(content, [name for name in wanted if name not in given], settings, pool)
        given |= measured
    for name in wanted:
        if name not in given:
            own = "give it in the dictionary that the function returns"
            model_wanted = name in MEASURED and model is None
            raise UsageError(
                f"the function of the search gives no figure named {name!r}", code=102, tensor=name,
                expected="a model to measure" if model_wanted else nearest(name, [*given, *MEASURED]) or "a figure",
                got=", ".join(given) or "none", hint="return the graph too" if model_wanted else own,
            )  # fmt: skip
    return Measurement({name: _number(name, value) for name, value in given.items()}, board)


def _parts(answer: object, settings: Settings) -> tuple[Any, dict[str, Any]]:
    """The model, or None, and the figures of an answer."""
    if isinstance(answer, Mapping):
        return None, dict(answer)
    if isinstance(answer, numbers.Real) and len(settings.directions) == 1:
        return None, dict.fromkeys(settings.directions, answer)
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], Mapping):
        model, given = answer
        if isinstance(model, Graph | History | str | Path):
            return model, dict(given)
    if isinstance(answer, Graph | History | str | Path):
        return answer, {}
    raise UsageError(
        "the function of the search returned something else than a model or figures", code=101, got=repr(answer)[:80],
        expected="a graph, a History of linnet.fit or the path of a model; {figure: number}; both as a tuple; or a number if "
        "the study has one objective",
    )  # fmt: skip


def _number(name: str, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(
            f"the figure {name!r} of a trial is not a number", code=101, tensor=name, expected="a finite number",
            got=repr(value)[:80],
        )  # fmt: skip
    return int(number) if isinstance(value, numbers.Integral) else number


def _graph(model: Graph | History | str | Path) -> Graph:
    """The inference graph of a model."""
    if isinstance(model, History):
        return model.graph.freeze()
    if not isinstance(model, Graph):
        from linnet.converters.formats import load_graph

        model = load_graph(Path(model))
    return model.freeze() if model.variables else model


def _quantized(graph: Graph, settings: Settings) -> Graph:
    from linnet.quantization.sources import samples_of

    assert settings.dtype is not None
    if settings.dtype == "f32":
        return graph
    samples: Iterable[Mapping[str, Any]] | str | Path | None = settings.calibration
    if isinstance(samples, str | Path):
        samples = samples_of(graph, samples)
    elif samples is None:
        samples = [random_sample(graph.to_bytes(), "infer", {})[0]]
    return quantize(graph, samples, dtype=settings.dtype, effort=settings.effort)


def _evaluated(settings: Settings, content: bytes) -> dict[str, Any]:
    assert settings.evaluate is not None
    found = settings.evaluate(Session(content).run)
    return dict(found) if isinstance(found, Mapping) else {"accuracy": found}


def _measured(content: bytes, wanted: Sequence[str], settings: Settings, pool: Pool) -> tuple[dict[str, float], str]:
    found: dict[str, float] = {}
    if "bytes" in wanted:
        found["bytes"] = len(content)
    board = ""
    if any(name in ON_BOARD for name in wanted) or ("memory" in wanted and pool.addresses):
        result, board = _on_board(content, settings, pool)
        found |= {"ms": result["median_ms"], "p95_ms": result["p95_ms"], "memory": result["memory"]["total"]}
    if "macs" in wanted or ("memory" in wanted and not board):
        model = Model(content)
        feeds = random_sample(content, "infer", {})[0]
        shapes = {name: value.shape for name, value in feeds.items()}
        if "macs" in wanted:
            plain = Session(model, "infer", input_shapes=shapes, isa_max="scalar", threads=1)
            found["macs"] = sum(row.macs for row in operations(plain.steps))
        if "memory" in wanted and not board:
            found["memory"] = Session(model, "infer", input_shapes=shapes, threads=settings.threads).memory["total"]
    return {name: value for name, value in found.items() if name in wanted}, board


def _on_board(content: bytes, settings: Settings, pool: Pool) -> tuple[dict[str, Any], str]:
    """What linnet-bench says on a free board, and the board. A board that does not answer is left out."""
    if not pool.addresses:
        raise UsageError(
            "the objective or limit in milliseconds needs a board", code=105, tensor="boards",
            expected="addresses as linnet deploy takes them", got="none",
            hint="for example boards = ['pi@raspberrypi.local'], or ['local'] for this machine",
        )  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "model.lnt")
        path.write_bytes(content)
        while True:
            with pool.board() as address:
                outcome = Outcome()
                request = Request(
                    target_of(address), path, True, False, threads=(settings.threads,), seconds=settings.seconds
                )
                try:
                    deploy(request, outcome, lambda line: None)
                    return outcome.results[0], address
                except SyncError as error:
                    pool.lose(address, error)
