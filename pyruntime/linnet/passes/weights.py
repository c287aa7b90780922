"""Turns constants into variables and back: `trainable` makes an inference graph trainable, `freeze` turns a trained
graph into an inference graph."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import UsageError
from linnet.ir import traits
from linnet.ir.function import Function, Node, Tensor, Variable
from linnet.ir.graph import Graph
from linnet.passes.cleanup import remove_dead, remove_dead_functions, remove_double
from linnet.passes.folding import fold_constants
from linnet.passes.kept_types import keeping_types
from linnet.passes.pipeline import run
from linnet.passes.rewrite import replace

G = TypeVar("G", bound=Graph)
FLOATS = frozenset({"f32", "f64", "f16"})
# Ops that only move or widen a weight. If their inputs are constants, the result becomes a constant of any size.
_CARRIERS = traits.POINTWISE | traits.COPIES | traits.DECODES
_NUMBERED = re.compile(r"(.+)_\d+")
_GENERATED = re.compile(
    r"(val|t|constant|const|ones|zeros|expand|lifted_tensor|_?c)(_?\d+)*|onnx::.+|.*[/_]Constant.*", re.I
)
_SAMPLE = 256  # numbers of a constant that are compared with those of the parameters


def trainable(
    graph: G, patterns: str | Sequence[str] = "*", parameters: Mapping[str, npt.ArrayLike] | None = None
) -> G:
    """Turns float constants of the graph into variables, in place, so that an imported model can be trained. Returns
    the graph.

    patterns: names of constants as in the original file, with `*`, `?` and `[...]`. "*" matches all weights (one
    dimension or more). It does not match statistics of batch_norm and other settings, initial states of recurrent layers,
    masks, and constants of one repeated number that an exporter has named; these must be named. Other constants stay
    constant, and no gradients are computed for them. parameters: what the source calls parameters, by name. "*" then
    matches these and what was computed from them. Integer weights and activations of a quantized model become floats first. The
    content of the signature "infer" is then in `graph.main`, where a loss can be built on it (`graph.find`); other
    signatures are removed. Raises UsageError if the graph has no signature "infer", or if a pattern matches nothing;
    the error lists similar names.
    """
    if "infer" not in graph.signatures:
        raise UsageError(
            "the graph has no signature 'infer'", code=105, expected="a graph from a converter such as from_onnx",
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
    chosen = _choose(function, [patterns] if isinstance(patterns, str) else list(patterns), parameters)
    table: dict[Tensor, Tensor] = {}
    prefix, graph.prefix = graph.prefix, ""
    for tensor in chosen:
        assert tensor.data is not None
        function._names.discard(tensor.name)
        table[tensor] = function.read(graph.variable(tensor.name, np.array(tensor.data), copy=False))
    graph.prefix = prefix
    replace(function, table)
    declare(graph, *names)
    return graph


def to_main(graph: Graph) -> tuple[list[str], list[str]]:
    """Moves the content of the signature "infer" into `graph.main`, where more nodes can be added to it, and removes
    other signatures. Returns the names of the signature's inputs and outputs."""
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
    """Declares the signature "infer" for the content of `graph.main`, with these names for its inputs and outputs."""
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
    """Weights that nodes compute from constants (by transposing, or by widening from 8 bits) become constants again,
    under the weight's name."""
    origin: dict[Tensor, str] = {}
    for node in function.nodes:
        inputs = [t for t in node.inputs if t is not None]
        if node.op in _CARRIERS and inputs and all(t.data is not None or t in origin for t in inputs):
            widest = max(inputs, key=lambda t: int(np.prod(t.static_shape or (0,))))
            for y in node.outputs:
                origin[y] = origin.get(widest, widest.name)
    before = set(map(id, function.tensors()))
    graph = function.graph
    folded, graph.folded = graph.folded, -(1 << 62)  # no size limit: they will be variables
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
    """Renames a constant w_1 to w if the constant w from which it was computed no longer exists."""
    alive = {t.name for t in function.tensors()}
    for tensor in function.tensors():
        if tensor.data is None:
            continue
        while (found := _NUMBERED.fullmatch(tensor.name)) and found[1] in function._names and found[1] not in alive:
            alive.add(found[1])
            tensor.name = found[1]


def candidates(function: Function, parameters: Mapping[str, npt.ArrayLike] | None = None) -> dict[Tensor, bool]:
    """Maps each float constant of a function to True if "*" matches it, else to False. parameters: see `trainable`."""
    found: dict[Tensor, bool] = {}
    for node in function.nodes:
        for i, tensor in enumerate(node.inputs):
            if tensor is None or tensor.data is None or tensor.dtype not in FLOATS:
                continue
            weight = tensor.data.ndim > 0 and i not in traits.operands(node.op, "role", "setting")
            weight = weight and not (node.op == "map" and tensor.data.size == 1)
            weight = weight and not (node.op == "copy" and (i > 0 and node.attribute("kind") == "pad"))
            weight = weight and i not in traits.operands(node.op, "role", "state")
            weight = weight and not _is_filler(tensor, node.op in traits.PRODUCTS)
            if parameters is not None:
                weight = _names(tensor.name, parameters) or (weight and _computed(node, tensor.data, parameters))
            found[tensor] = found.get(tensor, False) or weight
    return found


