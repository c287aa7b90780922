"""A call that a user could make provokes every status code of linnet.h; a code without a test fails.
Each record says what is wrong, and what to do or what was expected, in one line."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet.facade import Graph
from linnet.ir.function import emit
from tests.capi import NULL, Allocator, Chain, Failure, check, ffi, lib, new_struct
from tests.graphs import bytes_of, feeds
from tests.native import ROOT
from tests.py_device import PyDevice

HEADER = (ROOT / "runtime_c" / "include" / "linnet.h").read_text()
ENUM = re.search(r"typedef enum linnet_status \{(.*?)\}", HEADER, re.DOTALL)
assert ENUM
ALL_CODES = {name: int(value) for name, value in re.findall(r"LINNET_(\w+) = ([1-9]\d*)", ENUM.group(1))}
CODES = {name: value for name, value in ALL_CODES.items() if value // 100 != 6}  # 6xx: tests/test_sync_errors.py


def _header(data: bytes, **fields: int) -> bytes:
    """Replaces fields of the file's header (docs/format.md)."""
    from linnet.file.layout import HEADER as LAYOUT

    names = ["magic", "version", "oldest_reader", "offset", "size", "crc", "zero", "file_size"]
    values = list(LAYOUT.unpack_from(data))
    for name, value in fields.items():
        values[names.index(name)] = value
    return LAYOUT.pack(*values) + data[LAYOUT.size :]


def _structure(data: bytes, change: Callable[[bytearray], None]) -> bytes:
    """Changes the file's structure and corrects the checksum."""
    from linnet.file.layout import HEADER as LAYOUT

    _, _, _, offset, size, *_ = LAYOUT.unpack_from(data)
    structure = bytearray(data[offset : offset + size])
    change(structure)
    changed = data[:offset] + bytes(structure) + data[offset + size :]
    return _header(changed, crc=zlib.crc32(bytes(structure)))


def _session(name: str, **fields: object) -> Chain:
    with Chain(bytes_of(name)) as chain:
        chain.make_plan().make_session(**fields).set(feeds(name)).run()
    return chain


def invalid_argument(_: Path) -> None:
    out, error = ffi.new("linnet_model **"), ffi.new("linnet_error *")
    status = lib().linnet_model_open(NULL, NULL, out, error)
    assert out[0] == NULL
    raise Failure(status, error)


def unknown_name(_: Path) -> None:
    with Chain(bytes_of("mlp")) as chain:
        chain.make_plan("no_such_signature")


def wrong_dtype(_: Path) -> None:
    linnet.Session(bytes_of("mlp")).run({"x": np.zeros((4, 8), np.uint8)})


def wrong_shape(_: Path) -> None:
    with Chain(bytes_of("mlp")) as chain:
        chain.make_plan().make_session().set({"x": np.zeros(3, np.float32)})


def missing_input(_: Path) -> None:
    linnet.Session(bytes_of("mlp")).run({})


def not_found(folder: Path) -> None:
    _open(folder / "absent.lnt")


def read_failed(folder: Path) -> None:
    _open(folder)  # a folder can be opened but not read


def _open(path: Path) -> None:
    out, error = ffi.new("linnet_model **"), ffi.new("linnet_error *")
    status = lib().linnet_model_open(str(path).encode(), NULL, out, error)
    lib().linnet_model_free(out[0])
    if status:
        raise Failure(status, error)


def bad_magic(folder: Path) -> None:
    path = folder / "picture.lnt"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(500))
    _open(path)


def newer_format(_: Path) -> None:
    Chain(_header(bytes_of("mlp"), version=99, oldest_reader=99))


