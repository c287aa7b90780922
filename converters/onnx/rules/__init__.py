"""The rules: one module per family of ONNX ops, one function per op.
`load` imports all modules, which registers the rules."""

from __future__ import annotations

import importlib

FAMILIES = (
    "activation", "arithmetic", "attention", "contrib", "control", "convolution", "detection", "einsum", "generate",
    "indexing", "linear", "logic", "microsoft", "movement", "normalization", "pooling", "quantization", "quantized_ops",
    "random", "recurrent", "reduction", "resizing", "sampling", "sequences", "sets", "spectral",
)  # fmt: skip


def load() -> None:
    """Registers every rule; calling it again does nothing."""
    for family in FAMILIES:
        importlib.import_module(f"{__name__}.{family}")
