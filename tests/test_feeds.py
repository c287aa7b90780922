"""Runs that start anywhere: any tensor may be fed, also one that the plan would fold or fuse away, as any may be fetched. One
plan per set of feeds. An error says which feed is wrong, which is missing, and which reaches nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import linnet
from linnet import ops
from tests import tflite_models
from tests.native import build, run

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 8)).astype(np.float32)
W = RNG.standard_normal((8, 8)).astype(np.float32)


def net() -> linnet.Graph:
    """x -> matmul with a constant -> relu, which is fused into it -> softmax, and both its halves."""
    graph = linnet.Graph()
    x = graph.placeholder("x", ("n", 8))
    map_ = ops.relu(ops.matmul(x, graph.constant(W, "w"), name="product"), name="map")
    soft = ops.softmax(map_, name="soft")
    left, right = ops.split(soft, 2, axis=1, name="halves")
    graph.signature("infer", {"x": x}, {"probs": soft, "left": left, "right": right * 2 + x.sum(), "map_out": map_ + 1})
    return graph


def counted(session: linnet.Session, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    made: list[Any] = []
    plan = session._make_plan
    monkeypatch.setattr(session, "_make_plan", lambda *a, **k: made.append(a) or plan(*a, **k))
    return made


@pytest.mark.parametrize("reference", [False, True])
def test_a_run_starts_at_any_tensor(reference: bool) -> None:
    session = linnet.Session(net(), reference=reference)
    fetches = ["probs", "left", "map_out"]
    whole = session.run({"x": X}, fetches)
    values = session.run({"x": X}, ["w", "product", "map", "soft", "probs"])
    assert any(step.fused for step in linnet.Session(net(), input_shapes={"x": (2, 8)}).steps)  # the map is fused away
    for name, value in values.items():
        if name == "w":  # steps that read a constant may have been computed when the model was converted
            with pytest.raises(linnet.UsageError, match="'w': a constant cannot be fed"):
                session.run({"x": X, "w": 2 * W}, ["product"])
            continue
        wanted = ["left"] if name in ("soft", "probs") else fetches
        for key, found in session.run({name: value}, wanted).items():
            np.testing.assert_allclose(found, whole[key], rtol=1e-5, err_msg=f"{key} from {name}")
    np.testing.assert_allclose(session.run({"x": X}, ["product"])["product"], values["product"], rtol=1e-5)


def test_a_fed_tensor_that_is_fetched_comes_back() -> None:
    session = linnet.Session(net())
    value = np.abs(X)
    found = session.run({"map": value, "soft": X}, ["map", "probs", "left"])
    assert found["map"].tolist() == value.tolist() and found["probs"].tolist() == X.tolist()
    assert found["left"].tolist() == X[:, :4].tolist()
    found["map"][:] = 0
    assert session.run({"map": value}, ["map"])["map"].tolist() == value.tolist()


def test_of_a_node_with_several_outputs_one_may_be_fed() -> None:
    session = linnet.Session(net())
    names = [spec.name for spec in session.outputs]
    usual = session.run({"x": X})
    found = session.run({"x": X, "left": np.zeros((2, 4), np.float32)}, names)
    assert not found["left"].any()
    for name in ("probs", "right", "map_out"):
        np.testing.assert_array_equal(found[name], usual[name])


def test_one_plan_per_set_of_feeds(monkeypatch: pytest.MonkeyPatch) -> None:
    session = linnet.Session(net(), trace=True)
    made = counted(session, monkeypatch)
    fed = np.abs(X)
    for _ in range(3):
        session.run({"x": X}, ["probs"])
        session.run({"map": fed}, ["probs"])
        assert [(step.op, step.runs > 0) for step in session.steps] == [("softmax", True)]  # nothing before the feed
        session.run({"map": fed, "x": X}, ["probs"])
    assert len(made) == 3
    probs = [session.run({"map": value}, ["probs"])["probs"] for value in (fed, 2 * fed)]
    np.testing.assert_allclose(probs[1], np.exp(2 * fed) / np.exp(2 * fed).sum(1, keepdims=True), rtol=1e-5)
    assert (probs[0] != probs[1]).any() and len(made) == 3


@pytest.mark.parametrize(
    ("feeds", "fetches", "error", "words"),
    [
        ({"map": X}, ["right"], linnet.UsageError, ["no value is given for input 'x'", "got map"]),
        ({"map": X}, ["product"], linnet.UsageError, ["'map': no fetched tensor needs this fed tensor"]),
        ({"x": X, "map": X}, ["product"], linnet.UsageError, ["'map': no fetched tensor needs this fed tensor"]),
        ({"map": X, "soft": X}, ["left"], linnet.UsageError, ["'map': no fetched tensor needs this fed tensor"]),
        ({"nowhere": X}, None, linnet.UsageError, ["no input, output, step or tensor named 'nowhere'", "expected x"]),
        ({"map": X[:, :7]}, ["probs"], linnet.UsageError, ["tensor 'map' has the wrong shape", "[?, 8]", "[2, 7]"]),
        ({"map": X[0]}, ["probs"], linnet.UsageError, ["tensor 'map' has the wrong shape"]),
        ({"map": X.astype(np.uint8)}, ["probs"], linnet.UsageError, ["tensor 'map' has the wrong dtype", "f32", "u8"]),
        ({"soft": X, "probs": X}, ["left"], linnet.UsageError, ["a tensor is fed twice", "one of its names"]),
        ({"x": X[:1], "map": X}, ["right", "probs"], None, []),  # each has its own open dimension
    ],
    ids=[
        "too few", "behind the feed", "beside the feed", "hidden by a feed", "unknown", "shape", "rank", "dtype", "twice", "free",
    ],
)  # fmt: skip
def test_wrong_feeds_say_what_is_wrong(
    feeds: dict[str, Any], fetches: list[str] | None, error: type[linnet.Error] | None, words: list[str]
) -> None:
    session = linnet.Session(net())
    if error is None:
        session.run(feeds, fetches)
        return
    with pytest.raises(error) as caught:
        session.run(feeds, fetches)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    session.run({"x": X})  # and nothing is broken


def test_a_variable_is_written_and_not_fed() -> None:
    graph = linnet.Graph()
    x, v = graph.placeholder("x", (2,)), graph.variable("v", np.ones(2, np.float32))
    grown = ops.add(x, v, name="grown")
    graph.signature("train", {"x": x}, {"y": grown}, updates={v: ops.softmax(grown, name="new")})
    session = linnet.Session(graph, "train")
    with pytest.raises(linnet.UsageError, match=r"variable cannot be fed.*write its value into the store"):
        session.run({"x": X[0, :2], "v": X[0, :2]})
    session.run({"new": np.float32([5, 6]), "x": X[0, :2]})  # what an update stores may be fed
    assert session.variables["v"].tolist() == [5, 6]


def test_feeds_go_on_into_segments_loops_and_functions() -> None:
    """Shapes that data decides: the fed tensor is read by the later segment, and decides its shape."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (6,))
    half = ops.softmax(x, name="half")
    places = ops.nonzero(half.cast("i64"), name="places")
    last, _ = linnet.scan(lambda s, v: (s + v, v), graph.constant(np.float32(0)), half)
    graph.signature("infer", {"x": x}, {"places": places, "sum": last, "picked": ops.gather(half, places[0]) * 2})
    session = linnet.Session(graph)
    for value in ([0, 1, 2, 0, 0, 3], [1, 0, 0, 0, 0, 0], [0, 1, 2, 0, 0, 4]):
        fed = np.float32(value)
        found = session.run({"half": fed})
        assert found["places"].tolist() == [np.flatnonzero(fed).tolist()]
        assert found["picked"].tolist() == (2 * fed[fed != 0]).tolist() and found["sum"] == fed.sum()


