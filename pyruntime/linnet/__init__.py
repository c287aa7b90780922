"""linnet: an embeddable inference-and-training runtime. Build or convert a Graph, save it, and run it in a Session.
Large parts (converters, quantizer, command line) are imported when they are first used."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import linnet.clib.starting as _starting  # noqa: F401 (it acts before the other modules are imported)
from linnet.clib.arguments import PUBLIC as _PUBLIC
from linnet.clib.arguments import check_all as _check_all
from linnet.clib.arguments import checked as _checked
from linnet.clib.errors import (
    Cancelled,
    ConversionError,
    DeadlineExceeded,
    DeviceError,
    Error,
    FileError,
    GraphError,
    Problem,
    ResourceError,
    SyncError,
    TrainingError,
    UsageError,
)
from linnet.clib.version import __version__ as __version__
from linnet.ir.dtypes import Quantization

if TYPE_CHECKING:
    from linnet import (
        autodiff,
        clip,
        converters,
        data,
        decoding,
        init,
        integers,
        losses,
        metrics,
        nn,
        onnx_backend,
        ops,
        optimizers,
        passes,
        preprocess,
        schedules,
        sync,
        training,
    )
    from linnet.autodiff import gradients
    from linnet.builder.control import cond, scan, while_loop
    from linnet.builder.mapping import pointwise
    from linnet.builder.straight_through import stop_gradient
    from linnet.clib.library import include_dir
    from linnet.conformance import check_device
    from linnet.converters.formats import load_graph
    from linnet.converters.onnx import from_onnx
    from linnet.converters.pytorch import from_torch
    from linnet.converters.tflite import from_tflite
    from linnet.facade import Graph
    from linnet.file.checkpoint import Checkpoint
    from linnet.ir.device_spec import DeviceSpec
    from linnet.ir.function import Function, Node, Tensor, Variable
    from linnet.ir.graph import Signature
    from linnet.ir.user_op import UserOp, load_user_ops
    from linnet.losses import softmax_cross_entropy
    from linnet.optimizers import (
        LAMB,
        LARS,
        LBFGS,
        SGD,
        AdaDelta,
        AdaGrad,
        Adam,
        AdamW,
        DynamicLossScale,
        Momentum,
        Optimizer,
        RMSProp,
    )
    from linnet.passes import replace_head
    from linnet.placing import Placement, place
    from linnet.quantization.aware import quantize_aware
    from linnet.quantization.entry import quantize
    from linnet.report.report import Report, check
    from linnet.session.checkpoint import load_checkpoint
    from linnet.session.device import devices, load_device
    from linnet.session.device_array import DeviceArray
    from linnet.session.model import Model, Store, isa_names
    from linnet.session.options import SessionOptions
    from linnet.session.packing import pack
    from linnet.session.session import Session
    from linnet.training import Callback, EarlyStopping, History, Saver, TensorBoard, evaluate, fit

_OPTIMIZERS = (
    "LAMB", "LARS", "LBFGS", "SGD", "AdaDelta", "AdaGrad", "Adam", "AdamW", "DynamicLossScale", "Momentum", "Optimizer",
    "RMSProp",
)  # fmt: skip
# A program that only runs models imports no graphs.
_TYPES = {
    "Function": "linnet.ir.function",
    "Node": "linnet.ir.function",
    "Signature": "linnet.ir.graph",
    "Tensor": "linnet.ir.function",
    "Variable": "linnet.ir.function",
}
_LAZY = {
    "Graph": "linnet.facade",
    "load_graph": "linnet.converters.formats",
    "from_onnx": "linnet.converters.onnx",
    "from_tflite": "linnet.converters.tflite",
    "from_torch": "linnet.converters.pytorch",
    "cond": "linnet.builder.control",
    "gradients": "linnet.autodiff",
    "replace_head": "linnet.passes",
    "Checkpoint": "linnet.file.checkpoint",
    "load_checkpoint": "linnet.session.checkpoint",
    "scan": "linnet.builder.control",
    "while_loop": "linnet.builder.control",
    "quantize": "linnet.quantization.entry",
    "quantize_aware": "linnet.quantization.aware",
    "stop_gradient": "linnet.builder.straight_through",
    "Report": "linnet.report.report",
    "check": "linnet.report.report",
    "pointwise": "linnet.builder.mapping",
    "Model": "linnet.session.model",
    "Session": "linnet.session.session",
    "Store": "linnet.session.model",
    "include_dir": "linnet.clib.library",
    "isa_names": "linnet.session.model",
    "SessionOptions": "linnet.session.options",
    "pack": "linnet.session.packing",
    "check_device": "linnet.conformance",
    "DeviceArray": "linnet.session.device_array",
    "DeviceSpec": "linnet.ir.device_spec",
    "Placement": "linnet.placing",
    "place": "linnet.placing",
    "devices": "linnet.session.device",
    "load_device": "linnet.session.device",
    "UserOp": "linnet.ir.user_op",
    "load_user_ops": "linnet.ir.user_op",
    "softmax_cross_entropy": "linnet.losses",
    **dict.fromkeys(_OPTIMIZERS, "linnet.optimizers"),
    **dict.fromkeys(
        ("Callback", "EarlyStopping", "History", "Saver", "TensorBoard", "evaluate", "fit"), "linnet.training"
    ),
}
_MODULES = (
    "autodiff",
    "clip",
    "converters",
    "data",
    "decoding",
    "facade",
    "init",
    "integers",
    "ir",
    "losses",
    "metrics",
    "nn",
    "onnx_backend",
    "ops",
    "optimizers",
    "passes",
    "preprocess",
    "schedules",
    "sync",
    "training",
)

__all__ = [
    "LAMB",
    "LARS",
    "LBFGS",
    "SGD",
    "AdaDelta",
    "AdaGrad",
    "Adam",
    "AdamW",
    "Callback",
    "Cancelled",
    "Checkpoint",
    "ConversionError",
    "DeadlineExceeded",
    "DeviceArray",
    "DeviceError",
    "DeviceSpec",
    "DynamicLossScale",
    "EarlyStopping",
    "Error",
    "FileError",
    "Function",
    "Graph",
    "GraphError",
    "History",
    "Model",
    "Momentum",
    "Node",
    "Optimizer",
    "Placement",
    "Problem",
    "Quantization",
    "RMSProp",
    "Report",
    "ResourceError",
    "Saver",
    "Session",
    "SessionOptions",
    "Signature",
    "Store",
    "SyncError",
    "Tensor",
    "TensorBoard",
    "TrainingError",
    "UsageError",
    "UserOp",
    "Variable",
    "autodiff",
    "check",
    "check_device",
    "clip",
    "cond",
    "converters",
    "data",
    "decoding",
    "devices",
    "evaluate",
    "fit",
    "from_onnx",
    "from_tflite",
    "from_torch",
    "gradients",
    "include_dir",
    "init",
    "integers",
    "isa_names",
    "load_checkpoint",
    "load_device",
    "load_graph",
    "load_user_ops",
    "losses",
    "metrics",
    "nn",
    "onnx_backend",
    "ops",
    "optimizers",
    "pack",
    "passes",
    "place",
    "pointwise",
    "preprocess",
    "quantize",
    "quantize_aware",
    "replace_head",
    "scan",
    "schedules",
    "softmax_cross_entropy",
    "stop_gradient",
    "sync",
    "training",
    "while_loop",
]  # fmt: skip


class _Package(ModuleType):
    def __reduce__(self) -> tuple[Any, ...]:
        """Makes cloudpickle send linnet to other processes by name. Without this method, cloudpickle does so only for
        plain modules."""
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Package
_PUBLIC.update(__all__)
_check_all(globals(), ("Quantization",))


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"linnet.{name}")
    if name in _TYPES:
        return globals().setdefault(name, getattr(import_module(_TYPES[name]), name))
    if name not in _LAZY:
        raise AttributeError(f"module 'linnet' has no attribute {name!r}")
    try:
        value = _checked(getattr(import_module(_LAZY[name]), name), f"linnet.{name}")
    except ModuleNotFoundError as missing:
        package = (missing.name or "linnet").partition(".")[0]
        if package == "linnet":
            raise
        raise UsageError(
            f"linnet.{name} needs the package {package}, which is not installed", hint=f"pip install {package}"
        ) from missing
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
