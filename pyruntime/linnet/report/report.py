"""`linnet.check`: everything a user wants to know about a model before converting it, as one Report.
Problems prevent a conversion; concerns do not. Memory, operations and placement come from a real plan at given or
assumed sizes."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.clib.errors import Error, Problem
from linnet.converters.outline import Conversion
from linnet.facade import Graph
from linnet.ir import traits
from linnet.ir.dtypes import DTypeLike, bytes_of, named
from linnet.ir.function import Function, Node, Tensor
from linnet.ir.graph import dtype_of_graph
from linnet.report.contents import Contents, DataDependent, Dynamic, Memory, OpCount, OpenDim, Place, is_reference

if TYPE_CHECKING:
    import onnx

    from linnet.ir.user_op import UserOp
    from linnet.session.device import Device
    from linnet.session.model import Model
    from linnet.session.step import Step

LOOP_BOUND = 4096  # iteration limit of a loop whose carried shapes change (docs/converting.md)
_GUESSES = (0, 32, 64, 128, 256, 320, 512, 1024, 16000)  # candidate sizes of open dimensions; 0: chosen by rank


class Report(Contents):
    """The result of `linnet.check`. `str(report)` is the summary line."""

    def to_html(self) -> str:
        """One self-contained HTML page. The graph is drawn if the extra `report` is installed."""
        from linnet.report.page import page

        return page(self)


def check(
    model: str | Path | onnx.ModelProto,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    dtype: DTypeLike = "f32",
    calibration: Iterable[Mapping[str, Any]] | str | Path | None = None,
    table: str | Path | None = None,
    devices: Sequence[str | Device] = (),
    user_ops: Iterable[UserOp] = (),
    seconds: float = 0.0,
    device: str | Device | None = None,
    trust_pickle: bool = False,
    samples: int | None = None,
    image: str | None = None,
) -> Report:
    """Examines an ONNX or TFLite model, or a saved PyTorch module, without writing anything.

    input_shapes: {input name: shape}. Sizes that stay open are assumed for the estimates, and the report says which.
    dtype, calibration (batches, or the path of an .npz file or a folder), table: as for `linnet.quantize`. If dtype is
        given, memory and placement are those of the quantized graph. samples, image: the largest number of samples of a
        folder, and how its pictures become the model's input, as for `linnet.preprocess.recipe`.
    device or devices: as for Session. They are used instead of the CPU for the ops that they support. user_ops: for
        nodes of custom domains of an ONNX model, and custom operators of a TFLite model.
    seconds: how long to time the model on random input; 0: not at all. trust_pickle: as for `linnet.load_graph`.
    Raises FileError if the file cannot be read. Raises UsageError for bad arguments. Reasons that prevent a conversion
    are not raised; they are in `Report.problems`.
    """
    from linnet.report import concerns
    from linnet.session.options import SessionOptions, devices_of

    options, dtype = SessionOptions(device=device, devices=devices), named(dtype)
    used = devices_of(options.device, options.devices)
    conversion = _convert(model, input_shapes, user_ops, trust_pickle)
    outline, graph, problems = conversion.outline(), conversion.graph, list(conversion.problems)
    dims = _open_dims(graph) if "infer" in graph.signatures else []
    found = concerns.find(graph)
    if not problems and (dtype != "f32" or table is not None):
        graph = _quantized(graph, dtype, calibration, table, samples, image)
    elif dtype == "f32":
        dtype = dtype_of_graph(graph)
    closed, note = (True, "") if not problems else _close(graph)
    weights = _weights(graph)
    estimate = _Estimate(dict(input_shapes or {}), note, used)
    if closed:
        estimate.plan(graph, strict=not problems)
        problems += estimate.problems
    timings = None
    if seconds > 0 and estimate.model is not None and not problems:
        from linnet.report.timings import measure

        timings, steps = measure(estimate.model, estimate.shapes, seconds, used)
        estimate.steps = steps or estimate.steps
    memory = Memory(
        estimate.shapes, estimate.regions, estimate.regions.get("total"), estimate.regions.get("lower_bound"), weights,
        complete=not estimate.note, note=estimate.note,
    )  # fmt: skip
    cuts, loops = _data_dependent(_at_fixed_sizes(model, conversion, graph, dims, estimate, trust_pickle))
    assumed = [dataclasses.replace(d, assumed=_assumed(d, estimate.shapes)) for d in dims]
    return Report(
        model=str(model) if isinstance(model, str | Path) else model.graph.name or "model",
        dtype=dtype,
        nodes=len(outline.nodes),
        problems=problems,
        concerns=found,
        dynamic=Dynamic(tuple(assumed), tuple(cuts), tuple(loops)),
        memory=memory,
        operations=operations(estimate.steps),
        placement=_placement(estimate.steps),
        outline=outline,
        timings=timings,
        steps=estimate.steps,
        graph=graph,
    )


def _convert(
    model: Any, input_shapes: Mapping[str, Sequence[int]] | None, user_ops: Iterable[UserOp] = (), trust: bool = False
) -> Conversion:
    from linnet.converters import formats, onnx

    if isinstance(model, str | Path):
        return formats.examine(model, input_shapes, user_ops, trust)
    return onnx.examine(model, input_shapes or None, user_ops=user_ops)


def _quantized(graph: Graph, dtype: str, calibration: Any, table: Any, samples: int | None, image: str | None) -> Graph:
    from linnet.quantization.entry import quantize
    from linnet.quantization.sources import samples_of

    if isinstance(calibration, str | Path):
        calibration = samples_of(graph, calibration, samples, image=image)
    return quantize(graph, calibration, dtype, table=table, effort="fast")


# ---- dynamic parts


def _open_dims(graph: Graph) -> list[OpenDim]:
    """The entry point's open dimensions. Dimensions with the same name are combined."""
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
    model: Any,
    conversion: Conversion,
    graph: Graph,
    dims: Sequence[OpenDim],
    estimate: _Estimate,
    trust: bool,
) -> Graph | None:
    """The graph with the sizes of its inputs filled in, so that only data-dependent dimensions stay open. None if that
    fails."""
    if not dims:
        return graph
    names = conversion.graph.signatures["infer"].inputs
    wanted = {name: shape for name, shape in estimate.shapes.items() if name in names}
    if not wanted:
        return None
    again = _convert(model, wanted, trust=trust)
    return again.graph if len(again.problems) <= len(conversion.problems) else None


