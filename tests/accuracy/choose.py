"""Test samples on which f32 is sure: four in five have a margin, as issue 34 asks of the classifiers.
Only f32 decides; what quantized networks answer has no influence."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import linnet
from linnet._fetch import write_atomic
from tests.accuracy import metrics
from tests.accuracy.entry import Array, Sample, digest
from tests.accuracy.files import results_dir


def _margins(path: Path, logits: bool, inputs: Sequence[Sample]) -> Array:
    """f32's margin for each input, from the cache if it is there."""
    key = hashlib.sha256(path.read_bytes() + digest(inputs).encode()).hexdigest()[:24]
    file = results_dir() / "margins" / f"{key}.json"
    if not file.is_file():
        shapes = {name: value.shape for name, value in inputs[0][0].items()}
        graph = (linnet.from_tflite if path.suffix == ".tflite" else linnet.from_onnx)(path, input_shapes=shapes)
        session = linnet.Session(graph, threads=2)
        found = [float(metrics.margins(next(iter(session.run(s[0]).values())), logits).min()) for s in inputs]
        write_atomic(file, json.dumps(found).encode())
    return np.array(json.loads(file.read_text()))


def chosen(margins: Array, count: int) -> Array:
    """The numbers of at most `count` samples in their order, of which at least four in five have a margin."""
    sure, unsure = np.flatnonzero(margins >= metrics.MARGIN), np.flatnonzero(margins < metrics.MARGIN)
    weak = min(count // 5, len(unsure), len(sure) // 4)
    return np.sort(np.concatenate([sure[: count - weak], unsure[:weak]]))


def confident(path: Path, candidates: Sequence[Sample], count: int, logits: bool) -> list[Sample]:
    """At most `count` of the candidates, which f32 classifies; it is sure of four in five."""
    return [candidates[i] for i in chosen(_margins(path, logits, candidates), count)]
