"""Interprets outputs as classes with labels, boxes or text. The metadata that linnet.preprocess wrote into the model
says how. runtime_c/tools/results.c does the same for linnet-run."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.file.atomic import write_atomic
from linnet.preprocess._edit import io_key, labels_key, parse_io
from linnet.session.model import Model

Arrays = Mapping[str, npt.NDArray[Any]]


class Described:
    """What a model's metadata says about one signature's inputs and outputs."""

    def __init__(self, model: Model, signature: str = "infer") -> None:
        self.model, self.signature = model, signature

    def about(self, name: str) -> tuple[str, dict[str, str]] | None:
        """(kind, {key: value}) of an input or output, or None if the metadata does not describe it."""
        return parse_io(self.model.metadata(io_key(self.signature, name)) or "")

    def labels(self, name: str) -> list[str]:
        """The labels of an output; empty if it has none."""
        text = self.model.metadata(labels_key(self.signature, name))
        return text.split("\n") if text else []

    def found(self, outputs: Arrays) -> dict[str, list[dict[str, Any]]]:
        """Rows for display, for each output that the metadata describes. A row has {"score", "label"} for classes, also
        "x0", "y0", "x1", "y1" for boxes, and {"text"} for text."""
        made: dict[str, list[dict[str, Any]]] = {}
        for name, value in outputs.items():
            about = self.about(name)
            if about is None:
                continue
            kind, words = about
            if kind == "classes" and words.get("scores") in outputs:
                scores = outputs[words["scores"]].reshape(-1)
                made[name] = [
                    {"score": float(s), "label": self._label(name, int(c))}
                    for s, c in zip(scores, value.reshape(-1), strict=True)
                ]
            elif kind == "boxes":
                made[name] = self._boxes(value, words, outputs)
            elif kind == "text":
                labels = self.labels(name)
                made[name] = [{"text": "".join(labels[int(i)] for i in np.ravel(value) if 0 <= i < len(labels))}]
        return made

    def save_pictures(self, outputs: Arrays, paths: Mapping[str, Path]) -> None:
        """Writes mask outputs as grey PNG files if Pillow is installed. Raises FileError if that fails."""
        for name, path in paths.items():
            about = self.about(name)
            if about is not None and about[0] == "mask" and importlib.util.find_spec("PIL") is not None:
                from PIL import Image

                content = io.BytesIO()
                Image.fromarray(outputs[name]).save(content, "PNG")
                write_atomic(path, iter([content.getvalue()]))

    def _label(self, name: str, index: int) -> str:
        labels = self.labels(name)
        return labels[index] if 0 <= index < len(labels) and labels[index] else f"class {index}"

    def _boxes(self, boxes: npt.NDArray[Any], words: dict[str, str], outputs: Arrays) -> list[dict[str, Any]]:
        rows = []
        for i, box in enumerate(boxes):
            row: dict[str, Any] = {}
            if words.get("scores") in outputs:
                row["score"] = float(outputs[words["scores"]][i])
            row.update(zip(("x0", "y0", "x1", "y1"), map(float, box), strict=True))
            if words.get("classes") in outputs:
                row["label"] = self._label(words["classes"], int(outputs[words["classes"]][i]))
            rows.append(row)
        return rows
