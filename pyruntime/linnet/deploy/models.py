"""The models to deploy: one model in each requested dtype, and a sample of its inputs."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import UsageError, nearest
from linnet.facade import Graph

if TYPE_CHECKING:
    from linnet.session.model import TensorSpec

DTYPES: Final = ("f32", "f16", "i16", "i8")
CALIBRATED: Final = ("i16", "i8")
SUMS: Final = "f16 sums"
"""The row of a model in f16 whose plan permits sums of f16, which only some processors compute."""
_RAW: Final = (
    "raw"  # the model without picture steps, which `linnet convert --image` keeps; `infer` would time these steps too
)

Feeds = Mapping[str, npt.NDArray[Any]]


@dataclasses.dataclass(frozen=True)
class Source:
    """How to read the model and its samples: the options of `linnet convert`. note: called with texts about files that
    cannot be read."""

    calibration: Path | None = None
    samples: int | None = None
    image: str | None = None
    trust_pickle: bool = False
    note: Callable[[str], object] = warnings.warn


@dataclasses.dataclass
class Variant:
    """The model in one dtype: its graph, and the file that is sent. dtype: also SUMS, which has the file of f16. exact:
    whether the results have the same bits on every machine. prefix: the beginning of its names on the target, if
    several models are sent."""

    dtype: str
    graph: Graph
    content: bytes
    exact: bool
    prefix: str = ""

    @property
    def name(self) -> str:
        return self.prefix + self.dtype.replace(" ", "-")

    @property
    def file(self) -> str:
        return f"{self.prefix}{self.dtype.split()[0]}.lnt"

    @property
    def options(self) -> list[str]:
        """The options of the tools that run it."""
        return ["--precision", "f16"] if self.dtype == SUMS else []


@dataclasses.dataclass
class Models:
    """variants: in the requested order. reference: the float model with which the others are compared, if there is one.
    sample: values of all inputs of `infer`. drawn: whether they are random. open: inputs whose shapes must be given to
    the tools. timed: the signature to time. timed_open: its input shapes that must be given to the tool. assumed: the
    shapes of random pictures whose size the user did not give."""

    variants: list[Variant]
    reference: Variant | None
    sample: Feeds
    drawn: bool
    open: dict[str, tuple[int, ...]]
    timed: str
    timed_open: dict[str, tuple[int, ...]]
    assumed: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)

    def leave_out(self, variant: Variant, show: Callable[[str], None]) -> None:
        """Leaves out the row of sums of f16, because the target computes the model as it does without them."""
        self.variants.remove(variant)
        show(f"{variant.dtype}: left out, because no kernel for this processor sums products of the model in f16")


def prepare(
    path: Path, dtypes: Sequence[str], shapes: Mapping[str, tuple[int, ...]], source: Source, progress: bool,
    verify: bool = True,
) -> Models:  # fmt: skip
    """Makes the model in each of `dtypes`. With the default, which is (), a quantized .lnt file stays as it is; other
    models are made in f32 and, with calibration, also in i8. verify: whether `sample` is needed. Raises UsageError,
    FileError and ConversionError."""
    from linnet.converters.formats import load_graph
    from linnet.converters.recognition import is_linnet
    from linnet.quantization.entry import quantize
    from linnet.quantization.sources import samples_of

    calibration = source.calibration
    graph = load_graph(path, None if is_linnet(path) else shapes or None, trust_pickle=source.trust_pickle)
    own, content = own_dtype(graph), path.read_bytes() if is_linnet(path) else graph.to_bytes()
    floats = own == "f32"
    if not dtypes:
        dtypes = (own,) if not floats else ("f32", "i8") if calibration is not None else ("f32",)
    for dtype in dtypes:
        if not floats and dtype != own:
            raise UsageError(
                "the model is already quantized", code=103, tensor=str(path), expected=f"--dtypes {own}, as it is", got=dtype,
                hint="deploy the float model, from which linnet makes the other dtypes",
            )  # fmt: skip
        if floats and dtype in CALIBRATED and calibration is None:
            raise UsageError(
                f"a model in {dtype} needs sample inputs", code=105, tensor=str(path), expected="typical inputs in an .npz file",
                got="none", hint=f"add --calibration samples.npz, or leave {dtype} out of --dtypes",
            )  # fmt: skip
    batches: Iterable[Feeds] | None = None
    if calibration is not None:
        batches = samples_of(graph, calibration, source.samples, image=source.image, note=source.note)
    first = None if batches is None else next(iter(batches), None)

    def quantized(dtype: str) -> Graph:
        return quantize(graph, batches, dtype=dtype, progress=progress)

    return make(graph, content, dtypes, quantized, first, shapes, verify)


def own_dtype(graph: Graph) -> str:
    """The dtype in which a graph computes, as noted in its metadata."""
    from linnet.ir.graph import dtype_of_graph

    return graph.metadata.setdefault("dtype", dtype_of_graph(graph))


def make(
    graph: Graph, content: bytes, dtypes: Sequence[str], quantized: Callable[[str], Graph], first: Feeds | None,
    shapes: Mapping[str, tuple[int, ...]], verify: bool = True,
) -> Models:  # fmt: skip
    """Makes a graph in each of `dtypes`, and SUMS after f16. content: the file of the graph. quantized: makes the graph
    in another dtype than its own. first: the sample, None for a random one."""
    own = own_dtype(graph)
    variants = []
    for dtype in dtypes:
        if dtype == own:
            variant = Variant(own, graph, content, is_exact(graph))
        else:
            made = quantized(dtype)
            made.metadata.setdefault("dtype", dtype)
            variant = Variant(dtype, made, made.to_bytes(), is_exact(made))
        variants += [variant, *([dataclasses.replace(variant, dtype=SUMS)] if dtype == "f16" else [])]
    reference = next((v for v in variants if v.dtype == "f32"), None)
    if reference is None and own == "f32":
        reference = Variant(own, graph, content, False)
    timed = _RAW if _RAW in graph.signatures else "infer"
    sample, opened, assumed = (
        random_sample(content, "infer", shapes, first) if verify or timed == "infer" else ({}, {}, {})
    )
    timed_open = opened if timed == "infer" else random_sample(content, timed, shapes)[1]
    return Models(variants, reference, sample, first is None, opened, timed, timed_open, assumed)


def is_exact(graph: Graph) -> bool:
    """Whether the results are the same on every machine, because all ops that read floats are exact."""
    from linnet.ir import traits

    exact = traits.having("exact") | traits.POINTWISE | traits.CONTROL
    floats = {"f32", "f16", "f64", "bf16"}
    return all(
        node.op in exact or not any(t is not None and t.dtype in floats for t in node.inputs)
        for function in graph.functions
        for node in function.nodes
    )


def random_sample(
    content: bytes, signature: str, shapes: Mapping[str, tuple[int, ...]], first: Feeds | None = None
) -> tuple[Feeds, dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """Seeded random inputs for a model's file, or `first`. Also returns the shapes of the inputs that the model leaves
    open, and those of pictures that are in neither the model nor `shapes`.

    `infer` and `raw` have an input of the same name, which is a picture for one and the model's own input for the
    other. A shape that fits only one of them is meant for that one."""
    from linnet.session.model import Model
    from linnet.session.open_sizes import kind_of, open_batches
    from linnet.session.random_inputs import random_feeds
    from linnet.session.usable_sizes import PHOTO, usable_shapes

    model = Model(content)
    specs = model.inputs(signature)
    others = {
        spec.name: spec for name in {"infer", _RAW} & set(model.signatures) - {signature} for spec in model.inputs(name)
    }
    assumed: dict[str, tuple[int, ...]] = {}
    is_open = {spec.name for spec in specs if spec.shape is None or None in spec.shape}
    if first is not None:
        sample = {spec.name: np.ascontiguousarray(first[spec.name]) for spec in specs}
    else:
        given = {spec.name: shapes[spec.name] for spec in specs if _fits(spec, shapes.get(spec.name))}
        for name in shapes.keys() - given.keys():
            if not (name in others and _fits(others[name], shapes[name])):
                raise _unfit(name, shapes[name], specs)
        for spec in specs:
            if spec.name in is_open - given.keys() and kind_of(model, signature, spec.name) == "image":
                assumed[spec.name] = (*PHOTO[:2], (spec.shape or PHOTO)[-1] or PHOTO[2])
        given |= assumed | open_batches(model, signature, specs, given)
        sample = random_feeds(specs, given, partial(usable_shapes, model, signature, given))
    return sample, {name: sample[name].shape for name in is_open}, assumed


def _unfit(name: str, shape: tuple[int, ...], specs: Sequence[TensorSpec]) -> UsageError:
    """Returns the error for a shape that the input cannot have, or for an input that the model does not have."""
    spec = next((spec for spec in specs if spec.name == name), None)
    if spec is None:
        expected = nearest(name, [spec.name for spec in specs])
        return UsageError(f"the model has no input named {name!r}", code=102, tensor=name, expected=expected)
    sizes = ", ".join("?" if size is None else str(size) for size in spec.shape or ())
    return UsageError(
        f"input {name!r} cannot have this shape", code=104, tensor=name, expected=f"[{sizes}]", got=str(list(shape)),
        hint="correct --shape",
    )  # fmt: skip


def _fits(spec: TensorSpec, shape: tuple[int, ...] | None) -> bool:
    """Whether an input may have this shape."""
    if shape is None or spec.shape is None:
        return shape is not None
    return len(shape) == len(spec.shape) and all(d in (None, n) for d, n in zip(spec.shape, shape, strict=True))
