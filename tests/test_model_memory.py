"""What small models may take of a small machine: all that the library allocates from opening the file to the first run, on one
thread. The file itself is mapped."""

from __future__ import annotations

from pathlib import Path

import pytest

import linnet
from tests import nets, zoo
from tests.capi import Allocator, Chain

ISAS = linnet.isa_names()


@pytest.fixture(scope="module")
def mobilenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mobilenet") / "m.lnt"
    graph = linnet.from_onnx(nets.NETS["mobilenet_v2"]())
    linnet.quantize(graph, [nets.inputs()], dtype="i8", effort="fast").save(path)
    return path


@pytest.fixture(scope="module")
def keyword_spotter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The keyword spotter of MLPerf Tiny."""
    path = tmp_path_factory.mktemp("keywords") / "m.lnt"
    shapes = {"input_1": (1, 49, 10, 1)}
    linnet.from_tflite(zoo.shared("mlperftiny_kws_int8.tflite"), input_shapes=shapes).save(path)
    return path


def peak(path: Path, isa: str) -> int:
    """The most bytes that were allocated at once until the first run ended."""
    allocator = Allocator()
    with Chain(path, allocator) as chain:
        chain.make_plan(isa_max=isa).make_session().run()
        assert chain.info().total == allocator.bytes
    assert not allocator.live and not allocator.faults
    return int(allocator.live.most)


@pytest.mark.parametrize("isa", ISAS)
def test_keyword_spotting_takes_at_most_200_kb(isa: str, keyword_spotter: Path) -> None:
    most = peak(keyword_spotter, isa)
    print(f"keyword spotting, {isa}: {most} bytes")
    assert 100_000 < most <= 200_000


@pytest.mark.parametrize("isa", ISAS[-1:])
def test_mobilenet_v2_takes_at_most_8_mb(isa: str, mobilenet: Path) -> None:
    most = peak(mobilenet, isa)
    print(f"MobileNetV2-int8, {isa}: {most} bytes")
    assert 5_000_000 < most <= 8_000_000
