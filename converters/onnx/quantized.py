"""Fuses quantized models: dequantize -> op -> quantize becomes one op on the stored integers. Nothing is quantized anew.
Scales, zero points and integer weights are those of the model (Jacob et al. 2018; ONNX QLinear ops; requant float_rne)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.builder.mapping import pointwise, program_of
from linnet.clib.errors import GraphError
from linnet.ir import traits
from linnet.ir.dtypes import FOLD_LIMIT, Quantization, numpy_dtype
from linnet.ir.expr import Expr
from linnet.ir.function import Function, Node, Tensor, emit
from linnet.ir.infer import evaluate_node
from linnet.ir.program import Instruction, Program, Store
from linnet.passes.rewrite import join_sources

Array = npt.NDArray[Any]
LIMITS = {"i8": (-128, 127), "u8": (0, 255), "i16": (-32768, 32767)}
BIAS_LIMIT = 2.0**30  # a larger bias could overflow the 32-bit sum


def fuse_quantized(function: Function) -> None:
    """Rewrites quantize, dequantize and the ops between them if their parameters are constants."""
    if any(node.op in traits.CONVERTS for node in function.nodes):
        _Fuser(function).run()


class _Fuser:
    """Walks the nodes in order and emits them anew. A dequantized tensor exists only as integers (`stored`) until a node needs
    its real numbers. If the readers of a tensor quantize it (`sink`), the node that makes it stores integers directly."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.nodes = function.nodes
        self.readers = function.consumers()
        self.outputs = set(function.outputs)
        self.new: dict[Tensor, Tensor] = {}  # old tensor: its replacement
        self.stored: dict[Tensor, Tensor] = {}  # old f32 tensor: the quantized integers that represent it
        self.skipped: set[Node] = set()
        self.kept: set[Node] = set()  # old nodes that are kept

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
        """Emits the node on integers if possible. Returns False if the node must stay as it is."""
        if any(t is not None and t.function is not self.function for t in node.inputs):
            return False
        if node.op in traits.PRODUCTS:
            return self.product(node)
        rule = getattr(self, f"on_{node.op}", None)
        return bool(rule(node)) if rule is not None else False

    # ---- values ------------------------------------------------------------------------------------------------

    def now(self, tensor: Tensor) -> Tensor:
        return self.new.get(tensor, tensor)

    def real(self, tensor: Tensor) -> Tensor:
        """The tensor as real numbers: dequantized if it exists only as integers."""
        made = self.new.get(tensor)
        if made is not None:
            return made
        source = self.stored.get(tensor)
        if source is None:
            return tensor
        quantization = source.quantization
        assert quantization is not None
        if source.data is not None and (source.data.nbytes * 4 <= FOLD_LIMIT or not self.only_multiplied(tensor)):
            made = self.function.constant(dequantized(source.data, quantization), tensor.name)
        elif source.data is not None:  # the constant stays narrow in the file; planning widens it
            made = emit("dequantize", [source], {}, 1, "", self.function, dtypes=["f32"])[0]
        elif quantization.axis is None and source.dtype in LIMITS:
            program = _identity(load=True)
            made = self.emit("map", [source], program.attributes(["f32"]), "f32", None)
        else:
            made = self.emit("dequantize", [source], {}, "f32", None)
        self.new[tensor] = self.named(made, tensor)
        return self.new[tensor]

    def only_multiplied(self, tensor: Tensor) -> bool:
        """Whether only matrix products and look-ups read the tensor, possibly transposed. Nothing is ever folded into such
        weights, whereas a batch norm can be folded into the weights of a convolution."""
        readers = self.readers.get(tensor, [])
        moved = [r.outputs[0] for r in readers if r.op == "copy" and r.attributes["kind"] == "transpose"]
        products = sum(r.op in traits.MATRICES | traits.LOOKS_UP for r in readers)
        whole = bool(readers) and tensor not in self.outputs and products + len(moved) == len(readers)
        return whole and all(self.only_multiplied(t) for t in moved)

    def emit(
        self, op: str, inputs: Iterable[Tensor | None], attributes: dict[str, Any], dtype: str, q: Quantization | None
    ) -> Tensor:
        """Emits a node with one output. It is computed at once if all its inputs are constant."""
        made = emit(op, list(inputs), dict(attributes), 1, "", self.function, [q], [dtype])[0]
        made.quantization = q
        node = made.node
        if node is not None and all(t is None or t.data is not None for t in node.inputs):
            try:
                values = evaluate_node(node)
            except GraphError:
                values = None
            if values is not None:
                assert self.function.nodes.pop() is node
                return self.function.constant(np.asarray(values[0]), made.name, made.dtype, q)
        return made

    def named(self, made: Tensor, old: Tensor) -> Tensor:
        """Gives `made` the name of the tensor that it replaces, and the known part of its shape."""
        made.name = self.function.unique(old.name)
        if made.shape is None or None in made.shape:
            made.shape = old.shape if old.shape is not None else made.shape
        return made

    def with_quantization(self, tensor: Tensor, q: Quantization) -> Tensor:
        """The same integers, marked with this scale and zero point."""
        if tensor.data is not None:
            return self.function.constant(tensor.data, tensor.name, tensor.dtype, q)
        if tensor.quantization is None and tensor.node is not None and tensor.node.op in traits.ENCODES:
            tensor.quantization = q
        if tensor.quantization is not None and same(tensor.quantization, q):
            return tensor
        return self.emit("copy", [tensor], {"kind": "identity"}, tensor.dtype, q)

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
            result = self.emit("map", [x_real], _identity(store=True).attributes([y.dtype]), y.dtype, q)
        else:  # the op `quantize` divides exactly as ONNX defines
            result = self.emit("quantize", [x_real], {"dtype": y.dtype}, y.dtype, q)
        self.new[y] = self.named(result, y)
        return True

    def requantized(self, source: Tensor, q: Quantization, dtype: str, old: Tensor) -> Tensor:
        """Converts integers to another scale."""
        assert source.quantization is not None
        if source.dtype == dtype and same(source.quantization, q):
            return source
        program = _identity(load=True, store=True)
        return self.named(self.emit("map", [source], program.attributes([dtype]), dtype, q), old)

    def sink(self, tensor: Tensor) -> tuple[Quantization, str] | None:
        """The quantization and dtype to store the tensor with, if only equal quantize nodes read it."""
        readers = self.readers.get(tensor, [])
        if tensor in self.outputs or not readers or tensor.dtype != "f32":
            return None
        found: tuple[Quantization, str] | None = None
        for reader in readers:
            q = parameters(reader) if reader.op == "quantize" else None
            if q is None or q.axis is not None or reader.outputs[0].dtype not in LIMITS:
                return None
            if found is not None and (found[1] != reader.outputs[0].dtype or not same(found[0], q)):
                return None
            found = q, reader.outputs[0].dtype
        return found

    def sunk(self, tensor: Tensor, made: Tensor) -> None:
        """Uses `made` in place of the results of the quantize nodes that read the tensor."""
        for reader in self.readers[tensor]:
            self.skipped.add(reader)
            self.new[reader.outputs[0]] = made
        self.named(made, self.readers[tensor][0].outputs[0])

    # ---- products --------------------------------------------------------------------------------------------------

    def product(self, node: Node) -> bool:
        x, w = (self.stored.get(t) if t is not None else None for t in node.inputs[:2])
        if x is None or w is None or x.quantization is None or w.quantization is None or x.data is not None:
            return False
        wide = x.dtype == "i16"
        if x.dtype not in LIMITS or w.dtype not in ("i8", "u8") or x.quantization.axis is not None:
            return False
        if w.data is None and (node.op not in traits.MATRICES or wide):
            return False
        if node.op in traits.MATRICES and (x.rank is None or w.rank is None or min(x.rank, w.rank) < 2):
            return False
        w = signed(w)
        assert w.quantization is not None
        if w.quantization.axis is not None and w.quantization.axis != traits.weight_axis(
            node.op, node.attributes, w.rank or 0
        ):
            return False
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        integer_bias = None
        if bias is not None:
            integer_bias = self.bias(bias, x.quantization, w.quantization, wide)
            if integer_bias is None:
                return False
        y = node.outputs[0]
        target, behind = self.sink(y), y
        if target is None and y not in self.outputs and len(self.readers.get(y, ())) == 1:
            clamp = self.readers[y][0]
            limits, next_target = clamp_limits(clamp), self.sink(clamp.outputs[0])
            if limits is not None and next_target is not None and _saturates(limits, *next_target):
                target, behind = next_target, clamp.outputs[0]
                self.skipped.add(clamp)
                self.function.source = join_sources(node.source, clamp.source)
        q, dtype = target if target is not None else (None, "f32")
        mixed = node.op in traits.MATRICES and not np.all(w.quantization.zero == w.quantization.zero[0])
        if mixed and not wide and dtype != "i16":
            made = self.columns(node, x, w, integer_bias, dtype, q)
        else:
            attributes = {**node.attributes, "output_dtype": dtype}
            made = self.emit(node.op, [x, w, integer_bias], attributes, dtype, q)
        if made.node is not None:
            made.node.name = node.name
        if target is not None:
            self.sunk(behind, made)
        else:
            self.new[y] = self.named(made, y)
        return True

    def columns(
        self, node: Node, x: Tensor, w: Tensor, bias: Tensor | None, dtype: str, q: Quantization | None
    ) -> Tensor:
        """Emits a product whose weight columns have different zero points, which only the reference kernel supports.

        It uses one common zero point and then subtracts the rest times the row sums of x, which are a product with ones. This is
        exact in i32 and is then requantized as usual."""
        assert w.data is not None and w.quantization is not None and x.quantization is not None
        zeros = w.quantization.zero.astype(np.int32)
        common = int(np.median(zeros))
        shared = Quantization(w.quantization.scale, np.full_like(zeros, common), w.quantization.axis)
        sums = {**node.attributes, "output_dtype": "i32"}
        product = self.emit("matmul", [x, self.with_quantization(w, shared), bias], sums, "i32", None)
        depth = w.data.shape[1 if node.attribute("transpose_b") else 0]
        unit = Quantization(np.ones(1, np.float32), np.zeros(1, np.int32))
        ones = self.function.constant(np.ones((depth, 1), np.int8), "ones", quantization=unit)
        rows = self.emit("matmul", [x, ones], {**sums, "transpose_b": False}, "i32", None)
        scale = (x.quantization.scale[:1] * w.quantization.scale).astype(np.float32)
        if q is not None:
            scale = scale / q.scale[0]
        operands = [product, rows, self.function.constant(zeros - np.int32(common), f"{w.name}_zero")]
        operands.append(self.function.constant(scale.astype(np.float32), f"{w.name}_scale"))

        def body(y: Expr, r: Expr, z: Expr, s: Expr) -> Expr:
            value = (y - r * z).cast("f32") * s
            if q is None:
                return value
            low, high = LIMITS[dtype]
            return (value.round() + float(q.zero[0])).max(low).min(high)

        made: Tensor = pointwise(operands, body, dtype, function=self.function)
        made.quantization = q
        return made

    def bias(self, bias: Tensor, x: Quantization, w: Quantization, wide: bool) -> Tensor | None:
        """The bias as integers at scale x * w. The model's own integers are used if they have that scale."""
        scale = np.float64(x.scale[0]) * w.scale.astype(np.float64)
        source = self.stored.get(bias)
        if source is not None and source.data is not None and source.quantization is not None:
            own = source.quantization
            fits = source.dtype == "i32" and not np.any(own.zero)
            if fits and np.allclose(own.scale.astype(np.float64), scale, rtol=1e-5, atol=0):
                return self.function.constant(source.data.reshape(-1), bias.name)
            values = dequantized(source.data, own)
        else:
            data = self.now(bias).data
            if data is None or data.dtype != np.float32:
                return None
            values = data
        stored = np.rint(values.reshape(-1).astype(np.float64) / scale)
        if not np.all(np.abs(stored) < BIAS_LIMIT):
            return None
        return self.function.constant(stored.astype(np.int64 if wide else np.int32), bias.name)

    # ---- pointwise ops ---------------------------------------------------------------------------------------------

    def on_map(self, node: Node) -> bool:
        """Loads integers dequantized and stores them quantized."""
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

    def keep(self, old: Tensor, made: Tensor) -> bool:
        """Records that `made` holds the integers of `old`. A quantize node after it finds them."""
        self.stored[old] = self.named(made, old)
        return True

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
        """Brings all parts to one scale: that of the result if it is stored, else the scale that all parts share."""
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
        """Maxima keep their integers. Averages over windows use the real numbers and add the zero point before rounding, which
        decides ties (QLinearAveragePool of ONNX Runtime). An average over everything is a mean."""
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

    def rounded(self, x: Tensor, body: Callable[[Expr], Expr], q: Quantization, dtype: str) -> Tensor:
        """Saturated integers that a map computes itself."""
        low, high = LIMITS[dtype]
        made: Tensor = pointwise([x], lambda v: body(v).max(low).min(high), dtype, function=self.function)
        made.quantization = q
        return made

    def on_resize(self, node: Node) -> bool:
        """Nearest neighbours keep their integers. Interpolation works on the real numbers, as in ONNX Runtime."""
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
        """The mean over axes of known lengths, kept: integer sums times one factor (QLinearGlobalAveragePool)."""
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


