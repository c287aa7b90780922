"""Makes sparse constants of TFLite dense, from traversal order, block map, and dense or compressed (CSR) storage per dimension.
The comments of the public TFLite schema describe the format (SparsityParameters, DimensionMetadata)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from linnet.converters.tflite.problems import Unsupported

if TYPE_CHECKING:
    from linnet.converters.tflite.schema import Reader

MOST_PLACES = 1 << 22  # limit of positions per level; the number of values may raise it
_INDEX_TYPES: dict[int, Any] = {1: np.int32, 2: np.uint16, 3: np.uint8}


def densify(values: npt.NDArray[Any], shape: tuple[int, ...], sparsity: Reader, name: str) -> npt.NDArray[Any]:
    """Returns the dense array of `shape`. Raises Unsupported if the description does not fit."""
    damaged = Unsupported(f"the sparse constant {name!r} is damaged", "export the constant again, or export it dense")
    order, blocks = sparsity.ints(0) or [], sparsity.ints(1) or []
    levels = sparsity.children(2)
    rank = len(shape)
    if sorted(order) != list(range(rank + len(blocks))) or len(levels) != len(order):
        raise damaged
    # coordinates (in traversal order) of every stored position of the levels so far
    coordinates = np.zeros((1, 0), np.int64)
    sizes = [0] * len(order)
    for level, (dimension, table) in enumerate(zip(order, levels, strict=True)):
        if table.scalar(0, "i8") == 0:
            size = table.scalar(1, "i32")
            if size < 0 or size * len(coordinates) > min(max(values.size, 1) * 4096, max(values.size, MOST_PLACES)):
                raise damaged
            sizes[dimension] = size
            fresh = np.tile(np.arange(size), len(coordinates))
            parents = np.repeat(np.arange(len(coordinates)), size)
        else:
            segments, indices = _vector(table, 2, 3), _vector(table, 4, 5)
            if segments is None or indices is None or len(segments) != len(coordinates) + 1:
                raise damaged
            counts = np.diff(segments)
            if segments[0] != 0 or np.any(counts < 0) or segments[-1] != len(indices) or np.any(indices < 0):
                raise damaged
            sizes[dimension] = -1
            fresh, parents = indices, np.repeat(np.arange(len(coordinates)), counts)
        coordinates = np.concatenate([coordinates[parents], fresh[:, None]], 1)
        assert coordinates.shape[1] == level + 1
    if len(coordinates) != values.size:
        raise damaged
    place: dict[int, npt.NDArray[Any]] = {d: coordinates[:, i] for i, d in enumerate(order)}
    index = []
    for dimension in range(rank):
        at = place[dimension]
        if dimension in (block_map := sparsity.ints(1) or []):
            inner = rank + block_map.index(dimension)
            if sizes[inner] <= 0:
                raise damaged
            at = at * sizes[inner] + place[inner]
        if at.size and at.max() >= shape[dimension]:
            raise damaged
        index.append(at)
    dense = np.zeros(shape, values.dtype)
    dense[tuple(index)] = values
    return dense


def _vector(table: Reader, type_field: int, field: int) -> npt.NDArray[np.int64] | None:
    """Reads a SparseIndexVector union, whose member is a table with one vector."""
    kind, child = table.scalar(type_field, "u8"), table.child(field)
    if child is None or kind not in _INDEX_TYPES:
        return None
    value = child.array(0, _INDEX_TYPES[kind])
    return None if value is None else value.astype(np.int64)
