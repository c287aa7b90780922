"""How recurrent layers store their weights in a quantized model: in 8 bits, in a half-width float, or in f32. The layers
compute in f32 in any case. The integers of their states are made at run time and need no calibration."""

from __future__ import annotations

import numpy as np

from linnet.ir.dtypes import numpy_dtype, quantization_of_rows
from linnet.ir.function import Function, Node, Tensor
from linnet.quantization.scheme import HALVES, fits_half, weight_parameters


def scheme_of(node: Node, wanted: str) -> str:
    """How a recurrent layer stores its weights: "w8", "f16", "bf16", or "" for f32. wanted: a word of the table. With 16-bit
    integers, f16 is as small and more precise. Weights that training changes stay f32."""
    w = node.inputs[1]
    if w is None or w.data is None or w.dtype != "f32" or w.data.ndim != 3 or not np.isfinite(w.data).all():
        return ""
    if wanted in ("i8", "w4") or wanted.startswith("w8"):
        return "w8"
    wanted = "f16" if wanted in ("i16", "w16a16") else wanted
    return wanted if wanted in HALVES and fits_half(wanted, float(w.data.min()), float(w.data.max())) else ""


def stored_weights(function: Function, w: Tensor, scheme: str) -> Tensor:
    """The weights in a function, stored as `scheme_of` decided: 8 bits with a scale per row, or a half-width float, which
    a node widens when the graph is planned."""
    assert w.data is not None
    if scheme != "w8":
        half = function.constant(w.data.astype(numpy_dtype(scheme)), w.name)
        return function.emit("cast", [half], {"dtype": "f32"}, 1, f"{w.name}/f32", fold=False)[0]
    directions, rows, columns = w.data.shape
    values, parameters = weight_parameters(w.data.reshape(directions * rows, columns), 0)
    quantization = quantization_of_rows(parameters.scale.reshape(directions, rows), columns)
    return function.constant(values.reshape(w.data.shape), w.name, quantization=quantization)