# ---- arithmetic of parameters --------------------------------------------------------------------------------------


def parameters(node: Node) -> Quantization | None:
    """The constant parameters of a quantize or dequantize node; None if they are computed, per block, or invalid."""
    if node.attribute("block"):
        return None
    scale = node.inputs[1] if len(node.inputs) > 1 else None
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    integers = node.inputs[0] if node.op == "dequantize" else node.outputs[0]
    if scale is None:
        return integers.quantization if integers is not None else None
    if scale.data is None or scale.dtype != "f32" or (zero is not None and zero.data is None):
        return None
    scales = np.asarray(scale.data, np.float32).reshape(-1)
    zeros = np.zeros(scales.size, np.int32) if zero is None or zero.data is None else zero.data.reshape(-1)
    if zeros.size not in (1, scales.size) or scales.size == 0 or not np.all(np.isfinite(scales) & (scales > 0)):
        return None
    zeros = np.broadcast_to(zeros.astype(np.int32), scales.shape).copy()
    bits = 16 if integers is not None and integers.dtype in ("i16", "u16") else 8
    if scale.rank == 0 or scales.size == 1:
        return Quantization(scales, zeros, None, bits)
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    axis = int(node.attribute("axis"))
    if shape is None or not -len(shape) <= axis < len(shape) or shape[axis] != scales.size:
        return None
    return Quantization(scales, zeros, axis % len(shape), bits)


