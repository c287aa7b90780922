"""Graphs on which random tests (tests/onnx_graphs) found linnet wrong, reduced to the essential part, with one line on the fault.
The expected values are ONNX Runtime's, except where a test says otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest

import linnet
from tests.onnx_graphs.builder import session_of

# what was wrong, opset, the graph in ONNX's text syntax, inputs
RNG = np.random.default_rng(0)
CASES: dict[str, tuple[str, int, str, dict[str, Any]]] = {
    "layer_norm_scale_outside": (
        "a rule that replaced an output changed the node's own list: 'layer_norm' is used before it is made", 22,
        "g (float[4,1,N,M] x) => (float[4,1,N,M] y) <float[1] s = {2}> { y = LayerNormalization<epsilon: float = 0.01>(x, s) }",
        {"x": RNG.normal(size=(4, 1, 6, 4)).astype(np.float32)},
    ),
    "layer_norm_statistics_of_f64": (
        "mean and deviation had x's type, not that of stash_type", 20,
        "g (double[2,5] x) => (double[2,5] y, float[2,1] m, float[2,1] d) <double[5] s = {1,2,3,4,5}>"
        "{ y, m, d = LayerNormalization(x, s) }",
        {"x": RNG.normal(size=(2, 5))},
    ),
    "reduce_over_axes_from_data": (
        "axes from an input over dimensions of 1: the node was planned before its axes were known, and had no kernel", 25,
        "g (int64[1] x, int64[1] a) => (int64[1] y) { y = ReduceSum(x, a) }",
        {"x": np.array([-3]), "a": np.array([-1])},
    ),
    "log_sum_of_integers": (
        "logarithms of integers were rounded; ONNX cuts them off", 18,
        "g (int64[2,2] x) => (int64[1,1] y) { y = ReduceLogSum(x) }",
        {"x": np.array([[5, 5], [9, 11]])},
    ),
    "batch_norm_of_a_constant": (
        "an assertion: the normalization of a dequantized constant was folded while it was rewritten", 24,
        "g (float[1] z) => (float[1,2,1,2] y) <int8[1,2,1,2] q = {1,2,3,4}, float[1] s = {0.5}, int8[1] o = {0},"
        " float[2] a = {1,2}, float[2] b = {3,4}, float[2] m = {0,1}, float[2] v = {1,2}>"
        "{ d = DequantizeLinear<axis: int = 0>(q, s, o) n = BatchNormalization(d, a, b, m, v) y = Add(n, z) }",
        {"z": np.ones(1, np.float32)},
    ),
    "shrinking_nearest_of_opset_10": (
        "Resize of opset 10 took the left neighbour where an axis shrinks", 10,
        "g (float[1,1,14] x) => (float[1,1,8] y) <float[3] s = {1,1,0.6}> { y = Resize<mode: string = \"nearest\">(x, s) }",
        {"x": np.arange(14, dtype=np.float32).reshape(1, 1, 14)},
    ),
    "grid_sample_of_open_sizes": (
        "refused where the spatial sizes were not known", 20,
        "g (float[A,B,H,W] x) => (float[1,1,2,2] y) <float[1,2,2,2] p = {0.7,0,0.5,0.3,-0.9,0.3,-0.3,-1.1}>"
        "{ y = GridSample<align_corners: int = 1, mode: string = \"cubic\", padding_mode: string = \"reflection\">(x, p) }",
        {"x": RNG.normal(size=(1, 1, 4, 3)).astype(np.float32)},
    ),
    "affine_grid_of_one_image": (
        "ONNX's function body squeezes the batch away when it is 1: the run failed", 20,
        "g (float[N,2,3] t, int64[4] s) => (float[N,H,W,2] y) { y = AffineGrid(t, s) }",
        {"t": RNG.normal(size=(1, 2, 3)).astype(np.float32), "s": np.array([1, 1, 3, 4])},
    ),
    "affine_grid_of_one_volume": (
        "the same with corners aligned, and a size that is known", 20,
        "g (float[1,3,4] t) => (float[1,D,H,W,3] y) <int64[5] s = {1,1,2,3,4}>"
        "{ y = AffineGrid<align_corners: int = 1>(t, s) }",
        {"t": RNG.normal(size=(1, 3, 4)).astype(np.float32)},
    ),
    "unpool_of_open_sizes": (
        "refused where the sizes were not known", 22,
        "g (float[A,B,C,D] x) => (float[1,1,4,4] y) {"
        " v, i = MaxPool<kernel_shape: ints = [2,2], strides: ints = [2,2]>(x)"
        " y = MaxUnpool<kernel_shape: ints = [2,2], strides: ints = [2,2]>(v, i) }",
        {"x": RNG.normal(size=(1, 1, 4, 4)).astype(np.float32)},
    ),
    "one_scale_and_a_zero_point_of_open_length": (
        "refused: the shapes of the zero point and the scale differ", 21,
        "g (uint16[4,1,2] x, uint16[N] z) => (float[4,1,2] y) <float[1] s = {0.06}> { y = DequantizeLinear(x, s, z) }",
        {"x": np.arange(8, dtype=np.uint16).reshape(4, 1, 2), "z": np.array([4], np.uint16)},
    ),
    "flatten_of_unknown_rank": (
        "refused: the rank is not known behind a Squeeze without axes", 22,
        "g (float[A,6,B,2,C] x) => (float[24,2] y) { s = Squeeze(x) y = Flatten<axis: int = 2>(s) }",
        {"x": RNG.normal(size=(1, 6, 4, 2, 1)).astype(np.float32)},
    ),
    "dynamic_quantization_of_zeros": (
        "scale 0 and a zero point of 0 / 0; ONNX Runtime's scale is 1", 20,
        "g (float[2,3] x) => (uint8[2,3] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear(x) }",
        {"x": np.zeros((2, 3), np.float32)},
    ),
    "integer_conv_of_computed_weights": (
        "the product of both zero points was left out where the weight's shape is open", 17,
        "g (uint8[1,1,H,W] x, int8[A,1,B,C] w, uint8 z) => (int32[1,2,2,2] y) <int8 o = {3}> { y = ConvInteger(x, w, z, o) }",
        {"x": np.arange(9, dtype=np.uint8).reshape(1, 1, 3, 3), "w": np.arange(8, dtype=np.int8).reshape(2, 1, 2, 2),
         "z": np.array(4, np.uint8)},
    ),
    "integer_conv_same_with_a_computed_zero_point": (
        "refused: auto_pad with a zero point that is not a constant", 11,
        "g (uint8[1,2,3,4] x, uint8 z) => (int32[1,1,3,4] y) <uint8[1,2,2,1] w = {104,246,130,149}>"
        "{ y = ConvInteger<auto_pad: string = \"SAME_UPPER\">(x, w, z) }",
        {"x": np.arange(24, dtype=np.uint8).reshape(1, 2, 3, 4), "z": np.array(1, np.uint8)},
    ),
    "global_lp_pool_of_f16": (
        "powers overflowed f16", 18,
        "g (float16[1,1,3] x) => (float16[1,1,1] y) { y = GlobalLpPool<p: int = 3>(x) }",
        {"x": np.array([[[-1e4, 3, 2]]], np.float16)},
    ),
    "old_softmax_of_nothing": (
        "reshapes to a dimension of 0 copied another one", 11,
        "g (float[A,B,C,D] x) => (float[6,1,0,4] y) { y = Softmax<axis: int = 1>(x) }",
        {"x": np.zeros((6, 1, 0, 4), np.float32)},
    ),
    "reshape_of_nothing": (
        "refused while a dimension was open, though 0 elements are 0 elements", 12,
        "g (float[N,4,5,0] x) => (float[6,2,1,0] y) <int64[4] s = {0,2,1,0}> { y = Reshape(x, s) }",
        {"x": np.zeros((6, 4, 5, 0), np.float32)},
    ),
    "reflecting_pad_of_quantized_values": (
        "its unused value stayed an operand in floats when the pad moved to the integers", 22,
        "g (uint8[1,4] q, int64[4] p) => (float[1,7] y) <float s = {0.5}, uint8 z = {9}, float v = {1}>"
        "{ d = DequantizeLinear(q, s, z) y = Pad<mode: string = \"reflect\">(d, p, v) }",
        {"q": np.arange(4, dtype=np.uint8).reshape(1, 4), "p": np.array([0, 2, 0, 1])},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_graph(name: str) -> None:
    wrong, opset, text, feeds = CASES[name]
    model = onnx.parser.parse_model(f'<ir_version: {8 if opset < 20 else 10}, opset_import: ["": {opset}]> {text}')
    expected = session_of(model).run(None, feeds)
    graph = linnet.from_onnx(model)
    for options in ({"threads": 1}, {"reference": True}, {"isa_max": "scalar"}):
        found = linnet.Session(graph, **options).run(feeds)
        for output, wanted in zip(model.graph.output, expected, strict=True):
            assert found[output.name].dtype == wanted.dtype and found[output.name].shape == wanted.shape, wrong
            np.testing.assert_allclose(
                found[output.name], wanted, 1e-3 if wanted.dtype == np.float16 else 1e-5, 1e-6, err_msg=wrong
            )


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("producer", ["pytorch", "another"])
def test_aligned_corners_of_a_scale_that_leaves_a_part_of_a_pixel(producer: str, mode: str) -> None:
    """PyTorch's align_corners counts whole pixels, as ONNX Runtime does for every model. ONNX's reference does not round."""
    text = (
        '<ir_version: 8, opset_import: ["": 18]> g (float[N,1,H,W] x) => (float[N,1,P,Q] y) <float[4] s = {1,1,1.7,0.6}>'
        f'{{ y = Resize<mode: string = "{mode}", coordinate_transformation_mode: string = "align_corners">(x, , s) }}'
    )
    model = onnx.parser.parse_model(text)
    model.producer_name = producer
    for session in (
        linnet.Session(linnet.from_onnx(model)),
        linnet.Session(linnet.from_onnx(model, {"x": (1, 1, 6, 8)})),
    ):
        x = RNG.normal(size=(1, 1, 6, 8)).astype(np.float32)
        reference = session_of(model) if producer == "pytorch" else onnx.reference.ReferenceEvaluator(model)
        np.testing.assert_allclose(session.run({"x": x})["y"], reference.run(None, {"x": x})[0], 1e-4, 1e-5)


def test_an_output_that_is_listed_twice() -> None:
    """PyTorch exports a value that is returned twice as two outputs with one name; linnet used to refuse it."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[2] x) => (float[2] y, float[2] z, float[2] y) { y = Neg(x) z = Abs(x) }'
    )
    found = linnet.Session(linnet.from_onnx(model)).run({"x": np.array([1, -2], np.float32)})
    assert {name: value.tolist() for name, value in found.items()} == {"y": [-1, 2], "z": [1, 2]}


