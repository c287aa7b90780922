"""The Python package as a whole: its names, the cost of its import and of a run, and errors that keep their fields."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
import time

import numpy as np
import pytest

import linnet
from linnet.clib.errors import STATUS, class_of
from tests.graphs import bytes_of, feeds


def test_every_public_name_exists_and_is_documented() -> None:
    for name in linnet.__all__:
        value = getattr(linnet, name)
        assert inspect.getdoc(value), name
        assert name in dir(linnet)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = linnet.nonsense


def test_quantize_stays_the_function() -> None:
    """Importing the module with the same name must not replace the function."""
    import linnet.quantization.post_training

    assert callable(linnet.quantize) and not inspect.ismodule(linnet.quantize)


def test_import_adds_little_to_numpys() -> None:
    """NumPy takes nearly all the time (75 of 90 ms here). A machine's load slows both, so their ratio is compared, in
    processor time and from the best of several processes. The modules are counted, because they are what takes time."""
    code = "import sys, time; t = time.process_time(); import {}; print(time.process_time() - t, len(sys.modules))"
    best = {}
    for name in ("numpy", "linnet") * 7:
        done = subprocess.run([sys.executable, "-c", code.format(name)], capture_output=True, text=True, check=True)
        seconds, modules = done.stdout.split()
        best[name] = min(best.get(name, (9.0, 0)), (float(seconds), int(modules)))
    assert best["linnet"][1] <= best["numpy"][1] + 40, best
    assert best["linnet"][0] <= best["numpy"][0] * 2, best


def test_a_run_costs_at_most_12_us() -> None:
    """The best of many batches of runs, for a graph of one op on four floats."""
    session, data = linnet.Session(bytes_of("one_op"), threads=1), feeds("one_op")
    best = float("inf")
    for _ in range(30):
        start = time.perf_counter()
        for _ in range(300):
            session.run(data)
        best = min(best, (time.perf_counter() - start) / 300)
    assert best <= 12e-6, f"{best * 1e6:.1f} us"


def test_building_a_node_is_quick() -> None:
    from linnet import ops

    main = linnet.Graph().function()
    x = main.placeholder("x", "f32", (1, 8, 16, 16))
    weight = main.constant(np.zeros((8, 8, 3, 3), np.float32))
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(50):
            ops.conv(x, weight, pads=[1, 1, 1, 1])
        best = min(best, (time.perf_counter() - start) / 50)
    assert best <= 200e-6, f"{best * 1e6:.1f} us"


def test_status_names_agree_with_the_library() -> None:
    from linnet.clib.ffi import ffi
    from linnet.clib.library import library

    groups = [None, linnet.UsageError, linnet.FileError, linnet.GraphError, linnet.ResourceError, linnet.DeviceError]
    groups.append(linnet.SyncError)
    for code, name in STATUS.items():
        assert ffi.string(library().linnet_status_name(code)).decode() == name
        ended = {701: linnet.Cancelled, 702: linnet.DeadlineExceeded}.get(code)
        assert class_of(code) is (ended or groups[code // 100])
    assert ffi.string(library().linnet_version()).decode() == linnet.__version__


def test_errors_keep_their_parts() -> None:
    error = linnet.GraphError(
        "shapes", code=303, op="sum", op_index=3, tensor="x", expected="[2]", got="[3]", hint="reshape"
    )
    assert str(error) == "shape_mismatch: node 3 'sum': 'x': shapes; expected [2], got [3]; reshape"
    assert error.status == "shape_mismatch" and isinstance(error, linnet.Error)
    assert isinstance(linnet.FileError("x"), OSError) and isinstance(linnet.UsageError("x"), ValueError)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and vars(again) == vars(error)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "code"),
    [
        ("no_such_op", [(2,)], {}, 301),
        ("softmax", [(2,)], {"axes": 1}, 302),
        ("reduce", [(2,)], {"kind": "median"}, 302),
        ("reduce", [(2,)], {"axes": "ab"}, 302),
        ("cast", [(2,)], {"dtype": "f8"}, 302),
        ("matmul", [(2, 3), (2, 3)], {}, 303),
        ("conv", [(1, 3, 8, 8), (4, 2, 3, 3)], {}, 303),
        ("softmax", [(2,)], {"axis": 5}, 302),
    ],
)
def test_wrong_nodes_are_refused_by_name(
    op: str, inputs: list[tuple[int, ...]], attributes: dict[str, str], code: int
) -> None:
    from linnet.ir.function import emit

    main = linnet.Graph().function()
    tensors = [main.placeholder(f"x{i}", "f32", shape) for i, shape in enumerate(inputs)]
    with pytest.raises(linnet.GraphError) as error:
        emit(op, tensors, attributes, name="culprit")
    assert error.value.code == code
    assert "culprit" in str(error.value) or op in str(error.value)
    assert not main.nodes


def test_missing_library_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    code = "import linnet; linnet.isa_names()"
    monkeypatch.setenv("LINNET_LIBRARY", f"{tmp_path}/none.so")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "linnet.clib.errors.Error: cannot open the C library" in done.stderr and "none.so" in done.stderr


def test_the_package_is_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(linnet)) is linnet
