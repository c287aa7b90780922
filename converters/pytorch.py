"""`from_torch` converts PyTorch modules into linnet graphs, through torch's ONNX exporter and linnet's ONNX importer.
Nothing here depends on particular torch ops. Needs the extra `torch`."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from linnet import passes
from linnet.clib.arguments import check_all
from linnet.clib.errors import ConversionError, Problem, UsageError
from linnet.converters import torch_check
from linnet.converters.onnx import examine
from linnet.converters.outline import Conversion
from linnet.facade import Graph
from linnet.ir.user_op import UserOp

IN_MEMORY = 1 << 30  # bytes of weights; protobuf holds at most 2 GiB, so larger models go through files


def from_torch(
    module: Any,
    example_inputs: Any = None,
    dynamic_shapes: Any = None,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset: int | None = None,
    optimize: bool = True,
    trainable: str | Sequence[str] | None = None,
    verify: bool = True,
) -> Graph:
    """Converts a torch.nn.Module in evaluation mode, or a torch.export.ExportedProgram, into a graph with the signature "infer".
    `linnet.load_graph` reads files with saved modules.

    example_inputs: one tensor, or the tuple of forward's positional arguments; example_kwargs: its keyword arguments.
    Their dtypes and shapes matter, but their values do not. An ExportedProgram has its own example inputs.
    dynamic_shapes: dimensions to leave open, in the form of torch.export: ({0: torch.export.Dim("batch")},) or {"x":
    {0: Dim("batch")}}. Inputs are named after forward's parameters. A single output is "output", a tuple gives
    "output_0", ..., a dict gives its keys; input_names and output_names override these names.
    opset: the opset of the intermediate ONNX model (default: the exporter's default). trainable: names of parameters
    that become variables (`*` and `?` are wildcards; "*": all parameters). See `linnet.passes.trainable`.
    verify: runs the module and the graph once on the example inputs and compares the outputs, because the exporter can
    lose parts of a module. It is left out if the module draws random numbers.
    Raises UsageError if torch is not installed or an argument is wrong. Raises ConversionError with the exporter's message
    if the exporter fails, with every problem of the ONNX model, if an output differs, or if a dimension that
    `dynamic_shapes` leaves open has become fixed.
    """
    torch = imported_torch("from_torch")
    saved = isinstance(module, torch.export.ExportedProgram)
    if not saved and (not isinstance(module, torch.nn.Module) or isinstance(module, torch.jit.ScriptModule)):
        raise UsageError(
            "from_torch needs a torch.nn.Module or a torch.export.ExportedProgram", code=101, got=type(module).__name__,
            hint="for a file of torch.export.save or torch.jit.save, call linnet.load_graph(path)",
        )  # fmt: skip
    if saved == (example_inputs is not None):
        raise UsageError(
            "an ExportedProgram has its own inputs" if saved else "the module's inputs are missing", code=105,
            tensor="example_inputs", hint="leave out example_inputs" if saved else "give tensors of their shapes",
        )  # fmt: skip
    arguments = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    if isinstance(example_inputs, list):
        arguments = tuple(example_inputs)
    kwargs = dict(example_kwargs or {})
    options: dict[str, Any] = {"dynamic_shapes": dynamic_shapes, "input_names": input_names, "opset_version": opset}

    def convert(**more: Any) -> Conversion:
        given = () if saved else arguments
        program = (export if saved else _open)(module, given, kwargs=kwargs, **options, **more)
        return converted(program, optimize=optimize, weights=trainable is None, output_names=output_names)

    # The exporter's optimizer merges parameters that are equal at the moment, and gives others new names.
    conversion = convert() if trainable is None else convert(optimize=False)
    if conversion.problems and trainable is not None:
        conversion = convert()
    if saved:
        arguments, kwargs = module.example_inputs or ((), {})
    if verify:
        with evaluating(module):
            conversion = torch_check.compared(conversion, module.module() if saved else module, arguments, kwargs)
    if conversion.problems:
        raise ConversionError(conversion.problems)
    if trainable is None:
        return conversion.graph
    parameters = {name: value.detach().cpu().float().numpy() for name, value in module.named_parameters()}
    return passes.trainable(conversion.graph, trainable, parameters)


def _open(module: Any, arguments: tuple[Any, ...], *, kwargs: dict[str, Any], **options: Any) -> Any:
    """Exports a module. If an open dimension becomes fixed because its size in the example is 1, the module is exported
    again with an example of size 2. Raises ConversionError if a dimension stays fixed."""
    shapes = options["dynamic_shapes"]
    program = export(module, arguments, kwargs=kwargs, **options)
    found = torch_check.fixed(program, torch_check.tensors_of(module, arguments, kwargs, shapes))
    if any(size == 1 for _, _, size in found):
        specs = torch_check.specs_of(module, arguments, kwargs, shapes)
        more = [torch_check.larger(v, spec) for v, spec in zip((*arguments, *kwargs.values()), specs, strict=True)]
        arguments, kwargs = tuple(more[: len(arguments)]), dict(zip(kwargs, more[len(arguments) :], strict=True))
        with contextlib.suppress(ConversionError):
            again = export(module, arguments, kwargs=kwargs, **options)
            program, found = again, torch_check.fixed(again, torch_check.tensors_of(module, arguments, kwargs, shapes))
    torch_check.refuse_fixed(type(module).__name__, found)
    return program


@contextlib.contextmanager
def evaluating(module: Any) -> Iterator[None]:
    """Puts a module and its submodules, which may have different modes, into evaluation mode for a while."""
    import torch

    modes = [(part, part.training) for part in (module.modules() if isinstance(module, torch.nn.Module) else ())]
    if modes:
        module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def imported_torch(what: str) -> Any:
    """Returns torch, if torch and the package that its exporter needs are installed. what: the subject of the error
    "... needs torch"."""
    try:
        import onnxscript  # noqa: F401
        import torch
        import torch.onnx
    except ImportError as error:
        raise UsageError(
            f"{what} needs torch and onnxscript ({error})", code=101, hint="pip install 'linnet-runtime[torch]'"
        ) from None
    return torch


def failed(name: str, error: Exception, hint: str) -> ConversionError:
    """The error for an exporter that raised this exception."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", f"{type(error).__name__}: {error}")  # remove terminal colours
    return ConversionError([Problem(name, "torch.onnx.export", text, hint)])


