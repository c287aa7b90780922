"""`from_tflite` converts TFLite models into linnet graphs. There is a separate module for reading the file, for walking
its operators, for the rules of each op, and for the rewrites that follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from linnet import passes
from linnet.clib.arguments import check_all
from linnet.clib.errors import FileError
from linnet.converters.outline import Conversion, known_shapes
from linnet.converters.recognition import is_tflite
from linnet.converters.tflite.importer import Importer
from linnet.converters.tflite.outline import outline
from linnet.converters.tflite.problems import ConversionError, Problem
from linnet.converters.tflite.schema import Model
from linnet.facade import Graph
from linnet.ir.user_op import UserOp

__all__ = ["ConversionError", "Problem", "examine", "from_tflite", "is_tflite"]


def from_tflite(
    model: str | Path | bytes,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    optimize: bool = True,
    trainable: str | Sequence[str] | None = None,
    user_ops: Iterable[UserOp] = (),
) -> Graph:
    """Converts a TFLite model (a path, or the file's bytes) into a graph with the signature "infer".

    The names of inputs and outputs come from the file's signature if it has one, else from their tensors. Inputs and
    outputs keep their element types and quantization. Dimensions that the file leaves open stay open if no rule needs
    their size; otherwise they get the size in the file. input_shapes: {input name: shape} replaces the file's shapes.
    optimize: False keeps one runtime node per step of a rule, for debugging. trainable: names of constants that become
    variables, so that the graph can be trained (`*` and `?` are wildcards; "*": all weights). See
    `linnet.passes.trainable`. user_ops: ops for custom operators. The op for an operator is named tflite.CUSTOM_CODE.
    If the operator has a rule, the op replaces it. Raises `FileError` if the file cannot be read. Raises
    `ConversionError`, whose `.problems` lists every problem, if the model cannot be converted.
    """
    conversion = examine(model, input_shapes, optimize, user_ops, trainable is None)
    if conversion.problems:
        raise ConversionError(conversion.problems, "" if isinstance(model, bytes) else str(model))
    return conversion.graph if trainable is None else passes.trainable(conversion.graph, trainable)


def examine(
    model: str | Path | bytes,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    optimize: bool = True,
    user_ops: Iterable[UserOp] = (),
    weights: bool = True,
) -> Conversion:
    """Like `from_tflite`, but returns the problems together with the part of the graph that could be converted. weights:
    whether equal weights may be merged. Raises `FileError`."""
    name = ""
    if not isinstance(model, bytes):
        name = str(model)
        try:
            model = Path(model).read_bytes()
        except OSError as error:
            code = 201 if isinstance(error, FileNotFoundError) else 202
            raise FileError(
                f"cannot be read: {error.strerror}", tensor=name, code=code, hint="check the path"
            ) from None
    parsed, user_ops = Model(model, name), list(user_ops)
    importer = Importer(parsed, user_ops=user_ops)
    if importer.has_open_shapes(list(input_shapes or ())):
        importer = Importer(parsed, open_shapes=True, user_ops=user_ops)
        graph = importer.convert(input_shapes)
        if importer.problems:  # some rules need sizes; TFLite's interpreter starts with those in the file
            importer = Importer(parsed, user_ops=user_ops)
            graph = importer.convert(input_shapes)
    else:
        graph = importer.convert(input_shapes)
    graph.metadata["source"] = "tflite"
    if importer.model.description:
        graph.metadata["producer"] = importer.model.description
    if importer.hybrid:
        graph.metadata["tflite.hybrid"] = (
            f"{len(importer.hybrid)} operators have integer weights and float activations, which are rounded to 8 bits "
            "as in TFLite"
        )
    known = known_shapes(graph)  # before passes replace tensors
    if optimize and not importer.problems:
        from linnet.converters.tflite.rewrite import rewrite

        rewrite(graph, weights)
    return Conversion(graph, importer.problems, partial(outline, parsed, known))


check_all(globals(), ("examine", "from_tflite", "is_tflite"))
