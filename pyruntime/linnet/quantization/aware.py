"""Quantization-aware training: during training, the graph rounds values as its integer form will do later. The quantizer
decides which tensors become integers. `fake_quantize` is inserted exactly there, and `linnet.quantize` uses the ranges
that were trained. The scheme and the straight-through gradients are those of Jacob et al. 2018, section 3. For weights of
less than 8 bits, the ranges of weights are trained too (Esser et al. 2020), and the integer model is made from the averages
of the variables, because weights near a rounding threshold jump between two integers (Nagel et al. 2022)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.builder import ops
from linnet.builder.mapping import pointwise
from linnet.builder.straight_through import on_grid, stop_gradient
from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.ir.dtypes import DTypeLike, named
from linnet.ir.expr import Expr
from linnet.ir.function import Node, Tensor, Variable
from linnet.passes.attention import without_attention
from linnet.passes.weights import current_value, declare, trainable
from linnet.quantization.calibrate import Feeds, Range
from linnet.quantization.decisions import Decisions
from linnet.quantization.rounding import Scales
from linnet.quantization.scheme import KEY, LIMITS, weight_axis, weight_clips, weight_limit
from linnet.quantization.table import Table

FLOAT = "float"  # signature of a quantize_aware graph that does not round
_AVERAGE = "/average"  # after the name of a variable: its average
_TINY = 1e-30  # scales below mean that all values are zero
_RECENT = 8.0  # Shamir and Zhang's eta: about the last ninth of the steps counts


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
    weight_bits: 2 to 8. Below 8, the range of each channel of the weights is a trainable variable `<weight>/clip`, and each
        trainable variable has an average `<name>/average` over about the last ninth of the steps. "infer" and
        `linnet.quantize` use the averages.
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
    made.metadata[KEY] = json.dumps({
        "dtype": dtype, "weight_bits": weight_bits, "activations": inserter.activations, "weights": inserter.weights,
    })  # fmt: skip
    averages = _average(made) if weight_bits < 8 else {}
    declare(made, signature.inputs, signature.outputs)
    for tensor in made.signatures["infer"].function.tensors():
        if tensor.variable in averages:
            tensor.variable = averages[tensor.variable]
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


def fake_quantize_weights(w: Tensor, axis: int | None, bits: int = 8, clip: Tensor | None = None) -> Tensor:
    """Rounds w to symmetric integers of `bits` bits with one scale per slice of `axis`. The gradient passes through.

    clip: the range of each slice, with size 1 on the other axes. It gets the gradient of a learned step size (Esser et al.
    2020), and weights outside get none. Without it, each slice's range reaches to its largest weight."""
    rank, limit = len(w.static_shape or ()), weight_limit(bits)
    if clip is not None:
        learned = pointwise([clip], lambda c: _step_size(abs(c), limit), "f32")
        return on_grid(w, learned, 0.0, -limit, limit)
    rest = [a for a in range(rank) if a != axis]
    peak = ops.reduce(pointwise([w], abs, "f32"), kind="max", axis=rest if axis is not None else [], keep_dims=True)
    scale = stop_gradient(pointwise([peak], lambda p: _step_size(p, limit), "f32"))
    return on_grid(w, scale, 0.0, -limit, limit)


def _step_size(peak: Expr, limit: int) -> Expr:
    return (peak / float(limit) >= _TINY).select(peak / float(limit), 1.0)


def deployable(graph: Graph, values: Mapping[str, npt.ArrayLike] | None = None) -> Graph:
    """The inference graph with constants, and without fake quantization."""
    if KEY not in graph.metadata:
        return without_attention(graph.freeze(values))
    made = graph.freeze(_averages(graph, values), FLOAT)
    del made.metadata[KEY]
    return made


def trained_ranges(graph: Graph, values: Mapping[str, npt.ArrayLike] | None) -> dict[str, Range]:
    """The ranges of a quantize_aware graph, by tensor name."""
    found = json.loads(graph.metadata.get(KEY, '{"activations": []}'))
    table, values = {}, _averages(graph, values)
    for entry in found["activations"]:
        low, high = (float(current_value(graph.variables[entry[end]], values)) for end in ("low", "high"))
        table[entry["tensor"]] = Range(min(low, high), max(low, high))
    return table


