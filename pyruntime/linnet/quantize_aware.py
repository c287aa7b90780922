"""Quantization-aware training: a graph that rounds while it trains as its integer form will.
The quantizer decides which tensors are integers; `fake_quantize` stands at exactly these, and `linnet.quantize` takes the
ranges that were trained. Scheme and straight-through gradients: Jacob et al. 2018, section 3."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from linnet import ops
from linnet.calibrate import Feeds, Range
from linnet.errors import UsageError
from linnet.graph import Graph, Node, Tensor
from linnet.mapping import Expr, pointwise
from linnet.passes.weights import current_value, declare, trainable
from linnet.quantization_table import Table
from linnet.quantize import KEY, LIMITS, Quantizer, weight_axis, weight_limit
from linnet.straight_through import on_grid, stop_gradient

FLOAT = "float"  # the signature of a quantize_aware graph that rounds nothing


def quantize_aware(
    graph: Graph,
    calibration: Iterable[Feeds],
    dtype: str = "i8",
    *,
    weight_bits: int = 8,
    ranges: str = "average",
    momentum: float = 0.99,
    values: Mapping[str, npt.ArrayLike] | None = None,
    variables: str | Sequence[str] = "*",
) -> Graph:
    """A graph to train whose forward pass rounds weights and activations as `linnet.quantize(..., dtype)` will.

    graph: with the signature "infer", trained in floats as a rule; batch norms are folded into the weights. calibration: typical
    inputs {name: array}, from which activation ranges begin. weight_bits: 2 to 8. ranges: "average" moves them with each
    training step (side updates: new = momentum * old + (1 - momentum) * the batch's), "learned" makes them trainable
    variables. values: of the graph's variables, for example a `Store`. variables: which weights to train, as `trainable` takes
    them. The result has its content in `main` (`find`), like an imported graph ("infer" rounds,
    the signature "float" does not); build the loss on it, train, and call
    `linnet.quantize(result, values=store)`: no calibration is needed. Raises UsageError for a bad argument or batch.
    """
    if (
        dtype not in LIMITS
        or not 2 <= weight_bits <= 8
        or ranges not in ("average", "learned")
        or not 0 <= momentum < 1
    ):
        raise UsageError(
            "quantize_aware cannot do this", code=101,
            expected="dtype i8 or i16, 2 to 8 weight_bits, ranges 'average' or 'learned', 0 <= momentum < 1",
            got=f"dtype={dtype!r}, weight_bits={weight_bits}, ranges={ranges!r}, momentum={momentum}",
        )  # fmt: skip
    made = trainable(deployable(graph, values), variables)
    signature = made.signatures["infer"]
    quantizer, tensors = _decide(made, dtype)
    quantizer.calibrate(calibration, False, None)
    made.signatures[FLOAT] = made.signatures.pop("infer")  # over the same variables: what is quantized in the end
    made.signatures[FLOAT].function.name = FLOAT
    inserter = _Inserter(made, quantizer, tensors, ranges == "learned", momentum, weight_bits)
    inserter.run()
    made.metadata[KEY] = json.dumps({"dtype": dtype, "weight_bits": weight_bits, "activations": inserter.activations})
    declare(made, signature.inputs, signature.outputs)
    return made


def fake_quantize(x: Tensor, low: Tensor, high: Tensor, dtype: str = "i8") -> Tensor:
    """x rounded to what integers of `dtype` that cover [low, high] and zero can hold: scale and zero point as
    `linnet.quantize` chooses them. low, high: f32 scalars. The gradient of x is 1 inside the range and 0 outside, where it is
    that of low and high."""
    least, most = LIMITS[dtype]

    def parameters(a: Expr, b: Expr) -> tuple[Expr, Expr]:
        a, b = a.cast("f64").min(0.0), b.cast("f64").max(0.0)  # f64, as the quantizer counts: the same bits
        if dtype == "i16":
            size = (-a).max(b) / float(most)
            return (size < 1e-30).select(1.0, size).cast("f32"), size.cast("f32") * 0.0
        size = (b - a) / float(most - least)
        zero = (float(least) - a / size).unary("round").max(float(least)).min(float(most))
        tiny = size < 1e-30
        return tiny.select(1.0, size).cast("f32"), tiny.select(0.0, zero).cast("f32")

    scale, zero = (stop_gradient(t) for t in pointwise([low, high], parameters, ["f32", "f32"]))

    def clipped(v: Expr, a: Expr, b: Expr) -> Expr:
        return b.max(0.0).min(
            a.min(0.0).max(v)
        )  # of equal operands the second has the gradient: x, at the ends of the range

    inside = pointwise([x, low, high], clipped, "f32")
    return on_grid(inside, scale, zero, least, most)


def fake_quantize_weights(w: Tensor, axis: int | None, bits: int = 8) -> Tensor:
    """w rounded to symmetric integers of `bits` bits, with a scale per slice of `axis`; its gradient passes."""
    rank, limit = len(w.static_shape or ()), weight_limit(bits)
    rest = [a for a in range(rank) if a != axis]
    peak = ops.reduce(pointwise([w], abs, "f32"), kind="max", axes=rest if axis is not None else [], keep_dims=True)
    scale = stop_gradient(pointwise([peak], lambda p: (p / float(limit) >= 1e-30).select(p / float(limit), 1.0), "f32"))
    return on_grid(w, scale, 0.0, -limit, limit)


def deployable(graph: Graph, values: Mapping[str, npt.ArrayLike] | None = None) -> Graph:
    """The inference graph in constants, without fake quantization if it has any."""
    if KEY not in graph.metadata:
        return graph.freeze(values)
    made = graph.freeze(values, FLOAT)
    del made.metadata[KEY]
    return made


def trained_ranges(graph: Graph, values: Mapping[str, npt.ArrayLike] | None) -> dict[str, Range]:
    """The ranges of a quantize_aware graph by the names of the tensors."""
    found = json.loads(graph.metadata.get(KEY, '{"activations": []}'))
    table = {}
    for entry in found["activations"]:
        low, high = (float(current_value(graph.variables[entry[end]], values)) for end in ("low", "high"))
        table[entry["tensor"]] = Range(min(low, high), max(low, high))
    return table


def _decide(graph: Graph, dtype: str) -> tuple[Quantizer, dict[Tensor, Tensor]]:
    """The quantizer of the graph with its variables as constants, and which tensor of `main` stands for each of its own."""
    plain = Graph()
    plain.variables = graph.variables
    function = plain.function("infer")
    function.fill(graph.main)
    for tensor in function.tensors():
        if tensor.variable is not None:
            tensor.data, tensor.variable = tensor.variable.value, None
    signature = graph.signatures["infer"]
    plain.signature("infer", function, signature.inputs, signature.outputs)
    return Quantizer(plain, dtype, Table()), dict(zip(function.tensors(), graph.main.tensors(), strict=True))


class _Inserter:
    """Puts fake quantization where the quantizer stores integers, and notes where."""

    def __init__(
        self,
        graph: Graph,
        quantizer: Quantizer,
        tensors: dict[Tensor, Tensor],
        learned: bool,
        momentum: float,
        bits: int,
    ) -> None:
        self.graph, self.function, self.quantizer, self.tensors = graph, graph.main, quantizer, tensors
        self.learned, self.momentum, self.bits = learned, momentum, bits
        self.activations: list[dict[str, str]] = []
        self.before: dict[Tensor | None, list[Node]] = {}  # producer's tensor: the nodes that follow it
        self.ends: dict[Tensor, tuple[Tensor, Tensor]] = {}  # root of a group: its range
        self.seen: dict[Tensor, list[Tensor]] = {}  # root of a group: what is observed of it

    def run(self) -> None:
        q, nodes = self.quantizer, list(self.function.nodes)
        own = dict(zip(q.old.nodes, nodes, strict=True))
        consumers = self.function.consumers()
        following: dict[Node | None, list[Node]] = {}
        for old in q.old.tensors():
            dtype = q.stored.get(old)
            if dtype is None or (old.node is not None and old.node in q.passing and old.node.op == "copy"):
                continue
            x = self.tensors[old]
            made, start = self._fake(old, x, dtype), len(nodes)
            readers = consumers.get(x, [])
            if old.node is None:  # an input stays float for those that compute in floats
                integer = {own[n] for n in (*q.integer_nodes, *q.passing)}
                readers = [n for n in readers if n in integer]
            for node in readers:
                node.inputs = [made if t is x else t for t in node.inputs]
            if x.node is not None:
                self.function.outputs = [made if t is x else t for t in self.function.outputs]
            following.setdefault(x.node, []).extend(self.function.nodes[start:])
            del self.function.nodes[start:]
        for old_node in q.integer_nodes:
            w, node = old_node.inputs[1], own[old_node]
            if w is None or w.data is None:
                continue
            x = self.tensors[w]
            made, start = fake_quantize_weights(x, weight_axis(old_node, w.data.ndim), self.bits), len(nodes)
            node.inputs = [node.inputs[0], made, *node.inputs[2:]]
            following.setdefault(None, []).extend(self.function.nodes[start:])
            del self.function.nodes[start:]
        ordered = list(following.get(None, []))
        for node in nodes:
            ordered += [node, *following.get(node, [])]
        self.function.nodes = ordered
        if not self.learned:
            self._observe()

    def _fake(self, old: Tensor, x: Tensor, dtype: str) -> Tensor:
        root = self.quantizer.root(old)
        if root not in self.ends:
            name, seen = self.tensors[root].name, self.quantizer.ranges.get(root, Range())
            bounds = (0.0, 0.0) if seen.empty else (seen.low, seen.high)
            variables = [
                self.graph.variable(f"{name}/{end}", np.float32(value), trainable=self.learned)
                for end, value in zip(("low", "high"), bounds, strict=True)
            ]
            self.ends[root] = (self.function.read(variables[0]), self.function.read(variables[1]))
        low, high = self.ends[root]
        assert low.variable is not None and high.variable is not None
        self.seen.setdefault(root, []).append(x)
        self.activations.append({"tensor": x.name, "low": low.variable.name, "high": high.variable.name})
        made = fake_quantize(x, low, high, dtype)
        for tensor in self.tensors[root], made:  # of the group, the root may be another tensor
            tensor.shape = tensor.shape if tensor.shape is not None else x.shape
        return made

    def _observe(self) -> None:
        """Ranges follow the batches: side updates of whatever is trained through them."""
        keep = self.momentum
        for root, tensors in self.seen.items():
            for kind, end in zip(("min", "max"), self.ends[root], strict=True):
                parts = [ops.reduce(t, kind=kind, keep_dims=False) for t in tensors]

                def following(old: Expr, *new: Expr, kind: str = kind) -> Expr:
                    most = new[0]
                    for other in new[1:]:
                        most = most.binary(kind, other)
                    return old * keep + most * (1.0 - keep)

                assert end.variable is not None
                self.graph.side_update(end.variable, pointwise([end, *parts], following, "f32"), along=tensors[-1])


__all__ = ["deployable", "fake_quantize", "fake_quantize_weights", "quantize_aware", "trained_ranges"]
