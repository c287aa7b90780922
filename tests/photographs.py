"""Photographs of packages as a small data set: each is a class, and tiles that do not overlap are its images.
scikit-image's wheel holds ten photographs of use here, scikit-learn's two (both are permissively licensed; none is committed)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from linnet._fetch import fetch_member
from tests import zoo

SKIMAGE = ("astronaut.png", "brick.png", "chelsea.png", "coffee.png", "grass.png", "gravel.png", "ihc.png", "moon.png",
           "retina.jpg", "rocket.jpg")  # fmt: skip
SKLEARN = ("china.jpg", "flower.jpg")


def folder(root: Path, names: tuple[str, ...] = SKIMAGE + SKLEARN, side: int = 96, most: int = 20) -> Path:
    """`root`/CLASS/NUMBER.png: up to `most` square tiles of each photograph, drawn from a grid, so that no pixel is in two."""
    from PIL import Image

    for name in names:
        package, version = ("scikit-image", "0.26.0") if name in SKIMAGE else ("scikit-learn", "1.7.2")
        member = f"skimage/data/{name}" if name in SKIMAGE else f"sklearn/datasets/images/{name}"
        path = zoo.at_hand(lambda m=member, p=package, v=version: fetch_member(p, m, v))
        photo = np.asarray(Image.open(path).convert("RGB"))
        rows, columns = photo.shape[0] // side, photo.shape[1] // side
        places = [(y * side, x * side) for y in range(rows) for x in range(columns)]
        order = np.random.default_rng(0).permutation(len(places))[:most]
        target = root / name.split(".")[0]
        target.mkdir(parents=True, exist_ok=True)
        for number, place in enumerate(order):
            y, x = places[place]
            Image.fromarray(photo[y : y + side, x : x + side]).save(target / f"{number:03}.png")
    return root
