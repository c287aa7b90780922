"""Constants into variables and back: `trainable` makes an inference graph one that can be trained, `freeze` makes of a
trained one an inference graph again."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.errors import UsageError
from linnet.graph import Function, Graph, Tensor, Variable
from linnet.passes.cleanup import remove_dead, remove_dead_functions
from linnet.passes.folding import fold_constants
from linnet.passes.rewrite import replace

FLOATS = frozenset({"f32", "f64", "f16"})
# Operands that are settings or statistics, not weights: "*" leaves them alone.
_SETTINGS = {
    "batch_norm": (3, 4), "resize": (1, 2, 3), "quantize": (1, 2), "dequantize": (1, 2), "nms": (0, 1, 2, 3, 4),
    "range": (0, 1, 2), "roi_align": (1, 2),
}  # fmt: skip
# Functions that only move or widen a weight: what comes of constants through them is a constant, whatever its size.
_CARRIERS = frozenset({"copy", "cast", "map", "dequantize"})
_NUMBERED = re.compile(r"(.+)_\d+")


def trainable(graph: Graph, patterns: str | Sequence[str] = "*") -> Graph:
    """Makes variables of the graph's float constants, in place, and returns it: what was imported can be trained.

    patterns: names of constants, as in the file that the graph came from, with `*`, `?` and `[...]`; "*" means all weights
    (of one dimension or more; statistics of batch_norm and other settings must be named). What nothing matches stays constant:
    gradients are never computed for it. Integer weights and activations of a quantized model become floats first.
    The content of the signature "infer" then lies in `graph.main`, where a loss can be built on it (`graph.find`); other
    signatures go. Raises UsageError for a graph without "infer", and for a pattern that matches nothing, with near names.
    """
    if "infer" not in graph.signatures:
        raise UsageError(
            "this graph has no signature 'infer'", code=105, expected="a graph as from_onnx gives",
            got=", ".join(graph.signatures) or "no signatures",
        )  # fmt: skip
    names = to_main(graph)
    _give_names_back(graph.main)
    if any(t.quantization is not None for t in graph.main.tensors()):
        from linnet.passes.floats import to_floats

        to_floats(graph)
    function = graph.main
    compute_weights(function)
    _give_names_back(function)
    chosen = _choose(function, [patterns] if isinstance(patterns, str) else list(patterns))
    table: dict[Tensor, Tensor] = {}
    prefix, graph.prefix = graph.prefix, ""
    for tensor in chosen:
        assert tensor.data is not None
        function._names.discard(tensor.name)
        table[tensor] = function.read(graph.variable(tensor.name, np.array(tensor.data)))
    graph.prefix = prefix
    replace(function, table)
    declare(graph, *names)
    return graph


def to_main(graph: Graph) -> tuple[list[str], list[str]]:
    """Moves what the signature "infer" computes into `graph.main`, where more can be built on it; other signatures go.
    Returns the signature's names of inputs and outputs."""
    signature = graph.signatures["infer"]
    inner = signature.function
    graph.main = Function(graph, "main")
    graph.main.fill(inner)
    for tensor, name in zip(graph.main.inputs, signature.inputs, strict=True):
        tensor.name = name
        graph.main._names.add(name)
    graph.signatures.clear()
    graph.functions = [f for f in graph.functions if f is not inner]
    return signature.inputs, signature.outputs


def declare(graph: Graph, names: Sequence[str], results: Sequence[str]) -> None:
    """The signature "infer" of what lies in `graph.main`, with these names for its inputs and outputs."""
    function = graph.main
    updates = {
        n.inputs[0].variable: n.inputs[1]
        for n in function.nodes
        if n.op == "assign" and n.inputs[0] is not None and n.inputs[0].variable is not None
    }
    function.nodes = [n for n in function.nodes if n.op != "assign"]
    graph.functions = [f for f in graph.functions if f.name != "infer"]
    graph.signature(
        "infer", dict(zip(names, function.inputs, strict=True)), dict(zip(results, function.outputs, strict=True)),
        updates={v: t for v, t in updates.items() if t is not None},
    )  # fmt: skip


def compute_weights(function: Function) -> None:
    """Weights that nodes make of constants (transposed, widened from 8 bits) are constants again, under the weight's name."""
    origin: dict[Tensor, str] = {}
    for node in function.nodes:
        inputs = [t for t in node.inputs if t is not None]
        if node.op in _CARRIERS and inputs and all(t.data is not None or t in origin for t in inputs):
            widest = max(inputs, key=lambda t: int(np.prod(t.static_shape or (0,))))
            for y in node.outputs:
                origin[y] = origin.get(widest, widest.name)
    before = set(map(id, function.tensors()))
    graph = function.graph
    folded, graph.folded = graph.folded, -(1 << 62)  # whatever they take: they will be variables
    fold_constants(function, 1 << 40)
    graph.folded = folded
    remove_dead(function)
    names = {y.name: name for y, name in origin.items()}
    for tensor in function.tensors():
        if tensor.data is not None and id(tensor) not in before:
            base = _NUMBERED.sub(r"\1", tensor.name)
            if wanted := names.get(tensor.name) or names.get(base):
                tensor.name = function.unique(wanted)


