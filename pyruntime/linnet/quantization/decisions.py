"""The decisions of quantization before a graph is emitted again: dtypes of nodes, forms of tensors, and groups that
share a scale."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np

from linnet.facade import Graph
from linnet.ir import traits
from linnet.ir.dtypes import Quantization
from linnet.ir.function import Function, Node, Tensor
from linnet.ir.node_names import merged_into, step_names
from linnet.quantization import recurrent
from linnet.quantization.calibrate import Feeds, Range
from linnet.quantization.calibrators import Choice, choose, noise
from linnet.quantization.clamps import clamp_limits, takes_logarithm
from linnet.quantization.equalize import Factors, factors
from linnet.quantization.intervals import may_overflow
from linnet.quantization.moves import Moves
from linnet.quantization.observe import Batches, Observation, Seen
from linnet.quantization.rounding import Rounding, Scales
from linnet.quantization.scheme import (
    FLOATS_KEPT,
    HALVES,
    INTEGER_OPS,
    LEVELS,
    LIMITS,
    MARGIN,
    RECURRENT,
    SCHEMES,
    SMALL,
    activation_parameters,
    fits_half,
    shape_arithmetic,
    table_of,
)
from linnet.quantization.table import Table

EXACT = ("preprocess:", "postprocess:")  # steps of linnet.preprocess, which are not part of the network
_LOADS = traits.having("integers", "maps", "sums")  # ops that read integers through their quantization
_SMALL_COUNT = 20  # times as much as other values count those that vanish in front of a logarithm


@dataclasses.dataclass(frozen=True)
class Options:
    """How the quantizer decides what the table does not say.

    calibrator: chooses the ranges of 8-bit tensors. careful: weights are rounded so that errors cancel. correct: biases
    are corrected by the mean error from rounding. equalize: channels between two products are scaled. saves_traffic:
    large tensors are stored as integers even if no integer op needs this, as long as their noise is below
    `traffic_noise`. headroom: 16-bit ranges are the largest value seen times this factor. weight_noise: if the noise of
    the outputs of a product with 16-bit activations is above this, its weights get 16 bits."""

    calibrator: str = "auto"
    careful: bool = True
    correct: bool = True
    equalize: bool = False
    saves_traffic: bool = True
    traffic_noise: float = 1e-3
    headroom: float = 2.0
    weight_noise: float = 1e-6


def _aliases(steps: Mapping[Node, str]) -> dict[Node, list[str]]:
    """The names of each node's results. A table may also use them for the node, unless another node has this name."""
    taken = set(steps.values())
    return {node: [t.name for t in node.outputs if t.name not in taken] for node in steps}


def names_for_rows(functions: Iterable[Function]) -> tuple[list[str], list[str], dict[str, str]]:
    """The names that rows of a table may match: the names of layers, and those of tensors. Also maps each source node
    that became a part of a layer to the name of this layer."""
    layers: list[str] = []
    tensors: list[str] = []
    sources: dict[str, str] = {}
    for function in functions:
        steps = step_names(function)
        sources |= {name: node.source for node, name in steps.items()}
        aliases = _aliases(steps)
        layers += [*steps.values(), *(name for node in steps for name in aliases[node])]
        tensors += [t.name for t in function.tensors() if t.data is None]
    return [name for name in dict.fromkeys(layers) if name], tensors, merged_into(sources)