def trained_scales(graph: Graph, values: Mapping[str, npt.ArrayLike] | None) -> Scales:
    """The scales of weights that a quantize_aware graph has trained, by tensor name and axis."""
    found = json.loads(graph.metadata.get(KEY, "{}"))
    table, values = {}, _averages(graph, values)
    for entry in found.get("weights", ()):
        clip = np.abs(current_value(graph.variables[entry["clip"]], values))
        scale = clip / np.float32(weight_limit(found["weight_bits"]))
        table[entry["tensor"], entry["axis"]] = np.where(scale >= np.float32(_TINY), scale, np.float32(1.0))
    return table


def _average(graph: Graph) -> dict[Variable, Variable]:
    """Adds an average of each trainable variable, and returns the averages. Each step moves them towards the current values
    by a share that falls with the number of steps (polynomial-decay averaging, Shamir and Zhang 2013), so that the average
    suits short and long training alike."""
    function = graph.main
    reads = {t.variable: t for t in function.tensors() if t.variable is not None}
    count = graph.variable("quantize_aware/steps", np.float32(0), trainable=False)
    steps = function.read(count)
    share = pointwise([steps], lambda n: (_RECENT + 1.0) / (n + (_RECENT + 1.0)), "f32")
    graph.side_update(count, pointwise([steps], lambda n: n + 1.0, "f32"))
    made: dict[Variable, Variable] = {}
    for variable in graph.trainable_variables:
        if variable.dtype != "f32" or variable not in reads:
            continue
        average = graph.variable(variable.name + _AVERAGE, variable.value, trainable=False)
        operands = [function.read(average), reads[variable], share]
        moved = pointwise(operands, lambda old, new, part: old + part * (new - old), "f32")
        graph.side_update(average, moved, along=reads[variable])
        made[variable] = average
    return made


def _averages(graph: Graph, values: Mapping[str, npt.ArrayLike] | None) -> Mapping[str, npt.ArrayLike] | None:
    """The values of the graph's variables, each replaced by its average. Given values without averages stay as they are."""
    found: dict[str, npt.ArrayLike] = {}
    if json.loads(graph.metadata.get(KEY, "{}")).get("weight_bits", 8) == 8:
        return values
    for name, variable in graph.variables.items():
        source = name + _AVERAGE if name + _AVERAGE in graph.variables else name
        if values is None:
            found[name] = graph.variables[source].value
        elif source in values or name in values:
            found[name] = values[source if source in values else name]
        else:
            found[name] = variable.value
    return found


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
        self.weights: list[dict[str, Any]] = []
        self.clips: dict[tuple[Tensor, int | None], Tensor] = {}  # the ranges of weights, if they are trained
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
            made, start = self._fake_weights(x, w.data, weight_axis(old_node, w.data.ndim)), len(nodes)
            node.inputs = [node.inputs[0], made, *node.inputs[2:]]
            following.setdefault(None, []).extend(self.function.nodes[start:])
            del self.function.nodes[start:]
        ordered = list(following.get(None, []))
        for node in nodes:
            ordered += [node, *following.get(node, [])]
        self.function.nodes = ordered
        if not self.learned:
            self._observe()

    def _fake_weights(self, x: Tensor, first: npt.NDArray[Any], axis: int | None) -> Tensor:
        if self.bits == 8:
            return fake_quantize_weights(x, axis)
        if (x, axis) not in self.clips:
            start = weight_clips(first, axis, self.bits)
            clip = self.graph.variable(f"{x.name}/clip", start, trainable=x.variable is not None)
            self.weights.append({"tensor": x.name, "axis": axis, "clip": clip.name})
            self.clips[x, axis] = self.function.read(clip)
        return fake_quantize_weights(x, axis, self.bits, self.clips[x, axis])

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


__all__ = ["deployable", "fake_quantize", "fake_quantize_weights", "quantize_aware", "trained_ranges", "trained_scales"]
