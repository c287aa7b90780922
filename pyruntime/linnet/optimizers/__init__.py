"""Optimizers: update rules as graphs. base.py has the class that all share, first_order.py the rules of the field.
One of your own is a subclass with one method, `rule` (docs/optimizers.md)."""

from __future__ import annotations

from linnet.optimizers.adaptive import Adam, AdamW
from linnet.optimizers.base import Optimizer, Rate, Updates
from linnet.optimizers.descent import SGD, Momentum

__all__ = ["SGD", "Adam", "AdamW", "Momentum", "Optimizer", "Rate", "Updates"]