def same(a: Quantization, b: Quantization) -> bool:
    return a.axis == b.axis and np.array_equal(a.scale, b.scale) and np.array_equal(a.zero, b.zero)


def whole_window(node: Node, x: Tensor) -> list[int] | None:
    """The axes of an average pool whose single window covers all of x; None for other pools."""
    rank, kernel = x.rank, list(node.attribute("kernel"))
    if rank is None or x.shape is None or any(node.attribute("pads")) or rank != len(kernel) + 2:
        return None
    first = 2 if node.attribute("channel_axis") == 1 else 1
    axes = list(range(first, first + len(kernel)))
    covered = [x.shape[axis] for axis in axes] == kernel and not any(d != 1 for d in node.attribute("dilations"))
    return axes if covered and node.attribute("auto_pad") in ("explicit", "valid") else None


def _along(values: Array, axis: int | None, rank: int) -> Array:
    if axis is None:
        return values.reshape(-1)[:1].reshape([1] * rank)
    shape: list[int] = [-1 if i == axis else 1 for i in range(rank)]
    return np.asarray(values.reshape(shape))


def dequantized(data: Array, q: Quantization) -> Array:
    """(stored - zero) * scale in f32, as ONNX DequantizeLinear."""
    difference = data.astype(np.int64) - _along(q.zero, q.axis, data.ndim)
    return np.asarray(difference.astype(np.float32) * _along(q.scale, q.axis, data.ndim), np.float32)


