"""Constants of 4 and 8 bits with a scale per block, in the form of linnet's tensors. They are operands of products and
lookups."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from linnet.ir import traits
from linnet.ir.dtypes import Quantization, blocks_of
from linnet.ir.function import Function, Node, Tensor
from linnet.passes.kept_types import rewrites

Array = npt.NDArray[Any]


def narrow(
    stored: Array, scale: Array, zero: Array | None, bits: int, axis: int, block: int
) -> tuple[Array, Quantization] | None:
    """(stored - zero) * scale as a constant of `bits` bits and its quantization, with the same real values. None if
    linnet cannot represent these values.

    stored: integers of `bits` bits, signed if their dtype is; zero has the same type. scale and zero have one entry per block.
    The scales of linnet are positive. So a block with a negative scale is mirrored, and a block with scale 0 becomes
    all zeros."""
    grid = blocks_of(stored.shape, axis, block)
    if bits not in (4, 8) or scale.size != np.prod(grid) or not np.isfinite(scale).all():
        return None
    signed = stored.dtype.kind == "i"
    codes, scales = stored.astype(np.int32), scale.astype(np.float32).reshape(grid)
    zeros = np.zeros(grid, np.int32) if zero is None else zero.astype(np.int32).reshape(grid)
    ends = (1 << bits) - 1 if not signed else -1  # the sum of a number and its mirror image
    spread = [np.repeat(a, block, axis).take(range(stored.shape[axis]), axis) for a in (scales, zeros)]
    codes = np.where(spread[0] < 0, ends - codes, np.where(spread[0] == 0, spread[1], codes))
    zeros = np.where(scales < 0, ends - zeros, zeros)
    scales = np.where(scales == 0, np.float32(1), np.abs(scales))
    middle = 1 << (bits - 1)
    if not signed and (zeros == middle).all():  # symmetric: signed numbers need no zero points
        codes, zeros, signed = codes - middle, np.zeros_like(zeros), True
    kinds: dict[tuple[int, bool], Any] = {
        (4, True): ml_dtypes.int4, (4, False): ml_dtypes.uint4, (8, True): np.int8, (8, False): np.uint8,
    }  # fmt: skip
    return codes.astype(np.int8 if signed else np.uint8).astype(kinds[bits, signed]), Quantization(
        scales, zeros, axis, bits, block
    )


@rewrites("dequantize")
def keep_blocks_narrow(function: Function) -> None:
    """Keeps a matrix with a scale per block narrow if only products and lookups read it, transposed or not. It becomes
    a narrow constant that these ops read. As floats, it would take four to eight times the memory."""
    readers, outputs = function.consumers(), set(function.outputs)
    gone: set[Node] = set()
    for node in function.nodes:
        found = _blocks(node)
        if found is None or not _readable(node.outputs[0], readers, outputs):
            continue
        w = function.constant(found[0], node.outputs[0].name, quantization=found[1])
        gone.add(node)
        _replace(node.outputs[0], w, readers, gone)
    if gone:
        function.nodes = [node for node in function.nodes if node not in gone]


def _blocks(node: Node) -> tuple[Array, Quantization] | None:
    """The narrow constant that a dequantize node widens. It has 4 or 8 bits, depending on its values."""
    if node.op != "dequantize" or not node.attribute("block") or node.outputs[0].dtype != "f32":
        return None
    x, scale, zero = (*node.inputs, None)[:3]
    if x is None or x.data is None or x.data.ndim != 2 or x.dtype not in ("i8", "u8") or not x.data.size:
        return None
    if scale is None or scale.data is None or scale.dtype != "f32" or (zero is not None and zero.data is None):
        return None
    data, signed, zeros = x.data, x.dtype == "i8", None if zero is None else zero.data

    def fits(bits: int) -> bool:
        low, high = (-1 << (bits - 1), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        return all(a is None or (low <= a.min() and a.max() <= high) for a in (data, zeros))

    if fits(2) and data.size >= 1024:
        return None  # narrower in the file as two bits (passes that pack constants), and widened by planning
    axis, block = int(node.attribute("axis")) % 2, int(node.attribute("block"))
    return narrow(data, scale.data, zeros, 4 if fits(4) else 8, axis, block)


def _readable(tensor: Tensor, readers: dict[Tensor, list[Node]], outputs: set[Tensor]) -> bool:
    """Whether every reader can read the tensor as a narrow constant."""
    return (
        tensor not in outputs
        and bool(readers.get(tensor))
        and all(
            _readable(node.outputs[0], readers, outputs) if _turns(node) else _reads(node, tensor)
            for node in readers[tensor]
        )
    )


def _turns(node: Node) -> bool:
    return node.op == "copy" and node.attributes["kind"] == "transpose"


def _reads(node: Node, tensor: Tensor) -> bool:
    """Whether the node is a product with the matrix or looks up rows of it, and returns f32."""
    if tensor.function is not node.outputs[0].function or node.outputs[0].dtype != "f32":
        return False
    if node.op in traits.MATRICES:
        x = node.inputs[0]
        return x is not None and x is not tensor and x.dtype == "f32" and tensor not in node.inputs[2:]
    return node.op in traits.LOOKS_UP and node.attributes.get("kind") == "take" and node.inputs[0] is tensor


def _replace(old: Tensor, w: Tensor, readers: dict[Tensor, list[Node]], gone: set[Node]) -> None:
    """Makes the readers of `old` read w, and the readers of its transpose read w transposed. Adds nodes that are no
    longer needed to `gone`."""
    for node in readers[old]:
        if _turns(node):
            gone.add(node)
            turned, q = w, w.quantization
            assert w.data is not None and q is not None and q.axis is not None
            if list(node.attribute("perm")) != [0, 1]:
                moved = Quantization(q.scale.T.copy(), q.zero.T.copy(), 1 - q.axis, q.bits, q.block)
                turned = w.function.constant(w.data.T.copy(), node.outputs[0].name, quantization=moved)
            _replace(node.outputs[0], turned, readers, gone)
            continue
        node.inputs = [w if t is old else t for t in node.inputs]
        if node.op in traits.LOOKS_UP:
            node.attributes["dtype"] = "f32"
