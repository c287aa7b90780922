"""A folder of images with one sub-folder per class, read with the same linnet.preprocess steps that a deployed model
runs."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import FileError
from linnet.data.source import Batch, Source

_ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".bmp"})


class ImageFolder(Source):
    """See `image_folder`. classes: names of the sub-folders, sorted. paths, labels: the path and the label of every
    example."""

    def __init__(self, root: str | Path, size: tuple[int, int], names: tuple[str, str], **steps: Any) -> None:
        from linnet import preprocess
        from linnet.facade import Graph
        from linnet.session.session import Session

        root = Path(root)
        if not root.is_dir():
            raise FileError(f"the folder '{root}' does not exist", code=201, tensor=str(root), hint="check the path")
        found = {
            folder.name: sorted(p for p in folder.rglob("*") if p.suffix.lower() in _ENDINGS)
            for folder in sorted(root.iterdir())
            if folder.is_dir() and not folder.name.startswith(".")
        }
        self.names, self.classes = names, [name for name, paths in found.items() if paths]
        self.paths = [path for paths in found.values() for path in paths]
        counts = [len(found[name]) for name in self.classes]
        self.labels = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        if not self.paths:
            raise FileError(
                f"the folder '{root}' has no images", code=201, tensor=str(root),
                expected="one sub-folder per class with .jpg, .png or .bmp files",
            )  # fmt: skip
        self._root, self._steps = root, {"size": size, **steps}
        graph = Graph()
        channels = 1 if steps.get("colour") == "grey" else 3
        shape = (1, *size, channels) if steps.get("layout") == "NHWC" else (1, channels, *size)
        x = graph.placeholder("x", shape)
        graph.signature("infer", {"x": x}, {"y": x + 0.0})
        self._session = Session(preprocess.image(graph, "x", **steps), threads=1)

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, indices: npt.NDArray[np.int64]) -> Batch:
        from linnet.data.media import read_image

        pixels = [self._session.run({"x": read_image(self.paths[i])})["y"] for i in indices]
        return {self.names[0]: np.concatenate(pixels), self.names[1]: self.labels[indices]}

    def digest(self) -> str:
        made = hashlib.sha256(repr(sorted(self._steps.items())).encode())
        for path in self.paths:
            made.update(f"{path.relative_to(self._root)} {path.stat().st_size}\n".encode())
        return made.hexdigest()


def image_folder(
    root: str | Path, size: tuple[int, int], *, names: tuple[str, str] = ("x", "t"), **steps: Any
) -> ImageFolder:
    """Loads images of `root`/CLASS/*.jpg (.png, .bmp; also nested folders) as f32 [1 or 3, height, width], with labels
    i32.

    size: (height, width). steps: arguments of linnet.preprocess.image (fit, crop, mean, std, colour, layout="NHWC",
    ...). A model that gets the same arguments through preprocess.image sees the same pixels on the device. Needs Pillow
    (the extra `image`). Raises FileError if there are no images. A damaged image raises an error that names the file when
    it is read.
    """
    return ImageFolder(root, size, names, **steps)
