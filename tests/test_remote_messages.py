"""What hosts and their clients send in a run: one message to each host and one answer, and little besides the values."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from tests.capi import ffi, lib
from tests.remote_counts import counted
from tests.remote_host import host, new_key
from tests.test_remote import same, values

SIDE = 64
VALUE = 4 * 8 * SIDE  # bytes of a value


def layers(count: int, rows: int = 8) -> linnet.Graph:
    """Products one after the other, whose steps are called layer0, layer1, ..."""
    graph, rng = linnet.Graph(), np.random.default_rng(7)
    x = y = graph.placeholder("x", (rows, SIDE))
    for i in range(count):
        with graph.scope(f"layer{i}"):
            y = linnet.ops.relu(y @ graph.constant(rng.standard_normal((SIDE, SIDE)).astype(np.float32) / 8, "w"))
    graph.signature("infer", {"x": x}, {"y": y})
    return graph


def feed(seed: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((8, SIDE)).astype(np.float32)}


def test_a_run_is_one_message() -> None:
    graph = layers(2)
    with host() as there, counted(there.address) as counts:
        session = linnet.Session(graph, devices=[counts.name], placement={"*": counts.name})
        expected = linnet.Session(graph).run(feed(0))
        for _ in range(2):
            counts.clear()
            assert same(session.run(feed(0)), expected)
            assert counts.by["HELLO"].messages == {"SUBMIT": 1, "ANSWER": 1}
            assert 2 * VALUE < counts.by["HELLO"].bytes <= 2 * VALUE + 2 * 200


def plain(names: list[str]) -> list[str]:
    """The names by which a placement knows devices: without options."""
    return [name.partition(",")[0] for name in names]


def placed(*places: str) -> dict[str, str]:
    """Layer i runs at places[i]; a device may occur several times."""
    return {f"layer{i}/*": place for i, place in enumerate(places)}


def test_values_go_from_host_to_host() -> None:
    """client -> A -> B -> client: one message to each, and the value between them does not pass the client."""
    graph = layers(2)
    here = linnet.Session(graph)
    with host() as one, host() as two, counted(one.address) as a, counted(two.address) as b:
        session = linnet.Session(graph, devices=[a.name, b.name], placement=placed(a.name, b.name))
        assert same(session.run(feed(0)), here.run(feed(0)))
        a.clear(), b.clear()
        for seed in range(3):
            assert same(session.run(feed(seed)), here.run(feed(seed)))
        for counts in (a, b):
            assert counts.by["HELLO"].messages == {"SUBMIT": 3, "ANSWER": 3}
            assert 3 * VALUE < counts.by["HELLO"].bytes <= 3 * (VALUE + 2 * 200)
        assert a.by["JOIN"].messages["ANSWER"] == 3 and not b.by["JOIN"].messages
        assert 2 <= a.by["JOIN"].messages["SUBMIT"] <= 4  # a value is asked for before its run begins
        assert 3 * VALUE < a.by["JOIN"].bytes <= 3 * (VALUE + 2 * 200)


def test_values_go_to_and_fro() -> None:
    """A -> B -> C -> A -> B: each host sends and fetches, and each gets one message."""
    graph = layers(5)
    here = linnet.Session(graph)
    with contextlib.ExitStack() as stack:
        a, b, c = (stack.enter_context(counted(stack.enter_context(host()).address)) for _ in range(3))
        devices = [a.name, b.name, c.name]
        session = linnet.Session(graph, devices=devices, placement=placed(*devices, a.name, b.name))
        for seed in range(3):
            a.clear(), b.clear(), c.clear()
            assert same(session.run(feed(seed)), here.run(feed(seed)))
            for counts in (a, b, c) if seed else ():
                assert counts.by["HELLO"].messages == {"SUBMIT": 1, "ANSWER": 1}
        assert c.by["HELLO"].bytes <= 2 * 200
        assert sum(x.by["JOIN"].messages["ANSWER"] for x in (a, b, c)) == 4


def test_values_of_each_iteration_go_directly() -> None:
    """The body of a loop is on two hosts."""
    graph, rng = linnet.Graph(), np.random.default_rng(1)
    x = graph.placeholder("x", (8, SIDE))
    weights = [rng.standard_normal((SIDE, SIDE)).astype(np.float32) / 8 for _ in range(2)]

    def body(state: Any) -> Any:
        i, y = state
        for k, w in enumerate(weights):
            with graph.scope(f"layer{k}"):
                y = linnet.ops.relu(y @ graph.constant(w, "w"))
        return i + 1, y

    _, y = linnet.while_loop(lambda state: state[0] < 5, body, (0, x), maximum=5)
    graph.signature("infer", {"x": x}, {"y": y})
    with host() as one, host() as two, counted(one.address) as a, counted(two.address) as b:
        session = linnet.Session(graph, devices=[a.name, b.name], placement=placed(a.name, b.name))
        for seed in range(2):
            a.clear(), b.clear()
            assert same(session.run(feed(seed)), linnet.Session(graph).run(feed(seed)))
            assert a.by["JOIN"].messages["ANSWER"] == 5
            assert all(counts.by["HELLO"].messages == {"SUBMIT": 5, "ANSWER": 5} for counts in (a, b))
            assert all(counts.by["HELLO"].bytes <= 5 * (VALUE + 2 * 200) for counts in (a, b))


def test_values_go_through_the_client_if_hosts_cannot_reach_each_other(tmp_path: Path) -> None:
    graph = layers(2)
    here, other = linnet.Session(graph), tmp_path / "other"
    other.mkdir()
    for options, keys in ((("--no-peers",), (None, None)), ((), (new_key(tmp_path), new_key(other)))):
        with host(key=keys[0]) as one, host("127.0.0.1:0", *options, key=keys[1]) as two:
            names = [one.name, two.name]
            session = linnet.Session(graph, devices=names, placement=placed(*plain(names)))
            assert same(session.run(feed(1)), here.run(feed(1)))


def test_values_go_from_host_to_host_with_a_key(tmp_path: Path) -> None:
    graph, key = layers(3), new_key(tmp_path)
    with host(f"unix:{tmp_path}/one", key=key) as one, host(key=key) as two:
        names = [one.name, two.name]
        session = linnet.Session(graph, devices=names, placement=placed(*plain([*names, one.name])))
        for seed in range(3):
            assert same(session.run(feed(seed)), linnet.Session(graph).run(feed(seed)))


@pytest.mark.parametrize("rows", [8, 25_000])  # 25,000: 6 MB, more than sockets hold
def test_several_runs_are_under_way(rows: int) -> None:
    graph, rng = layers(4, rows), np.random.default_rng(2)
    here = linnet.Session(graph)
    with host() as one, host() as two:
        a, b = (linnet.load_device(there.name) for there in (one, two))
        session = linnet.Session(graph, devices=[a, b], placement=placed(a.name, b.name, a.name, b.name))
        given = [rng.standard_normal((rows, SIDE)).astype(np.float32) for _ in range(12)]
        inputs, outputs = ([linnet.DeviceArray(device, (rows, SIDE)) for _ in given] for device in (a, b))
        for x, value in zip(inputs, given, strict=True):
            x.write(value)
        binding = session.bind({"x": inputs[0]}, {"y": outputs[0]})
        for _ in range(2):
            for x, y in zip(inputs, outputs, strict=True):  # each run of the one session has memory of its own
                for i, array in enumerate((x, y)):
                    assert not lib().linnet_session_bind_device(
                        binding._planned.session, i, 0, array.device.pointer, array._span(), ffi.NULL
                    )
                binding.submit()
            binding.wait()
            for i, (y, value) in enumerate(zip(outputs, given, strict=True)):
                if rows < 100 or i % 5 == 0:
                    assert np.array_equal(y.read(), values(here.run({"x": value}))[0]), i
                y.write(np.zeros((rows, SIDE), np.float32))


def test_a_failure_of_one_host_names_both() -> None:
    graph = linnet.Graph()
    rows = graph.placeholder("rows", (8,), "i32")
    with graph.scope("layer0"):
        y = linnet.ops.gather(graph.constant(np.ones((10, SIDE), np.float32), "w"), rows)
    with graph.scope("layer1"):
        y = linnet.ops.relu(y @ graph.constant(np.ones((SIDE, SIDE), np.float32), "w"))
    graph.signature("infer", {"rows": rows}, {"y": y})
    good, bad = {"rows": np.arange(8, dtype=np.int32)}, {"rows": np.full(8, 99, np.int32)}
    expected = linnet.Session(graph).run(good)
    with host() as one, host() as two:
        session = linnet.Session(graph, devices=[one.name, two.name], placement=placed(one.name, two.name))
        for _ in range(3):  # the session can run again
            with pytest.raises(linnet.DeviceError, match=f"{re.escape(one.address)}.*an index in the data"):
                session.run(bad)
            assert same(session.run(good), expected)
        one.process.kill()
        one.process.wait()
        with pytest.raises(linnet.DeviceError, match=re.escape(one.address)):
            session.run(good)
        alone = linnet.Session(
            graph, devices=[two.name], placement=placed(two.name, two.name)
        )  # the other host goes on
        assert same(alone.run(good), expected)
