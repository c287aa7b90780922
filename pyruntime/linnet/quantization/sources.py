"""Sources of data that a person names in one word: FILE.py:FUNCTION, or one of the files and folders that samples.py
reads. A function is called again for each pass over the data, so a generator function is enough."""

from __future__ import annotations

import difflib
import inspect
import itertools
import runpy
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from linnet.clib.errors import Error, UsageError
from linnet.facade import Graph
from linnet.quantization.calibrate import Feeds
from linnet.quantization.samples import calibration_samples
from linnet.session.model import TensorSpec

_RUN_NAME = "linnet_script"


def is_script(source: str | Path) -> bool:
    """Whether a source names a Python file, with or without `:FUNCTION`."""
    path, colon, _ = str(source).rpartition(":")
    return str(source).endswith(".py") or (bool(colon) and path.endswith(".py"))


class Script:
    """A function of a Python file, which linnet calls. The folder of the file is put on Python's path, as `python FILE` does.

    Raises UsageError if the file cannot be run or has no such function.
    """

    def __init__(self, source: str | Path, role: str) -> None:
        self.source, self.role = str(source), role
        path, _, name = self.source.rpartition(":") if not self.source.endswith(".py") else (self.source, "", "")
        self.path, self.name = Path(path), name
        if not self.path.is_file():
            raise UsageError(f"the script for {role} does not exist", code=101, tensor=path, hint="check the path")
        folder = str(self.path.resolve().parent)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        try:
            values = runpy.run_path(path, run_name=_RUN_NAME)
        except (Exception, SystemExit) as error:
            raise self._failed("the script for {role} cannot be run", error) from error
        own = [n for n, v in values.items() if isinstance(v, types.FunctionType) and v.__module__ == _RUN_NAME]
        near = difflib.get_close_matches(name, own, 3, 0.5) or own
        if not name or not callable(values.get(name)):
            raise UsageError(
                f"the script for {role} has no function {name!r}" if name else f"the function for {role} is missing",
                code=101, tensor=path, expected=f"{path}:FUNCTION, with one of its functions: {', '.join(near) or 'it has none'}",
                got=self.source,
            )  # fmt: skip
        self.function: Callable[..., Any] = values[name]

    def _failed(self, what: str, error: BaseException) -> UsageError:
        places = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == self.path]
        if isinstance(error, SyntaxError):
            places = [error.lineno]
        line = f", line {places[-1]}" if places else ""
        return UsageError(
            what.format(role=self.role), code=101, tensor=f"{self.source}{line}",
            got=" ".join(f"{type(error).__name__}: {error}".split()), hint="correct the script",
        )  # fmt: skip

    def wrong(self, what: str, expected: str, got: str) -> UsageError:
        return UsageError(what, code=101, tensor=self.source, expected=expected, got=got)

    def parameters(self) -> int:
        """How many arguments the function needs."""
        try:
            found = inspect.signature(self.function).parameters.values()
        except (TypeError, ValueError):
            return 0
        return sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in found)

    def call(self, *arguments: Any) -> Any:
        """Calls the function. Errors of linnet are raised as they are. All others become a UsageError that names the
        line."""
        try:
            return self.function(*arguments)
        except Error:
            raise
        except (Exception, SystemExit) as error:
            raise self._failed("the function for {role} raises an error", error) from error


class ScriptSamples:
    """The samples that a function returns, as `linnet.quantize` takes them. Each iteration calls the function again."""

    def __init__(self, script: Script, inputs: Mapping[str, TensorSpec], limit: int | None = None) -> None:
        self.script, self.inputs, self.limit = script, dict(inputs), limit
        if script.parameters() > 1:
            raise script.wrong(
                f"the function for {script.role} needs too many arguments", "none, or one: the model's inputs",
                f"{script.parameters()} arguments",
            )  # fmt: skip

    def __iter__(self) -> Iterator[Feeds]:
        made = self.script.call(*([self.inputs] if self.script.parameters() else []))
        if isinstance(made, Mapping) or not isinstance(made, Iterable):
            got = "one dictionary" if isinstance(made, Mapping) else type(made).__name__
            raise self.script.wrong(
                f"the function for {self.script.role} must give an iterable", "a list or a generator of {input name: array}", got
            )  # fmt: skip
        items, count = iter(made), 0
        while self.limit is None or count < self.limit:
            try:
                item = next(items)
            except StopIteration:
                break
            except Error:
                raise
            except Exception as error:
                raise self.script._failed("the function for {role} raises an error", error) from error
            if not isinstance(item, Mapping):
                raise self.script.wrong(
                    f"sample {count} of the function for {self.script.role} is not a dictionary", "{input name: array}",
                    type(item).__name__,
                )  # fmt: skip
            yield {str(name): np.asarray(value) for name, value in item.items()}
            count += 1
        if not count:
            raise self.script.wrong(f"the function for {self.script.role} gives no sample", "one or more", "none")


def input_specs(graph: Graph) -> dict[str, TensorSpec]:
    """Name, dtype and shape of each input of `infer`; open sizes are None."""
    signature = graph.signatures["infer"]
    found = {}
    for name, tensor in zip(signature.inputs, signature.function.inputs, strict=True):
        shape = None if tensor.shape is None else tuple(d if isinstance(d, int) else None for d in tensor.shape)
        found[name] = TensorSpec(name, tensor.dtype, shape)
    return found


def samples_of(
    graph: Graph,
    source: str | Path,
    limit: int | None = None,
    *,
    image: str | None = None,
    role: str = "calibration",
    note: Callable[[str], object] = warnings.warn,
) -> Iterable[Feeds]:
    """The samples of a source, which can be iterated more than once.

    source: FILE.py:FUNCTION, or a file or folder as for `calibration_samples`. FUNCTION is called without an argument, or with
    {input name: TensorSpec} if it takes one, and gives an iterable of {input name: array}. limit: the largest number of
    samples (from a function, the first ones are taken). image, note: as for `calibration_samples`. role: what messages
    call the samples. Raises UsageError, also while iterating.
    """
    if is_script(source):
        if limit is not None and limit < 1:
            raise UsageError("the number of samples is too small", code=101, expected="1 or more", got=str(limit))
        return ScriptSamples(Script(source, role), input_specs(graph), limit)
    return calibration_samples(graph, source, limit, image=image, note=note)


def first(samples: Iterable[Feeds], count: int) -> list[Feeds]:
    """The first samples, kept in memory."""
    return list(itertools.islice(samples, count))
