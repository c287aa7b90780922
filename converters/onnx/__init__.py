"""`from_onnx` converts ONNX models into linnet graphs. There is a separate module for loading, for walking the graph,
for the rules of each op, and for the rewrites that follow."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import onnx

from linnet import passes
from linnet.clib.arguments import check_all
from linnet.clib.errors import UsageError
from linnet.converters.onnx import loader
from linnet.converters.onnx.importer import Importer
from linnet.converters.onnx.interface import Shapes
from linnet.converters.onnx.outline import outline
from linnet.converters.onnx.problems import ConversionError, Problem
from linnet.converters.outline import Conversion, known_shapes
from linnet.facade import Graph
from linnet.ir.user_op import UserOp

__all__ = ["ConversionError", "Problem", "examine", "from_onnx"]


def from_onnx(
    model: str | Path | onnx.ModelProto,
    input_shapes: Shapes | None = None,
    optimize: bool = True,
    trainable: str | Sequence[str] | None = None,
    user_ops: Iterable[UserOp] = (),
) -> Graph:
    """Converts an ONNX model (opsets up to 28) into a graph with the signature "infer".

    Inputs and outputs keep the model's names. input_shapes: {input name: shape} fixes dimensions that the model leaves open.
    For a sequence, a list of shapes, one per element, fixes its length. For an optional, None means absent and a shape means
    present. optimize: False keeps one runtime node per step of a rule, for debugging. trainable: names of initializers
    that become variables, so that the graph can be trained (`*` and `?` are wildcards; "*": all weights). See
    `linnet.passes.trainable`.
    user_ops: ops for nodes of custom domains. The op for a node is named DOMAIN.OP_TYPE, and every run of the graph
    calls it. Raises `FileError` if the file cannot be read. Raises `ConversionError`, whose `.problems` lists every
    problem, if the model cannot be converted.
    """
    conversion = examine(model, input_shapes, optimize, trainable is None, user_ops)
    if conversion.problems:
        raise ConversionError(conversion.problems)
    return conversion.graph if trainable is None else passes.trainable(conversion.graph, trainable)


def examine(
    model: str | Path | onnx.ModelProto,
    input_shapes: Shapes | None = None,
    optimize: bool = True,
    weights: bool = True,
    user_ops: Iterable[UserOp] = (),
) -> Conversion:
    """Like `from_onnx`, but returns the problems together with the part of the graph that could be converted.

    weights: whether rewrites may change weights (fold batch norms into them, pack 4-bit weights).
    Raises `FileError`."""
    place = None
    if not isinstance(model, str | os.PathLike | onnx.ModelProto):
        raise UsageError(
            "the model has the wrong type", code=101, expected="a path or an onnx.ModelProto", got=type(model).__name__,
            hint="for bytes, call onnx.load_model_from_string(content) first",
        )  # fmt: skip
    if not isinstance(model, onnx.ModelProto):
        model, place = loader.load(Path(model))
    importer = Importer(model, place, user_ops)
    graph = importer.convert_model(input_shapes)
    graph.metadata["source"] = "onnx"
    for key, value in (("producer", model.producer_name), ("model", model.graph.name)):
        if value:
            graph.metadata[key] = value
    for entry in model.metadata_props:
        graph.metadata.setdefault(f"onnx.{entry.key}", entry.value)
    known = known_shapes(graph)  # before passes replace tensors
    if optimize and not importer.problems:
        from linnet.converters.onnx.packing import pack
        from linnet.converters.onnx.rewrite import rewrite

        rewrite(graph, weights)
        if weights:
            pack(graph)
    return Conversion(graph, importer.problems, partial(outline, model, known))


check_all(globals(), ("examine", "from_onnx"))
