"""The OCR demo: fetches three networks, converts them to each number format, reads the page, prints a table.
Quantization is calibrated on the inputs of the f32 networks while they read other pages."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np

import linnet
from linnet._fetch import FetchError, fetch_member

from .. import report
from . import pipeline
from .annotate import annotate
from .page import calibration_pages, demo_page
from .score import characters, characters_wrong

_PACKAGE, _VERSION = "rapidocr-onnxruntime", "1.4.4"
_NETWORKS = {
    "detector": ("*/ch_PP-OCRv4_det_infer.onnx", pipeline.DET_SHAPE),
    "classifier": ("*/ch_ppocr_mobile_v2.0_cls_infer.onnx", pipeline.CLS_SHAPE),
    "recognizer": ("*/ch_PP-OCRv4_rec_infer.onnx", pipeline.REC_SHAPE),
}
_CALIBRATION_PAGES = 3
_CALIBRATION_FEEDS = 24  # largest number per network

Feeds = dict[str, np.ndarray]


def main() -> int:
    """Runs `python -m examples.ocr`; returns the exit status."""
    options = report.options(report.parser("examples.ocr", __doc__ or "").parse_args())
    try:
        run(options)
    except FetchError as error:
        print(f"ocr: {error}", file=sys.stderr)
        return 1
    return 0


def fetch() -> dict[str, Path]:
    """Returns the three ONNX files, from the cache or the package index. Raises `FetchError`."""
    return {name: fetch_member(_PACKAGE, member, _VERSION) for name, (member, _) in _NETWORKS.items()}


def run(options: report.Options) -> list[report.Row]:
    """Reads the page at each number format, prints the table, and writes one annotated PNG per format."""
    files = fetch()
    characters_known = pipeline.characters_of(files["recognizer"])
    graphs = {
        name: linnet.from_onnx(files[name], input_shapes={pipeline.INPUT: shape})
        for name, (_, shape) in _NETWORKS.items()
    }
    page = demo_page()
    calibration: dict[str, list[Feeds]] = {}
    rows, read, works = [], {}, {}
    for dtype in report.DTYPES:
        if sys.stderr.isatty():  # half a minute without output is long
            print(f"{dtype}: converting three networks, reading the page ...", file=sys.stderr)
        paths = {name: options.out / f"ocr-{name}-{dtype}.lnt" for name in graphs}
        for name, graph in graphs.items():
            made = graph if dtype == "f32" else linnet.quantize(graph, calibration[name], dtype=dtype)
            made.save(paths[name])
        sessions = {
            name: linnet.Session(path, threads=options.threads, device=options.device) for name, path in paths.items()
        }
        reader = pipeline.Reader(**sessions, characters=characters_known)
        if dtype == "f32":
            calibration = calibration_feeds(reader)
        lines = reader.read(page.image)
        wrong, total = characters_wrong(page.lines, [line.text for line in lines]), characters(page.lines)
        file_bytes = sum(path.stat().st_size for path in paths.values())
        rows.append(report.Row(dtype, file_bytes, sum(s.memory["total"] for s in sessions.values()), wrong, total))
        read[dtype], works[dtype] = lines, partial(reader.read, page.image)
    if sys.stderr.isatty():
        print("timing, each format in turn ...", file=sys.stderr)
    timing = report.timed(works, options.seconds)
    for row in rows:
        title = f"{row.dtype}: {row.wrong} of {row.total} characters wrong, {timing.median(row.dtype):.0f} ms"
        annotate(page.image, read[row.dtype], page.lines, title, options.out / f"ocr-{row.dtype}.png")
    report.print_table(f"OCR: a page of {len(page.lines)} lines", rows, timing, "characters", "whole page")
    print(f"The page as each format read it: {options.out}/ocr-*.png")
    return rows


def calibration_feeds(reader: pipeline.Reader) -> dict[str, list[Feeds]]:
    """Returns some of the inputs of each network while `reader` reads the calibration pages, by network name."""
    recorded = pipeline.record(reader, [page.image for page in calibration_pages(_CALIBRATION_PAGES)])
    return {name: feeds[:: -(-len(feeds) // _CALIBRATION_FEEDS)] for name, feeds in recorded.items()}
