"""Saved PyTorch modules: .pt2 files of torch.export.save, TorchScript archives, and pickles of torch.save. The content
of a file shows what it holds. torch reads and exports it, and linnet's ONNX importer converts the result."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import pickle
import re
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from linnet.clib.errors import FileError, UsageError
from linnet.converters import torch_check
from linnet.converters.onnx import examine as examine_onnx
from linnet.converters.outline import Conversion
from linnet.converters.pytorch import as_torch, converted, export, failed, imported_torch
from linnet.ir.user_op import UserOp

_SAVE = "torch.export.save(torch.export.export(module.eval(), example_inputs), 'model.pt2')"
_HINT_PROGRAM = "this is the exporter's message: change the module and save it again"
_HINT_MODULE = "this is the exporter's message: change the module, or save it as a .pt2 file with torch.export.save"
_SAFE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # torch.load then refuses pickled objects, also inside torch.export.load


def examine(
    path: str | Path,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    user_ops: Iterable[UserOp] = (),
    trust_pickle: bool = False,
) -> Conversion:
    """Converts the module in a file. Returns the problems together with the part of the graph that could be converted.

    input_shapes: {parameter of forward: shape}. A .pt2 file has its own shapes, so `input_shapes` only fixes sizes that
    the file leaves open. The other kinds of files record no shapes; their inputs are f32 and get the shapes given here.
    trust_pickle: whether to unpickle objects, which runs the code that the file names. Raises FileError if the file
    cannot be read or holds no module. Raises UsageError if torch is not installed, if a shape is missing or does not
    fit, or if a pickle is not trusted.
    """
    path, shapes = Path(path), dict(input_shapes or {})
    kind = _kind_of(path)
    torch = imported_torch(f"'{path}' is a PyTorch file; reading it")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's warnings about its own deprecations
        if kind == "program":
            program = _program(torch, path, trust_pickle)
            conversion = converted(export(program, (), _HINT_PROGRAM), shapes, user_ops=user_ops)
            given = None if shapes else program.example_inputs
            return conversion if given is None else torch_check.compared(conversion, program.module(), *given)
        module = _script(torch, path) if kind == "script" else _pickled(torch, path, trust_pickle)
        arguments = _arguments(torch, module, shapes, path)
        if kind == "script":
            conversion = _from_script(torch, module, arguments, shapes, user_ops)
        else:
            conversion = converted(export(module, arguments, _HINT_MODULE), user_ops=user_ops)
        values = tuple(torch.linspace(0, 1, t.numel()).reshape(t.shape) for t in arguments)
        return torch_check.compared(conversion, module, values, {})


def _kind_of(path: Path) -> str:
    """The kind of a file: "program", "script" or "pickle". Raises FileError for any other file. This does not need
    torch."""
    try:
        with open(path, "rb") as file:
            start = file.read(4)
        if start != b"PK\x03\x04":
            if start[:1] == b"\x80":  # torch.save before torch 1.6
                return "pickle"
            raise zipfile.BadZipFile("not an archive of PyTorch")
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except OSError as error:
        code = 201 if isinstance(error, FileNotFoundError) else 202
        raise FileError(
            f"cannot be read: {error.strerror or error}", tensor=str(path), code=code, hint="check the path"
        ) from None
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise _damaged(path, str(error)) from None
    if any(name.endswith(("archive_format", "serialized_exported_program.json")) for name in names):
        return "program"
    if any(name.endswith("constants.pkl") for name in names):
        return "script"
    if any(name.endswith("data.pkl") for name in names):
        return "pickle"
    raise _damaged(path, "an archive without a module")


def _damaged(path: Path, got: str) -> FileError:
    return FileError(
        "is not a PyTorch file, or is damaged", tensor=str(path), code=206, got=_line(got),
        expected="a file of torch.export.save, torch.jit.save or torch.save",
        hint="save the module again, or call linnet.from_torch(module, example_inputs)",
    )  # fmt: skip


def _line(error: object) -> str:
    """The first line of a message of torch, without terminal colours."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
    return (text.splitlines() or [type(error).__name__])[0].rstrip(".")


@contextlib.contextmanager
def _no_pickles(on: bool) -> Iterator[None]:
    """Prevents torch from unpickling objects. torch.export.load would unpickle them if a file asks for it."""
    before = os.environ.get(_SAFE)
    if on:
        os.environ[_SAFE] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_SAFE, None)
        else:
            os.environ[_SAFE] = before


def _program(torch: Any, path: Path, trust_pickle: bool) -> Any:
    try:
        with _no_pickles(not trust_pickle), open(path, "rb") as file:
            return torch.export.load(file)
    except pickle.UnpicklingError:
        raise _untrusted(path, "contains pickled objects") from None
    except Exception as error:  # torch raises almost anything for a damaged archive
        raise _damaged(path, f"{type(error).__name__}: {_line(error)}") from None


