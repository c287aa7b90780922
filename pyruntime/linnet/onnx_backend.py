"""linnet as a backend of the onnx package: prepare, run_model, supports_device.
Also the harness that ONNX's own conformance tests run through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

from linnet.converters.onnx import from_onnx, narrow
from linnet.errors import UsageError
from linnet.graph import Graph

__all__ = ["LinnetBackend", "LinnetRep", "prepare", "run_model", "supports_device"]


class LinnetRep(BackendRep):  # type: ignore[misc]  # onnx ships it untyped
    """A converted model with its session."""

    def __init__(self, graph: Graph, threads: int | None = None) -> None:
        from linnet.session import Session

        self.graph = graph
        signature = graph.signatures["infer"]
        self.input_names, self.output_names = signature.inputs, signature.outputs
        self.session = Session(graph, threads=threads)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Outputs in the model's order, for a list of arrays in the order of the inputs or a {name: array}.

        bf16 values may be ml_dtypes.bfloat16 arrays or their uint16 bit patterns; they come back as bit patterns. Narrow
        types (int4, float8e4m3fn, ...) are arrays of ml_dtypes.
        """
        if isinstance(inputs, Mapping):
            feeds = dict(inputs)
        else:
            arrays: Sequence[Any] = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
            if len(arrays) != len(self.input_names):
                raise UsageError(
                    "wrong number of inputs",
                    code=105,
                    expected=str(len(self.input_names)),
                    got=str(len(arrays)),
                )
            feeds = dict(zip(self.input_names, arrays, strict=True))
        results = self.session.run({name: self._stored(name, value) for name, value in feeds.items()})
        values = [self._shown(name, results[name]) for name in self.output_names]
        return tuple(namedtupledict("Outputs", self.output_names)(*values))

    def _stored(self, name: str, value: Any) -> npt.NDArray[Any]:
        """An array that the session takes, of an array or a TensorProto."""
        array = np.asarray(onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value)
        if (kind := narrow.BY_NAME.get(self.graph.metadata.get(narrow.METADATA + name, ""))) is not None:
            return kind.codes(array)
        return array.view(np.uint16) if array.dtype.name == "bfloat16" else array

    def _shown(self, name: str, value: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A result of the session as an array of its ONNX type."""
        kind = narrow.BY_NAME.get(self.graph.metadata.get(narrow.METADATA + name, ""))
        return value if kind is None else kind.values(value)


class LinnetBackend(Backend):  # type: ignore[misc]
    """onnx.backend.base.Backend on linnet's C runtime."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> LinnetRep:
        """Converts and plans. kwargs: input_shapes, threads. Raises ConversionError with every problem of the model."""
        if not cls.supports_device(device):
            raise UsageError(f"device {device!r} is not supported", code=101, expected="CPU", got=device)
        return LinnetRep(from_onnx(model, kwargs.get("input_shapes")), kwargs.get("threads"))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """`prepare`, then one run."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """One node, on arrays for its named inputs, at the newest opset that linnet and the onnx package know."""
        from linnet.converters.onnx.registry import NEWEST_OPSET

        arrays = [np.asarray(value) for value in inputs]
        names = [name for name in node.input if name]
        infos = [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for name, a in zip(names, arrays, strict=True)
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "node", infos, outputs)
        opset = min(onnx.defs.onnx_opset_version(), NEWEST_OPSET)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
        return cls.run_model(model, dict(zip(names, arrays, strict=True)), device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Only "CPU", with or without an index of 0."""
        return device in ("CPU", "CPU:0")


prepare = LinnetBackend.prepare
run_model = LinnetBackend.run_model
run_node = LinnetBackend.run_node
supports_device = LinnetBackend.supports_device
