"""Whatever takes a value and a dtype converts every number exactly, rounds a float to the nearest one, or refuses. NumPy,
ml_dtypes and Python's fractions give the expected values."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

import linnet
from linnet import init, losses, nn, ops
from linnet.ir.dtypes import dtype_of, numpy_dtype

DTYPES = ("f32", "f16", "bf16", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool", "i4", "u4")
NUMBERS: list[Any] = [
    0, 1, -1, 7, 8, -8, -9, 15, 16, 127, 128, -128, -129, 255, 256, 257, 2049, 65504, 65535, 65536, 2**24, 2**24 + 1,
    2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 0.5, -0.5, 1.5, 0.1, 3e5, 1e39, 1e300,
    float("nan"), float("inf"), -float("inf"), True, False,
]  # fmt: skip


def fraction(value: Any) -> Fraction | str:
    """The exact value of a number of any dtype; text for NaN and infinity."""
    number = value.item() if isinstance(value, np.generic) else value
    number = float(number) if isinstance(number, ml_dtypes.bfloat16) else number
    if isinstance(number, float) and not np.isfinite(number):
        return str(number)
    return Fraction(int(number) if not isinstance(number, float) else number)


@pytest.mark.parametrize("dtype", DTYPES)
def test_constants_keep_every_number_or_refuse(dtype: str) -> None:
    floats = dtype in ("f32", "f16", "bf16", "f64")
    for number in NUMBERS:
        try:
            got = linnet.Graph().constant(number, dtype=dtype)
        except linnet.UsageError as error:
            assert f"{dtype} cannot represent the value" in str(error) and error.code == 103
            with np.errstate(all="ignore"):
                if floats and isinstance(number, float):  # only what becomes infinite
                    assert np.isfinite(number) and not np.isfinite(np.float64(number).astype(numpy_dtype(dtype)))
                elif floats:
                    assert fraction(np.asarray(number).astype(numpy_dtype(dtype))[()]) != number
                else:
                    low, high = {"bool": (0, 1), "i4": (-8, 7), "u4": (0, 15)}.get(dtype, (0, 0))
                    if (low, high) == (0, 0):
                        low, high = np.iinfo(numpy_dtype(dtype)).min, np.iinfo(numpy_dtype(dtype)).max
                    assert not (np.isfinite(number) and number == int(number) and low <= number <= high)
            continue
        assert (got.dtype, got.shape) == (dtype, ()) and got.data is not None and got.data.dtype == numpy_dtype(dtype)
        if floats and isinstance(number, float):
            want = np.float64(number).astype(numpy_dtype(dtype))
            assert got.data.tobytes() == want.tobytes()
        else:
            assert fraction(got.data[()]) == fraction(number)


@pytest.mark.parametrize("source", DTYPES)
def test_arrays_of_every_dtype_to_every_dtype(source: str) -> None:
    """The result of each pair is the same numbers in the other dtype."""
    value = np.array([0, 1, 1, 0, 1]).astype(np.int8).astype(numpy_dtype(source))
    for dtype in DTYPES:
        graph = linnet.Graph()
        for data in (graph.constant(value, dtype=dtype).data, graph.variable(dtype, value, dtype=dtype).value):
            assert (
                data is not None
                and dtype_of(data.dtype) == dtype
                and data.astype(np.float32).tolist() == [0, 1, 1, 0, 1]
            )


def test_the_results_of_a_run() -> None:
    x = np.float32([10, 20])

    def run(build: Callable[[linnet.Graph, linnet.Tensor], linnet.Tensor]) -> list[float]:
        graph = linnet.Graph()
        t = graph.placeholder("x", (2,))
        graph.signature("infer", {"x": t}, {"y": build(graph, t)})
        return linnet.Session(graph).run({"x": x})["y"].tolist()  # type: ignore[no-any-return]

    assert run(lambda g, x: x * (g.constant(2, dtype="f32") + 1.0)) == [30, 60]
    assert run(lambda g, x: x + g.constant([True, False], dtype="f32")) == [11, 20]
    assert run(lambda g, x: x + ops.sum(g.constant(np.ones(64, bool), dtype="f64")).cast("f32")) == [74, 84]
    assert run(lambda g, x: x + g.constant(np.ones(2, np.uint8), dtype=np.float32)) == [11, 21]
    assert run(lambda g, x: x.cast("bf16").__add__(np.array([0.5, 1.0])).cast("f32")) == [10.5, 21]
    assert run(lambda g, x: x + g.constant(np.array([1, 2], ">i4"), dtype="f32")) == [11, 22]
    big = linnet.Graph().constant(np.zeros(1 << 22, np.uint8), dtype="f64")
    assert big.data is not None and big.data.size == 1 << 22 and not big.data.any()


def test_numbers_at_the_ends_of_a_dtype() -> None:
    """What the next number beyond becomes is never stored unnoticed."""
    graph, bf16 = linnet.Graph(), numpy_dtype("bf16")

    def value(given: Any, dtype: str | None = None) -> Any:
        data = graph.constant(given, dtype=dtype).data
        assert data is not None
        return data

    for given, dtype in (
        (np.array(1e30).astype(bf16), "f16"),
        (np.float64(2**63), "i64"),
        (np.float64(2**64), "u64"),
        (np.float32(2**31), "i32"),
        (np.int64(65536), "f16"),
        (np.uint64(2**64 - 1), "f64"),
        (np.int64(-(2**24) - 1), "f32"),
    ):
        with pytest.raises(linnet.UsageError, match=f"{dtype} cannot represent the value"):
            value(given, dtype)
    assert value(np.int64(-(2**24)), "f32") == -(2.0**24) and value(np.int64(-(2**40)), "f32") == -(2.0**40)
    assert value(np.int64(-(2**63)), "f32") == -(2.0**63)
    assert value(np.float64(-(2.0**63)), "i64") == -(2**63)
    assert value(np.float64(0.1)).dtype == np.float64 and value(0.1).dtype == np.float32
    assert value(np.array([1.5, 2], ">f8")).tolist() == [1.5, 2] and value(np.array([1, 2], ">i2")).dtype == np.int16


def test_later_writes_to_the_callers_array_change_nothing() -> None:
    graph, value, shape = linnet.Graph(), np.ones(3, np.float32), np.array([3, 1])
    x = graph.placeholder("x", (3,))
    v = graph.variable("v", value)
    y = x + graph.constant(value) + value + v.tensor(x) + losses.mse(x, value).mean()
    y = ops.where(graph.placeholder("c", (), "bool"), y, value)
    z = x.reshape(shape)  # type: ignore[arg-type]
    value[:] = 100
    shape[:] = 7
    graph.signature("infer", {"x": x, "c": graph.find("c")}, {"y": y, "z": z})
    found = linnet.Session(graph).run({"x": np.zeros(3, np.float32), "c": True})
    assert found["y"].tolist() == [4, 4, 4] and found["z"].shape == (3, 1)


REFUSED: dict[str, Callable[[linnet.Graph, linnet.Tensor, linnet.Tensor], Any]] = {
    "f32 + None": lambda g, x, i: x + None,
    "None - f32": lambda g, x, i: None - x,
    "[None]": lambda g, x, i: x * [1.0, None],
    "text": lambda g, x, i: x + "1.5",
    "complex": lambda g, x, i: x + 1j,
    "NumPy's complex": lambda g, x, i: x + np.complex64(1),
    "a fraction to i32": lambda g, x, i: i + np.array([0.5, 1.0]),
    "a large number to i32": lambda g, x, i: i + np.array([2**40, 1]),
    "constant of None": lambda g, x, i: g.constant(None),  # type: ignore[arg-type]
    "constant of None with a dtype": lambda g, x, i: g.constant(None, dtype="f32"),  # type: ignore[arg-type]
    "constant of text": lambda g, x, i: g.constant("1.5", dtype="f32"),
    "Python's float beyond f32": lambda g, x, i: g.constant(1e39),
    "constant of another dtype": lambda g, x, i: g.constant(1, dtype="F32"),
    "NumPy's code": lambda g, x, i: g.constant(1, dtype="f4"),
    "constant of a tensor": lambda g, x, i: g.constant([x], dtype="f32"),  # type: ignore[list-item]
    "initializer of integers": lambda g, x, i: g.variable("w", init.constant(3, 0.5, "i32")),
    "ops.where": lambda g, x, i: ops.where(g.placeholder("c", (2,), "bool"), i, 0.5 * np.ones(2)),
    "ops.maximum": lambda g, x, i: ops.maximum(x, None),
    "an axis of 1.5": lambda g, x, i: ops.softmax(x, axis=1.5),  # type: ignore[arg-type]
    "a window of 2.5": lambda g, x, i: ops.pool(x.reshape(1, 1, 2), kernel=[2.5]),  # type: ignore[list-item]
    "a text as number": lambda g, x, i: ops.softmax(x, axis="0"),  # type: ignore[arg-type]
    "state of a loop": lambda g, x, i: linnet.while_loop(lambda s: s[1].sum() > 0, lambda s: (s[0], 0.5), (x, 1)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_number_of_the_dtype_is_refused(name: str) -> None:
    graph = linnet.Graph()
    with pytest.raises(linnet.Error):
        REFUSED[name](graph, graph.placeholder("x", (2,)), graph.placeholder("i", (2,), "i32"))


def test_feeds_and_stores_follow_the_same_rule() -> None:
    graph = linnet.Graph()
    feeds = {name: graph.placeholder(name, (2,), name) for name in DTYPES}
    v = graph.variable("v", np.zeros(2), dtype=ml_dtypes.bfloat16)
    graph.signature(
        "infer",
        feeds,
        {f"{n}_out": ops.copy([t], name=f"{n}_out")[0] for n, t in feeds.items()},
        updates={v: v.tensor() + 1.0},
    )
    model = linnet.Model(graph)
    store = linnet.Store(model)
    session = linnet.Session(model, store=store)
    found = session.run({name: [1, 0] for name in DTYPES})
    for name in DTYPES:
        assert found[f"{name}_out"].dtype == numpy_dtype(name) and found[f"{name}_out"].tolist() == [1, 0]
    for name, wrong in (
        ("f32", [2**24 + 1, 0]),
        ("bf16", [257, 0]),
        ("i4", [8, 0]),
        ("i8", [128, 0]),
        ("bool", [2, 0]),
        ("f16", [1e6, 0]),
    ):
        with pytest.raises(
            linnet.UsageError, match=f"input '{name}' has the wrong dtype.*{name} cannot represent a value"
        ):
            session.run({n: wrong if n == name else [1, 0] for n in DTYPES})
    assert store["v"].dtype == ml_dtypes.bfloat16 and store["v"].tolist() == [1, 1]
    store["v"] = [0.1, 3]
    assert store["v"].tolist() == np.array([0.1, 3]).astype(ml_dtypes.bfloat16).tolist()
    with pytest.raises(linnet.UsageError, match="variable 'v' has the wrong dtype"):
        store["v"] = [257, 1]


def test_bf16_goes_through_a_file_and_trains(tmp_path: Path) -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (2, 3), "bf16")
    weight = np.arange(6).reshape(3, 2).astype(ml_dtypes.bfloat16)
    w = graph.variable("w", weight)
    y = x @ w.tensor(x) + graph.constant(ml_dtypes.bfloat16(0.5)) + graph.constant([1, 2], dtype="bf16")
    loss = (y.cast("f32") ** 2).mean()
    graph.signature("infer", {"x": x}, {"y": y})
    graph.signature("train", {"x": x}, {"loss": loss}, updates=linnet.SGD(0.125).minimize(loss))
    graph.save(tmp_path / "m.lnt")
    value = np.array([[1, 0, 2], [0, 1, 0]])
    want = value @ weight.astype(np.float32) + 0.5 + [1, 2]
    for source in (graph, linnet.Graph.load(tmp_path / "m.lnt")):
        session = linnet.Session(source)
        assert session.run({"x": value})["y"].dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(
            session.run({"x": value.astype(ml_dtypes.bfloat16)})["y"].astype(np.float32), want
        )
        bits = value.astype(ml_dtypes.bfloat16).view(np.uint16)
        np.testing.assert_array_equal(session.run({"x": bits})["y"].astype(np.float32), want)
    model = linnet.Model(graph)
    store = linnet.Store(model)
    linnet.Session(model, "train", store=store).run({"x": value})
    step = weight.astype(np.float32) - 0.125 * value.T @ want / 2
    np.testing.assert_allclose(store["w"].astype(np.float32), step, rtol=2**-8)
    store.save(tmp_path / "m.ckpt")
    other = linnet.Store(model)
    other.load(tmp_path / "m.ckpt")
    assert other["w"].tobytes() == store["w"].tobytes()


NAMES: tuple[Any, ...] = ("float32", np.float32, np.dtype("f4"), np.dtype(np.float32).type, "f32")


@pytest.mark.parametrize("name", NAMES, ids=str)
def test_numpys_names_of_dtypes(name: Any) -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (2, 2), name)
    made = [
        x, x.cast(name), ops.cast(x, dtype=name), graph.constant(1, dtype=name), graph.variable("v", [1], dtype=name),
        ops.one_hot(graph.placeholder("i", (2,), np.int64), 3, name), graph.variable("w", init.zeros(3, name)),
        linnet.pointwise([x], lambda v: v * 2, name), linnet.pointwise([x], lambda v: (v, v), [name, name])[1],
        ops.map_([x], **linnet.ir.expr.compiled([x], lambda v: v)[1])[0],
        nn.embedding(graph.find("i"), 4, 2, dtype=name),
        linnet.UserOp("com.example.same", lambda v: v, lambda v: (name, v.shape))(x),
        linnet.UserOp("com.example.other", lambda v: v)(x, outputs=[(name, (2, 2))]),
    ]  # fmt: skip
    assert [t.dtype for t in made] == ["f32"] * len(made)


def test_names_of_all_dtypes() -> None:
    for dtype in DTYPES:
        kind = numpy_dtype(dtype)
        for name in (dtype, kind.name, kind, kind.type):
            assert dtype_of(name) == dtype and linnet.Graph().placeholder("x", (), name).dtype == dtype
    for wrong in (
        "int",
        "f4",
        "i1",
        "F32",
        "",
        "none",
        "complex64",
        np.complex64,
        str,
        object,
        None,
        3,
        [],
        np.float32(1),
    ):
        with pytest.raises(linnet.Error):
            linnet.Graph().placeholder("x", (), wrong)  # type: ignore[arg-type]


def test_quantizers_take_numpys_names(tmp_path: Path) -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (4, 8))
    w = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    graph.signature("infer", {"x": x}, {"y": x @ graph.constant(w)})
    feeds = [{"x": w[:4]}]
    want = linnet.quantize(graph, feeds, "i8", effort="fast").to_bytes()
    for name in ("int8", np.int8, np.dtype("int8")):
        assert linnet.quantize(graph, feeds, name, effort="fast").to_bytes() == want
    assert (
        linnet.quantize(graph, dtype=ml_dtypes.bfloat16).to_bytes() == linnet.quantize(graph, dtype="bf16").to_bytes()
    )
    with pytest.raises(linnet.UsageError, match="expected f16, bf16, i16, i8 or auto, got i4"):
        linnet.quantize(graph, feeds, "int4")
    from linnet.cli.main import cli

    graph.save(tmp_path / "m.lnt")
    np.savez(tmp_path / "c.npz", x=w[None, :4])
    for name in ("i8", "int8"):
        done = CliRunner().invoke(
            cli,
            [
                "quantize",
                str(tmp_path / "m.lnt"),
                "-o",
                str(tmp_path / f"{name}.lnt"),
                "--dtype",
                name,
                "--calibration",
                str(tmp_path / "c.npz"),
            ],
        )
        assert done.exit_code == 0, done.output
    assert (tmp_path / "i8.lnt").read_bytes() == (tmp_path / "int8.lnt").read_bytes()
    assert linnet.Session(graph, precision="float32").run({"x": w[:4]})["y"].shape == (4, 8)
