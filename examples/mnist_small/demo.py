"""The digit demo: our own net labels drawn digits in each number format; prints a table and writes pictures.
It needs only this folder; quantization is calibrated on digits drawn from another seed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import linnet

from .. import report
from .digits import draw

HERE = Path(__file__).resolve().parent
MODEL, SAMPLES = HERE / "mnist_small.onnx", HERE / "samples.npz"
INPUT, OUTPUT = "input", "logits"
_CALIBRATION_SEED, _CALIBRATION_COUNT = 77, 200
_CELL, _COLUMNS, _HEADER = 64, 10, 34


def main() -> int:
    """Runs `python -m examples.mnist_small`; returns the exit status."""
    run(report.options(report.parser("examples.mnist_small", __doc__ or "").parse_args()))
    return 0


def run(options: report.Options) -> list[report.Row]:
    """Labels the samples at each number format, prints the table, and writes one contact sheet per format."""
    with np.load(SAMPLES) as samples:
        images, labels = samples["images"], samples["labels"]
    graph = linnet.from_onnx(MODEL, input_shapes={INPUT: (1, 1, 28, 28)})
    calibration = [feeds(image) for image in draw(_CALIBRATION_COUNT, _CALIBRATION_SEED)[0]]
    rows, guessed, works = [], {}, {}
    for dtype in report.DTYPES:
        path = options.out / f"mnist_small-{dtype}.lnt"
        (graph if dtype == "f32" else linnet.quantize(graph, calibration, dtype=dtype)).save(path)
        session = linnet.Session(path, threads=options.threads, device=options.device)
        guesses = np.array([int(session.run(feeds(image))[OUTPUT].argmax()) for image in images])
        wrong = int((guesses != labels).sum())
        rows.append(report.Row(dtype, path.stat().st_size, session.memory["total"], wrong, len(labels)))
        guessed[dtype], works[dtype] = guesses, partial(session.run, feeds(images[0]))
    timing = report.timed(works, options.seconds)
    for row in rows:
        title = f"{row.dtype}: {row.wrong} of {row.total} digits wrong, {timing.median(row.dtype):.3f} ms each"
        contact_sheet(images, labels, guessed[row.dtype], title, options.out / f"mnist_small-{row.dtype}.png")
    report.print_table(f"Digits: {len(labels)} drawn samples", rows, timing, "digits", "one digit")
    print(f"The digits as each format read them: {options.out}/mnist_small-*.png")
    return rows


def feeds(image: np.ndarray) -> dict[str, np.ndarray]:
    """u8 [28,28] -> {"input": f32 [1,1,28,28] in [0, 1]}."""
    return {INPUT: (image.astype(np.float32) / 255)[None, None]}


def contact_sheet(images: np.ndarray, labels: np.ndarray, guesses: np.ndarray, title: str, path: Path) -> None:
    """Writes a PNG of all digits u8 [N,28,28], each with the net's answer in the corner: green if right, red if wrong."""
    rows = -(-len(images) // _COLUMNS)
    sheet = Image.new("RGB", (_COLUMNS * _CELL, rows * _CELL + _HEADER), "white")
    draw_on = ImageDraw.Draw(sheet)
    draw_on.text((8, _HEADER // 2), title, fill="black", font=ImageFont.load_default(size=18), anchor="lm")
    font = ImageFont.load_default(size=18)
    for index, (image, label, guess) in enumerate(zip(images, labels, guesses, strict=True)):
        x, y = index % _COLUMNS * _CELL, index // _COLUMNS * _CELL + _HEADER
        picture = Image.fromarray(image).resize((_CELL - 2, _CELL - 2), Image.Resampling.NEAREST)
        sheet.paste(picture, (x + 1, y + 1))
        right = label == guess
        if not right:
            draw_on.rectangle((x, y, x + _CELL - 1, y + _CELL - 1), outline=(230, 40, 40), width=3)
        colour = (60, 220, 90) if right else (255, 60, 60)
        draw_on.text((x + _CELL - 6, y + 4), str(guess), fill=colour, font=font, anchor="rt")
    sheet.save(path)
