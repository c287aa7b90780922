"""linnet.flower: a client of a Flower federation. This is the public name of linnet.sync.flower."""

from linnet.sync.flower import app, arrays, assign, shared

__all__ = ["app", "arrays", "assign", "shared"]