def quantized(data: Array, q: Quantization, dtype: str) -> Array:
    """saturate(round_half_even(x / scale) + zero), as ONNX QuantizeLinear."""
    low, high = LIMITS[dtype]
    steps = np.rint(data.astype(np.float32) / _along(q.scale, q.axis, data.ndim))
    stored = np.clip(steps + _along(q.zero, q.axis, data.ndim), low, high)
    return np.asarray(stored, numpy_dtype(dtype))


def exactly(value: float, q: Quantization, dtype: str) -> int | None:
    """The stored integer that represents a number exactly, or None."""
    number = float(np.rint(np.float32(value) / q.scale[0])) + float(q.zero[0])
    low, high = LIMITS.get(dtype, (0, -1))
    if not low <= number <= high or np.float32((number - float(q.zero[0])) * float(q.scale[0])) != np.float32(value):
        return None
    return int(number)


def signed(w: Tensor) -> Tensor:
    """Converts constant u8 weights to i8 with a zero point lower by 128. The differences stay the same; i8 kernels suffice."""
    if w.dtype != "u8" or w.data is None or w.quantization is None:
        return w
    q = w.quantization
    shifted = (w.data ^ np.uint8(128)).view(np.int8)
    return w.function.constant(shifted, w.name, "i8", Quantization(q.scale, q.zero - np.int32(128), q.axis, q.bits))


