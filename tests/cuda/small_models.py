"""Small models on the CUDA device, for compute-sanitizer: `python -m tests.cuda.small_models`. Every step runs twice, so graphs
are replayed, and results are compared with the CPU's."""

from __future__ import annotations

import numpy as np

import linnet
from linnet import nn
from tests.graphs import in_integers


def conv_net(dtype: str) -> tuple[linnet.Graph, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    graph = linnet.Graph(seed=0)
    x = graph.placeholder("x", (2, 3, 33, 33))
    y = nn.max_pool(nn.conv(x, 32, 3, stride=2, activation="relu"), 2)
    y = y + nn.conv(nn.depthwise_conv(nn.conv(y, 64, 1, activation="relu"), 3, padding=1), 32, 1)
    y = nn.dense(nn.flatten(nn.global_avg_pool(y)), 10)
    graph.signature("infer", {"x": x}, {"y": y})
    feeds = {"x": rng.standard_normal((2, 3, 33, 33)).astype(np.float32)}
    graph = graph.freeze()
    return (in_integers(graph, [feeds], dtype) if dtype != "f32" else graph), feeds


def main() -> None:
    for dtype in ("f32", "f16", "i8"):
        graph, feeds = conv_net(dtype)
        want = linnet.Session(graph).run(feeds)["y"].astype(np.float64)
        for precision in ("f32", "tf32") if dtype == "f32" else ("f32",):
            session = linnet.Session(graph, device="cuda", precision=precision)
            for _ in range(3):
                got = session.run(feeds)["y"]
            off = float(np.linalg.norm(got - want) / np.linalg.norm(want))
            print(f"{dtype} {precision}: off by {off:.1e}; {[s.kernel for s in session.steps if s.op != 'transfer']}")
            assert off < (1e-5 if precision == "f32" and dtype == "f32" else 5e-2)


if __name__ == "__main__":
    main()
