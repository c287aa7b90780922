"""Converts the PyTorch module that pnnx wrote: `python -m tests.peers.from_pnnx JSON`, run in a peer's environment.
Writes .tflite with litert-torch or .pte with ExecuTorch's XNNPACK partitioner, at f32 or quantized with samples."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np


def module(folder: Path) -> Any:
    """The module of `m_pnnx.py`, which reads its weights from the working folder when it is made."""
    spec = importlib.util.spec_from_file_location("m_pnnx", folder / "m_pnnx.py")
    assert spec and spec.loader
    source = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(source)
    with contextlib.chdir(folder):
        return source.Model().eval()


def executorch(model: Any, x: Any, samples: Any) -> bytes:
    """A program whose parts XNNPACK runs where it can."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    program = torch.export.export(model, (x,))
    if samples is not None:
        from executorch.backends.xnnpack.quantizer import xnnpack_quantizer
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

        quantizer = xnnpack_quantizer.XNNPACKQuantizer()
        quantizer.set_global(xnnpack_quantizer.get_symmetric_quantization_config(is_per_channel=True))
        prepared = prepare_pt2e(program.module(), quantizer)
        for sample in samples:
            prepared(sample)
        program = torch.export.export(convert_pt2e(prepared), (x,))
    lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    return bytes(lowered.to_executorch().buffer)


def litert(model: Any, x: Any, samples: Any) -> bytes:
    """A TFLite model; images are NHWC, which TFLite's kernels take. It is quantized to int8, with its input and output."""
    import litert_torch

    if x.ndim == 4:
        model = litert_torch.to_channel_last_io(model, args=[0])
        x = x.permute(0, 2, 3, 1).contiguous()
    edge = litert_torch.convert(model, (x,))
    path = Path("m.tflite").absolute()
    edge.export(str(path))
    data = path.read_bytes()
    if samples is None:
        path.unlink()
        return data
    from ai_edge_quantizer import quantizer, recipe

    work = quantizer.Quantizer(str(path), recipe.static_wi8_ai8())
    name = next(iter(_inputs(path)))
    feeds = [{name: np.ascontiguousarray(sample.permute(0, 2, 3, 1).numpy())} for sample in samples]
    calibrated = work.calibrate({"serving_default": feeds})
    return bytes(work.quantize(calibrated).quantized_model)


def _inputs(path: Path) -> dict[str, Any]:
    """The named inputs of the model's signature."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path))
    found: dict[str, Any] = interpreter.get_signature_runner("serving_default").get_input_details()
    return found


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    import torch

    asked = json.loads(sys.argv[1])
    folder = Path(asked["folder"])
    model, x = module(folder), torch.from_numpy(np.load(asked["input"]))
    samples = torch.from_numpy(np.load(asked["samples"])) if asked["samples"] else None
    os.chdir(folder)
    with torch.no_grad():
        data = {"litert": litert, "executorch": executorch}[asked["engine"]](model, x, samples)
    part = Path(asked["out"] + ".part")
    part.write_bytes(data)
    part.replace(asked["out"])


if __name__ == "__main__":
    main()
