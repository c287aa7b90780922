"""`linnet.from_torch` against torch."""
# Dear: PyTorch's exporter takes most of the time.

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import linnet
from tests.with_torch import MISSING, torch

pytest.importorskip("onnxscript", reason=MISSING)
from torch import nn
from torch.export import Dim
from torch.utils import _pytree as pytree


def compare(
    module: Any, example: tuple[Any, ...], other: tuple[Any, ...] | None = None, shapes: Any = None
) -> Mapping[str, Any]:
    """Converts, runs on `other` (default: the example), compares every output to 1e-4 of its range, and returns linnet's
    outputs."""
    module.eval()
    graph = linnet.from_torch(module, example, shapes)
    signature, other = graph.signatures["infer"], other or example
    with torch.no_grad():
        expected = [t.numpy() for t in pytree.tree_leaves(module(*other))]
    found = linnet.Session(graph).run(dict(zip(signature.inputs, (t.numpy() for t in other), strict=True)))
    for want, got in zip(expected, found.values(), strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        assert np.abs(got - want).max() <= 1e-4 * max(np.ptp(want), 1e-3)
    return found


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(linnet.UsageError, match=r"pip install 'linnet-runtime\[torch\]'"):
        linnet.from_torch(object(), ())


def test_lenet_with_an_open_batch() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 84), nn.BatchNorm1d(84), nn.GELU(), nn.Linear(84, 10),
    ).train()  # fmt: skip
    net[8].eval()  # a frozen batch norm stays frozen
    graph = linnet.from_torch(net, torch.zeros(2, 1, 28, 28), ({0: Dim("batch")},))
    assert net.training and [layer.training for layer in net] == [i != 8 for i in range(11)]
    signature = graph.signatures["infer"]
    assert signature.inputs == ["input"] and signature.outputs == ["output"]
    assert signature.function.inputs[0].shape == ("batch", 1, 28, 28) and graph.metadata["source"] == "torch"
    found = compare(net, (torch.randn(2, 1, 28, 28),), (torch.randn(5, 1, 28, 28),), ({0: Dim("batch")},))
    assert found["output"].shape == (5, 10)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent(kind: str) -> None:
    torch.manual_seed(1)
    net = getattr(nn, kind)(8, 12, 2, batch_first=True, bidirectional=True)
    found = compare(net, (torch.randn(2, 5, 8),), (torch.randn(3, 5, 8),), ({0: Dim("batch")},))
    assert list(found) == (["output_0", "output_1_0", "output_1_1"] if kind == "LSTM" else ["output_0", "output_1"])


def test_transformer() -> None:
    torch.manual_seed(2)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
    shapes = ({0: Dim("batch"), 1: Dim("length")},)
    compare(nn.TransformerEncoder(layer, 2), (torch.randn(2, 7, 32),), (torch.randn(3, 11, 32),), shapes)


def test_names_and_keyword_arguments() -> None:
    class Net(nn.Module):
        def forward(self, ids: Any, *, mask: Any) -> dict[str, Any]:
            y = ids.float() * mask
            return {"logits": y, "parts": (y + 1, y.sum())}

    example = torch.arange(6).reshape(2, 3)
    graph = linnet.from_torch(Net(), example, example_kwargs={"mask": torch.ones(2, 3)})
    signature = graph.signatures["infer"]
    assert signature.inputs == ["ids", "mask"] and signature.outputs == ["logits", "parts_0", "parts_1"]
    found = linnet.Session(graph).run({"ids": example.numpy(), "mask": np.full((2, 3), 2, np.float32)})
    np.testing.assert_array_equal(found["parts_1"], 30)
    graph = linnet.from_torch(
        Net(), example, example_kwargs={"mask": torch.ones(2, 3)}, input_names=["i", "m"], output_names=["a", "b", "c"]
    )
    assert graph.signatures["infer"].inputs == ["i", "m"] and graph.signatures["infer"].outputs == ["a", "b", "c"]
    with pytest.raises(linnet.UsageError, match="3 different names"):
        linnet.from_torch(Net(), example, example_kwargs={"mask": torch.ones(2, 3)}, output_names=["a"])


def test_large_weights_go_through_files(monkeypatch: pytest.MonkeyPatch) -> None:
    from linnet.converters import pytorch

    monkeypatch.setattr(pytorch, "IN_MEMORY", 1000)
    torch.manual_seed(3)
    compare(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)), (torch.randn(4, 64),))


def test_failures_keep_the_exporters_message() -> None:
    class Forks(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2 if x.sum() > 0 else x - 1

    with pytest.raises(linnet.ConversionError, match="data-dependent") as caught:
        linnet.from_torch(Forks(), torch.zeros(3))
    (problem,) = caught.value.problems
    assert problem.node == "Forks" and problem.op == "torch.onnx.export" and "\x1b" not in str(problem)
    with pytest.raises(linnet.UsageError, match="Module"):
        linnet.from_torch(3, torch.zeros(3))


def _vision(name: str) -> Any:
    """A network of torchvision with batch norms calibrated so that outputs differ; its C++ ops are not needed."""
    for op in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, op):
            torch.library.define(f"torchvision::{op}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision

    options = {"aux_logits": False, "init_weights": False} if name == "googlenet" else {}
    net = getattr(torchvision.models, name)(weights=None, **options).train()
    with torch.no_grad():
        net(torch.randn(4, 3, 224, 224))
        if name.startswith("vit"):
            nn.init.normal_(net.heads.head.weight)  # otherwise zeros
    return net


@pytest.mark.soak
@pytest.mark.parametrize(
    "name",
    ["resnet18", "mobilenet_v3_small", "shufflenet_v2_x1_0", "efficientnet_b0", "squeezenet1_1", "googlenet", "densenet121",
     "regnet_y_400mf", "vit_b_16", "swin_t", "convnext_tiny"],
)  # fmt: skip
def test_torchvision(name: str) -> None:
    torch.manual_seed(4)
    compare(_vision(name), (torch.randn(2, 3, 224, 224),), (torch.randn(3, 3, 224, 224),), ({0: Dim("batch")},))
