"""ONNX's DFT against numpy.fft, with axis, length and sizes known during conversion or only at run time.
ONNX's vectors have one signal of ten samples; this file has all combinations on several shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from linnet import onnx_backend

SHAPE = (2, 5, 6)  # followed by 1 for a real signal, 2 for a complex one


def transformed(x: np.ndarray[Any, Any], axis: int, length: int | None, inverse: bool, onesided: bool) -> Any:
    """ONNX's definition of DFT at opset 20, with numpy.fft; axis includes the last dimension."""
    axis %= x.ndim
    signal = x[..., 0].astype(np.float64) if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1].astype(np.float64)
    if inverse and onesided:
        return np.fft.irfft(signal, length, axis)[..., None]
    function: Any = np.fft.ifft if inverse else np.fft.rfft if onesided else np.fft.fft
    y = function(signal, length, axis)
    return np.stack([y.real, y.imag], -1)


@pytest.mark.parametrize("length", [None, 4, 9])
@pytest.mark.parametrize("inverse, onesided, parts", [(0, 0, 1), (0, 0, 2), (0, 1, 1), (1, 0, 2), (1, 0, 1), (1, 1, 2)])
@pytest.mark.parametrize("computed", ["nothing", "axis", "length", "sizes", "all"])
def test_dft(computed: str, inverse: int, onesided: int, parts: int, length: int | None) -> None:
    x = np.random.default_rng(7).standard_normal((*SHAPE, parts)).astype(np.float32)
    open_sizes = computed in ("sizes", "all")
    for axis in (0, 1, 2, -2, -3):
        inputs = [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["a", "b", "c", parts] if open_sizes else x.shape)
        ]
        initializers, feeds, names = [], {"x": x}, ["x", "", "axis"]
        for name, value in (("length", length), ("axis", axis)):
            if value is None:
                continue
            names[["x", "length", "axis"].index(name)] = name
            if computed in (name, "all"):
                inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, []))
                feeds[name] = np.array(value)
            else:
                initializers.append(numpy_helper.from_array(np.array(value), name))
        node = helper.make_node("DFT", names, ["y"], inverse=inverse, onesided=onesided)
        graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")], initializers)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
        (y,) = onnx_backend.prepare(proto).run(feeds)
        wanted = transformed(x, axis, length, bool(inverse), bool(onesided))
        assert y.shape == wanted.shape and y.dtype == np.float32
        np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)
