"""TFLite models into linnet graphs: `from_tflite`.
Reading the file, the walk over its operators, the rules per op and the rewrites that follow are one module each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from linnet import passes
from linnet.converters.tflite.importer import Importer
from linnet.converters.tflite.outline import outline
from linnet.converters.tflite.problems import ConversionError, Problem
from linnet.converters.tflite.schema import Model
from linnet.errors import FileError
from linnet.graph import Graph
from linnet.outline import Conversion

__all__ = ["ConversionError", "Problem", "examine", "from_tflite", "is_tflite"]


def is_tflite(path: str | Path) -> bool:
    """Whether a file bears TFLite's identifier, or, where it cannot be read, its extension."""
    try:
        with open(path, "rb") as file:
            if file.read(8)[4:] == b"TFL3":
                return True
    except OSError:
        pass
    return Path(path).suffix.lower() in (".tflite", ".lite")


def from_tflite(
    model: str | Path | bytes,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    optimize: bool = True,
    trainable: str | Sequence[str] | None = None,
) -> Graph:
    """Converts a TFLite model (a path, or the file's bytes) into a graph with the signature "infer".

    Inputs and outputs are named by the file's signature, where it has one, else by their tensors; they keep their element
    types and quantization. Dimensions that the file leaves open stay open where every rule can do without their size, and
    have the size in the file otherwise. input_shapes: {input name: shape} in place of the file's. optimize: False keeps
    one runtime node per step of a rule, for debugging. trainable: names of constants, with `*` and `?`, that become variables
    ("*": all weights), so that the graph can be trained: see `linnet.passes.trainable`. Raises `FileError` when the
    file cannot be read, and `ConversionError`, whose `.problems` lists everything that stands in the way, when the
    model cannot be converted.
    """
    conversion = examine(model, input_shapes, optimize)
    if conversion.problems:
        raise ConversionError(conversion.problems, "" if isinstance(model, bytes) else str(model))
    return conversion.graph if trainable is None else passes.trainable(conversion.graph, trainable)


def examine(
    model: str | Path | bytes, input_shapes: Mapping[str, Sequence[int]] | None = None, optimize: bool = True
) -> Conversion:
    """As `from_tflite`, but problems are returned beside what could be converted. Raises `FileError`."""
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
    parsed = Model(model, name)
    importer = Importer(parsed)
    if importer.has_open_shapes(list(input_shapes or ())):
        importer = Importer(parsed, open_shapes=True)
        graph = importer.convert(input_shapes)
        if importer.problems:  # some rules need sizes: those in the file are what TFLite's interpreter begins with
            importer = Importer(parsed)
            graph = importer.convert(input_shapes)
    else:
        graph = importer.convert(input_shapes)
    graph.metadata["source"] = "tflite"
    if importer.model.description:
        graph.metadata["producer"] = importer.model.description
    if importer.hybrid:
        graph.metadata["tflite.hybrid"] = (
            f"{len(importer.hybrid)} operators have integer weights and float activations, which are rounded to 8 bits on "
            "the way, as in TFLite"
        )
    if optimize and not importer.problems:
        from linnet.converters.tflite.rewrite import rewrite

        rewrite(graph)
    return Conversion(graph, importer.problems, partial(outline, parsed))
