"""Finds layer normalization that an exporter wrote as separate ops, and replaces it with one node.
(x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) over trailing axes. Scale and bias are included if they fit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from linnet.builder.mapping import program_of
from linnet.ir.function import Function, Node, Tensor, emit
from linnet.passes.affine import only_reader
from linnet.passes.rewrite import join_sources, splice

Follower = Callable[[Node], "Node | None"]
FLOATS = ("f32", "f64")


def find_layer_norms(function: Function) -> None:
    """Replaces every occurrence. Nodes that become unused are removed later."""
    readers, given = function.consumers(), set(function.outputs)
    places: dict[Node, list[Node]] = {}
    for node in list(function.nodes):
        found = _match(node)
        if found is None:
            continue
        x, first, epsilon, taken = found
        follower = partial(only_reader, readers=readers, given=given)
        scale, bias, last = _scale_and_bias(follower, node, x, first)
        emit("layer_norm", [x, scale, bias], {"axis": first, "epsilon": epsilon}, function=function, fold=False)
        fresh = function.nodes.pop()
        fresh.source = join_sources(*(n.source for n in (*taken, node, last)))
        fresh.outputs = list(last.outputs)
        fresh.outputs[0].node = fresh
        places[last] = [fresh]
    splice(function, places)


def _formula(node: Node | None) -> tuple[str, list[Tensor | float]] | None:
    """The opcode and operands (tensors or numbers) of a map with one instruction; None for other nodes."""
    if node is None or node.op != "map" or len(node.outputs) != 1:
        return None
    program = program_of(node)
    if program is None or program.stores[0].quantized:
        return None
    work = program.code[program.stores[0].register]
    operands: list[Tensor | float] = []
    for register in work.args:
        source = program.code[register]
        tensor = node.inputs[source.operand] if source.opcode == "load" else None
        if tensor is not None:
            operands.append(tensor)
        elif source.opcode == "const":
            operands.append(float(source.number))
        else:
            return None
    return (work.opcode, operands) if operands else None


def _binary(value: Tensor | float | None, opcode: str) -> tuple[Tensor | float, Tensor | float, Node] | None:
    """(a, b, node) if the value is made by the map a `opcode` b."""
    if not isinstance(value, Tensor) or value.node is None:
        return None
    found = _formula(value.node)
    if found is None or found[0] != opcode or len(found[1]) != 2:
        return None
    return found[1][0], found[1][1], value.node


def _unary(value: Tensor | float | None, opcode: str) -> tuple[Tensor, Node] | None:
    if not isinstance(value, Tensor) or value.node is None:
        return None
    found = _formula(value.node)
    if found is None or found[0] != opcode or not isinstance(found[1][0], Tensor):
        return None
    return found[1][0], value.node


def _mean(value: Tensor | float | None) -> tuple[Tensor, int, Node] | None:
    """(x, first axis, node) if the value is a mean over trailing axes with kept dimensions."""
    node = value.node if isinstance(value, Tensor) else None
    if node is None or node.op != "reduce" or node.attributes["kind"] != "mean" or not node.attributes["keep_dims"]:
        return None
    x = node.inputs[0]
    axes = node.attributes["axes"]
    if x is None or x.rank is None or len(node.inputs) > 1 or not axes:
        return None
    found = sorted(a + x.rank if a < 0 else a for a in axes)
    return (x, found[0], node) if found == list(range(found[0], x.rank)) else None


def _match(node: Node) -> tuple[Tensor, int, float, list[Node]] | None:
    """(x, first axis, epsilon, nodes) if the node's output is a normalized x."""
    division = _binary(node.outputs[0], "div") if node.op == "map" and node.outputs else None
    if division is None or node.outputs[0].dtype not in FLOATS:
        return None
    root = _unary(division[1], "sqrt")
    centred = _binary(division[0], "sub")
    if root is None or centred is None:
        return None
    shifted = _binary(root[0], "add")
    if shifted is None:
        return None
    variance, epsilon = shifted[0], shifted[1]
    if isinstance(variance, float):
        variance, epsilon = epsilon, variance
    spread = _mean(variance)
    if spread is None or not isinstance(epsilon, float) or not 0 < epsilon < 1:
        return None
    square = _binary(spread[0], "mul")
    if square is None or square[0] is not division[0] or square[1] is not division[0]:
        return None
    x, mean = centred[0], _mean(centred[1])
    if mean is None or mean[0] is not x or mean[1] != spread[1] or not isinstance(x, Tensor):
        return None
    return x, mean[1], epsilon, [mean[2], centred[2], square[2], spread[2], shifted[2], root[1]]


def _scale_and_bias(follower: Follower, node: Node, x: Tensor, first: int) -> tuple[Tensor | None, Tensor | None, Node]:
    """The constant scale and bias that follow with the normalized shape, and the last node included."""
    scale, at = _following(follower, node, "mul", x, first)
    if scale is None:
        return None, None, node
    bias, last = _following(follower, at, "add", x, first)
    return scale, bias, last


def _following(follower: Follower, node: Node, opcode: str, x: Tensor, first: int) -> tuple[Tensor | None, Node]:
    y, reader = node.outputs[0], follower(node)
    if reader is None:
        return None, node
    found = _binary(reader.outputs[0], opcode)
    if found is None or x.shape is None:
        return None, node
    other = found[1] if found[0] is y else found[0]
    fits = isinstance(other, Tensor) and other.data is not None and other.shape == x.shape[first:]
    return (other, reader) if fits and isinstance(other, Tensor) and other.dtype == x.dtype else (None, node)
