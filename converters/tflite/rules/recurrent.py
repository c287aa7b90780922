"""Rules for float and hybrid LSTM and RNN layers. The products with the input are computed for all steps at once. The runtime
op `recurrent` follows, or a loop if there is projection, layer normalization, clipping or 8-bit rounding (lstm_eval)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from linnet.converters.tflite import hybrid
from linnet.converters.tflite.operation import Operation
from linnet.converters.tflite.recurrence import Layer, over_time
from linnet.converters.tflite.registry import rule
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor

IN_OP = {"none": (3, 1.0), "relu": (2, 0.0), "tanh": (1, 0.0)}  # activation and alpha of the runtime op


class Matrix(NamedTuple):
    """Weights [rows, columns]: f32, or i8 with a scale per row."""

    value: npt.NDArray[Any]
    scale: npt.NDArray[np.float32] | None

    def times(self, op: Operation, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x @ value.T + bias."""
        if self.scale is None:
            return op.emit("matmul", [x, op.constant(self.value), bias], transpose_b=True)
        return hybrid.matmul(op, x, op.constant(self.value), self.scale, bias, transpose_b=True)


def matrix(op: Operation, indices: Sequence[int]) -> Matrix:
    """Stacks operands by rows; vectors become diagonal matrices."""
    parts, scales = [], []
    for index in indices:
        value, quantization = op.require(index, "a weight"), op.input(index).quantization
        if quantization is None:
            value = value.astype(np.float32)
            parts.append(np.diag(value) if value.ndim == 1 else value)
            continue
        if value.ndim != 2 or value.dtype not in (np.int8, np.uint8):
            raise op.unsupported(
                f"a weight has type {value.dtype} and shape {list(value.shape)}", "export with float weights"
            )
        parts.append(hybrid.signed(value))
        scales.append(np.broadcast_to(quantization.scale.reshape(-1)[:1], value.shape[:1]))
    if scales and len(scales) != len(parts):
        raise op.unsupported("only some of the weights are integers", "quantize all weights or none")
    return Matrix(np.concatenate(parts), np.concatenate(scales).astype(np.float32) if scales else None)


def vector(op: Operation, index: int) -> npt.NDArray[np.float32] | None:
    """An operand as real numbers; None if it is left out."""
    tensor = op.optional(index)
    if tensor is None:
        return None
    value = op.require(index, "a weight").astype(np.float32)
    if tensor.quantization is not None:
        value = value * tensor.quantization.scale.reshape(-1)[:1]
    return value


def activated(op: Operation, name: str) -> Callable[[Expr], Expr]:
    functions: dict[str, Callable[[Expr], Expr]] = {
        "none": lambda x: x, "relu": lambda x: x.max(0.0), "relu6": lambda x: x.max(0.0).min(6.0), "tanh": lambda x: x.tanh(),
        "relu_n1_to_1": lambda x: x.max(-1.0).min(1.0),
    }  # fmt: skip
    if name not in functions:
        raise op.unsupported(f"the fused activation {name!r} is not supported", "export the model without it")
    return functions[name]