@contextlib.contextmanager
def _errors_only() -> Iterator[None]:
    """Prevents torch's exporter from logging messages that have nothing to do with the module, such as that torchvision
    is not installed."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(max(before, logging.ERROR))
    try:
        yield
    finally:
        log.setLevel(before)


def export(
    module: Any,
    arguments: tuple[Any, ...],
    hint: str = "this is the exporter's message: change the module or dynamic_shapes",
    **options: Any,
) -> Any:
    """The torch.onnx.ONNXProgram of a module in evaluation mode, or of an ExportedProgram. If the exporter fails,
    raises ConversionError with `hint`, which says what to do."""
    import torch
    import torch.onnx

    try:
        with evaluating(module), torch.no_grad(), _errors_only(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # the exporter's warnings about itself
            return torch.onnx.export(module, arguments, dynamo=True, verbose=False, **options)
    except Exception as error:  # the exporter passes on exceptions of torch.export, onnxscript and the module itself
        raise failed(type(module).__name__, error, hint) from error


def converted(
    program: Any,
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    optimize: bool = True,
    weights: bool = True,
    user_ops: Iterable[UserOp] = (),
    output_names: Sequence[str] | None = None,
) -> Conversion:
    """The graph of a torch.onnx.ONNXProgram. shapes: sizes for dimensions that it leaves open. weights: see
    `linnet.converters.onnx.examine`."""
    exported = program.exported_program
    tensors = {**exported.state_dict, **{k: v for k, v in exported.constants.items() if hasattr(v, "nbytes")}}
    if sum(tensor.nbytes for tensor in tensors.values()) < IN_MEMORY:
        conversion = examine(program.model_proto, shapes, optimize, weights, user_ops)
    else:
        with tempfile.TemporaryDirectory(prefix="linnet-torch-") as folder:
            path = Path(folder) / "model.onnx"
            program.save(str(path), external_data=True)
            conversion = examine(path, shapes, optimize, weights, user_ops)
            for function in conversion.graph.functions:
                for tensor in function.tensors():  # the temporary files will be deleted
                    if tensor.data is not None and not tensor.data.flags.owndata:
                        tensor.data = tensor.data.copy()
    if conversion.problems:
        return as_torch(conversion, ())
    count = len(conversion.graph.signatures["infer"].outputs)
    return as_torch(conversion, output_names or _names_of(exported, count))


def as_torch(conversion: Conversion, output_names: Sequence[str]) -> Conversion:
    """Gives the outputs of a conversion these names. The module was exported to ONNX before. If the conversion has
    problems, the names stay as they are."""
    conversion.graph.metadata["source"] = "torch"
    if not conversion.problems:
        signature, names = conversion.graph.signatures["infer"], list(output_names)
        if len(names) != len(signature.outputs) or len(set(names)) != len(names):
            raise UsageError(
                "the output names do not match the module's outputs", code=101,
                expected=f"{len(signature.outputs)} different names", got=", ".join(names),
            )  # fmt: skip
        signature.outputs[:] = names
    outline = conversion.outline
    return dataclasses.replace(conversion, outline=lambda: dataclasses.replace(outline(), format="torch"))


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
