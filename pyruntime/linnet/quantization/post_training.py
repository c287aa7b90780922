"""Quantization after training: builds a function that computes in f16, bf16, i16 or i8.

The float function is built again, node by node. Every tensor may exist in several forms (f32, f16, quantized), and a
missing form is created by a conversion. The scheme is that of Jacob et al. 2018 and the TFLite 8-bit specification.
Weights are symmetric per channel. Activations are per tensor, asymmetric for i8 and symmetric for i16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from linnet._generated.op_table import OPCODES
from linnet.facade import Graph
from linnet.ir.dtypes import DTYPE_IDS, numpy_dtype
from linnet.ir.function import Function, Node, Tensor, emit
from linnet.quantization import recurrent
from linnet.quantization.decisions import Decisions
from linnet.quantization.embeddings import Tables
from linnet.quantization.programs import reciprocals
from linnet.quantization.rounding import Rounded, Rounding, least_scales
from linnet.quantization.scheme import (
    FLOATS_KEPT,
    HALVES,
    INTEGER_OPS,
    LIMITS,
    NARROW_WEIGHTS,
    RECURRENT,
    fits_half,
    weight_axis,
)
from linnet.quantization.table import Row, TensorRow

_OPCODE = {name: row[0] for name, row in OPCODES.items()}


class Quantizer(Decisions):
    """Emits one function according to the decisions."""

    new: Graph
    function: Function

    def rewrite(self, new: Graph, functions: dict[Function, Function]) -> Function:
        """Emits the function again into a graph. functions: maps each old function that nodes refer to to its new
        function."""
        self.forms: dict[tuple[Tensor, str], Tensor] = {}
        self.noises: dict[Node, float] = {}  # of the outputs of products, from the rounding of their weights
        self.weights: dict[Node, str] = {}  # the dtype of integer products' weights
        self.new, self.functions = new, functions
        self.names = {t.name for t in self.old.tensors()}
        self.taken = set(self.steps.values())
        self.function = new.function(self.old.name)
        self.tables = Tables(self, self.function)
        for tensor in self.old.inputs:
            made = self.function.placeholder(tensor.name, tensor.dtype, tensor.shape)
            made.quantization = tensor.quantization
            self.forms[tensor, tensor.dtype] = made
        skipped = set(self.folded_clamps.values())
        for node in self.old.nodes:
            if node in skipped:
                continue
            self.function.source, self.function.placement = node.source, node.placement
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
                made = emit("copy", [made], {"kind": "identity"}, name=f"copy({tensor.name})", function=self.function)[
                    0
                ]
            self.function.outputs.append(made)
        return self.function

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
        if dtype in HALVES and tensor.dtype == "f32":
            return self.function.constant(tensor.data.astype(numpy_dtype(dtype)), tensor.name)
        return self.function.constant(tensor.data, tensor.name, tensor.dtype, tensor.quantization)

    def _convert(self, source: Tensor, tensor: Tensor, dtype: str, moved: Tensor | None = None) -> Tensor:
        """Converts with one map node, which dequantizes when it loads and quantizes with the parameters of `tensor`
        when it stores. moved: the tensor that `source` represents, if this is not `tensor`."""
        load = "load_dequantized" if source.dtype in LIMITS else "load"
        store = "store_quantized" if dtype in LIMITS else "store"
        program = [_OPCODE[load], 1, 0, 0, 0, _OPCODE[store], 1, 0, 0, 0]
        attributes = {"program": program, "dtypes": [DTYPE_IDS[dtype]]}
        quantization = [self._parameters(tensor, dtype) if dtype in LIMITS else None]
        step = self._name_of_conversion(source.dtype, dtype, (tensor if moved is None else moved).name)
        made = emit("map", [source], attributes, 1, step, self.function, quantization, [dtype])[0]
        self._rename(made, tensor.name if moved is None else f"{moved.name}/as/{tensor.name}")
        made.shape = source.shape if made.shape is None or None in made.shape else made.shape
        return made

    def _name_of_conversion(self, old: str, new: str, tensor: str) -> str:
        """A name for a conversion step, which the float graph does not have. It contains the name of the tensor."""
        verb = (
            ("re" if old in LIMITS else "") + "quantize" if new in LIMITS else "dequantize" if old in LIMITS else "cast"
        )
        name = f"{verb}({tensor})"
        name = name if name not in self.taken else f"{verb}({tensor},{new})"
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

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
            self._rename(new, tensor.name)
            if new.shape is None or None in new.shape:
                new.shape = tensor.shape if tensor.shape is not None else new.shape
        return made

    def _rename(self, made: Tensor, name: str) -> None:
        """Gives a tensor the name of the float tensor that it represents. If another form of that tensor already has
        this name, the dtype is appended. The name of another float tensor is never used."""
        taken = self.function._names
        taken.discard(made.name)
        free = name if name in self.names and name not in taken else f"{name}/{made.dtype}"
        while free in taken or (free != name and free in self.names):
            free += "_"
        taken.add(free)
        made.name = free

    def _keep(self, node: Node, made: list[Tensor]) -> None:
        for tensor, new in zip(node.outputs, made, strict=True):
            self.forms[tensor, new.dtype] = new

    def _emit_integer(self, node: Node) -> None:
        mode = self.modes[node]
        x, w = node.inputs[0], node.inputs[1]
        assert x is not None and w is not None
        y = self._final_output(node)
        new_x = self._get(x, mode)
        assert new_x.quantization is not None
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        wide = None if bias is None or bias.data is None else bias.data.astype(np.float64)
        if wide is not None and "made" in self.factors.get(node, {}):
            wide = (wide * self.factors[node]["made"]).reshape(-1)
        if w.data is not None:
            made = self._rounded(node, w, wide, float(new_x.quantization.scale[0]))
            parameters = made.parameters
            new_w = self.tables.weights(w, made.values, parameters)
            if made.missing is not None and self.options.correct:
                wide = _corrected(wide, made.missing, bias, w)
        else:
            new_w = self._get(w, mode)
            assert new_w.quantization is not None
            parameters = new_w.quantization
        new_bias = None
        if wide is not None:
            scale = np.float64(new_x.quantization.scale[0]) * parameters.scale.astype(np.float64)
            limit = 2.0**30 if mode == "i8" else 2.0**52
            array = np.clip(np.rint(wide / scale), -limit, limit).astype(np.int32 if mode == "i8" else np.int64)
            new_bias = self.function.constant(array, bias.name if bias is not None else f"{w.name}/bias")
        # A single activation after the node becomes its epilogue and reads f32 accumulators. Otherwise the output is
        # integers.
        users = self.consumers.get(y, [])
        direct = self.stored.get(y) == mode and y not in self.floats
        if node in self.folded_clamps:
            direct = direct and self._expressed_by_range(self.folded_clamps[node], mode)
        elif len(users) == 1 and users[0].op == "map":
            direct = False
        dtype = mode if direct else "f32"
        attributes = {**node.attributes, "output_dtype": dtype}
        old = [y if node in self.folded_clamps and dtype != "f32" else node.outputs[0]]
        emitted = self._emit(node.op, [new_x, new_w, new_bias], attributes, old, [dtype], self.steps[node])
        self.forms[old[0], dtype] = emitted[0]
        if node in self.folded_clamps and dtype == "f32":
            self._emit_map(self.folded_clamps[node])

    def _rounding(self) -> Rounding:
        """The roundings that were made before, or new ones with the scales that were trained."""
        if self.observation is not None and not self.scales:
            return self.observation.rounding
        return Rounding({}, self.scales)

    def _rounded(self, node: Node, w: Tensor, bias: npt.NDArray[np.float64] | None, x_scale: float) -> Rounded:
        """The integer weights of a product: 8 bits, or 16 bits if the table says so or if 8 bits are too noisy for
        16-bit activations."""
        assert w.data is not None
        axis = weight_axis(node, w.data.ndim)
        channels = 1 if axis is None else w.data.shape[axis]
        least = {bits: least_scales(bias, bits, x_scale, channels) for bits in (self.weight_bits, 16)}
        rounding = self._rounding()
        scheme = self.schemes.get(node)
        bits = self.weight_bits
        made = rounding(node, axis, least[bits], bits, self.options.careful, self.factors.get(node))
        more = (
            scheme is None and (made.noise is None or made.noise > self.options.weight_noise) and self.weight_bits == 8
        )
        if self.modes[node] == "i16" and (more or scheme == "w16a16"):
            made = rounding(node, axis, least[16], 16, False, self.factors.get(node))
        self.weights[node] = "i8" if made.values.dtype == np.int8 else "i16"
        if made.noise is not None:
            self.noises[node] = made.noise
        return made

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
                finite = tensor.data[np.isfinite(tensor.data)] if tensor.data.size else tensor.data
                fits = not finite.size or fits_half(mode, float(finite.min()), float(finite.max()))
                inputs.append(self._get(tensor, mode if mode in HALVES and fits else "f32"))
            else:
                floats = [dtype for dtype in available if dtype not in LIMITS]
                inputs.append(self._get(tensor, (floats or available or ["f32"])[0]))
        dtypes = []
        for tensor in node.outputs:
            if tensor.dtype != "f32" or tensor in self.fixed:
                dtypes.append(tensor.dtype)
            else:
                half = mode if mode in HALVES and tensor not in self.wide else "f32"
                dtypes.append(half if tensor in self.floats else self.stored.get(tensor, half))
        for i in range(0, len(program), 5):
            opcode, kind, a, b, _ = program[i : i + 5]
            operand = inputs[a] if opcode == _OPCODE["load"] else None
            if operand is not None and operand.dtype in LIMITS and operand.quantization is not None and kind == 1:
                program[i] = _OPCODE["load_dequantized"]
            elif opcode == _OPCODE["store"] and dtypes[b] in LIMITS and node.outputs[b].dtype == "f32":
                program[i] = _OPCODE["store_quantized"]
        attributes = {**node.attributes, "program": program, "dtypes": [DTYPE_IDS[d] for d in dtypes]}
        if all(d in LIMITS for d in dtypes):
            program, numbers = reciprocals(program, list(node.attributes.get("floats", ())))
            attributes.update(program=program, floats=numbers)
        self._keep(node, self._emit("map", inputs, attributes, node.outputs, dtypes, self.steps[node]))

    def _is_table(self, program: list[int], index: int) -> bool:
        return any(program[i] == _OPCODE["table"] and program[i + 3] == index for i in range(0, len(program), 5))

    def _emit_passing(self, node: Node) -> None:
        dtype = self.stored[node.outputs[0]]
        root = self.root(node.outputs[0])
        inputs: list[Tensor | None] = []
        for i, tensor in enumerate(node.inputs):
            moves = tensor is not None and tensor.dtype == "f32" and (i == 0 or node.attributes.get("kind") == "concat")
            if tensor is None or not moves:
                inputs.append(None if tensor is None else self._get(tensor, tensor.dtype))
                continue
            source = self._get(tensor, dtype)
            if self.root(tensor) is not root:  # a part with a range of its own
                source = self._convert(source, node.outputs[0], dtype, tensor)
            inputs.append(source)
        self._keep(
            node,
            self._emit(node.op, inputs, node.attributes, node.outputs, [dtype] * len(node.outputs), self.steps[node]),
        )

    def _emit_reduce(self, node: Node) -> None:
        """Emits a node that dequantizes its integer operands and computes f32."""
        inputs = [None if t is None else self._get(t, t.dtype) for t in node.inputs[1:]]
        x = node.inputs[0]
        assert x is not None
        narrow = x in self.stored and x not in self.floats and self._reads_quantized(node)
        read = self._get(x, self.stored[x] if narrow else x.dtype)
        dtypes = [t.dtype for t in node.outputs]
        self._keep(node, self._emit("reduce", [read, *inputs], node.attributes, node.outputs, dtypes, self.steps[node]))

    @staticmethod
    def _reads_quantized(node: Node) -> bool:
        return node.attributes.get("kind", "sum") not in ("argmax", "argmin")

    def _emit_float(self, node: Node) -> None:
        """Emits the node in f32, or with f16 or bf16 storage. For f16 and bf16, every float data operand is
        converted."""
        mode = self.modes[node] if self.modes[node] in HALVES and node.op not in FLOATS_KEPT else "f32"
        half = mode != "f32"
        inputs: list[Tensor | None] = []
        for i, tensor in enumerate(node.inputs):
            if tensor is None:
                inputs.append(None)
            elif tensor.dtype == "f32" and half and tensor not in self.fixed and not (node.op == "resize" and i > 0):
                inputs.append(self._get(tensor, mode))
            elif i == 1 and node in self.schemes and node.op in RECURRENT:
                inputs.append(recurrent.stored_weights(self.function, node, self.schemes[node], self.careful()))
            elif (
                i == 1
                and node.op in INTEGER_OPS
                and self.schemes.get(node) in NARROW_WEIGHTS
                and tensor.data is not None
            ):
                inputs.append(self._narrow_weights(node, tensor))
            elif i == 0 and self.tables.stored(node):
                inputs.append(self.tables.rows(node))
            else:
                inputs.append(self._get(tensor, tensor.dtype))
        to_half = {t for t in node.outputs if half and t.dtype == "f32" and t not in self.fixed}
        dtypes = [mode if t in to_half else t.dtype for t in node.outputs]
        attributes = {k: self.functions.get(v, v) if isinstance(v, Function) else v for k, v in node.attributes.items()}
        for key in ("dtype", "output_dtype"):
            if attributes.get(key) == "f32" and node.outputs[0] in to_half:
                attributes[key] = mode
        if self.tables.stored(node):
            attributes["dtype"] = "f32"
        if self.weights.get(node) == "i4":
            attributes["transpose_b"] = True
        self._keep(node, self._emit(node.op, inputs, attributes, node.outputs, dtypes, self.steps[node]))

    def _narrow_weights(self, node: Node, w: Tensor) -> Tensor:
        """Weights of 4, 8 or 16 bits for a float product. Products read 4 bits directly. The others are widened when the graph
        is planned, or in each run if this would take more memory than the plan may have."""
        assert w.data is not None
        if self.schemes[node] == "w16":
            self.weights[node] = "f16"
            return recurrent.widened(self.function, self._get(w, "f16"))
        if self.schemes[node] == "w4":
            self.weights[node] = "i4"
            return self.tables.blocks(w, bool(node.attributes.get("transpose_b", False)))
        rounding = self._rounding()
        made = rounding(node, weight_axis(node, w.data.ndim), 0.0, self.weight_bits, self.options.careful)
        constant = self.tables.weights(w, made.values, made.parameters)
        self.weights[node] = "i8"
        program = [_OPCODE["load_dequantized"], 1, 0, 0, 0, _OPCODE["store"], 1, 0, 0, 0]
        attributes = {"program": program, "dtypes": [DTYPE_IDS["f32"]]}
        return self.function.emit("map", [constant], attributes, 1, f"{w.name}/f32", dtypes=["f32"], fold=False)[0]

    # ---- report ------------------------------------------------------------------------------------------------

    def rows(self) -> list[Row | TensorRow]:
        """A row for every decision: for each layer that computes or could compute in another dtype than f32, and for
        each tensor stored as integers."""
        found: list[Row | TensorRow] = []
        for node in self.old.nodes:
            integers = self.dtype in LIMITS
            if (lookup := self.tables.lookups.get(node)) is not None:
                found.append(Row(self.steps[node], self.tables.stored(node) or lookup.stored, lookup.remark))
                continue
            if node.op not in (*INTEGER_OPS, *RECURRENT) and (integers or self.modes[node] == "f32"):
                continue
            found.append(Row(self.steps[node], self._scheme_of(node), self._remark(node)))
        for tensor, dtype in self.stored.items():
            choice = self.choices.get(self.root(tensor))
            seen = self._seen(tensor)
            if choice is None or seen is None:
                continue
            why = "needed" if self._needed(tensor) else "saves traffic"
            remark = f"{why}; seen [{seen.low:.4g}, {seen.high:.4g}]{_decibels(choice.noise)}"
            found.append(TensorRow(tensor.name, dtype, choice.low, choice.high, choice.calibrator, remark))
        for tensor in self.wide if self.dtype in HALVES else ():
            found.append(TensorRow(tensor.name, "f32", None, None, "", f"beyond the range of {self.dtype}"))
        return found

    def _needed(self, tensor: Tensor) -> bool:
        """Whether an integer product reads the tensor, directly or after nodes that only move values."""
        for node in self.consumers.get(tensor, []):
            if tensor in self._integer_operands(node) or (
                node in self.passing and any(map(self._needed, node.outputs))
            ):
                return True
        return False

    def _scheme_of(self, node: Node) -> str:
        mode = self.modes[node]
        if mode == "i16" and node in self.weights:
            return "w16a16" if self.weights[node] == "i16" else "w8a16"
        if mode != "f32" or node not in self.weights:
            return self.schemes.get(node, mode) if node.op in RECURRENT else mode
        return {"i4": "w4", "f16": "w16"}.get(self.weights[node], "w8")

    def _remark(self, node: Node) -> str:
        spans = []
        for label, tensor in (("x", node.inputs[0] if node.inputs else None), ("y", self._final_output(node))):
            seen = self._seen(tensor)
            if seen is not None:
                spans.append(f"{label} in [{seen.low:.4g}, {seen.high:.4g}]")
        if node in self.noises:
            spans.append(f"weights{_decibels(self.noises[node])[1:]}")
        return node.op + (": " + ", ".join(spans) if spans else "")


def _decibels(noise: float) -> str:
    return f", {-10 * np.log10(noise):.1f} dB" if noise > 0 else ""


def _corrected(
    bias: npt.NDArray[np.float64] | None, missing: npt.NDArray[np.float64], old: Tensor | None, w: Tensor
) -> npt.NDArray[np.float64] | None:
    """The bias plus the mean that each output lost by rounding."""
    if bias is None:
        return missing if np.abs(missing).max(initial=0.0) > 0 else None
    if bias.size == missing.size:
        return bias + missing.reshape(bias.shape)
    return bias + missing if bias.size == 1 else bias
