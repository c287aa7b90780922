"""PyTorch's layers for the networks of networks.py. Only where PyTorch is installed may this module be imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

nn = torch.nn


class Network(nn.Module):  # type: ignore[misc]
    """PyTorch's layers. The first pass over the description makes them, with PyTorch's initial values."""

    def __init__(self, describe: Callable[[Any, Any], Any], x: torch.Tensor) -> None:
        super().__init__()
        self.describe, self.layers, self.at = describe, nn.ModuleList(), 0
        with torch.no_grad():
            self.eval()(x[:1])
        self.train()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.at = 0
        result: torch.Tensor = self.describe(self, x)
        return result

    def _layer(self, make: Callable[[], nn.Module], x: torch.Tensor) -> torch.Tensor:
        if self.at == len(self.layers):
            self.layers.append(make().train(self.training))
        self.at += 1
        result: torch.Tensor = self.layers[self.at - 1](x)
        return result

    def conv(
        self, x: Any, out: int, kernel: int, stride: int = 1, pad: int = 0, group: int = 1, bias: bool = True
    ) -> Any:
        return self._layer(lambda: nn.Conv2d(x.shape[1], out, kernel, stride, pad, groups=group, bias=bias), x)

    def linear(self, x: Any, out: int) -> Any:
        return self._layer(lambda: nn.Linear(x.shape[-1], out), x)

    def relu(self, x: Any) -> Any:
        return self._layer(lambda: nn.ReLU(inplace=True), x)

    def max_pool(self, x: Any, kernel: int, stride: int, pad: int = 0) -> Any:
        return self._layer(lambda: nn.MaxPool2d(kernel, stride, pad), x)

    def concat(self, *x: Any) -> Any:
        return torch.cat(x, 1)

    def dropout(self, x: Any) -> Any:
        return self._layer(nn.Dropout, x)

    def flatten(self, x: Any) -> Any:
        return x.flatten(1)

    def mean(self, x: Any) -> Any:
        return x.mean((2, 3))
