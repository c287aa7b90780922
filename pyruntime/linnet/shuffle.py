"""linnet.shuffle: the order of examples. This is the public name of linnet.data.shuffle."""

from linnet.data.shuffle import permutation

__all__ = ["permutation"]
