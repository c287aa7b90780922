"""`linnet.check`: everything that a user wants to know of a model before converting it, as one Report.
Problems stop a conversion; concerns do not. Memory, operations and placement come from a real plan, at given or assumed sizes."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.concerns import Concern
from linnet.errors import Error, Problem
from linnet.graph import Function, Graph, Node, Tensor
from linnet.outline import Conversion, Outline

if TYPE_CHECKING:
    import onnx

    from linnet.model import Device
    from linnet.session import Step

LOOP_BOUND = 4096  # iterations of a loop whose carried shapes change (docs/converting.md)
_GUESSES = (0, 32, 64, 128, 256, 320, 512, 1024, 16000)  # sizes of open dimensions; 0: by rank


@dataclasses.dataclass(frozen=True)
class OpenDim:
    """A dimension that the model leaves open. name: "" where it has none. where: "input[axis]", inputs and outputs.
    assumed: the size that the estimates used, None when there are none."""

    name: str
    where: tuple[str, ...]
    assumed: int | None


@dataclasses.dataclass(frozen=True)
class DataDependent:
    """A node whose result's shape, or whose course, depends on data, so that a plan ends there and goes on while running."""

    node: str
    op: str
    text: str


@dataclasses.dataclass(frozen=True)
class Dynamic:
    """dims: open dimensions. data_dependent: nodes that cut the plan into segments. loops: loops without a known bound."""

    dims: tuple[OpenDim, ...] = ()
    data_dependent: tuple[DataDependent, ...] = ()
    loops: tuple[DataDependent, ...] = ()


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes of one plan. regions: as linnet_plan_info has them; total: everything while running; lower_bound: the most that
    activations need at once in any order of memory; weights: constants of the file. complete: False when unsupported nodes
    are left out, or when a part is planned only while running; note says which. None where there is no plan."""

    inputs: dict[str, list[int]]
    regions: dict[str, int]
    total: int | None
    lower_bound: int | None
    weights: int
    complete: bool
    note: str


@dataclasses.dataclass(frozen=True)
class OpCount:
    """Steps of one runtime op. flops: multiply and add count as two; macs: half of the flops of matmul, conv and recurrent ops,
    0 for others; bytes: read and written."""

    op: str
    steps: int
    flops: int
    macs: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class Place:
    """Steps that one kernel of one device runs. reference: a scalar kernel, because no faster one takes these operands."""

    device: str
    kernel: str
    op: str
    steps: int
    reference: bool


@dataclasses.dataclass
class Report:
    """What `linnet.check` found. `str(report)` is the summary line."""

    model: str
    dtype: str
    nodes: int
    problems: list[Problem]
    concerns: list[Concern]
    dynamic: Dynamic
    memory: Memory
    operations: list[OpCount]
    placement: list[Place]
    outline: Outline
    steps: list[Step] = dataclasses.field(default_factory=list, repr=False)
    graph: Graph | None = dataclasses.field(default=None, repr=False)

    @property
    def converts(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        parts = ["converts: " + ("yes" if self.converts else "no")]
        counts = (len(self.problems), "problem"), (len(self.concerns), "concern"), (self.dynamic_parts, "dynamic part")
        parts += [f"{n} {word}{'s' if n != 1 else ''}" for n, word in counts if n]
        return ", ".join(parts)

    @property
    def dynamic_parts(self) -> int:
        return sum(map(len, (self.dynamic.dims, self.dynamic.data_dependent, self.dynamic.loops)))

    def as_dict(self) -> dict[str, Any]:
        """Plain data, with the keys that docs/converting.md lists; they only grow."""
        places = [dataclasses.asdict(p) for p in self.placement]
        return {
            "model": self.model, "format": self.outline.format, "facts": self.outline.facts, "dtype": self.dtype,
            "converts": self.converts, "summary": str(self), "nodes": self.nodes,
            "problems": [dataclasses.asdict(p) for p in self.problems],
            "concerns": [dataclasses.asdict(c) for c in self.concerns],
            "dynamic": dataclasses.asdict(self.dynamic),
            "memory": dataclasses.asdict(self.memory),
            "operations": {
                "flops": sum(o.flops for o in self.operations), "macs": sum(o.macs for o in self.operations),
                "by_op": [dataclasses.asdict(o) for o in self.operations],
            },
            "placement": {
                "steps": sum(p.steps for p in self.placement),
                "reference": sum(p.steps for p in self.placement if p.reference),
                "devices": dict(_sums((p.device, p.steps) for p in self.placement)),
                "kernels": places,
            },
        }  # fmt: skip

    def to_json(self) -> str:
        """One JSON object: `as_dict`."""
        return json.dumps(self.as_dict())

    def to_html(self) -> str:
        """One page that needs nothing else, with the graph drawn. Needs the extra `linnet[report]`; raises UsageError."""
        from linnet.report_page import page

        return page(self)


def check(
    model: str | Path | onnx.ModelProto,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    dtype: str = "f32",
    calibration: Iterable[Mapping[str, Any]] | str | Path | None = None,
    table: str | Path | None = None,
    devices: Sequence[Device] = (),
) -> Report:
    """Looks at an ONNX or TFLite model without writing anything.

    input_shapes: {input name: shape}; dimensions that stay open are assumed for the estimates, and the report says how.
    dtype, calibration (batches, or the path of an .npz file), table: as for `linnet.quantize`; memory and placement are
    then those of the quantized graph. devices: of extensions (load_device), preferred to the CPU where they take an op.
    Raises FileError when the file cannot be read, UsageError for bad arguments. What stands in the way of a conversion is
    no exception but `Report.problems`.
    """
    from linnet import concerns

    conversion = _convert(model, input_shapes)
    outline, graph, problems = conversion.outline(), conversion.graph, list(conversion.problems)
    dims = _open_dims(graph) if "infer" in graph.signatures else []
    found = concerns.find(graph)
    if not problems and (dtype != "f32" or table is not None):
        graph = _quantized(graph, dtype, calibration, table)
    closed, note = (True, "") if not problems else _close(graph)
    weights = _weights(graph)
    estimate = _Estimate(dict(input_shapes or {}), note, devices)
    if closed:
        estimate.plan(graph, strict=not problems)
        problems += estimate.problems
    memory = Memory(
        estimate.shapes, estimate.regions, estimate.regions.get("total"), estimate.regions.get("lower_bound"), weights,
        complete=not estimate.note, note=estimate.note,
    )  # fmt: skip
    cuts, loops = _data_dependent(_at_fixed_sizes(model, conversion, graph, dims, estimate))
    assumed = [dataclasses.replace(d, assumed=_assumed(d, estimate.shapes)) for d in dims]
    return Report(
        model=str(model) if isinstance(model, str | Path) else model.graph.name or "model",
        dtype=dtype,
        nodes=len(outline.nodes),
        problems=problems,
        concerns=found,
        dynamic=Dynamic(tuple(assumed), tuple(cuts), tuple(loops)),
        memory=memory,
        operations=_operations(estimate.steps),
        placement=_placement(estimate.steps),
        outline=outline,
        steps=estimate.steps,
        graph=graph,
    )


def _convert(model: Any, input_shapes: Mapping[str, Sequence[int]] | None) -> Conversion:
    from linnet.converters import formats, onnx

    importer = formats.importer_of(model) if isinstance(model, str | Path) else onnx
    conversion: Conversion = importer.examine(model, input_shapes or None)
    return conversion


def _quantized(graph: Graph, dtype: str, calibration: Any, table: Any) -> Graph:
    from linnet.calibrate import batches_for
    from linnet.quantize import quantize

    if isinstance(calibration, str | Path):
        calibration = batches_for(calibration, graph)
    return quantize(graph, calibration, dtype, table=table)


# ---- dynamic parts


def _open_dims(graph: Graph) -> list[OpenDim]:
    """Open dimensions of the entry point, those of one name together."""
    signature = graph.signatures["infer"]
    function = signature.function
    named: dict[str, list[str]] = {}
    for names, tensors in ((signature.inputs, function.inputs), (signature.outputs, function.outputs)):
        for name, tensor in zip(names, tensors, strict=False):
            if tensor.shape is None:
                named[f"\0{name}"] = [f"{name}[any rank]"]
                continue
            for axis, dim in enumerate(tensor.shape):
                if not isinstance(dim, int):
                    named.setdefault(dim or f"\0{name}{axis}", []).append(f"{name}[{axis}]")
    return [OpenDim("" if key.startswith("\0") else key, tuple(where), None) for key, where in named.items()]


def _assumed(dim: OpenDim, shapes: Mapping[str, Sequence[int]]) -> int | None:
    for where in dim.where:
        name, _, axis = where.rpartition("[")
        if name in shapes and axis[:-1].isdigit() and int(axis[:-1]) < len(shapes[name]):
            return int(shapes[name][int(axis[:-1])])
    return None


def _at_fixed_sizes(
    model: Any, conversion: Conversion, graph: Graph, dims: Sequence[OpenDim], estimate: _Estimate
) -> Graph | None:
    """The graph with the sizes of the inputs filled in, so that what is still open depends on data; None when that fails."""
    if not dims:
        return graph
    names = conversion.graph.signatures["infer"].inputs
    wanted = {name: shape for name, shape in estimate.shapes.items() if name in names}
    if not wanted:
        return None
    again = _convert(model, wanted)
    return again.graph if len(again.problems) <= len(conversion.problems) else None


def _data_dependent(graph: Graph | None) -> tuple[list[DataDependent], list[DataDependent]]:
    """Nodes that end a plan's segment, and loops whose end is not known. The sizes of the inputs are known here."""
    cuts: list[DataDependent] = []
    loops: list[DataDependent] = []
    for node in (node for function in (graph.functions if graph else ()) for node in function.nodes):
        where, op = node.source or node.name or node.outputs[0].name, node.op
        if op == "if" and _computed(node, 0):
            cuts.append(DataDependent(where, op, "its condition is computed; the branch is planned when it is known"))
        elif op == "while":
            if _stops_early(node):
                text = f"ends by a computed condition (at most {LOOP_BOUND // 4} run if carried shapes change)"
                loops.append(DataDependent(where, op, text))
            elif _computed(node, 0):
                loops.append(
                    DataDependent(
                        where, op, f"its trip count is computed (at most {LOOP_BOUND} run if carried shapes change)"
                    )
                )
        elif op != "call" and _known(node.inputs) and not _known(node.outputs):
            cuts.append(DataDependent(where, op, "the shape of its result depends on values"))
    return list(dict.fromkeys(cuts)), list(dict.fromkeys(loops))


