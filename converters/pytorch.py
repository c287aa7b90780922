"""`from_torch` converts PyTorch modules into linnet graphs, through torch's ONNX exporter and linnet's ONNX importer.
Nothing here depends on single torch ops. Needs the extra `linnet[torch]`."""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from linnet import passes
from linnet.clib.arguments import check_all
from linnet.clib.errors import ConversionError, Problem, UsageError
from linnet.converters.onnx import examine
from linnet.facade import Graph

IN_MEMORY = 1 << 30  # bytes of weights; protobuf holds at most 2 GiB, so larger models go through files


def from_torch(
    module: Any,
    example_inputs: Any,
    dynamic_shapes: Any = None,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset: int | None = None,
    optimize: bool = True,
    trainable: str | Sequence[str] | None = None,
) -> Graph:
    """Converts a torch.nn.Module in evaluation mode into a graph with the signature "infer".

    example_inputs: one tensor, or the tuple of forward's positional arguments; example_kwargs: its keyword arguments. Their
    dtypes and shapes matter, their values do not. dynamic_shapes: dimensions to leave open, in the form of torch.export:
    ({0: torch.export.Dim("batch")},) or {"x": {0: Dim("batch")}}. Inputs are named after forward's parameters. A single output
    is "output", a tuple gives "output_0", ..., a dict gives its keys; input_names and output_names override these names.
    opset: of the intermediate ONNX model (default: the exporter's). trainable: names of parameters, with `*` and `?`, that
    become variables ("*": all weights): see `linnet.passes.trainable`.
    Raises UsageError if torch is not installed or an argument is wrong. Raises ConversionError with the exporter's message if
    the exporter fails, or with every problem of the ONNX model.
    """
    torch = _torch()
    if not isinstance(module, torch.nn.Module):
        raise UsageError("from_torch needs a torch.nn.Module", code=101, got=type(module).__name__)
    arguments = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    if isinstance(example_inputs, list):
        arguments = tuple(example_inputs)
    modes = [(part, part.training) for part in module.modules()]  # submodules may have different modes
    module.eval()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # the exporter's warnings about itself
            program = torch.onnx.export(
                module, arguments, kwargs=dict(example_kwargs or {}), dynamo=True, verbose=False,
                dynamic_shapes=dynamic_shapes, input_names=input_names, opset_version=opset,
            )  # fmt: skip
    except Exception as error:  # the exporter passes on exceptions of torch.export, onnxscript and the module itself
        text = re.sub(r"\x1b\[[0-9;]*m", "", f"{type(error).__name__}: {error}")  # remove terminal colours
        problem = Problem(
            type(module).__name__, "torch.onnx.export", text,
            "this is the exporter's message: change the module or dynamic_shapes",
        )  # fmt: skip
        raise ConversionError([problem]) from error
    finally:
        for part, training in modes:
            part.training = training
    graph = _convert(
        program, sum(p.nbytes for p in (*module.parameters(), *module.buffers())), optimize, trainable is not None
    )
    graph.metadata["source"] = "torch"
    signature = graph.signatures["infer"]
    names = list(output_names or _names_of(program.exported_program, len(signature.outputs)))
    if len(names) != len(signature.outputs) or len(set(names)) != len(names):
        raise UsageError(
            "the output names do not match the module's outputs", code=101,
            expected=f"{len(signature.outputs)} different names", got=", ".join(names),
        )  # fmt: skip
    signature.outputs[:] = names
    return graph if trainable is None else passes.trainable(graph, trainable)


def _torch() -> Any:
    """Imports torch and the packages that its exporter needs."""
    try:
        import onnxscript  # noqa: F401
        import torch
        import torch.onnx
    except ImportError as error:
        raise UsageError(
            f"from_torch needs torch and onnxscript ({error})", code=101, hint='pip install "linnet[torch]"'
        ) from None
    return torch


def _convert(program: Any, weights: int, optimize: bool, keep: bool) -> Graph:
    def converted(model: onnx.ModelProto | Path) -> Graph:
        conversion = examine(model, optimize=optimize, weights=not keep)
        if conversion.problems:
            raise ConversionError(conversion.problems)
        return conversion.graph

    if weights < IN_MEMORY:
        return converted(program.model_proto)
    with tempfile.TemporaryDirectory(prefix="linnet-torch-") as folder:
        path = Path(folder) / "model.onnx"
        program.save(str(path), external_data=True)
        graph = converted(path)
        for function in graph.functions:
            for tensor in function.tensors():  # the temporary files will be deleted
                if tensor.data is not None and not tensor.data.flags.owndata:
                    tensor.data = tensor.data.copy()
        return graph


def _names_of(exported: Any, count: int) -> list[str]:
    """Names the outputs after the structure that forward returns: "output", "output_0", or the keys of a dict."""
    from torch.utils import _pytree as pytree

    structure = pytree.tree_unflatten(list(range(count)), exported.call_spec.out_spec)
    if not isinstance(structure, Mapping | list | tuple):
        return ["output"]
    names = dict(_leaves(structure, ()))
    return [
        "_".join(map(str, names[i] if isinstance(names[i][0], str) else ("output", *names[i]))) for i in range(count)
    ]


def _leaves(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for key, item in zip(getattr(value, "_fields", range(len(value))), value, strict=True):
            yield from _leaves(item, (*path, key))
    elif value is not None:
        yield value, path


check_all(globals(), ("from_torch",))
