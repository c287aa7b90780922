"""Quantization after training: `quantize(graph, calibration, dtype)` gives a graph that computes at f16, i16 or i8.

The graph is emitted anew, node by node. Every tensor may exist in several forms (f32, f16, quantized); a form that is
missing is made by a conversion. Scheme: Jacob et al. 2018 and the TFLite 8-bit specification: weights symmetric per
channel, activations per tensor, asymmetric at i8, symmetric at i16 (weights stay i8: int16x8).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet._generated.op_table import OPCODES
from linnet.calibrate import Feeds, Range, record_ranges
from linnet.errors import UsageError
from linnet.graph import DTYPE_IDS, Function, Graph, Node, Quantization, Tensor, emit
from linnet.quantization_table import Row, Table

INTEGER_OPS = {"conv", "conv_transpose", "matmul"}
KEY = "quantize_aware"  # metadata of graphs that were trained for it
SMALL = 4096  # elements: what is smaller gains nothing from being stored as integers
FLOATS_KEPT = {
    "quantize",
    "dequantize",
    "range",
    "shape",
    "nonzero",
    "assign",
    "if",
    "while",
    "call",
    "recurrent",
    "nms",
    "random",
    "roi_align",
}
_EXACT = ("preprocess:", "postprocess:")  # steps of linnet.preprocess, which are not the network's own
_OPCODE = {name: row[0] for name, row in OPCODES.items()}
LIMITS = {"i8": (-128, 127), "i16": (-32768, 32767)}


@dataclasses.dataclass(frozen=True)
class Form:
    """How a float tensor is stored: dtype, and for integers the group whose scale and zero it has."""

    dtype: str
    group: int = -1


F32 = Form("f32")


def quantize(
    graph: Graph,
    calibration: Iterable[Feeds] | None = None,
    dtype: str = "i8",
    *,
    table: Table | str | Path | None = None,
    table_out: str | Path | None = None,
    progress: bool = False,
    threads: int | None = None,
    weight_bits: int = 8,
    values: Mapping[str, npt.ArrayLike] | None = None,
) -> Graph:
    """A graph that computes at `dtype`: "f16" (storage; sums stay f32), "i16" (int16 activations, int8 weights) or "i8".

    calibration: dictionaries {input name: array}, needed for i16 and i8; NaN is refused. table: per-layer overrides
    (quantization_table). table_out: where to write the table as decided. weight_bits: levels of integer weights, 2 to 8; all
    are stored in 8. values: of the graph's variables after training, for example a `Store`; a graph that `quantize_aware` made
    brings its ranges and weight_bits along, and needs no calibration. Inputs and outputs keep their element types.
    Raises UsageError for a bad argument or batch.
    """
    if dtype == "f32" and table is None:
        return graph
    if dtype not in ("f32", "f16", "i16", "i8"):
        raise UsageError(
            what="unknown element type to quantize to",
            expected="f16, i16 or i8",
            got=str(dtype),
            hint="pass dtype='i8'",
        )
    if not 2 <= weight_bits <= 8:
        raise UsageError("weights cannot have so many bits", code=101, expected="2 to 8", got=str(weight_bits))
    ranges: dict[str, Range] = {}
    if values is not None or KEY in graph.metadata or len(graph.functions) > 1:
        from linnet.quantize_aware import deployable, trained_ranges

        trained = json.loads(graph.metadata.get(KEY, "{}"))
        if trained.get("dtype", dtype) != dtype:
            raise UsageError("the graph was trained for another type", code=101, expected=trained["dtype"], got=dtype)
        weight_bits = trained.get("weight_bits", weight_bits)
        ranges = trained_ranges(graph, values)
        graph = deployable(graph, values)
    overrides = table if isinstance(table, Table) else Table.read(table) if table is not None else Table()
    quantizer = Quantizer(graph, dtype, overrides, weight_bits)
    if quantizer.stored and not quantizer.take(ranges):
        if calibration is None:
            raise UsageError(
                what=f"quantizing to {dtype} needs calibration batches", expected="an iterable of {input name: array}",
                got="none", hint="pass typical inputs, or use dtype='f16', which needs none",
            )  # fmt: skip
        quantizer.calibrate(calibration, progress, threads)
    result = quantizer.rewrite()
    if table_out is not None:
        quantizer.table().write(table_out)
    return result


def activation_parameters(seen: Range, dtype: str) -> Quantization:
    """Scale and zero point that cover [low, high] and zero: asymmetric for i8, symmetric for i16."""
    low, high = min(seen.low, 0.0), max(seen.high, 0.0)
    least, greatest = LIMITS[dtype]
    if dtype == "i16":
        scale = max(-low, high) / greatest
        zero = 0
    else:
        scale = (high - low) / (greatest - least)
        zero = 0
    if scale < 1e-30:  # a tensor that is always zero
        return Quantization(np.array([1.0], np.float32), np.array([0], np.int32), None, 8 if dtype == "i8" else 16)
    if dtype == "i8":
        zero = int(np.clip(np.rint(least - low / scale), least, greatest))
    bits = 8 if dtype == "i8" else 16
    return Quantization(np.array([scale], np.float32), np.array([zero], np.int32), None, bits)


def weight_parameters(
    weights: npt.NDArray[Any], axis: int | None, least: npt.NDArray[np.float64] | float = 0.0, bits: int = 8
) -> tuple[npt.NDArray[np.int8], Quantization]:
    """int8 weights, symmetric, per slice of `axis` (or per tensor), and their parameters.

    least: smallest scale allowed, one number or one per slice. bits: of the values; they are stored in 8 in any case.
    """
    limit = weight_limit(bits)
    values = np.asarray(weights, np.float32)
    rest = tuple(i for i in range(values.ndim) if i != axis)
    peak = np.abs(values).max(axis=rest if axis is not None else None, keepdims=True, initial=0.0)  # 0 without elements
    scale = np.maximum(peak / float(limit), np.reshape(least, peak.shape if np.ndim(least) else ())).astype(np.float32)
    scale = np.where(scale >= 1e-30, scale, np.float32(1.0))  # a slice that is always zero
    stored = np.clip(np.rint(values / scale), -limit, limit).astype(np.int8)
    flat = scale.reshape(-1)
    return stored, Quantization(flat, np.zeros(flat.shape, np.int32), axis, 8)


def weight_limit(bits: int) -> int:
    """The largest integer of symmetric weights."""
    return (1 << (bits - 1)) - 1


class Quantizer:
    """The decisions, and the graph emitted anew by them."""

    def __init__(self, graph: Graph, dtype: str, overrides: Table, weight_bits: int = 8) -> None:
        if "infer" not in graph.signatures or len(graph.functions) != 1:
            raise UsageError(
                what="this graph cannot be quantized after training", expected="one function, with the signature 'infer'",
                got=f"{len(graph.functions)} functions; signatures {', '.join(graph.signatures) or 'none'}",
                hint="quantize the inference graph before adding sub-graphs",
            )  # fmt: skip
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
        self.group: dict[Tensor, Tensor] = {}  # union-find: tensors that share scale and zero
        self.parameters: dict[tuple[Tensor, str], Quantization] = {}
        self.folded_clamps = self._clamps_after_integers()
        self.passing: set[Node] = set()  # nodes that move integers as they are
        self.stored = self._stored_forms()
        self.forms: dict[tuple[Tensor, str], Tensor] = {}

    # ---- decisions ---------------------------------------------------------------------------------------------

    def _shape_arithmetic(self) -> set[Tensor]:
        """Float tensors computed from shapes alone: they hold sizes, which f16 and int8 would ruin."""
        known: set[Tensor] = set()
        for node in self.old.nodes:
            inputs = [t for t in node.inputs if t is not None]
            if node.op == "shape" or (inputs and all(t in known or t.data is not None for t in inputs)):
                known.update(node.outputs)
        return known

    def _mode(self, node: Node) -> str:
        """Element type the node computes in: f32, f16, i16 or i8."""
        names = [node.name, *(t.name for t in node.outputs)]
        wanted = self.overrides.dtype(*names, default=self.dtype)
        if node.op in FLOATS_KEPT or any(t in self.fixed for t in node.outputs):
            return "f32"
        if any(part.startswith(_EXACT) for part in node.source.split("+")):
            return "f32"
        x = node.inputs[0] if node.inputs else None
        if node.op in INTEGER_OPS and x is not None and x.dtype in ("i8", "u8", "i16"):
            return "f32"  # quantized already: it stays as it is
        constants = [t.data for t in node.inputs if t is not None and t.data is not None and t.dtype == "f32"]
        if wanted == "f16" and node.op != "map" and not all(map(_fits_f16, constants)):
            return "f32"  # maps choose per operand
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
        # Two activations: exact at i8; at i16 the weights' side would lose its high byte, so it stays float.
        return node.op == "matmul" and wanted == "i8" and w.dtype == "f32"

    def _clamps_after_integers(self) -> dict[Node, Node]:
        """Integer node: the clamp that follows it alone, which the output's range expresses by saturating."""
        table: dict[Node, Node] = {}
        for node in self.integer_nodes:
            y = node.outputs[0]
            users = self.consumers.get(y, [])
            alone = len(users) == 1 and y not in self.outputs and self.modes[users[0]] == self.modes[node]
            if alone and _clamp_limits(users[0]) is not None:
                table[node] = users[0]
        return table

    def _expressed_by_range(self, clamp: Node, dtype: str) -> bool:
        """Saturating at the ends of the output's range does what the clamp does, to within half a step."""
        limits = _clamp_limits(clamp)
        assert limits is not None
        parameters = self._parameters(clamp.outputs[0], dtype)
        scale, zero = float(parameters.scale[0]), int(parameters.zero[0])
        low, high = ((end - zero) * scale for end in LIMITS[dtype])
        return low >= limits[0] - scale / 2 and high <= limits[1] + scale / 2

    def _stored_forms(self) -> dict[Tensor, str]:
        """Tensor: the integer type it is stored in. Absent: float."""
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
        """A large result that nobody needs as integers, but every reader can read so: a quarter of the memory traffic.

        A lone map behind an integer op is its epilogue, and then nothing is stored at all.
        """
        y = node.outputs[0]
        users = self.consumers.get(y, [])
        shape = y.static_shape
        if y.dtype != "f32" or y in self.fixed or y in self.outputs or not users or len(node.outputs) != 1:
            return False
        if shape is not None and int(np.prod(shape)) < SMALL:
            return False
        if any(u.op not in ("map", "reduce") or self.modes[u] not in LIMITS or u.inputs[0] is None for u in users):
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
        """Moves or selects values: integers pass with one scale and zero on both sides."""
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
        """The tensor that stands for the group that shares scale and zero with this one."""
        while tensor in self.group:
            tensor = self.group[tensor]
        return tensor

    def _union(self, a: Tensor, b: Tensor) -> None:
        a, b = self.root(a), self.root(b)
        if a is not b:
            self.group[b] = a

    def take(self, ranges: Mapping[str, Range]) -> bool:
        """Takes ranges that are known, by name. Whether those are all that are needed."""
        for tensor in self.stored:
            if tensor.name in ranges:
                self.ranges[self.root(tensor)] = ranges[tensor.name]
        return all(self.root(tensor) in self.ranges for tensor in self.stored)

    # ---- calibration -------------------------------------------------------------------------------------------

    def calibrate(self, batches: Iterable[Feeds], progress: bool, threads: int | None) -> None:
        """Ranges of every tensor stored as integers; members of a group share one."""
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

    # ---- the new graph -----------------------------------------------------------------------------------------

    def rewrite(self) -> Graph:
        """Emits the graph anew."""
        self.new = Graph()
        self.new.metadata = {**self.graph.metadata, "dtype": self.dtype}
        self.new.variables = dict(self.graph.variables)
        self.function: Function = self.new.function(self.old.name)
        for tensor in self.old.inputs:
            self.forms[tensor, tensor.dtype] = self.function.placeholder(tensor.name, tensor.dtype, tensor.shape)
        skipped = set(self.folded_clamps.values())
        for node in self.old.nodes:
            if node in skipped:
                continue
            self.function.source = node.source
            if node.op in INTEGER_OPS and self.modes[node] in LIMITS:
                self._emit_integer(node)
            elif node.op == "map":
                self._emit_map(node)
            elif node in self.passing:
                self._emit_passing(node)
            elif node.op == "reduce" and self.modes[node] in LIMITS:
                self._emit_reduce(node)
            else:
                self._emit_float(node)
        for tensor in self.old.outputs:
            made = self._get(tensor, tensor.dtype)
            if made in self.function.inputs or made in self.function.outputs or made.data is not None:
                made = emit("copy", [made], {"kind": "identity"}, function=self.function)[0]
            self.function.outputs.append(made)
        signature = self.graph.signatures["infer"]
        self.new.signature("infer", self.function, signature.inputs, signature.outputs)
        return self.new

    def _get(self, tensor: Tensor, dtype: str) -> Tensor:
        """The tensor in the new graph, stored as `dtype`; converted when it is not there in that form."""
        key = (tensor, dtype)
        if key in self.forms:
            return self.forms[key]
        if tensor.data is not None and tensor.dtype in ("f32", dtype):
            self.forms[key] = self._constant(tensor, dtype)
            return self.forms[key]
        if tensor.variable is not None and (tensor, tensor.dtype) not in self.forms:
            self.forms[tensor, tensor.dtype] = self.function.read(tensor.variable)
            return self._get(tensor, dtype)
        source = next(made for (old, _), made in self.forms.items() if old is tensor)
        self.forms[key] = self._convert(source, tensor, dtype)
        return self.forms[key]

    def _constant(self, tensor: Tensor, dtype: str) -> Tensor:
        assert tensor.data is not None
        if dtype in LIMITS and tensor.dtype == "f32":
            parameters = self._parameters(tensor, dtype)
            least, greatest = LIMITS[dtype]
            stored = np.rint(tensor.data / parameters.scale[0]) + parameters.zero[0]
            array = np.clip(stored, least, greatest).astype(np.int8 if dtype == "i8" else np.int16)
            return self.function.constant(array, tensor.name, quantization=parameters)
        if dtype == "f16" and tensor.dtype == "f32":
            return self.function.constant(tensor.data.astype(np.float16), tensor.name)
        return self.function.constant(tensor.data, tensor.name, tensor.dtype, tensor.quantization)

    def _convert(self, source: Tensor, tensor: Tensor, dtype: str) -> Tensor:
        """One map: load (dequantized), store (quantized)."""
        load = "load_dequantized" if source.dtype in LIMITS else "load"
        store = "store_quantized" if dtype in LIMITS else "store"
        program = [_OPCODE[load], 1, 0, 0, 0, _OPCODE[store], 1, 0, 0, 0]
        result = self._emit("map", [source], {"program": program, "dtypes": [DTYPE_IDS[dtype]]}, [tensor], [dtype])
        return result[0]

    def _emit(
        self,
        op: str,
        inputs: list[Tensor | None],
        attributes: dict[str, Any],
        old: list[Tensor],
        dtypes: list[str],
        name: str = "",
    ) -> list[Tensor]:
        parameters = [
            self._parameters(tensor, dtype) if dtype in LIMITS and tensor.dtype == "f32" else tensor.quantization
            for tensor, dtype in zip(old, dtypes, strict=True)
        ]
        made = emit(op, inputs, attributes, len(old), name, self.function, parameters, dtypes)
        for new, tensor in zip(made, old, strict=True):
            new.name = self.function.unique(tensor.name)
            if new.shape is None or None in new.shape:
                new.shape = tensor.shape if tensor.shape is not None else new.shape
        return made

    def _keep(self, node: Node, made: list[Tensor]) -> None:
        for tensor, new in zip(node.outputs, made, strict=True):
            self.forms[tensor, new.dtype] = new

    def _emit_integer(self, node: Node) -> None:
        mode = self.modes[node]
        x, w = node.inputs[0], node.inputs[1]
        assert x is not None and w is not None
        y = self._final_output(node)
        new_x = self._get(x, mode)
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        limit = 2.0**30 if mode == "i8" else 2.0**52
        if w.data is not None:
            axis = weight_axis(node, w.data.ndim)
            least: npt.NDArray[np.float64] | float = 0.0
            if bias is not None and bias.data is not None and bias.data.size:
                # A channel with tiny weights gets a coarser scale, or its bias would not fit the accumulator.
                assert new_x.quantization is not None
                sizes = np.abs(bias.data.astype(np.float64)).reshape(-1) / (limit * new_x.quantization.scale[0])
                least = sizes if axis is not None and sizes.size == w.data.shape[axis] else float(sizes.max())
            stored, parameters = weight_parameters(w.data, axis, least, self.weight_bits)
            new_w = self.function.constant(stored, w.name, quantization=parameters)
        else:
            new_w = self._get(w, mode)
            assert new_w.quantization is not None
            parameters = new_w.quantization
        new_bias = None
        if bias is not None and bias.data is not None:
            assert new_x.quantization is not None
            scale = np.float64(new_x.quantization.scale[0]) * parameters.scale.astype(np.float64)
            wide = np.rint(bias.data.astype(np.float64) / scale)
            array = np.clip(wide, -limit, limit).astype(np.int32 if mode == "i8" else np.int64)
            new_bias = self.function.constant(array, bias.name)
        # A lone activation behind it becomes its epilogue and reads f32 accumulators; otherwise integers come out.
        users = self.consumers.get(y, [])
        direct = self.stored.get(y) == mode
        if node in self.folded_clamps:
            direct = direct and self._expressed_by_range(self.folded_clamps[node], mode)
        elif len(users) == 1 and users[0].op == "map":
            direct = False
        dtype = mode if direct else "f32"
        attributes = {**node.attributes, "output_dtype": dtype}
        old = [y if node in self.folded_clamps and dtype != "f32" else node.outputs[0]]
        made = self._emit(node.op, [new_x, new_w, new_bias], attributes, old, [dtype], node.name)
        self.forms[old[0], dtype] = made[0]
        if node in self.folded_clamps and dtype == "f32":
            self._emit_map(self.folded_clamps[node])

    def _emit_map(self, node: Node) -> None:
        mode = self.modes[node]
        program = list(node.attributes["program"])
        inputs: list[Tensor | None] = []
        for tensor in node.inputs:
            assert tensor is not None
            available = [dtype for (old, dtype) in self.forms if old is tensor]
            if tensor.dtype != "f32" or tensor in self.fixed or self._is_table(program, len(inputs)):
                inputs.append(self._get(tensor, tensor.dtype))
            elif tensor.data is not None:
                inputs.append(self._get(tensor, "f16" if mode == "f16" and _fits_f16(tensor.data) else "f32"))
            else:
                floats = [dtype for dtype in available if dtype not in LIMITS]
                inputs.append(self._get(tensor, (floats or available or ["f32"])[0]))
        dtypes = []
        for tensor in node.outputs:
            if tensor.dtype != "f32" or tensor in self.fixed:
                dtypes.append(tensor.dtype)
            else:
                dtypes.append(self.stored.get(tensor, "f16" if mode == "f16" else "f32"))
        for i in range(0, len(program), 5):
            opcode, kind, a, b, _ = program[i : i + 5]
            operand = inputs[a] if opcode == _OPCODE["load"] else None
            if operand is not None and operand.dtype in LIMITS and operand.quantization is not None and kind == 1:
                program[i] = _OPCODE["load_dequantized"]
            elif opcode == _OPCODE["store"] and dtypes[b] in LIMITS and node.outputs[b].dtype == "f32":
                program[i] = _OPCODE["store_quantized"]
        attributes = {**node.attributes, "program": program, "dtypes": [DTYPE_IDS[d] for d in dtypes]}
        self._keep(node, self._emit("map", inputs, attributes, node.outputs, dtypes, node.name))

    def _is_table(self, program: list[int], index: int) -> bool:
        return any(program[i] == _OPCODE["table"] and program[i + 3] == index for i in range(0, len(program), 5))

    def _emit_passing(self, node: Node) -> None:
        dtype = self.stored[node.outputs[0]]
        inputs: list[Tensor | None] = []
        for i, tensor in enumerate(node.inputs):
            moves = tensor is not None and tensor.dtype == "f32" and (i == 0 or node.attributes.get("kind") == "concat")
            inputs.append(None if tensor is None else self._get(tensor, dtype if moves else tensor.dtype))
        self._keep(
            node, self._emit(node.op, inputs, node.attributes, node.outputs, [dtype] * len(node.outputs), node.name)
        )

    def _emit_reduce(self, node: Node) -> None:
        """Integers are read dequantized; the result is f32."""
        inputs = [None if t is None else self._get(t, t.dtype) for t in node.inputs[1:]]
        x = node.inputs[0]
        assert x is not None
        read = (
            self._get(x, self.stored[x]) if x in self.stored and self._reads_quantized(node) else self._get(x, x.dtype)
        )
        dtypes = [t.dtype for t in node.outputs]
        self._keep(node, self._emit("reduce", [read, *inputs], node.attributes, node.outputs, dtypes, node.name))

    @staticmethod
    def _reads_quantized(node: Node) -> bool:
        return node.attributes.get("kind", "sum") not in ("argmax", "argmin")

    def _emit_float(self, node: Node) -> None:
        """f32, or f16 storage: every float operand that is data goes to f16."""
        half = self.modes[node] == "f16" and node.op not in FLOATS_KEPT
        inputs: list[Tensor | None] = []
        for i, tensor in enumerate(node.inputs):
            if tensor is None:
                inputs.append(None)
            elif tensor.dtype == "f32" and half and tensor not in self.fixed and not (node.op == "resize" and i > 0):
                inputs.append(self._get(tensor, "f16"))
            else:
                inputs.append(self._get(tensor, tensor.dtype))
        to_f16 = {t for t in node.outputs if half and t.dtype == "f32" and t not in self.fixed}
        dtypes = ["f16" if t in to_f16 else t.dtype for t in node.outputs]
        attributes = dict(node.attributes)
        for key in ("dtype", "output_dtype"):
            if attributes.get(key) == "f32" and node.outputs[0] in to_f16:
                attributes[key] = "f16"
        self._keep(node, self._emit(node.op, inputs, attributes, node.outputs, dtypes, node.name))

    # ---- report ------------------------------------------------------------------------------------------------

    def table(self) -> Table:
        """The layers that may compute in integers, with the types chosen and the ranges seen."""
        rows = []
        for node in self.old.nodes:
            if node.op not in INTEGER_OPS and self.modes[node] == "f32":
                continue
            if node.op not in INTEGER_OPS and self.dtype in LIMITS:
                continue
            spans = []
            for label, tensor in (("x", node.inputs[0]), ("y", self._final_output(node))):
                seen = self.ranges.get(self.root(tensor)) if tensor is not None else None
                if seen is not None and not seen.empty:
                    spans.append(f"{label} in [{seen.low:.4g}, {seen.high:.4g}]")
            remark = node.op + (": " + ", ".join(spans) if spans else "")
            rows.append(Row(node.name or node.outputs[0].name, self.modes[node], remark))
        return Table(rows)


def weight_axis(node: Node, rank: int) -> int | None:
    if node.op == "conv":
        return 0
    if node.op == "conv_transpose":
        return 1 if node.attributes.get("group", 1) == 1 else None
    if rank != 2:
        return None
    return 0 if node.attributes.get("transpose_b", False) else 1


def _fits_f16(data: npt.NDArray[Any]) -> bool:
    finite = np.abs(data[np.isfinite(data)])
    return bool(finite.size == 0 or finite.max() <= 65504.0)


def _clamp_limits(node: Node) -> tuple[float, float] | None:
    """(low, high) of a map that is min(max(x, low), high) of one f32 input to f32; None for any other map."""
    if node.op != "map" or len(node.inputs) != 1 or len(node.outputs) != 1 or node.outputs[0].dtype != "f32":
        return None
    words = node.attributes["program"]
    floats = list(node.attributes.get("floats", ()))
    program = [tuple(words[i : i + 5]) for i in range(0, len(words), 5)]
    names = {number: name for name, number in _OPCODE.items()}
    clamped: dict[int, tuple[float, float]] = {}  # register: the clamp of the input that it holds
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
