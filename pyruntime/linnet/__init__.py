"""linnet: an embeddable inference-and-training runtime. Build or convert a Graph, save it, run it in a Session.
Heavy parts (converters, quantizer, command line) are imported when they are first used."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from linnet.errors import (
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
from linnet.graph import Function, Graph, Node, Quantization, Signature, Tensor, Variable

if TYPE_CHECKING:
    from linnet import (
        autodiff,
        clip,
        converters,
        data,
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
    from linnet.checkpoint import Checkpoint, load_checkpoint
    from linnet.control import cond, scan, while_loop
    from linnet.converters.onnx import from_onnx
    from linnet.converters.pytorch import from_torch
    from linnet.converters.tflite import from_tflite
    from linnet.losses import softmax_cross_entropy
    from linnet.mapping import pointwise
    from linnet.model import Model, Store, isa_names, load_device
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
    from linnet.quantize import quantize
    from linnet.quantize_aware import quantize_aware
    from linnet.report import Report, check
    from linnet.session import Session
    from linnet.straight_through import stop_gradient
    from linnet.training import Callback, EarlyStopping, History, Saver, TensorBoard, evaluate, fit

__version__ = "0.1.0"

_OPTIMIZERS = (
    "LAMB", "LARS", "LBFGS", "SGD", "AdaDelta", "AdaGrad", "Adam", "AdamW", "DynamicLossScale", "Momentum", "Optimizer",
    "RMSProp",
)  # fmt: skip
_LAZY = {
    "from_onnx": "linnet.converters.onnx",
    "from_tflite": "linnet.converters.tflite",
    "from_torch": "linnet.converters.pytorch",
    "cond": "linnet.control",
    "gradients": "linnet.autodiff",
    "replace_head": "linnet.passes",
    "Checkpoint": "linnet.checkpoint",
    "load_checkpoint": "linnet.checkpoint",
    "scan": "linnet.control",
    "while_loop": "linnet.control",
    "quantize": "linnet.quantize",
    "quantize_aware": "linnet.quantize_aware",
    "stop_gradient": "linnet.straight_through",
    "Report": "linnet.report",
    "check": "linnet.report",
    "pointwise": "linnet.mapping",
    "Model": "linnet.model",
    "Session": "linnet.session",
    "Store": "linnet.model",
    "isa_names": "linnet.model",
    "load_device": "linnet.model",
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
    "init",
    "integers",
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
    "DeviceError",
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
    "Problem",
    "Quantization",
    "RMSProp",
    "Report",
    "ResourceError",
    "Saver",
    "Session",
    "Signature",
    "Store",
    "SyncError",
    "Tensor",
    "TensorBoard",
    "TrainingError",
    "UsageError",
    "Variable",
    "autodiff",
    "check",
    "clip",
    "cond",
    "converters",
    "data",
    "evaluate",
    "fit",
    "from_onnx",
    "from_tflite",
    "from_torch",
    "gradients",
    "init",
    "integers",
    "isa_names",
    "load_checkpoint",
    "load_device",
    "losses",
    "metrics",
    "nn",
    "onnx_backend",
    "ops",
    "optimizers",
    "passes",
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
    """Keeps linnet.quantize the function, though importing the module of that name would replace it."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _LAZY and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Functions that use linnet travel to other processes with it by name (cloudpickle does so for plain modules only)."""
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"linnet.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'linnet' has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
