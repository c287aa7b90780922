"""Reads a model file of any format into a graph. recognition.py finds out which importer reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from linnet.clib.arguments import check_all
from linnet.clib.errors import ConversionError, FileError, UsageError
from linnet.converters.outline import Conversion
from linnet.converters.recognition import format_of, is_linnet, is_tflite, is_torch
from linnet.facade import Graph
from linnet.ir.user_op import UserOp


def load_graph(
    path: str | Path,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    user_ops: Iterable[UserOp] = (),
    trust_pickle: bool = False,
) -> Graph:
    """Reads a model whose format linnet recognizes by its content: ONNX, TFLite, .lnt, or a saved PyTorch module (a
    .pt2 file, a TorchScript archive, or a pickle).

    input_shapes: {input name: shape} fixes dimensions that the model leaves open. TorchScript archives and pickled
    modules record no shapes. So each of their inputs needs a shape here, and is f32. user_ops: the user ops
    that the model names. trust_pickle: also read pickled modules. Reading them runs the code that they name. Raises
    FileError if the file cannot be read. Raises ConversionError, whose `.problems` lists every problem, if the model
    cannot be converted. Raises UsageError for a wrong or missing shape, for an untrusted pickle, or if torch is needed
    but not installed.
    """
    if is_linnet(path):
        return _fixed(Graph.load(path, user_ops=user_ops), input_shapes or {})
    conversion = examine(path, input_shapes, user_ops, trust_pickle)
    if conversion.problems:
        raise ConversionError(conversion.problems, str(path))
    return conversion.graph


def examine(
    path: str | Path,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    user_ops: Iterable[UserOp] = (),
    trust_pickle: bool = False,
) -> Conversion:
    """Like `load_graph`, but returns the problems together with the part of the graph that could be converted. Raises
    FileError for a .lnt file, because there is nothing to convert."""
    from linnet.converters import onnx, tflite

    kind, shapes = format_of_model(path), input_shapes or None
    if kind == "torch":
        from linnet.converters import torch_files

        return torch_files.examine(path, shapes, user_ops=user_ops, trust_pickle=trust_pickle)
    importer: Any = {"onnx": onnx, "tflite": tflite}[kind]
    conversion: Conversion = importer.examine(path, shapes, user_ops=user_ops)
    return conversion


def format_of_model(path: str | Path) -> str:
    """Returns "onnx", "tflite" or "torch". Raises FileError for a folder, or a file of another format."""
    return format_of(path, _is_onnx)


def bytes_of_model(path: str | Path) -> int:
    """The size of a model in bytes: its file, and the files beside it in which an ONNX model stores tensors. For other
    formats, or if the file is not a model, the size of the file."""
    path = Path(path)
    size = path.stat().st_size
    if is_linnet(path) or is_tflite(path) or is_torch(path):
        return size
    from linnet.converters.onnx import loader

    try:
        return size + sum(file.stat().st_size for file in loader.data_files(path))
    except FileError:
        return size


def _fixed(graph: Graph, shapes: Mapping[str, Sequence[int]]) -> Graph:
    """The graph, with these shapes for its inputs. Dimensions with the same name get the same size."""
    from linnet.preprocess._edit import refresh_shapes

    signature = graph.signatures["infer"]
    inputs = dict(zip(signature.inputs, signature.function.inputs, strict=True))
    sizes: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in inputs:
            raise UsageError(
                f"the model has no input named {name!r}",
                code=102,
                tensor=name,
                expected=" or ".join(inputs) or "a model with inputs",
            )
        old, new = inputs[name].shape, tuple(int(d) for d in shape)
        if old is not None and not (
            len(old) == len(new) and all(not isinstance(a, int) or a == b for a, b in zip(old, new, strict=True))
        ):
            declared = ", ".join("?" if d is None else str(d) for d in old)
            raise UsageError(
                f"input {name!r} cannot have this shape",
                code=104,
                tensor=name,
                expected=f"[{declared}]",
                got=str(list(new)),
            )
        sizes |= {a: b for a, b in zip(old or (), new, strict=False) if isinstance(a, str)}
        inputs[name].shape = new
    for tensor in inputs.values():
        if tensor.shape is not None:
            tensor.shape = tuple(sizes.get(d, d) if isinstance(d, str) else d for d in tensor.shape)
    if shapes:
        refresh_shapes(signature.function)
    return graph


def _is_onnx(path: Path) -> bool:
    """Whether a file is an ONNX model although it has the extension of another format."""
    from linnet.converters.onnx import loader

    try:
        return bool(loader.load(path)[0].graph.node)
    except FileError:
        return False


check_all(globals(), ("load_graph",))
