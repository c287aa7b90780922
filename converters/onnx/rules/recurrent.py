"""Rules for RNN, GRU and LSTM: one matmul for the inputs of all steps and directions, then the runtime op `recurrent`.
Batch-first layouts are transposed before and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from linnet.converters.activations import ACTIVATIONS, GATES
from linnet.converters.onnx.integers import real
from linnet.converters.onnx.operation import Operation
from linnet.converters.onnx.problems import Unsupported
from linnet.converters.onnx.registry import MICROSOFT, rule
from linnet.converters.onnx.rules.quantized_ops import quantized_dynamically, scaled_product
from linnet.ir.dtypes import quantization_of_rows
from linnet.ir.function import Tensor

DEFAULTS = {"rnn": ["tanh"], "gru": ["sigmoid", "tanh"], "lstm": ["sigmoid", "tanh", "tanh"]}


def activations(op: Operation, kind: str, directions: int) -> dict[str, list[int] | list[float]]:
    """The activation attributes of the runtime op. `activation_alpha` and `activation_beta` have entries only for
    functions that take the parameter."""
    alphas: list[float] = list(op.attribute("activation_alpha") or ())
    betas: list[float] = list(op.attribute("activation_beta") or ())
    given = op.attribute("activations") if op.has("activations") else None  # the schema's default for RNN is too long
    names = [str(n).lower() for n in given or DEFAULTS[kind] * directions]
    if names == DEFAULTS[kind] * directions:
        return {}
    unknown = [n for n in names if n not in ACTIVATIONS]
    if unknown or len(names) != len(DEFAULTS[kind]) * directions:
        raise Unsupported(
            f"activations are {', '.join(names)}; expected {len(DEFAULTS[kind]) * directions} of {', '.join(ACTIVATIONS)}",
            "export the model again",
        )
    found = [ACTIVATIONS[n] for n in names]

    def parameters(given: list[float], defaults: list[float | None]) -> list[float]:
        left = iter(given)
        return [0.0 if d is None else float(next(left, d)) for d in defaults]

    return {
        "activations": [f.number for f in found],
        "alpha": parameters(alphas, [f.alpha for f in found]),
        "beta": parameters(betas, [f.beta for f in found]),
    }


@rule("RNN", "GRU", "LSTM")
def recurrent(op: Operation) -> Sequence[Tensor | None]:
    """Inputs: X, W, R, B, sequence_lens, initial_h, initial_c, P. Outputs: Y, Y_h, Y_c."""
    w = op.input(1)

    def project(x: Tensor, width: int, bias: Tensor | None) -> Tensor:
        operands = [x, op.reshape(w, [width, -1]), *([bias] if bias is not None else [])]
        return op.emit("matmul", operands, transpose_b=True)

    return layer(op, op.node.op_type.lower(), op.input(2), project)


@rule("DynamicQuantizeLSTM", domain=MICROSOFT, like="LSTM")
def dynamic_quantize_lstm(op: Operation) -> Sequence[Tensor | None]:
    """W [D,I,4H] and R [D,H,4H] are integers, with scales and zero points [D] or [D,4H]. The product with W is an integer
    product, as in ONNX Runtime. R stays in 8 bits if it is constant. ONNX Runtime quantizes the state to 8 bits at each
    step, and linnet to 12 bits."""
    directions = 2 if str(op.attribute("direction", "forward")).lower() == "bidirectional" else 1

    def part(index: int, direction: int) -> Tensor:
        """The part of one direction of a weight ([.,4H]) or of a scale or zero point ([] or [4H])."""
        return op.squeeze(op.slice(op.input(index), 0, direction, direction + 1), [0])

    def project(x: Tensor, width: int, bias: Tensor | None) -> Tensor:
        levels, scale, zero = quantized_dynamically(op, x)
        parts = [scaled_product(op, levels, part(1, d), [scale, part(8, d)], [zero, part(9, d)], None)
                 for d in range(directions)]  # fmt: skip
        y = op.concat(parts, 2) if directions > 1 else parts[0]
        return y if bias is None else op.map([y, bias], lambda v, b: v + b)

    stacked = narrow_weights(op)
    if stacked is None:
        weights = [real(op, part(2, d), part(10, d), part(11, d), axis=1) for d in range(directions)]
        stacked = op.concat([op.unsqueeze(op.transpose(r, [1, 0]), [0]) for r in weights], 0)
    return layer(op, "lstm", stacked, project)


def narrow_weights(op: Operation) -> Tensor | None:
    """R as constant i8 [D,4H,H]. None if its values are unknown, or if they do not fit in 8 bits without a zero point."""
    stored, scale, zero = op.value(2), op.value(10), op.value(11)
    if stored is None or scale is None or (zero is None and op.optional(11) is not None) or stored.ndim != 3:
        return None
    directions, hidden, width = stored.shape
    zeros = np.zeros(scale.shape, np.int16) if zero is None else zero.astype(np.int16)
    if scale.size not in (directions, directions * width) or zeros.size != scale.size or not hidden:
        return None
    levels = stored.swapaxes(1, 2).astype(np.int16) - zeros.reshape(directions, -1, 1)
    if levels.min(initial=0) < -128 or levels.max(initial=0) > 127:
        return None
    scales = np.broadcast_to(scale.reshape(directions, -1), (directions, width))
    return op.constant(levels, "i8", quantization_of_rows(scales, hidden))


def layer(
    op: Operation, kind: str, r: Tensor, project: Callable[[Tensor, int, Tensor | None], Tensor]
) -> Sequence[Tensor | None]:
    """Emits the op `recurrent`. r: [directions, gates * hidden, hidden]. project(x [time, batch, input], width, bias [width])
    gives the products of the inputs with the weights of all directions, [time, batch, width]."""
    direction = str(op.attribute("direction", "forward")).lower()
    directions, gates = 2 if direction == "bidirectional" else 1, GATES[kind]
    x, bias = op.input(0), op.optional(3)
    hidden = op.attribute("hidden_size") or (r.shape[2] if r.shape is not None and len(r.shape) == 3 else None)
    if not isinstance(hidden, int):
        raise op.unknown("hidden_size is missing and the shape of R is unknown")
    batch_first = bool(op.attribute("layout", 0))
    op.ignore("output_sequence")  # opset 1; unwanted outputs have no name
    reset_after = kind == "gru" and bool(op.attribute("linear_before_reset"))
    attributes = {
        "kind": kind,
        "direction": direction,
        "clip": float(op.attribute("clip", 0.0) or 0.0),
        "input_forget": kind == "lstm" and bool(op.attribute("input_forget")),
        "linear_before_reset": reset_after,
        **activations(op, kind, directions),
    }
    width = gates * hidden
    input_bias = hidden_bias = None
    if bias is not None:
        of_input, of_state = op.slice(bias, 1, 0, width), op.slice(bias, 1, width, 2 * width)
        if reset_after:  # the bias of the hidden gate is added to its product with the state
            hidden_bias = op.slice(of_state, 1, 2 * hidden, 3 * hidden)
            op.limit(3 * hidden, "hidden_size")
            keep = op.constant(np.repeat([1.0, 1.0, 0.0], hidden)[None], of_state.dtype)
            of_state = op.map([of_state, keep], lambda v, k: v * k)
        summed = op.map([of_input, of_state], lambda v, s: v + s)
        input_bias = op.reshape(summed, [directions * width])
    states = [op.optional(i) for i in (5, 6 if kind == "lstm" else len(op.inputs))]
    if batch_first:
        states = [s if s is None else op.transpose(s, (1, 0, 2)) for s in states]
    projected = project(op.transpose(x, (1, 0, 2)) if batch_first else x, directions * width, input_bias)
    operands = [projected, r, *states, op.optional(4)]
    operands += [op.optional(7) if kind == "lstm" else None, hidden_bias]
    wanted = max((i + 1 for i in range(3) if op.wants(i)), default=1)
    results = op.emit_all("recurrent", operands, wanted, **attributes)
    if batch_first:
        results = [op.transpose(y, (2, 0, 1, 3) if i == 0 else (1, 0, 2)) for i, y in enumerate(results)]
    return results
