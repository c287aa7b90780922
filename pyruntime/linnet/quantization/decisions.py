"""The decisions of quantization before a graph is emitted again: dtypes of nodes, forms of tensors, and groups that
share a scale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from linnet._generated.op_table import OPCODES
from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.ir import traits
from linnet.ir.dtypes import Quantization
from linnet.ir.function import Node, Tensor
from linnet.quantization.calibrate import Feeds, Range, record_ranges
from linnet.quantization.scheme import FLOATS_KEPT, INTEGER_OPS, LIMITS, SMALL, activation_parameters, fits_f16
from linnet.quantization.table import Table

_EXACT = ("preprocess:", "postprocess:")  # steps of linnet.preprocess, which are not part of the network
_LOADS = traits.having("integers", "maps", "sums")  # ops that read integers through their quantization
_OPCODE = {name: row[0] for name, row in OPCODES.items()}


class Decisions:
    """Decides in which dtype each node computes, which tensors are stored as integers, and which of these share a
    scale."""

    def __init__(self, graph: Graph, dtype: str, overrides: Table, weight_bits: int = 8) -> None:
        if "infer" not in graph.signatures or len(graph.functions) != 1:
            raise UsageError(
                what="the graph cannot be quantized after training",
                expected="a single function with the signature 'infer'",
                got=f"{len(graph.functions)} functions; signatures {', '.join(graph.signatures) or 'none'}",
                hint="quantize the inference graph before adding more functions",
            )
        self.graph = graph
        self.dtype = dtype
        self.weight_bits = weight_bits
        self.overrides = overrides
        self.old = graph.signatures["infer"].function
        self.consumers = self.old.consumers()
        self.outputs = set(self.old.outputs)
        self.fixed = self._shape_arithmetic()
        self.modes: dict[Node, str] = {node: self._mode(node) for node in self.old.nodes}
        self.integer_nodes = [n for n in self.old.nodes if n.op in INTEGER_OPS and self.modes[n] in LIMITS]
        self.ranges: dict[Tensor, Range] = {}
        self.group: dict[Tensor, Tensor] = {}  # union-find: tensors that share scale and zero point
        self.parameters: dict[tuple[Tensor, str], Quantization] = {}
        self.folded_clamps = self._clamps_after_integers()
        self.passing: set[Node] = set()  # nodes that move integers unchanged
        self.stored = self._stored_forms()

    # ---- decisions ---------------------------------------------------------------------------------------------

    def _shape_arithmetic(self) -> set[Tensor]:
        """Float tensors that are computed only from shapes. They hold sizes, which f16 and int8 could not represent."""
        known: set[Tensor] = set()
        for node in self.old.nodes:
            inputs = [t for t in node.inputs if t is not None]
            if node.op == "shape" or (inputs and all(t in known or t.data is not None for t in inputs)):
                known.update(node.outputs)
        return known

    def _mode(self, node: Node) -> str:
        """Dtype in which the node computes: f32, f16, i16 or i8."""
        names = [node.name, *(t.name for t in node.outputs)]
        wanted = self.overrides.dtype(*names, default=self.dtype)
        if node.op in FLOATS_KEPT or any(t in self.fixed for t in node.outputs):
            return "f32"
        if any(part.startswith(_EXACT) for part in node.source.split("+")):
            return "f32"
        x = node.inputs[0] if node.inputs else None
        if node.op in INTEGER_OPS and x is not None and x.dtype in ("i8", "u8", "i16"):
            return "f32"  # already quantized; keep it unchanged
        constants = [t.data for t in node.inputs if t is not None and t.data is not None and t.dtype == "f32"]
        if wanted == "f16" and node.op != "map" and not all(map(fits_f16, constants)):
            return "f32"  # maps decide per operand
        if wanted == "f16" and node.op != "map" and node.op != "resize" and any(t in self.fixed for t in node.inputs):
            return "f32"  # such as weights that a node widens: the operands of an op have one dtype
        if wanted in LIMITS and node.op in INTEGER_OPS and not self._integer_possible(node, wanted):
            return "f32"
        return wanted

    def _integer_possible(self, node: Node, wanted: str) -> bool:
        x, w = node.inputs[0], node.inputs[1]
        assert x is not None and w is not None
        if x.dtype != "f32" or x.data is not None:
            return False
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        if bias is not None and bias.data is None:
            return False
        if w.data is not None:
            return bool(np.isfinite(w.data).all())
        # A product of two activations is exact for i8. For i16 the weight operand would lose its high byte, so the node
        # stays float.
        return node.op in traits.MATRICES and wanted == "i8" and w.dtype == "f32"

    def _clamps_after_integers(self) -> dict[Node, Node]:
        """Maps an integer node to the clamp that is its only reader. Saturation of the output's range can replace such
        a clamp."""
        table: dict[Node, Node] = {}
        for node in self.integer_nodes:
            y = node.outputs[0]
            users = self.consumers.get(y, [])
            alone = len(users) == 1 and y not in self.outputs and self.modes[users[0]] == self.modes[node]
            if alone and _clamp_limits(users[0]) is not None:
                table[node] = users[0]
        return table

    def _expressed_by_range(self, clamp: Node, dtype: str) -> bool:
        """Whether saturation at the ends of the output's range has the effect of the clamp, to within half a step."""
        limits = _clamp_limits(clamp)
        assert limits is not None
        parameters = self._parameters(clamp.outputs[0], dtype)
        scale, zero = float(parameters.scale[0]), int(parameters.zero[0])
        low, high = ((end - zero) * scale for end in LIMITS[dtype])
        return low >= limits[0] - scale / 2 and high <= limits[1] + scale / 2

    def _stored_forms(self) -> dict[Tensor, str]:
        """Maps each tensor to the integer type in which it is stored. Tensors that stay float are absent."""
        wanted: dict[Tensor, str] = {}
        for node in reversed(self.old.nodes):  # consumers first
            for tensor in self._integer_operands(node):
                wanted[tensor] = self.modes[node]
            if self.modes[node] not in LIMITS:
                continue
            if all(t not in wanted for t in node.outputs) and self._worth_storing(node):
                wanted[node.outputs[0]] = self.modes[node]
            if self._passes_through(node) and {wanted.get(t) for t in node.outputs} == {self.modes[node]}:
                self.passing.add(node)
                several = node.op == "copy" and node.attributes.get("kind") == "concat"
                moved = node.inputs if several else node.inputs[:1]
                for source in moved:
                    assert source is not None
                    wanted.setdefault(source, self.modes[node])
                    for output in node.outputs:
                        self._union(source, output)
        return wanted

    def _worth_storing(self, node: Node) -> bool:
        """Whether to store a large result as integers although no node needs integers, because all its readers can read
        them. This saves three quarters of the memory traffic.

        A single map after an integer op is its epilogue; then nothing is stored at all.
        """
        y = node.outputs[0]
        users = self.consumers.get(y, [])
        shape = y.static_shape
        if y.dtype != "f32" or y in self.fixed or y in self.outputs or not users or len(node.outputs) != 1:
            return False
        if shape is not None and int(np.prod(shape)) < SMALL:
            return False
        if any(u.op not in _LOADS or self.modes[u] not in LIMITS or u.inputs[0] is None for u in users):
            return False
        if any(u.op == "reduce" and y is not u.inputs[0] for u in users):
            return False
        made_by_integers = node in self.integer_nodes and not (len(users) == 1 and users[0].op == "map")
        return made_by_integers or node.op == "map" or self._passes_through(node)

    def _integer_operands(self, node: Node) -> list[Tensor]:
        """Float activations that the node reads as integers."""
        if node.op not in INTEGER_OPS or self.modes[node] not in LIMITS:
            return []
        return [t for t in node.inputs[:2] if t is not None and t.data is None]

    def _passes_through(self, node: Node) -> bool:
        """Whether the node only moves or selects values. Integers then pass with the same scale and zero point on both
        sides."""
        if any(t.dtype != "f32" for t in node.outputs[:1]):
            return False
        if node.op == "copy":
            first = node.inputs[0]
            if node.attributes.get("kind") == "pad":
                return str(node.attributes.get("pad_mode", "constant")) != "constant"
            if node.attributes.get("kind") == "concat":
                return all(t is not None and t.data is None for t in node.inputs)
            return first is not None and first.data is None
        if node.op == "pool":
            return node.attributes.get("kind", "max") in ("max", "average") and len(node.outputs) == 1
        return node.op == "resize" and node.attributes.get("mode", "nearest") in ("nearest", "linear")

    def root(self, tensor: Tensor) -> Tensor:
        """The representative of the group of tensors that share scale and zero point with this one."""
        while tensor in self.group:
            tensor = self.group[tensor]
        return tensor

    def _union(self, a: Tensor, b: Tensor) -> None:
        a, b = self.root(a), self.root(b)
        if a is not b:
            self.group[b] = a

    def take(self, ranges: Mapping[str, Range]) -> bool:
        """Takes known ranges by name. Returns whether no other ranges are needed."""
        for tensor in self.stored:
            if tensor.name in ranges:
                self.ranges[self.root(tensor)] = ranges[tensor.name]
        return all(self.root(tensor) in self.ranges for tensor in self.stored)

    # ---- calibration -------------------------------------------------------------------------------------------

    def calibrate(self, batches: Iterable[Feeds], progress: bool, threads: int | None) -> None:
        """Finds the ranges of all tensors stored as integers. Members of a group share one range."""
        missing = [tensor for tensor in self.stored if self.root(tensor) not in self.ranges]
        found = record_ranges(self.graph, missing, batches, progress, threads)
        for tensor, seen in found.items():
            shared = self.ranges.setdefault(self.root(tensor), Range())
            if not seen.empty:
                shared.include(seen.low, seen.high)

    def _final_output(self, node: Node) -> Tensor:
        clamp = self.folded_clamps.get(node)
        return (clamp or node).outputs[0]

    def _parameters(self, tensor: Tensor, dtype: str) -> Quantization:
        root = self.root(tensor)
        if (root, dtype) not in self.parameters:
            seen = self.ranges.get(root, Range())
            self.parameters[root, dtype] = activation_parameters(Range(0.0, 0.0) if seen.empty else seen, dtype)
        return self.parameters[root, dtype]


