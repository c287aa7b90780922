"""Sampled softmax: a loss for large vocabularies that uses only the label and some randomly drawn classes. Only their
rows of the output layer are touched."""

from __future__ import annotations

import math

from linnet.autodiff._tools import elementwise
from linnet.builder import ops
from linnet.builder.mapping import pointwise
from linnet.clib.errors import UsageError
from linnet.ir.expr import Expr
from linnet.ir.function import Operators, Tensor, Variable
from linnet.ir.graph import graph_of
from linnet.nn import random_uniform
from linnet.optimizers._step import number


def sampled_softmax(
    weight: Variable,
    bias: Variable | None,
    x: Operators,
    labels: Operators,
    samples: int,
    *,
    candidates: Operators | None = None,
    remove_hits: bool = True,
) -> Tensor:
    """An estimate of softmax_cross_entropy(x @ weight.T + bias, labels) per example, computed from only `samples`
    classes (Jean et al. 2015; as tf.nn.sampled_softmax_loss). The logarithm of the expected count of a class in the
    sample is subtracted from its logit.

    weight: [classes, size];
    bias: [classes];
    x: float [batch, size];
    labels: i32 or i64 [batch].
    candidates: i64 [samples], the classes to use. By default they are drawn log-uniformly, so classes should be sorted
        by falling frequency. The whole batch shares one draw, and every step makes a new draw.
    remove_hits: a sample that equals an example's label does not count for that example. Use this loss for training
        only; evaluate with softmax_cross_entropy. The gradients of weight and bias are sparse.
    """
    classes, count = weight.value.shape[0], int(number("samples", samples, least=1))
    if labels.shape is None or len(labels.shape) != 1 or labels.dtype not in ("i32", "i64"):
        raise UsageError(
            "the labels have the wrong shape or dtype", code=104, tensor=labels.name, expected="i32 or i64 [batch]",
            got=f"{labels.dtype} {list(labels.shape or ())}",
        )  # fmt: skip
    drawn = log_uniform_candidates(x, classes, count) if candidates is None else candidates
    parts = [ops.gather(weight.tensor(x), ids, from_end=False, name=f"{labels.name}/class") for ids in (labels, drawn)]
    own, others = (x * parts[0]).sum(-1), ops.matmul(x, parts[1], transpose_b=True)
    if bias is not None:
        own = own + ops.gather(bias.tensor(x), labels)
        others = others + ops.gather(bias.tensor(x), drawn)
    own = elementwise([own, labels], lambda v, n: v - _log_expected(n, classes, count), x.dtype)
    wide = ops.expand_dims(labels, 1)

    def corrected(v: Expr, n: Expr, label: Expr) -> Expr:
        made = v - _log_expected(n, classes, count)
        return n.cast("i64").eq(label.cast("i64")).select(-1e30, made) if remove_hits else made

    others = elementwise([others, drawn, wide], corrected, x.dtype)
    every = ops.concat([ops.expand_dims(own, 1), others], 1)
    return -ops.softmax(every, log=True)[:, 0]


def log_uniform_candidates(like: Operators, classes: int, samples: int) -> Tensor:
    """Returns i64 [samples], new in each training step. Class c has probability log((c + 2) / (c + 1)) / log(classes +
    1), as for words sorted by frequency (Zipf 1949). Classes may repeat. like: a tensor of the function in which the
    candidates are created."""
    for name, count in (("classes", classes), ("samples", samples)):
        if count < 1:
            raise UsageError(f"'{name}' is too small", code=101, expected="1 or more", got=str(count))
    uniform = random_uniform(graph_of(like), [samples])
    top = math.log(classes + 1)
    made = pointwise(
        [uniform], lambda u: ((u.cast("f64") * top).exp().floor().cast("i64") - 1).max(0).min(classes - 1), "i64"
    )
    assert isinstance(made, Tensor)
    return made


def _log_expected(n: Expr, classes: int, samples: int) -> Expr:
    """log(samples * probability of class n)."""
    c = n.cast("f64")
    share = ((c + 2.0) / (c + 1.0)).log() * (samples / math.log(classes + 1))
    return share.log().cast("f32")
