"""Recurrent and attention layers against PyTorch's with the same weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import nn
from linnet.facade import Graph
from linnet.ir.function import Tensor
from tests.test_nn import Array, check, same, some, torch, torch_seeded, turned

GATES = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2], "RNN": [0]}  # ONNX's gate order, as PyTorch's indices


def gates(kind: str, count: int) -> Callable[[Array], Array]:
    """Rows in ONNX's gate order."""
    return lambda a: np.concatenate([np.split(a, count)[i] for i in GATES[kind]])


def recurrent_pairs(kind: str, module: Any, layers: int, directions: int) -> dict[str, Any]:
    """Maps variables of nn.lstm, gru or rnn to PyTorch's parameters: name -> (parameters, form).

    PyTorch has two biases; linnet's is their sum, except for the hidden gate of a GRU."""
    order, parameters = gates(kind, len(GATES[kind])), dict(module.named_parameters())
    pairs: dict[str, Any] = {}
    for i in range(layers):
        ends = [f"_l{i}", f"_l{i}_reverse"][:directions]

        def of(part: str, ends: list[str] = ends) -> list[Any]:
            return [parameters[part + end] for end in ends]

        name = f"{kind.lower()}/layer_{i}"
        pairs[f"{name}/input_weight"] = of("weight_ih"), lambda *a: np.concatenate([order(v).T for v in a], 1)
        pairs[f"{name}/weight"] = of("weight_hh"), lambda *a: np.stack([order(v) for v in a])
        if kind == "GRU":
            pairs[f"{name}/hidden_bias"] = of("bias_hh"), lambda *a: np.stack([order(v)[10:] for v in a])

        def bias(*a: Array) -> Array:
            own, hidden = a[: len(a) // 2], a[len(a) // 2 :]
            kept = [np.concatenate([order(h)[:10], np.zeros(5)]) if kind == "GRU" else order(h) for h in hidden]
            return np.concatenate([order(o) + h for o, h in zip(own, kept, strict=True)])

        pairs[f"{name}/bias"] = [*of("bias_ih"), *of("bias_hh")], bias
    return pairs


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize(("layers", "bidirectional"), [(1, False), (2, True)])
def test_recurrent(kind: str, layers: int, bidirectional: bool) -> None:
    """Compares results and states, and the gradients of the input, the first states and every variable."""
    module = torch_seeded(
        lambda: getattr(torch.nn, kind)(4, 5, num_layers=layers, bidirectional=bidirectional, batch_first=True)
    )
    graph, x = Graph(), some(3, 6, 4)
    tensor = graph.placeholder("x", ("batch", 6, 4))
    directions = 2 if bidirectional else 1
    states = [graph.placeholder(n, (layers * directions, "batch", 5)) for n in ("h", "c")[: 2 if kind == "LSTM" else 1]]
    y, *after = getattr(nn, kind.lower())(
        tensor, 5, layers=layers, bidirectional=bidirectional, initial=tuple(states) if kind == "LSTM" else states[0]
    )
    pairs = recurrent_pairs(kind, module, layers, directions)
    assert set(pairs) == set(graph.variables)
    for name, (parameters, form) in pairs.items():
        value = form(*(p.detach().numpy() for p in parameters))
        assert graph.variables[name].value.shape == value.shape
        graph.variables[name].value = np.ascontiguousarray(value, np.float32)
    feeds = {"x": x, **{t.name: some(layers * directions, 3, 5, seed=i) for i, t in enumerate(states)}}
    given = {name: torch.from_numpy(v).requires_grad_() for name, v in feeds.items()}
    first = tuple(given[t.name] for t in states)
    wanted, state = module(given["x"], first if kind == "LSTM" else first[0])
    results = [wanted, *(state if kind == "LSTM" else [state])]
    weights = [some(*t.shape, seed=3 + i) for i, t in enumerate(results)]
    sum((t * torch.from_numpy(w)).sum() for t, w in zip(results, weights, strict=True)).backward()

    outputs = {"y": y, **{f"s{i}": t for i, t in enumerate(after)}}
    fixed = [
        graph.placeholder(f"w{i}", [3 if d == "batch" else d for d in t.shape]) for i, t in enumerate(outputs.values())
    ]
    loss = sum((t * w).sum() for t, w in zip(outputs.values(), fixed, strict=True))
    variables = [graph.variables[name] for name in pairs]
    slopes = linnet.gradients(loss, [*variables, tensor, *states])
    graph.signature(
        "train",
        {t.name: t for t in (tensor, *states, *fixed)},
        {**outputs, **{f"d{i}": g for i, g in enumerate(slopes)}},
    )
    found = linnet.Session(graph, "train").run({**feeds, **{f"w{i}": w for i, w in enumerate(weights)}})
    for name, value in zip(outputs, results, strict=True):
        np.testing.assert_allclose(found[name], value.detach().numpy(), rtol=1e-5, atol=1e-6)
    expected = {name: form(*(p.grad.numpy() for p in parameters)) for name, (parameters, form) in pairs.items()}
    for name in pairs:
        if name.endswith("/bias"):  # both biases get the full gradient of their sum
            half = len(pairs[name][0]) // 2
            order = gates(kind, len(GATES[kind]))
            expected[name] = np.concatenate([order(p.grad.numpy()) for p in pairs[name][0][:half]])
    expected |= {name: t.grad.numpy() for name, t in given.items()}
    for i, (name, value) in enumerate(expected.items()):
        scale = np.abs(value).max()
        np.testing.assert_allclose(found[f"d{i}"] / scale, value / scale, rtol=1e-4, atol=2e-6, err_msg=name)


def test_lengths_and_time_major() -> None:
    graph = Graph()
    x, lengths = graph.placeholder("x", (7, 2, 3)), graph.placeholder("lengths", (2,), "i32")
    y, h = nn.gru(x, 4, lengths=lengths, time_major=True)
    graph.signature("infer", {"x": x, "lengths": lengths}, {"y": y, "h": h})
    found = linnet.Session(graph).run({"x": some(7, 2, 3), "lengths": np.int32([3, 7])})
    assert found["y"].shape == (7, 2, 4) and not found["y"][3:, 0].any() and found["y"][6, 1].any()
    np.testing.assert_array_equal(found["h"][0], [found["y"][2, 0], found["y"][6, 1]])


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool) -> None:
    key, value = some(2, 3, 6, 4, seed=1), some(2, 3, 6, 4, seed=2)

    def build(x: Tensor) -> Tensor:
        k, v = (x.function.constant(t) for t in (key, value))
        return nn.scaled_dot_product_attention(x, k, v, causal=causal)

    def reference(x: Any) -> Any:
        k, v = torch.from_numpy(key), torch.from_numpy(value)
        return torch.nn.functional.scaled_dot_product_attention(x, k, v, is_causal=causal)

    check(build, some(2, 3, 6, 4), reference, {}, open_batch=False)


