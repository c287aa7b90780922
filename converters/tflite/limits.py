"""The least values of options and of constant operands that are sizes, steps or counts. All operators are checked before
their rules run, so that no rule divides by a size of 0 or makes a tensor of a negative size."""

from __future__ import annotations

from linnet.converters.problems import Unsupported, refuse_below
from linnet.converters.tflite.operation import Operation
from linnet.converters.tflite.schema import OPTIONS

_OPTIONS = {
    "block": 1, "dilation_d": 1, "dilation_h": 1, "dilation_w": 1, "filter_h": 1, "filter_w": 1, "radius": 0, "rank": 1,
    "stride_d": 1, "stride_h": 1, "stride_w": 1,
}  # fmt: skip
# By op: its operands that are sizes, steps or counts. number: (name, least value)
_OPERANDS: dict[str, dict[int, tuple[str, int]]] = {
    "BATCH_TO_SPACE_ND": {1: ("block_shape", 1)},
    "BROADCAST_TO": {1: ("shape", 0)},
    "CONV_3D_TRANSPOSE": {0: ("output_shape", 1)},
    "FILL": {0: ("dims", 0)},
    "MULTINOMIAL": {1: ("num_samples", 0)},
    "NON_MAX_SUPPRESSION_V4": {2: ("max_output_size", 0)},
    "NON_MAX_SUPPRESSION_V5": {2: ("max_output_size", 0)},
    "ONE_HOT": {1: ("depth", 0)},
    "RANDOM_STANDARD_NORMAL": {0: ("shape", 0)},
    "RANDOM_UNIFORM": {0: ("shape", 0)},
    "RESIZE_BILINEAR": {1: ("size", 1)},
    "RESIZE_NEAREST_NEIGHBOR": {1: ("size", 1)},
    "RFFT2D": {1: ("fft_length", 1)},
    "SCATTER_ND": {2: ("shape", 0)},
    "SPACE_TO_BATCH_ND": {1: ("block_shape", 1)},
    "SPARSE_TO_DENSE": {1: ("output_shape", 0)},
    "SPLIT_V": {1: ("size_splits", -1)},
    "TILE": {1: ("multiples", 0)},
    "TOPK_V2": {1: ("k", 0)},
    "TRANSPOSE_CONV": {0: ("output_shape", 1)},
    **{f"UNSORTED_SEGMENT_{name}": {2: ("num_segments", 0)} for name in ("MAX", "MIN", "PROD", "SUM")},
}
_NOT_ZERO = {"RANGE": {2: "delta"}, "STRIDED_SLICE": {3: "strides"}}


def check(op: Operation) -> None:
    """Raises Unsupported if an option or a constant operand of an operator is out of range."""
    kind = op.spec.op
    for name in OPTIONS.get(kind, {}):
        if name in _OPTIONS:
            refuse_below(f"option {name!r}", [op.option(name)], _OPTIONS[name])
    if kind in ("SPLIT", "SPLIT_V") and (count := op.option("count")) not in (0, len(op.outputs)):
        raise Unsupported(
            f"num_splits is {count}, but there are {len(op.outputs)} outputs", "the model is damaged: export it again"
        )
    for index, (name, least) in _OPERANDS.get(kind, {}).items():
        refuse_below(f"input {index} ({name})", _numbers(op, index), least)
    for index, name in _NOT_ZERO.get(kind, {}).items():
        if 0 in _numbers(op, index):
            raise Unsupported(f"input {index} ({name}) is 0, and must not be", "the model is damaged: export it again")


def _numbers(op: Operation, index: int) -> list[float]:
    """The numbers of a constant operand; none if it is absent or not a constant."""
    tensor = op.optional(index)
    return [] if tensor is None or tensor.data is None else [float(v) for v in tensor.data.reshape(-1)]
