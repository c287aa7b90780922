"""One thread writes a variable while others read it: they see whole values, old or new."""

from __future__ import annotations

import threading

import numpy as np

import linnet

SIZE = 1 << 20  # large enough for a thread switch in the middle of a copy


def test_readers_see_whole_values() -> None:
    graph = linnet.Graph()
    graph.variable("v", np.zeros(SIZE, np.float32))
    x = graph.placeholder("x", (1,))
    graph.signature("infer", {"x": x}, {"y": x * 1.0})
    store = linnet.Store(linnet.Model(graph.to_bytes()))
    stop, torn = threading.Event(), []

    def write() -> None:
        for k in range(1, 300):
            store["v"] = np.full(SIZE, k, np.float32)
        stop.set()

    def read() -> None:
        while not stop.is_set():
            found = store["v"]
            if found[0] != found[-1] or found[0] != found[SIZE // 2]:
                torn.append((found[0], found[SIZE // 2], found[-1]))
                stop.set()

    threads = [threading.Thread(target=f) for f in (write, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not torn
    assert store["v"][0] == 299