def _known(tensors: Sequence[Tensor | None]) -> bool:
    return all(t is None or t.static_shape is not None for t in tensors)


def _computed(node: Node, index: int) -> bool:
    tensor = node.inputs[index] if index < len(node.inputs) else None
    return tensor is not None and tensor.data is None


def _stops_early(loop: Node) -> bool:
    """Whether a loop's condition is computed in its body, or before it: neither a constant nor handed on."""
    body: Function = loop.attribute("body_function")
    end: Tensor | None = body.outputs[0]
    while (
        end is not None and end.node is not None and end.node.op == "copy" and end.node.attribute("kind") == "identity"
    ):
        end = end.node.inputs[0]
    handed_on = end is not None and len(body.inputs) > 1 and end is body.inputs[1]
    return _computed(loop, 1) or not (handed_on or (end is not None and end.data is not None))


# ---- memory, operations, placement


def _close(graph: Graph) -> tuple[bool, str]:
    """Makes inputs of the tensors that failed nodes should have made, so that the rest can be planned; what needs a tensor
    of unknown rank, or a function with failed nodes, is left out. Returns whether anything is left, and a note."""
    signature = graph.signatures.get("infer")
    if signature is None:
        return False, "nothing could be converted"
    main, broken = signature.function, list[Function]()
    for function in reversed(graph.functions):  # bodies come after those who name them
        if function is not main and (_missing(function) or any(_names(node, broken) for node in function.nodes)):
            broken.append(function)
    lost = {id(t) for t in _missing(main) if t.shape is None}
    nodes = []
    for node in main.nodes:
        if any(id(t) in lost for t in node.inputs) or _names(node, broken):
            lost.update(id(t) for t in node.outputs)
        else:
            nodes.append(node)
    note = "without the unsupported nodes" + (" and what needs their results" if len(nodes) < len(main.nodes) else "")
    main.nodes[:] = nodes
    for tensor in _missing(main):
        main.inputs.append(tensor)
        signature.inputs.append(tensor.name)
    graph.functions[:] = [f for f in graph.functions if f not in broken]
    read = {id(t) for node in nodes for t in node.inputs}
    made = [t for node in nodes for t in node.outputs]
    main.outputs = [t for t in made if id(t) not in read or t in main.outputs]  # what fed failed nodes is computed too
    signature.outputs = [t.name for t in main.outputs]
    return bool(nodes), note if nodes else "nothing could be converted"