def _clamp_limits(node: Node) -> tuple[float, float] | None:
    """(low, high) of a map min(max(x, low), high) from one f32 input to f32. None for any other map."""
    if node.op != "map" or len(node.inputs) != 1 or len(node.outputs) != 1 or node.outputs[0].dtype != "f32":
        return None
    words = node.attributes["program"]
    floats = list(node.attributes.get("floats", ()))
    program = [tuple(words[i : i + 5]) for i in range(0, len(words), 5)]
    names = {number: name for name, number in _OPCODE.items()}
    clamped: dict[int, tuple[float, float]] = {}  # from a register to the clamp of the input that it holds
    for index, (opcode, kind, a, b, _) in enumerate(program):
        name = names[opcode]
        if name == "load" and kind == 1:
            clamped[index] = (-np.inf, np.inf)
        elif name == "store":
            return clamped.get(a)
        elif name in ("min", "max"):
            value, other = (a, b) if a in clamped else (b, a)
            if value not in clamped or names[program[other][0]] != "const":
                return None
            low, high = clamped[value]
            limit = floats[program[other][2]]
            clamped[index] = (
                (max(low, limit), max(high, limit)) if name == "max" else (min(low, limit), min(high, limit))
            )
        elif name != "const" or kind != 1:
            return None
    return None
