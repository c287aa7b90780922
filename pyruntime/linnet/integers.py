"""linnet.integers: training of int8 weights. This is the public name of linnet.quantization.integers."""

from linnet.quantization.integers import trainable, updates

__all__ = ["trainable", "updates"]
