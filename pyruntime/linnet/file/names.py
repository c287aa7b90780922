"""Names in a .lnt file: those of its steps, and those that a user may have meant by an unknown name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linnet.clib.errors import nearest
from linnet.file import tables
from linnet.file.dim_names import entry_of, model_of
from linnet.ir.node_names import merged_into

if TYPE_CHECKING:
    from pathlib import Path


def near(source: bytes | str | Path, signature: str, name: str, fed: bool) -> str:
    """The names of inputs, outputs, steps and results that are most similar to an unknown name, for the field
    `expected` of an error. If no name is similar, the usual names: the inputs if the unknown name was to be fed
    (`fed`), otherwise the outputs."""
    both = entry_of(source, signature)
    if both is None:
        return ""
    entry, function = both
    steps = {n.text(tables.NODE_NAME): n.text(tables.NODE_SOURCE) for n in function.tables(tables.FUNCTION_NODES)}
    tensors = list(function.tables(tables.FUNCTION_TENSORS))
    results = {i for node in function.tables(tables.FUNCTION_NODES) for i in node.numbers(tables.NODE_OUTPUTS)}
    outputs, inputs = entry.texts(tables.SIGNATURE_OUTPUTS), entry.texts(tables.SIGNATURE_INPUTS)
    every = [*outputs, *inputs, *steps, *(tensors[i].text(tables.TENSOR_NAME) for i in sorted(results))]
    for step in function.tables(tables.FUNCTION_NODES):  # a step whose name is that of a value that no longer exists
        if step.text(tables.NODE_NAME) == name and len(step.numbers(tables.NODE_OUTPUTS)):
            result = tensors[int(step.numbers(tables.NODE_OUTPUTS)[0])].text(tables.TENSOR_NAME)
            return f"{result}, the result of step {name!r}, of which it has become a part"
    return nearest(name, [name for name in every if name], inputs if fed else outputs, merged_into(steps))


def steps_of(source: bytes | str | Path) -> list[str]:
    """The steps of all functions, such as the bodies of loops."""
    model = model_of(source)
    functions = model.tables(tables.MODEL_FUNCTIONS) if model is not None else ()
    return [node.text(tables.NODE_NAME) for f in functions for node in f.tables(tables.FUNCTION_NODES)]