def _is_filler(tensor: Tensor, of_product: bool) -> bool:
    """Whether a constant is a mask, or one repeated number, as exporters write it for zeros, ones and factors. Weights that
    have just been initialized can also be one repeated number, but an exporter keeps their names."""
    assert tensor.data is not None
    values = tensor.data.reshape(-1)
    if not np.isfinite(values).all():
        return True
    if values.size < 2:
        return False
    least = values.min()
    if least <= -1e4 and bool(((values == 0) | (values == least)).all()):
        return True
    return not of_product and bool((values == values[0]).all()) and _GENERATED.fullmatch(tensor.name) is not None


def _names(name: str, parameters: Mapping[str, npt.ArrayLike]) -> bool:
    numbered = _NUMBERED.fullmatch(name)
    return name in parameters or (numbered is not None and numbered[1] in parameters)


def _computed(node: Node, data: npt.NDArray[Any], parameters: Mapping[str, npt.ArrayLike]) -> bool:
    """Whether a constant was computed from parameters. In a product or a recurrent layer, all are. Elsewhere, its numbers
    must be those of a parameter, in any order."""
    if node.op in traits.PRODUCTS or traits.operands(node.op, "role", "state"):
        return True
    some = data.reshape(-1)[:: max(1, data.size // _SAMPLE)][:_SAMPLE]
    return any(np.isin(some, np.asarray(value)).all() for value in parameters.values())


def _choose(
    function: Function, patterns: list[str], parameters: Mapping[str, npt.ArrayLike] | None = None
) -> list[Tensor]:
    given = candidates(function, parameters)
    if not given and function.graph.variables:
        patterns = [p for p in patterns if p != "*"]  # all weights are variables already
    elif not given and patterns and any(isinstance(v, Function) for n in function.nodes for v in n.attributes.values()):
        raise UsageError(
            "the model has no float constants outside its branches and loops",
            code=101,
            tensor=function.name,
            hint="weights inside branches and loops stay constant; build those in Python with linnet.scan, "
            "while_loop and cond",
        )
    return matching(given, patterns, "float constant")


def matching(given: Mapping[Tensor, bool], patterns: Sequence[str], what: str) -> list[Tensor]:
    """The tensors whose names match. given: maps each tensor to True if "*" matches it, else to False. what: their
    kind, for the message. Raises UsageError with similar names if a pattern matches nothing."""
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
                f"no {what} matches {pattern!r}", code=102, tensor=pattern,
                expected=f"the name of one of the {len(names)}, or a pattern" if names else f"a model with a {what}",
                hint=f"similar names: {', '.join(near)}" if near else "the model has nothing to train",
            )  # fmt: skip
        chosen.update(dict.fromkeys(found))
    return list(chosen)


def freeze(graph: G, values: Mapping[str, npt.ArrayLike] | None = None, signature: str = "infer") -> G:
    """Returns a graph with only the signature "infer", in which variables that are never assigned become constants. It
    is as small and fast as a converted model.

    values: {variable name: array} to use instead of initial values, for example a `Store` after training. signature:
    the signature to keep, under the name "infer". Raises UsageError if the signature does not exist or a value has the
    wrong shape.
    """
    if signature not in graph.signatures:
        raise UsageError(
            f"the graph has no signature named '{signature}'", code=105, expected=", ".join(graph.signatures) or "one",
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
    from linnet.passes.affine import absorb, normalizations_to_maps

    for function in made.functions:
        for step in (remove_double, absorb, normalizations_to_maps):
            keeping_types(function, step)
    return run(made)


def current_value(variable: Variable, values: Mapping[str, npt.ArrayLike] | None) -> npt.NDArray[Any]:
    """The variable's value from `values`, or else its initial value. Raises UsageError if it has the wrong shape."""
    if values is None or variable.name not in values:
        return variable.value
    given = values[variable.name]
    value = np.ascontiguousarray(given).reshape(np.shape(given))
    if value.shape != variable.value.shape or value.dtype != variable.value.dtype:
        raise UsageError(
            "the value does not match its variable", code=104, tensor=variable.name,
            expected=f"{variable.value.dtype} {list(variable.value.shape)}", got=f"{value.dtype} {list(value.shape)}",
        )  # fmt: skip
    return value
