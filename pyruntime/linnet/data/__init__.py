"""Data for training: sources, whose examples are accessed by number, and a loader, which makes batches of examples.
A batch depends only on the seed, the epoch and its position, so a resumed run sees the same batches as an uninterrupted
one."""

from linnet.clib.arguments import check_all
from linnet.data.augment import crop, flip, shift
from linnet.data.files import mnist, read_csv, read_idx
from linnet.data.images import ImageFolder, image_folder
from linnet.data.loader import Loader
from linnet.data.source import Arrays, Batch, Source, SourceLike
from linnet.data.text import Characters, characters

__all__ = [
    "Arrays",
    "Batch",
    "Characters",
    "ImageFolder",
    "Loader",
    "Source",
    "SourceLike",
    "characters",
    "crop",
    "flip",
    "image_folder",
    "mnist",
    "read_csv",
    "read_idx",
    "shift",
]

check_all(globals(), __all__, strict=True)
