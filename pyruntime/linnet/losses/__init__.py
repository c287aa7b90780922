"""Losses as graphs. They return one value per example or element; take `.mean()` or `.sum()` of these. Names and meanings
are PyTorch's. Labels are checked at run time. If a label is invalid, the error names it, and no variable changes."""

from __future__ import annotations

from linnet.clib.arguments import check_all
from linnet.losses.classification import (
    average,
    hinge,
    kl_divergence,
    multi_margin,
    nll,
    sigmoid_cross_entropy,
    softmax_cross_entropy,
)
from linnet.losses.ctc import ctc
from linnet.losses.regression import cosine, cosine_embedding, huber, mae, mse, smooth_l1
from linnet.losses.sampled import log_uniform_candidates, sampled_softmax

__all__ = [
    "average", "cosine", "cosine_embedding", "ctc", "hinge", "huber", "kl_divergence", "log_uniform_candidates", "mae", "mse",
    "multi_margin", "nll", "sampled_softmax", "sigmoid_cross_entropy", "smooth_l1", "softmax_cross_entropy",
]  # fmt: skip

check_all(globals(), __all__)
