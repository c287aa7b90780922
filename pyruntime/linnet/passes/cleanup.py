"""Removes dead nodes and functions, common subexpressions, and copies and casts without effect.
Each pass works on one function in place and returns whether it changed anything. An output of a function is never
merged with another value. The reason is that a run may feed the output: then only the readers of the output may get the
fed value."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from linnet._generated.op_table import OPS
from linnet.builder.mapping import program_of
from linnet.ir import traits
from linnet.ir.dtypes import Quantization
from linnet.ir.function import Function, Node, Tensor, functions_of
from linnet.ir.graph import Graph
from linnet.ir.program import REGISTER, WORDS
from linnet.passes.rewrite import EQUAL, has_effect, join_sources, replace


def remove_dead(function: Function) -> bool:
    """Removes nodes whose outputs are not needed, and optional outputs that are not read. Assignments are kept."""
    needed = set(function.outputs)
    kept: list[Node] = []
    changed = False
    for node in reversed(function.nodes):
        if not has_effect(node) and not any(t in needed for t in node.outputs):
            changed = True
            continue
        least = sum(1 for o in OPS[node.op]["outputs"] if not o.get("optional") and not o.get("variadic"))
        if not any(o.get("variadic") for o in OPS[node.op]["outputs"]):
            while len(node.outputs) > max(least, 1) and node.outputs[-1] not in needed:
                node.outputs.pop()
                changed = True
        needed.update(t for t in node.inputs if t is not None)
        kept.append(node)
    function.nodes = kept[::-1]
    return changed


def remove_dead_functions(graph: Graph) -> None:
    """Removes functions that no signature reaches. In a graph without signatures, all are kept."""
    if not graph.signatures:
        return
    reached: dict[Function, None] = {}
    pending = [s.function for s in graph.signatures.values()]
    while pending:
        function = pending.pop()
        if function not in reached:
            reached[function] = None
            pending += functions_of(function)
    graph.functions = [f for f in graph.functions if f in reached]


def remove_double(function: Function, share: bool = True) -> bool:
    """Merges equal constants and equal computations. A node that has been merged has a mark in its provenance, because a
    run must not feed one of several equal tensors. share: False keeps equal constants apart, because they will be trained:
    two biases are equal only as long as both are zero."""
    changed = False
    constants: dict[Any, list[Tensor]] = {}  # alike, and perhaps equal
    nodes: dict[Any, Node] = {}
    table: dict[Tensor, Tensor] = {}
    kept: list[Node] = []
    given = set(function.outputs)
    sources: dict[Node, list[str]] = {}

    def canonical(tensor: Tensor) -> Tensor:
        tensor = table.get(tensor, tensor)
        if tensor in given or (tensor.variable is None and (tensor.data is None or not share)):
            return tensor
        alike = constants.setdefault(_value_key(tensor), [])
        first = next((other for other in alike if _same_value(other, tensor)), None)
        if first is None:
            alike.append(tensor)
        return tensor if first is None else first

    for node in function.nodes:
        inputs = [None if t is None else canonical(t) for t in node.inputs]
        changed |= any(a is not b for a, b in zip(inputs, node.inputs, strict=True))
        node.inputs = inputs
        key = _node_key(node)
        first = nodes.get(key) if key is not None else None
        if first is not None and not any(t in given for t in node.outputs):
            table.update(zip(node.outputs, first.outputs, strict=True))
            sources.setdefault(first, [first.source]).append(node.source)
            changed = True
            continue
        if key is not None:
            nodes.setdefault(key, node)
        kept.append(node)
    for node, every in sources.items():
        node.source = join_sources(EQUAL, *every)
    function.nodes = kept
    replace(function, table)
    return changed


def _quantization_key(quantization: Quantization | None) -> Any:
    if quantization is None:
        return None
    q = quantization
    return np.asarray(q.scale).tobytes(), np.asarray(q.zero).tobytes(), q.axis, q.bits


def _value_key(tensor: Tensor) -> Any:
    """A key that is equal for constants of equal value, and for reads of the same variable. For a large constant, the
    key contains only some of the bytes, because a digest of all bytes would take longer than reading the file."""
    if tensor.variable is not None:
        return "variable", tensor.variable.name
    assert tensor.data is not None
    content = _bytes_of(tensor)
    some = content[:: max(1, content.size // 61)].tobytes()
    return tensor.dtype, tensor.data.shape, some, _quantization_key(tensor.quantization)


def _bytes_of(tensor: Tensor) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(tensor.data).reshape(-1).view(np.uint8)


def _same_value(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors with the same key have the same value."""
    return a is b or a.data is b.data or np.array_equal(_bytes_of(a), _bytes_of(b))


