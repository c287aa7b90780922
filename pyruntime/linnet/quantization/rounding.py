"""Rounding of constant weights to integers: to nearest, or so that the errors in a row cancel on the calibration data
(optimal brain quantization: Frantar et al. 2022, GPTQ). The mean error that remains in each output is added to the bias."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from linnet.ir.dtypes import Quantization
from linnet.ir.function import Node
from linnet.quantization.equalize import columns, scaled
from linnet.quantization.rows import Rows, as_rows, from_rows
from linnet.quantization.scheme import weight_parameters, weight_scales

_DAMPING = 0.01  # of the mean of the diagonal, so that second moments of few rows can be inverted
_BLOCK = 64
_BIAS_BITS = 37  # of the bias of 16-bit weights: 8 more than a sum of 32 bits has, without the sign and a reserve
_FEWEST = 2.0  # rows per column, below which second moments say too little
Floats = npt.NDArray[np.float64]
Scales = Mapping[tuple[str, int | None], npt.NDArray[np.float32]]


@dataclasses.dataclass(frozen=True)
class Rounded:
    """Integer weights and their parameters. missing: by how much each output is too small on average (f64 [outputs],
    None if unknown). noise: the mean squared error of the outputs divided by their mean square (None if unknown)."""

    values: npt.NDArray[np.signedinteger]
    parameters: Quantization
    missing: Floats | None
    noise: float | None


class Rounding:
    """Rounds the weights of products. Each result is kept and used again for later graphs, which have other ranges but
    the same weights. scales: those that were trained, by the weights' name and axis; such weights are rounded to nearest."""

    def __init__(self, rows: Mapping[Node, Rows], scales: Scales | None = None) -> None:
        self.rows, self.scales = rows, scales or {}
        self.made: dict[tuple[Node, bytes, int, bool], Rounded] = {}

    def __call__(
        self,
        node: Node,
        axis: int | None,
        least: npt.NDArray[np.float64] | float,
        bits: int,
        careful: bool,
        by: Mapping[str, Floats] | None = None,
    ) -> Rounded:
        """The rounded weights of the node. by: factors of its channels (linnet.quantization.equalize)."""
        w = node.inputs[1]
        assert w is not None and w.data is not None
        if (trained := self.scales.get((w.name, axis))) is not None:
            return Rounded(*weight_parameters(w.data, axis, least, bits, trained), None, None)
        weights = scaled(node, w.data, by).astype(np.float32) if by else w.data
        if bits == 16:
            least = np.maximum(least, _narrow_scales(weights, axis, least))
        # The smallest scales matter only where they are larger than those of the weights.
        smallest = np.maximum(least, weight_scales(weights, axis, bits)) if np.any(least) else np.zeros(1)
        factors = b"".join(name.encode() + by[name].tobytes() for name in sorted(by)) if by else b""
        key = (node, smallest.astype(np.float32).tobytes() + factors, bits, careful)
        if key not in self.made:
            rows = self.rows.get(node)
            if rows is not None and by and "read" in by:
                rows = rows.over(columns(node, by["read"]))
            self.made[key] = rounded(node, weights, axis, least, bits, rows, careful)
        return self.made[key]

    def rows_of(self, node: Node, known: int) -> tuple[npt.NDArray[np.signedinteger], npt.NDArray[np.float32]]:
        """Weights [groups, rows, columns] as i8, and a scale for each row. The errors of the first `known` rows of each group
        cancel on the calibration data, if that is sufficient."""
        w, rows, key = node.inputs[1], self.rows.get(node), (node, b"", 8, known > 0)
        assert w is not None and w.data is not None
        if key not in self.made:
            groups, count, columns = w.data.shape
            flat, parameters = weight_parameters(w.data.reshape(groups * count, columns), 0)
            stored, scale = flat.reshape(w.data.shape), parameters.scale.reshape(groups, count, 1)
            enough = rows is not None and (rows.count >= _FEWEST * columns or columns <= 32)
            if rows is not None and rows.second is not None and enough and known:
                real, each = w.data.astype(np.float64), np.broadcast_to(scale.astype(np.float64), w.data.shape)
                other = stored.copy()
                other[:, :known] = _cancelling(real[:, :known], each[:, :known], rows.second, 127.0)
                if _noise(real - other * each, real, rows.second) < _noise(real - stored * each, real, rows.second):
                    stored = other
            self.made[key] = Rounded(stored, parameters, None, None)
        made = self.made[key]
        return made.values, made.parameters.scale.reshape(w.data.shape[:2])


