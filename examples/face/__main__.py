"""`python -m examples.face [PHOTO ...] [--out FOLDER]`: faces as a table, and drawn into each photo with 468 points.
Without a photo it uses the photo of Grace Hopper in Matplotlib (US Navy, public domain)."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from rich.console import Console
from rich.table import Table

import linnet
from linnet._fetch import FetchError, fetch_member
from linnet.data import media

from .detect import Face, Faces

_BOX, _POINT, _MESH = (250, 200, 30), (230, 30, 60), (60, 230, 120)


def sample_photo() -> Path:
    """Returns the photo that is used if none is given. Raises `FetchError`."""
    return fetch_member("matplotlib", "matplotlib/mpl-data/sample_data/grace_hopper.jpg", "3.10.7")


def draw(photo: np.ndarray, faces: Sequence[Face]) -> Image.Image:
    """Returns the photo with boxes, the detector's points, and the mesh's points."""
    image = Image.fromarray(photo)
    pen = ImageDraw.Draw(image)
    for face in faces:
        pen.rectangle(face.box, outline=_BOX, width=max(2, photo.shape[1] // 250))
        for dots, radius, colour in ((face.mesh, 1, _MESH), (face.points, 4, _POINT)):
            scaled = max(0.6, radius * photo.shape[1] / 600)
            for x, y in dots.tolist():
                pen.ellipse((x - scaled, y - scaled, x + scaled, y + scaled), fill=colour)
    return image


def main() -> int:
    """Runs `python -m examples.face`; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m examples.face", description=__doc__)
    parser.add_argument("photos", nargs="*", type=Path, help="JPEG, PNG or BMP")
    parser.add_argument(
        "--out", type=Path, default=Path("."), help="folder for the pictures (default: the current one)"
    )
    args = parser.parse_args()
    table = Table()
    table.add_column("photo")
    for heading in ("box: left, top, right, bottom", "score", "presence", "ms"):
        table.add_column(heading, justify="right")
    written = []
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        network = Faces()
        for path in args.photos or [sample_photo()]:
            photo = media.read_image(path)
            start = time.perf_counter()
            faces = network.find(photo)
            taken = f"{1e3 * (time.perf_counter() - start):.1f}"
            name = path.stem.split("__")[-1]  # the name of a fetched file, without its folders
            for face in faces:
                box = ", ".join(f"{side:.0f}" for side in face.box)
                table.add_row(name, box, f"{face.score:.3f}", f"{face.presence:.3f}", taken)
            if not faces:
                table.add_row(name, "no face", "", "", taken)
            written.append(args.out / f"{name}-faces.png")
            draw(photo, faces).save(written[-1])
    except (FetchError, linnet.Error, OSError) as error:
        print(f"face: {error}", file=sys.stderr)
        return 1
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    print("Pictures: " + ", ".join(map(str, written)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
