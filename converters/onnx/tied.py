"""Weights that a model reads as they are and transposed, such as a table of words that the last layer multiplies by: the product
reads the table itself, so that the file and the quantizer have one constant."""

from __future__ import annotations

from linnet.ir import traits
from linnet.ir.function import Function, Node, Tensor
from linnet.passes.kept_types import rewrites


@rewrites("copy")
def read_transposed(function: Function) -> bool:
    """matmul(x, transpose(table)) becomes a product by the transposed table, if something else reads the table too. Returns
    whether anything changed."""
    readers, outputs = function.consumers(), set(function.outputs)
    gone: set[Node] = set()
    for node in function.nodes:
        table = node.inputs[0] if node.op in traits.COPIES and node.attributes["kind"] == "transpose" else None
        if table is None or table.data is None or table.data.ndim != 2 or table.quantization is not None:
            continue
        y = node.outputs[0]
        uses = readers.get(y, [])
        others = any(reader.op not in traits.COPIES for reader in readers[table])
        turned = list(node.attribute("perm")) in ([], [1, 0])
        if not others or not turned or y in outputs or not uses or not all(_multiplies(n, y) for n in uses):
            continue
        for use in uses:
            use.attributes["transpose_b"] = not use.attributes.get("transpose_b", False)
            use.inputs = [table if t is y else t for t in use.inputs]
        gone.add(node)
    function.nodes = [node for node in function.nodes if node not in gone]
    return bool(gone)


def _multiplies(node: Node, w: Tensor) -> bool:
    """Whether a product of matrices has the tensor as its weights, and only there."""
    if node.op not in traits.MATRICES or w.function is not node.outputs[0].function:
        return False
    x = node.inputs[0]
    return (
        x is not None and (x.rank or 0) >= 2 and [t is w for t in node.inputs].count(True) == 1 and node.inputs[1] is w
    )
