"""Training in integers: a quantized model keeps its int8 or int16 weights as variables, and each step rounds them again. The
device stores no float weights. Forward and backward passes compute from the values that the integers represent. Updates are
rounded stochastically (Gupta et al. 2015), or the integers are rounded from f32 master weights, which are then kept too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from linnet import nn
from linnet.autodiff import SparseRows, gradients
from linnet.builder.mapping import pointwise
from linnet.clib.errors import UsageError
from linnet.ir import traits
from linnet.ir.expr import Expr
from linnet.ir.function import Function, Tensor, Variable
from linnet.ir.graph import Graph, graph_of
from linnet.optimizers import Optimizer
from linnet.passes.floats import REAL, to_floats
from linnet.passes.rewrite import replace
from linnet.passes.weights import declare, matching, to_main

G = TypeVar("G", bound=Graph)
_LIMITS = {"int8": 127, "int16": 32639, "int32": 1 << 30, "int64": 1 << 46}  # int16: docs/numerics.md


def trainable(graph: G, patterns: str | Sequence[str] = "*") -> G:
    """Turns a quantized graph's integer weights and biases into variables, in place, and returns the graph.

    graph: from `linnet.quantize`, an int8 TFLite file or a QDQ ONNX model. patterns: names of weights, as for
    `linnet.passes.trainable`; the bias of a layer is trained with its weights. "infer" remains the integer model and
    reads these variables. `graph.main` has the same computation in floats, with the same rounding and straight-through
    gradients; build the loss on it (`graph.find`). Scales and zero points do not change. Raises UsageError if there are
    no integer weights.
    """
    names = to_main(graph)
    function = graph.main
    layers: dict[Tensor, Tensor | None] = {}
    for node in function.nodes:
        w = node.inputs[1] if node.op in traits.PRODUCTS else None
        if w is not None and w.data is not None and w.dtype in ("i8", "i16") and w.quantization is not None:
            bias = node.inputs[2] if len(node.inputs) > 2 else None
            layers[w] = bias if bias is not None and bias.dtype in ("i32", "i64") and bias.data is not None else None
    chosen = matching(
        dict.fromkeys(layers, True), [patterns] if isinstance(patterns, str) else list(patterns), "integer weight"
    )
    table: dict[Tensor, Tensor] = {}
    for w in chosen:
        for tensor in (w, layers[w]):
            if tensor is not None and tensor.data is not None:
                function._names.discard(tensor.name)
                variable = graph.variable(tensor.name, np.array(tensor.data), trainable=False, copy=False)
                variable.quantization = tensor.quantization
                table[tensor] = function.read(variable)
    replace(function, table)
    declare(graph, *names)
    to_floats(graph, rounding=True)
    return graph


def updates(
    loss: Tensor, optimizer: Optimizer, variables: Sequence[Variable] | None = None, *, master: bool = False
) -> dict[Variable, Tensor]:
    """Updates of integer variables that make `loss` smaller, for `graph.signature(..., updates=...)`.

    loss: a float scalar, built in `graph.main`.
    variables: those made by `trainable`; default: all. The optimizer starts from the values that the integers
        represent. Its result is rounded up or down at random, so that even very small steps are kept on average.
    master: f32 copies `<variable>/master` are updated instead, and the integers are these copies rounded to nearest.
        Side updates that the loss depends on are included.
    Raises UsageError if there is nothing to train.
    """
    function, graph = loss.function, graph_of(loss)
    reals = {t.name: t for t in function.tensors() if t.name.endswith(REAL)}
    wanted = [v for v in (graph.variables.values() if variables is None else variables) if v.name + REAL in reals]
    if not wanted:
        raise UsageError(
            "the graph has no integer variables to train", code=101, tensor=loss.name,
            hint="create them first: linnet.integers.trainable(linnet.quantize(graph, calibration))",
        )  # fmt: skip
    own = [reals[v.name + REAL] for v in wanted]
    stand_ins: dict[
        Variable, Variable
    ] = {}  # from the float variable that the optimizer updates to the integer variable
    for variable, real in zip(wanted, own, strict=True):
        value = (variable.value * _scales(graph, variable)).astype(np.float32)
        if master:
            stand_ins[graph.variable(f"{variable.name}/master", value, trainable=False, copy=False)] = variable
        else:
            stand_ins[Variable(variable.name, value, graph=graph, placement=variable.placement)] = variable
        assert real.dtype == "f32"
    found = gradients(loss, own)
    given: dict[Variable, Tensor | SparseRows] = dict(zip(stand_ins, found, strict=True))
    made = optimizer.apply(given)
    result: dict[Variable, Tensor] = {v: t for v, t in made.items() if master or v not in stand_ins}
    for stand_in, variable in stand_ins.items():
        result[variable] = _rounded(made[stand_in], variable, graph, stochastic=not master)
    if not master:
        by_name = {stand_in: reals[v.name + REAL] for stand_in, v in stand_ins.items()}
        _read_instead(function, by_name)
    return {**graph.side_updates_of([loss, *result.values()]), **result}


def _rounded(value: Tensor, variable: Variable, graph: Graph, stochastic: bool) -> Tensor:
    """Rounds to integers with the variable's scale."""
    limit, wide = float(_LIMITS[variable.value.dtype.name]), variable.dtype == "i64"
    inverse = value.function.constant((1.0 / _scales(graph, variable).astype(np.float64)).astype(np.float32))
    operands = [value, inverse]
    if stochastic:
        operands.append(nn.random_uniform(graph, variable.value.shape))

    def body(v: Expr, s: Expr, *u: Expr) -> Expr:
        codes = v.cast("f64") * s
        whole = (codes + u[0]).unary("floor") if u else codes.unary("round")
        return whole.max(-limit).min(limit).cast("i64" if wide else "i32")

    made: Tensor = pointwise(operands, body, variable.dtype)
    return made


def _scales(graph: Graph, variable: Variable) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The variable's scale in a shape that broadcasts against it."""
    q = variable.quantization
    if q is None:  # a bias: its real value is a map of the bias and its scale
        real = next(t for t in graph.main.tensors() if t.name == variable.name + REAL)
        assert real.node is not None and real.node.inputs[1] is not None and real.node.inputs[1].data is not None
        return np.asarray(real.node.inputs[1].data, np.float32)
    shape = [1] * variable.value.ndim
    if q.axis is not None:
        shape[q.axis] = -1
    return np.asarray(q.scale, np.float32).reshape(shape)


def _read_instead(function: Function, table: dict[Variable, Tensor]) -> None:
    """Replaces reads of stand-ins by the tensors that they represent. The optimizer gets these stand-ins, which are not
    variables of the graph."""
    for node in function.nodes:
        node.inputs = [table.get(t.variable, t) if t is not None and t.variable is not None else t for t in node.inputs]
