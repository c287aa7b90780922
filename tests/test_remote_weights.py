"""What a client sends to a host before its first result: constants travel once, however a model is cut, and not at all if the
host's owner has put the model into its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import nn
from linnet.deploy.standard_models import mobilenet_v2
from linnet.facade import Graph
from linnet.file.names import steps_of
from tests import zoo
from tests.remote_counts import Counts, counted
from tests.remote_host import host
from tests.test_remote import on, same, small

FEW = 64 * 1024  # bytes: the figure for what a second start sends, besides the inputs


@pytest.fixture(scope="module")
def mobilenet() -> tuple[Graph, dict[str, np.ndarray], Any]:
    graph = mobilenet_v2()
    feeds = {"input": np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)}
    return graph, feeds, linnet.Session(graph, threads=1).run(feeds)


def ships(there: Counts, graph: Any, feeds: dict[str, np.ndarray], expected: Any, **more: Any) -> int:
    """Makes a session and runs it once. Returns the bytes that were sent until its result, without those of its inputs."""
    there.clear()
    session = linnet.Session(graph, threads=1, devices=[there.name], **{"placement": {"*": there.name}, **more})
    assert same(session.run(feeds), expected) and on(session, there.name) > 0
    sizes = there.by["HELLO"].sizes
    sent = sum(sizes[name] for name in ("HELLO", "SUBMIT", "PIECE", "RECIPE", "CONSTANT"))
    return sent - sum(feed.nbytes for feed in feeds.values())


def weights(graph: Any) -> int:
    """Bytes of the model's file."""
    return len(graph.to_bytes())


def test_mobilenet_travels_once(mobilenet: tuple[Graph, dict[str, np.ndarray], Any], tmp_path: Path) -> None:
    graph, feeds, expected = mobilenet
    folder = ("--threads", "1", "--folder", str(tmp_path))
    with host("127.0.0.1:0", *folder) as there, counted(there.address) as way:
        first = ships(way, graph, feeds, expected)
        assert 0.99 * weights(graph) < first < 1.01 * weights(graph)
    with host("127.0.0.1:0", *folder) as there, counted(there.address) as way:
        assert ships(way, graph, feeds, expected) <= FEW
        names = list(steps_of(linnet.Session(graph).model.content))
        for cut in (20, 45):  # the host has the constants of these pieces, not the pieces
            place = {**dict.fromkeys(names[:cut], way.name), "*": "cpu"}
            assert ships(way, graph, feeds, expected, placement=place) <= 2 * FEW
    assert len(list(tmp_path.glob("*.lnt"))) == 3


def test_weights_of_the_hosts_own_folder_are_not_sent(
    mobilenet: tuple[Graph, dict[str, np.ndarray], Any], tmp_path: Path
) -> None:
    graph, feeds, expected = mobilenet
    own = tmp_path / "mobilenet.lnt"
    graph.save(own)
    options = ("--threads", "1", "--folder", str(tmp_path), "--folder-bytes", "15MB")  # its own file does not count
    with host("127.0.0.1:0", *options) as there, counted(there.address) as way:
        assert ships(way, graph, feeds, expected) <= 2 * FEW  # tables only, to ask what they cost and as a recipe
        assert way.by["HELLO"].sizes["CONSTANT"] == 0
        assert len(list(tmp_path.glob("*.lnt"))) == 2
        linnet.Session(small(512), **there.all)  # 2 MB, for which the piece must go
        assert own.exists() and len(list(tmp_path.glob("*.lnt"))) == 2


@pytest.mark.parametrize("name", ["ppocr_cls"])
def test_constants_of_converted_models_are_those_of_their_files(name: str, tmp_path: Path) -> None:
    graph = linnet.from_onnx(zoo.at_hand(lambda: zoo.fetch(name)), input_shapes=zoo.input_shapes(name))
    feeds = zoo.inputs(name)
    graph.save(tmp_path / "own.lnt")
    with host("127.0.0.1:0", "--threads", "1", "--folder", str(tmp_path)) as there, counted(there.address) as way:
        ships(way, graph, feeds, linnet.Session(graph, threads=1).run(feeds))
        assert way.by["HELLO"].sizes["CONSTANT"] < 0.1 * weights(graph)


def test_only_a_damaged_constant_is_sent_again(tmp_path: Path) -> None:
    graph, feeds = small(256), {"x": np.ones((8, 256), np.float32)}
    expected, one = linnet.Session(graph, threads=1).run(feeds), 256 * 256 * 4
    options = ("--threads", "1", "--folder", str(tmp_path))
    with host("127.0.0.1:0", *options) as there, counted(there.address) as way:
        assert 2 * one < ships(way, graph, feeds, expected) < 2 * one + 8192
    (path,) = tmp_path.glob("*.lnt")
    data = bytearray(path.read_bytes())
    data[-one // 2] ^= 1
    path.write_bytes(data)
    with host("127.0.0.1:0", *options) as there, counted(there.address) as way:
        assert one < ships(way, graph, feeds, expected) < one + 8192
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_host_without_a_folder_finds_constants_in_its_memory() -> None:
    feeds = {"x": np.ones((8, 256), np.float32)}
    graph, one = Graph(), 256 * 256 * 4
    main = graph.function()
    x = main.placeholder("x", "f32", (8, 256))
    square = np.random.default_rng(5).standard_normal((256, 256)).astype(np.float32) / 16
    for layer in range(3):  # the same constant three times
        x = nn.relu(x @ main.constant(square, f"w{layer}"), name=f"relu{layer}")
    main.outputs.append(x)
    graph.signature("infer", main)
    expected = linnet.Session(graph, threads=1).run(feeds)
    with host("127.0.0.1:0", "--threads", "1", "--max-bytes", "4MB") as there, counted(there.address) as way:
        assert one < ships(way, graph, feeds, expected) < one + 16384
        holds = linnet.Session(graph, threads=1, devices=[way.name], placement={"*": way.name})
        place = {"matmul": "cpu", "*": way.name}
        assert ships(way, graph, feeds, expected, placement=place) < 16384
        assert same(holds.run(feeds), expected)