def _script(torch: Any, path: Path) -> Any:
    try:
        return torch.jit.load(str(path), map_location="cpu").eval()
    except Exception as error:
        raise _damaged(path, f"{type(error).__name__}: {_line(error)}") from None


def _untrusted(path: Path, what: str) -> UsageError:
    return UsageError(
        f"'{path}' {what}, and reading one can run any code", code=101, tensor=str(path),
        hint=f"save the module with {_SAVE}, or give trust_pickle=True if you trust the file",
    )  # fmt: skip


def _pickled(torch: Any, path: Path, trust_pickle: bool) -> Any:
    """The module in a file of torch.save."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        if not trust_pickle:
            raise _untrusted(path, "is a pickled module") from None
        try:
            found = torch.load(path, map_location="cpu", weights_only=False)
        except (ImportError, AttributeError) as error:
            raise FileError(
                f"cannot be unpickled: {_line(error)}", tensor=str(path), code=202,
                hint=f"put the module's source on PYTHONPATH, or save it with {_SAVE}",
            ) from None  # fmt: skip
        except Exception as error:
            raise _damaged(path, f"{type(error).__name__}: {_line(error)}") from None
    except Exception as error:
        raise _damaged(path, f"{type(error).__name__}: {_line(error)}") from None
    if isinstance(found, torch.nn.Module):
        return found.eval()
    what = "weights without a module (a state_dict)" if isinstance(found, Mapping) else f"a {type(found).__name__}"
    raise FileError(
        f"holds {what}", tensor=str(path), code=203, expected="a saved module",
        hint=f"load the weights into the module with load_state_dict, and save it with {_SAVE}",
    )  # fmt: skip


def _arguments(torch: Any, module: Any, shapes: dict[str, Sequence[int]], path: Path) -> tuple[Any, ...]:
    """f32 inputs of the given shapes. The module has been run on them once."""
    names, needed = _parameters(torch, module)
    for name in shapes:
        if name not in names:
            raise UsageError(
                f"the module has no input named {name!r}",
                code=102,
                tensor=name,
                expected=" or ".join(names) or "a model with inputs",
            )
    missing = [name for name in needed if name not in shapes]
    if missing:
        raise UsageError(
            f"'{path}' does not record the shapes of its inputs", code=105, tensor=str(path),
            expected=f"a shape for {', '.join(missing)}",
            hint=f"give its shape, for example input_shapes={{'{missing[0]}': (1, 3, 224, 224)}}",
        )  # fmt: skip
    given = [name for name in names if name in shapes]
    if given != names[: len(given)]:
        raise UsageError("shapes are given only for later inputs", code=105, expected=f"a shape for {names[0]} too")
    arguments = tuple(torch.zeros(tuple(int(d) for d in shapes[name])) for name in given)
    try:
        with torch.no_grad():
            module(*arguments)
    except Exception as error:  # whatever the module raises
        lines = str(error).strip().splitlines() or [""]  # TorchScript begins with its own stack
        reason = lines[-1] if "TorchScript" in lines[0] else f"{type(error).__name__}: {lines[0]}"
        raise UsageError(
            "the module does not take f32 inputs of these shapes", code=104, tensor=", ".join(given), got=_line(reason),
            hint=f"give other shapes; for inputs of other dtypes, save the module with {_SAVE}",
        ) from None  # fmt: skip
    return arguments


def _parameters(torch: Any, module: Any) -> tuple[list[str], list[str]]:
    """The names of forward's positional parameters, and of those without a default."""
    if isinstance(module, torch.jit.ScriptModule):
        arguments = [a for a in module.forward.schema.arguments if a.name != "self"]
        return [a.name for a in arguments], [a.name for a in arguments if not a.has_default_value()]
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = [p for p in inspect.signature(module.forward).parameters.values() if p.kind in kinds]
    return [p.name for p in found], [p.name for p in found if p.default is inspect.Parameter.empty]


def _from_script(
    torch: Any, module: Any, arguments: tuple[Any, ...], shapes: dict[str, Sequence[int]], user_ops: Iterable[UserOp]
) -> Conversion:
    """Converts a TorchScript module. Only torch's older exporter takes such modules. Outputs get the same names as from
    `from_torch`."""
    content = io.BytesIO()
    names = [name for name in _parameters(torch, module)[0] if name in shapes]
    try:
        torch._C._jit_set_onnx_log_output_stream("stderr")  # when it fails, it prints its graph, by default on stdout
        with torch.no_grad():
            torch.onnx.export(module, arguments, content, dynamo=False, input_names=names)
    except Exception as error:  # as in `export`
        raise failed("TorchScript", error, _HINT_MODULE) from error
    conversion = examine_onnx(onnx.load_model_from_string(content.getvalue()), user_ops=user_ops)
    count = 0 if conversion.problems else len(conversion.graph.signatures["infer"].outputs)
    return as_torch(conversion, ["output"] if count == 1 else [f"output_{i}" for i in range(count)])