def test_dtype_and_shape_of_a_fed_tensor_are_the_files() -> None:
    """A tensor that the plan keeps in another layout or type is fed as the file declares it."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (1, 3, 8, 8), "bf16")
    w = [graph.constant(RNG.standard_normal((4, n, 3, 3)).astype(np.float32)).cast("bf16") for n in (3, 4)]
    first = ops.conv(x, w[0], pads=[1, 1, 1, 1], name="first")
    graph.signature("infer", {"x": x}, {"y": ops.relu(ops.conv(first, w[1], name="second"))})
    model = linnet.Model(graph)
    spec = model.tensor("first")
    assert spec is not None and (spec.dtype, spec.shape) == ("bf16", (1, 4, 8, 8))
    assert model.tensor("nothing") is None
    session = linnet.Session(model)
    value = (RNG.standard_normal((1, 3, 8, 8)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    whole = session.run({"x": value}, ["first", "y"])
    np.testing.assert_array_equal(session.run({"first": whole["first"]})["y"], whole["y"])


def test_a_tensor_that_shape_arithmetic_folds_may_be_fed() -> None:
    """The plan computes `size` from the shape of x. Fed, it is data, and the reshape waits for it."""
    graph = linnet.Graph()
    x = graph.placeholder("x", ("n", 4))
    size = ops.concat([ops.shape(x)[1:], ops.shape(x)[:1]], axis=0, name="size")
    y = ops.softmax(ops.copy([x, size], kind="reshape")[0])
    graph.signature("infer", {"x": x}, {"y": y})
    session = linnet.Session(graph)
    value = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert session.run({"x": value})["y"].shape == (4, 2)
    assert session.run({"x": value, "size": np.array([8, 1])})["y"].tolist() == [[1]] * 8
    with pytest.raises(linnet.GraphError):
        session.run({"x": value, "size": np.array([3, 1])})


def test_the_command_line_feeds_any_tensor(tmp_path: Path, linnet_command: Any) -> None:
    net().save(tmp_path / "net.lnt")
    fed = np.abs(X)
    np.save(tmp_path / "map.npy", fed)
    done = linnet_command(
        "run", tmp_path / "net.lnt", "--input", f"map={tmp_path}/map.npy", "--fetch", "probs",
        "--output-dir", tmp_path / "out",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "out" / "probs.npy")
    np.testing.assert_allclose(found, np.exp(fed) / np.exp(fed).sum(1, keepdims=True), rtol=1e-5)
    wrong = linnet_command("run", tmp_path / "net.lnt", "--input", f"mop={tmp_path}/map.npy")
    assert wrong.returncode == 1 and "mop" in wrong.stderr


def test_linnet_run_starts_at_an_inner_tensor(tmp_path: Path) -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", ("n", 4))
    hidden = ops.relu(ops.matmul(x, graph.constant(np.eye(4, dtype=np.float32)), name="product"), name="hidden")
    graph.signature("infer", {"x": x}, {"y": ops.softmax(hidden)})
    graph.save(tmp_path / "m.lnt")
    cut = np.array([[1, 2, 3, 4], [4, 3, 2, 1]], np.float32)
    np.save(tmp_path / "cut.npy", cut)
    tool = str(build("release", "linnet-run") / "linnet-run")
    run([tool, "m.lnt", "--input", "hidden=cut.npy", "-o", "out"], cwd=tmp_path)
    expected = linnet.Session(graph).run({"hidden": cut})["y"]
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "y.npy"), expected)


def cut(h: np.ndarray, t: np.ndarray) -> dict[str, np.ndarray]:
    """What a run gives that is fed h and t, where t is a copy of h in the file."""
    return {"z": -h, "y": np.exp(t).T, "t": t}


SAME = {  # ops that change nothing: the op, its other operands, its attributes
    "Expand": ([np.array([2, 3])], {}),
    "Identity": ([], {}),
    "Reshape": ([np.array([2, 3])], {}),
    "Transpose": ([], {"perm": [0, 1]}),
    "Pad": ([np.zeros(4, np.int64)], {}),
    "Slice": ([np.array([0]), np.array([2])], {}),
    "Cast": ([], {"to": 1}),
    "Dropout": ([], {}),
    "Concat": ([], {"axis": 0}),
    "Sum": ([], {}),
}


def copied(op: str, source: str, before: list[onnx.NodeProto]) -> onnx.ModelProto:
    """t is a copy of `source`, y is computed from t, and z from `source`."""
    operands, attributes = SAME.get(op, ([], {}))
    names = [f"operand_{i}" for i in range(len(operands))]
    nodes = [
        *before, helper.make_node(op, [source, *names], ["t"], name="copy", **attributes), helper.make_node("Exp", ["t"], ["e"]),
        helper.make_node("Transpose", ["e"], ["y"], perm=[1, 0]), helper.make_node("Neg", [source], ["z"]),
    ]  # fmt: skip
    value = [
        helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [2, 3]), ("y", [3, 2]), ("t", [2, 3]), ("z", [2, 3]))
    ]
    constants = [numpy_helper.from_array(array, name) for array, name in zip(operands, names, strict=True)]
    graph = helper.make_graph(nodes, "g", value[:1], value[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("op", SAME)
@pytest.mark.parametrize("inner", [False, True], ids=["of the input", "of an inner tensor"])
def test_an_output_that_copies_another_tensor_is_fed_by_itself(op: str, optimize: bool, inner: bool) -> None:
    """The copy has readers of its own, which get the feed. Readers of the tensor that is copied do not."""
    before = [helper.make_node("Softmax", ["x"], ["h"])] if inner else []
    session = linnet.Session(linnet.from_onnx(copied(op, "h" if inner else "x", before), optimize=optimize))
    x, t = np.float32([[1, 2, 3], [4, 5, 6]]), np.ones((2, 3), np.float32)
    h = np.exp(x - 3) / np.exp(x[:1] - 3).sum() if inner else x
    h = h / h.sum(1, keepdims=True) if inner else h
    for fed, expected in (({"x": x}, cut(h, h)), ({"x": x, "t": t}, cut(h, t))):
        for name, found in session.run(fed).items():
            np.testing.assert_allclose(found, expected[name], rtol=1e-5, err_msg=name)
    np.testing.assert_allclose(session.run({"t": t}, ["y"])["y"], cut(t, t)["y"], rtol=1e-6)
    with pytest.raises(linnet.UsageError, match="'t': no fetched tensor needs this fed tensor"):
        session.run({"x": x, "t": t}, ["z"])


@pytest.mark.parametrize("optimize", [False, True])
def test_an_output_that_equals_another_tensor_is_fed_by_itself(optimize: bool) -> None:
    """h and t are computed alike. A feed of t reaches the readers of t alone."""
    nodes = [
        helper.make_node("Softmax", ["x"], ["h"]), helper.make_node("Softmax", ["x"], ["t"]),
        helper.make_node("Add", ["t", "c"], ["y"]), helper.make_node("Add", ["h", "d"], ["z"]),
    ]  # fmt: skip
    value = [helper.make_tensor_value_info(n, 1, [2, 3]) for n in ("x", "y", "t", "z")]
    value.append(helper.make_tensor_value_info("c", 1, [3]))
    constants = [numpy_helper.from_array(np.float32([1, 2, 3]), name) for name in "cd"]
    graph = helper.make_graph(nodes, "g", value[:1], value[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = linnet.Session(linnet.from_onnx(model, optimize=optimize))
    x, t, c = np.zeros((2, 3), np.float32), np.full((2, 3), 5, np.float32), np.float32([1, 2, 3])
    found = session.run({"x": x, "t": t})
    np.testing.assert_allclose(found["z"], 1 / 3 + np.float32([[1, 2, 3]] * 2), rtol=1e-6)
    assert found["y"].tolist() == (t + c).tolist() and found["c"].tolist() == c.tolist()


def test_an_output_of_a_tflite_model_that_copies_another_tensor_is_fed_by_itself() -> None:
    tensor, operator = tflite_models.T, tflite_models.O
    tensors = [tensor(name, shape=(2, 3)) for name in "xtyz"] + [
        tensor("s", "i32", (2,), value=np.array([2, 3], np.int32))
    ]
    operators = [operator("RESHAPE", ["x", "s"], ["t"]), operator("EXP", ["t"], ["y"]), operator("NEG", ["x"], ["z"])]
    graph = linnet.from_tflite(tflite_models.build(tflite_models.G(tensors, operators, ["x"], ["t", "y", "z"])))
    x, t = np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32)
    found = linnet.Session(graph).run({"x": x, "t": t})
    np.testing.assert_allclose(found["y"], np.exp(t), rtol=1e-6)
    assert found["t"].tolist() == t.tolist() and not found["z"].any()


def test_a_last_copy_costs_nothing() -> None:
    """Nothing else reads the tensor that an output copies, so the output takes its place and gives it its name."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (2, 8))
    last = ops.copy([ops.relu(ops.matmul(x, graph.constant(W)), name="inner")], kind="identity", name="last")[0]
    graph.signature("infer", {"x": x}, {"y": last})
    assert [node.op for node in graph.signatures["infer"].function.nodes] == ["matmul", "map"]
    session = linnet.Session(graph)
    assert session.run({"last": X}, ["y"])["y"].tolist() == X.tolist()
    assert session.run({"inner": X}, ["y"])["y"].tolist() == X.tolist()  # the name of the step


