"""Models that cannot be converted: every problem is reported at once, with node, op, reason and what to do.
Damaged files give one clear error; data outside the model's folder is never read."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import linnet
from linnet.converters.formats import bytes_of_model
from linnet.converters.onnx import outside
from linnet.converters.onnx.registry import RULES


def model(
    nodes: list[Any],
    inputs: dict[str, Any],
    outputs: list[str],
    initializers: dict[str, Any] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    """A model of f32 inputs (or (dtype, shape) pairs)."""
    infos = [
        helper.make_tensor_value_info(name, *(spec if isinstance(spec, tuple) else (TensorProto.FLOAT, spec)))
        for name, spec in inputs.items()
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        infos,
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (initializers or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def problems(proto: Any, **options: Any) -> list[linnet.Problem]:
    with pytest.raises(linnet.ConversionError) as caught:
        linnet.from_onnx(proto, **options)
    assert caught.value.problems
    for problem in caught.value.problems:
        assert problem.reason and problem.hint and (problem.node or problem.op), problem
    return caught.value.problems


def test_all_problems_are_reported_together() -> None:
    proto = model(
        [
            helper.make_node("Relu", ["x"], ["a"], name="first"),
            helper.make_node("Unheard", ["a"], ["b"], name="second"),
            helper.make_node("Relu", ["b"], ["c"], name="third"),
            helper.make_node("Conv", ["c", "w"], ["d"], name="fourth"),
            helper.make_node("ImageDecoder", ["d"], ["e"], name="fifth"),
            helper.make_node("Pad", ["e", "pads"], ["y"], name="sixth", mode="mirror"),
        ],
        {"x": [1, 3, 8, 8]},
        ["y"],
        {"pads": np.zeros(2, np.int64)},
    )
    found = problems(proto)
    assert [p.node for p in found] == ["second", "fourth", "fifth", "sixth"]
    assert "Unheard" in found[0].reason
    assert "'w'" in found[1].reason
    assert found[2].op == "ImageDecoder"
    assert "mirror" in found[3].reason


def test_unknown_domain_names_it() -> None:
    node = helper.make_node("Thing", ["x"], ["y"], name="n", domain="com.example")
    (found,) = problems(model([node], {"x": [1]}, ["y"]))
    assert found.op == "Thing" and "com.example" in found.reason


def test_missing_initializer_is_named() -> None:
    proto = model([helper.make_node("Add", ["x", "gone"], ["y"], name="n")], {"x": [2]}, ["y"])
    (found,) = problems(proto)
    assert found.node == "n" and "'gone'" in found.reason


def test_cycle_names_its_nodes() -> None:
    nodes = [
        helper.make_node("Add", ["x", "c"], ["b"], name="one"),
        helper.make_node("Relu", ["b"], ["c"], name="two"),
        helper.make_node("Relu", ["x"], ["y"], name="three"),
    ]
    found = problems(model(nodes, {"x": [2]}, ["y"]))
    assert {p.node for p in found} == {"one", "two"}
    assert all("cycle" in p.reason for p in found)


def test_two_makers_of_a_value() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["y"], name="one"),
        helper.make_node("Abs", ["x"], ["y"], name="two"),
    ]
    assert any("another node" in p.reason for p in problems(model(nodes, {"x": [2]}, ["y"])))


def test_nodes_in_any_order_are_sorted() -> None:
    nodes = [helper.make_node("Relu", ["a"], ["y"]), helper.make_node("Neg", ["x"], ["a"])]
    graph = linnet.from_onnx(model(nodes, {"x": [2]}, ["y"]))
    assert graph.signatures["infer"].outputs == ["y"]


@pytest.mark.parametrize("dtype", [TensorProto.STRING, TensorProto.COMPLEX64])
def test_element_types_that_linnet_has_not(dtype: int) -> None:
    proto = model([helper.make_node("Identity", ["x"], ["y"])], {"x": (dtype, [2])}, ["y"])
    assert any(TensorProto.DataType.Name(dtype).lower() in p.reason for p in problems(proto))


def test_unknown_attribute_is_reported() -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"], name="n", slope=0.5)], {"x": [2]}, ["y"])
    assert "'slope'" in problems(proto)[0].reason


def test_required_attribute_is_missing() -> None:
    proto = model([helper.make_node("MaxPool", ["x"], ["y"], name="n")], {"x": [1, 1, 4, 4]}, ["y"])
    assert "'kernel_shape'" in problems(proto)[0].reason


def test_operands_that_do_not_fit_are_the_nodes_problem() -> None:
    proto = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="n")],
        {"x": [2, 3]},
        ["y"],
        {"w": np.ones((4, 5), np.float32)},
    )
    (found,) = problems(proto)
    assert (found.node, found.op) == ("n", "MatMul")


def test_opset_that_is_too_new() -> None:
    proto = model([helper.make_node("Abs", ["x"], ["y"])], {"x": [2]}, ["y"], opset=99)
    assert any("99" in p.reason for p in problems(proto))


def test_op_newer_than_the_models_opset() -> None:
    proto = model([helper.make_node("Mish", ["x"], ["y"], name="n")], {"x": [2]}, ["y"], opset=13)
    assert "opset 13" in problems(proto)[0].reason


@pytest.mark.parametrize(
    ("shapes", "part"),
    [
        ({"z": (1,)}, "no input"),
        ({"x": (1, 2, 3)}, "the shape given for it is"),
        ({"x": (5, 3)}, "the shape given for it is"),
        ({"x": (2, -1)}, "the shape given for it is"),
    ],
)
def test_input_shapes_that_do_not_fit(shapes: dict[str, tuple[int, ...]], part: str) -> None:
    proto = model([helper.make_node("Abs", ["x"], ["y"])], {"x": [2, "n"]}, ["y"])
    assert part in problems(proto, input_shapes=shapes)[0].reason


def test_negative_dimension_of_an_input() -> None:
    proto = model([helper.make_node("Abs", ["x"], ["y"])], {"x": [2, -3]}, ["y"])
    assert "negative" in problems(proto)[0].reason


def test_no_output() -> None:
    assert any("no outputs" in p.reason for p in problems(model([], {"x": [2]}, [])))


def test_output_that_nothing_makes() -> None:
    proto = model([helper.make_node("Abs", ["x"], ["y"])], {"x": [2]}, ["y", "z"])
    (found,) = problems(proto)
    assert found.node == "z"


def test_branches_that_give_different_types() -> None:
    makers = helper.make_node("Neg", ["x"], ["b"]), helper.make_node("Cast", ["x"], ["b"], to=TensorProto.INT64)
    branches = [helper.make_graph([maker], "b", [], [onnx.ValueInfoProto(name="b")]) for maker in makers]
    node = helper.make_node("If", ["c"], ["y"], name="n", then_branch=branches[0], else_branch=branches[1])
    (found,) = problems(model([node], {"x": [2], "c": (TensorProto.BOOL, [])}, ["y"]))
    assert (found.node, found.op) == ("n", "If")


def external(tmp_path: Path, location: str, length: int | None = None, offset: int = 0) -> Path:
    """A model whose weight of 4 floats is stored in `location`."""
    proto = model(
        [helper.make_node("Add", ["x", "w"], ["y"], name="n")],
        {"x": [4]},
        ["y"],
        {"w": np.arange(4, dtype=np.float32)},
    )
    weight = proto.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    entries = {"location": location, "offset": str(offset), "length": str(16 if length is None else length)}
    for key, value in entries.items():
        entry = weight.external_data.add()
        entry.key, entry.value = key, value
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data_beside_the_model_is_read(tmp_path: Path) -> None:
    path = external(tmp_path, "weights.bin", offset=8)
    (path.parent / "weights.bin").write_bytes(bytes(8) + np.array([1, 2, 3, 4], "<f4").tobytes())
    graph = linnet.from_onnx(path)
    constants = [t.data for t in graph.functions[0].tensors() if t.data is not None]
    assert any(np.array_equal(c, [1, 2, 3, 4]) for c in constants)


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname", "sub/../../secret.bin", ""])
def test_external_data_outside_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    path = external(tmp_path, location)
    (found,) = problems(path)
    assert "outside" in found.reason


def test_external_data_through_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    path = external(tmp_path, "weights.bin")
    (path.parent / "weights.bin").symlink_to(tmp_path / "secret.bin")
    assert "outside" in problems(path)[0].reason


def test_external_data_in_the_cache_of_a_hub(tmp_path: Path) -> None:
    """The model and its data are links to files with other names, side by side in another folder."""
    path = external(tmp_path, "model.onnx_data")
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1a2b"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    path.rename(blobs / "aaaa")
    (blobs / "bbbb").write_bytes(np.array([1, 2, 3, 4], "<f4").tobytes())
    (snapshot / "model.onnx").symlink_to("../../blobs/aaaa")
    (snapshot / "model.onnx_data").symlink_to("../../blobs/bbbb")
    graph = linnet.from_onnx(snapshot / "model.onnx")
    constants = [t.data for t in graph.functions[0].tensors() if t.data is not None]
    assert any(np.array_equal(c, [1, 2, 3, 4]) for c in constants)
    assert bytes_of_model(snapshot / "model.onnx") == (blobs / "aaaa").stat().st_size + 16
    # A link to any other folder is refused, and so is a path out of the model's folder.
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    (snapshot / "model.onnx_data").unlink()
    (snapshot / "model.onnx_data").symlink_to(tmp_path / "secret.bin")
    assert "outside" in problems(snapshot / "model.onnx")[0].reason
    external(tmp_path, "../../blobs/bbbb").replace(blobs / "aaaa")
    assert "outside" in problems(snapshot / "model.onnx")[0].reason


def test_a_linked_model_with_data_beside_the_link(tmp_path: Path) -> None:
    path = external(tmp_path, "weights.bin")
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "model.onnx"
    link.symlink_to(path)
    (link.parent / "weights.bin").write_bytes(np.array([1, 2, 3, 4], "<f4").tobytes())
    assert not linnet.load_graph(link).variables and problems(path)[0].reason.endswith("is missing")


def test_files_of_very_many_fields_are_refused_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros, a million nodes, and dimensions without end: reading them one by one would take gigabytes and minutes."""
    with pytest.raises(ValueError, match="number 0"):
        next(outside._fields(memoryview(bytes(100)), 0, 100, [100]))
    content = model([helper.make_node("Neg", ["x"], ["y"])] * 50, {"x": [2]}, ["y"]).SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    monkeypatch.setattr(outside, "MOST_FIELDS", 40)
    with pytest.raises(linnet.FileError, match=r"too many nodes.*at most 40"):
        linnet.from_onnx(path)
    for dims in (b"\x08\x02" * 10_000, b"\x0a\x90\x4e" + b"\x02" * 10_000):  # one by one, and packed
        assert outside._initializer(memoryview(dims), 0, len(dims), "m.onnx", [1 << 20]) is None


