"""Functions along an axis: rolling, cumulative sums and maxima, evenly spaced numbers, normalization over neighbours, and the
discrete Fourier transform as a product with a matrix. All have gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from linnet.builder import generated
from linnet.builder.generated import copy, gather, matmul, pool, shape
from linnet.builder.mapping import pointwise
from linnet.builder.shaping import concat, expand_dims, reshape, squeeze, transpose
from linnet.clib.arguments import at_least
from linnet.clib.errors import UsageError
from linnet.ir.dtypes import numpy_dtype
from linnet.ir.expr import positive_power
from linnet.ir.function import Function, Operators, Tensor

MOST_MATRIX = 1 << 24  # elements of the matrix of a Fourier transform


def _axis(x: Tensor, axis: int, parts: int = 0) -> int:
    """The axis, counted from the front. The last `parts` axes of the tensor are not axes of the signal."""
    rank = None if x.shape is None else len(x.shape) - parts
    if rank is None or not -rank <= axis < rank:
        raise UsageError(
            "the tensor does not have this axis", code=104, tensor=x.name, expected=f"rank above {axis}",
            got=f"shape {x.shape}",
        )  # fmt: skip
    return axis % rank


def _size(x: Tensor, axis: int) -> int:
    size = (x.shape or ())[axis]
    if not isinstance(size, int):
        raise UsageError(
            "the size of the axis is open", code=104, tensor=x.name, expected="a number", got=f"{size} at axis {axis}",
            hint="give the dimension a fixed size",
        )  # fmt: skip
    return size


def _like(x: Tensor, other: Tensor) -> Tensor:
    """Returns x in the shape of `other`, which has the same number of elements."""
    made = copy([x, shape(other)], kind="reshape")[0]
    made.shape = other.shape
    return made


def roll(
    x: Operators, shift: int | Sequence[int], axis: int | Sequence[int] | None = None, *, name: str = ""
) -> Tensor:
    """Moves elements along axes. Elements that leave at one end enter at the other end. Without an axis, the flat
    tensor is rolled (numpy.roll)."""
    tensor = x.tensor()
    if axis is None:
        if not isinstance(shift, int):
            raise UsageError(
                "roll without an axis takes one shift", code=101, got=str(shift), hint="give one axis for each shift"
            )
        return _like(roll(reshape(tensor, [-1]), shift, 0), tensor)
    axes = [axis] if isinstance(axis, int) else list(axis)
    shifts = [shift] * len(axes) if isinstance(shift, int) else list(shift)
    if len(axes) != len(shifts):
        raise UsageError("roll needs one shift per axis", code=101, expected=str(len(axes)), got=str(len(shifts)))
    made = tensor
    for a, s in zip(axes, shifts, strict=True):
        place = _axis(tensor, a)
        size = (tensor.shape or ())[place]
        if isinstance(size, int):
            ahead = s % size if size else 0
            if not ahead:
                continue
            parts = [_part(made, place, size - ahead, size), _part(made, place, 0, size - ahead)]
            made = concat(parts, place, name=name)
        else:
            count = shape(made, start=place, end=place + 1)
            rows = copy([made.function.constant(np.int64(0)), count], kind="expand")[0]
            rows = pointwise([rows, count], lambda r, n, s=s: (((r.iota(0) - s) % n) + n) % n, "i64")
            made = gather(made, rows, axis=place, name=name)
            made.shape = tensor.shape
    return made


def _part(x: Tensor, axis: int, start: int, end: int) -> Tensor:
    return copy([x], kind="slice", axis=[axis], starts=[start], ends=[end])[0]


def cumsum(
    x: Operators, axis: int | Operators = -1, *, exclusive: bool = False, reverse: bool = False, product: bool = False,
    name: str = "", function: Function | None = None,
) -> Tensor:  # fmt: skip
    """Running sums along an axis, which is a number or a scalar tensor of i32 or i64. exclusive: each sum leaves out
    the element itself. reverse: start from the end. product: running products instead of sums."""
    tensor = x.tensor()
    if not isinstance(axis, Operators):
        axis = tensor.function.constant(np.int64(_axis(tensor, axis)))
    return generated.cumsum(
        tensor, axis, exclusive=exclusive, reverse=reverse, product=product, name=name, function=function
    )


def cumulative_sum(
    x: Operators, axis: int = -1, *, exclusive: bool = False, reverse: bool = False, name: str = ""
) -> Tensor:
    """Running sums along an axis. exclusive: each sum leaves out the element itself. reverse: start from the end."""
    return cumsum(x, axis, exclusive=exclusive, reverse=reverse, name=name)


def cumulative_prod(
    x: Operators, axis: int = -1, *, exclusive: bool = False, reverse: bool = False, name: str = ""
) -> Tensor:
    """Running products along an axis. exclusive: each product leaves out the element itself. reverse: start from the
    end."""
    return cumsum(x, axis, exclusive=exclusive, reverse=reverse, product=True, name=name)


def cumulative_max(x: Operators, axis: int = -1, *, name: str = "") -> Tensor:
    """The running maximum along an axis. The size of this axis must be fixed."""
    return _extremes(x.tensor(), axis, True, name)


def cumulative_min(x: Operators, axis: int = -1, *, name: str = "") -> Tensor:
    """The running minimum along an axis. The size of this axis must be fixed."""
    return _extremes(x.tensor(), axis, False, name)


def _extremes(x: Tensor, axis: int, largest: bool, name: str) -> Tensor:
    """Running extremes in a few steps. In each step, every element is combined with an earlier one. The distance
    between the two doubles from step to step."""
    place, made = _axis(x, axis), x
    size, far = _size(x, place), 1
    while far < size:
        late, early = _part(made, place, far, size), _part(made, place, 0, size - far)
        joined = pointwise([late, early], lambda a, b: a.max(b) if largest else a.min(b))
        made = concat([_part(made, place, 0, far), joined], place, name=name if 2 * far >= size else "")
        far *= 2
    return made


def linspace(start: Operators | float, stop: Operators | float, count: int, *, name: str = "") -> Tensor:
    """`count` evenly spaced numbers from start to stop, along a new first axis. At least one of start and stop must be
    a tensor of floats. If both are numbers, use graph.constant(numpy.linspace(...)) instead."""
    ends = [end for end in (start, stop) if isinstance(end, Operators)]
    if not ends:
        raise UsageError(
            "linspace needs a tensor as start or stop", code=101, expected="a tensor", got=f"{start!r}, {stop!r}",
            hint="for numbers: graph.constant(numpy.linspace(...))",
        )  # fmt: skip
    if count < 1:
        raise UsageError("the count of linspace is out of range", code=101, expected="1 or more", got=str(count))
    like = ends[0].tensor()
    begin, end = (e.tensor() if isinstance(e, Operators) else like * 0 + float(e) for e in (start, stop))
    rank = max(len(begin.shape or ()), len(end.shape or ()))
    part = np.linspace(0, 1, count).astype(numpy_dtype(like.dtype)).reshape([count] + [1] * rank)
    made: Tensor = pointwise(
        [begin, end, like.function.constant(part)], lambda a, b, t: a * (1 - t) + b * t, like.dtype, name=name
    )
    return made


def lrn(
    x: Operators, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, *, name: str = ""
) -> Tensor:
    """Local response normalization over axis 1: x / (bias + alpha * mean of the squares of `size` channels) ^ beta."""
    tensor = x.tensor()
    at_least("size", size, 1)
    rank = _axis(tensor, -1) + 1
    squares = reshape(pointwise([tensor], lambda v: v * v), [0, 0, -1] if rank != 2 else [0, 0, 1])
    window = pool(
        expand_dims(squares, 1), kind="average", kernel=[size, 1], pads=[(size - 1) // 2, 0, size // 2, 0],
        count_include_pad=True,
    )[0]  # fmt: skip
    means = _like(window, tensor)
    made: Tensor = pointwise([tensor, means], lambda v, s: v / positive_power(s * alpha + bias, beta), name=name)
    return made


def _transform(x: Tensor, axis: int, matrix: np.ndarray, results: int, name: str) -> Tensor:
    """Multiplies x by a matrix [parts * n, results * bins], along `axis` and the last axis, which has the parts."""
    rank = len(x.shape or ())
    outer = [i for i in range(rank - 1) if i != axis]
    order = [*outer, rank - 1, axis]
    rows = transpose(x, order)
    sizes = shape(rows, end=rank - 2)
    count = rows.function.constant(np.array([matrix.shape[0]], np.int64))
    flat = copy([rows, concat([sizes, count], 0)], kind="reshape", allow_zero=True)[0]
    flat.shape = (*(rows.shape or ())[: rank - 2], matrix.shape[0])
    made = matmul(flat, x.function.constant(matrix.astype(numpy_dtype(x.dtype))))
    bins = matrix.shape[1] // results
    parts = rows.function.constant(np.array([results, bins], np.int64))
    made = copy([made, concat([sizes, parts], 0)], kind="reshape", allow_zero=True)[0]
    made.shape = (*(rows.shape or ())[: rank - 2], results, bins)
    return transpose(made, [order.index(i) for i in range(rank)], name=name)


def _roots(x: Tensor, rows: int, columns: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    if 4 * rows * columns > MOST_MATRIX:
        raise UsageError(
            "the Fourier transform is too long", code=306, tensor=x.name,
            expected=f"a matrix of at most {MOST_MATRIX} numbers", got=f"{length} samples",
            hint="transform shorter windows",
        )  # fmt: skip
    angle = 2 * np.pi * (np.outer(np.arange(rows), np.arange(columns)) % length) / length
    return np.cos(angle), np.sin(angle)


def _complex(x: Tensor) -> Tensor:
    if not x.shape or x.shape[-1] != 2:
        raise UsageError(
            "the last axis does not hold a real and an imaginary part", code=104, tensor=x.name,
            expected="a last dimension of 2", got=f"shape {x.shape}",
        )  # fmt: skip
    return x


def fft(x: Operators, axis: int = -1, *, name: str = "") -> Tensor:
    """The discrete Fourier transform of complex signals [..., n, 2]; the last axis has the real and the imaginary part.
    axis: one of the other axes; its size must be fixed. The transform is a product with a matrix, so at most 2,048
    samples are possible."""
    tensor = _complex(x.tensor())
    place = _axis(tensor, axis, 1)
    n = _size(tensor, place)
    cos, sin = _roots(tensor, n, n, n)
    return _transform(tensor, place, np.block([[cos, -sin], [sin, cos]]), 2, name)


def ifft(x: Operators, axis: int = -1, *, name: str = "") -> Tensor:
    """The inverse of `fft`, with the factor 1 / n."""
    tensor = _complex(x.tensor())
    place = _axis(tensor, axis, 1)
    n = _size(tensor, place)
    cos, sin = _roots(tensor, n, n, n)
    return _transform(tensor, place, np.block([[cos, sin], [-sin, cos]]) / n, 2, name)


def rfft(x: Operators, axis: int = -1, *, name: str = "") -> Tensor:
    """The discrete Fourier transform of real signals [..., n, ...]: the bins 0 to n / 2. A new last axis has the real
    and the imaginary part."""
    tensor = x.tensor()
    place = _axis(tensor, axis)
    n = _size(tensor, place)
    cos, sin = _roots(tensor, n, n // 2 + 1, n)
    whole = expand_dims(tensor, len(tensor.shape or ()))
    return _transform(whole, place, np.concatenate([cos, -sin], 1), 2, name)


def irfft(x: Operators, axis: int = -1, *, length: int | None = None, name: str = "") -> Tensor:
    """The inverse of `rfft`: real signals from the bins 0 to n / 2 [..., bins, 2]. length: n; default 2 * (bins - 1)."""
    tensor = _complex(x.tensor())
    place = _axis(tensor, axis, 1)
    bins = _size(tensor, place)
    n = 2 * (bins - 1) if length is None else length
    used = min(bins, n // 2 + 1)
    if used < 1 or n < 1:
        raise UsageError(
            "irfft has no samples to compute", code=101, tensor=tensor.name, expected="a length above 0", got=str(n)
        )
    cos, sin = _roots(tensor, used, n, n)
    twice = np.full((used, 1), 2.0)  # the bins that are left out are the conjugates of others
    twice[0] = 1
    if n % 2 == 0 and used == n // 2 + 1:
        twice[-1] = 1
    matrix = np.concatenate([cos * twice, -sin * twice]) / n
    made = _transform(_part(tensor, place, 0, used), place, matrix, 1, "")
    return squeeze(made, len(tensor.shape or ()) - 1, name=name)
