"""Checks what torch's exporter made of a module: whether the dimensions that the caller leaves open stayed open, and whether
the converted graph computes what the module computes on the example inputs."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet._generated.op_table import OPS
from linnet.clib.errors import ConversionError, Problem
from linnet.converters.outline import Conversion
from linnet.facade import Graph
from linnet.ir import traits
from linnet.ir.dtypes import has_floats

Array = npt.NDArray[Any]
_TOLERANCE = {"float16": 2e-2, "bfloat16": 5e-2}  # of the largest value; for other floats 1e-3
_DRAWS = frozenset(op for op in OPS if traits.operands(op, "role", "counter"))


# ---- open dimensions ---------------------------------------------------------------------------------------------------


def specs_of(module: Any, arguments: tuple[Any, ...], kwargs: Mapping[str, Any], shapes: Any) -> list[Any]:
    """The entry of `dynamic_shapes` for each positional argument, and then for each keyword argument."""
    keys: list[Any] = [*range(len(arguments)), *kwargs]
    if isinstance(shapes, Mapping):
        names = [name for name, p in _parameters(module).items() if p.kind is not p.VAR_POSITIONAL]
        return [shapes.get(names[key] if isinstance(key, int) and key < len(names) else key) for key in keys]
    given = list(shapes) if isinstance(shapes, list | tuple) else []
    return [given[i] if i < len(given) else None for i in range(len(keys))]


def tensors_of(
    module: Any, arguments: tuple[Any, ...], kwargs: Mapping[str, Any], shapes: Any
) -> list[tuple[Any, list[int]]]:
    """The tensors among the example inputs, in the order of forward's parameters, and the dimensions of each that
    `dynamic_shapes` leaves open."""
    specs = specs_of(module, arguments, kwargs, shapes)
    order = {name: i for i, name in enumerate(_parameters(module))}
    keyword = sorted(zip(kwargs, specs[len(arguments) :], strict=True), key=lambda pair: order.get(pair[0], len(order)))
    pairs = [*zip(arguments, specs, strict=False), *((kwargs[name], spec) for name, spec in keyword)]
    return [leaf for value, spec in pairs for leaf in _leaves(value, spec)]


def _parameters(module: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(module.forward).parameters
    except (AttributeError, TypeError, ValueError):
        return {}


def _leaves(value: Any, spec: Any) -> Iterator[tuple[Any, list[int]]]:
    import torch

    if isinstance(value, torch.Tensor):
        entries = (
            spec.items() if isinstance(spec, Mapping) else enumerate(spec) if isinstance(spec, list | tuple) else ()
        )
        yield value, [int(axis) for axis, dim in entries if _is_open(dim)]
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, spec.get(key) if isinstance(spec, Mapping) else None)
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _leaves(item, spec[i] if isinstance(spec, list | tuple) and i < len(spec) else None)


def _is_open(dim: Any) -> bool:
    """Whether an entry of dynamic_shapes says that the dimension is open, and does not leave this to the exporter."""
    if dim is None or isinstance(dim, int):
        return False
    return getattr(getattr(dim, "type", None), "name", "DYNAMIC") not in ("AUTO", "STATIC")


def fixed(program: Any, tensors: Sequence[tuple[Any, list[int]]]) -> list[tuple[str, int, int]]:
    """The open dimensions that became fixed in the exported model: (input, axis, size)."""
    inputs = program.model_proto.graph.input
    if len(inputs) != len(tensors):  # inputs that are no tensors, or that the exporter has removed
        return []
    found = []
    for made, (_, axes) in zip(inputs, tensors, strict=True):
        dims = made.type.tensor_type.shape.dim
        found += [(made.name, a, dims[a].dim_value) for a in axes if a < len(dims) and dims[a].HasField("dim_value")]
    return found


def larger(value: Any, spec: Any) -> Any:
    """The example inputs with two elements instead of one along each open dimension, because the exporter takes a size of
    1 for a constant."""
    import torch

    if isinstance(value, torch.Tensor):
        for _, axes in _leaves(value, spec):
            for axis in axes:
                value = torch.cat([value, value], axis) if value.shape[axis] == 1 else value
        return value
    if isinstance(value, Mapping):
        return {k: larger(v, spec.get(k) if isinstance(spec, Mapping) else None) for k, v in value.items()}
    if isinstance(value, list | tuple) and isinstance(spec, list | tuple):
        return type(value)(larger(v, spec[i] if i < len(spec) else None) for i, v in enumerate(value))
    return value


def refuse_fixed(name: str, found: Sequence[tuple[str, int, int]]) -> None:
    """Raises ConversionError if an open dimension became fixed."""
    if found:
        where = ", ".join(f"dimension {axis} of {name!r} at {size}" for name, axis, size in found)
        raise ConversionError([
            Problem(
                name, "torch.onnx.export", f"the exporter fixed {where}, which dynamic_shapes leaves open",
                "give an example input with another size there, or leave the dimension out of dynamic_shapes",
            )
        ])  # fmt: skip


# ---- results -----------------------------------------------------------------------------------------------------------


def compared(conversion: Conversion, module: Any, arguments: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Conversion:
    """The conversion, with the outputs that differ from the module's as problems. See `differences`."""
    if conversion.problems:
        return conversion
    return dataclasses.replace(conversion, problems=differences(conversion.graph, module, arguments, kwargs))


