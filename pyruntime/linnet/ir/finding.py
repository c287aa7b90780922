"""Finds tensors of a graph by name. In a graph from a file or a converter, the nodes are in the functions of signatures.
The first search copies those of "infer" into `main`, so that more nodes can be built on what is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from linnet.clib.errors import UsageError
from linnet.ir.function import Function, Tensor
from linnet.ir.node_names import step_names


class Entry(Protocol):
    """A signature of a graph."""

    function: Function
    inputs: list[str]
    outputs: list[str]


def find(main: Function, signatures: Mapping[str, Entry], name: str) -> Tensor:
    """The tensor with this name in `main`, or else in the signatures. See Graph.find."""
    infer = signatures.get("infer")
    own = {tensor.name for tensor in main.tensors()}
    if infer is not None and name not in own:
        built_here = not own.isdisjoint(infer.inputs) or (main.nodes and not infer.inputs)
        if not built_here:
            _copy_into_main(main, infer.function, infer.inputs, infer.outputs)
    table = _named(main, [], infer.outputs if infer is not None else [])
    for entry in signatures.values():
        table = {**_named(entry.function, entry.inputs, entry.outputs), **table}
    if name in table:
        return table[name]
    import difflib

    near = difflib.get_close_matches(name, table, n=3, cutoff=0.3) or list(table)[:3]
    raise UsageError(
        f"the graph has no tensor named {name!r}", code=102, tensor=name, hint=f"similar names: {', '.join(near)}"
    )


def _copy_into_main(main: Function, inner: Function, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Copies a signature's function, except its updates, into `main`, in front of the nodes that `main` already has.
    Tensors whose names `main` already uses get new ones."""
    copy = Function(main.graph, main.name)
    copy.fill(inner, nodes=[node for node in inner.nodes if node.op != "assign"])
    taken = {tensor.name for tensor in main.tensors()}
    main._names.update(copy._names)
    main._counts = {**copy._counts, **main._counts}
    for tensor in copy.tensors():
        tensor.function = main
        if tensor.name in taken:
            tensor.name = main.unique(tensor.name)
    for tensor, name in (*zip(copy.inputs, inputs, strict=True), *zip(copy.outputs, outputs, strict=True)):
        if name not in taken:
            tensor.name = name
            main._names.add(name)
    main.inputs, main.nodes, main.outputs = [*copy.inputs, *main.inputs], [*copy.nodes, *main.nodes], copy.outputs


def _named(function: Function, inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, Tensor]:
    """The tensors of a function by name, with these names for its inputs and outputs. The name of a step stands for its
    first result if no tensor has this name."""
    steps = {step: node.outputs[0] for node, step in step_names(function).items() if step and node.outputs}
    tensors = {tensor.name: tensor for tensor in function.tensors() if tensor.name}
    ends = (*zip(inputs, function.inputs, strict=False), *zip(outputs, function.outputs, strict=False))
    return {**steps, **tensors, **dict(ends)}
