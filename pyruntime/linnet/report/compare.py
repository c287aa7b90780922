"""`linnet compare`: compares models on the same data, by size, memory, latency, accuracy, and agreement with the first
model."""

from __future__ import annotations

import dataclasses
import math
import statistics
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from linnet.clib.errors import UsageError
from linnet.converters.formats import bytes_of_model, format_of_model, load_graph
from linnet.converters.recognition import is_linnet
from linnet.ir.graph import dtype_of_graph
from linnet.ir.user_op import UserOp
from linnet.quantization.accuracy import Evaluation
from linnet.quantization.agreement import Agreement, batch_of
from linnet.quantization.calibrate import Feeds
from linnet.quantization.compared_models import Reference, Subject, matched, own_files


@dataclasses.dataclass
class Compared:
    """A model of a comparison. model: the path. bytes: the size of the file, with the files that hold an ONNX model's
    tensors. memory: bytes at run time, None if another runtime runs the model. latency_ms: the median. accuracy: the
    figures of the evaluation. agreement: for each output of the first model, the figures of `Agreement.figures`; empty
    for the first model itself."""

    model: str
    runtime: str
    dtype: str
    bytes: int
    memory: int | None
    latency_ms: float
    runs: int
    accuracy: dict[str, float]
    agreement: dict[str, dict[str, float | None]]


@dataclasses.dataclass
class Comparison:
    """The compared models, in the given order. samples: how many samples were run. remarks: remarks about the
    evaluation."""

    models: list[Compared]
    samples: int
    threads: int
    remarks: list[str]

    def to_dict(self) -> dict[str, Any]:
        """The comparison for JSON: infinities and NaN become None."""
        return finite(dataclasses.asdict(self))  # type: ignore[no-any-return]


def finite(value: Any) -> Any:
    """The value in a form for JSON: NaN and infinity are replaced, because JSON has neither."""
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def subjects_of(
    paths: Sequence[str | Path], *, threads: int | None = None, reference: bool = False,
    input_shapes: Mapping[str, Sequence[int]] | None = None, user_ops: Iterable[UserOp] = (), trust_pickle: bool = False,
) -> list[Subject]:  # fmt: skip
    """One subject for each model, in the order of `paths`. With `reference`, the subject of an ONNX or TFLite file is
    followed by another one that runs the file in ONNX Runtime or LiteRT."""
    made: list[Subject] = []
    names = _short_names(paths)
    ops = list(user_ops)
    for path, name in zip(map(Path, paths), names, strict=True):
        kind = "linnet" if is_linnet(path) else format_of_model(path)
        graph = load_graph(path, input_shapes, user_ops=ops, trust_pickle=trust_pickle)
        if "infer" not in graph.signatures:
            raise UsageError(
                "the model has no signature 'infer'", code=102, tensor=str(path), got=", ".join(graph.signatures) or "none",
                hint="compare inference models; `linnet export` makes one of a checkpoint",
            )  # fmt: skip
        made.append(Subject(graph, name, threads, ops, path if kind == "linnet" and not input_shapes else None))
        if reference and kind in ("onnx", "tflite"):
            made.append(Reference(graph, path, kind, threads))
            made[-1].name = name
    return made


def paths_of(paths: Sequence[str | Path]) -> dict[str, Path]:
    """{name of a subject: its file}."""
    return dict(zip(_short_names(paths), map(Path, paths), strict=True))


def _short_names(paths: Sequence[str | Path]) -> list[str]:
    """The names of the files, with as many folders as are needed to distinguish them."""
    parts = [Path(path).parts for path in paths]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(set(parts)):
            break
    return names


def compare(
    subjects: Sequence[Subject],
    paths: Mapping[str, str | Path],
    data: str | Path | Iterable[Feeds],
    evaluation: Evaluation | None = None,
    *,
    limit: int | None = None,
    image: str | None = None,
    seconds: float = 0.5,
    note: Callable[[str], object] = warnings.warn,
) -> Comparison:
    """Runs all models on each sample, then measures latency and accuracy.

    subjects: as `subjects_of` makes them. paths: {name of a subject: its file}. data: samples for the first model, or a
    source of them as for `samples_of`; pictures and sounds are read by each model's own steps. evaluation: see
    `linnet.quantization.accuracy`. limit: the largest number of samples. image: a recipe for models that do not take
    pictures themselves. seconds: how long each model's latency is measured. Raises UsageError if outputs have no
    counterparts, or if the data do not fit.
    """
    one, others = subjects[0], subjects[1:]
    pairs = [matched(one, other) for other in others]
    if isinstance(data, str | Path):
        each = own_files(one, data, image)
        sources = [subject.samples(data, limit, image, note=note) for subject in (subjects if each else [one])]
    else:
        sources = [data]
    sums = [{name: Agreement() for name in pair} for pair in pairs]
    count = 0
    for feeds in zip(*sources, strict=True):
        wanted, batch = one.run(feeds[0]), batch_of(feeds[0])
        for i, (other, pair) in enumerate(zip(others, pairs, strict=True)):
            got = other.run(feeds[i + 1] if len(feeds) > 1 else feeds[0])
            for mine, theirs in pair.items():
                sums[i][mine].add(wanted[mine], got[theirs], batch)
        count += 1
    if not count:
        raise UsageError("there is no sample to compare on", code=101, expected="one or more", got="none")
    made = []
    for i, subject in enumerate(subjects):
        times = subject.latency(seconds)
        found = {} if evaluation is None else evaluation.measure(subject, pairs[i - 1] if i else None)
        agreement = {name: total.figures() for name, total in sums[i - 1].items()} if i else {}
        path = Path(paths[subject.name])
        made.append(
            Compared(
                str(path), subject.runtime, dtype_of_graph(subject.graph), bytes_of_model(path), subject.memory,
                statistics.median(times), len(times), found, agreement,
            )
        )  # fmt: skip
    threads = int(one.session.plan_info["threads"])
    return Comparison(
        made, count, threads, [*_unlike(subjects), *(evaluation.remarks if evaluation is not None else ())]
    )


def _unlike(subjects: Sequence[Subject]) -> list[str]:
    """Says which models are measured together with the steps that make a picture their input, if others are not."""
    own = [subject.name for subject in subjects if subject.takes() == "image"]
    if not own or len(own) == len(subjects):
        return []
    return [
        f"memory and ms with picture steps: {', '.join(own)}",
        "memory and ms without picture steps: the other models",
    ]
