"""Test samples on which f32 is sure: four in five have a margin, as issue 34 asks of the classifiers.
Only f32 decides; what quantized networks answer has no influence."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import linnet
from linnet._fetch import write_atomic
from tests.accuracy import metrics
from tests.accuracy.entry import Array, Outputs, Sample, digest
from tests.accuracy.files import results_dir


def values(path: Path, inputs: Sequence[Sample], tag: str, of: Callable[[Outputs], float]) -> Array:
    """What `of` finds in f32's outputs for each input, from the cache if it is there; `tag` names `of`."""
    key = hashlib.sha256(path.read_bytes() + f"{digest(inputs)} {tag}".encode()).hexdigest()[:24]
    file = results_dir() / "margins" / f"{key}.json"
    if not file.is_file():
        shapes = {name: value.shape for name, value in inputs[0][0].items()}
        graph = (linnet.from_tflite if path.suffix == ".tflite" else linnet.from_onnx)(path, input_shapes=shapes)
        session = linnet.Session(graph, threads=2)
        found = [of(session.run(sample[0])) for sample in inputs]
        write_atomic(file, json.dumps(found).encode())
    return np.array(json.loads(file.read_text()))


def chosen(margins: Array, count: int) -> Array:
    """The numbers of at most `count` samples in their order, of which at least four in five have a margin."""
    sure, unsure = np.flatnonzero(margins >= metrics.MARGIN), np.flatnonzero(margins < metrics.MARGIN)
    weak = min(count // 5, len(unsure), len(sure) // 4)
    return np.sort(np.concatenate([sure[: count - weak], unsure[:weak]]))


def confident(path: Path, candidates: Sequence[Sample], count: int, logits: bool) -> list[Sample]:
    """At most `count` of the candidates, which f32 classifies; it is sure of four in five."""

    def margin(outputs: Outputs) -> float:
        return float(metrics.margins(next(iter(outputs.values())), logits).min())

    return [candidates[i] for i in chosen(values(path, candidates, f"margin {logits}", margin), count)]


def seen(path: Path, candidates: Sequence[Sample], count: int, least: float, presence: str) -> list[Sample]:
    """The first `count` candidates in which f32 sees its object: its output `presence` is at least `least`."""
    found = values(path, candidates, f"presence {presence}", lambda o: float(o[presence].max()))
    return [candidates[i] for i in np.flatnonzero(found >= least)[:count]]
