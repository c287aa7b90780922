"""Compression of gradients: the names of the encodings, and the encodings themselves on NumPy arrays.
Workers encode by themselves; these functions are for tests, simulations and adapters. The byte formats are in
runtime_c/sync/codec/compress.h."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from linnet.clib.errors import UsageError
from linnet.clib.ffi import ffi
from linnet.clib.library import NULL, exception
from linnet.sync._library import sync_library

_ENCODINGS: Final[dict[str, int]] = {"none": 0, "f16": 1, "bf16": 2, "i8": 3, "topk": 4, "1bit": 5}
_FORMS: Final = "none, f16, bf16, i8, topk, topk:FRACTION or 1bit"


@dataclass(frozen=True)
class Compression:
    """One encoding. `name` is "none" (f32), "f16", "bf16", "i8", "topk" or "1bit". `fraction`: the fraction of a
    tensor's values that topk keeps, in (0, 1]. Raises UsageError for anything else."""

    name: str = "none"
    fraction: float = 0.01

    def __post_init__(self) -> None:
        if self.name not in _ENCODINGS:
            raise UsageError(
                "unknown compression", code=101, expected=_FORMS, got=repr(self.name),
            )  # fmt: skip
        if not 0.0 < self.fraction <= 1.0:
            raise UsageError(
                "the fraction of values that topk keeps is out of range",
                code=101,
                expected="a number in (0, 1], for example topk:0.01",
                got=repr(self.fraction),
            )

    @staticmethod
    def parse(text: str | Compression) -> Compression:
        """Parses "none", "f16", "bf16", "i8", "topk", "topk:0.01" or "1bit". Raises UsageError."""
        if isinstance(text, Compression):
            return text
        name, colon, number = text.partition(":")
        if not colon:
            return Compression(name)
        try:
            fraction = float(number)
        except ValueError:
            fraction = math.nan
        if name != "topk" or math.isnan(fraction):
            raise UsageError("unknown compression", code=101, expected=_FORMS, got=repr(text))
        return Compression(name, fraction)

    @staticmethod
    def of(encoding: int) -> Compression:
        """The compression that has this number in the protocol."""
        return Compression(list(_ENCODINGS)[encoding])

    @property
    def encoding(self) -> int:
        """Number of the encoding in the protocol and in linnet_sync.h (linnet_sync_compression)."""
        return _ENCODINGS[self.name]

    @staticmethod
    def of_values(text: str | Compression) -> Compression:
        """Parses the compression of pulled values: "none", "f16" or "bf16". Raises UsageError."""
        chosen = Compression.parse(text)
        if chosen.encoding > _ENCODINGS["bf16"]:
            raise UsageError(
                "values cannot be pulled with this compression", code=101, tensor="pull_compression",
                expected="none, f16 or bf16", got=repr(str(chosen)),
            )  # fmt: skip
        return chosen

    def bound(self, count: int) -> int:
        """The maximum encoded size of `count` values in bytes. Except for topk, it is the exact size."""
        return int(sync_library().linnet_sync_encoded_bound(self.encoding, self.fraction, count))

    def __str__(self) -> str:
        return f"{self.name}:{self.fraction:g}" if self.name == "topk" else self.name


def _floats(array: np.ndarray, what: str) -> Any:
    if array.dtype != np.float32 or not array.flags.c_contiguous:
        raise UsageError(
            f"`{what}` must be a contiguous array of float32", code=103, expected="float32, C order",
            got=f"{array.dtype}{'' if array.flags.c_contiguous else ', strided'}",
        )  # fmt: skip
    return ffi.cast("float *", ffi.from_buffer(array)) if array.size else NULL


def encode(values: np.ndarray, compression: str | Compression, residual: np.ndarray | None = None) -> bytes:
    """Encodes f32 values of any shape. `residual` (f32, the same shape) is added first and then holds what the encoding
    has lost. Pass it again with the next gradient (error feedback). Raises UsageError."""
    chosen = Compression.parse(compression)
    if residual is not None and residual.shape != values.shape:
        raise UsageError(
            "the residual must have the shape of the values",
            code=104,
            expected=str(values.shape),
            got=str(residual.shape),
        )
    if residual is not None and np.shares_memory(values, residual):
        raise UsageError("`values` and `residual` share memory", code=101, hint="use a separate array for the residual")
    pointer = NULL
    if residual is not None:
        pointer = _floats(residual, "residual")
        if not residual.flags.writeable:
            raise UsageError("`residual` must be writable", code=101, got="a read-only array")
    capacity = chosen.bound(values.size)
    out, used, record = bytearray(capacity), ffi.new("size_t *"), ffi.new("linnet_error *")
    status = sync_library().linnet_sync_encode(
        chosen.encoding, chosen.fraction, _floats(values, "values"), pointer, values.size,
        ffi.from_buffer(out, require_writable=True) if capacity else NULL, capacity, used, record,
    )  # fmt: skip
    if status:
        raise exception(record)
    return bytes(out[: used[0]])


def decode(
    data: bytes,
    shape: int | tuple[int, ...],
    compression: str | Compression,
    *,
    add_to: np.ndarray | None = None,
    weight: float = 1.0,
) -> np.ndarray:
    """Decodes a message to f32 values in `shape`. With `add_to` (f32, the same shape), adds `weight` times the values
    to it and returns it. Raises SyncError for invalid bytes; nothing is written in that case."""
    chosen = Compression.parse(compression)
    dims = (shape,) if isinstance(shape, int) else tuple(shape)
    out = np.empty(dims, np.float32) if add_to is None else add_to
    if out.shape != dims:
        raise UsageError("`add_to` has the wrong shape", code=104, expected=str(dims), got=str(out.shape))
    if not out.flags.writeable:
        raise UsageError("`add_to` must be writable", code=101, got="a read-only array")
    record = ffi.new("linnet_error *")
    status = sync_library().linnet_sync_decode(
        chosen.encoding, ffi.from_buffer(data) if data else NULL, len(data),
        NULL if add_to is None else ffi.new("float *", weight), _floats(out, "add_to"), out.size, record,
    )  # fmt: skip
    if status:
        raise exception(record)
    return out