def test_attention_masks() -> None:
    keep, added = np.random.default_rng(0).random((2, 1, 5, 5)) < 0.6, some(5, 5)
    keep[:, :, 0] = True
    for mask in (keep, added):
        check(
            lambda x, mask=mask: nn.scaled_dot_product_attention(x, x, x, mask=x.function.constant(mask), scale=0.3),
            some(2, 3, 5, 4),
            lambda x, mask=mask: torch.nn.functional.scaled_dot_product_attention(
                x, x, x, attn_mask=torch.from_numpy(mask), scale=0.3
            ),
            {}, open_batch=False,
        )  # fmt: skip
    graph = Graph()
    x, mask = graph.placeholder("x", (1, 2, 4)), graph.constant(np.zeros((2, 2), bool))
    graph.signature("infer", {"x": x}, {"y": nn.scaled_dot_product_attention(x, x, x, mask=mask)})
    assert np.isfinite(linnet.Session(graph).run({"x": some(1, 2, 4)})["y"]).all()  # no key to attend to: no NaN


def _packed(prefix: str, module: Any) -> tuple[dict[str, Any], list[tuple[str, Any, Callable[[Array], Array]]]]:
    pairs: dict[str, Any] = {}
    for i, part in enumerate(("query", "key", "value")):
        pairs[f"{prefix}/{part}/weight"] = (module.in_proj_weight, lambda a, i=i: np.split(a, 3)[i].T)
        pairs[f"{prefix}/{part}/bias"] = (module.in_proj_bias, lambda a, i=i: np.split(a, 3)[i])
    pairs[f"{prefix}/output/weight"] = (module.out_proj.weight, turned)
    pairs[f"{prefix}/output/bias"] = (module.out_proj.bias, same)
    return pairs, []


def test_multi_head_attention() -> None:
    module = torch_seeded(lambda: torch.nn.MultiheadAttention(8, 2, batch_first=True))
    pairs, _ = _packed("attention", module)
    check(lambda x: nn.multi_head_attention(x, heads=2), some(3, 5, 8), lambda x: module(x, x, x)[0], pairs)


