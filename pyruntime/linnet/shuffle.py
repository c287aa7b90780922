"""linnet.shuffle: the order of examples. This is the public name of linnet.data.shuffle."""

from linnet.clib.arguments import check_all
from linnet.data.shuffle import permutation

__all__ = ["permutation"]

check_all(globals(), __all__, strict=True)
