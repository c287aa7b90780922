"""The language models of the examples against PyTorch: with the same weights, passages and optimizer, losses agree within 2 %.
The text is this repository's documentation if the novel cannot be fetched; 1,000 steps are a soak test."""
# Dear: a language model is trained beside PyTorch.

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import linnet
from examples.training import char_lstm, transformer
from examples.training.text import Text
from tests.native import ROOT
from tests.with_torch import torch

BATCH, LENGTH = 16, transformer.LENGTH


def words() -> Text:
    """The documentation as one text: English, and the same everywhere."""
    return Text.of("\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))))


def tensor(graph: linnet.Graph, name: str, turn: bool = False) -> Any:
    value = graph.variables[name].value
    return torch.from_numpy(np.ascontiguousarray(value.T if turn else value))


def fill(layer: Any, graph: linnet.Graph, name: str) -> None:
    """A Linear or LayerNorm with the values of linnet's dense or layer_norm."""
    dense = isinstance(layer, torch.nn.Linear)
    layer.weight.data = tensor(graph, f"{name}/{'weight' if dense else 'scale'}", turn=dense)
    layer.bias.data = tensor(graph, f"{name}/bias")


class TorchLstm(torch.nn.Module):  # type: ignore[misc, name-defined]
    """PyTorch's twin of examples/training/char_lstm.py."""

    def __init__(self, graph: linnet.Graph, characters: int, units: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(characters, 64)
        self.lstm = torch.nn.LSTM(64, units, batch_first=True)
        self.logits = torch.nn.Linear(units, characters)
        self.embedding.weight.data = tensor(graph, "net/embedding/weight")

        def gates(value: Any) -> Any:  # linnet: input, output, forget, cell; PyTorch: input, forget, cell, output
            i, o, f, c = value.chunk(4)
            return torch.cat((i, f, c, o)).contiguous()

        layer = "net/lstm/layer_0"
        self.lstm.weight_ih_l0.data = gates(tensor(graph, f"{layer}/input_weight", turn=True))
        self.lstm.weight_hh_l0.data = gates(tensor(graph, f"{layer}/weight")[0])
        self.lstm.bias_ih_l0.data = gates(tensor(graph, f"{layer}/bias"))
        self.lstm.bias_hh_l0.data.zero_()
        self.lstm.bias_hh_l0.requires_grad_(False)  # linnet has one bias
        fill(self.logits, graph, "net/logits")

    def forward(self, ids: Any) -> Any:
        return self.logits(self.lstm(self.embedding(ids))[0])


class TorchTransformer(torch.nn.Module):  # type: ignore[misc, name-defined]
    """PyTorch's twin of examples/training/transformer.py."""

    def __init__(self, graph: linnet.Graph, characters: int, size: int, heads: int, layers: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(characters, size)
        self.embedding.weight.data = tensor(graph, "net/embedding/weight")
        self.positions = torch.nn.Parameter(tensor(graph, "net/positions/weight"))
        options = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
        made = []
        for i in range(layers):
            layer, name = (
                torch.nn.TransformerEncoderLayer(size, heads, 4 * size, **options),
                f"net/encoder{f'_{i}' if i else ''}",
            )
            parts = [f"{name}/attention/{part}" for part in ("query", "key", "value")]
            layer.self_attn.in_proj_weight.data = torch.cat([tensor(graph, f"{p}/weight", turn=True) for p in parts])
            layer.self_attn.in_proj_bias.data = torch.cat([tensor(graph, f"{p}/bias") for p in parts])
            fill(layer.self_attn.out_proj, graph, f"{name}/attention/output")
            fill(layer.linear1, graph, f"{name}/dense_in")
            fill(layer.linear2, graph, f"{name}/dense_out")
            fill(layer.norm1, graph, f"{name}/norm_0")
            fill(layer.norm2, graph, f"{name}/norm_1")
            made.append(layer)
        self.layers, self.norm = torch.nn.ModuleList(made), torch.nn.LayerNorm(size)
        self.logits = torch.nn.Linear(size, characters)
        fill(self.norm, graph, "net/layer_norm")
        fill(self.logits, graph, "net/logits")
        self.mask = torch.nn.Transformer.generate_square_subsequent_mask(LENGTH)

    def forward(self, ids: Any) -> Any:
        x = self.embedding(ids) + self.positions
        for layer in self.layers:
            x = layer(x, src_mask=self.mask, is_causal=True)
        return self.logits(self.norm(x))


def losses(which: str, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The loss of every step: linnet's, PyTorch's."""
    text = words()
    count = len(text.characters)
    optimizer: Any
    if which == "lstm":
        graph = char_lstm.build(count, seed=3, units=128)
        twin: Any = TorchLstm(graph, count, 128)
        optimizer = torch.optim.Adam([p for p in twin.parameters() if p.requires_grad], 3e-3)
    else:
        graph = transformer.build(count, seed=3, size=64)
        twin = TorchTransformer(graph, count, 64, 4, 2)
        optimizer = torch.optim.AdamW(twin.parameters(), 1e-3)
    train = linnet.Session(linnet.Model(graph.to_bytes()), "train", threads=1)
    rng = np.random.default_rng(0)
    ours, theirs = [], []
    for _ in range(steps):
        feeds = text.windows(BATCH, LENGTH, rng)
        ours.append(float(train.run(feeds)["loss"]))
        optimizer.zero_grad()
        logits = twin(torch.from_numpy(feeds["ids"].astype(np.int64)))
        labels = torch.from_numpy(feeds["next"].astype(np.int64))
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, count), labels.reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(twin.parameters(), 1.0)
        optimizer.step()
        theirs.append(float(loss.detach()))
    return np.array(ours), np.array(theirs)


@pytest.mark.parametrize("which", ["lstm", "transformer"])
@pytest.mark.parametrize("steps", [60, pytest.param(1000, marks=pytest.mark.soak)])
def test_losses_are_pytorchs(which: str, steps: int) -> None:
    torch.set_num_threads(1)
    ours, theirs = losses(which, steps)
    assert ours[-1] < 0.8 * ours[0]
    np.testing.assert_allclose(ours[:10], theirs[:10], rtol=1e-4)
    windows = ours.reshape(-1, 20).mean(1), theirs.reshape(-1, 20).mean(1)
    print(f"{which}: {windows[0][-1]:.4f}, PyTorch {windows[1][-1]:.4f} after {steps} steps")
    np.testing.assert_allclose(*windows, rtol=0.02)
