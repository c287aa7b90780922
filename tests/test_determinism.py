"""The same bits everywhere: integer results on every ISA level and thread count, float results on every thread count.
Reference kernels are one of the compared levels, so fast kernels are exact, not just consistent."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import linnet
from linnet.file.reader import from_bytes
from tests import zoo
from tests.capi import Chain, ffi
from tests.graphs import in_integers
from tests.native import ROOT

Feeds = dict[str, np.ndarray]
DIGITS = ROOT / "examples" / "mnist_small"
THREADS = (1, 2, 3)


def _digits(count: int) -> Iterator[Feeds]:
    with np.load(DIGITS / "samples.npz") as samples:
        for image in samples["images"][:count]:
            yield {"input": (image.astype(np.float32) / 255)[None, None]}


def _lines(count: int) -> Iterator[Feeds]:
    feeds = zoo.inputs("ppocr_cls")
    for i in range(count):
        yield {name: np.roll(value, 7 * i, axis=-1) for name, value in feeds.items()}


MODELS = {"mnist_small": _digits, "ppocr_cls": _lines}


@functools.cache
def _graph(name: str) -> linnet.Graph:
    if name == "mnist_small":
        return linnet.from_onnx(DIGITS / "mnist_small.onnx", input_shapes={"input": (1, 1, 28, 28)})
    path = zoo.at_hand(lambda: zoo.fetch(name))
    return linnet.from_onnx(path, input_shapes=zoo.input_shapes(name))


@functools.cache
def _file(name: str, dtype: str) -> bytes:
    graph = _graph(name)
    return (graph if dtype == "f32" else in_integers(graph, list(MODELS[name](4)), dtype)).to_bytes()


def _before_softmax(data: bytes) -> list[str]:
    """The integer results of an integer network: its outputs, or the scores that a final float softmax reads."""
    signature = from_bytes(data).signatures["infer"]
    makers = {node.outputs[0]: node for node in signature.function.nodes}
    names = []
    for output in signature.function.outputs:
        tensor = output
        while (node := makers.get(tensor)) is not None and node.op in ("map", "copy") and node.inputs[0] is not None:
            tensor = node.inputs[0]
        softmax = node is not None and node.op == "softmax" and node.inputs[0] is not None
        names.append(node.inputs[0].name if softmax else output.name)
    return names


def _results(name: str, dtype: str, **options: object) -> list[dict[str, np.ndarray]]:
    session = linnet.Session(_file(name, dtype), **options)  # type: ignore[arg-type]
    return [session.run(feeds) for feeds in MODELS[name](3)]


def _same(a: list[dict[str, np.ndarray]], b: list[dict[str, np.ndarray]]) -> None:
    for first, second in zip(a, b, strict=True):
        for name, value in first.items():
            np.testing.assert_array_equal(value.view(np.uint8), second[name].view(np.uint8), err_msg=name)


@pytest.mark.parametrize("dtype", ["i8", "i16"])
@pytest.mark.parametrize("name", MODELS)
def test_integer_results_are_the_same_bits_everywhere(name: str, dtype: str) -> None:
    fetches = _before_softmax(_file(name, dtype))
    expected = _results(name, dtype, threads=1, reference=True, fetches=fetches)
    assert any(np.ptp(value) > 0 for result in expected for value in result.values()), "a flat output proves nothing"
    for isa in linnet.isa_names():
        for threads in THREADS:
            _same(_results(name, dtype, threads=threads, isa_max=isa, fetches=fetches), expected)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("name", MODELS)
def test_float_results_do_not_depend_on_threads(name: str, dtype: str) -> None:
    for isa in linnet.isa_names():
        expected = _results(name, dtype, threads=1, isa_max=isa)
        for threads in THREADS[1:]:
            _same(_results(name, dtype, threads=threads, isa_max=isa), expected)


@pytest.mark.parametrize("dtype", ["f32", "i8"])
def test_a_session_repeats_itself(dtype: str) -> None:
    """Running other inputs in between has no effect."""
    session = linnet.Session(_file("mnist_small", dtype), threads=2)
    feeds = list(MODELS["mnist_small"](4))
    first = [session.run(f) for f in feeds]
    again = [session.run(f) for f in reversed(feeds)][::-1]
    _same(first, again)


def test_any_order_of_the_tasks() -> None:
    """A task that begins early takes pieces of the others: one after another, the first one does all the work."""
    rng = np.random.default_rng(0)
    graph = linnet.Graph()
    x = graph.placeholder("x", (301, 300))
    w = graph.constant(rng.standard_normal((300, 330)).astype(np.float32))
    y = linnet.ops.softmax(linnet.ops.matmul(x, w), axis=-1)
    graph.signature("infer", {"x": x}, {"y": linnet.ops.copy([y], kind="transpose", perm=(1, 0))[0]})
    feeds = {"x": rng.standard_normal((301, 300)).astype(np.float32)}
    order = [0, 1, 2]
    counts = []

    @ffi.callback("void(void *, void (*)(void *, int), void *, int)")
    def parallel_for(context: object, task: Any, argument: object, count: int) -> None:
        counts.append(count)
        for i in order:
            if i < count:
                task(argument, i)

    with Chain(graph.to_bytes()) as alone, Chain(graph.to_bytes()) as several:
        expected = alone.make_store().make_plan().make_session().set(feeds).run().output()
        several.make_store().make_plan(threads=3).make_session(parallel_for=parallel_for).set(feeds)
        for order[:] in itertools.permutations((0, 1, 2)):
            np.testing.assert_array_equal(several.run().output().view(np.uint32), expected.view(np.uint32))
    assert max(counts) == 3