def test_what_pytorch_exports_though_it_is_no_onnx() -> None:
    """Two former faults: sums of truth values were truth values, and f32 weights of a folded batch norm with bf16 data were
    refused. ONNX Runtime refuses both models; the expected values are PyTorch's."""
    text = '<ir_version: 8, opset_import: ["": 18]> g (float[N,M] x) => (bool[N,M] y) <float z = {0}, int32 a = {1}>'
    model = onnx.parser.parse_model(text + "{ b = Greater(x, z) y = CumSum(b, a) }")
    found = linnet.Session(linnet.from_onnx(model)).run({"x": np.array([[1, -1, 2, 3]], np.float32)})["y"]
    assert found.dtype == np.int64 and found.tolist() == [[1, 1, 2, 3]]
    text = '<ir_version: 8, opset_import: ["": 18]> g (bfloat16[N,2,3] x) => (bfloat16[N,1,3] y) <float[1,2,1] w = {0.5,-2},'
    model = onnx.parser.parse_model(text + " float[1] b = {1}> { y = Conv(x, w, b) }")
    bits = np.array([[[1, 2, 3], [0, 1, -2]]], np.float32).view(np.uint32) >> 16
    y = linnet.Session(linnet.from_onnx(model)).run({"x": bits.astype(np.uint16)})["y"]
    assert y.dtype.name == "bfloat16" and y.tolist() == [[[1.5, 0, 6.5]]]