@pytest.mark.parametrize(("length", "offset"), [(16, 60), (16, -16), (12, 0), (1 << 62, 0)])
def test_external_data_that_does_not_fit_its_file(tmp_path: Path, length: int, offset: int) -> None:
    path = external(tmp_path, "weights.bin", length, offset)
    (path.parent / "weights.bin").write_bytes(bytes(64))
    assert "needs 16 bytes" in problems(path)[0].reason


def test_external_data_that_is_missing(tmp_path: Path) -> None:
    assert "missing" in problems(external(tmp_path, "weights.bin"))[0].reason


def test_external_data_of_a_proto_needs_a_path(tmp_path: Path) -> None:
    proto = onnx.load(external(tmp_path, "weights.bin"), load_external_data=False)
    assert "another file" in problems(proto)[0].reason


@pytest.mark.parametrize("content", [b"", b"not a model", bytes(100)])
def test_files_that_are_no_model(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(linnet.FileError, match=r"m\.onnx"):
        linnet.from_onnx(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(linnet.FileError, match="no such file"):
        linnet.from_onnx(tmp_path / "nothing.onnx")


def test_damaged_models_never_raise_anything_else() -> None:
    rng = np.random.default_rng(5)
    proto = model(
        [
            helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
            helper.make_node("Flatten", ["c"], ["d"]),
            helper.make_node("Gemm", ["d", "v"], ["e"], transB=1),
            helper.make_node("Softmax", ["e"], ["y"], axis=1),
        ],
        {"x": [1, 2, 8, 8]},
        ["y"],
        {"w": np.ones((3, 2, 3, 3), np.float32), "v": np.ones((4, 48), np.float32)},
    )
    linnet.from_onnx(proto)
    content = proto.SerializeToString()
    refused = 0
    for _ in range(300):
        damaged = bytearray(content)
        for _ in range(rng.integers(1, 4)):
            damaged[rng.integers(0, len(damaged))] = rng.integers(0, 256)
        try:
            broken = onnx.ModelProto.FromString(bytes(damaged))
        except Exception:
            continue
        try:
            linnet.from_onnx(broken)
        except linnet.Error:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "g (float[N,4] x) => (seq(float[K,4]) y) <int64 s = {0}> { y = SplitToSequence(x, s) }",
            r"split\) is 0; it must be at least 1",
        ),
        ("g (float[1,2,4] t, int64[4] s) => (float[N,H,W,2] y) { y = AffineGrid(t, s) }", r"theta has shape \[1, 2, 4\]"),
        (
            'g (int64[4] x) => (float[K] y) { y = TfIdfVectorizer<mode: string = "TF", min_gram_length: int = 1,'
            " max_gram_length: int = 1, max_skip_count: int = 0, ngram_counts: ints = [0],"
            " ngram_indexes: ints = [0, 1099511627776], pool_int64s: ints = [1, 2]>(x) }",
            "ngram_indexes from 0 to 1099511627776",
        ),
    ],
)  # fmt: skip
def test_senseless_operands(text: str, words: str) -> None:
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 20]> ' + text)
    with pytest.raises(linnet.ConversionError, match=words):
        linnet.from_onnx(model)


