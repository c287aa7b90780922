"""The values of a TFLite subgraph while it is converted: its tensors, its variables, and its outputs."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

from linnet.converters.tflite.problems import Unsupported
from linnet.converters.tflite.schema import MAX_BYTES, SubgraphSpec
from linnet.ir.function import Function, Tensor, emit

Value = Tensor | str  # for a resource, the name of its variable


class State:
    """The variables of one function: an entry point, a branch or the body of a loop. An entry point reads the variables
    and assigns them at its end. Other functions take the variables that they use as inputs, and return those that they
    assign."""

    def __init__(self, kind: str = "entry") -> None:
        self.kind = kind  # "entry", "nested", or "first" (the subgraph of CALL_ONCE, which sets initial values)
        self.current: dict[str, Tensor] = {}  # the values at this point of the run
        self.captured: dict[str, Tensor] = {}  # nested: the input for each variable in use
        self.assigned: dict[str, None] = {}  # names, in the order of their first assignment


class Scope:
    """One subgraph during its conversion to a function or to part of one."""

    def __init__(self, function: Function, subgraph: SubgraphSpec, number: int, state: State, depth: int = 0) -> None:
        self.function, self.subgraph, self.number = function, subgraph, number
        self.state, self.depth = state, depth
        self.values: dict[int, Tensor] = {}
        self.handles: dict[int, str] = {}  # resource tensors: the names of their variables
        self.path = ""  # path of operators that led to this subgraph, for problems


def own_output(function: Function, tensor: Tensor, taken: Container[Tensor]) -> Tensor:
    """The tensor, or a copy if it is an input, a variable, or already an output (`taken`)."""
    copy = tensor.data is None and (tensor in taken or tensor.variable is not None)
    return copied(function, tensor) if copy else tensor


def copied(function: Function, tensor: Tensor) -> Tensor:
    q = tensor.quantization
    return emit("copy", [tensor], {"kind": "identity"}, function=function, quantization=[q] if q else ())[0]


def check_size(shape: Sequence[int]) -> None:
    """Refuses a tensor size that only a damaged file can contain."""
    if any(d < 0 for d in shape) or math.prod(shape) * 8 > MAX_BYTES:
        raise Unsupported(
            f"a tensor has the shape {list(shape)}, which is negative or too large",
            "the model is damaged: export it again",
        )


def distinct(names: Sequence[str]) -> list[str]:
    """Makes names unique by appending _1, _2, ... to repeated ones."""
    seen: set[str] = set()
    result = []
    for name in names:
        candidate, count = name, 0
        while candidate in seen:
            count += 1
            candidate = f"{name}_{count}"
        seen.add(candidate)
        result.append(candidate)
    return result