def _give_names_back(function: Function) -> None:
    """A constant called w_1 because w, from which it was made, was still there is called w when that has gone."""
    alive = {t.name for t in function.tensors()}
    for tensor in function.tensors():
        if tensor.data is None:
            continue
        while (found := _NUMBERED.fullmatch(tensor.name)) and found[1] in function._names and found[1] not in alive:
            alive.add(found[1])
            tensor.name = found[1]


def candidates(function: Function) -> dict[Tensor, bool]:
    """Float constants of a function: whether "*" means them too."""
    found: dict[Tensor, bool] = {}
    for node in function.nodes:
        for i, tensor in enumerate(node.inputs):
            if tensor is None or tensor.data is None or tensor.dtype not in FLOATS:
                continue
            weight = tensor.data.ndim > 0 and i not in _SETTINGS.get(node.op, ())
            weight = weight and not (node.op == "map" and tensor.data.size == 1)
            weight = weight and not (node.op == "copy" and (i > 0 and node.attribute("kind") == "pad"))
            found[tensor] = found.get(tensor, False) or weight
    return found


def _choose(function: Function, patterns: list[str]) -> list[Tensor]:
    given = candidates(function)
    if not given and function.graph.variables:
        patterns = [p for p in patterns if p != "*"]  # all weights are variables already
    elif not given and patterns and any(isinstance(v, Function) for n in function.nodes for v in n.attributes.values()):
        raise UsageError(
            "this model has no float constant outside of its branches and loops", code=101, tensor=function.name,
            hint="weights inside them stay constant: build those in Python with linnet.scan, while_loop and cond",
        )  # fmt: skip
    return matching(given, patterns, "float constant")


def matching(given: Mapping[Tensor, bool], patterns: Sequence[str], what: str) -> list[Tensor]:
    """The tensors whose names match; given: whether "*" means them too. Raises UsageError, with near names, for a pattern that
    matches none. what: they are, for the message."""
    chosen: dict[Tensor, None] = {}
    for pattern in patterns:
        exact = [t for t in given if t.name == pattern]
        found = exact or [
            t for t, weight in given.items() if fnmatch.fnmatchcase(t.name, pattern) and (weight or pattern != "*")
        ]
        if not found:
            names = [t.name for t in given]
            near = difflib.get_close_matches(pattern.strip("*?"), names, n=3, cutoff=0.3) or names[:3]
            raise UsageError(
                f"no {what} is called {pattern!r}", code=102, tensor=pattern,
                expected=f"a name, or a pattern, of {len(names)}" if names else f"a model with a {what}",
                hint=f"near: {', '.join(near)}" if near else "there is none to train",
            )  # fmt: skip
        chosen.update(dict.fromkeys(found))
    return list(chosen)


def freeze(graph: Graph, values: Mapping[str, npt.ArrayLike] | None = None, signature: str = "infer") -> Graph:
    """A graph with the signature "infer" alone, in which variables that nothing assigns are constants, as small and fast as
    a converted model.

    values: {variable name: array} in place of initial values, for example a `Store` after training. signature: the one to keep
    (as "infer"). Raises UsageError when there is no such signature, and for a value of another shape.
    """
    if signature not in graph.signatures:
        raise UsageError(
            f"the graph has no signature '{signature}'", code=105, expected=", ".join(graph.signatures) or "one",
        )  # fmt: skip
    made = graph.copy()
    kept = made.signatures[signature]
    made.signatures = {"infer": kept}
    remove_dead_functions(made)
    assigned = {
        n.inputs[0].variable.name
        for f in made.functions
        for n in f.nodes
        if n.op == "assign" and n.inputs[0] is not None and n.inputs[0].variable is not None
    }
    for function in made.functions:
        for tensor in function.tensors():
            variable = tensor.variable
            if variable is not None and variable.name not in assigned:
                tensor.data, tensor.variable = current_value(variable, values), None
    made.variables = {name: v for name, v in made.variables.items() if name in assigned}
    for variable in made.variables.values():
        variable.value = current_value(variable, values)
    from linnet import passes
    from linnet.passes.affine import absorb, normalizations_to_maps

    for function in made.functions:
        passes.remove_double(function)
        absorb(function)
        normalizations_to_maps(function)
    return passes.run(made)


def current_value(variable: Variable, values: Mapping[str, npt.ArrayLike] | None) -> npt.NDArray[Any]:
    """The variable's value of `values`, else its initial one. Raises UsageError for one of another shape."""
    if values is None or variable.name not in values:
        return variable.value
    given = values[variable.name]
    value = np.ascontiguousarray(given).reshape(np.shape(given))
    if value.shape != variable.value.shape or value.dtype != variable.value.dtype:
        raise UsageError(
            "a value does not fit its variable", code=104, tensor=variable.name,
            expected=f"{variable.value.dtype} {list(variable.value.shape)}", got=f"{value.dtype} {list(value.shape)}",
        )  # fmt: skip
    return value
