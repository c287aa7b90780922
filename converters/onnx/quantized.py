"""Fuses quantized models: dequantize -> op -> quantize becomes one op on the stored integers. Nothing new is quantized. Scales,
zero points and integer weights are those of the model (Jacob et al. 2018; ONNX QLinear ops; requant mode float_rne)."""

from __future__ import annotations

import numpy as np

from linnet.builder.mapping import program_of
from linnet.converters.onnx.quantized_numbers import (
    LIMITS,
    exactly,
    identity,
    parameters,
    quantized,
    same,
    whole_window,
)
from linnet.converters.onnx.quantized_products import product
from linnet.converters.onnx.quantized_values import Values
from linnet.ir import traits
from linnet.ir.dtypes import Quantization, numpy_dtype
from linnet.ir.function import Function, Node, Tensor, emit
from linnet.ir.program import Program, Store
from linnet.passes.kept_types import rewrites


@rewrites(traits.CONVERTS)
def fuse_quantized(function: Function) -> None:
    """Rewrites quantize, dequantize and the ops between them if their parameters are constants."""
    if any(node.op in traits.CONVERTS for node in function.nodes):
        _Fuser(function).run()


class _Fuser(Values):
    """Walks the nodes in order and emits each again, by the method on_OP or the rule of products."""

    def run(self) -> None:
        self.function.nodes = []
        source = self.function.source
        for node in self.nodes:
            if node in self.skipped:
                continue
            self.function.source = node.source
            if not self.integers(node):
                node.inputs = [None if t is None else self.real(t) for t in node.inputs]
                self.function.nodes.append(node)
                self.kept.add(node)
        self.function.source = source
        outputs: list[Tensor] = []
        given: set[Tensor] = set()
        for old in self.function.outputs:
            made = self.real(old)
            if made is not old and (made.node is None or made in given or made in self.outputs):
                made = self.emit("copy", [made], {"kind": "identity"}, made.dtype, made.quantization)
            outputs.append(made)
            given.add(made)
        self.function.outputs = outputs

    def integers(self, node: Node) -> bool:
        """Emits the node on integers if this is possible. Otherwise returns False, and the node stays as it is."""
        if any(t is not None and t.function is not self.function for t in node.inputs):
            return False
        if node.op in traits.PRODUCTS:
            return product(self, node)
        rule = getattr(self, f"on_{node.op}", None)
        return bool(rule(node)) if rule is not None else False

    # ---- the ends of a pattern -----------------------------------------------------------------------------------

    def on_dequantize(self, node: Node) -> bool:
        x, y = node.inputs[0], node.outputs[0]
        q = parameters(node)
        if x is None or q is None or y.dtype != "f32" or x.dtype not in (*LIMITS, "i32", "u16"):
            return False
        x = self.now(x)
        if x.data is None and (q.axis is not None or x.dtype not in LIMITS):
            return False
        self.stored[y] = self.with_quantization(x, q)
        return True

    def on_quantize(self, node: Node) -> bool:
        x, y = node.inputs[0], node.outputs[0]
        q = parameters(node)
        if x is None or q is None or x.dtype != "f32" or y.dtype not in LIMITS:
            return False
        x_real = self.now(x)
        if x_real.data is not None:  # weights that the graph quantizes, as training tools write them
            self.new[y] = self.function.constant(quantized(x_real.data, q, y.dtype), y.name, y.dtype, q)
            return True
        if q.axis is not None:
            return False
        source = self.stored.get(x)
        if source is not None and source.quantization is not None and source.quantization.axis is None:
            self.new[y] = self.requantized(source, q, y.dtype, y)
            return True
        alone = x not in self.outputs and len(self.readers.get(x, ())) == 1
        made_by = x_real.node.op if x_real.node is not None else ""
        if alone and (
            made_by == "map" or (made_by in traits.PRODUCTS and (x_real is not x or x_real.node in self.kept))
        ):
            result = self.emit("map", [x_real], identity(store=True).attributes([y.dtype]), y.dtype, q)
        else:  # the op `quantize` divides exactly as ONNX defines
            result = self.emit("quantize", [x_real], {"dtype": y.dtype}, y.dtype, q)
        self.new[y] = self.named(result, y)
        return True

    # ---- pointwise ops ---------------------------------------------------------------------------------------------

    def on_map(self, node: Node) -> bool:
        """Lets the map dequantize integers when it loads them and quantize results when it stores them."""
        program = program_of(node)
        assert program is not None
        targets = [self.sink(t) for t in node.outputs]
        tables = {i.operand for i in program.code if i.opcode == "table"}
        inputs: list[Tensor] = []
        quantized_inputs: set[int] = set()
        for i, tensor in enumerate(node.inputs):
            assert tensor is not None
            source = self.stored.get(tensor) if i not in tables and tensor not in self.new else None
            direct = source is not None and source.quantization is not None and source.quantization.axis is None
            if direct and source is not None and source.dtype in LIMITS and source.data is None:
                quantized_inputs.add(i)
                inputs.append(source)
            else:
                inputs.append(self.real(tensor))
        if not quantized_inputs and not any(targets):
            return False
        joined = Program()
        place: list[int] = []
        for instruction in program.code:
            if instruction.opcode == "load" and instruction.operand in quantized_inputs:
                instruction = instruction._replace(opcode="load_dequantized", kind="f32")
            place.append(joined.add(instruction._replace(args=tuple(place[r] for r in instruction.args))))
        joined.stores = [Store(place[s.register], t is not None) for s, t in zip(program.stores, targets, strict=True)]
        dtypes = [t.dtype if to is None else to[1] for t, to in zip(node.outputs, targets, strict=True)]
        attributes = joined.attributes(dtypes, node.attributes.get("shape", ()))
        quantization = [t.quantization if to is None else to[0] for t, to in zip(node.outputs, targets, strict=True)]
        made = emit("map", inputs, attributes, len(dtypes), node.name, self.function, quantization, dtypes)
        for old, new, target in zip(node.outputs, made, targets, strict=True):
            if target is not None:
                self.sunk(old, new)
            else:
                self.new[old] = self.named(new, old)
        return True

    # ---- movement: integers pass as they are -------------------------------------------------------------------------

    def on_copy(self, node: Node) -> bool:
        kind = node.attribute("kind")
        if kind == "concat":
            return self.concat(node)
        first = node.inputs[0]
        source = self.stored.get(first) if first is not None else None
        if source is None or source.quantization is None:
            return False
        q = source.quantization
        if q.axis is not None:
            if kind != "transpose":
                return False
            rank = source.rank or 0
            perm = list(node.attribute("perm")) or list(range(rank))[::-1]
            q = Quantization(q.scale, q.zero, perm.index(q.axis % rank), q.bits)
        rest = [None if t is None else self.real(t) for t in node.inputs[1:]]
        attributes = dict(node.attributes)
        if kind == "pad" and node.attribute("pad_mode") == "constant":
            value: float | None = float(attributes.pop("value", 0.0))
            if len(rest) > 1 and (given := rest[1]) is not None:
                value = float(given.data.reshape(-1)[0]) if given.data is not None and given.data.size == 1 else None
            number = None if value is None else exactly(value, q, source.dtype)
            if number is None:
                return False
            rest = [*rest[:1], *[None] * (1 - len(rest[:1]))]
            rest += [self.function.constant(np.array(number, numpy_dtype(source.dtype)))]
            rest += [None if t is None else self.real(t) for t in node.inputs[3:]]
        if len(node.outputs) == 1:
            return self.keep(node.outputs[0], self.emit("copy", [source, *rest], attributes, source.dtype, q))
        count = len(node.outputs)
        made = emit(
            "copy", [source, *rest], attributes, count, node.name, self.function, [q] * count, [source.dtype] * count
        )
        for old, new in zip(node.outputs, made, strict=True):
            self.keep(old, new)
        return True

    def concat(self, node: Node) -> bool:
        """Brings all parts to one scale. If the result is stored as integers, it is the scale of the result; otherwise,
        it is the scale that all parts share."""
        parts = [t for t in node.inputs if t is not None]
        found = [self.stored.get(t) for t in parts]
        sources = [t for t in found if t is not None and t.quantization is not None and t.quantization.axis is None]
        if len(sources) != len(parts):
            return False
        target = self.sink(node.outputs[0])
        if target is None:
            assert sources[0].quantization is not None
            target = sources[0].quantization, sources[0].dtype
            if any(
                t.dtype != target[1] or t.quantization is None or not same(t.quantization, target[0]) for t in sources
            ):
                return False
        stored = [self.requantized(t, target[0], target[1], old) for t, old in zip(sources, parts, strict=True)]
        return self.keep(node.outputs[0], self.emit("copy", stored, node.attributes, target[1], target[0]))

    def on_gather(self, node: Node) -> bool:
        x, indices = node.inputs[0], node.inputs[1]
        source = self.stored.get(x) if x is not None else None
        if source is None or source.quantization is None or source.quantization.axis is not None or indices is None:
            return False
        made = self.emit("gather", [source, self.real(indices)], node.attributes, source.dtype, source.quantization)
        return self.keep(node.outputs[0], made)

    def on_pool(self, node: Node) -> bool:
        """Maxima keep their integers. Averages over windows use the real numbers and add the zero point before
        rounding; this order decides ties (QLinearAveragePool of ONNX Runtime). An average over the whole input is a
        mean."""
        x, y = node.inputs[0], node.outputs[0]
        source = self.stored.get(x) if x is not None else None
        if x is None or source is None or source.quantization is None or len(node.outputs) != 1:
            return False
        if source.quantization.axis is not None or source.data is not None:
            return False
        target = self.sink(y)
        if node.attribute("kind") == "max":
            return self.keep(y, self.emit("pool", [source], node.attributes, source.dtype, source.quantization))
        if node.attribute("kind") != "average" or target is None or target[1] == "i16":
            return False
        if (axes := whole_window(node, source)) is not None:
            return self.mean(node, source, axes, *target)
        scale, zero = float(target[0].scale[0]), float(target[0].zero[0])
        mean = self.emit("pool", [self.real(x)], node.attributes, "f32", None)
        self.sunk(y, self.rounded(mean, lambda v: (v / scale + zero).round(), *target))
        return True

    def on_resize(self, node: Node) -> bool:
        """With nearest neighbours, results keep their integers. Interpolation works on the real numbers, as in ONNX
        Runtime."""
        x = node.inputs[0]
        source = self.stored.get(x) if x is not None else None
        if (
            source is None
            or source.quantization is None
            or source.quantization.axis is not None
            or source.data is not None
        ):
            return False
        if node.attribute("coordinates") == "tf_crop_and_resize" or node.attribute("mode") != "nearest":
            return False
        rest = [None if t is None else self.real(t) for t in node.inputs[1:]]
        made = self.emit("resize", [source, *rest], node.attributes, source.dtype, source.quantization)
        return self.keep(node.outputs[0], made)

    def on_softmax(self, node: Node) -> bool:
        """ONNX Runtime's integer softmax multiplies by floor(1 / scale) and rounds halves up (QLinearSoftmax)."""
        x, y = node.inputs[0], node.outputs[0]
        target = self.sink(y)
        if x is None or x not in self.stored or target is None or node.attribute("log") or target[1] == "i16":
            return False
        steps, zero = float(np.floor(np.float32(1) / target[0].scale[0])), float(target[0].zero[0])
        p = self.emit("softmax", [self.real(x)], node.attributes, "f32", None)
        self.sunk(y, self.rounded(p, lambda v: (v * steps + 0.5).floor() + zero, *target))
        return True

    def mean(self, node: Node, source: Tensor, axes: list[int], q: Quantization, dtype: str) -> bool:
        """The mean over axes of known lengths, with these axes kept: integer sums times one factor
        (QLinearGlobalAveragePool)."""
        count = 1
        for axis in axes:
            length = None if source.shape is None else source.shape[axis]
            if not isinstance(length, int) or length == 0:
                return False
            count *= length
        assert source.quantization is not None
        unit = self.with_quantization(source, Quantization(np.ones(1, np.float32), source.quantization.zero))
        sums = self.emit("reduce", [unit], {"kind": "sum", "axes": axes, "keep_dims": True}, "f32", None)
        factor = float(source.quantization.scale[0] / (q.scale[0] * np.float32(count)))
        zero = float(q.zero[0])
        self.sunk(node.outputs[0], self.rounded(sums, lambda v: (v * factor).round() + zero, q, dtype))
        return True

    def on_reduce(self, node: Node) -> bool:
        """Sums and means read integers and give f32."""
        x = node.inputs[0]
        source = self.stored.get(x) if x is not None else None
        if source is None or source.quantization is None or source.quantization.axis is not None:
            return False
        if node.attribute("kind") not in ("sum", "mean") or source.data is not None or source.dtype not in LIMITS:
            return False
        target, axes = self.sink(node.outputs[0]), list(node.attribute("axes"))
        plain = node.attribute("kind") == "mean" and node.attribute("keep_dims") and axes and len(node.inputs) == 1
        if plain and target is not None and target[1] != "i16" and self.mean(node, source, axes, *target):
            return True
        rest = [None if t is None else self.real(t) for t in node.inputs[1:]]
        made = self.emit("reduce", [source, *rest], node.attributes, "f32", None)
        self.new[node.outputs[0]] = self.named(made, node.outputs[0])
        return True