class Decisions(Moves):
    """Decides in which dtype each node of one function computes, which tensors are stored as integers, and which of these share
    a scale. With an observation, the decisions depend on the values seen. Without one, every tensor that may be stored
    as integers is stored so."""

    def __init__(
        self,
        graph: Graph,
        dtype: str,
        overrides: Table,
        weight_bits: int = 8,
        function: Function | None = None,
        options: Options | None = None,
        observation: Observation | None = None,
    ) -> None:
        self.graph = graph
        self.dtype = dtype
        self.weight_bits = weight_bits
        self.overrides = overrides
        self.options = options or Options()
        self.observation = observation
        self.old = function or graph.signatures["infer"].function
        self.steps = step_names(self.old)
        self.aliases = _aliases(self.steps)
        self.consumers = self.old.consumers()
        self.outputs = set(self.old.outputs)
        self.fixed = shape_arithmetic(self.old)
        self.schemes: dict[Node, str] = {}  # schemes that the table gives to nodes beyond a dtype, such as w16a16
        self.wide = self._beyond_half()
        self.modes: dict[Node, str] = {node: self._mode(node) for node in self.old.nodes}
        self.integer_nodes = [n for n in self.old.nodes if n.op in INTEGER_OPS and self.modes[n] in LIMITS]
        self.ranges: dict[Tensor, Range] = {}
        self.scales: Scales = {}  # of weights, if they were trained
        self.choices: dict[Tensor, Choice] = {}  # by the root of a group
        self.group: dict[Tensor, Tensor] = {}  # union-find: tensors that share scale and zero point
        self.parameters: dict[tuple[Tensor, str], Quantization] = {}
        self.folded_clamps = self._clamps_after_integers()
        self.passing: set[Node] = set()  # nodes that move integers unchanged
        self.mixed = self._mixed()
        self.floats: set[Tensor] = set()  # made as floats, and converted for the products that read them
        self.stored = self._stored_forms()
        self.factors: Factors = {}
        if observation is not None:
            self._settle(observation.seen)
            if self.options.equalize:
                own = set(self.old.nodes)
                found = [pair for pair in observation.pairs if pair.maker in own]
                self.factors = factors(found, observation.peaks, self._most)

    # ---- decisions ---------------------------------------------------------------------------------------------

    def _beyond_half(self) -> set[Tensor]:
        """Tensors whose values would become infinite or zero in f16 or bf16; f16 in an integer graph, some of whose nodes
        may have it. With an observation, the values seen decide; without one, the values that are possible."""
        half = self.dtype if self.dtype in HALVES else "f16"
        if self.observation is None:
            return may_overflow(self.old, HALVES[self.dtype][0] / MARGIN) if self.dtype in HALVES else set()
        seen = self.observation.seen
        limits = {t: seen[t] for t in self.old.tensors() if t in seen and seen[t].batches}
        logarithms = {t for n in self.old.nodes if takes_logarithm(n) for t in n.inputs if t is not None}

        def fits(tensor: Tensor, found: Seen) -> bool:
            share = found.vanishing * (_SMALL_COUNT if tensor in logarithms else 1)
            return fits_half(half, found.low, found.high, share)

        beyond = {t for t, found in limits.items() if not fits(t, found) or self._kept_float(t)}
        return beyond | self.observation.infinite

    def _mode(self, node: Node) -> str:
        """The dtype in which the node computes: f32, f16, bf16, i16 or i8."""
        names = [self.steps[node], *self.aliases[node]]
        wanted = self.overrides.dtype(*names, default=self.dtype)
        if node.op in RECURRENT:
            if stored := recurrent.scheme_of(node, wanted):
                self.schemes[node] = stored
            return "f32"
        if wanted == "w16" and table_of(node) is not None:
            wanted = "f16"  # a lookup has no products
        if wanted in SCHEMES:
            if wanted == "w16":
                return self._halved(node)
            self.schemes[node] = "w8" if wanted == "w4" and not self._takes_blocks(node) else wanted
            wanted = SCHEMES[wanted]
        if node.op in FLOATS_KEPT or any(t in self.fixed for t in node.outputs):
            return "f32"
        if any(part.startswith(EXACT) for part in node.source.split("+")):
            return "f32"
        x = node.inputs[0] if node.inputs else None
        if node.op in INTEGER_OPS and x is not None and x.dtype in ("i8", "u8", "i16"):
            return "f32"  # already quantized; keep it unchanged
        if wanted in HALVES and node.op != "map":  # maps decide per operand
            return self._halved(node) if self._unfit(node, wanted) else wanted
        if wanted in LIMITS and node.op in INTEGER_OPS:
            rows = [
                row for t in node.inputs[:2] if t is not None and (row := self.overrides.tensor(t.name)) is not None
            ]
            if any(row.dtype not in LIMITS for row in rows) or not self._integer_possible(node):
                return self._halved(node) if wanted == "i16" else "f32"
            if wanted == "i8" and node not in self.schemes and not self.overrides.names(*names) and self._recurs(node):
                self.schemes[node] = "w8a16"
                return "i16"
            return "i16" if any(row.dtype == "i16" for row in rows) else wanted
        return wanted

    def _halved(self, node: Node) -> str:
        """Stores the weights of a product that computes in f32 as f16, if they are constant and fit. Returns "f32"."""
        w = node.inputs[1] if node.op in INTEGER_OPS and len(node.inputs) > 1 else None
        if w is not None and w.data is not None and w.dtype == "f32" and w.data.size:
            vanishing = float(np.mean((np.abs(w.data) < HALVES["f16"][1]) & (w.data != 0)))
            if fits_half("f16", float(w.data.min()), float(w.data.max()), vanishing):
                self.schemes[node] = "w16"
        return "f32"

    @staticmethod
    def _takes_blocks(node: Node) -> bool:
        """Whether a product reads weights with a scale for each block: other layers have 8 bits where 4 are asked."""
        w = node.inputs[1] if node.op in traits.MATRICES and len(node.inputs) > 1 else None
        return w is not None and w.data is not None and w.data.ndim == 2 and bool(np.isfinite(w.data).all())

    def _recurs(self, node: Node) -> bool:
        """Whether a product only computes the input of a recurrent layer. The layer's state would carry the errors of 8-bit
        activations from step to step, and most of the time goes into the steps."""
        users = self.consumers.get(node.outputs[0], [])
        if not users or node.outputs[0] in self.outputs:
            return False
        return all(u.op in RECURRENT or (u.op in traits.COPIES and self._recurs(u)) for u in users)

    def _unfit(self, node: Node, half: str) -> bool:
        """Whether a node cannot compute in a half-width float. All operands of an op have one dtype, and one of them
        may be too large, too small, computed only from shapes or constants (such as weights that a node widens), or
        quantized."""
        floats = [t for t in (*node.inputs, *node.outputs) if t is not None and t.dtype == "f32"]
        for tensor in floats:
            if tensor in self.wide:
                return True
            if tensor.data is not None and tensor.data.size:
                finite = tensor.data[np.isfinite(tensor.data)]
                if finite.size and not fits_half(half, float(finite.min()), float(finite.max())):
                    return True
        if node.op != "resize" and any(t in self.fixed for t in node.inputs):
            return True
        return node.op in INTEGER_OPS and any(t is not None and t.quantization is not None for t in node.inputs)

    def _integer_possible(self, node: Node) -> bool:
        x, w = node.inputs[0], node.inputs[1]
        assert x is not None and w is not None
        if x.dtype != "f32" or w.dtype != "f32" or x.data is not None:
            return False
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        if bias is not None and bias.data is None:
            return False
        if w.data is not None:
            return bool(np.isfinite(w.data).all())
        if w in self.fixed or w.variable is not None:
            return False  # weights that are computed from constants, for example from integers of the source model
        return node.op in traits.MATRICES

    def _clamps_after_integers(self) -> dict[Node, Node]:
        """Maps an integer node to the clamp that is its only reader. The clamp can be left out if the output's range
        saturates at its limits."""
        table: dict[Node, Node] = {}
        for node in self.integer_nodes:
            y = node.outputs[0]
            users = self.consumers.get(y, [])
            alone = len(users) == 1 and y not in self.outputs and self.modes[users[0]] == self.modes[node]
            if alone and clamp_limits(users[0]) is not None:
                table[node] = users[0]
        return table

    def _expressed_by_range(self, clamp: Node, dtype: str) -> bool:
        """Whether saturation at the ends of the output's range has the same effect as the clamp, to within half a
        quantization step."""
        limits = clamp_limits(clamp)
        assert limits is not None
        parameters = self._parameters(clamp.outputs[0], dtype)
        scale, zero = float(parameters.scale[0]), int(parameters.zero[0])
        low, high = ((end - zero) * scale for end in LIMITS[dtype])
        return low >= limits[0] - scale / 2 and high <= limits[1] + scale / 2

    def _stored_forms(self) -> dict[Tensor, str]:
        """Maps each tensor to the integer type in which it is stored. Tensors that stay float are absent."""
        wanted: dict[Tensor, str] = {}
        for node in reversed(self.old.nodes):  # consumers first
            self.floats.update(t for t in node.outputs if self._must_be_float(t))
            for tensor in self._integer_operands(node):
                wanted[tensor] = self.modes[node]
            if self.modes[node] not in LIMITS:
                continue
            if all(t not in wanted for t in node.outputs) and self._worth_storing(node):
                wanted[node.outputs[0]] = self.modes[node]
            if self._passes_through(node) and {wanted.get(t) for t in node.outputs} == {self.modes[node]}:
                if not self._share(node) or any(t in self.floats for t in node.outputs):
                    continue
                self.passing.add(node)
                several = node.op == "copy" and node.attributes.get("kind") == "concat"
                moved = node.inputs if several else node.inputs[:1]
                for source in moved:
                    assert source is not None
                    wanted.setdefault(source, self.modes[node])
                    if several and self._has_own_range(source, node.outputs[0]):
                        continue  # is requantized on its way into the concatenation
                    for output in node.outputs:
                        self._union(source, output)
        return wanted

    def _worth_storing(self, node: Node) -> bool:
        """Whether to store a large result as integers, although no node needs this, because all its readers can read
        integers. This saves three quarters of the memory traffic.

        A single map after an integer op becomes its epilogue; then the result is not stored at all.
        """
        y = node.outputs[0]
        users = self.consumers.get(y, [])
        shape = y.static_shape
        if not self.options.saves_traffic or y.dtype != "f32" or y in self.fixed or y in self.floats or not users:
            return False
        if len(node.outputs) != 1 or (shape is not None and int(np.prod(shape)) < SMALL):
            return False
        if any(u.op not in _LOADS or self.modes[u] not in LIMITS or u.inputs[0] is None for u in users):
            return False
        if any(u.op == "reduce" and y is not u.inputs[0] for u in users) or self._kept_float(y):
            return False
        if self._noise_of(y) > self.options.traffic_noise or any(takes_logarithm(u) for u in users):
            return False
        made_by_integers = node in self.integer_nodes and not (len(users) == 1 and users[0].op == "map")
        return made_by_integers or node.op == "map" or self._passes_through(node)

    def _integer_operands(self, node: Node) -> list[Tensor]:
        """Float activations that the node reads as integers."""
        if node.op not in INTEGER_OPS or self.modes[node] not in LIMITS:
            return []
        return [t for t in node.inputs[:2] if t is not None and t.data is None]

    # ---- what was seen -----------------------------------------------------------------------------------------

    def _seen(self, tensor: Tensor | None) -> Seen | None:
        if self.observation is None or tensor is None:
            return None
        seen = self.observation.seen.get(tensor)
        return seen if seen is not None and seen.batches else None

    def _kept_float(self, tensor: Tensor) -> bool:
        """Whether the table says that the tensor is stored as f32."""
        row = self.overrides.tensor(tensor.name)
        return row is not None and row.dtype == "f32"

    def _noise_of(self, tensor: Tensor) -> float:
        """The noise that storing this tensor in 8 bits causes; 0 if the tensor was not seen."""
        seen = self._seen(tensor)
        return 0.0 if seen is None else noise(seen, seen.low, seen.high, LEVELS["i8"])

    def root(self, tensor: Tensor) -> Tensor:
        """The representative of the group of tensors that share scale and zero point with this one."""
        while tensor in self.group:
            tensor = self.group[tensor]
        return tensor

    def _union(self, a: Tensor, b: Tensor) -> None:
        a, b = self.root(a), self.root(b)
        if a is not b:
            self.group[b] = a

    def _settle(self, seen: Mapping[Tensor, Seen]) -> None:
        """Chooses the range of each group of stored tensors."""
        groups: dict[Tensor, Seen] = {}
        clamped = {n.outputs[0]: n for n in self.folded_clamps.values()}
        limits: dict[Tensor, tuple[float, float]] = {}
        for tensor in self.stored:
            root = self.root(tensor)
            if tensor in seen:
                groups.setdefault(root, Seen()).join(seen[tensor])
            if tensor in clamped:
                limits[root] = clamp_limits(clamped[tensor]) or (-np.inf, np.inf)
        for root, found in groups.items():
            rows = [self.overrides.tensor(t.name) for t in self.stored if self.root(t) is root]
            row = next((r for r in rows if r is not None), None)
            dtype = self.stored.get(root, "i8")
            if row is not None and row.low is not None and row.high is not None:
                choice = Choice(row.low, row.high, "table", noise(found, row.low, row.high, LEVELS[dtype]))
            elif dtype == "i16":
                low, high = limits.get(root, (-np.inf, np.inf))
                ends = (max(found.low * self.options.headroom, low), min(found.high * self.options.headroom, high))
                choice = Choice(*ends, "minmax", noise(found, *ends, LEVELS[dtype]))
            else:
                choice = choose(
                    found, row.calibrator if row and row.calibrator else self.options.calibrator, LEVELS[dtype]
                )
            self.choices[root] = choice
            self.ranges[root] = Range(choice.low, choice.high)

    def _most(self, tensor: Tensor) -> float:
        """The largest value that the range of an 8-bit tensor holds. 0 for other tensors. Also 0 if a product that
        makes or reads the tensor does not compute in integers."""
        found = self.ranges.get(self.root(tensor))
        makers = (
            {tensor.node, *(p.maker for p in self.observation.pairs if p.between is tensor)}
            if self.observation
            else set()
        )
        integer = all(
            n in self.integer_nodes for n in (*self.consumers.get(tensor, []), *makers) if n and n.op in INTEGER_OPS
        )
        if found is None or found.empty or self.stored.get(tensor) != "i8" or not integer:
            return 0.0
        return max(-found.low, found.high)

    def take(self, ranges: Mapping[str, Range]) -> bool:
        """Takes known ranges by name. Returns True if every stored tensor now has a range."""
        for tensor in self.stored:
            if tensor.name in ranges:
                self.ranges[self.root(tensor)] = ranges[tensor.name]
        return all(self.root(tensor) in self.ranges for tensor in self.stored)

    # ---- calibration -------------------------------------------------------------------------------------------

    def observed(self) -> tuple[list[Tensor], list[Node]]:
        """The tensors and products to observe: tensors that may be stored as integers, f16 or bf16, concatenations whose
        parts may differ in size, and integer products with constant weights."""
        products = [n for n in self.integer_nodes if n.inputs[1] is not None and n.inputs[1].data is not None]
        products += [n for n in self.old.nodes if n.op in RECURRENT and self.schemes.get(n) == "w8"]
        tensors = list(self.stored)
        for node in self.old.nodes if self.integer_nodes else ():
            if node.op == "copy" and node.attributes.get("kind") == "concat":
                parts = (*node.inputs, *node.outputs)
                tensors += [t for t in parts if t is not None and t.dtype == "f32" and t.data is None]
        halves = [n for n in self.old.nodes if self.dtype in HALVES or self.modes[n] in HALVES]
        for node in halves:
            tensors += [
                t for t in (*node.inputs, *node.outputs) if t is not None and t.dtype == "f32" and t.data is None
            ]
        return list(dict.fromkeys(tensors)), products

    def careful(self) -> Rounding | None:
        """The rounding in which errors cancel. None if there is no observation, or if the options exclude it."""
        return self.observation.rounding if self.observation is not None and self.options.careful else None

    def calibrate(self, batches: Iterable[Feeds], progress: bool, threads: int | None) -> None:
        """Computes the ranges of all tensors stored as integers from the values seen. Members of a group share one
        range."""
        missing = [tensor for tensor in self.stored if self.root(tensor) not in self.ranges]
        observation = Observation(self.graph, missing, (), threads)
        observation.run(Batches(batches, self.graph.signatures["infer"].inputs, progress))
        for tensor, seen in observation.seen.items():
            shared = self.ranges.setdefault(self.root(tensor), Range())
            if seen.batches:
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
