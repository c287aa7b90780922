"""A binding in another language: ctypes calls the library as any foreign-function interface would, without the headers.
Configs are initialized through symbols, inputs and outputs are found and copied by name."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from tests.abi.listing import Struct
from tests.native import build
from tests.test_abi import READER


def _type(field: str) -> type:
    if "*" in field or "(" in field:
        return ctypes.c_void_p
    return {
        "size_t": ctypes.c_size_t, "int32_t": ctypes.c_int32, "bool": ctypes.c_bool, "uint64_t": ctypes.c_uint64,
        "int64_t": ctypes.c_int64, "double": ctypes.c_double, "linnet_log": ctypes.c_void_p,
        "linnet_parallel_for": ctypes.c_void_p,
    }[field]  # fmt: skip


def _struct(struct: Struct) -> type[ctypes.Structure]:
    fields = [(f.name, _type(f.type)) for f in struct.fields]
    made = type(struct.name, (ctypes.Structure,), {"_fields_": fields})
    assert ctypes.sizeof(made) == struct.size
    return made


@pytest.mark.parametrize(
    ("library", "name", "defaults"),
    [
        ("liblinnet.so", "linnet_plan_config", {}),
        ("liblinnet.so", "linnet_session_config", {}),
        ("liblinnet.so", "linnet_run_config", {}),
        ("liblinnet_sync.so", "linnet_server_config", {"staleness": -1}),
        ("liblinnet_sync.so", "linnet_worker_config", {"worker": -1}),
    ],
)
def test_a_symbol_initializes_each_config(library: str, name: str, defaults: dict[str, int]) -> None:
    config = _struct(READER.structs[name])()
    ctypes.memset(ctypes.addressof(config), 0xFF, ctypes.sizeof(config))
    init = getattr(ctypes.CDLL(str(build("release") / library)), f"{name}_init_sized")
    init.argtypes, init.restype = [ctypes.c_void_p, ctypes.c_size_t], None
    init(ctypes.addressof(config), ctypes.sizeof(config))
    expected = {"struct_size": ctypes.sizeof(config), **defaults}
    for field, _ in config._fields_:
        assert (getattr(config, field) or 0) == expected.get(field, 0), field


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[tuple[ctypes.CDLL, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]]:
    """The library, and the model, plan and session of a graph with two inputs and two outputs."""
    graph = linnet.Graph()
    a, b = graph.placeholder("a", (3,)), graph.placeholder("b", (3,))
    graph.signature("infer", {"a": a, "b": b}, {"difference": a - b, "product": a * b})
    path = tmp_path / "two.lnt"
    graph.save(path)
    library = ctypes.CDLL(str(build("release") / "liblinnet.so"))
    model, plan, session = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    assert library.linnet_model_open(str(path).encode(), None, ctypes.byref(model), None) == 0
    config = _struct(READER.structs["linnet_plan_config"])()
    library.linnet_plan_config_init_sized(ctypes.byref(config), ctypes.c_size_t(ctypes.sizeof(config)))
    config.strict_dims = True
    assert library.linnet_plan_create(model, ctypes.byref(config), ctypes.byref(plan), None) == 0
    assert library.linnet_session_create(plan, None, None, ctypes.byref(session), None) == 0
    yield library, model, plan, session
    library.linnet_session_free(session)
    library.linnet_plan_free(plan)
    library.linnet_model_free(model)


def test_a_model_runs_through_ctypes_by_name(opened: Any) -> None:
    library, _, plan, session = opened
    assert [library.linnet_plan_find_input(plan, name) for name in (b"a", b"b", b"difference")] == [0, 1, -1]
    assert library.linnet_plan_find_output(plan, b"product") == 1
    for name, value in {b"a": np.float32([5, 6, 7]), b"b": np.float32([1, 2, 3])}.items():
        data = value.ctypes.data_as(ctypes.c_void_p)
        assert library.linnet_session_set(session, name, data, ctypes.c_size_t(value.nbytes), None) == 0
    got = np.zeros(3, "f4")
    to, size = got.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(got.nbytes)
    assert library.linnet_run(session, None) == 0
    assert library.linnet_session_get(session, b"difference", to, size, None) == 0
    assert got.tolist() == [4, 4, 4]
    assert library.linnet_session_get(session, b"product", to, size, None) == 0
    assert got.tolist() == [5, 12, 21]


def test_codes_do_not_depend_on_whether_the_caller_wants_a_record(opened: Any, tmp_path: Path) -> None:
    library, model, _, session = opened
    text = tmp_path / "text.lnt"
    text.write_text("no model, but a text that is longer than the header of a model " * 4)
    out, data, twelve = ctypes.byref(ctypes.c_void_p()), (ctypes.c_byte * 12)(), ctypes.c_size_t(12)
    config = _struct(READER.structs["linnet_plan_config"])()
    library.linnet_plan_config_init_sized(ctypes.byref(config), ctypes.c_size_t(ctypes.sizeof(config)))
    config.signature = ctypes.cast(ctypes.c_char_p(b"no such"), ctypes.c_void_p)
    cases = [
        (102, library.linnet_session_get, session, b"quotient", data, twelve),
        (104, library.linnet_session_get, session, b"product", data, ctypes.c_size_t(8)),
        (102, library.linnet_session_set, session, b"c", data, twelve),
        (104, library.linnet_session_set, session, b"a", data, ctypes.c_size_t(8)),
        (201, library.linnet_model_open, str(tmp_path / "nothing").encode(), None, out),
        (203, library.linnet_model_open, str(text).encode(), None, out),
        (102, library.linnet_plan_create, model, ctypes.byref(config), out),
        (101, library.linnet_bind_thread, -2),
    ]
    record = (ctypes.c_byte * 1024)()
    for code, function, *arguments in cases:
        assert function(*arguments, record) == code, function.__name__
        assert function(*arguments, None) == code, function.__name__
