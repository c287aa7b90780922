"""Functions that build graphs: one per runtime op (generated), and on top of these NumPy's pointwise functions
(elementwise.py), data movement and reductions (shaping.py), orders and groups (ordering.py), functions along an axis
(series.py), linear algebra and einsum. Each appends nodes to the function of its operands and infers their shapes at once."""

from __future__ import annotations

from linnet.builder import generated
from linnet.builder.einsum import einsum
from linnet.builder.elementwise import (
    absolute,
    add,
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan,
    arctan2,
    arctanh,
    ceil,
    clip,
    cos,
    cosh,
    divide,
    elu,
    equal,
    erf,
    exp,
    expm1,
    floor,
    gelu,
    greater,
    greater_equal,
    hard_sigmoid,
    hard_swish,
    isfinite,
    isinf,
    isnan,
    leaky_relu,
    less,
    less_equal,
    log,
    log1p,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    mish,
    mod,
    multiply,
    negative,
    not_equal,
    power,
    reciprocal,
    relu,
    relu6,
    rint,
    rsqrt,
    scale,
    selu,
    sigmoid,
    sign,
    silu,
    sin,
    sinh,
    softplus,
    softsign,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    trunc,
    where,
)
from linnet.builder.generated import *  # noqa: F403
from linnet.builder.linear_algebra import cholesky, eigh, inverse, qr, solve, svd
from linnet.builder.ordering import (
    argsort,
    bincount,
    embedding_bag,
    searchsorted,
    segment_max,
    segment_mean,
    segment_min,
    segment_sum,
    sort,
    unique,
)
from linnet.builder.series import (
    cumsum,
    cumulative_max,
    cumulative_min,
    cumulative_prod,
    cumulative_sum,
    fft,
    ifft,
    irfft,
    linspace,
    lrn,
    rfft,
    roll,
)
from linnet.builder.shaping import (
    argmax,
    argmin,
    broadcast_to,
    concat,
    expand_dims,
    flatten,
    flip,
    logsumexp,
    matrix_transpose,
    max,
    mean,
    min,
    one_hot,
    pad,
    prod,
    reshape,
    split,
    squeeze,
    stack,
    sum,
    tile,
    transpose,
)
from linnet.ir.dtypes import DTypeLike, Quantization
from linnet.ir.function import Tensor, emit


def quantized(x: Tensor, dtype: DTypeLike, quantization: Quantization, *, name: str = "") -> Tensor:
    """Quantizes x to integers of `dtype` with the given scale and zero point."""
    return emit("quantize", [x], {"dtype": dtype}, name=name, quantization=[quantization])[0]


__all__ = [
    "absolute", "add", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin",
    "argsort", "bincount", "broadcast_to", "ceil", "cholesky", "clip", "concat", "cos", "cosh", "cumsum",
    "cumulative_max", "cumulative_min", "cumulative_prod", "cumulative_sum", "divide", "eigh", "einsum", "elu",
    "embedding_bag", "equal", "erf", "exp", "expand_dims", "expm1", "fft", "flatten", "flip", "floor", "gelu",
    "greater", "greater_equal", "hard_sigmoid", "hard_swish", "ifft", "inverse", "irfft", "isfinite", "isinf",
    "isnan", "leaky_relu", "less", "less_equal", "linspace", "log", "log1p", "logical_and", "logical_not",
    "logical_or", "logical_xor", "logsumexp", "lrn", "matrix_transpose", "max", "maximum", "mean", "min", "minimum",
    "mish", "mod", "multiply", "negative", "not_equal", "one_hot", "pad", "power", "prod", "qr", "quantized",
    "reciprocal", "relu", "relu6", "reshape", "rfft", "rint", "roll", "rsqrt", "scale", "searchsorted", "segment_max",
    "segment_mean", "segment_min", "segment_sum", "selu", "sigmoid", "sign", "silu", "sin", "sinh", "softplus",
    "softsign", "solve", "sort", "split", "sqrt", "square", "squeeze", "stack", "subtract", "sum", "svd", "tan",
    "tanh", "tile", "transpose", "trunc", "unique", "where",
]  # fmt: skip
__all__ += [name for name in generated.__all__ if name not in __all__]
