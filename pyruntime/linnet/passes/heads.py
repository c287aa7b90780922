"""Replaces the last layer of a classifier: `replace_head`.
The layers before it compute the features and keep their weights. These weights stay constant, or are also trained if
`trainable` has turned them into variables."""

from __future__ import annotations

from linnet import init
from linnet.builder.mapping import pointwise
from linnet.clib.errors import GraphError, UsageError
from linnet.ir import traits
from linnet.ir.function import Function, Node, Tensor, emit
from linnet.ir.graph import Graph
from linnet.passes.weights import declare, to_main

_BEHIND = traits.having("tail")


def replace_head(
    graph: Graph, classes: int, output: str = "", scope: str = "head", standardize: bool = False
) -> Tensor:
    """Gives a classifier a new last layer for `classes` classes, in place, and returns its logits [batch, classes].

    The old head begins with the last matmul or 1x1 conv before the output that has weights of its own. It includes
    everything after this layer (for example a softmax). `output` selects the output if there are several. The new head
    is dense, with variables `head/weight` (Glorot) and `head/bias` (zeros). The signature "infer" then has the outputs
    "logits" and "probabilities" only, and the head's input is the tensor `features` of `graph.main`. standardize: the
    head first subtracts `head/mean` and multiplies by `head/scale`, which are variables that no optimizer trains (zeros
    and ones until they are set). Raises UsageError for a bad argument. Raises GraphError if no such layer is found.
    """
    if classes < 2:
        raise UsageError("a classifier needs at least two classes", code=101, expected="2 or more", got=str(classes))
    if graph.main.nodes or "infer" not in graph.signatures:
        if "infer" not in graph.signatures or not graph.main.outputs:
            raise UsageError(
                "replace_head needs an imported graph", code=105, expected="a graph with the signature 'infer', as "
                                                                           "converters produce",
                hint="in a graph of your own, use linnet.nn.dense(features, classes)",
            )  # fmt: skip
        names, results = graph.signatures["infer"].inputs, graph.signatures["infer"].outputs
    else:
        names, results = to_main(graph)
    function = graph.main
    if output and output not in results:
        raise UsageError(
            f"the graph has no output named '{output}'", code=102, tensor=output, expected=" or ".join(results)
        )
    layer = _last_layer(function, function.outputs[results.index(output) if output else 0])
    features = _vectors(layer)
    if not isinstance(features.shape[-1] if features.shape else None, int):
        raise GraphError(
            "the size of the head's input is not fixed", code=304, tensor=features.name, got=str(features.shape)
        )
    if features.quantization is not None:
        features = pointwise([features], lambda v: v, "f32", dequantize=True)
    function._names.discard(features.name)
    features.name = function.unique("features")
    width = int(features.shape[-1])  # type: ignore[index, arg-type]
    with graph.scope(scope):
        graph.variable("weight", init.glorot((width, classes), dtype=features.dtype))
        graph.variable("bias", init.zeros(classes, dtype=features.dtype))
        if standardize:
            graph.variable("mean", init.zeros(width, dtype=features.dtype), trainable=False)
            graph.variable("scale", init.constant(width, 1.0, dtype=features.dtype), trainable=False)
    logits = apply_head(features, scope, "logits")
    probabilities = emit("softmax", [logits], {"axis": -1}, name="probabilities")[0]
    function.outputs = [logits, probabilities]
    _keep_needed(function)
    declare(graph, names, ["logits", "probabilities"])
    return logits


def apply_head(features: Tensor, scope: str = "head", name: str = "") -> Tensor:
    """Applies the head made by `replace_head` to other features [n, width] and returns its logits."""
    variables = features.function.graph.variables
    if f"{scope}/mean" in variables:
        mean, scale = (variables[f"{scope}/{n}"].tensor(features) for n in ("mean", "scale"))
        features = pointwise([features, mean, scale], lambda v, m, s: (v - m) * s, features.dtype)
    weight, bias = (variables[f"{scope}/{n}"].tensor(features) for n in ("weight", "bias"))
    return emit("matmul", [features, weight, bias], {}, name=name)[0]


def _last_layer(function: Function, output: Tensor) -> Node:
    """The layer from which only pointwise steps lead to the output."""
    tensor = output
    while tensor.node is not None:
        node = tensor.node
        if (node.op in traits.MATRICES or node.op == "conv") and (weights := _weights(node)) is not None:
            if node.op == "conv" and not _is_pointwise(node, weights):
                break
            return node
        moving = [t for t in node.inputs if t is not None and t.data is None and t.variable is None]
        # follow a single path back; attention or a branch is not a head
        if (
            node.op not in _BEHIND
            or not moving
            or (node.op == "reduce" and node.attribute("kind") not in ("mean", "max"))
        ):
            break
        tensor = moving[0]
    where = tensor.node.name or tensor.node.op if tensor.node is not None else tensor.name
    raise GraphError(
        f"no last layer found before output '{output.name}'", code=302, op=where, tensor=output.name,
        expected="a matmul or 1x1 conv with weights, followed only by pointwise steps or pooling",
        hint="name another output, or build on a tensor of your choice with graph.find('...')",
    )  # fmt: skip


def _is_pointwise(conv: Node, weights: Tensor) -> bool:
    """Whether each output pixel of a conv depends on one input pixel, and on all its channels."""
    return all(d == 1 for d in (weights.static_shape or ())[2:]) and conv.attribute("group") == 1


def _weights(node: Node) -> Tensor | None:
    w = node.inputs[1]
    return (
        w if w is not None and (w.data is not None or w.variable is not None) and w.static_shape is not None else None
    )


def _vectors(layer: Node) -> Tensor:
    """The layer's input as vectors [batch, features]. An image before a 1x1 conv is averaged over its pixels, whatever
    its size."""
    x = layer.inputs[0]
    assert x is not None
    if x.shape is None:
        raise GraphError(
            "the rank of the head's input is unknown",
            code=304,
            tensor=x.name,
            hint="give the model's inputs fixed shapes",
        )
    if layer.op == "conv":
        axes = list(range(1, len(x.shape)))
        axes.remove(layer.attribute("channel_axis") % len(x.shape))
        return emit("reduce", [x], {"kind": "mean", "axes": axes, "keep_dims": False})[0]
    if layer.attribute("transpose_a"):
        raise GraphError(
            "the head's input is transposed, which is not supported", code=302, op=layer.name, tensor=x.name
        )
    if len(x.shape) > 2:  # a sequence: average its vectors
        x = emit("reduce", [x], {"kind": "mean", "axes": list(range(1, len(x.shape) - 1)), "keep_dims": False})[0]
    return x


def _keep_needed(function: Function) -> None:
    """Removes the nodes that only the old outputs needed, and the variables that only these nodes read."""
    read = {t.variable for t in function.tensors()}
    needed, kept = set(function.outputs), []
    for node in reversed(function.nodes):
        if node.op == "assign" or any(t in needed for t in node.outputs):
            needed.update(t for t in node.inputs if t is not None)
            kept.append(node)
    function.nodes = kept[::-1]
    still = {t.variable for t in function.tensors()}
    for variable in read - still:
        if variable is not None:
            del function.graph.variables[variable.name]