def truncated(folder: Path) -> None:
    path = folder / "half.lnt"
    path.write_bytes(bytes_of("conv_net")[: len(bytes_of("conv_net")) // 2])
    _open(path)


def corrupt(_: Path) -> None:
    data = bytearray(bytes_of("mlp"))
    data[100] ^= 0xFF
    Chain(bytes(data))


def _store(name: str) -> Chain:
    return Chain(bytes_of(name)).make_store()


def write_failed(folder: Path) -> None:
    with _store("counter") as chain:
        check(lib().linnet_store_save(chain.store, str(folder / "no" / "a").encode(), NULL, chain.error), chain.error)


def other_model(folder: Path) -> None:
    path = str(folder / "a").encode()
    with _store("counter") as chain, _store("mlp") as other:
        check(lib().linnet_store_save(chain.store, path, NULL, chain.error), chain.error)
        check(lib().linnet_store_load(other.store, path, other.error), other.error)


def unsupported(_: Path) -> None:
    """A node with an op that this build does not know, in an otherwise valid file."""
    from linnet._generated.op_table import OPS

    softmax = OPS["softmax"]["id"]

    def change(structure: bytearray) -> None:
        from linnet._generated.fb.Model import Model

        function = Model.GetRootAs(structure, 0).Functions(0)
        for i in range(function.NodesLength()):
            node = function.Nodes(i)
            if node.Op() == softmax:
                at = node._tab.Pos + node._tab.Offset(4)
                structure[at : at + 2] = struct.pack("<H", 60000)
                return
        raise AssertionError("no softmax in the graph")

    Chain(_structure(bytes_of("mlp"), change))


def bad_attribute(_: Path) -> None:
    main = Graph().function()
    weight = main.constant(np.zeros((4, 3, 3, 3), np.float32))
    emit("conv", [main.placeholder("x", "f32", (1, 3, 8, 8)), weight], {"strides": [0, 1]})


def shape_mismatch(_: Path) -> None:
    main = Graph().function()
    emit("matmul", [main.placeholder("x", "f32", (2, 3)), main.constant(np.zeros((4, 5), np.float32))], {})


def unknown_shape(_: Path) -> None:
    with Chain(bytes_of("dynamic")) as chain:
        chain.make_plan()


def index_out_of_range(_: Path) -> None:
    with Chain(bytes_of("gather")) as chain:
        chain.make_plan().make_session().set({"indices": np.array([0, 1, 5], np.int64)}).run()


def too_large(_: Path) -> None:
    with Chain(bytes_of("conv_net")) as chain:
        chain.make_plan(max_bytes=100)


def user_op_failed(_: Path) -> None:
    graph = Graph()
    x = graph.placeholder("x", (2,))
    op = linnet.UserOp("com.example.fails", lambda x: 1 / 0, lambda x: (x.dtype, x.shape))
    graph.signature("infer", {"x": x}, {"y": op(x)})
    linnet.Session(graph).run({"x": np.zeros(2, np.float32)})


def out_of_memory(_: Path) -> None:
    Chain(bytes_of("mlp"), Allocator(fail_at=0))


def arena_too_small(_: Path) -> None:
    memory = np.zeros(256, np.uint8)
    start = memory.ctypes.data + -memory.ctypes.data % 64
    _session("conv_net", arena=ffi.cast("void *", start), arena_size=64)


THREAD_PROGRAM = """
import resource
import linnet
from tests.capi import Chain, Failure
graph = linnet.Graph()
function = graph.function()
x = function.placeholder("x", "f32", (1 << 21,))  # enough work for many threads
function.outputs.append(linnet.pointwise([x], lambda a: a.max(0.0)))
graph.signature("infer", function)
with Chain(graph.to_bytes()) as chain:
    chain.make_plan(threads=256)
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (48 << 20),) * 2)
    try:
        chain.make_session()
    except Failure as failure:
        print(failure.status, failure.text)
"""


def thread_failed(_: Path) -> None:
    """Runs in a process without address space for 255 stacks."""
    done = subprocess.run(
        [sys.executable, "-c", THREAD_PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0 and done.stdout, done.stderr[-2000:]
    status, text = done.stdout.strip().split(" ", 1)
    record = ffi.new("linnet_error *", {"code": int(status)})
    record.what = text.encode()[:150]
    raise Failure(int(status), record)


def device_failed(_: Path) -> None:
    """A device that takes every step and then reports a failure."""
    device = PyDevice()
    device.fail["run"] = 7
    try:
        with Chain(bytes_of("mlp")) as chain:
            chain.make_plan(devices=device.pointers, device_count=1).make_session().set(feeds("mlp")).run()
    finally:
        assert device.nothing_left(), "the device's objects were not given back"


def _ended(**fields: object) -> None:
    config = new_struct("linnet_run_config")
    for name, value in fields.items():
        setattr(config, name, value)
    with Chain(bytes_of("conv_net")) as chain:
        chain.make_plan().make_session().set(feeds("conv_net"))
        check(lib().linnet_run_with(chain.session, config, chain.error), chain.error)


def cancelled(_: Path) -> None:
    _ended(cancel=ffi.new("int *", 1))


def deadline_exceeded(_: Path) -> None:
    _ended(timeout_ns=1)


def ok(_: Path) -> None:
    _session("mlp")


PROVOKERS: dict[str, Callable[[Path], None]] = {
    name: globals()[name.lower()] for name in CODES if callable(globals().get(name.lower()))
}
PROVOKERS["OK"] = ok


def test_the_codes_were_found() -> None:
    assert len(CODES) >= 21
    for name, value in {"OK": 0, **ALL_CODES}.items():
        assert bytes(ffi.string(lib().linnet_status_name(value))).decode() == name.lower()
    assert bytes(ffi.string(lib().linnet_status_name(999))) == b"unknown_status"


@pytest.mark.parametrize("name", ["OK", *CODES])
def test_code_is_provoked(name: str, tmp_path: Path) -> None:
    assert name in PROVOKERS, f"LINNET_{name} has no provoker: write one in tests/test_errors_all.py"
    if name == "OK":
        PROVOKERS[name](tmp_path)
        return
    with pytest.raises((Failure, linnet.Error)) as caught:
        PROVOKERS[name](tmp_path)
    error = caught.value
    if isinstance(error, Failure):
        assert error.status == CODES[name], error
        assert error.record.code == CODES[name]
        text, record = error.text, error.record
        assert text and "\n" not in text
        if name not in ("THREAD_FAILED", "OUT_OF_MEMORY"):
            assert any(bytes(ffi.string(field)) for field in (record.hint, record.expected, record.got)), text
    else:
        assert error.code == CODES[name], error
        assert "\n" not in str(error)
        assert error.hint or error.expected or error.got, str(error)
