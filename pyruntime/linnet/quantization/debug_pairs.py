"""Pairs of tensors with the same name in a float graph and its quantized graph. The float graph is cut at these
tensors, so that its parts can be run on the values that the quantized model saw."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.ir.dtypes import Quantization, numpy_dtype
from linnet.ir.function import Function, Node, Tensor
from linnet.ir.graph import Signature
from linnet.quantization import scheme
from linnet.quantization.scheme import HALVES

Array = npt.NDArray[Any]
FLOATS = ("f32", *HALVES)
LIMITS = {**scheme.LIMITS, "u8": (0, 255)}


@dataclasses.dataclass(eq=False)
class Pair:
    """A tensor of both graphs. part: the nodes of the float graph that compute the tensor from other pairs, in order.
    reads: the names of the pairs and inputs that these nodes read."""

    name: str
    old: Tensor
    new: Tensor
    part: list[Node]
    reads: list[str]

    @property
    def node(self) -> Node:
        """The node that computes the float tensor."""
        assert self.old.node is not None
        return self.old.node

    @property
    def limits(self) -> tuple[float, float] | None:
        """The least and greatest number that the quantized tensor can hold, or None if it is stored as f32."""
        if self.new.dtype == "f16":
            return -65504.0, 65504.0
        q = self.new.quantization
        if q is None or self.new.dtype not in LIMITS or q.scale.size != 1:
            return None
        low, high = LIMITS[self.new.dtype]
        scale, zero = float(q.scale.reshape(-1)[0]), float(q.zero.reshape(-1)[0])
        return (low - zero) * scale, (high - zero) * scale


def infer_function(graph: Graph) -> Function:
    """The function of the signature `infer`. Raises UsageError if there is none."""
    if "infer" not in graph.signatures:
        raise UsageError(
            "the graph has no signature 'infer'", code=102, got=", ".join(graph.signatures) or "none",
            hint="quantize and compare inference graphs",
        )  # fmt: skip
    return graph.signatures["infer"].function


def pairs_of(old: Graph, new: Graph) -> list[Pair]:
    """The float tensors that nodes of `old` compute and that `new` has under the same name, in the order of the nodes.

    Raises UsageError if there is no such tensor, because the graphs then do not come from one network.
    """
    mine, theirs = infer_function(old), infer_function(new)
    known = {t.name: t for node in theirs.nodes for t in node.outputs}
    hidden, also = _other_meanings(old, mine), _other_meanings(new, theirs)
    found: dict[Tensor, str] = {}
    for node in mine.nodes:
        for tensor in node.outputs:
            other = known.get(tensor.name)
            if other is None or tensor.dtype != "f32" or tensor.name in hidden or other.name in also:
                continue
            if (other.dtype in FLOATS or other.quantization is not None) and _same_shape(tensor, other):
                found[tensor] = tensor.name
    if not found:
        raise UsageError(
            "the two graphs have no float tensor of the same name", code=101, expected="a model and its quantized form",
            got=f"{len(mine.nodes)} and {len(theirs.nodes)} nodes",
            hint="quantize the same file, with the same --image and --shape",
        )  # fmt: skip
    return [Pair(t.name, t, known[t.name], *_behind(t, found, mine)) for t in found]


def _other_meanings(graph: Graph, function: Function) -> set[str]:
    """Names that mean another tensor for a session: an input or output of the signature has this name, but its tensor
    has a different name."""
    signature = graph.signatures["infer"]
    ports = [
        *zip(signature.inputs, function.inputs, strict=True),
        *zip(signature.outputs, function.outputs, strict=True),
    ]
    return {name for name, tensor in ports if name != tensor.name}


def _same_shape(a: Tensor, b: Tensor) -> bool:
    if a.shape is None or b.shape is None:
        return True
    return len(a.shape) == len(b.shape) and all(
        x == y or not isinstance(x, int) or not isinstance(y, int) for x, y in zip(a.shape, b.shape, strict=True)
    )


def _behind(tensor: Tensor, found: dict[Tensor, str], function: Function) -> tuple[list[Node], list[str]]:
    """The nodes between a tensor and the nearest earlier pairs and inputs, and the names of these pairs and inputs."""
    assert tensor.node is not None
    inputs = dict(zip(function.inputs, graph_inputs(function), strict=True))
    nodes, reads, todo = {tensor.node}, dict[str, None](), [tensor.node]
    while todo:
        for t in todo.pop().inputs:
            if t is None or t.data is not None or t.variable is not None:
                continue
            if t in found or t in inputs:
                reads[found[t] if t in found else inputs[t]] = None
            elif t.node is not None and t.node not in nodes:
                nodes.add(t.node)
                todo.append(t.node)
    return [node for node in function.nodes if node in nodes], list(reads)


def graph_inputs(function: Function) -> list[str]:
    """The names by which the signature `infer` knows the inputs of its function."""
    graph: Any = function.graph
    return list(graph.signatures["infer"].inputs)


CUT = "cut:"


def cut(graph: Graph, tensors: Mapping[str, Tensor]) -> Graph:
    """A graph with each of these tensors as an output. The nodes that read such a tensor read a new input CUT + name
    instead. So every part between the tensors can be run on given inputs, alone or with other parts. tensors: {name of
    a pair: the graph's tensor}."""
    made = graph.copy()
    signature = made.signatures["infer"]
    function = signature.function
    names = {t.name: name for name, t in tensors.items()}
    found = {names[t.name]: t for node in function.nodes for t in node.outputs if t.name in names}
    fed = {
        t: Tensor(function, function.unique(f"{CUT}{name}"), t.dtype, t.shape, quantization=t.quantization)
        for name, t in found.items()
    }
    for node in function.nodes:
        node.inputs = [fed.get(t, t) if t is not None else None for t in node.inputs]
    function.inputs = [*function.inputs, *fed.values()]
    function.outputs = [found[name] for name in tensors]
    inputs = [*signature.inputs, *(f"{CUT}{name}" for name in found)]
    for name in list(made.signatures):
        if name != "infer":
            del made.signatures[name]
    made.signatures["infer"] = Signature(function, inputs, list(tensors))
    return made


def real(array: Array, tensor: Tensor) -> Array:
    """A tensor's values as f32 numbers: integers are dequantized, narrow floats widened."""
    q = tensor.quantization
    if q is not None and tensor.dtype in LIMITS:
        scale, zero = _broadcast(q, array.ndim)
        made: Array = (array.astype(np.float32) - zero) * scale
        return made.astype(np.float32)
    return array.astype(np.float32)


def stored(array: Array, tensor: Tensor) -> Array:
    """The numbers as the quantized tensor would hold them: rounded, and clipped to its range."""
    q = tensor.quantization
    if q is not None and tensor.dtype in LIMITS:
        scale, zero = _broadcast(q, array.ndim)
        low, high = LIMITS[tensor.dtype]
        with np.errstate(invalid="ignore", over="ignore"):
            held: Array = np.nan_to_num(np.clip(np.rint(array / scale) + zero, low, high))
        return held.astype(numpy_dtype(tensor.dtype))
    if tensor.dtype in ("f16", "bf16"):
        with np.errstate(over="ignore"):
            return array.astype(numpy_dtype(tensor.dtype))
    return array


def _broadcast(q: Quantization, rank: int) -> tuple[Array, Array]:
    scale, zero = q.scale.astype(np.float32).reshape(-1), q.zero.astype(np.float32).reshape(-1)
    if q.axis is None or scale.size == 1:
        return scale[:1].reshape(()), zero[:1].reshape(())
    shape = [1] * rank
    shape[q.axis] = scale.size
    return scale.reshape(shape), zero.reshape(shape)


def groups_of(pairs: Sequence[Pair], sizes: dict[str, int], most: int) -> list[list[Pair]]:
    """The pairs in groups. The tensors of a group have at most this many elements together; a group has at least one
    pair."""
    made: list[list[Pair]] = []
    held = 0
    for pair in pairs:
        size = sizes.get(pair.name, 0) + sum(sizes.get(name, 0) for name in pair.reads)
        if not made or held + size > most:
            made.append([])
            held = 0
        made[-1].append(pair)
        held += size
    return made
