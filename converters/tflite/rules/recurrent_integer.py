"""Integer LSTM layers: 8-bit activations and weights, 16-bit gates and cell state, in the fixed-point arithmetic of the
reference kernel (lstm_eval, integer 8x8_16)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.converters.tflite.fixed_point import RANGES, logistic_table, quantize_multiplier, tanh_table
from linnet.converters.tflite.hybrid import UNIT
from linnet.converters.tflite.operation import Operation, per_tensor
from linnet.converters.tflite.recurrence import Layer, over_time
from linnet.ir.dtypes import Quantization
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor

LOW, HIGH = RANGES["i16"]


def scale_of(op: Operation, index: int) -> tuple[np.float32, int]:
    """(scale, zero point) of an operand."""
    quantization = op.input(index).quantization
    if quantization is None:
        raise op.unsupported(f"operand {index} has no quantization", "quantize the model again")
    return per_tensor(quantization, f"operand {index}")


class IntegerLstm:
    """One layer. Each field has one entry per gate: input, forget, cell, output. The entry of the input gate is missing
    if this gate is 1 - forget."""

    def __init__(self, op: Operation, layer: Layer) -> None:
        self.op, self.layer = op, layer
        if len(op.spec.intermediates) != 5:
            raise op.unsupported(
                f"an integer LSTM has {len(op.spec.intermediates)} intermediate tensors; expected 5",
                "export the model with 16-bit gates (8x8_16)",
            )
        if layer.norm and op.optional(layer.norm[1]) is not None:
            raise op.unsupported(
                "layer normalization on integers is not supported", "export the layer with float or hybrid weights"
            )
        self.gates = [i for i in range(4) if op.optional(layer.inputs[i]) is not None]
        if self.gates not in ([0, 1, 2, 3], [1, 2, 3]):
            raise op.unsupported("the weights of a gate are missing", "the model is damaged: export it again")
        self.coupled = len(self.gates) == 3
        self.state_scale, self.state_zero = scale_of(op, layer.hidden)
        cell_scale, _ = scale_of(op, layer.cell)
        self.cell_bits = round(float(np.log2(cell_scale)))
        if float(cell_scale) != 2.0**self.cell_bits or not -15 <= self.cell_bits <= -9:
            raise op.unsupported(f"the cell state has the scale {cell_scale}", "use a power of two, 2^-15 to 2^-9")
        hidden: Quantization | None = op.scope.subgraph.tensors[op.spec.intermediates[4]].quantization
        if hidden is None:
            raise op.unsupported("the hidden state has no quantization", "quantize the model again")
        self.hidden_scale, self.hidden_zero = per_tensor(hidden, "the hidden state")
        self.recurrent = [op.require(layer.recurrent[g], "a weight") for g in self.gates]
        self.sizes = [self.recurrent[0].shape[0]] * len(self.gates)
        self.cell_clip = int(np.clip(np.float32(op.option("cell_clip")) / cell_scale, LOW, HIGH))
        self.sigmoid = logistic_table()
        self.tanh = {bits: tanh_table(bits) for bits in {3, 15 + self.cell_bits}}

    def factor(self, index: int, other: np.float32, result: np.float32) -> tuple[int, int]:
        """The multiplier that brings a product with operand `index` to the scale `result`. It is computed in floats, as
        in TFLite."""
        fixed, shift = quantize_multiplier(float(np.float32(scale_of(self.op, index)[0] * other / result)))
        return fixed, -shift

    def run(self, x: Tensor) -> Tensor:
        """x [time, batch, input]."""
        op, layer, gate_scale = self.op, self.layer, np.float32(2.0**-12)
        x_scale, x_zero = scale_of(op, 0)
        weights = [op.require(layer.inputs[g], "a weight") for g in self.gates]
        bias = [op.require(layer.bias[g], "a bias").astype(np.int32) for g in self.gates]
        sums = self.sums(op, x, weights, x_zero, bias)
        rows = []
        for gate, z in zip(self.gates, sums, strict=True):
            fixed, shift = self.factor(layer.inputs[gate], x_scale, gate_scale)
            rows.append(op.map([z], lambda v, f=fixed, s=shift: v.fixed_multiply(f, s).max(LOW).min(HIGH), "i16"))
        states = [op.input(layer.hidden), op.input(layer.cell)]
        h, c, y = over_time(op, rows, states, self.step, False)
        op.keep(layer.hidden, h)
        op.keep(layer.cell, c)
        return op.quantized(y, op.output())

    def sums(
        self,
        op: Operation,
        x: Tensor,
        weights: Sequence[npt.NDArray[Any]],
        zero: int,
        bias: Sequence[npt.NDArray[Any]] = (),
    ) -> list[Tensor]:
        """(x - zero) @ w.T + bias for each of the weights, as i32."""
        value = np.concatenate(weights)
        offset = -zero * value.astype(np.int32).sum(1, dtype=np.int32)
        if bias:
            offset = offset + np.concatenate(bias)
        plain = op.emit("copy", [x], UNIT, kind="identity")
        operands = [plain, op.constant(value, UNIT), op.constant(offset.astype(np.int32))]
        made = op.emit("matmul", operands, transpose_b=True, output_dtype="i32")
        if len(weights) == 1:
            return [made]
        return op.emit_all("copy", [made], len(weights), kind="split", axis=-1, shape=[w.shape[0] for w in weights])

    def step(self, op: Operation, rows: Sequence[Tensor], states: Sequence[Tensor]) -> list[Tensor]:
        """One step. Gates have 16 bits, with scale 2^-12 before their activation functions and 2^-15 after them."""
        h, c = states
        layer = self.layer
        sums = dict(zip(self.gates, self.sums(op, h, self.recurrent, self.state_zero), strict=True))
        given = dict(zip(self.gates, rows, strict=True))
        gates = {g: self.gate(op, g, given[g], sums[g], c) for g in self.gates if g != 3}
        wide, clip = 30 + self.cell_bits, self.cell_clip

        def shifted(value: Expr, exponent: int) -> Expr:
            return value.fixed_multiply(
                1 << 30, exponent - 1
            )  # the multiplier is half of its unit; rounds half away from zero

        def cell(old: Expr, forget: Expr, new: Expr, *more: Expr) -> Expr:
            i = more[0] if more else forget.lift(32767) - forget
            kept = shifted(forget * old, 15)
            value = (kept + shifted(i * new, wide)).max(LOW).min(HIGH)
            return value.max(-clip).min(clip) if clip > 0 else value

        new = op.map([c, gates[1], gates[2], *([] if self.coupled else [gates[0]])], cell, "i16")
        new.quantization = c.quantization
        out = self.gate(op, 3, given[3], sums[3], new)
        seen = op.lookup(new, self.tanh[15 + self.cell_bits], LOW)
        power = np.float32(2.0**-15 / float(self.hidden_scale) * 2.0**-15)
        fixed, shift = quantize_multiplier(float(power))
        projected = op.optional(layer.projection) is not None
        zero = -self.hidden_zero if projected else self.hidden_zero
        body = lambda o, t: ((o * t).fixed_multiply(fixed, -shift) + zero).max(-128).min(127)  # noqa: E731
        hidden = op.map([out, seen], body, "i8")
        if projected:
            hidden = self.projected(op, hidden)
        hidden.quantization = h.quantization
        return [hidden, new]

    def gate(self, op: Operation, gate: int, row: Tensor, recurrent: Tensor, c: Tensor) -> Tensor:
        """One gate after its activation function."""
        layer, gate_scale = self.layer, np.float32(2.0**-12)
        fixed, shift = self.factor(layer.recurrent[gate], self.state_scale, gate_scale)
        place = {0: 0, 1: 1, 3: 2}.get(gate)
        peephole = None if place is None else self.op.optional(layer.peephole[place])
        operands, more = [row, recurrent], (0, 0)
        if peephole is not None:
            assert place is not None
            more = self.factor(layer.peephole[place], np.float32(2.0**self.cell_bits), gate_scale)
            operands += [c, op.constant(self.op.require(layer.peephole[place], "a peephole"))]

        def body(z: Expr, r: Expr, *looked: Expr) -> Expr:
            value = (r.fixed_multiply(fixed, shift) + z).max(LOW).min(HIGH)
            if looked:
                value = ((looked[0] * looked[1]).fixed_multiply(*more) + value).max(LOW).min(HIGH)
            return value

        return op.lookup(op.map(operands, body, "i16"), self.tanh[3] if gate == 2 else self.sigmoid, LOW)

    def projected(self, op: Operation, hidden: Tensor) -> Tensor:
        layer, own = self.layer, self.op
        weights = own.require(layer.projection, "the projection")
        given = own.optional(layer.projection + 1)
        bias = (
            [] if given is None else [own.require(layer.projection + 1, "the bias of the projection").astype(np.int32)]
        )
        (sums,) = self.sums(op, hidden, [weights], -self.hidden_zero, bias)
        fixed, shift = self.factor(layer.projection, self.hidden_scale, self.state_scale)
        scale = per_tensor(own.output().quantization or UNIT, "the output")[0]
        clip, zero = int(np.clip(np.float32(own.option("projection_clip")) / scale, -128, 127)), self.state_zero

        def body(v: Expr) -> Expr:
            value = (v.fixed_multiply(fixed, shift) + zero).max(-128).min(127)
            return value.max(-clip).min(clip) if clip > 0 else value

        return op.map([sums], body, "i8")


def integer_lstm(op: Operation, x: Tensor, layer: Layer) -> Tensor:
    """x [time, batch, input] of i8."""
    return IntegerLstm(op, layer).run(x)