@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer_encoder_layer(norm_first: bool) -> None:
    module = torch_seeded(
        lambda: torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=norm_first)
    )
    pairs, _ = _packed("encoder/attention", module.self_attn)
    for name, layer in (("dense_in", module.linear1), ("dense_out", module.linear2)):
        pairs[f"encoder/{name}/weight"] = (layer.weight, turned)
        pairs[f"encoder/{name}/bias"] = (layer.bias, same)
    for i, layer in enumerate((module.norm1, module.norm2)):
        pairs[f"encoder/norm_{i}/scale"] = (layer.weight, same)
        pairs[f"encoder/norm_{i}/bias"] = (layer.bias, same)
    check(
        lambda x: nn.transformer_encoder_layer(x, 2, 16, norm_first=norm_first), some(3, 5, 8), module, pairs,
        tolerance=5e-5,
    )  # fmt: skip


@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer_decoder_layer(norm_first: bool) -> None:
    """Causal, with padding in the memory. The module gets the input as memory, too, from its last two times on."""
    module = torch_seeded(
        lambda: torch.nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=norm_first)
    )
    pairs, _ = _packed("decoder/attention", module.self_attn)
    pairs |= _packed("decoder/memory_attention", module.multihead_attn)[0]
    for name, layer in (("dense_in", module.linear1), ("dense_out", module.linear2)):
        pairs[f"decoder/{name}/weight"] = (layer.weight, turned)
        pairs[f"decoder/{name}/bias"] = (layer.bias, same)
    for i, layer in enumerate((module.norm1, module.norm2, module.norm3)):
        pairs[f"decoder/norm_{i}/scale"] = (layer.weight, same)
        pairs[f"decoder/norm_{i}/bias"] = (layer.bias, same)
    may = np.array([True, True, False, True, True])

    class Both(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = module

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            later = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
            return self.layer(
                x, torch.tanh(x), tgt_mask=later, memory_key_padding_mask=torch.tensor(~may)[None].expand(3, 5)
            )

    def build(x: linnet.Tensor) -> linnet.Tensor:
        mask = x.function.constant(may.reshape(1, 1, 1, 5))
        return nn.transformer_decoder_layer(
            x, linnet.ops.tanh(x), 2, 16, memory_mask=mask, causal=True, norm_first=norm_first
        )

    check(build, some(3, 5, 8), Both(), pairs, tolerance=5e-5)


def test_additive_attention() -> None:
    """Against NumPy in f64; the weights of what is masked are 0."""
    graph = Graph(seed=1)
    query, memory = graph.placeholder("q", ("batch", 3, 4)), graph.placeholder("m", ("batch", 5, 6))
    may = np.array([True, True, False, True, True])
    means, weights = nn.additive_attention(query, memory, 7, mask=graph.constant(may.reshape(1, 1, 5)))
    graph.signature("infer", {"q": query, "m": memory}, {"means": means, "weights": weights})
    q, m = (x.astype(np.float64) for x in (some(2, 3, 4), some(2, 5, 6)))
    found = linnet.Session(graph).run({"q": q.astype(np.float32), "m": m.astype(np.float32)})
    value = {name: variable.value.astype(np.float64) for name, variable in graph.variables.items()}
    asked = (q @ value["attention/query/weight"])[:, :, None]
    known = (m @ value["attention/memory/weight"] + value["attention/memory/bias"])[:, None]
    scores = (np.tanh(asked + known) @ value["attention/score/weight"])[..., 0]
    expected = np.exp(scores) * may
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(found["weights"], expected, 1e-5, 1e-6)
    np.testing.assert_allclose(found["means"], expected @ m, 1e-5, 1e-6)
    assert found["weights"][..., 2].max() < 1e-30


def test_positions() -> None:
    graph = Graph()
    x = graph.placeholder("x", ("batch", "time", 6))
    y = nn.learned_positions(nn.sinusoidal_positions(x, 50), 50)
    graph.signature("infer", {"x": x}, {"y": y})
    found = linnet.Session(graph).run({"x": np.zeros((2, 9, 6), np.float32)})["y"][1]
    t, table = np.arange(9)[:, None], graph.variables["positions/weight"].value[:9]
    expected = np.stack([f(t[:, 0] / 10000 ** (i / 6)) for i in (0, 2, 4) for f in (np.sin, np.cos)], 1)
    np.testing.assert_allclose(found - table, expected, atol=1e-6)
    with pytest.raises(linnet.UsageError, match="at most 4, got 5"):
        nn.sinusoidal_positions(graph.placeholder("z", (1, 5, 6)), 4)
