"""From the bytes of a file to its type: the features, the network, and the thresholds of magika's own configuration.
It gives the same answers as the `magika` package in its mode HIGH_CONFIDENCE, which its command line uses."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import linnet
from linnet._fetch import fetch_member

_PACKAGE, _VERSION = "magika", "1.0.3"
_FOLDER = "magika/models/standard_v3_3"


@dataclass(frozen=True)
class FileType:
    """The type of a file: magika's label, its description, its MIME type, and the network's score in 0..1."""

    label: str
    description: str
    mime: str
    score: float


class Detector:
    """The network and its configuration, fetched at the first use. Raises `FetchError` if it cannot be fetched."""

    def __init__(self) -> None:
        def fetched(member: str) -> Path:
            return fetch_member(_PACKAGE, member, _VERSION)

        self.config: dict[str, Any] = json.loads(fetched(f"{_FOLDER}/config.min.json").read_text())
        self.known: dict[str, Any] = json.loads(fetched("magika/config/content_types_kb.min.json").read_text())
        graph = linnet.from_onnx(fetched(f"{_FOLDER}/model.onnx"), input_shapes={"bytes": (1, 2048)})
        self.session = linnet.Session(graph)

    def identify(self, path: Path) -> FileType:
        """Returns the type of a file. Reads at most its first and its last 4 KiB. Raises OSError."""
        block = self.config["block_size"]
        with path.open("rb") as file:
            first = file.read(block)
            size = file.seek(0, 2)
            file.seek(max(0, size - block))
            last = file.read(block)
        if size == 0:
            return self._type("empty", 1.0)
        if len(first.lstrip()) < self.config["min_file_size_for_dl"] or size < self.config["min_file_size_for_dl"]:
            return self._type(_few_bytes(first), 1.0)
        scores = self.session.run({"bytes": self.features(first, last)})["target_label"][0]
        label = self.config["target_labels_space"][int(scores.argmax())]
        score = float(scores.max())
        sure = score >= self.config["thresholds"].get(label, self.config["medium_confidence_threshold"])
        label = self.config["overwrite_map"].get(label, label)
        if not sure:  # only text or binary can be told apart
            label = "txt" if self.known[label]["is_text"] else "unknown"
        return self._type(label, score)

    def features(self, first: bytes, last: bytes) -> np.ndarray:
        """i32 [1,2048]: the first 1024 bytes after leading white space, then the last 1024 before trailing; 256 pads."""
        begin, end = self.config["beg_size"], self.config["end_size"]
        row = np.full(begin + end, self.config["padding_token"], np.int32)
        head, tail = first.lstrip()[:begin], last.rstrip()[-end:]
        row[: len(head)] = np.frombuffer(head, np.uint8)
        row[begin + end - len(tail) :] = np.frombuffer(tail, np.uint8)
        return row[None]

    def _type(self, label: str, score: float) -> FileType:
        about = self.known[label]
        return FileType(label, about["description"] or label, about["mime_type"] or "application/octet-stream", score)


def _few_bytes(content: bytes) -> str:
    """Returns the label of content that is too short for the network."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return "unknown"
    return "txt"
