"""Data for training: sources of examples that can be taken by number, and a loader that makes batches of them.
A batch is a function of the seed, the epoch and its place in it, so that a run that is resumed sees what it would have seen."""

from linnet.data.augment import crop, flip, shift
from linnet.data.files import mnist, read_csv, read_idx
from linnet.data.images import ImageFolder, image_folder
from linnet.data.loader import Loader
from linnet.data.source import Arrays, Batch, Source
from linnet.data.text import Characters, characters

__all__ = [
    "Arrays",
    "Batch",
    "Characters",
    "ImageFolder",
    "Loader",
    "Source",
    "characters",
    "crop",
    "flip",
    "image_folder",
    "mnist",
    "read_csv",
    "read_idx",
    "shift",
]
