"""linnet graphs into ONNX models: `to_onnx`. One rule per runtime op (`@export("op")`), in a file per family.
writer.py walks the graph; what ONNX has no op for is a problem with the node's name, all of a model together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy.typing as npt
import onnx

from linnet.converters.onnx.export import control, maps, movement, norms, products
from linnet.converters.onnx.export.writer import NEWEST, OLDEST, Writer
from linnet.errors import ConversionError, UsageError
from linnet.graph import Graph

__all__ = ["control", "maps", "movement", "norms", "products", "to_onnx"]

_INLINE = 1 << 30  # bytes of weights up to which they stand in the .onnx file itself (protobuf ends at 2 GiB)


def to_onnx(
    graph: Graph,
    path: str | Path | None = None,
    values: Mapping[str, npt.ArrayLike] | None = None,
    *,
    signature: str = "infer",
    opset: int | None = None,
) -> onnx.ModelProto:
    """An ONNX model of one signature; written to `path` when that is given (weights above 1 GiB into `path`.data beside it).

    values: {variable name: value} in place of initial values, for example a `Store`, or a checkpoint's variables. opset: 18
    to 23; by default 20, or 21 where something needs it (16-bit or blockwise quantization, group norms). The model has passed
    onnx.checker. Quantized graphs become QuantizeLinear and DequantizeLinear around float ops.
    Raises UsageError for a bad argument, ConversionError, with all problems, for what ONNX has no op for: state that a run
    changes, fixed-point arithmetic of TFLite, raw random bits.
    """
    if opset is not None and not OLDEST <= opset <= NEWEST:
        raise UsageError("to_onnx cannot write this opset", code=101, expected=f"{OLDEST} to {NEWEST}", got=str(opset))
    frozen = graph.freeze(values, signature)
    # 20 first: given opset 21, ONNX Runtime 1.31 rewrites a relu before QuantizeLinear into a model that it then refuses.
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
    from linnet.file import write_atomic

    if sum(len(t.raw_data) for t in model.graph.initializer) <= _INLINE:
        write_atomic(path, iter([model.SerializeToString()]))
        return
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    onnx.save(copied, path, save_as_external_data=True, location=f"{path.name}.data", size_threshold=1024)