def _names(node: Node, functions: Sequence[Function]) -> bool:
    return any(isinstance(value, Function) and value in functions for value in node.attributes.values())


def _missing(function: Function) -> list[Tensor]:
    """Tensors that are read but made by nothing."""
    made = {id(t) for t in function.inputs} | {id(t) for node in function.nodes for t in node.outputs}
    read = {id(t): t for node in function.nodes for t in node.inputs if t is not None}
    return [t for key, t in read.items() if key not in made and t.data is None and t.variable is None]


class _Estimate:
    """A plan of the graph at the given sizes, or at assumed ones; what it says, or why there is none."""

    def __init__(self, given: dict[str, Sequence[int]], note: str, devices: Sequence[Device]) -> None:
        self.given, self.note, self.devices = given, note, devices
        self.shapes: dict[str, list[int]] = {}
        self.regions: dict[str, int] = {}
        self.steps: list[Step] = []
        self.problems: list[Problem] = []

    def plan(self, graph: Graph, strict: bool) -> None:
        """strict: what the file or its plan is refused for, at sizes that nobody assumed, is a problem of the model."""
        from linnet.model import Model
        from linnet.planner import Planner

        try:
            model = Model(graph)
        except Error as error:
            self._fail(error, strict)
            return
        failure: Error | None = None
        for guess in _GUESSES:
            shapes, assumed = self._sizes(graph, guess)
            if shapes is None:
                self.note = self.note or "an input has no rank: give --input"
                return
            try:
                planner = Planner(model, devices=self.devices)
                planner.plan(shapes)
                self.shapes = {name: list(shape) for name, shape in shapes.items()}
                self.regions, self.steps = dict(planner.memory), planner.steps
                if planner.plan_info["segments"] > 1:
                    also = "parts whose shapes depend on data are planned while running and come on top"
                    self.note = "; ".join(filter(None, (self.note, also)))
                return
            except Error as error:
                failure = failure or error
                if not assumed:
                    break
        assert failure is not None
        self._fail(failure, strict and not assumed)

    def _fail(self, error: Error, problem: bool) -> None:
        if problem:
            self.problems.append(Problem(error.tensor, error.op or "graph", str(error), error.hint))
        self.note = "; ".join(filter(None, (self.note, f"no plan at the sizes tried (give --input): {error}")))

    def _sizes(self, graph: Graph, guess: int) -> tuple[dict[str, tuple[int, ...]] | None, bool]:
        """Shapes of the inputs, and whether one was assumed. Axis 0 is 1; guess 0: 224 for images, else 16."""
        signature = graph.signatures["infer"]
        shapes: dict[str, tuple[int, ...]] = {}
        names: dict[str, int] = {}
        assumed = False
        for name, tensor in zip(signature.inputs, signature.function.inputs, strict=True):
            if name in self.given:
                for dim, size in zip(tensor.shape or (), self.given[name], strict=False):
                    if isinstance(dim, str):
                        names[dim] = int(size)
        for name, tensor in zip(signature.inputs, signature.function.inputs, strict=True):
            if name in self.given:
                shapes[name] = tuple(int(d) for d in self.given[name])
                continue
            if tensor.shape is None:
                return None, True
            size = guess or (224 if len(tensor.shape) == 4 else 16)
            dims = []
            for axis, dim in enumerate(tensor.shape):
                if not isinstance(dim, int):
                    assumed = True
                    first = axis == 0 or (isinstance(dim, str) and "batch" in dim.lower())
                    dim = names.setdefault(dim, 1 if first else size) if dim else 1 if first else size
                dims.append(dim)
            shapes[name] = tuple(dims)
        return shapes, assumed


def _weights(graph: Graph) -> int:
    arrays = {id(t.data): t.data.nbytes for f in graph.functions for t in f.tensors() if t.data is not None}
    return sum(arrays.values())


def _operations(steps: Sequence[Step]) -> list[OpCount]:
    rows: dict[str, list[int]] = {}
    for step in steps:
        row = rows.setdefault(step.op, [0, 0, 0])
        row[0], row[1], row[2] = row[0] + 1, row[1] + step.flops, row[2] + step.bytes
    heavy = ("matmul", "conv", "conv_transpose", "recurrent")
    made = [OpCount(op, n, flops, flops // 2 if op in heavy else 0, size) for op, (n, flops, size) in rows.items()]
    return sorted(made, key=lambda row: (-row.flops, -row.bytes, row.op))


def _placement(steps: Sequence[Step]) -> list[Place]:
    counts = Counter((s.device, s.kernel, s.op) for s in steps)
    return [Place(*key, steps=n, reference=is_reference(key[1])) for key, n in counts.most_common()]


def is_reference(kernel: str) -> bool:
    """Whether a kernel's name is that of a scalar reference kernel."""
    return "reference" in kernel


def _sums(pairs: Iterable[tuple[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for key, n in pairs:
        total[key] += n
    return total
