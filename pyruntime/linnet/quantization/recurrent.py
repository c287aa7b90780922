"""How recurrent layers store their weights in a quantized model: in 8 bits, in a half-width float, or in f32. The layers
compute in f32 in any case. The integers of their states are made at run time and need no calibration."""

from __future__ import annotations

import numpy as np

from linnet.ir.dtypes import numpy_dtype, quantization_of_rows
from linnet.ir.function import Function, Node, Tensor
from linnet.quantization.rounding import Rounding
from linnet.quantization.scheme import HALVES, fits_half


def scheme_of(node: Node, wanted: str) -> str:
    """How a recurrent layer stores its weights: "w8", "f16", "bf16", or "" for f32. wanted: a word of the table. With 16-bit
    integers, f16 is as small and more precise. Weights that training changes stay f32."""
    w = node.inputs[1]
    if w is None or w.data is None or w.dtype != "f32" or w.data.ndim != 3 or not np.isfinite(w.data).all():
        return ""
    if wanted in ("i8", "w4") or wanted.startswith("w8"):
        return "w8"
    wanted = "f16" if wanted in ("i16", "w16a16", "w16") else wanted
    return wanted if wanted in HALVES and fits_half(wanted, float(w.data.min()), float(w.data.max())) else ""


def stored_weights(function: Function, node: Node, scheme: str, rounding: Rounding | None) -> Tensor:
    """The weights of a node in a function, stored as `scheme_of` decided: 8 bits with a scale per row, or a half-width
    float, which a node widens when the graph is planned. rounding: None rounds to the nearest integer."""
    w = node.inputs[1]
    assert w is not None and w.data is not None
    if scheme != "w8":
        return widened(function, function.constant(w.data.astype(numpy_dtype(scheme)), w.name))
    rows, hidden = w.data.shape[1:]
    resets = node.attributes.get("kind") == "gru" and not node.attributes.get("linear_before_reset")
    known = 2 * hidden if resets else rows  # the other rows multiply the state after the reset gate
    values, scale = (rounding or Rounding({})).rows_of(node, known if rounding else 0)
    return function.constant(values, w.name, quantization=quantization_of_rows(scale, hidden))


def widened(function: Function, half: Tensor) -> Tensor:
    """A constant of half-width floats as f32. It is widened when the graph is planned."""
    return function.emit("cast", [half], {"dtype": "f32"}, 1, f"{half.name}/f32", fold=False)[0]
