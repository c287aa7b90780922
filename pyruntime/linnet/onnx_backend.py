"""linnet as a backend of the onnx package: prepare, run_model, supports_device.
ONNX's own conformance tests run through it as well."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

from linnet.clib.arguments import check_all
from linnet.clib.errors import UsageError
from linnet.converters.onnx import from_onnx, narrow
from linnet.converters.onnx.interface import INPUTS, OUTPUTS
from linnet.converters.onnx.values import MAX_RANK
from linnet.facade import Graph
from linnet.ir.dtypes import numpy_dtype

Array = npt.NDArray[Any]
__all__ = ["LinnetBackend", "LinnetRep", "prepare", "run_model", "supports_device"]


class LinnetRep(BackendRep):  # type: ignore[misc]  # onnx ships it untyped
    """A converted model and its session."""

    def __init__(self, graph: Graph, threads: int | None = None) -> None:
        from linnet.session.session import Session

        self.graph = graph
        self.signature = graph.signatures["infer"]
        self.input_names: list[str] = json.loads(graph.metadata.get(INPUTS, "null")) or self.signature.inputs
        self.output_names: list[str] = json.loads(graph.metadata.get(OUTPUTS, "null")) or self.signature.outputs
        self.specs = dict(zip(self.signature.inputs, self.signature.function.inputs, strict=True))
        self.session = Session(graph, threads=threads)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs in the model's order. inputs: a list of values in the order of the inputs, or {name: value}.

        bf16 and narrow types (int4, float8e4m3fn, ...) are ml_dtypes arrays; bf16 may also be fed as uint16 bit
        patterns. Sequences are lists of arrays. An optional may be None.
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
        results = self.session.run({k: v for name, value in feeds.items() for k, v in self._fed(name, value).items()})
        values = [self._shown(name, results) for name in self.output_names]
        return tuple(namedtupledict("Outputs", self.output_names)(*values))

    def _type(self, name: str) -> tuple[bool, bool, narrow.Kind | None]:
        """Whether an input or output is an optional, whether it is a sequence, and its element type if this type is
        narrow."""
        text, wrapped = self.graph.metadata.get(narrow.METADATA + name, ""), []
        for wrapper in ("optional(", "sequence("):
            wrapped.append(text.startswith(wrapper))
            text = text[len(wrapper) : -1] if wrapped[-1] else text
        return wrapped[0], wrapped[1], narrow.BY_NAME.get(text)

    def _fed(self, name: str, value: Any) -> dict[str, Array]:
        """The session's inputs for one input of the model."""
        optional, sequence, kind = self._type(name)
        if not optional and not sequence:
            return {name: _stored(value, kind)}
        feeds: dict[str, Array] = {}
        if f"{name}.present" in self.specs:
            feeds[f"{name}.present"] = np.array(value is not None)
        elif value is None and not optional:
            raise UsageError("the input is not optional and needs a value", code=105, tensor=name)
        parts = {n: t for n, t in self.specs.items() if n.startswith(f"{name}.") or n == name}
        if value is None:  # nothing reads these inputs
            empty = {
                n: [d if isinstance(d, int) else 0 for d in ((None,) if t.shape is None else t.shape)]
                for n, t in parts.items()
            }
            return {n: np.zeros(shape, numpy_dtype(parts[n].dtype)) for n, shape in empty.items()} | feeds
        if not sequence:
            return feeds | {name if name in self.specs else f"{name}.value": _stored(value, kind)}
        arrays = [_stored(array, kind) for array in value]
        if f"{name}.shapes" not in self.specs:
            return feeds | {f"{name}.{i}": array for i, array in enumerate(arrays)}
        spec = self.specs[f"{name}.values"]
        flat = [np.zeros(0, numpy_dtype(spec.dtype)), *(a.reshape(-1) for a in arrays)]
        columns = (self.specs[f"{name}.shapes"].shape or (0, 0))[1]
        if columns == 1 + MAX_RANK:
            rows = [[a.ndim, *a.shape, *[1] * (MAX_RANK - a.ndim)] for a in arrays]
        else:
            rows = [list(a.shape) for a in arrays]
        shapes = np.array(rows, np.int64).reshape(len(arrays), -1 if arrays and columns else int(columns or 0))
        return feeds | {f"{name}.values": np.concatenate(flat), f"{name}.shapes": shapes}

    def _shown(self, name: str, results: Mapping[str, Array]) -> Any:
        """One output of the model, assembled from the session's outputs."""
        optional, sequence, kind = self._type(name)

        def values(array: Array, stored: str) -> Array:
            if kind is not None:
                return kind.values(array)
            return array

        if optional and not results.get(f"{name}.present", np.array(True)):
            return None
        if not sequence:
            stored = name if name in results else f"{name}.value"
            return values(results[stored], stored) if stored in results else None
        if f"{name}.shapes" not in results:
            items = [n for n in self.signature.outputs if n.startswith(f"{name}.") and n[len(name) + 1 :].isdigit()]
            return [values(results[n], n) for n in items]
        flat, shapes = results[f"{name}.values"], results[f"{name}.shapes"]
        if shapes.shape[1] == 1 + MAX_RANK:
            dims = [tuple(int(d) for d in row[1 : 1 + row[0]]) for row in shapes]
        else:
            dims = [tuple(int(d) for d in row) for row in shapes]
        ends = np.cumsum([0, *(math.prod(d) for d in dims)])
        return [
            values(flat[a:b].reshape(d), f"{name}.values") for a, b, d in zip(ends[:-1], ends[1:], dims, strict=True)
        ]


def _stored(value: Any, kind: narrow.Kind | None) -> Array:
    """Converts an array or a TensorProto to an array that the session accepts."""
    array = np.asarray(onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value)
    if kind is not None:
        return kind.codes(array)
    return array


class LinnetBackend(Backend):  # type: ignore[misc]
    """onnx.backend.base.Backend on top of linnet's C runtime."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> LinnetRep:
        """Converts and plans a model. kwargs: input_shapes, threads. Raises ConversionError with every problem of the
        model."""
        if not cls.supports_device(device):
            raise UsageError(f"device {device!r} is not supported", code=101, expected="CPU", got=device)
        return LinnetRep(from_onnx(model, kwargs.get("input_shapes")), kwargs.get("threads"))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Calls `prepare`, then runs once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Runs one node on arrays for its named inputs, at the newest opset that both linnet and the onnx package
        support."""
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


check_all(globals(), ("LinnetBackend", "LinnetRep"))
prepare = LinnetBackend.prepare
run_model = LinnetBackend.run_model
run_node = LinnetBackend.run_node
supports_device = LinnetBackend.supports_device
