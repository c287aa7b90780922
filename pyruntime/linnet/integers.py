"""linnet.integers: training of int8 and int16 weights. This is the public name of linnet.quantization.integers."""

from linnet.clib.arguments import check_all
from linnet.quantization.integers import trainable, updates

__all__ = ["trainable", "updates"]

check_all(globals(), __all__)
