"""One rule per TFLite op, in modules by family. `load` imports all modules, which registers the rules.
Add a new module to FAMILIES."""

from __future__ import annotations

import importlib

FAMILIES = (
    "arithmetic", "activation", "comparison", "convolution", "linear", "pooling", "movement", "indexing", "reduction",
    "quantization", "resizing", "normalization", "state", "control", "recurrent", "svdf", "segments",
    "spectral", "detection", "mediapipe", "audio", "random",
)  # fmt: skip


def load() -> None:
    for family in FAMILIES:
        importlib.import_module(f"{__name__}.{family}")
