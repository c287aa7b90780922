"""Names in a .lnt file: those of its steps, and those that a user may have meant by a name that is unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linnet.clib.errors import nearest
from linnet.file import tables
from linnet.file.dim_names import entry_of, model_of

if TYPE_CHECKING:
    from pathlib import Path


def near(source: bytes | str | Path, signature: str, name: str, fed: bool) -> str:
    """The names that are nearest to one that is unknown, for the field `expected` of an error: of inputs, outputs, steps and
    results. fed: it was to be fed, so that the inputs are the usual names, otherwise the outputs are."""
    both = entry_of(source, signature)
    if both is None:
        return ""
    entry, function = both
    steps = [node.text(tables.NODE_NAME) for node in function.tables(tables.FUNCTION_NODES)]
    tensors = list(function.tables(tables.FUNCTION_TENSORS))
    results = {i for node in function.tables(tables.FUNCTION_NODES) for i in node.numbers(tables.NODE_OUTPUTS)}
    outputs, inputs = entry.texts(tables.SIGNATURE_OUTPUTS), entry.texts(tables.SIGNATURE_INPUTS)
    every = [*outputs, *inputs, *steps, *(tensors[i].text(tables.TENSOR_NAME) for i in sorted(results))]
    return nearest(name, [name for name in every if name], inputs if fed else outputs)


def steps_of(source: bytes | str | Path) -> list[str]:
    """The steps of all functions, such as the bodies of loops."""
    model = model_of(source)
    functions = model.tables(tables.MODEL_FUNCTIONS) if model is not None else ()
    return [node.text(tables.NODE_NAME) for f in functions for node in f.tables(tables.FUNCTION_NODES)]
