"""Which layers get more bits, decided by one cost. Each part of the network is quantized alone to measure the error that it adds.
The changes of schemes with the largest gain for their cost in time and bytes are made, until the outputs are near enough."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from linnet.ir import traits
from linnet.ir.function import Node
from linnet.quantization.costs import Cost
from linnet.quantization.judge import Nearness
from linnet.quantization.scheme import INTEGER_OPS
from linnet.quantization.table import Row, Table, TensorRow

PARTS = 24  # that are quantized alone
_HOT = 8  # parts whose error with wider activations is measured, too
_MOST = 8  # assignments that are measured before layers are given back
_GIVEN_BACK = 8  # of the parts that got more bits, and then of the layers: the costly ones are tried without
_FEW = 4  # samples to compare the parts by
_NEAR = 1.2  # times the smallest excess, which a cheaper assignment may leave
_BYTES = 0.25  # the weight of a byte in the cost, as a share of the float graph, where that of time is 1
_FREE = 1e-4  # the least cost of a change
_SLIGHT = 2e-3  # the cost of a change that is not worth a try to do without
_USELESS = 0.1  # of the power of what changes in an output: with such an error it says little
AS_LONG = 1.02  # times what f32 takes: the model of time is not nearer than this
_NEARER = 10  # times, for an assignment that misses the limits, too
_FARTHER = 10  # times the limits, for floats that spare an integer graph from being slower than f32
_CHEAPER = 0.98  # of the time: a change that keeps the error must save so much
_WEIGHT = {"w8a8": 1, "i8": 1, "w8a16": 1, "w16a16": 2, "w16": 2, "f16": 2, "bf16": 2, "f32": 4}  # bytes of a weight


class Limits(NamedTuple):
    """What an assignment may cost at most; narrow: the least share of products that stay in the narrow dtype."""

    ms: float = math.inf
    bytes: float = math.inf
    narrow: float = 0.0

    def permit(self, cost: Cost, dtype: str) -> bool:
        """Whether the cost is within the limits, with a little room for rounding."""
        return cost.ms <= self.ms * 1.001 and cost.bytes <= self.bytes and cost.share(dtype) >= self.narrow - 1e-6


class Point(NamedTuple):
    """An assignment and what it gives. schemes: of the layers that do not compute in the graph's dtype. how: in a few
    words."""

    schemes: Mapping[str, str]
    near: Nearness
    cost: Cost
    how: str = ""


class Layer(NamedTuple):
    """A layer whose scheme can be chosen. macs: its products; weights: the number of its weights."""

    name: str
    macs: float
    weights: int


Attempt = Callable[[Table, "int | None"], "tuple[Nearness, Cost]"]


def layer(node: Node, name: str) -> Layer:
    """A node as a layer. The number of products is known as far as shapes are. It is too high for a transposed
    convolution."""
    w = node.inputs[1] if node.op in INTEGER_OPS and len(node.inputs) > 1 else None
    shape = node.outputs[0].static_shape
    if w is None or w.data is None or shape is None:
        return Layer(name, 1.0, 0 if w is None or w.data is None else w.data.size)
    axis = traits.weight_axis(node.op, node.attributes, w.data.ndim)
    each = 1.0 if axis is None else float(math.prod(shape) * w.data.size / w.data.shape[axis])
    return Layer(name, each, w.data.size)


def rows(schemes: Mapping[str, str]) -> list[Row | TensorRow]:
    """A row for each layer."""
    return [Row(_literal(name), scheme) for name, scheme in schemes.items()]


def _literal(name: str) -> str:
    """The name as a pattern that matches it alone."""
    return "".join(f"[{c}]" if c in "[*?" else c for c in name)


@dataclasses.dataclass(frozen=True)
class Network:
    """What an Assigner knows of a network. layers: those whose scheme can change. user: rows that always hold. dtype: of the
    graph. ladder: the schemes that a layer may get instead, in which the error falls. attempt: makes a graph with a table,
    and says how near it comes (on some samples only, if a number is given) and what it costs. prices: from a scheme to
    {layer: ms}. plain: the cost of the float graph."""

    layers: Sequence[Layer]
    user: Table
    dtype: str
    ladder: Sequence[str]
    attempt: Attempt
    prices: Callable[[str], Mapping[str, float]]
    plain: Cost


class Assigner:
    """Looks for the cheapest assignment of schemes to layers that comes near enough. best: whether the most exact assignment
    within the limits is looked for instead."""

    def __init__(self, network: Network, limits: Limits, best: bool = False) -> None:
        self.layers, self.user, self.dtype = list(network.layers), network.user, network.dtype
        self.ladder, self.attempt, self.prices = network.ladder, network.attempt, network.prices
        self.plain, self.limits, self.best = network.plain, limits, best
        self.points: list[Point] = []
        self.walk: tuple[Point, list[list[Layer]], list[float], list[tuple[int, str, float]]] | None = None
        self.macs = {one.name: one.macs for one in self.layers}

    def table(self, schemes: Mapping[str, str]) -> Table:
        """The table of an assignment; the user's rows come last, so that they hold."""
        return Table([*rows(schemes), *self.user.rows])

    def point(self, schemes: Mapping[str, str], how: str = "") -> Point:
        """Measures an assignment."""
        made = Point(dict(schemes), *self.attempt(self.table(schemes), None), how)
        self.points.append(made)
        return made

    # ---- time ------------------------------------------------------------------------------------------------------

    def lighter(self, first: Point, scheme: str, others: Sequence[str] = (), narrow: float = 0.0) -> Point:
        """Gives the layers that are dearer in the graph's dtype than in `scheme` this scheme, if the whole graph becomes
        faster by it and comes at least as near. narrow: the share of products that stay in the graph's dtype. others:
        nodes that are no products; with them, all layers are tried in the scheme, so that no value is converted, and a
        graph that is slower than the float graph may lose a little by it."""
        now, then = first.cost.layers, self.prices(scheme)
        gains = {one: now.get(one.name, 0.0) - then.get(one.name, 0.0) for one in self.layers}
        taken, spare = {}, first.cost.share(self.dtype) - narrow if narrow else math.inf
        total = sum(self.macs.values()) or 1.0
        for one, gain in sorted(gains.items(), key=lambda entry: -entry[1]):
            if gain <= 0.01 * now.get(one.name, 0.0) or first.schemes.get(one.name) == scheme:
                continue
            moved = 0.0 if one.name in first.schemes else one.macs / total
            if moved <= spare + 1e-9:
                spare -= moved
                taken[one.name] = scheme
        if not taken:
            return first
        made = [self.point({**first.schemes, **taken}, f"{scheme} where it is faster")]
        if others:
            made.append(self.point(dict.fromkeys((*self.macs, *others), scheme), f"all layers in {scheme}"))
        most = self.plain.ms * AS_LONG
        faster = [one for one in made if one.cost.ms < first.cost.ms * _CHEAPER and one.cost.bytes <= self.limits.bytes]
        near = [one for one in faster if one.near.excess <= max(1.0, first.near.excess)]
        if others and first.cost.ms > most and not any(one.cost.ms <= most for one in near):
            near = [one for one in faster if one.cost.ms <= most and one.near.excess <= _FARTHER] or near
        return min(near, key=lambda one: one.cost.ms, default=first)

    # ---- error -----------------------------------------------------------------------------------------------------

    def near_enough(self, first: Point) -> Point:
        """The cheapest assignment that is near enough, or the nearest one within the limits if it halves the excess or
        the error; `first` if there is none. Layers in the graph's dtype get more bits, or those in f16 if `first` has no
        others."""
        groups = self._groups(first)
        if not groups:
            return first
        others, base = Row("*", "f32"), first.schemes.get(groups[0][0].name, self.dtype)

        def alone(group: Sequence[Layer], scheme: str) -> float:
            schemes = {one.name: scheme for one in group}
            return self.attempt(Table([others, *rows(schemes), *self.user.rows]), _FEW)[0].error

        errors = [alone(group, base) for group in groups]
        self.walk = (first, groups, errors, self._moves(first, groups, errors, alone))
        self._walk(*self.walk)
        kept = self.pick(first)
        reached = kept is not first and kept.near.excess <= 1.0 and not self.best
        return self._given_back(first, kept) if reached else kept

    def beyond(self, first: Point, kept: Point, narrow: float, others: Sequence[str] = ()) -> Point:
        """Goes on without limits, to learn what it takes to come near enough. Returns an assignment that takes no more time
        than the float graph, or than `first` in 8 bits, and keeps the share `narrow` of products in the graph's dtype, if
        there is one. Outputs that are useless in `kept` get more bits even if a smaller share stays. others: nodes that are
        no products, which become floats if products alone are not enough. Otherwise returns `kept`."""
        useless = kept.near.error > _USELESS
        most = max(first.cost.ms if self.dtype == "i8" else 0.0, self.plain.ms * AS_LONG)
        permitted = Limits(most, self.limits.bytes, 0.0 if useless else narrow)
        bounds, self.limits = self.limits, Limits()

        def reached(limits: Limits) -> bool:
            return any(one.near.excess <= 1.0 and limits.permit(one.cost, self.dtype) for one in self.points)

        if self.walk is not None and not reached(Limits()):
            self._walk(*self.walk)
        if self.walk is not None and useless and others and not reached(permitted):
            start, groups, errors, moves = self.walk
            halved = start._replace(schemes={**start.schemes, **dict.fromkeys(others, "f16")})
            self._walk(halved, groups, errors, moves)
        self.limits = bounds
        found = [one for one in self.points if permitted.permit(one.cost, self.dtype)]
        best = min((one.near.excess for one in found), default=math.inf)
        enough = max(1.0, _NEAR * best) if useless and best < kept.near.excess / _NEARER else 1.0
        found = [one for one in found if one.near.excess <= enough]
        return min(found, key=lambda one: self._cost(one.cost), default=kept)

    def _groups(self, first: Point) -> list[list[Layer]]:
        """The layers that can get more bits, in at most `PARTS` groups of neighbours."""
        free = [one for one in self.layers if one.name not in first.schemes]
        if not free and {"f32", "w16"} & set(self.ladder):
            free = [one for one in self.layers if first.schemes[one.name] == "f16"]
        size = -(-len(free) // PARTS) or 1
        return [free[i : i + size] for i in range(0, len(free), size)]

    def _moves(
        self,
        first: Point,
        groups: Sequence[Sequence[Layer]],
        errors: Sequence[float],
        alone: Callable[[Sequence[Layer], str], float],
    ) -> list[tuple[int, str, float]]:
        """(part, scheme, error that it takes away), those with the largest gain for their cost first. A part may get two
        schemes, one after the other."""
        order = sorted(range(len(groups)), key=lambda i: -errors[i])
        found: list[tuple[float, int, str, float]] = []
        for rank, i in enumerate(order):
            steps: list[tuple[float, float, str]] = []  # (cost, gain, scheme) of each scheme, on its own
            for scheme in self.ladder:
                if scheme == first.schemes.get(groups[i][0].name):
                    continue
                middle = scheme == "w8a16" and len(self.ladder) > 1
                if middle and rank >= _HOT:
                    continue
                gain = errors[i] - (alone(groups[i], scheme) if middle else 0.0)
                steps.append((self._price(first, groups[i], scheme), gain, scheme))
            cost = gain = 0.0
            while steps:  # along the hull: the next step is the one with the most further gain for its further cost
                slope, price, more, scheme = max(((g - gain) / max(c - cost, _FREE), c, g, s) for c, g, s in steps)
                if slope <= 0:
                    break
                found.append((slope, i, scheme, more - gain))
                cost, gain = price, more
                steps = [step for step in steps if step[1] > gain]
        return [(i, scheme, gain) for _, i, scheme, gain in sorted(found, key=lambda move: -move[0])]

    def _price(self, first: Point, group: Sequence[Layer], scheme: str) -> float:
        """What a scheme costs more than the graph's dtype, as a share of the float graph."""
        then, now = self.prices(scheme), first.cost.layers
        ms = sum(then.get(one.name, 0.0) - now.get(one.name, 0.0) for one in group)
        held = sum(one.weights * (_WEIGHT[scheme] - _WEIGHT.get(self.dtype, 1)) for one in group)
        return max(ms, 0.0) / (self.plain.ms or 1.0) + _BYTES * max(held, 0) / (self.plain.bytes or 1)

    def _walk(
        self,
        first: Point,
        groups: Sequence[Sequence[Layer]],
        errors: Sequence[float],
        moves: Sequence[tuple[int, str, float]],
    ) -> None:
        """Makes moves in their order, and measures when the error should be low enough by then; then half of that, and so
        on."""
        total, macs = sum(errors) or 1.0, sum(self.macs.values()) or 1.0
        chosen: dict[int, str] = {}
        left, share, ms, measured = total, first.cost.share(self.dtype), first.cost.ms, 0
        aim = 0.5 if self.best else 1.0 / max(first.near.excess, 1.0)
        changed = False
        for number, (i, scheme, gain) in enumerate(moves):
            now, then = self.prices(chosen[i]) if i in chosen else first.cost.layers, self.prices(scheme)
            more = sum(then.get(one.name, 0.0) - now.get(one.name, 0.0) for one in groups[i])
            moved = 0.0 if i in chosen else sum(one.macs for one in groups[i] if one.name not in first.schemes) / macs
            faster = more < 0 or ms + more <= self.limits.ms
            if faster and (not self.limits.narrow or share - moved >= self.limits.narrow):
                chosen[i], changed = scheme, True
                left, ms, share = left - gain, ms + more, share - moved
            if changed and (left / total <= aim or number == len(moves) - 1):
                schemes = {one.name: chosen[k] for k in sorted(chosen) for one in groups[k]}
                made = self.point({**first.schemes, **schemes}, "more bits where they gain most")
                changed, aim, measured = False, min(aim, left / total) / 2, measured + 1
                if (made.near.excess <= 1.0 and not self.best) or measured == _MOST:
                    return

    def pick(self, first: Point) -> Point:
        """The cheapest of the measured assignments within the limits that is near enough, or about as near as the nearest.
        Those that do not come much nearer than `first` must be cheaper."""
        allowed = [one for one in self.points if self.limits.permit(one.cost, self.dtype)]
        if self.best:
            return min([first, *allowed], key=lambda one: one.near.error)
        best = min((one.near.excess for one in allowed), default=first.near.excess)
        enough, half = max(1.0, _NEAR * best), max(1.0, first.near.excess / 2)
        kept = [
            one
            for one in allowed
            if one.near.excess <= enough
            and (
                one.near.excess <= half
                or one.near.error <= first.near.error / 2
                or self._cost(one.cost) < self._cost(first.cost)
            )
        ]
        return min(kept, key=lambda one: self._cost(one.cost)) if kept else first

    def _cost(self, cost: Cost) -> float:
        return cost.ms / (self.plain.ms or 1.0) + _BYTES * cost.bytes / (self.plain.bytes or 1)

    def _given_back(self, first: Point, kept: Point) -> Point:
        """Tries to do without the costly changes: first without parts, then without single layers."""
        for groups in (self._groups(first), [[one] for one in self.layers]):
            held = [
                [one for one in group if kept.schemes.get(one.name) != first.schemes.get(one.name)] for group in groups
            ]
            dear = sorted(filter(None, held), key=lambda group: -self._saved(first, kept, group))
            for group in dear[:_GIVEN_BACK]:
                if self._saved(first, kept, group) <= _SLIGHT:
                    break
                names = {one.name for one in group}
                rest = {name: scheme for name, scheme in kept.schemes.items() if name not in names}
                rest |= {name: first.schemes[name] for name in names if name in first.schemes}
                fewer = self.point(rest, "more bits where they gain most")
                if fewer.near.excess <= 1.0 and self._cost(fewer.cost) < self._cost(kept.cost):
                    kept = fewer
        return kept

    def _saved(self, first: Point, kept: Point, group: Sequence[Layer]) -> float:
        return sum(self._price(first, [one], kept.schemes[one.name]) for one in group)
