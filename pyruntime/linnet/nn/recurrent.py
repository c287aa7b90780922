"""RNN, GRU and LSTM layers over whole sequences, optionally stacked and bidirectional. One matmul multiplies all inputs
of a layer by its weights; then one op runs all steps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from linnet import init
from linnet.builder import ops
from linnet.clib.arguments import fields_of, with_fields
from linnet.clib.errors import UsageError
from linnet.ir.dtypes import DTypeLike
from linnet.ir.function import Operators, Tensor
from linnet.ir.graph import Graph
from linnet.nn._layer import Start, layer, positive, rank_of, size_of, variable
from linnet.nn.randomness import dropout as _dropout

if TYPE_CHECKING:
    from typing_extensions import Unpack

_GATES = {"rnn": 1, "gru": 3, "lstm": 4}
_ACTIVATIONS = {"tanh": 1, "relu": 2, "sigmoid": 0}  # values of the op's attribute `activations`


class StackFields(TypedDict, total=False):
    """The fields of StackSettings, as keyword arguments."""

    layers: int
    bidirectional: bool
    lengths: Operators | None
    dropout: float
    training: bool
    time_major: bool
    start: Start | None
    name: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class StackSettings:
    """The arguments that all recurrent layers take."""

    layers: int = 1
    bidirectional: bool = False
    lengths: Operators | None = None
    dropout: float = 0.0
    training: bool = False
    time_major: bool = False
    start: Start | None = None
    name: str = ""


@with_fields(StackSettings)
def lstm(
    x: Operators,
    units: int,
    *,
    initial: tuple[Operators, Operators] | None = None,
    **settings: Unpack[StackFields],
) -> tuple[Tensor, Tensor, Tensor]:
    """Long short-term memory (Hochreiter and Schmidhuber 1997): x [batch, time, inputs] -> y [batch, time, directions *
    units], and the states h and c after the last step, [layers * directions, batch, units].

    initial: initial h and c; default zeros.
    lengths: i32 [batch], the number of valid steps in each row; y is 0 after them.
    dropout: rate between layers while training.
    time_major: x and y are [time, batch, ...].
    start: initializer of the weights, by default uniform in +-1 / sqrt(units) as in PyTorch. Variables of layer i:
        `layer_i/input_weight` [inputs, directions * gates * units], `layer_i/weight` [directions, gates * units, units]
        and `layer_i/bias` [directions * gates * units], with the gates in the order input, output, forget, cell.
    """
    y, states = _stack("lstm", x, units, list(initial or []), fields_of(StackSettings, settings, "lstm"))
    return y, states[0], states[1]


@with_fields(StackSettings)
def gru(
    x: Operators,
    units: int,
    *,
    initial: Operators | None = None,
    **settings: Unpack[StackFields],
) -> tuple[Tensor, Tensor]:
    """Gated recurrent unit (Cho et al. 2014; reset gate after the product, as in PyTorch and cuDNN). Returns y and h as
    lstm does.

    Variables as for lstm, with the gates in the order update, reset, hidden, and `layer_i/hidden_bias` [directions,
    units].
    """
    given = [] if initial is None else [initial]
    y, states = _stack("gru", x, units, given, fields_of(StackSettings, settings, "gru"))
    return y, states[0]


@with_fields(StackSettings)
def rnn(
    x: Operators,
    units: int,
    *,
    activation: str = "tanh",
    initial: Operators | None = None,
    **settings: Unpack[StackFields],
) -> tuple[Tensor, Tensor]:
    """Simple recurrence h = activation(x @ input_weight + h @ weight + bias) (Elman 1990). Returns y and h as lstm
    does.

    activation: "tanh", "relu" or "sigmoid".
    """
    if activation not in _ACTIVATIONS:
        raise UsageError(
            "rnn does not support this activation", code=102, expected=" or ".join(_ACTIVATIONS), got=repr(activation)
        )
    given = [] if initial is None else [initial]
    y, states = _stack("rnn", x, units, given, fields_of(StackSettings, settings, "rnn"), activation)
    return y, states[0]


def _stack(
    kind: str,
    x: Operators,
    units: int,
    initial: Sequence[Operators],
    given: StackSettings,
    activation: str = "tanh",
) -> tuple[Tensor, list[Tensor]]:
    """Stacks layers. Returns the result and the states of all layers."""
    rank_of(x, kind, 3, 3)
    directions, count = 2 if given.bidirectional else 1, positive(given.layers, "layers", kind)
    codes = [_ACTIVATIONS[activation]] * directions if kind == "rnn" else []
    found: list[list[Tensor]] = []
    with layer(x, kind, given.name) as graph:
        y = x.tensor() if given.time_major else ops.transpose(x, [1, 0, 2])
        for i in range(count):
            states = [t[i * directions : (i + 1) * directions] if count > 1 else t for t in initial]
            with graph.scope(f"layer_{i}"):
                y, after = _layer(graph, kind, y, units, states, given, codes)
            found.append(after)
            if i + 1 < count:
                y = _dropout(y, given.dropout, given.training)
        y = y if given.time_major else ops.transpose(y, [1, 0, 2])
    return y, [ops.concat(parts, 0) if count > 1 else parts[0] for parts in zip(*found, strict=True)]


def _layer(
    graph: Graph,
    kind: str,
    x: Operators,
    units: int,
    initial: Sequence[Operators],
    given: StackSettings,
    codes: Sequence[int],
) -> tuple[Tensor, list[Tensor]]:
    """One layer over x [time, batch, inputs]: y [time, batch, directions * units], and h (and c for an lstm)."""
    directions = 2 if given.bidirectional else 1
    units, inputs = positive(units, "units", kind), size_of(x, -1, kind)
    rows = _GATES[kind] * units
    limit = 1.0 / math.sqrt(units)

    def usual(shape: Sequence[int], dtype: DTypeLike = "f32") -> init.Initializer:
        return init.uniform(shape, -limit, limit, dtype)

    begin = given.start if given.start is not None else usual
    products = variable(graph, "input_weight", [inputs, directions * rows], begin, x.dtype)
    weight = variable(graph, "weight", [directions, rows, units], begin, x.dtype)
    bias = variable(graph, "bias", [directions * rows], usual, x.dtype)
    hidden = variable(graph, "hidden_bias", [directions, units], usual, x.dtype).tensor(x) if kind == "gru" else None
    states: list[Operators | None] = [*initial, None, None]
    y, *after = ops.recurrent(
        ops.matmul(x, products.tensor(x), bias.tensor(x)), weight.tensor(x), states[0],
        states[1] if kind == "lstm" else None, given.lengths, None, hidden, kind=kind,
        direction="bidirectional" if directions == 2 else "forward", activations=codes,
        alpha=[0.0] * len(codes), beta=[0.0] * len(codes), linear_before_reset=kind == "gru",
        outputs=3 if kind == "lstm" else 2,
    )  # fmt: skip
    if directions == 1:
        return ops.copy([y], kind="squeeze", axis=[1])[0], after
    return ops.reshape(ops.transpose(y, [0, 2, 1, 3]), [0, 0, directions * units]), after


__all__ = ["gru", "lstm", "rnn"]