def _node_key(node: Node) -> Any:
    """A key that is equal for nodes with the same result. None if this pass may not merge the node."""
    if has_effect(node):
        return None
    attributes = tuple(
        sorted((name, value) for name, value in node.attributes.items() if not isinstance(value, Function))
    )
    functions = tuple(id(value) for value in node.attributes.values() if isinstance(value, Function))
    outputs = tuple((t.dtype, _quantization_key(t.quantization)) for t in node.outputs)
    inputs = tuple(None if t is None else id(t) for t in node.inputs)
    return node.op, inputs, repr(attributes), functions, outputs, node.placement


def remove_identities(function: Function) -> bool:
    """Removes copies, casts and maps that return their input unchanged. If the node makes an output of the function, it
    is removed only if nothing else reads its input; the input then gets the output's name."""
    table: dict[Tensor, Tensor] = {}
    kept: list[Node] = []
    given, consumers = set(function.outputs), function.consumers()
    for node in function.nodes:
        node.inputs = [None if t is None else table.get(t, t) for t in node.inputs]
        if _changes_nothing(node):
            old, new = node.outputs[0], node.inputs[0]
            assert new is not None
            alone = new.node is not None and new not in given and consumers.get(new) == [node]
            if old not in given or alone:
                table[old] = new
                if new.shape is None:
                    new.shape = old.shape
                if old in given:
                    given.add(new)
                    new.name = old.name
                continue
        kept.append(node)
    function.nodes = kept
    replace(function, table)
    return bool(table)


_SHAPE_KEEPERS = frozenset(
    {"reshape", "expand", "tile", "squeeze", "unsqueeze"}
)  # if the shape is the same, the value is too


def _changes_nothing(node: Node) -> bool:
    x = node.inputs[0] if node.inputs else None
    if x is None or len(node.outputs) != 1 or node.op not in traits.POINTWISE | traits.COPIES:
        return False
    y = node.outputs[0]
    if x.dtype != y.dtype or _quantization_key(x.quantization) != _quantization_key(y.quantization):
        return False
    same_shape = x.static_shape is not None and x.static_shape == y.static_shape
    if node.op == "cast":
        return True
    if node.op == "map":
        if len(node.inputs) != 1 or len(node.attribute("program")) != 2 * WORDS:
            return False
        program = program_of(node)
        if program is None or program.stores[0].quantized:
            return False
        stored = program.code[program.stores[0].register]
        return stored.opcode == "load" and stored.kind == REGISTER[x.dtype]
    if node.op not in traits.COPIES:
        return False
    kind = node.attribute("kind")
    if kind == "identity" or (kind in _SHAPE_KEEPERS and same_shape):
        return True
    if kind == "transpose":
        perm = node.attribute("perm")
        return bool(perm) and list(perm) == list(range(len(perm)))
    if kind == "concat":
        return len(node.inputs) == 1
    if kind == "pad":
        pads = node.attribute("pads")
        if len(node.inputs) > 1 and node.inputs[1] is not None:
            if node.inputs[1].data is None:
                return False
            pads = node.inputs[1].data.reshape(-1).tolist()
        return not any(pads)
    if kind == "slice":
        steps = node.attribute("steps")
        if len(node.inputs) > 4 and node.inputs[4] is not None:
            if node.inputs[4].data is None:
                return False
            steps = node.inputs[4].data.reshape(-1).tolist()
        return same_shape and all(step > 0 for step in steps)
    return False
