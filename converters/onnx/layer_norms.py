"""Finds layer normalization that an exporter wrote as separate ops, and replaces it with one node. The pattern is (x -
mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) over trailing axes. The variance may also be mean(x^2) - mean(x)^2; these
two terms are too large for f16, and too close to each other for 8 bits. Scale and bias are included if they fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from linnet.builder.mapping import program_of
from linnet.ir import traits
from linnet.ir.function import Function, Node, Tensor
from linnet.passes.affine import only_reader
from linnet.passes.rewrite import join_sources, splice

Follower = Callable[[Node], "Node | None"]
FLOATS = ("f32", "f64")


def find_layer_norms(function: Function) -> None:
    """Replaces every occurrence. Nodes that become unused are removed later."""
    readers, given = function.consumers(), set(function.outputs)
    places: dict[Node, list[Node]] = {}
    for node in list(function.nodes):
        follower = partial(only_reader, readers=readers, given=given)
        found, scale = _match(node), None
        if found is None:
            found, scale = _match_moments(node)
        if found is None:
            continue
        x, first, epsilon, taken = found
        if not _closed(x, node, readers, given):
            continue
        if scale is None:
            scale, bias, last = _scale_and_bias(follower, node, x, first)
        else:
            bias, last = _following(follower, node, "add", x, first)
        function.emit("layer_norm", [x, scale, bias], {"axis": first, "epsilon": epsilon}, fold=False)
        fresh = function.nodes.pop()
        fresh.source = join_sources(*(n.source for n in (*taken, node, last)))
        fresh.outputs = list(last.outputs)
        fresh.outputs[0].node = fresh
        places[last] = [fresh]
    splice(function, places)


def _closed(x: Tensor, last: Node, readers: dict[Tensor, list[Node]], given: set[Tensor]) -> bool:
    """Whether the values between x and the last node stay inside the pattern. Otherwise, a run could feed one of them, and
    the new node would not read it."""
    inside, pending = {last}, [last]
    while pending:
        node = pending.pop()
        for t in node.inputs[:1] if node.op in traits.COPIES else node.inputs:
            if t is not None and t is not x and t.node is not None and t.node not in inside:
                inside.add(t.node)
                pending.append(t.node)
    return all(
        t not in given and all(reader in inside for reader in readers.get(t, ()))
        for node in inside - {last}
        for t in node.outputs
    )


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
    """(x, first axis, epsilon, nodes) if the node's output is a normalized x; otherwise None."""
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


def _peeled(value: Tensor | float | None) -> Tensor | float | None:
    """The value before copies that only change how it is broadcast."""
    while isinstance(value, Tensor) and value.node is not None and value.node.op in traits.COPIES:
        if value.node.attributes.get("kind") not in ("identity", "reshape", "expand", "squeeze", "unsqueeze"):
            return value
        value = value.node.inputs[0]
    return value


def _average(value: Tensor | float | None) -> tuple[Tensor, int, Node] | None:
    """(x, first axis, node) if the value is a mean over trailing axes: a mean reduction, or a sum that is divided by
    the count or multiplied by the inverse of the count."""
    value = _peeled(value)
    if not isinstance(value, Tensor) or value.node is None:
        return None
    node, share = value.node, 0.0
    for opcode in ("mul", "div"):
        found = _binary(value, opcode)
        if found is not None:
            number = found[1] if isinstance(found[1], float) else found[0]
            part = _peeled(found[0] if isinstance(found[1], float) else found[1])
            if not isinstance(part, Tensor) or not isinstance(number, float) or part.node is None or number == 0:
                return None
            node, share = part.node, number if opcode == "mul" else 1 / number
    if node.op != "reduce" or len(node.inputs) > 1 or node.attributes["kind"] != ("sum" if share else "mean"):
        return None
    x, axes = node.inputs[0], node.attributes["axes"]
    if x is None or x.rank is None or x.shape is None or not axes:
        return None
    first = min(a + x.rank if a < 0 else a for a in axes)
    sizes = x.shape[first:]
    if len(axes) != x.rank - first or not all(isinstance(d, int) for d in sizes):
        return None
    count = math.prod(d for d in sizes if isinstance(d, int))
    return (x, first, node) if not share or abs(share * count - 1) < 1e-4 else None