def _saturates(limits: tuple[float, float], q: Quantization, dtype: str) -> bool:
    """Whether the stored range already saturates at the limits of the clamp (rounding is monotonic)."""
    low, high = LIMITS[dtype]
    with np.errstate(over="ignore"):
        least, most = (np.rint(np.float32(v) / q.scale[0]) + q.zero[0] for v in limits)
    return bool(least <= low and most >= high)


def clamp_limits(node: Node) -> tuple[float, float] | None:
    """(low, high) of a map that only clamps its single f32 input; None for any other node."""
    if node.op != "map" or len(node.inputs) != 1 or len(node.outputs) != 1 or node.outputs[0].dtype != "f32":
        return None
    program = program_of(node)
    assert program is not None
    known: dict[int, tuple[float, float]] = {}
    for register, (opcode, kind, args, _, _, _) in enumerate(program.code):
        if opcode == "const":
            continue
        if opcode == "load" and kind == "f32":
            known[register] = (-np.inf, np.inf)
            continue
        if opcode not in ("min", "max"):
            return None
        value, other = args if args[0] in known else args[::-1]
        if value not in known or program.code[other].opcode != "const":
            return None
        limit = program.code[other].number
        pick = max if opcode == "max" else min
        low, high = known[value]
        known[register] = pick(low, limit), pick(high, limit)
    return known.get(program.stores[0].register)


def _identity(load: bool = False, store: bool = False) -> Program:
    """A program that copies a value, dequantized when loaded or quantized when stored."""
    program = Program()
    register = program.add(Instruction("load_dequantized" if load else "load", "f32"))
    program.stores = [Store(register, store)]
    return program
