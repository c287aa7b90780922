"""Optimizers: update rules as graphs. base.py has the common base class; descent.py, adaptive.py and lbfgs.py have the
rules. To write your own, subclass Optimizer and define one method, `rule` (docs/optimizers.md)."""

from __future__ import annotations

from linnet.clib.arguments import check_all
from linnet.optimizers.adaptive import LAMB, AdaDelta, AdaGrad, Adam, AdamW, RMSProp
from linnet.optimizers.base import Gradient, Optimizer, Rate, Updates
from linnet.optimizers.descent import LARS, SGD, Momentum
from linnet.optimizers.lbfgs import LBFGS
from linnet.optimizers.scaling import DynamicLossScale

__all__ = [
    "LAMB", "LARS", "LBFGS", "SGD", "AdaDelta", "AdaGrad", "Adam", "AdamW", "DynamicLossScale", "Gradient", "Momentum",
    "Optimizer", "RMSProp", "Rate", "Updates",
]  # fmt: skip

check_all(globals(), __all__, strict=True)
