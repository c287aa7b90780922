"""Quantization after training: emits the graph that computes in f16, i16 or i8.

The graph is emitted again, node by node. Every tensor may exist in several forms (f32, f16, quantized), and a missing
form is created by a conversion. Scheme: Jacob et al. 2018 and the TFLite 8-bit specification. Weights are symmetric per
channel. Activations are per tensor, asymmetric for i8 and symmetric for i16 (weights stay i8: int16x8).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet._generated.op_table import OPCODES
from linnet.facade import Graph
from linnet.ir.dtypes import DTYPE_IDS
from linnet.ir.function import Function, Node, Tensor, emit
from linnet.quantization.decisions import Decisions
from linnet.quantization.scheme import FLOATS_KEPT, INTEGER_OPS, LIMITS, fits_f16, weight_axis, weight_parameters
from linnet.quantization.table import Row, Table

_OPCODE = {name: row[0] for name, row in OPCODES.items()}


class Quantizer(Decisions):
    """Emits the graph according to the decisions."""

    def __init__(self, graph: Graph, dtype: str, overrides: Table, weight_bits: int = 8) -> None:
        super().__init__(graph, dtype, overrides, weight_bits)
        self.forms: dict[tuple[Tensor, str], Tensor] = {}

    def rewrite(self) -> Graph:
        """Emits the graph again."""
        self.new = Graph()
        self.new.user_ops = dict(self.graph.user_ops)
        self.new.metadata = {**self.graph.metadata, "dtype": self.dtype}
        self.new.variables = {n: dataclasses.replace(v, graph=self.new) for n, v in self.graph.variables.items()}
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
        """The tensor in the new graph, stored as `dtype`. It is converted if it does not exist in that form."""
        key = (tensor, dtype)
        if key in self.forms:
            return self.forms[key]
        if tensor.data is not None and tensor.dtype in ("f32", dtype):
            self.forms[key] = self._constant(tensor, dtype)
            return self.forms[key]
        if tensor.variable is not None and (tensor, tensor.dtype) not in self.forms:
            self.forms[tensor, tensor.dtype] = self.function.read(self.new.variables[tensor.variable.name])
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
        """Converts with one map, which dequantizes on load and quantizes on store."""
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
                # A channel with tiny weights gets a larger scale, because its bias would otherwise not fit into the
                # accumulator.
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
        # A single activation after the node becomes its epilogue and reads f32 accumulators. Otherwise the output is
        # integers.
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
                inputs.append(self._get(tensor, "f16" if mode == "f16" and fits_f16(tensor.data) else "f32"))
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
        """Emits a node that dequantizes its integer operands and computes f32."""
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
        """Emits the node in f32, or with f16 storage. For f16, every float data operand is converted to f16."""
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
        """The layers that may compute in integers, with the chosen dtypes and observed ranges."""
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
