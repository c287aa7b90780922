"""ONNX models into linnet graphs: `from_onnx`.
Loading, the walk over the graph, the rules per op, and the rewrites that follow are one module each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import onnx

from linnet import passes
from linnet.converters.onnx import loader
from linnet.converters.onnx.importer import Importer
from linnet.converters.onnx.interface import Shapes
from linnet.converters.onnx.outline import outline
from linnet.converters.onnx.problems import ConversionError, Problem
from linnet.errors import UsageError
from linnet.graph import Graph
from linnet.outline import Conversion

__all__ = ["ConversionError", "Problem", "examine", "from_onnx"]


def from_onnx(
    model: str | Path | onnx.ModelProto,
    input_shapes: Shapes | None = None,
    optimize: bool = True,
    trainable: str | Sequence[str] | None = None,
) -> Graph:
    """Converts an ONNX model (opsets up to 28) into a graph with the signature "infer", named as the model's values are.

    input_shapes: {input name: shape} fixes dimensions that the model leaves open; for a sequence a list of shapes, one per
    element, fixes its length; for an optional, None says that it is absent and a shape that it is there. optimize: False
    keeps one runtime node per step of a rule, for debugging. trainable: names of initializers, with `*` and `?`, that become
    variables ("*": all weights), so that the graph can be trained: see `linnet.passes.trainable`. Raises `FileError` when the
    file cannot be read, and `ConversionError`, whose `.problems` lists everything that stands in the way, when the
    model cannot be converted.
    """
    conversion = examine(model, input_shapes, optimize, trainable is None)
    if conversion.problems:
        raise ConversionError(conversion.problems)
    return conversion.graph if trainable is None else passes.trainable(conversion.graph, trainable)


def examine(
    model: str | Path | onnx.ModelProto,
    input_shapes: Shapes | None = None,
    optimize: bool = True,
    weights: bool = True,
) -> Conversion:
    """As `from_onnx`, but problems are returned beside what could be converted. weights: whether rewrites may change the
    values of weights (fold batch norms into them, pack 4-bit ones). Raises `FileError`."""
    folder = None
    if not isinstance(model, str | os.PathLike | onnx.ModelProto):
        raise UsageError(
            "the model cannot be this", code=101, expected="a path or an onnx.ModelProto", got=type(model).__name__,
            hint="onnx.load_model_from_string(content) makes one of bytes",
        )  # fmt: skip
    if not isinstance(model, onnx.ModelProto):
        model, folder = loader.load(Path(model))
    importer = Importer(model, folder)
    graph = importer.convert_model(input_shapes)
    graph.metadata["source"] = "onnx"
    for key, value in (("producer", model.producer_name), ("model", model.graph.name)):
        if value:
            graph.metadata[key] = value
    for entry in model.metadata_props:
        graph.metadata.setdefault(f"onnx.{entry.key}", entry.value)
    if optimize and not importer.problems:
        from linnet.converters.onnx.packing import pack
        from linnet.converters.onnx.rewrite import rewrite

        rewrite(graph, weights)
        if weights:
            pack(graph)
    return Conversion(graph, importer.problems, partial(outline, model))
