"""`from_torch` and what torch's exporter loses on the way: open dimensions, parts of the module, and which constants are
parameters. PyTorch gives the expected results."""
# Dear: PyTorch's exporter takes most of the time.

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import linnet
from linnet.converters.torch_check import difference
from tests.with_torch import MISSING, torch

pytest.importorskip("onnxscript", reason=MISSING)
from torch import nn
from torch.export import Dim

pytestmark = pytest.mark.filterwarnings("ignore")  # the exporter's warnings about itself


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Any, scale: Any = 1.0) -> Any:
        return self.head(self.attention(x, x, x)[0][:, 0]) * scale


class Reshapes(nn.Module):
    """Has the batch of the example in its code, as a number."""

    def forward(self, x: Any) -> Any:
        return x.reshape(2, 40).sum(1)


@pytest.mark.parametrize("shapes", [({0: Dim("batch")},), {"x": {0: Dim("batch")}}, ((Dim("batch"), None, None),)])
def test_an_open_batch_stays_open(shapes: Any) -> None:
    """Attention with an example batch of 1: the exporter took the batch for a constant."""
    torch.manual_seed(0)
    module = Attention().eval()
    graph = linnet.from_torch(module, torch.randn(1, 5, 8), shapes)
    assert graph.signatures["infer"].function.inputs[0].shape == ("batch", 5, 8)
    x = torch.randn(3, 5, 8)
    np.testing.assert_allclose(linnet.Session(graph).run({"x": x.numpy()})["output"], module(x).detach(), atol=1e-5)


def test_a_dimension_that_the_module_fixes_is_an_error() -> None:
    with pytest.raises(linnet.ConversionError) as raised:
        linnet.from_torch(Reshapes().eval(), torch.randn(2, 5, 8), ({0: Dim("batch")},))
    assert "batch" in str(raised.value) or "dimension 0 of 'x'" in str(raised.value)
    assert linnet.from_torch(Reshapes().eval(), torch.randn(2, 5, 8)).signatures["infer"].outputs == ["output"]


class Divides(nn.Module):
    def forward(self, x: Any) -> Any:
        return {"same": x + 1, "pooled": nn.functional.avg_pool2d(x, 3, divisor_override=5)}


def test_what_the_exporter_loses_is_an_error(tmp_path: Path) -> None:
    x = torch.arange(36.0).reshape(1, 1, 6, 6)
    text = r"output 'pooled' of the converted graph differs .* the largest difference is 22\.4, .*50\.4.*verify=False"
    with pytest.raises(linnet.ConversionError, match=text) as raised:
        linnet.from_torch(Divides(), (x,))
    assert len(raised.value.problems) == 1
    graph = linnet.from_torch(Divides(), (x,), verify=False)
    assert linnet.Session(graph).run({"x": x.numpy()})["pooled"][0, 0, 0, 0] == 7
    saved = torch.export.export(Divides().eval(), (x,))
    with pytest.raises(linnet.ConversionError, match="differs from the module's"):
        linnet.from_torch(saved)
    torch.export.save(saved, tmp_path / "m.pt2")
    with pytest.raises(linnet.ConversionError, match="differs from the module's"):
        linnet.load_graph(tmp_path / "m.pt2")


def test_the_comparison_leaves_the_module_as_it_was() -> None:
    """A module that counts its calls, and is in training mode."""

    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x: Any) -> Any:
            self.calls.add_(1)
            return self.norm(x)

    module = Counts().train()
    linnet.from_torch(module, torch.randn(3, 4))
    assert module.training and module.norm.training and float(module.calls) == 0


