"""How each runtime loads a file and runs it once. A worker in the engine's environment imports this, so only NumPy is imported
here. A run takes a host array in and gives a host array out; no engine converts the input's layout within the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Run = Callable[[], Array]
RESTRICTED = ("linnet", "openvino")  # engines that can be kept to an instruction set


@dataclass(frozen=True)
class Job:
    """What a worker runs: the file, its only input in ONNX's layout, the number of threads, and the limit of the ISA."""

    file: str
    x: Array
    threads: int
    isa_max: str | None = None


def linnet(job: Job) -> Run:
    import linnet

    session = linnet.Session(job.file, threads=job.threads, isa_max=job.isa_max)
    name = session.inputs[0].name
    return lambda: next(iter(session.run({name: job.x}).values()))


def onnxruntime(job: Job) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = job.threads, 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(job.file, options, providers=["CPUExecutionProvider"])
    feeds, fetches = {session.get_inputs()[0].name: job.x}, [session.get_outputs()[0].name]
    return lambda: session.run(fetches, feeds)[0]


def openvino(job: Job) -> Run:
    """`isa_max` arrives as ONEDNN_MAX_CPU_ISA, which the worker's environment holds."""
    import openvino

    options = {
        "INFERENCE_NUM_THREADS": job.threads,
        "NUM_STREAMS": "1",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(job.file), "CPU", options)
    request, output = compiled.create_infer_request(), compiled.outputs[0]
    return lambda: request.infer({0: job.x}, share_inputs=True, share_outputs=True)[output]


def litert(job: Job) -> Run:
    """Images come as NHWC, because that is the layout of TFLite's kernels; integer models get and give integers."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=job.file, num_threads=job.threads)
    interpreter.allocate_tensors()
    into, out = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    x = np.ascontiguousarray(job.x.transpose(0, 2, 3, 1)) if job.x.ndim == 4 else job.x
    if into["dtype"] != np.float32:
        scale, zero = into["quantization"]
        x = np.clip(np.round(x / scale) + zero, -128, 127).astype(into["dtype"])

    def run() -> Array:
        interpreter.set_tensor(into["index"], x)
        interpreter.invoke()
        found: Array = interpreter.get_tensor(out["index"])
        if out["dtype"] == np.float32:
            return found
        scale, zero = out["quantization"]
        return np.asarray((found.astype(np.float32) - zero) * scale)

    return run


def ncnn(job: Job) -> Run:
    """`file` is the .param; the weights lie beside it. ncnn has no batch axis, so an axis of size 1 is left out."""
    import ncnn

    net = ncnn.Net()
    net.opt.num_threads, net.opt.use_vulkan_compute = job.threads, False
    for name in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage", "bf16_packed"):
        setattr(net.opt, f"use_{name}", False)
    if net.load_param(job.file) or net.load_model(job.file.replace(".param", ".bin")):
        raise RuntimeError("ncnn does not read its file")
    x = np.ascontiguousarray(job.x.squeeze(job.x.shape.index(1)))

    def run() -> Array:
        extractor = net.create_extractor()
        extractor.input("in0", ncnn.Mat(x))
        code, found = extractor.extract("out0")
        if code:
            raise RuntimeError(f"ncnn: extract gives {code}")
        return np.array(found)

    return run


def mnn(job: Job) -> Run:
    """The module API: MNN's sessions do not run its recurrent layers."""
    import MNN.expr
    import MNN.nn

    options = {"backend": "CPU", "numThread": job.threads, "precision": "high"}
    module = MNN.nn.load_module_from_file(
        job.file, ["input"], ["output"], runtime_manager=MNN.nn.create_runtime_manager((options,))
    )
    x = MNN.expr.placeholder(list(job.x.shape), MNN.expr.NCHW, MNN.expr.float)

    def run() -> Array:
        x.write(job.x)
        return np.array(MNN.expr.convert(module.forward(x), MNN.expr.NCHW).read(), copy=True)

    return run


def executorch(job: Job) -> Run:
    import logging

    logging.disable(logging.WARNING)
    import torch
    from executorch.extension.pybindings import portable_lib

    portable_lib._unsafe_reset_threadpool(job.threads)
    module, x = portable_lib._load_for_executorch(job.file), torch.from_numpy(job.x)

    def run() -> Array:
        found: Array = module.forward([x])[0].numpy()
        return found

    return run


ENGINES: dict[str, Callable[[Job], Run]] = {
    "linnet": linnet, "onnxruntime": onnxruntime, "openvino": openvino, "litert": litert, "ncnn": ncnn, "mnn": mnn,
    "executorch": executorch,
}  # fmt: skip
