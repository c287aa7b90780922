"""Rules of RNN, GRU and LSTM: one matmul for the inputs of all steps and directions, then the runtime op `recurrent`.
Layouts with the batch first are transposed at the borders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from linnet.converters.onnx.operation import Operation
from linnet.converters.onnx.problems import Unsupported
from linnet.converters.onnx.registry import rule
from linnet.graph import Tensor


class Activation(NamedTuple):
    """An activation's number in the runtime, and ONNX's default parameters; None: it has no such parameter."""

    number: int
    alpha: float | None = None
    beta: float | None = None


ACTIVATIONS = {
    "sigmoid": Activation(0),
    "tanh": Activation(1),
    "relu": Activation(2),
    "affine": Activation(3, 1.0, 0.0),
    "leakyrelu": Activation(4, 0.01),
    "thresholdedrelu": Activation(5, 1.0),
    "scaledtanh": Activation(6, 1.0, 1.0),
    "hardsigmoid": Activation(7, 0.2, 0.5),
    "elu": Activation(8, 1.0),
    "softsign": Activation(9),
    "softplus": Activation(10),
}
GATES = {"rnn": 1, "gru": 3, "lstm": 4}
DEFAULTS = {"rnn": ["tanh"], "gru": ["sigmoid", "tanh"], "lstm": ["sigmoid", "tanh", "tanh"]}


def activations(op: Operation, kind: str, directions: int) -> dict[str, list[int] | list[float]]:
    """The runtime's lists. `activation_alpha` and `_beta` hold values for the functions that have the parameter, in order."""
    alphas: list[float] = list(op.attribute("activation_alpha") or ())
    betas: list[float] = list(op.attribute("activation_beta") or ())
    given = op.attribute("activations") if op.has("activations") else None  # the schema's default of RNN is too long
    names = [str(n).lower() for n in given or DEFAULTS[kind] * directions]
    if names == DEFAULTS[kind] * directions:
        return {}
    unknown = [n for n in names if n not in ACTIVATIONS]
    if unknown or len(names) != len(DEFAULTS[kind]) * directions:
        raise Unsupported(
            f"activations are {', '.join(names)}; it takes {len(DEFAULTS[kind]) * directions} of {', '.join(ACTIVATIONS)}",
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
    """inputs X, W, R, B, sequence_lens, initial_h, initial_c, P; outputs Y, Y_h, Y_c."""
    kind = op.node.op_type.lower()
    direction = str(op.attribute("direction", "forward")).lower()
    directions, gates = 2 if direction == "bidirectional" else 1, GATES[kind]
    x, w, r, bias = op.input(0), op.input(1), op.input(2), op.optional(3)
    hidden = op.attribute("hidden_size") or (r.shape[2] if r.shape is not None and len(r.shape) == 3 else None)
    if not isinstance(hidden, int):
        raise op.unknown("hidden_size is not given and the shape of R is not known")
    batch_first = bool(op.attribute("layout", 0))
    op.ignore("output_sequence")  # opset 1: outputs that are not wanted have no name
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
    projection = [op.transpose(x, (1, 0, 2)) if batch_first else x, op.reshape(w, [directions * width, -1])]
    hidden_bias = None
    if bias is not None:
        of_input, of_state = op.slice(bias, 1, 0, width), op.slice(bias, 1, width, 2 * width)
        if reset_after:  # that of the hidden gate belongs to its product with the state
            hidden_bias = op.slice(of_state, 1, 2 * hidden, 3 * hidden)
            keep = op.constant(np.repeat([1.0, 1.0, 0.0], hidden)[None], of_state.dtype)
            of_state = op.map([of_state, keep], lambda p, v, k: v * k)
        summed = op.map([of_input, of_state], lambda p, v, s: v + s)
        projection.append(op.reshape(summed, [directions * width]))
    states = [op.optional(i) for i in (5, 6 if kind == "lstm" else len(op.inputs))]
    if batch_first:
        states = [s if s is None else op.transpose(s, (1, 0, 2)) for s in states]
    operands = [op.emit("matmul", projection, transpose_b=True), r, *states, op.optional(4)]
    operands += [op.optional(7) if kind == "lstm" else None, hidden_bias]
    wanted = max((i + 1 for i in range(3) if op.wants(i)), default=1)
    results = op.emit_all("recurrent", operands, wanted, **attributes)
    if batch_first:
        results = [op.transpose(y, (2, 0, 1, 3) if i == 0 else (1, 0, 2)) for i, y in enumerate(results)]
    return results