class Lstm:
    """One direction of an LSTM."""

    def __init__(self, op: Operation, layer: Layer) -> None:
        self.op, self.layer = op, layer
        self.gates = [i for i in range(4) if op.optional(layer.inputs[i]) is not None]
        if self.gates not in ([0, 1, 2, 3], [1, 2, 3]):
            raise op.unsupported("the weights of a gate are missing", "the model is damaged: export it again")
        self.coupled = len(self.gates) == 3  # the input gate is 1 - the forget gate
        self.input_weights = matrix(op, [layer.inputs[g] for g in self.gates])
        self.weights = matrix(op, [layer.recurrent[g] for g in self.gates])
        found = [vector(op, layer.bias[g]) for g in self.gates]
        if any(b is None for b in found):
            raise op.unsupported("the bias of a gate is missing", "the model is damaged: export it again")
        self.bias = [b for b in found if b is not None]
        self.peephole = [vector(op, i) for i in layer.peephole]
        self.norm = [vector(op, layer.norm[g]) for g in self.gates] if layer.norm else []
        self.normalized = bool(self.norm) and self.norm[0] is not None
        self.size = self.bias[0].size
        self.activation = op.activation()
        self.cell_clip, self.projection_clip = float(op.option("cell_clip")), float(op.option("projection_clip"))
        self.projection = None if op.optional(layer.projection) is None else matrix(op, [layer.projection])

    def run(self, x: Tensor, extra: Tensor | None, reverse: bool) -> Tensor:
        """Computes [time, batch, output] from x [time, batch, input]. The state is kept for the next run."""
        op, layer = self.op, self.layer
        bias = None if self.normalized else op.constant(np.concatenate(self.bias))
        z = self.input_weights.times(op, x, bias)
        if extra is not None:
            more = matrix(op, [layer.extra[g] for g in self.gates]).times(op, extra)
            z = op.map([z, more], lambda a, b: a + b)
        h, c = op.input(layer.hidden), op.input(layer.cell)
        simple = not self.normalized and self.projection is None and self.cell_clip <= 0 and self.weights.scale is None
        if simple and self.activation in IN_OP:
            y, h, c = self.in_one(z, h, c, reverse)
        else:
            h, c, y = over_time(op, [z], [h, c], self.step, reverse)
        op.keep(layer.hidden, h)
        op.keep(layer.cell, c)
        return y

    def in_one(self, z: Tensor, h: Tensor, c: Tensor, reverse: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Uses the runtime op, whose gates are in the order input, output, forget, cell. A coupled input gate is 1 -
        sigmoid(f), which is sigmoid(-f). The runtime op couples the other way: its forget gate is 1 minus the input
        gate."""
        op, n = self.op, self.size
        parts = dict(zip(self.gates, op.emit_all("copy", [z], len(self.gates), kind="split", axis=-1,
                                                 shape=[n] * len(self.gates)), strict=True))  # fmt: skip
        weights = dict(zip(self.gates, np.split(self.weights.value, len(self.gates)), strict=True))
        peephole = [np.zeros(n, np.float32) if p is None else p for p in self.peephole]
        if self.coupled:
            parts[0], weights[0], peephole[0] = op.map([parts[1]], lambda v: -v), -weights[1], -peephole[1]
        order = (0, 3, 1, 2)
        function, alpha = IN_OP[self.activation]
        p = op.copy([parts[g] for g in order], kind="concat", axis=2)
        r = op.constant(np.concatenate([weights[g] for g in order])[None])
        peepholes = None
        if any(v is not None for v in self.peephole):
            peepholes = op.constant(np.concatenate([peephole[0], peephole[2], peephole[1]])[None])
        first = [op.copy([s], kind="unsqueeze", axes=[0]) for s in (h, c)]
        y, h, c = op.emit_all(
            "recurrent", [p, r, *first, None, peepholes], 3, kind="lstm", direction="reverse" if reverse else "forward",
            activations=[0, function, function], alpha=[0.0, alpha, alpha], beta=[0.0, 0.0, 0.0], input_forget=self.coupled,
        )  # fmt: skip
        squeezed = [op.copy([t], kind="squeeze", axes=[a]) for t, a in ((y, 1), (h, 0), (c, 0))]
        return squeezed[0], squeezed[1], squeezed[2]

    def step(self, op: Operation, rows: Sequence[Tensor], states: Sequence[Tensor]) -> list[Tensor]:
        """One step. rows: the products with the input, including biases. The peephole of the output gate reads the new
        cell state."""
        h, c = states
        z = op.map([rows[0], self.weights.times(op, h)], lambda a, b: a + b)
        count = len(self.gates)
        found = op.emit_all("copy", [z], count, kind="split", axis=-1, shape=[self.size] * count)
        z_gates = dict(zip(self.gates, found, strict=True))
        looked = {1: self.peephole[1]} if self.coupled else {0: self.peephole[0], 1: self.peephole[1]}
        for gate, weight in looked.items():
            z_gates[gate] = self.finished(op, gate, z_gates[gate], c, weight)
        z_gates[2] = self.finished(op, 2, z_gates[2], c, None)
        act, clip = activated(op, self.activation), self.cell_clip

        def cell(old: Expr, forget: Expr, new: Expr, *given: Expr) -> Expr:
            f = forget.sigmoid()
            i = given[0].sigmoid() if given else f.lift(1.0) - f
            value = f * old + i * act(new)
            return value.max(-clip).min(clip) if clip > 0 else value

        c = op.map([c, z_gates[1], z_gates[2], *([] if self.coupled else [z_gates[0]])], cell)
        out = self.finished(op, 3, z_gates[3], c, self.peephole[2])
        h = op.map([out, c], lambda o, v: o.sigmoid() * act(v))
        if self.projection is not None:
            bias = vector(op, self.layer.projection + 1)
            h = self.projection.times(op, h, None if bias is None else op.constant(bias))
            limit = self.projection_clip
            if limit > 0:
                h = op.map([h], lambda v: v.max(-limit).min(limit))
        return [h, c]

    def finished(self, op: Operation, gate: int, z: Tensor, c: Tensor, peephole: npt.NDArray[Any] | None) -> Tensor:
        """A gate before its activation, with peephole and layer normalization."""
        if peephole is not None:
            z = op.map([z, c, op.constant(peephole)], lambda a, v, w: a + w * v)
        if not self.normalized:
            return z
        index = self.gates.index(gate)
        scale = self.norm[index]
        assert scale is not None
        return op.emit("layer_norm", [z, op.constant(scale), op.constant(self.bias[index])], axis=-1, epsilon=1e-8)


def sequence(op: Operation, x: Tensor, time_major: bool) -> Tensor:
    """Converts an input to [time, batch, input]. An input without a time dimension has one step."""
    if x.rank == 2:
        return op.copy([x], kind="unsqueeze", axes=[0])
    if x.rank != 3:
        raise op.unsupported(f"the input has rank {x.rank}", "use an input of shape [batch, time, input]")
    return x if time_major else op.transpose(x, [1, 0, 2])


def back(op: Operation, y: Tensor, like: Tensor, time_major: bool) -> Tensor:
    """The inverse of `sequence` for outputs."""
    if like.rank == 2:
        return op.copy([y], kind="squeeze", axes=[0])
    return y if time_major else op.transpose(y, [1, 0, 2])


ONE_WAY = Layer(range(1, 5), range(5, 9), range(9, 12), range(12, 16), 16, 18, 19)


@rule("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM")
def lstm(op: Operation) -> Tensor | list[Tensor]:
    if op.spec.op == "LSTM" and op.option("kernel") == 1:
        return basic_lstm(op)
    x = op.input(0)
    major = op.spec.op == "LSTM" or bool(op.option("time_major"))
    layer = ONE_WAY._replace(norm=range(20, 24)) if len(op.inputs) >= 24 else ONE_WAY
    if x.dtype == "i8":
        from linnet.converters.tflite.rules.recurrent_integer import integer_lstm

        return back(op, integer_lstm(op, sequence(op, x, major), layer), x, major)
    return back(op, Lstm(op, layer).run(sequence(op, x, major), None, False), x, major)


def basic_lstm(op: Operation) -> list[Tensor]:
    """The kernel "basic": it has one matrix for [x, h], with gates in the order input, cell, forget, output
    (reference_ops::LstmCell)."""
    x, h, c = op.input(0), op.input(1), op.input(4)
    if x.dtype != "f32":
        raise op.unsupported("the basic LSTM kernel does not support integers", "export a full LSTM")
    joined = op.copy([x, h], kind="concat", axis=1)
    z = op.emit("matmul", [joined, op.input(2), op.input(3)], transpose_b=True)
    size = z.shape[-1] if z.shape else None
    if not isinstance(size, int):
        raise op.unsupported("the size of the input is unknown", "set the input shapes with input_shapes")
    i, new, f, o = op.emit_all("copy", [z], 4, kind="split", axis=-1, shape=[size // 4] * 4)
    c = op.map([i, new, f, c], lambda a, b, d, old: a.sigmoid() * b.tanh() + d.sigmoid() * old)
    h = op.map([o, c], lambda a, v: a.sigmoid() * v.tanh())
    op.keep(1, h)
    op.keep(4, c)
    return [h, c, joined, z]


@rule("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional_lstm(op: Operation) -> list[Tensor]:
    """An auxiliary input without weights is the input of the backward layer."""
    x, major, extra = op.input(0), bool(op.option("time_major")), op.optional(39)
    weighted = op.optional(41) is not None
    backward = x if extra is None or weighted else extra
    more = None if extra is None or not weighted else sequence(op, extra, major)
    forward_layer = Layer(range(1, 5), range(5, 9), range(9, 12), range(12, 16), 16, 35, 36, (), range(40, 44))
    backward_layer = Layer(range(18, 22), range(22, 26), range(26, 29), range(29, 33), 33, 37, 38, (), range(44, 48))
    y = Lstm(op, forward_layer).run(sequence(op, x, major), more, False)
    z = Lstm(op, backward_layer).run(sequence(op, backward, major), more, True)
    return directions(op, y, z, x, major)


def directions(op: Operation, y: Tensor, z: Tensor, like: Tensor, time_major: bool) -> list[Tensor]:
    """Both outputs, or one concatenated output."""
    if op.option("merge"):
        return [back(op, op.copy([y, z], kind="concat", axis=2), like, time_major)]
    return [back(op, y, like, time_major), back(op, z, like, time_major)]


def rnn(op: Operation, x: Tensor, at: int, extra: tuple[Tensor, int] | None, reverse: bool) -> Tensor:
    """h = activation(W x + R h + b). x: [time, batch, input]. Operands from `at` on: W, R, b, h. extra: another input,
    and the operand index of its weights."""
    weights, bias = matrix(op, [at + 1]), vector(op, at + 2)
    z = matrix(op, [at]).times(op, x, None if bias is None else op.constant(bias))
    if extra is not None:
        more = matrix(op, [extra[1]]).times(op, extra[0])
        z = op.map([z, more], lambda a, b: a + b)
    act = activated(op, op.activation())

    def step(inner: Operation, rows: Sequence[Tensor], states: Sequence[Tensor]) -> list[Tensor]:
        return [inner.map([rows[0], weights.times(inner, states[0])], lambda a, b: act(a + b))]

    h, y = over_time(op, [z], [op.input(at + 3)], step, reverse)
    op.keep(at + 3, h)
    return y


@rule("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN")
def one_way_rnn(op: Operation) -> Tensor:
    x = op.input(0)
    major = op.spec.op == "RNN" or bool(op.option("time_major"))
    return back(op, rnn(op, sequence(op, x, major), 1, None, False), x, major)


@rule("BIDIRECTIONAL_SEQUENCE_RNN")
def bidirectional_rnn(op: Operation) -> list[Tensor]:
    x, major, given = op.input(0), bool(op.option("time_major")), op.optional(9)
    weighted = op.optional(10) is not None
    extra = None if given is None else sequence(op, given, major)
    steps = sequence(op, x, major)
    y = rnn(op, steps, 1, (extra, 10) if extra is not None and weighted else None, False)
    other = steps if extra is None or weighted else extra
    z = rnn(op, other, 5, (extra, 11) if extra is not None and weighted else None, True)
    return directions(op, y, z, x, major)