def _match_moments(node: Node) -> tuple[tuple[Tensor, int, float, list[Node]] | None, Tensor | None]:
    """Like `_match`, for (x - mean(x)) * (scale / sqrt(max(mean(x^2) - mean(x)^2, 0) + epsilon)). Also returns the
    scale."""
    nothing = None, None
    product = _binary(node.outputs[0], "mul") if node.op == "map" and node.outputs else None
    if product is None or node.outputs[0].dtype not in FLOATS:
        return nothing
    for one, other in ((product[0], product[1]), (product[1], product[0])):
        centred = _binary(one, "sub")
        factor = _peeled(other)
        mean = _average(centred[1]) if centred is not None else None
        if centred is None or mean is None or centred[0] is not mean[0]:
            continue
        x, first = mean[0], mean[1]
        scale = None
        scaled = _binary(factor, "mul")
        if scaled is not None:
            inverse: Tensor | float | None = next((v for v in scaled[:2] if _unary(_peeled(v), "reciprocal")), None)
            weight = scaled[1] if inverse is scaled[0] else scaled[0]
            scale = _fitting(weight, x, first)
            if inverse is None or scale is None:
                continue
            factor = _peeled(inverse)
        inverted = _unary(factor, "reciprocal")
        root = _unary(_peeled(inverted[0]), "sqrt") if inverted is not None else None
        shifted = _binary(_peeled(root[0]), "add") if root is not None else None
        if inverted is None or root is None or shifted is None:
            continue
        spread, epsilon = (shifted[0], shifted[1]) if isinstance(shifted[1], float) else (shifted[1], shifted[0])
        limited = _binary(_peeled(spread), "max")
        if limited is not None and 0.0 in limited[:2]:
            spread = limited[0] if limited[1] == 0.0 else limited[1]
        difference = _binary(_peeled(spread), "sub")
        if difference is None or not isinstance(epsilon, float) or not 0 < epsilon < 1:
            continue
        power, again = _average(difference[0]), _binary(_peeled(difference[1]), "mul")
        square = _binary(power[0], "mul") if power is not None else None
        if (
            power is None
            or square is None
            or again is None
            or square[0] is not x
            or square[1] is not x
            or power[1] != first
        ):
            continue
        means = [_average(part) for part in again[:2]]
        if any(found is None or found[0] is not x or found[1] != first for found in means) or not _rows_apart(
            centred[1], x, first
        ):
            continue
        return (
            x,
            first,
            epsilon,
            [mean[2], centred[2], square[2], power[2], difference[2], root[1], inverted[1]],
        ), scale
    return nothing


def _rows_apart(mean: Tensor | float, x: Tensor, first: int) -> bool:
    """Whether a mean is broadcast along the axes over which it was taken, and along no other."""
    if not isinstance(mean, Tensor) or mean.shape is None or x.shape is None or len(mean.shape) != len(x.shape):
        return False
    return mean.shape[:first] == x.shape[:first] and all(d == 1 for d in mean.shape[first:])


def _fitting(value: Tensor | float, x: Tensor, first: int) -> Tensor | None:
    """A constant as a tensor of the normalized shape; None if it has another shape, or a rank that x does not have."""
    if not isinstance(value, Tensor) or value.data is None or x.shape is None or value.dtype != x.dtype:
        return None
    if value.data.ndim > len(x.shape):
        return None
    shape = tuple(d for d in x.shape[first:] if isinstance(d, int))
    outer = value.data.shape[: max(0, value.data.ndim - len(shape))]
    if value.data.shape[len(outer) :] != shape or any(d != 1 for d in outer):
        return None
    return value if not outer else value.function.constant(value.data.reshape(shape), value.name)


def _scale_and_bias(follower: Follower, node: Node, x: Tensor, first: int) -> tuple[Tensor | None, Tensor | None, Node]:
    """The constant scale and bias that follow and have the normalized shape, and the last node of the pattern."""
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
    fits = _fitting(other, x, first)
    return (fits, reader) if fits is not None else (None, node)