def rounded(
    node: Node,
    w: npt.NDArray[np.float32],
    axis: int | None,
    least: npt.NDArray[np.float64] | float,
    bits: int,
    rows: Rows | None,
    careful: bool = True,
) -> Rounded:
    """Rounds the weights of a product. rows: statistics of what the product reads. careful: let errors cancel if the
    rows are sufficient for this."""
    values, parameters = weight_parameters(w, axis, least, bits)
    if rows is None or rows.mean is None:
        return Rounded(values, parameters, None, None)
    real = as_rows(node, np.asarray(w, np.float64))
    scale = _scales(node, w, axis, parameters)
    stored = as_rows(node, values).astype(np.float64)
    noise = None
    if rows.second is not None:
        noise = _noise(real - stored * scale, real, rows.second)
        enough = rows.count >= _FEWEST * real.shape[2] or real.shape[2] <= 32
        if careful and bits <= 8 and enough and noise > 0:
            limit = float((1 << (bits - 1)) - 1)
            other = _cancelling(real, scale, rows.second, limit)
            better = _noise(real - other * scale, real, rows.second)
            if better < noise:
                stored, noise = other, better
                values = from_rows(node, stored, w.shape).astype(values.dtype)
    missing = ((real - stored * scale) @ rows.mean[:, :, None])[..., 0].reshape(-1)
    return Rounded(values, parameters, missing, noise)


def least_scales(bias: Floats | None, bits: int, x_scale: float, channels: int) -> Floats | float:
    """The least scales of weights (f64 [channels], or one for all) with which the bias fits into sums of 32 bits, two of them
    for 16-bit weights. One channel of tiny weights whose bias did not fit would make the sums of the whole layer wider."""
    if bias is None or not bias.size:
        return 0.0
    sizes = np.abs(bias).reshape(-1) / (2.0 ** (30 if bits <= 8 else _BIAS_BITS) * x_scale)
    return sizes if sizes.size == channels else float(sizes.max())


def _narrow_scales(w: npt.NDArray[np.float32], axis: int | None, least: Floats | float) -> Floats | float:
    """The least scales of 16-bit weights with which sums of 32 bits hold all products with 16-bit activations and the bias, so
    that kernels need no sums of 64 bits. 0 if the weights would lose more than one bit. least: what `least_scales` returned."""
    if axis is None or not w.size:
        return 0.0
    magnitudes = np.abs(w.astype(np.float64)).sum(axis=tuple(i for i in range(w.ndim) if i != axis))
    rounding = 2.0**14 * w.size / len(magnitudes) + 2  # each weight is rounded by up to a half, and so is the bias
    narrow = (magnitudes * 2.0**15 + np.multiply(least, 2.0**_BIAS_BITS)) / (2.0**31 - rounding) * (1 + 1e-6)
    usual = weight_scales(w, axis, 16).reshape(-1)
    enough = rounding < 2.0**30 and bool((narrow <= 2 * usual)[usual > 0].all())
    return narrow if enough else 0.0


def _scales(node: Node, w: npt.NDArray[np.float32], axis: int | None, parameters: Quantization) -> Floats:
    """The scale of each weight, in the layout that `as_rows` returns."""
    shape = [1] * w.ndim
    if axis is not None:
        shape[axis] = -1
    return as_rows(node, np.broadcast_to(parameters.scale.astype(np.float64).reshape(shape), w.shape))


def _noise(difference: Floats, real: Floats, second: Floats) -> float:
    """The power of the outputs' errors divided by the power of the outputs."""
    error = float(np.einsum("gok,gok->", difference @ second, difference))
    power = float(np.einsum("gok,gok->", real @ second, real))
    return max(error, 0.0) / power if power > 0 else 0.0


def _cancelling(real: Floats, scale: Floats, second: Floats, limit: float) -> Floats:
    """Rounds column by column, beginning with the columns whose inputs are largest, and passes each error on to the
    remaining columns."""
    columns = real.shape[2]
    diagonal = np.einsum("gkk->gk", second)
    order = np.argsort(-diagonal, axis=1, kind="stable")
    damping = np.maximum(_DAMPING * diagonal.mean(axis=1), 1e-12)
    w = np.take_along_axis(real, order[:, None, :], axis=2)
    s = np.take_along_axis(scale, order[:, None, :], axis=2)
    h = np.take_along_axis(np.take_along_axis(second, order[:, :, None], axis=1), order[:, None, :], axis=2)
    h = h + damping[:, None, None] * np.eye(columns)
    # The upper Cholesky factor of the inverse: its rows say how an error is passed on.
    factor = np.linalg.cholesky(np.linalg.inv(h)).transpose(0, 2, 1)
    made = np.empty_like(w)
    for start in range(0, columns, _BLOCK):
        end = min(start + _BLOCK, columns)
        errors = np.empty((*w.shape[:2], end - start))
        for j in range(start, end):
            q = np.clip(np.rint(w[:, :, j] / s[:, :, j]), -limit, limit)
            made[:, :, j] = q
            error = (w[:, :, j] - q * s[:, :, j]) / factor[:, j, j][:, None]
            errors[:, :, j - start] = error
            w[:, :, j + 1 : end] -= error[:, :, None] * factor[:, None, j, j + 1 : end]
        w[:, :, end:] -= errors @ factor[:, start:end, end:]
    back = np.argsort(order, axis=1)
    return np.take_along_axis(made, back[:, None, :], axis=2)
