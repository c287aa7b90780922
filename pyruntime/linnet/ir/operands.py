"""Protocols for the parts of a tensor, a node and a function that shape rules, arithmetic and encoding read. The
modules that contain these rules cannot import linnet.ir.function, because it calls them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy.typing as npt

from linnet.ir.dtypes import Dim, Quantization


class Operand(Protocol):
    """The parts of a tensor that the C library reads."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[Dim, ...] | None: ...
    @property
    def data(self) -> npt.NDArray[Any] | None: ...
    @property
    def quantization(self) -> Quantization | None: ...


class Known(Operand, Protocol):
    """An operand whose elements may be known before they are computed: see linnet.ir.symbolic."""

    @property
    def elements(self) -> tuple[Dim, ...] | None: ...


class Step(Protocol):
    """The parts of a node that these modules read."""

    @property
    def op(self) -> str: ...
    @property
    def attributes(self) -> dict[str, Any]: ...
    @property
    def inputs(self) -> Sequence[Known | None]: ...
    @property
    def outputs(self) -> Sequence[Known]: ...


class Registered(Protocol):
    """The parts of a linnet.UserOp that a graph and its passes use."""

    name: str
    gradient: Callable[..., Any] | None

    @property
    def pointer(self) -> Any: ...


@runtime_checkable
class Callee(Protocol):
    """The parts that these modules read of a function that an attribute refers to. Such a function is a branch, a loop
    body or a called function."""

    @property
    def inputs(self) -> Sequence[Known]: ...
    @property
    def outputs(self) -> Sequence[Known]: ...


def user_op_name(attributes: Mapping[str, Any]) -> str:
    """The name of the op that a node of the op `user` refers to."""
    return str(attributes["op"].rstrip(b"\0").decode())
