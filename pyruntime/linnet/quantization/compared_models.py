"""A model that is compared with others. Models of one network from different files may differ in the names, channel
order and dtypes of inputs and outputs. `Subject` and `matched` convert between them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.ir.dtypes import numpy_dtype
from linnet.preprocess._edit import io_key, parse_io
from linnet.quantization.calibrate import Feeds
from linnet.quantization.samples import takes_files
from linnet.quantization.sources import is_script, samples_of
from linnet.session.bench import steady_times
from linnet.session.model import Model, TensorSpec
from linnet.session.session import Session

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
_INTEGERS = "iub"


def real(array: Array, spec: TensorSpec | None) -> Array:
    """The numbers that an array stands for: quantized integers and bf16 become f32, other dtypes stay."""
    if spec is not None and spec.scale is not None and array.dtype.kind in _INTEGERS:
        scaled: Array = ((array.astype(np.float32) - np.float32(spec.zero or 0)) * np.float32(spec.scale)).astype(
            np.float32
        )
        return scaled
    return array.astype(np.float32) if array.dtype.name in ("float16", "bfloat16") else array


class Subject:
    """A graph with a session of its signature `infer`. name: for tables. threads: as for Session. file: the .lnt file of
    the graph, which then runs as it does elsewhere, with the same memory."""

    def __init__(
        self,
        graph: Graph,
        name: str,
        threads: int | None = None,
        user_ops: Iterable[Any] = (),
        file: Path | None = None,
    ) -> None:
        self.graph, self.name = graph, name
        self.session = Session(Model(graph if file is None else file, user_ops=user_ops), threads=threads)
        self.inputs, self.outputs = list(self.session.inputs), list(self.session.outputs)
        self.runtime = "linnet"

    @property
    def memory(self) -> int | None:
        """Bytes that the last plan needs at run time, as the plan itself states them."""
        return int(self.session.memory["total"])

    def latency(self, seconds: float) -> list[float]:
        """Milliseconds of each run on the last feeds, without copies."""
        return [t / 1e6 for t in steady_times(self.session, seconds)]

    def run(self, feeds: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
        """Runs once. feeds: by the names of the inputs, or by the names of another model's inputs in the same order.
        Float arrays for quantized inputs are converted. So are arrays with channels first for inputs with channels
        last. Returns real numbers."""
        found = self._compute(adapted(feeds, self.inputs))
        specs = {spec.name: spec for spec in self.outputs}
        return {name: real(np.asarray(value), specs.get(name)) for name, value in found.items()}

    def _compute(self, feeds: dict[str, Array]) -> Mapping[str, Array]:
        return self.session.run(feeds)

    def takes(self) -> str:
        """ "image" or "audio" if an input takes files as they are, else ""."""
        for spec in self.inputs:
            about = parse_io(self.graph.metadata.get(io_key("infer", spec.name), ""))
            if about is not None and about[0] in ("image", "audio"):
                return about[0]
        return ""

    def samples(
        self, source: str | Path, limit: int | None, image: str | None, *, role: str = "data",
        note: Callable[[str], object] = warnings.warn,
    ) -> Iterable[Feeds]:  # fmt: skip
        """The samples of a source as this model takes them. `image` is used only if the model does not take pictures
        itself."""
        recipe = None if self.takes() == "image" else image
        return samples_of(self.graph, source, limit, image=recipe, role=role, note=note)


class Reference(Subject):
    """The same file in the runtime that defines its format: ONNX Runtime or LiteRT. The graph describes inputs and outputs."""

    def __init__(self, graph: Graph, path: Path, kind: str, threads: int | None = None) -> None:
        super().__init__(graph, path.name, threads)
        self.times: list[float] = []
        self.runtime, self._call = (_onnx if kind == "onnx" else _litert)(path, threads)

    @property
    def memory(self) -> int | None:
        return None

    def latency(self, seconds: float) -> list[float]:
        return self.times

    def _compute(self, feeds: dict[str, Array]) -> Mapping[str, Array]:
        begin = time.perf_counter_ns()
        found = self._call([feeds[spec.name] for spec in self.inputs])
        self.times.append((time.perf_counter_ns() - begin) / 1e6)
        return {spec.name: value for spec, value in zip(self.outputs, found, strict=True)}


def _missing(package: str, what: str) -> UsageError:
    return UsageError(
        f"{what} is not installed", code=101, tensor=package, hint=f"pip install {package}, or leave out --reference"
    )


def _onnx(path: Path, threads: int | None) -> tuple[str, Callable[[list[Array]], list[Array]]]:
    try:
        import onnxruntime
    except ImportError:
        raise _missing("onnxruntime", "ONNX Runtime") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads or 0, 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]
    return "ONNX Runtime", lambda values: list(session.run(None, dict(zip(names, values, strict=True))))


def _litert(path: Path, threads: int | None) -> tuple[str, Callable[[list[Array]], list[Array]]]:
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        raise _missing("ai-edge-litert", "LiteRT") from None
    interpreter = Interpreter(model_path=str(path), num_threads=threads)
    interpreter.allocate_tensors()
    inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()

    def call(values: list[Array]) -> list[Array]:
        for entry, value in zip(inputs, values, strict=True):
            if tuple(entry["shape"]) != value.shape:
                interpreter.resize_tensor_input(entry["index"], value.shape)
                interpreter.allocate_tensors()
            interpreter.set_tensor(entry["index"], value)
        interpreter.invoke()
        return [interpreter.get_tensor(entry["index"]) for entry in outputs]

    return "LiteRT", call


# ---- inputs


def adapted(feeds: Mapping[str, npt.ArrayLike], specs: Sequence[TensorSpec]) -> dict[str, Array]:
    """Returns the feeds with the names, dtypes and axis orders of `specs`. An array is converted only if there is no
    ambiguity."""
    if not isinstance(feeds, Mapping):
        raise UsageError(
            "feeds must be a mapping from names to arrays",
            code=101,
            got=type(feeds).__name__,
            hint="run({'name': array})",
        )
    names = [spec.name for spec in specs]
    given = dict(feeds)
    if not set(given) <= set(names) and len(given) == len(names):
        given = dict(zip(names, given.values(), strict=True))
    known = {spec.name: spec for spec in specs}
    return {
        name: _fitted(np.asarray(value), known[name]) if name in known else np.asarray(value)
        for name, value in given.items()
    }


def _fitted(array: Array, spec: TensorSpec) -> Array:
    if (
        spec.shape is not None
        and not _fits(array.shape, spec.shape)
        and array.ndim == len(spec.shape)
        and array.ndim in (3, 4)
    ):
        lead = tuple(range(array.ndim - 3))
        at = array.ndim - 3
        for order in ((at + 1, at + 2, at), (at + 2, at, at + 1)):  # channels first to last, and back
            turned = array.transpose(*lead, *order)
            if _fits(turned.shape, spec.shape):
                array = np.ascontiguousarray(turned)
                break
    if spec.dtype in ("bf16", "i4", "u4"):
        return array
    wanted = numpy_dtype(spec.dtype)
    if array.dtype == wanted:
        return array
    if spec.scale is not None and array.dtype.kind == "f":
        limits = np.iinfo(wanted)
        stored = np.rint(array / spec.scale) + (spec.zero or 0)
        made: Array = np.clip(stored, limits.min, limits.max).astype(wanted)
        return made
    if array.dtype.kind == "f" and wanted.kind == "f":
        return array.astype(wanted)
    if array.dtype.kind in "iu" and wanted.kind in "iu" and np.array_equal(array, array.astype(wanted)):
        return array.astype(wanted)
    return array


def _fits(shape: Sequence[int | None], declared: Sequence[int | None] | None) -> bool:
    if declared is None:
        return True
    return len(shape) == len(declared) and all(
        a == b or a is None or b is None for a, b in zip(shape, declared, strict=True)
    )


# ---- outputs


def matched(one: Subject, other: Subject) -> dict[str, str]:
    """Returns {output of one: output of the other}. Outputs are matched by name if possible, and the others by order
    and shape. Raises UsageError if an output of `one` has no counterpart."""
    theirs = {spec.name: spec for spec in other.outputs}
    found = {spec.name: spec.name for spec in one.outputs if spec.name in theirs}
    left = [spec for spec in other.outputs if spec.name not in found.values()]
    for spec in one.outputs:
        if spec.name in found:
            continue
        place = next((i for i, s in enumerate(left) if _alike(spec, s)), None)
        if place is None:
            raise UsageError(
                f"output {spec.name!r} of {one.name} has no counterpart in {other.name}", code=104, tensor=spec.name,
                expected=f"an output of this name, or of the shape {shape_text(spec.shape)}",
                got="; ".join(f"{s.name} {shape_text(s.shape)}" for s in other.outputs),
                hint="compare models of the same network, with the same steps before and after it",
            )  # fmt: skip
        found[spec.name] = left.pop(place).name
    return found


def _alike(a: TensorSpec, b: TensorSpec) -> bool:
    if a.shape is None or b.shape is None:
        return True
    whole = all(d is not None for d in (*a.shape, *b.shape))
    return _fits(a.shape, b.shape) or (whole and [d for d in a.shape if d != 1] == [d for d in b.shape if d != 1])


def shape_text(shape: Sequence[int | None] | None) -> str:
    return "of any rank" if shape is None else "[" + ", ".join("?" if d is None else str(d) for d in shape) + "]"


def own_files(subject: Subject, source: str | Path, image: str | None) -> bool:
    """Whether each model reads the files of a source (such as pictures) by its own steps. Otherwise, the models share
    arrays."""
    return not is_script(source) and Path(source).is_dir() and takes_files(subject.graph, image)
