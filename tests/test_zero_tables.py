"""A table of zeros takes no memory before its rows are used: in a store, in a server, through checkpoints and snapshots.
Measured by the system in separate processes: resident memory grows by less than a tenth of the table."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.native import ROOT

COMMON = """
import mmap, os, re, sys, tempfile
import numpy as np
import linnet
from linnet import nn

ROWS, WIDTH = int(sys.argv[1]), 64
MOST = ROWS * WIDTH * 4 / 10

def resident(which="VmRSS"):
    return int(re.search(which + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024

graph = linnet.Graph(seed=1)
words, t = graph.placeholder("words", ("batch", 8), "i32"), graph.placeholder("t", ("batch",), "i32")
rows = nn.embedding(words, ROWS, WIDTH, start=linnet.init.zeros, name="table")
loss = linnet.softmax_cross_entropy(nn.dense(nn.flatten(rows), 4), t).mean()
feeds = {"words": np.linspace(0, ROWS - 1, 32).astype(np.int32).reshape(4, 8), "t": np.zeros(4, np.int32)}

def grown():
    now = resident()
    assert now - before < MOST, f"{sys.argv}: {(now - before) / 1e6:.1f} MB more are resident"
"""

STORE = """
graph.signature("infer", {"words": words}, {"rows": rows})
graph.signature("train", {"words": words, "t": t}, {"loss": loss}, updates=linnet.SGD(0.1).minimize(loss))
model = linnet.Model(graph.to_bytes())
before = resident()
store = linnet.Store(model)
grown()
assert not linnet.Session(model, store=store).run({"words": feeds["words"]})["rows"].any()
grown()
train = linnet.Session(model, "train", store=store)
train.run(feeds), train.run(feeds)
grown()
used = linnet.Session(model, store=store).run({"words": feeds["words"]})["rows"]
assert used.any(axis=-1).all()
with tempfile.TemporaryDirectory() as folder:
    path = folder + "/a.ckpt"
    store.save(path)
    status = os.stat(path)
    assert status.st_size > 10 * MOST and status.st_blocks * 512 < MOST  # nor on the disk
    again = linnet.Store(model)
    again.load(path)
    again.load(path)
    grown()
    assert resident("VmHWM") - before < 2 * MOST  # nor for a moment
    assert (linnet.Session(model, store=again).run({"words": feeds["words"]})["rows"] == used).all()
"""

SERVER = """
from linnet.sync import Server, Worker
linnet.sync.signatures(graph, loss, linnet.AdaGrad(0.1), {"words": words, "t": t}, remote=[graph.variables["table/weight"]])
parts = linnet.sync.shard(graph, servers=1)
before = resident()
with tempfile.TemporaryDirectory() as folder:
    server = Server(parts.servers[0], folder=folder)
    grown()
    for whole in (True, False):  # restored from a snapshot, and from a journal on top of it
        server.start()
        with Worker(parts.worker, server.address, number=0) as worker:
            worker.step(feeds)
            if whole:
                server.save()
            worker.step(feeds)
        grown()
        server.close()
        server = Server(parts.servers[0], folder=folder)
        grown()
    assert server.status()["version"] == 4, server.status()
    server.close()
"""

HOST = """
from tests.capi import NULL, Allocator, Chain, check, ffi, lib
graph.signature("infer", {"words": words}, {"rows": rows})
data, kept = graph.to_bytes(), []

@ffi.callback("void *(void *, size_t, size_t)")
def alloc(_, size, alignment):
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE)
    if size > MOST:
        pages[size // 2 : size // 2 + 100] = bytes([165]) * 100  # nobody promised zeros
    kept.append(ffi.from_buffer(pages))
    return ffi.cast("void *", kept[-1])

@ffi.callback("void(void *, void *, size_t)")
def free(_, pointer, size):
    pass

before = resident()
host = ffi.new("linnet_allocator *", {"context": NULL, "alloc": alloc, "free": free})
with Chain(data) as chain:
    out = ffi.new("linnet_store **")
    check(lib().linnet_store_create(chain.model, host, out, chain.error), chain.error)
    grown()
    name = b"table/weight"
    data = lib().linnet_store_data(out[0], name, lib().LINNET_READ, NULL)
    assert not np.frombuffer(ffi.buffer(data, 10 * int(MOST)), np.uint8).any()
    grown()
    lib().linnet_store_free(out[0])
"""


@pytest.mark.parametrize(
    ("program", "rows"), [(STORE, 200_000), (SERVER, 100_000), (HOST, 100_000)], ids=["store", "server", "host"]
)
def test_unused_rows_take_no_memory(program: str, rows: int) -> None:
    command = [sys.executable, "-c", COMMON + program, str(rows)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
