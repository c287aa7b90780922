"""User ops as Python functions: nodes, files, plans, loops, dynamic shapes, gradients, and every wrong use.
docs/user_ops.md is the page about them; tests/test_user_ops_native.py has those of a C library."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.file import reader
from linnet.ir.user_op import Known, UserOp, pack, unpack
from tests.capi import Chain, Failure, ffi, lib

Array = np.ndarray[Any, Any]


def _crop_shape(x: Known, size: int) -> tuple[str, list[int | None] | None]:
    return x.dtype, None if x.shape is None else [*x.shape[:-1], size]


def _crop(x: Array, size: int) -> Array:
    return x[..., :size]


def _crop_gradient(
    inputs: Sequence[linnet.Tensor], outputs: Sequence[linnet.Tensor], gradients: Sequence[linnet.Tensor], size: int
) -> list[linnet.Tensor]:
    (x,), (g,) = inputs, gradients
    assert x.shape is not None and isinstance(x.shape[-1], int)
    return [ops.pad(g, [(0, 0)] * (len(x.shape) - 1) + [(0, x.shape[-1] - size)])]


CROP = linnet.UserOp("com.example.crop", _crop, _crop_shape, gradient=_crop_gradient, inputs=1)
X = np.arange(10, dtype=np.float32).reshape(2, 5)


def _graph(op: UserOp = CROP, size: int = 3) -> linnet.Graph:
    graph = linnet.Graph()
    x = graph.placeholder("x", ("n", 5))
    graph.signature("infer", {"x": x}, {"y": op(x, size=size) * 2.0})
    return graph


def test_a_node_has_the_shape_of_the_rule_with_the_names_of_its_dimensions() -> None:
    graph = linnet.Graph()
    y = CROP(graph.placeholder("x", ("n", 5)), size=3, name="front")
    assert (y.dtype, y.shape, y.name) == ("f32", ("n", 3), "front")
    assert y.node is not None and unpack(y.node.attributes) == {"size": 3}
    assert graph.user_ops == {"com.example.crop": CROP}


def test_runs_from_a_graph_and_from_a_file_in_every_mode(tmp_path: Path) -> None:
    path = tmp_path / "crop.lnt"
    graph = _graph()
    graph.save(path)
    again = linnet.Graph.load(path, user_ops=[CROP])
    for rows in (2, 4):
        x = np.arange(5 * rows, dtype=np.float32).reshape(rows, 5)
        for settings in ({}, {"reference": True}, {"threads": 2}, {"isa_max": "scalar"}, {"trace": True}):
            for model, given in ((graph, []), (path, [CROP]), (path.read_bytes(), [CROP]), (again, [])):
                session = linnet.Session(model, user_ops=given, **settings)  # type: ignore[arg-type]
                np.testing.assert_array_equal(session.run({"x": x})["y"], 2 * x[:, :3])
    step = linnet.Session(graph, input_shapes={"x": (2, 5)}).steps[0]
    assert (step.op, step.kernel, step.name) == ("user", "com.example.crop", "com.example.crop")
    assert again.to_bytes() == graph.to_bytes()


def test_a_fetched_result_and_the_memory_of_the_plan() -> None:
    session = linnet.Session(_graph(), fetches=["com.example.crop"], input_shapes={"x": (2, 5)})
    np.testing.assert_array_equal(session.run({"x": X})["com.example.crop"], X[:, :3])
    assert session.plan_info["steps"] == 1 and session.memory["io"] >= 4 * 2 * (5 + 3)


def test_attributes_of_every_type_reach_the_functions() -> None:
    given: dict[str, Any] = {
        "one": 1, "flag": True, "many": [1, -2, 2**62], "none": [], "half": 0.5, "mixed": (1, 2.5), "word": "größe",
        "words": ["a", "", "b\0c"], "raw": b"\0\xff", "raws": [b"x", b""], "array": np.arange(3), "name": "a name",
    }  # fmt: skip
    expected = {
        **given, "flag": 1, "many": (1, -2, 2**62), "none": (), "mixed": (1.0, 2.5), "words": ("a", "", "b\0c"),
        "raws": (b"x", b""), "array": (0, 1, 2),
    }  # fmt: skip
    assert unpack(pack(given)) == expected
    seen: list[dict[str, Any]] = []

    def shape(x: Known, **attributes: Any) -> tuple[str, Any]:
        seen.append(attributes)
        return x.dtype, x.shape

    def run(x: Array, **attributes: Any) -> Array:
        seen.append(attributes)
        return x

    op = linnet.UserOp("com.example.attributes", run, shape)
    graph = linnet.Graph()
    x = graph.placeholder("x", (2, 5))
    graph.signature("infer", {"x": x}, {"y": op.node([x], given)[0]})
    linnet.Session(linnet.Model(graph.to_bytes(), user_ops=[op])).run({"x": X})
    assert len(seen) == 3 and all(attributes == expected for attributes in seen)
    assert all(type(v) is type(expected[k]) for attributes in seen for k, v in attributes.items())


def test_values_decide_shapes_before_and_during_a_run() -> None:
    """The rule leaves the dimension open while the value of `size` is unknown, and is asked again."""

    def shape(x: Known, size: Known) -> tuple[str, Any]:
        rows = None if x.shape is None else x.shape[0]
        return x.dtype, [rows, None if size.value is None else int(size.value)]

    op = linnet.UserOp("com.example.crop_to", lambda x, size: x[:, : int(size)], shape)
    graph = linnet.Graph()
    x, size = graph.placeholder("x", ("n", 5)), graph.placeholder("size", (), "i64")
    assert op(x, size).shape == ("n", None)
    assert op(x, graph.constant(np.int64(4))).shape == ("n", 4)
    graph.signature("infer", {"x": x, "size": size}, {"y": op(x, size) + 1.0})
    session = linnet.Session(graph)
    for n in (3, 0, 5):
        np.testing.assert_array_equal(session.run({"x": X, "size": np.int64(n)})["y"], X[:, :n] + 1)


def test_works_in_loops_and_branches() -> None:
    double = linnet.UserOp("com.example.double", lambda x: x + x, lambda x: (x.dtype, x.shape), inputs=1)
    graph = linnet.Graph()
    x, n = graph.placeholder("x", (2, 5)), graph.placeholder("n", (), "i64")
    _, y = linnet.while_loop(
        lambda s: s[0] < n, lambda s: (s[0] + 1, double(s[1])), (graph.constant(np.int64(0)), x), maximum=9
    )
    z = linnet.cond(n > 2, lambda: double(y), lambda: y)
    graph.signature("infer", {"x": x, "n": n}, {"z": z})
    session = linnet.Session(graph)
    for trips in (0, 1, 4):
        np.testing.assert_array_equal(
            session.run({"x": X, "n": np.int64(trips)})["z"], X * 2.0**trips * (2 if trips > 2 else 1)
        )


def test_several_operands_outputs_absent_operands_and_other_dtypes() -> None:
    def run(x: Array, y: Array | None, z: Array) -> list[Array]:
        assert y is None and not np.shares_memory(x, z)
        return [z.astype(np.int64), np.zeros((0, 3), np.float16), x]

    op = linnet.UserOp(
        "com.example.three", run, lambda x, y, z: [("i64", z.shape), ("f16", (0, 3)), ("bf16", x.shape)], outputs=3
    )
    graph = linnet.Graph()
    x, z = graph.placeholder("x", (4,), "bf16"), graph.placeholder("z", (0,), "u8")
    made = op(x, None, z)
    graph.signature("infer", {"x": x, "z": z}, {f"y{i}": t for i, t in enumerate(made)})
    bits = np.arange(4).astype(ml_dtypes.bfloat16)
    got = linnet.Session(graph).run({"x": bits, "z": np.zeros(0, np.uint8)})
    assert got["y0"].shape == (0,) and got["y1"].shape == (0, 3) and got["y0"].dtype == np.int64
    assert got["y2"].dtype == bits.dtype and got["y2"].tolist() == [0, 1, 2, 3]


def test_without_a_rule_the_node_declares_the_shape() -> None:
    op = linnet.UserOp("com.example.plain", lambda x: x.sum(keepdims=True).reshape(1))
    graph = linnet.Graph()
    x = graph.placeholder("x", ("n", 5))
    with pytest.raises(linnet.GraphError, match="has no shape rule"):
        op(x)
    graph.signature("infer", {"x": x}, {"y": op(x, outputs=[("f32", (1,))])})
    assert linnet.Session(graph).run({"x": X})["y"] == X.sum()
    graph = linnet.Graph()
    x = graph.placeholder("x", ("n", 5))
    graph.signature("infer", {"x": x}, {"y": op(x, outputs=[("f32", ("n",))])})
    with pytest.raises(linnet.GraphError, match="has no shape rule, and the file leaves a shape open"):
        linnet.Session(graph)


def test_passes_keep_user_ops() -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (2, 5))
    w = graph.variable("w", np.ones((5, 4), np.float32))
    graph.signature("infer", {"x": x}, {"y": CROP(x @ w, size=3)})
    expected = np.repeat(X.sum(1, keepdims=True), 3, 1)
    for made in (
        graph.copy(), graph.freeze(), linnet.quantize(graph.freeze(), dtype="f16"),
        linnet.quantize(graph.freeze(), calibration=[{"x": X}], dtype="i8"),
    ):  # fmt: skip
        np.testing.assert_allclose(linnet.Session(made).run({"x": X})["y"], expected, rtol=0.02)
    assert linnet.quantize(graph.freeze(), calibration=[{"x": X}], dtype="i8").user_ops == graph.user_ops


def test_preprocessing_before_a_user_op_fixes_its_shape() -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (1, None, None, 3))
    graph.signature("infer", {"x": x}, {"y": CROP(x, size=2)})
    made = linnet.preprocess.image(graph, "x", resize=(4, 5), layout="NHWC")
    assert made.signatures["infer"].function.outputs[0].shape == (1, 4, 5, 2)
    photo = np.full((8, 10, 3), 51, np.uint8)
    np.testing.assert_allclose(linnet.Session(made).run({"x": photo})["y"], np.full((1, 4, 5, 2), 0.2), rtol=1e-5)


# ---- gradients ---------------------------------------------------------------------------------------------------------


def test_the_gradient_equals_finite_differences() -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (2, 5), "f64")
    loss = ops.reduce(CROP(x, size=3) * CROP(x, size=3), kind="sum", keep_dims=False)
    (g,) = linnet.gradients(loss, [x])
    graph.signature("infer", {"x": x}, {"loss": loss, "g": g})
    session = linnet.Session(graph)
    at = np.random.default_rng(1).standard_normal((2, 5))
    got = session.run({"x": at})["g"]
    for i in np.ndindex(2, 5):
        step = np.zeros((2, 5))
        step[i] = 1e-6
        slope = (session.run({"x": at + step})["loss"] - session.run({"x": at - step})["loss"]) / 2e-6
        assert abs(slope - got[i]) < 1e-6


def test_an_op_without_a_gradient_says_so() -> None:
    plain = linnet.UserOp("com.example.plain", _crop, _crop_shape)
    graph = linnet.Graph()
    x = graph.placeholder("x", (2, 5))
    y = ops.reduce(plain(x, size=2), kind="sum")
    with pytest.raises(linnet.GraphError, match=r"user op com.example.plain has no gradient.*gradient=") as raised:
        linnet.gradients(y, [x])
    assert raised.value.op == "com.example.plain"
    wrong = linnet.UserOp("com.example.wrong", _crop, _crop_shape, gradient=lambda inputs, outputs, gradients, size: [])
    with pytest.raises(linnet.GraphError, match="gave 0 gradients for 1 inputs"):
        linnet.gradients(ops.reduce(wrong(x, size=2), kind="sum"), [x])


def test_trains_through_a_user_op() -> None:
    graph = linnet.Graph(seed=3)
    x, t = graph.placeholder("x", (None, 5)), graph.placeholder("t", (None, 3))
    w = graph.variable("w", linnet.init.normal((5, 5)))
    error = CROP(x @ w, size=3) - t
    loss = ops.reduce(error * error, kind="mean", keep_dims=False)
    graph.signature("train", {"x": x, "t": t}, {"loss": loss}, updates=linnet.SGD(0.2).minimize(loss))
    session = linnet.Session(graph, "train")
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((64, 5)).astype(np.float32)
    feeds = {"x": inputs, "t": inputs[:, 2:]}
    losses = [float(session.run(feeds)["loss"]) for _ in range(60)]
    assert losses[-1] < 0.01 * losses[0]


# ---- wrong uses --------------------------------------------------------------------------------------------------------


def test_a_missing_op_is_named() -> None:
    data = _graph().to_bytes()
    with pytest.raises(
        linnet.GraphError, match=r"the file needs user op com.example.crop, which is not registered"
    ) as e:
        linnet.Model(data)
    assert e.value.status == "unsupported" and e.value.op == "com.example.crop" and "user_ops=" in e.value.hint
    other = linnet.UserOp("com.example.other", _crop, _crop_shape)
    with pytest.raises(linnet.GraphError, match="version 1 or later of this op"):
        linnet.Model(data, user_ops=[other])
    with pytest.raises(linnet.GraphError, match=r"needs user op com.example.crop.*Graph.load"):
        linnet.quantize(reader.from_bytes(data), dtype="f16")


def test_versions() -> None:
    new = linnet.UserOp("com.example.crop", _crop, _crop_shape, version=2)
    for op in (new, CROP):  # an op runs nodes of its version and of earlier ones
        linnet.Session(_graph().to_bytes(), user_ops=[op]).run({"x": X})
    with pytest.raises(
        linnet.GraphError, match=r"com.example.crop is too old; expected version 2 or later.*got version 1"
    ):
        linnet.Model(_graph(new).to_bytes(), user_ops=[CROP])


def test_two_ops_of_one_name() -> None:
    other = linnet.UserOp("com.example.crop", _crop, _crop_shape)
    with pytest.raises(linnet.UsageError, match=r"two user ops named com.example.crop"):
        linnet.Model(_graph(), user_ops=[other])
    graph = linnet.Graph()
    x = graph.placeholder("x", (2, 5))
    CROP(x, size=1)
    with pytest.raises(linnet.UsageError, match="two user ops"):
        other(x, size=1)
    with pytest.raises(linnet.UsageError, match=r"must be a list of linnet\.UserOp"):
        linnet.Model(_graph(), user_ops=[_crop])  # type: ignore[list-item]


def _open(*registered: Any, count: int | None = None) -> None:
    """Opens the file of _graph with these registrations through the C API."""
    with Chain.__new__(Chain) as chain:
        chain.model = chain.store = chain.plan = chain.session = ffi.NULL
        data = _graph().to_bytes()
        config, out, error = ffi.new("linnet_model_config *"), ffi.new("linnet_model **"), ffi.new("linnet_error *")
        lib().linnet_struct_init(config, ffi.sizeof("linnet_model_config"))
        array = ffi.new("linnet_user_op *[]", [*registered, ffi.NULL])
        config.user_ops = array if registered else ffi.NULL
        config.user_op_count = len(registered) if count is None else count
        status = lib().linnet_model_open_memory(ffi.from_buffer(data), len(data), 1, config, out, error)
        chain.model = out[0]
        if status:
            raise Failure(status, error)


def _changed(**fields: Any) -> Any:
    made = ffi.new("linnet_user_op *", CROP.pointer[0])
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_a_wrong_registration_is_refused() -> None:
    _open(CROP.pointer)
    for registered, text in (
        ([CROP.pointer, CROP.pointer], "no other op with this name"),
        ([_changed(run=ffi.NULL)], "a function `run`"),
        ([_changed(name=ffi.NULL)], "a name such as"),
        ([_changed(version=0)], "a version of 1 or more"),
        ([_changed(struct_size=8)], "struct_size"),
        ([_changed(least_outputs=0)], "1 or more outputs"),
        ([ffi.NULL], "a pointer to linnet_user_op is NULL"),
    ):
        with pytest.raises(Failure, match=text) as raised:
            _open(*registered)
        assert raised.value.status == 101
    for count in (-1, 1):
        with pytest.raises(Failure, match="user_ops"):
            _open(count=count)


@pytest.mark.parametrize(
    "arguments, text",
    [
        (("crop", _crop), "a domain, a dot and a name"),
        ((".crop", _crop), "a domain, a dot and a name"),
        (("com.example." + "x" * 90, _crop), "at most 95 bytes"),
        (("com.example.crop", None), "'run' of user op com.example.crop must be a function"),
        (("com.example.crop", _crop, "same"), "'shape' of user op"),
    ],
)
def test_a_wrong_definition_is_refused(arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(linnet.UsageError, match=text):
        linnet.UserOp(*arguments)
    with pytest.raises(linnet.UsageError, match="version"):
        linnet.UserOp("com.example.crop", _crop, version=0)
    with pytest.raises(linnet.UsageError, match="out of range"):
        linnet.UserOp("com.example.crop", _crop, outputs=(2, 1))
    with pytest.raises(linnet.UsageError, match="out of range"):
        linnet.UserOp("com.example.crop", _crop, outputs=0)


def test_wrong_arity_and_operands() -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (2, 5))
    with pytest.raises(linnet.GraphError, match=r"does not take this number of operands.*got 2 inputs and 1 outputs"):
        CROP(x, x, size=3)
    with pytest.raises(linnet.GraphError, match="operand 0 of user is required"):
        CROP.node([None, x], {"size": 3}, function=graph.main)
    with pytest.raises(linnet.GraphError, match="needs the argument function"):
        CROP(size=3)
    many = linnet.UserOp("com.example.many", lambda *x: x[0], lambda *x: (x[0].dtype, x[0].shape))
    assert many(*[x] * 31).shape == (2, 5)
    with pytest.raises(linnet.GraphError, match="together at most 32"):
        many(*[x] * 32)
    for value in (None, {}, [1, "a"], object()):
        with pytest.raises(linnet.GraphError, match="attribute 'size' of a user op has an invalid value"):
            CROP(x, size=value)
    # a file whose node has other operands than the op that is registered
    with pytest.raises(linnet.GraphError, match="does not take this number"):
        linnet.Model(_graph().to_bytes(), user_ops=[linnet.UserOp("com.example.crop", _crop, _crop_shape, inputs=2)])


def test_exceptions_in_the_shape_rule_and_in_the_kernel_are_the_cause() -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise LookupError("no such thing")

    bad = linnet.UserOp("com.example.crop", _crop, refuse)
    with pytest.raises(
        linnet.GraphError, match=r"shape rule of user op com.example.crop failed: LookupError: no such"
    ) as e:
        _graph(bad)
    assert e.value.status == "user_op_failed" and isinstance(e.value.__cause__, LookupError)
    assert e.value.__cause__.__traceback__ is not None
    with pytest.raises(linnet.GraphError, match=r"shape rule .* failed: LookupError"):
        linnet.Session(_graph().to_bytes(), user_ops=[bad], input_shapes={"x": (2, 5)})

    session = linnet.Session(_graph(linnet.UserOp("com.example.crop", refuse, _crop_shape)))
    for _ in range(2):
        with pytest.raises(
            linnet.GraphError, match=r"user op com.example.crop failed: LookupError: no such thing"
        ) as e:
            session.run({"x": X})
        assert isinstance(e.value.__cause__, LookupError) and e.value.op == "com.example.crop"
    with pytest.raises(linnet.Error) as other:  # a later error has another cause
        linnet.Model(b"")
    assert other.value.__cause__ is None


def test_an_interrupt_in_a_kernel_stays_an_interrupt() -> None:
    def interrupted(x: Array, size: int) -> Array:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        linnet.Session(_graph(linnet.UserOp("com.example.crop", interrupted, _crop_shape))).run({"x": X})


@pytest.mark.parametrize(
    "run, text",
    [
        (lambda x, size: x[:, :size].astype(np.float64), "gives output 0 as float64 [2, 3], expected float32 [2, 3]"),
        (lambda x, size: x, "as float32 [2, 5], expected float32 [2, 3]"),
        (lambda x, size: [], "gives 0 outputs, and the node has 1"),
        (lambda x, size: None, "expected float32"),
        (lambda x: x, "unexpected keyword argument 'size'"),
    ],
)
def test_a_wrong_result_of_the_kernel(run: Any, text: str) -> None:
    with pytest.raises(linnet.GraphError) as raised:
        linnet.Session(_graph(linnet.UserOp("com.example.crop", run, _crop_shape))).run({"x": X})
    assert text in str(raised.value.__cause__)


@pytest.mark.parametrize(
    "rule, text",
    [
        (lambda x, size: ("f32", (2, 4)), "gives output 0 a wrong shape"),
        (lambda x, size: ("f32", (2,)), "gives output 0 a wrong rank"),
        (lambda x, size: ("i32", (2, 3)), "gives output 0 a wrong dtype"),
        (lambda x, size: ("f32", (-3, 3)), "gives output 0 a wrong shape"),
        (lambda x, size: ("f32", (1,) * 9), "gives output 0 a wrong rank"),
        (lambda x, size: ("f33", (2, 3)), "unknown dtype"),
        (lambda x, size: [("f32", (2, 3))] * 2, "gives 2 outputs, and the node has 1"),
        (lambda x, size: None, "TypeError"),
    ],
)
def test_a_rule_that_contradicts_the_file(rule: Any, text: str) -> None:
    with pytest.raises(linnet.GraphError, match=text):
        linnet.Session(
            _graph().to_bytes(),
            user_ops=[linnet.UserOp("com.example.crop", _crop, rule)],
            input_shapes={"x": (2, 5)},
        )


def test_ops_of_python_functions_can_be_pickled() -> None:
    assert CROP.pointer is not None
    again = pickle.loads(pickle.dumps(CROP))
    np.testing.assert_array_equal(linnet.Session(_graph(again)).run({"x": X})["y"], 2 * X[:, :3])
