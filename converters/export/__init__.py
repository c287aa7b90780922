"""`to_onnx` converts linnet graphs into ONNX models, with one rule per runtime op (`@export("op")`) and a file per family.
writer.py walks the graph. If ONNX has no op for some nodes, one error reports all of them with their names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy.typing as npt
import onnx

from linnet.clib.errors import ConversionError, UsageError
from linnet.converters.export import control, maps, movement, norms, products
from linnet.converters.export.writer import NEWEST, OLDEST, Writer
from linnet.ir.graph import Graph
from linnet.passes import freeze
from linnet.passes.attention import without_attention

__all__ = ["control", "maps", "movement", "norms", "products", "to_onnx"]

_INLINE = 1 << 30  # bytes; larger weights go into a separate file, because protobuf ends at 2 GiB


def to_onnx(
    graph: Graph,
    path: str | Path | None = None,
    values: Mapping[str, npt.ArrayLike] | None = None,
    *,
    signature: str = "infer",
    opset: int | None = None,
) -> onnx.ModelProto:
    """Returns an ONNX model of one signature, and writes it to `path` if that is given.

    Weights above 1 GiB are written to `path`.data in the same folder. values: {variable name: value}, used instead of
    the initial values. It may be a `Store` or the variables of a checkpoint. opset: 18 to 23; the default is 20, or 21
    if the graph needs it (16-bit or blockwise quantization, group norms). The model has passed onnx.checker. Quantized
    graphs become float ops between DequantizeLinear and QuantizeLinear.
    Raises UsageError for a bad argument. Raises ConversionError with all problems if ONNX cannot express something:
    state that a run changes, fixed-point arithmetic of TFLite, raw random bits.
    """
    if opset is not None and not OLDEST <= opset <= NEWEST:
        raise UsageError(
            "to_onnx does not support this opset", code=101, expected=f"{OLDEST} to {NEWEST}", got=str(opset)
        )
    frozen = without_attention(freeze(graph, values, signature))
    # Opset 20 is tried first: with 21, ONNX Runtime 1.31 rewrites a relu before QuantizeLinear into a model it then refuses.
    for version in (20, 21) if opset is None else (opset,):
        writer = Writer(frozen, version)
        model = writer.model()
        if not writer.problems:
            break
    else:
        raise ConversionError(writer.problems)
    onnx.checker.check_model(model)
    if path is not None:
        _write(model, Path(path))
    return model


def _write(model: onnx.ModelProto, path: Path) -> None:
    from linnet.file.atomic import write_atomic

    if sum(len(t.raw_data) for t in model.graph.initializer) <= _INLINE:
        write_atomic(path, iter([model.SerializeToString()]))
        return
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    onnx.save(copied, path, save_as_external_data=True, location=f"{path.name}.data", size_threshold=1024)
