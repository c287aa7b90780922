"""Steps before and behind a model as part of its graph, so that a host feeds photos and sound and reads labels and boxes.
Every function takes a graph and gives a new one; docs/preprocess.md shows them at work."""

from __future__ import annotations

from linnet.preprocess._edit import copy_signature
from linnet.preprocess._image import image
from linnet.preprocess._results import sigmoid, softmax, top_k

__all__ = ["copy_signature", "image", "sigmoid", "softmax", "top_k"]