@pytest.mark.parametrize("feeds", [["x"], ["image", "x"], ["image", "same"], ["same"]], ids=" and ".join)
def test_an_input_is_fed_by_its_own_name(feeds: list[str]) -> None:
    """Of a feed by another name, the readers of the input would get nothing."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (2, 8))
    graph.signature("infer", {"image": x}, {"z": -x, "same": x})
    session = linnet.Session(graph)
    other = feeds[-1]
    with pytest.raises(linnet.UsageError, match=f"'{other}': the fed tensor is an input .*expected image"):
        session.run(dict.fromkeys(feeds, X))
    with pytest.raises(linnet.UsageError, match=f"'{other}': the fed tensor is an input .*expected image"):
        session.bind({name: session.empty(name) for name in feeds})
    assert session.run({"image": X})["z"].tolist() == (-X).tolist()


def test_commands_refuse_a_feed_that_reaches_nothing(tmp_path: Path, linnet_command: Any) -> None:
    net().save(tmp_path / "m.lnt")
    np.save(tmp_path / "x.npy", X)
    given = ["m.lnt", "--input", "x=x.npy", "--input", "map=x.npy", "--fetch", "product"]
    done = linnet_command("run", tmp_path / given[0], *[g.replace("=", f"={tmp_path}/") for g in given[1:]])
    assert done.returncode == 1 and "'map': no fetched tensor needs this fed tensor" in done.stderr, done.stderr
    tool = str(build("release", "linnet-run") / "linnet-run")
    done = subprocess.run([tool, *given], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "no fetched tensor needs this fed tensor" in done.stderr, done.stderr
