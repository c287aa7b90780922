"""ONNX Runtime's static 8-bit quantizer on the same data: MinMax, Percentile, and only convolutions and products.
Its results do not depend on linnet, so they are cached by the digests of file and data."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.accuracy.entry import Entry, Feeds, Outputs, Sample, run, unrolled

PRODUCTS = ("Conv", "MatMul", "Gemm", "ConvTranspose")
WAYS = ("minmax", "percentile", "products")
_BYTES = 1 << 30  # what the histograms' collector may hold of intermediate tensors at once


def session(model: str, threads: int = 2) -> Callable[[Feeds], Outputs]:
    """A function that runs a file."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    opened = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in opened.get_outputs()]
    wanted = {i.name for i in opened.get_inputs()}
    return lambda feeds: dict(
        zip(names, opened.run(names, {k: v for k, v in feeds.items() if k in wanted}), strict=True)
    )


def _reader(feeds: Sequence[Feeds]) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        """Gives the feeds in parts, so that the collectors do not hold the tensors of all."""

        def __init__(self) -> None:
            self.set_range(0, len(feeds))

        def __len__(self) -> int:
            return len(feeds)

        def set_range(self, start_index: int, end_index: int) -> None:
            self.rest = iter(feeds[start_index:end_index])

        def get_next(self) -> Feeds | None:
            return next(self.rest, None)

    return Reader()


def _raised(path: Path, folder: Path) -> Path:
    """The network at an opset that has scales per channel (13), converted if it is older."""
    import onnx
    from onnx import version_converter

    model = onnx.load(str(path))
    if max(o.version for o in model.opset_import if o.domain in ("", "ai.onnx")) >= 13:
        return path
    target = folder / "raised.onnx"
    onnx.save(version_converter.convert_version(model, 15), str(target))
    return target


def _prepared(path: Path, folder: Path) -> list[Path]:
    """The network after ONNX Runtime's own preparation (shapes, folded constants, fused normalization), as its manual asks; then
    with less of it, for networks that it breaks."""
    from onnxruntime.quantization import shape_inference

    found = []
    ways: tuple[dict[str, bool], ...] = (
        {},
        {"skip_symbolic_shape": True},
        {"skip_symbolic_shape": True, "skip_optimization": True},
    )
    for number, skip in enumerate(ways):
        target = folder / f"prepared{number}.onnx"
        try:
            shape_inference.quant_pre_process(str(_raised(path, folder)), str(target), auto_merge=True, **skip)
            found.append(target)
        except Exception as error:
            logging.debug("preparing %s: %s", path, error)
    return [*found, path]


def _quantized(prepared: Path, target: Path, feeds: Sequence[Feeds], way: str, channels: bool) -> None:
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    quantize_static(
        str(prepared), str(target), _reader(feeds), quant_format=QuantFormat.QDQ, per_channel=channels,
        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
        op_types_to_quantize=list(PRODUCTS) if way == "products" else None,
        calibrate_method=CalibrationMethod.Percentile if way == "percentile" else CalibrationMethod.MinMax,
        extra_options={"CalibStridedMinMax": 1},
    )  # fmt: skip


def points(
    entry: Entry, path: Path, calibration: Sequence[Sample], test: Sequence[Sample], kept: Path
) -> dict[str, float | str]:
    """{way: points, or the reason why there are none}, and {"seconds": what quantizing by MinMax took}.
    The file of the best way is written to `kept`."""
    logging.getLogger().setLevel(logging.ERROR)
    call = session(str(path))
    feeds = unrolled(call, calibration, entry.feedback)
    expected = run(call, test, entry.feedback)
    found: dict[str, float | str] = {}
    best = -np.inf
    with tempfile.TemporaryDirectory(prefix="linnet-ort-") as temporary:
        forms = _prepared(path, Path(temporary))
        for way in WAYS:
            for form, channels in [(forms[0], True), (forms[max(0, len(forms) - 2)], True), (forms[0], False)]:
                target = Path(temporary) / f"{way}.onnx"
                try:
                    begin = time.perf_counter()
                    _quantized(form, target, feeds, way, channels)
                    seconds = time.perf_counter() - begin
                    got = clean(run(session(str(target)), test, entry.feedback))
                    reached = found[way] = round(float(entry.agreement(expected, got)), 3)
                    if way == "minmax":
                        found["seconds"] = round(seconds, 2)
                    if reached > best:
                        best = reached
                        kept.parent.mkdir(parents=True, exist_ok=True)
                        shutil.copyfile(target, kept)
                    break
                except Exception as error:
                    found[way] = f"{type(error).__name__}: {str(error)[:200]}"
    return found


def clean(outputs: list[Outputs]) -> list[Outputs]:
    """The outputs without what is not an array (ONNX Runtime's sequences)."""
    return [{k: v for k, v in o.items() if isinstance(v, np.ndarray)} for o in outputs]


def key() -> str:
    """What, besides the file and the data, decides the results: the version, and the way in which it is called here."""
    return f"onnxruntime {importlib.metadata.version('onnxruntime')} per channel, u8 and s8, {os.uname().machine}, 2"