def _data_dependent(graph: Graph | None) -> tuple[list[DataDependent], list[DataDependent]]:
    """Nodes that end a segment of the plan, and loops without a known end. Input sizes are known here."""
    cuts: list[DataDependent] = []
    loops: list[DataDependent] = []
    for node in (node for function in (graph.functions if graph else ()) for node in function.nodes):
        where, op = node.source or node.name or node.outputs[0].name, node.op
        if op == "if" and _computed(node, 0):
            cuts.append(DataDependent(where, op, "its condition is computed, so the branch is planned at run time"))
        elif op == "while":
            if _stops_early(node):
                text = (
                    f"it ends when a computed condition is met (at most {LOOP_BOUND // 4} iterations if carried "
                    "shapes change)"
                )
                loops.append(DataDependent(where, op, text))
            elif _computed(node, 0):
                loops.append(
                    DataDependent(
                        where,
                        op,
                        f"its trip count is computed (at most {LOOP_BOUND} iterations if carried shapes change)",
                    )
                )
        elif op != "call" and _known(node.inputs) and not _known(node.outputs):
            cuts.append(DataDependent(where, op, "the shape of its result depends on data"))
    return list(dict.fromkeys(cuts)), list(dict.fromkeys(loops))


def _known(tensors: Sequence[Tensor | None]) -> bool:
    return all(t is None or t.static_shape is not None for t in tensors)


def _computed(node: Node, index: int) -> bool:
    tensor = node.inputs[index] if index < len(node.inputs) else None
    return tensor is not None and tensor.data is None