def test_random_modules_are_not_compared() -> None:
    class Noisy(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + torch.rand_like(x)

    linnet.from_torch(Noisy(), torch.zeros(4, 4))


def test_differences_between_arrays() -> None:
    a = np.float32([1, 2, np.inf])
    assert difference(a, a) == "" and difference(a * np.float32(1 + 1e-5), a) == ""
    assert difference(np.float32([1, 2.1, np.inf]), a).startswith("the largest difference is 0.1")
    assert "infinite" in difference(np.float32([1, 2, 3]), a) and "infinite" in difference(
        np.float32([np.nan, 2, np.inf]), a
    )
    assert difference(a[:2], a) == "its shape is [2], not [3]"
    assert difference(np.arange(200), np.arange(200)) == "" and "elements" in difference(
        np.zeros(200, int), np.arange(200)
    )


class Parts(nn.Module):
    """Has parameters, buffers, zero states, a causal mask and a layer norm without weights."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(6, 6, batch_first=True)
        self.fresh = nn.LayerNorm(6)  # its weights are ones, its biases zeros
        self.gain = nn.Parameter(torch.full((6,), 0.5))
        self.head = nn.Linear(6, 2)
        self.register_buffer("places", torch.linspace(-1, 1, 30).reshape(5, 6))
        self.register_buffer("mask", torch.triu(torch.full((5, 5), float("-inf")), 1))

    def forward(self, x: Any) -> Any:
        x = self.fresh(x + self.places) * self.gain
        x = nn.functional.layer_norm(x, (6,))
        x = torch.softmax(x @ x.transpose(1, 2) + self.mask, -1) @ x
        return self.head(self.cell(x)[0][:, -1])


def test_all_parameters_and_nothing_else_is_trained() -> None:
    torch.manual_seed(0)
    module = Parts().eval()
    x, t = torch.randn(3, 5, 6), torch.randn(3, 2)
    graph = linnet.from_torch(module, (x,), trainable="*")
    # the two biases of the LSTM are one sum
    assert set(graph.variables) == set(dict(module.named_parameters())) - {"cell.bias_hh_l0"}
    out, target = graph.find("output"), graph.placeholder("t", (3, 2))
    loss = ((out - target) ** 2).mean()
    graph.signature(
        "train", {"x": graph.find("x"), "t": target}, {"loss": loss}, updates=linnet.SGD(0.5).minimize(loss)
    )
    model = linnet.Model(graph)
    store = linnet.Store(model)
    session = linnet.Session(model, "train", store=store)
    module.requires_grad_(True)
    parameters = [
        p for n, p in module.named_parameters() if n != "cell.bias_hh_l0"
    ]  # its sum with bias_ih is one variable
    optimizer = torch.optim.SGD(parameters, 0.5)
    for _ in range(3):
        expected = ((module(x) - t) ** 2).mean()
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
        got = session.run({"x": x.numpy(), "t": t.numpy()})["loss"]
        np.testing.assert_allclose(got, expected.detach(), rtol=1e-4)


def test_equal_parameters_are_trained_apart() -> None:
    """The biases of both layers are zeros, and the weights equal. They were one variable."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)).eval()
    with torch.no_grad():
        for part in (module[0], module[2]):
            part.weight.copy_(torch.eye(4))
            part.bias.zero_()
    x, names = torch.randn(3, 4), [name for name, _ in module.named_parameters()]
    graph = linnet.from_torch(module, (x,), trainable="*")
    assert sorted(graph.variables) == sorted(names)
    values = {name: p.detach().numpy() for name, p in module.named_parameters()}
    nodes = [
        helper.make_node("Gemm", ["x", "0.weight", "0.bias"], ["a"], transB=1), helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Gemm", ["b", "2.weight", "2.bias"], ["y"], transB=1),
    ]  # fmt: skip
    made = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 4])],
        [numpy_helper.from_array(v, k) for k, v in values.items()],
    )  # fmt: skip
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert sorted(linnet.from_onnx(model, trainable="*").variables) == sorted(names)


def test_masks_and_filled_constants_of_an_onnx_file() -> None:
    """An exporter's names (val_3) say nothing; the names of parameters do, even if all their numbers are equal."""
    values = {
        "val_1": np.ones(6), "val_2": np.where(np.tri(6) > 0, 0, -1e9)[:, None],
        "norm.weight": np.ones(6), "norm.bias": np.zeros(6),
        "dense.weight": RNG.standard_normal((6, 6)), "scale": RNG.standard_normal(6), "h": np.zeros((1, 2, 3)),
        "lstm.W": RNG.standard_normal((1, 12, 6)), "lstm.R": RNG.standard_normal((1, 12, 3)),
    }  # fmt: skip
    make = helper.make_node
    nodes = [
        make("LayerNormalization", ["x", "norm.weight", "norm.bias"], ["a"], axis=-1), make("Mul", ["a", "scale"], ["b"]),
        make("LayerNormalization", ["b", "val_1"], ["c"], axis=-1), make("MatMul", ["c", "dense.weight"], ["d"]),
        make("Add", ["d", "val_2"], ["e"]), make("Softmax", ["e"], ["f"]),
        make("LSTM", ["f", "lstm.W", "lstm.R", "", "", "h", "h"], ["y"], hidden_size=3),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 2, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v.astype(np.float32), k) for k, v in values.items()],
    )  # fmt: skip

    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    found = linnet.from_onnx(model, trainable="*").variables
    assert {n.split("_")[0] for n in found} == {"norm.weight", "norm.bias", "scale", "dense.weight", "lstm.W", "lstm.R"}
    assert list(linnet.from_onnx(model, trainable="h").variables) == ["h"]  # a name chooses everything


RNG = np.random.default_rng(0)
