"""Gradients of linnet.ops beyond single nodes against PyTorch's. tests/test_builder_functions.py compares their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from tests.test_builder_functions import IDS, RNG, ROWS, Array, V, X, Z, pairs, values
from tests.with_torch import torch

functional = torch.nn.functional
T = torch.tensor
BAGS = np.array([1, 5, 1]), np.array([0, 2])
# name -> function of linnet, the same of PyTorch, float arrays
SLOPES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Array, ...]]] = {
    "sort": (lambda x: ops.sort(x, 1), lambda x: x.sort(1).values, (X,)),
    "unique": (lambda x: ops.unique(x).values, lambda x: x.reshape(-1).sort().values, (X,)),
    "bincount": (lambda w: ops.bincount(w.function.constant(V), 5, w),
                 lambda w: torch.zeros(5, dtype=w.dtype).index_add(0, T(V), w), (RNG.standard_normal(17),)),
    "segment_sum": (lambda x: ops.segment_sum(x, x.function.constant(IDS), 5),
                    lambda x: torch.zeros(6, 3, dtype=x.dtype).index_add(0, T(IDS) % 6, x)[:5], (ROWS,)),
    "segment_max": (lambda x: ops.segment_max(x, x.function.constant(abs(IDS)), 5),
                    lambda x: torch.zeros(5, 3, dtype=x.dtype).scatter_reduce(
                        0, T(abs(IDS))[:, None].expand(6, 3), x, "amax", include_self=False),
                    (ROWS,)),
    "embedding_bag": (lambda t: ops.embedding_bag(t, *map(t.function.constant, BAGS), mode="mean"),
                      lambda t: functional.embedding_bag(T(BAGS[0]), t, T(BAGS[1]), mode="mean"), (ROWS,)),
    "roll": (lambda x: ops.roll(x, [1, -2], [0, 2]), lambda x: torch.roll(x, [1, -2], [0, 2]), (X,)),
    "cumulative_sum": (lambda x: ops.cumulative_sum(x, 1), lambda x: x.cumsum(1), (X,)),
    "cumulative_prod": (lambda x: ops.cumulative_prod(x, 1), lambda x: x.cumprod(1), (X,)),
    "cumulative_max": (lambda x: ops.cumulative_max(x, 1), lambda x: x.cummax(1).values, (X,)),
    "linspace": (lambda a, b: ops.linspace(a, b, 5),
                 lambda a, b: torch.stack([a + (b - a) * i / 4 for i in range(5)]), (X[0], X[1])),
    "lrn": (lambda x: ops.lrn(x, 3, 0.2), lambda x: functional.local_response_norm(x, 3, 0.2, 0.75, 1.0), (X,)),
    "rfft": (lambda x: ops.rfft(x, 1), lambda x: torch.view_as_real(torch.fft.rfft(x, dim=1)), (X,)),
    "fft": (ops.fft, lambda x: torch.view_as_real(torch.fft.fft(torch.view_as_complex(x))), (pairs(Z),)),
    "irfft": (ops.irfft, lambda x: torch.fft.irfft(torch.view_as_complex(x)), (pairs(Z),)),
    "einsum": (lambda a, b: ops.einsum("nij,ikj->nk", a, b), lambda a, b: torch.einsum("nij,ikj->nk", a, b),
               (X, RNG.standard_normal((4, 2, 5)))),
    "einsum_trace": (lambda a: ops.einsum("iji->j", a), lambda a: torch.einsum("iji->j", a), (RNG.standard_normal((3, 2, 3)),)),
}  # fmt: skip


@pytest.mark.parametrize("name", SLOPES)
def test_gradients_are_those_of_torch(name: str) -> None:
    build, reference, arrays = SLOPES[name]
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    result = reference(*tensors)
    weights = RNG.standard_normal(tuple(result.shape))
    (result * torch.tensor(weights)).sum().backward()

    def slopes(*x: linnet.Tensor) -> tuple[linnet.Tensor, ...]:
        return tuple(linnet.gradients((build(*x) * weights).sum(), list(x)))

    for got, tensor in zip(values(slopes, *arrays), tensors, strict=True):
        np.testing.assert_allclose(got, tensor.grad, rtol=1e-10, atol=1e-10)
