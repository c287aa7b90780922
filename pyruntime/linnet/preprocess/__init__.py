"""Adds steps before and after a model to its graph, so that the host feeds photos and audio and reads labels and boxes.
Every function takes a graph and returns a new one. docs/preprocess.md has examples."""

from __future__ import annotations

from linnet.clib.arguments import check_all
from linnet.preprocess import boxes
from linnet.preprocess._audio import Features, audio, librosa_mel, mlperf_tiny_mfcc, whisper_mel
from linnet.preprocess._classes import classes
from linnet.preprocess._edit import copy_signature, keep_outputs
from linnet.preprocess._image import image
from linnet.preprocess._recipes import recipe
from linnet.preprocess._results import ctc, mask, sigmoid, softmax, top_k

__all__ = [
    "Features", "audio", "boxes", "classes", "copy_signature", "ctc", "image", "keep_outputs", "librosa_mel", "mask",
    "mlperf_tiny_mfcc", "recipe", "sigmoid", "softmax", "top_k", "whisper_mel",
]  # fmt: skip

check_all(globals(), __all__)