def test_what_is_no_model_says_what_it_is(tmp_path: Path) -> None:
    """from_onnx recognizes other formats by their content, as `linnet convert` does."""
    for name, content, words in (
        ("a.onnx", b"\x89HDF\r\n\x1a\n" + bytes(50), "is a Keras file.*TFLiteConverter"),
        ("b.onnx", b"LINNET\r\n" + bytes(50), "is already a linnet file"),
        ("c.onnx", bytes(4) + b"TFL3" + bytes(50), "is a TFLite model; convert it with linnet.from_tflite"),
        ("d.pb", b"\xff" * 50, "is not an ONNX model, or is damaged; give an .onnx or .tflite file"),
        ("e.onnx", b"", "is empty"),
        (
            "f.onnx",
            b"7767517\n2 2\nInput data 0 1 data\n",
            "is an ncnn graph; .*give the ONNX model that it was made from",
        ),
        ("g.onnx", b"\x18\0\0\0ORTM" + bytes(50), "is a model in ONNX Runtime's own format.*use the .onnx file"),
        ("h.onnx", (40).to_bytes(8, "little") + b'{"w":' + bytes(50), "is a file with weights but no graph"),
        ("i.onnx", b'<?xml version="1.0"?>\n<net name="a" version="11">', "is an OpenVINO graph"),
        ("j.onnx", b"\x18\0\0\0ET12" + bytes(50), r"is an ExecuTorch program.*torch\.export\.save"),
        ("k.onnx", b"ftrt" + bytes(50), "is a TensorRT engine"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(linnet.FileError, match=words):
            linnet.from_onnx(tmp_path / name)
    with pytest.raises(linnet.FileError, match="is a folder"):
        linnet.from_onnx(tmp_path)
    with pytest.raises(linnet.UsageError, match=r"expected a path or an onnx.ModelProto, got bytes"):
        linnet.from_onnx(b"bytes")  # type: ignore[arg-type]
    with pytest.raises(linnet.UsageError, match=r"expected a linnet.Graph, got str"):
        linnet.preprocess.image("a.onnx", "x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["a.task", "a.zip", "a.onnx", "b.param", "b.ort", "b.mnn", "b.pb", "b.h5", "b.keras", "b.safetensors", "b.xml",
             "b.bin", "b.mlmodel", "b.pte", "b.engine"]
)  # fmt: skip
def test_other_formats_are_not_called_damaged(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"\xff\xfe" * 30)
    if name.startswith("a"):
        with zipfile.ZipFile(path, "w") as archive:
            for part in ("face_detector.tflite", "face_landmarks.tflite", "notes.txt"):
                archive.writestr(part, b"content")
    with pytest.raises(linnet.FileError) as failed:
        linnet.load_graph(path)
    assert failed.value.status == "bad_magic" and failed.value.hint and "damaged" not in str(failed.value)
    if name.startswith("a"):
        assert f"unzip {path} -d a; then" in failed.value.hint
        assert failed.value.hint.endswith("a/face_detector.tflite, a/face_landmarks.tflite")


def test_an_onnx_model_may_have_any_name(tmp_path: Path) -> None:
    """Also one of another format, such as old models that end in .pb."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[2] x) => (float[2] y) { y = Abs(x) }'
    )
    for name in ("a.pb", "a.bin", "a.engine", "a"):
        onnx.save(model, tmp_path / name)
        assert linnet.load_graph(tmp_path / name).signatures["infer"].inputs == ["x"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "return op.mapp([op.input(0)], lambda x: x)",
            "AttributeError in line 2 of .*: 'Operation' object has no attribute",
        ),
        ("return op.map([undefined], lambda x: x)", "NameError in line 2 of .*: name 'undefined' is not defined"),
        ("return op.input(0, nosuch=1)", "TypeError in line 2 of .*: .*unexpected keyword argument 'nosuch'"),
        ("import nosuchmodule", "ModuleNotFoundError in line 2 of .*: No module named 'nosuchmodule'"),
        ("return {}['a']", "KeyError in line 2 of .*'a'.*look at that line"),
    ],
)
@pytest.mark.parametrize("module", ["linnet.converters.onnx.rules.mine", "mine"])
def test_a_typo_in_a_rule_is_not_blamed_on_the_model(
    module: str, body: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a rule that was added to linnet's own rules, as CONTRIBUTING.md says."""
    source = f"def typo(op):\n    {body}\n"
    (tmp_path / "mine.py").write_text(source)
    space: dict[str, Any] = {"__name__": module}
    exec(compile(source, tmp_path / "mine.py", "exec"), space)
    monkeypatch.setitem(RULES, "mine:Typo", [(1, space["typo"])])
    text = '<ir_version: 10, opset_import: ["" : 20, "mine": 1]> g (float[2] x) => (float[2] y) { y = mine.Typo(x) }'
    with pytest.raises(linnet.ConversionError) as failed:
        linnet.from_onnx(onnx.parser.parse_model(text))
    [problem] = failed.value.problems
    if module == "mine":
        said = said.replace(".*look at that line", "")
    assert re.search(said, str(problem)) and f"{tmp_path / 'mine.py'}" in problem.reason, problem
    if module == "mine" or "KeyError" not in said:
        assert problem.hint == "correct the rule; the model may be right"
        assert problem.reason.startswith(f"its rule {module}.typo raised")
