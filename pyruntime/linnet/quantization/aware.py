"""Quantization-aware training: during training, the graph rounds values as its integer form will do later. The quantizer
decides which tensors become integers. `fake_quantize` is inserted exactly there, and `linnet.quantize` uses the ranges
that were trained. The scheme and the straight-through gradients are those of Jacob et al. 2018, section 3."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from linnet.builder import ops
from linnet.builder.mapping import pointwise
from linnet.builder.straight_through import on_grid, stop_gradient
from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.ir.dtypes import DTypeLike, named
from linnet.ir.expr import Expr
from linnet.ir.function import Node, Tensor
from linnet.passes.attention import without_attention
from linnet.passes.weights import current_value, declare, trainable
from linnet.quantization.calibrate import Feeds, Range
from linnet.quantization.decisions import Decisions
from linnet.quantization.scheme import KEY, LIMITS, weight_axis, weight_limit
from linnet.quantization.table import Table

FLOAT = "float"  # signature of a quantize_aware graph that does not round


def quantize_aware(
    graph: Graph,
    calibration: Iterable[Feeds],
    dtype: DTypeLike = "i8",
    *,
    weight_bits: int = 8,
    ranges: str = "average",
    momentum: float = 0.99,
    values: Mapping[str, npt.ArrayLike] | None = None,
    variables: str | Sequence[str] = "*",
) -> Graph:
    """Returns a graph for training. Its forward pass rounds weights and activations as `linnet.quantize(..., dtype)`
    will.

    graph: has the signature "infer" and is usually already trained in floats. Batch norms are folded into the weights.
    calibration: typical inputs {name: array}, which give the initial activation ranges.
    weight_bits: 2 to 8.
    ranges: "average" makes each training step move the ranges towards those of its batch (side updates: new = momentum
        * old + (1 - momentum) * range of the batch). With "learned", the ranges are trainable variables.
    values: values of the graph's variables, for example a `Store`.
    variables: which weights to train, as for `linnet.passes.trainable`. The content of the result is in `main`
        (`find`), as in an imported graph; "infer" rounds, and the signature "float" does not. Build the loss on `main`,
        train, and call `linnet.quantize(result, values=store)`, which then needs no calibration.
    Raises UsageError for a bad argument or batch.
    """
    dtype = named(dtype)
    if (
        dtype not in LIMITS
        or not 2 <= weight_bits <= 8
        or ranges not in ("average", "learned")
        or not 0 <= momentum < 1
    ):
        raise UsageError(
            "quantize_aware does not support these arguments", code=101,
            expected="dtype i8 or i16, 2 to 8 weight_bits, ranges 'average' or 'learned', 0 <= momentum < 1",
            got=f"dtype={dtype!r}, weight_bits={weight_bits}, ranges={ranges!r}, momentum={momentum}",
        )  # fmt: skip
    made = trainable(deployable(graph, values), variables)
    signature = made.signatures["infer"]
    quantizer, tensors = _decide(made, dtype)
    quantizer.calibrate(calibration, False, None)
    made.signatures[FLOAT] = made.signatures.pop(
        "infer"
    )  # uses the same variables; linnet.quantize later reads this signature
    made.signatures[FLOAT].function.name = FLOAT
    inserter = _Inserter(made, quantizer, tensors, ranges == "learned", momentum, weight_bits)
    inserter.run()
    made.metadata[KEY] = json.dumps({"dtype": dtype, "weight_bits": weight_bits, "activations": inserter.activations})
    declare(made, signature.inputs, signature.outputs)
    return made


def fake_quantize(x: Tensor, low: Tensor, high: Tensor, dtype: str = "i8") -> Tensor:
    """Rounds x to the values that `dtype` can represent if its range is [low, high], extended to include zero.
    Scale and zero point are chosen as in `linnet.quantize`. low, high: f32 scalars. The gradient passes to x inside the
    range; outside, it passes to low and high."""
    least, most = LIMITS[dtype]

    def parameters(a: Expr, b: Expr) -> tuple[Expr, Expr]:
        a, b = a.cast("f64").min(0.0), b.cast("f64").max(0.0)  # f64 as in the quantizer, for the same bits
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
        )  # if the operands are equal, the second gets the gradient: x at the ends of the range

    inside = pointwise([x, low, high], clipped, "f32")
    return on_grid(inside, scale, zero, least, most)


def fake_quantize_weights(w: Tensor, axis: int | None, bits: int = 8) -> Tensor:
    """Rounds w to symmetric integers of `bits` bits with one scale per slice of `axis`. The gradient passes through."""
    rank, limit = len(w.static_shape or ()), weight_limit(bits)
    rest = [a for a in range(rank) if a != axis]
    peak = ops.reduce(pointwise([w], abs, "f32"), kind="max", axis=rest if axis is not None else [], keep_dims=True)
    scale = stop_gradient(pointwise([peak], lambda p: (p / float(limit) >= 1e-30).select(p / float(limit), 1.0), "f32"))
    return on_grid(w, scale, 0.0, -limit, limit)


def deployable(graph: Graph, values: Mapping[str, npt.ArrayLike] | None = None) -> Graph:
    """The inference graph with constants, and without fake quantization."""
    if KEY not in graph.metadata:
        return without_attention(graph.freeze(values))
    made = graph.freeze(values, FLOAT)
    del made.metadata[KEY]
    return made


def trained_ranges(graph: Graph, values: Mapping[str, npt.ArrayLike] | None) -> dict[str, Range]:
    """The ranges of a quantize_aware graph, by tensor name."""
    found = json.loads(graph.metadata.get(KEY, '{"activations": []}'))
    table = {}
    for entry in found["activations"]:
        low, high = (float(current_value(graph.variables[entry[end]], values)) for end in ("low", "high"))
        table[entry["tensor"]] = Range(min(low, high), max(low, high))
    return table


def _decide(graph: Graph, dtype: str) -> tuple[Decisions, dict[Tensor, Tensor]]:
    """The decisions of the quantizer for a copy of the graph whose variables are constants, and the tensor of `main`
    for each tensor of this copy."""
    plain = Graph()
    plain.variables, plain.user_ops = graph.variables, graph.user_ops
    function = plain.function("infer")
    function.fill(graph.main)
    for tensor in function.tensors():
        if tensor.variable is not None:
            tensor.data, tensor.variable = tensor.variable.value, None
    signature = graph.signatures["infer"]
    plain.signature("infer", function, signature.inputs, signature.outputs)
    return Decisions(plain, dtype, Table()), dict(zip(function.tensors(), graph.main.tensors(), strict=True))


class _Inserter:
    """Inserts fake quantization where the quantizer stores integers, and records these places."""

    def __init__(
        self,
        graph: Graph,
        quantizer: Decisions,
        tensors: dict[Tensor, Tensor],
        learned: bool,
        momentum: float,
        bits: int,
    ) -> None:
        self.graph, self.function, self.quantizer, self.tensors = graph, graph.main, quantizer, tensors
        self.learned, self.momentum, self.bits = learned, momentum, bits
        self.activations: list[dict[str, str]] = []
        self.before: dict[Tensor | None, list[Node]] = {}  # from a producer's tensor to the nodes that follow it
        self.ends: dict[Tensor, tuple[Tensor, Tensor]] = {}  # from the root of a group to its range
        self.seen: dict[Tensor, list[Tensor]] = {}  # from the root of a group to its observed tensors

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
            if old.node is None:  # an input stays float for nodes that compute in floats
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
        for tensor in self.tensors[root], made:  # the root of the group may be another tensor
            tensor.shape = tensor.shape if tensor.shape is not None else x.shape
        return made

    def _observe(self) -> None:
        """Adds side updates that make the ranges follow the batches. A range's updates run with any step whose loss
        depends on the tensors that use the range."""
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
