"""com.microsoft's attention against ONNX Runtime: prompts and decoding loops with growing caches, in one session each.
Also ai.onnx's Attention with a cache, which is lowered through its function body."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import linnet

Arrays = dict[str, np.ndarray]


class Both:
    """A model of one node in linnet and in ONNX Runtime. Every input dimension is open unless `fixed` names it."""

    def __init__(
        self, op: str, order: list[str], example: Arrays, outputs: list[str], constants: Arrays | None = None,
        fixed: dict[str, list[int | None]] | None = None, domain: str = "com.microsoft", **attributes: Any,
    ) -> None:  # fmt: skip
        node = helper.make_node(op, order, outputs, domain=domain, **attributes)
        infos = []
        for name, value in example.items():
            shape = (fixed or {}).get(name, [None] * value.ndim)
            infos.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), shape))
        results = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in outputs if n]
        tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in (constants or {}).items()]
        graph = helper.make_graph([node], "g", infos, results, tensors)
        imports = [helper.make_opsetid("", 23 if not domain else 21), helper.make_opsetid("com.microsoft", 1)]
        self.proto = helper.make_model(graph, opset_imports=imports, ir_version=10)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self.theirs = onnxruntime.InferenceSession(
            self.proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self.mine = linnet.Session(linnet.from_onnx(self.proto))

    def run(self, feeds: Arrays) -> Arrays:
        names = [o.name for o in self.theirs.get_outputs()]
        expected = dict(zip(names, self.theirs.run(None, feeds), strict=True))
        for name, value in self.mine.run(feeds).items():
            assert value.shape == expected[name].shape, (name, value.shape, expected[name].shape)
            np.testing.assert_allclose(value, expected[name], rtol=2e-4, atol=2e-5, err_msg=name)
        return expected


def filler(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return lambda *shape: rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("mask", ["none", "raw", "lengths"])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention_decodes(mask: str, causal: int) -> None:
    fill = filler(1)
    constants = {"w": fill(16, 48) * np.float32(0.3), "b": fill(48)}
    past, both = np.zeros((2, 2, 4, 0, 4), np.float32), None
    for step in (5, 1, 1, 3):
        total = past.shape[3] + step
        raw = np.ones((2, total), np.int32)
        raw[0, -1] = 0
        feeds = {"x": fill(2, step, 16), "past": past}
        feeds |= {"none": {}, "raw": {"mask": raw}, "lengths": {"mask": raw.sum(1).astype(np.int32)}}[mask]
        order = ["x", "w", "b", "mask" if mask != "none" else "", "past"]
        fixed: dict[str, list[int | None]] = {"x": [2, None, 16], "past": [2, 2, 4, None, 4]}
        both = both or Both(
            "Attention", order, feeds, ["y", "present"], constants, fixed, num_heads=4, unidirectional=causal
        )
        past = both.run(feeds)["present"]
    assert past.shape == (2, 2, 4, 10, 4)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("extra", ["none", "mask", "bias"])
def test_multi_head_attention_decodes(causal: int, extra: str) -> None:
    fill = filler(2)
    keys = values = np.zeros((2, 4, 0, 4), np.float32)
    both = None
    for step in (4, 1, 2):
        total = keys.shape[2] + step
        feeds = {n: fill(2, step, 16) for n in "qkv"} | {"past_k": keys, "past_v": values}
        order = [
            "q",
            "k",
            "v",
            "b",
            "mask" if extra == "mask" else "",
            "added" if extra == "bias" else "",
            "past_k",
            "past_v",
        ]
        if extra == "mask":
            feeds["mask"] = np.ones((2, total), np.int32)
            feeds["mask"][1, 0] = 0
        if extra == "bias":
            feeds["added"] = fill(1, 4, step, total)
        fixed: dict[str, list[int | None]] = {n: [2, None, 16] for n in "qkv"} | {
            n: [2, 4, None, 4] for n in ("past_k", "past_v")
        }  # type: ignore[assignment]
        both = both or Both(
            "MultiHeadAttention", order, feeds, ["y", "present_k", "present_v"], {"b": fill(48)}, fixed, num_heads=4,
            unidirectional=causal,
        )  # fmt: skip
        result = both.run(feeds)
        keys, values = result["present_k"], result["present_v"]
    assert keys.shape[2] == 7


def test_multi_head_attention_of_packed_and_projected_operands() -> None:
    fill = filler(3)
    both = {"q": fill(2, 5, 32), "k": fill(2, 5, 32), "v": fill(2, 5, 32)}
    separate = Both(
        "MultiHeadAttention", ["q", "k", "v"], both, ["y"], None, {n: [2, 5, 32] for n in both}, num_heads=4
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    parts = [v.reshape(2, 5, 4, 8) for v in both.values()]
    for feeds in (
        {"qkv": np.stack(parts, 3)},
        {"q": both["q"], "kv": np.stack(parts[1:], 3)},
    ):  # ONNX Runtime supports it only on GPUs
        node = helper.make_node("MultiHeadAttention", list(feeds), ["y"], domain="com.microsoft", num_heads=4)
        infos = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, v.shape) for n, v in feeds.items()]
        graph = helper.make_graph(
            [node], "g", infos, [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
        )
        packed = linnet.Session(linnet.from_onnx(helper.make_model(graph, opset_imports=imports)))
        np.testing.assert_allclose(packed.run(feeds)["y"], separate.run(both)["y"], rtol=2e-4, atol=2e-5)
    cross = {"q": fill(2, 3, 32), "k": fill(2, 4, 6, 8), "v": fill(2, 4, 6, 8)}
    shapes: dict[str, list[int | None]] = {n: list(v.shape) for n, v in cross.items()}
    Both("MultiHeadAttention", ["q", "k", "v"], cross, ["y"], None, shapes, num_heads=4).run(cross)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("partial", [False, True])
def test_rotary_embedding(interleaved: int, partial: bool) -> None:
    fill = filler(4)
    size = 4 if partial else 8
    angles = np.outer(np.arange(20), 1.0 / 100 ** (np.arange(size // 2) / size)).astype(np.float32)
    tables = {"cos": np.cos(angles), "sin": np.sin(angles)}
    order = ["x", "at", "cos", "sin"]
    attributes = {"interleaved": interleaved, "num_heads": 2, "rotary_embedding_dim": size if partial else 0}
    for at in (np.array([3]), np.array([[0, 1, 2, 3, 4], [7, 6, 5, 4, 3]])):
        for x in (fill(2, 5, 16), fill(2, 2, 5, 8)):
            feeds = {"x": x, "at": at}
            shapes: dict[str, list[int | None]] = {"x": list(x.shape), "at": list(at.shape)}
            Both("RotaryEmbedding", order, feeds, ["y"], tables, shapes, **attributes).run(feeds)


@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("extra", [{}, {"softcap": 2.0}, {"local_window_size": 3}])
def test_group_query_attention_decodes(rotary: int, packed: bool, shared: bool, extra: dict[str, Any]) -> None:
    """shared: the cache has its full length from the start, and its rows are filled to different lengths."""
    fill = filler(5)
    heads, groups, size, longest = 4, 2, 16, 12
    angles = np.outer(np.arange(longest), 1.0 / 100 ** (np.arange(size // 2) / size)).astype(np.float32)
    tables = {"cos": np.cos(angles), "sin": np.sin(angles)} if rotary else {}
    keys = values = np.zeros((2, groups, longest if shared else 0, size), np.float32)
    lengths = np.array([0, 0])
    both = None
    for step in (4, 1, 1):
        prompt = step > 1
        lengths = (np.array([4, 3]) if shared else np.array([4, 4])) if prompt else lengths + step
        total = np.array(lengths.max(), np.int32)
        feeds = {"q": fill(2, step, heads * size)}
        if packed:
            feeds["q"] = fill(2, step, (heads + 2 * groups) * size)
        else:
            feeds |= {"k": fill(2, step, groups * size), "v": fill(2, step, groups * size)}
        feeds |= {"past_k": keys, "past_v": values, "lengths": (lengths - 1).astype(np.int32), "total": total}
        order = ["q", "" if packed else "k", "" if packed else "v", "past_k", "past_v", "lengths", "total", *tables]
        fixed: dict[str, list[int | None]] = {
            "q": [2, None, feeds["q"].shape[2]], "k": [2, None, groups * size], "v": [2, None, groups * size],
            "past_k": [2, groups, None, size], "past_v": [2, groups, None, size], "total": [],
        }  # fmt: skip
        both = both or Both(
            "GroupQueryAttention", order, feeds, ["y", "present_k", "present_v"], tables, fixed, num_heads=heads,
            kv_num_heads=groups, do_rotary=rotary, **extra,
        )  # fmt: skip
        names = [o.name for o in both.theirs.get_outputs()]
        expected = dict(zip(names, both.theirs.run(None, feeds), strict=True))
        mine = both.mine.run(feeds)
        for row, n in enumerate(lengths):  # values after a row's end are undefined
            shown = n if prompt else step
            np.testing.assert_allclose(mine["y"][row, :shown], expected["y"][row, :shown], rtol=2e-4, atol=2e-5)
            for name in ("present_k", "present_v"):
                assert mine[name].shape == expected[name].shape
                np.testing.assert_allclose(mine[name][row, :, :n], expected[name][row, :, :n], rtol=2e-4, atol=2e-5)
        keys, values = mine["present_k"], mine["present_v"]


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("batch", [1, 2])
def test_group_query_attention_with_a_bias(heads: int, batch: int) -> None:
    """A bias for all heads or for each, for all elements of the batch or for each."""
    fill = filler(7)
    keys = values = np.zeros((2, 2, 0, 16), np.float32)
    both = None
    for step in (4, 1, 1):
        total = keys.shape[2] + step
        feeds = {
            "q": fill(2, step, 64),
            "k": fill(2, step, 32),
            "v": fill(2, step, 32),
            "past_k": keys,
            "past_v": values,
        }
        feeds |= {"lengths": np.full(2, total - 1, np.int32), "total": np.array(total, np.int32)}
        feeds["bias"] = fill(batch, heads, step, total)
        order = ["q", "k", "v", "past_k", "past_v", "lengths", "total", "", "", "", "bias"]
        fixed: dict[str, list[int | None]] = {
            "q": [2, None, 64], "k": [2, None, 32], "v": [2, None, 32], "past_k": [2, 2, None, 16],
            "past_v": [2, 2, None, 16], "total": [], "bias": [batch, heads, None, None],
        }  # fmt: skip
        outputs = ["y", "present_k", "present_v"]
        both = both or Both("GroupQueryAttention", order, feeds, outputs, None, fixed, num_heads=4, kv_num_heads=2)
        result = both.run(feeds)
        keys, values = result["present_k"], result["present_v"]
    assert keys.shape == (2, 2, 6, 16)


def test_attention_of_onnx_decodes() -> None:
    """ai.onnx Attention of opset 23 with past and present keys, and two query heads per key."""
    fill = filler(6)
    keys = values = np.zeros((2, 2, 0, 8), np.float32)
    both = None
    for step in (4, 1, 1):
        total = keys.shape[2] + step
        mask = np.tril(np.ones((step, total), bool), total - step)
        feeds = {"q": fill(2, 4, step, 8), "k": fill(2, 2, step, 8), "v": fill(2, 2, step, 8), "mask": mask}
        feeds |= {"past_k": keys, "past_v": values}
        order = ["q", "k", "v", "mask", "past_k", "past_v"]
        fixed: dict[str, list[int | None]] = {n: [2, v.shape[1], None, 8] for n, v in feeds.items() if v.ndim == 4}
        both = both or Both("Attention", order, feeds, ["y", "present_k", "present_v"], None, fixed, domain="")
        result = both.run(feeds)
        keys, values = result["present_k"], result["present_v"]
    assert keys.shape == (2, 2, 6, 8)