def _stops_early(loop: Node) -> bool:
    """Whether a loop's condition can end the loop early. This is so if the condition is computed before or in the body,
    and is neither a constant nor only passed on."""
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
    """Turns the outputs of failed nodes into inputs, so that the rest can be planned. Nodes that need a tensor of
    unknown rank or a function with failed nodes are left out. Returns whether anything is left, and a note."""
    signature = graph.signatures.get("infer")
    if signature is None:
        return False, "no node could be converted"
    main, broken = signature.function, list[Function]()
    for function in reversed(graph.functions):  # bodies come after the functions that use them
        if function is not main and (_missing(function) or any(_names(node, broken) for node in function.nodes)):
            broken.append(function)
    lost = {id(t) for t in _missing(main) if t.shape is None}
    nodes = []
    for node in main.nodes:
        if any(id(t) in lost for t in node.inputs) or _names(node, broken):
            lost.update(id(t) for t in node.outputs)
        else:
            nodes.append(node)
    note = "without unsupported nodes" + (" and nodes that depend on them" if len(nodes) < len(main.nodes) else "")
    main.nodes[:] = nodes
    for tensor in _missing(main):
        main.inputs.append(tensor)
        signature.inputs.append(tensor.name)
    graph.functions[:] = [f for f in graph.functions if f not in broken]
    read = {id(t) for node in nodes for t in node.inputs}
    made = [t for node in nodes for t in node.outputs]
    main.outputs = [
        t for t in made if id(t) not in read or t in main.outputs
    ]  # the inputs of failed nodes are computed too
    signature.outputs = [t.name for t in main.outputs]
    return bool(nodes), note if nodes else "no node could be converted"


def _names(node: Node, functions: Sequence[Function]) -> bool:
    return any(isinstance(value, Function) and value in functions for value in node.attributes.values())


def _missing(function: Function) -> list[Tensor]:
    """Tensors that are read, but not produced by any node."""
    made = {id(t) for t in function.inputs} | {id(t) for node in function.nodes for t in node.outputs}
    read = {id(t): t for node in function.nodes for t in node.inputs if t is not None}
    return [t for key, t in read.items() if key not in made and t.data is None and t.variable is None]


class _Estimate:
    """A plan of the graph at the given or assumed sizes: its results, or the reason why there is none."""

    def __init__(self, given: dict[str, Sequence[int]], note: str, devices: Sequence[Device]) -> None:
        self.given, self.note, self.devices = given, note, devices
        self.shapes: dict[str, list[int]] = {}
        self.regions: dict[str, int] = {}
        self.steps: list[Step] = []
        self.problems: list[Problem] = []
        self.model: Model | None = None  # once it has been planned

    def plan(self, graph: Graph, strict: bool) -> None:
        """Makes the plan. strict: a rejected file or plan counts as a problem of the model, unless sizes were
        assumed."""
        from linnet.session.model import Model
        from linnet.session.planner import Planner

        try:
            model = Model(graph)
        except Error as error:
            self._fail(error, strict)
            return
        failure: Error | None = None
        for guess in _GUESSES:
            shapes, assumed = self._sizes(graph, guess)
            if shapes is None:
                self.note = self.note or "the rank of an input is unknown; give --input"
                return
            try:
                planner = Planner(model, devices=self.devices)
                planner.plan(shapes)
                self.model = model
                self.shapes = {name: list(shape) for name, shape in shapes.items()}
                self.regions, self.steps = dict(planner.memory), planner.steps
                if planner.plan_info["segments"] > 1:
                    also = "parts with data-dependent shapes are planned at run time and add to this"
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
        self.note = "; ".join(filter(None, (self.note, f"planning failed at all sizes tried (give --input): {error}")))

    def _sizes(self, graph: Graph, guess: int) -> tuple[dict[str, tuple[int, ...]] | None, bool]:
        """Shapes of the inputs, and whether a size was assumed. An open size of axis 0 is taken as 1, and open sizes of
        other axes as `guess`. If `guess` is 0, the other axes get 224 for images, else 16."""
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
    tensors = [t for f in graph.functions for t in f.tensors()]
    arrays = {id(t.data): bytes_of(t.dtype, t.data.shape) for t in tensors if t.data is not None}
    return sum(arrays.values())


def operations(steps: Sequence[Step]) -> list[OpCount]:
    """The work of the steps of a plan, by op."""
    rows: dict[str, list[int]] = {}
    for step in steps:
        row = rows.setdefault(step.op, [0, 0, 0])
        row[0], row[1], row[2] = row[0] + 1, row[1] + step.flops, row[2] + step.bytes
    heavy = traits.family("product", "recurrent")
    made = [OpCount(op, n, flops, flops // 2 if op in heavy else 0, size) for op, (n, flops, size) in rows.items()]
    return sorted(made, key=lambda row: (-row.flops, -row.bytes, row.op))


def _placement(steps: Sequence[Step]) -> list[Place]:
    counts = Counter((s.device, s.kernel, s.op) for s in steps)
    return [Place(*key, steps=n, reference=is_reference(key[1])) for key, n in counts.most_common()]
