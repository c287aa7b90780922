"""The activations of ONNX's recurrent ops, for the importer and the exporter."""

from __future__ import annotations

from typing import NamedTuple


class Activation(NamedTuple):
    """An activation's number in the runtime, and ONNX's default values of its parameters. None stands for a parameter
    that the activation does not have."""

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