def differences(graph: Graph, module: Any, arguments: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Problem]:
    """Runs the module and the graph on the example inputs. Returns a problem for each output that differs; none if the two
    cannot be compared, because the module draws random numbers, or the inputs of the graph are not its tensors."""
    signature = graph.signatures["infer"]
    if any(node.op in _DRAWS for function in graph.functions for node in function.nodes):
        return []
    feeds = [_array(t) for t, _ in tensors_of(module, arguments, kwargs, None)]
    if len(feeds) != len(signature.inputs):
        return []
    first, second = _results(module, arguments, kwargs), _results(module, arguments, kwargs)
    if len(first) != len(signature.outputs) or not all(map(_same, first, second)):
        return []
    from linnet.session.session import Session

    with Session(graph) as session:
        got = session.run(dict(zip(signature.inputs, feeds, strict=True)))
    problems = []
    for name, want in zip(signature.outputs, first, strict=True):
        if what := difference(got[name], want):
            problems.append(
                Problem(
                    name,
                    "from_torch",
                    f"output {name!r} of the converted graph differs from the module's: {what}",
                    "the exporter lost a part of the module: rewrite this part with other functions of torch, or skip this "
                    "comparison with verify=False",
                )
            )
    return problems


def difference(got: Array, want: Array) -> str:
    """What is different between two arrays, or "" if they agree to rounding. Integers and truth values may differ in one
    element of a hundred, because rounding decides between equal values."""
    if got.shape != want.shape:
        return f"its shape is {list(got.shape)}, not {list(want.shape)}"
    if not want.size:
        return ""
    if not has_floats(want):
        wrong = int((got != want).sum())
        return f"{wrong} of its {want.size} elements are others" if 100 * wrong > want.size and wrong > 1 else ""
    a, b = got.astype(np.float64), want.astype(np.float64)
    known = np.isfinite(b)
    if not np.array_equal(a[~known], b[~known], equal_nan=True) or not np.isfinite(a[known]).all():
        return "other elements are infinite or not a number"
    scale = float(np.abs(b[known]).max(initial=0.0))
    largest = float(np.abs(a - b)[known].max(initial=0.0))
    limit = _TOLERANCE.get(want.dtype.name, 1e-3) * scale + 1e-6
    return f"the largest difference is {largest:.3g}, and the largest value is {scale:.3g}" if largest > limit else ""


def _same(a: Array, b: Array) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def _array(tensor: Any) -> Array:
    import torch

    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        return np.asarray(tensor.view(torch.int16).numpy()).view(ml_dtypes.bfloat16)
    return np.asarray(tensor.numpy())


def _results(module: Any, arguments: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Array]:
    """The module's outputs in evaluation mode. Its buffers and modes are left as they were."""
    import torch
    from torch.utils import _pytree as pytree

    buffers = [(b, b.clone()) for b in module.buffers()]
    with torch.no_grad():
        try:
            made = module(*arguments, **kwargs)
        except Exception:  # it ran in the exporter, so this is a matter of its state
            return []
        finally:
            for buffer, before in buffers:
                buffer.copy_(before)
    return [_array(t) for t in pytree.tree_leaves(made) if isinstance(t, torch.Tensor)]
