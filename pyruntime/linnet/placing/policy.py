"""A learnt policy for placements: a small network gives each group of nodes a probability for each machine, and REINFORCE
(Williams, Simple statistical gradient-following algorithms for connectionist reinforcement learning, 1992) trains it on the
predicted times. The network is a linnet graph, as is its training."""

from __future__ import annotations

import math

import numpy as np

from linnet.placing.costs import Costs, finite
from linnet.placing.schedule import Budget, fits, schedule

GROUPS, SAMPLES, WIDTH, RATE = 24, 16, 32, 0.02


def groups(costs: Costs) -> np.ndarray:
    """The number of the group of each node: ranges of the order that take about the same time here."""
    ns = np.array([node.ns[0] if math.isfinite(node.ns[0]) else 0.0 for node in costs.nodes])
    done = np.cumsum(ns + 1e-3 * max(float(ns.sum()), 1.0) / max(len(ns), 1))
    numbers = np.minimum((GROUPS * done / done[-1]).astype(int), GROUPS - 1)
    return np.asarray(np.unique(numbers, return_inverse=True)[1])


def features(costs: Costs, group: np.ndarray) -> np.ndarray:
    """f32[groups, features]: the share of each machine's time, the share of all weights and of all values, and a one for the
    group itself."""
    count, ns = int(group.max()) + 1, np.where(np.isfinite(finite(costs)), finite(costs), 0.0)
    columns = [np.bincount(group, column, count) / max(float(ns.sum()), 1e-9) for column in ns.T]
    weights = np.array([sum(node.weights.values()) for node in costs.nodes], float)
    values = np.array([sum(costs.sizes.get(v, 0) for v in node.writes) for node in costs.nodes], float)
    columns += [np.bincount(group, each, count) / max(float(each.sum()), 1.0) for each in (weights, values)]
    return np.concatenate([np.stack(columns, axis=1), np.eye(count)], axis=1).astype(np.float32)


def learnt(costs: Costs, found: dict[tuple[int, ...], float], budget: Budget, rng: np.random.Generator) -> None:
    """Trains the policy while the budget lasts, and adds the best placement that it has drawn to `found`."""
    from linnet.facade import Graph
    from linnet.nn import dense, log_softmax, softmax
    from linnet.optimizers import Adam
    from linnet.session.session import Session

    if len(costs.nodes) < 2 or len(costs.machines) < 2:
        return
    group, machines = groups(costs), len(costs.machines)
    given = features(costs, group)
    graph = Graph(seed=int(rng.integers(1 << 30)))
    x, w = graph.placeholder("x", given.shape), graph.placeholder("w", (len(given), machines))
    logits = dense(dense(x, WIDTH, activation="relu"), machines)
    loss = -(w * log_softmax(logits)).sum()
    graph.signature(
        "train", {"x": x, "w": w}, {"p": softmax(logits)}, updates=Adam(RATE).minimize(loss)
    )  # the probabilities are those before the update
    session = Session(graph, "train", threads=1)
    start = min(found.values())
    mean, best, least = 0.0, None, start
    weights, steps = np.zeros((len(given), machines), np.float32), 0
    while budget.take() > 0:
        p = np.asarray(session.run({"x": given, "w": weights})["p"], np.float64)
        drawn = (rng.random((SAMPLES, len(given), 1)) > np.cumsum(p / p.sum(axis=1, keepdims=True), axis=1)).sum(axis=2)
        drawn = np.minimum(drawn, machines - 1)
        rewards = np.zeros(SAMPLES)
        for i, actions in enumerate(drawn):
            made = [
                int(m) if math.isfinite(node.ns[m]) else 0 for node, m in zip(costs.nodes, actions[group], strict=True)
            ]
            ns = schedule(costs, made).ns if fits(costs, made) else 10 * start
            rewards[i] = -math.log(max(ns, 1.0) / start)
            if ns < least:
                least, best = ns, tuple(made)
        mean = rewards.mean() if steps == 0 else 0.9 * mean + 0.1 * rewards.mean()
        advantage = (rewards - mean) / (rewards.std() + 1e-6)
        weights = (np.eye(machines)[drawn] * advantage[:, None, None]).mean(axis=0).astype(np.float32)
        steps += 1
    if best is not None:
        found[best] = least
