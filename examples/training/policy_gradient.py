"""`python -m examples.training.policy_gradient`: learns to balance a pole by REINFORCE (Williams 1992).
The simulation is NumPy, sixteen carts at once; the policy and its gradient are a graph, without any C code."""

from __future__ import annotations

import time

import numpy as np

import linnet
from linnet import nn, ops

from . import plot

LIMIT = 200  # most steps in an episode


def build(seed: int) -> linnet.Graph:
    """Signatures: `infer` {state [N, 4]} -> probability of pushing right; `train` {state, right, advantage [N]} -> loss."""
    graph = linnet.Graph(seed=seed)
    state = graph.placeholder("state", ("batch", 4))
    right, advantage = graph.placeholder("right", ("batch",)), graph.placeholder("advantage", ("batch",))
    logit = nn.dense(nn.dense(state, 32, activation="tanh"), 1)[:, 0]
    graph.signature("infer", {"state": state}, {"right": ops.sigmoid(logit)})
    surprise = ops.softplus(logit) - right * logit  # -log(probability of the action taken)
    loss = (surprise * advantage).mean()
    feeds = {"state": state, "right": right, "advantage": advantage}
    graph.signature("train", feeds, {"loss": loss}, updates=linnet.Adam(0.02).minimize(loss))
    return graph


class Carts:
    """Poles on carts, 20 ms a step (Barto, Sutton, Anderson 1983): state is position, speed, angle, angular speed."""

    def __init__(self, count: int, rng: np.random.Generator) -> None:
        self.state = rng.uniform(-0.05, 0.05, (count, 4))
        self.standing = np.ones(count, bool)

    def step(self, right: np.ndarray) -> None:
        """Pushes each cart whose pole still stands to the right (1) or left (0) with 10 N."""
        _, speed, angle, turn = self.state.T
        force = np.where(right > 0, 10.0, -10.0)
        mass, pole, half = 1.1, 0.1, 0.5
        inner = (force + pole * half * turn**2 * np.sin(angle)) / mass
        bend = (9.8 * np.sin(angle) - np.cos(angle) * inner) / (half * (4 / 3 - pole * np.cos(angle) ** 2 / mass))
        push = inner - pole * half * bend * np.cos(angle) / mass
        change = np.stack((speed, push, turn, bend), 1)
        self.state = np.where(self.standing[:, None], self.state + 0.02 * change, self.state)
        self.standing &= (abs(self.state[:, 0]) < 2.4) & (abs(self.state[:, 2]) < np.pi / 15)


def play(policy: linnet.Session, count: int, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Plays whole episodes of `count` carts; returns the inputs of `train`, and the length of each episode."""
    carts = Carts(count, rng)
    states, pushes, alive = [], [], []
    while carts.standing.any() and len(states) < LIMIT:
        state = carts.state.astype(np.float32)
        right = (rng.random(count) < policy.run({"state": state})["right"]).astype(np.float32)
        states.append(state)
        pushes.append(right)
        alive.append(carts.standing.copy())
        carts.step(right)
    lived = np.array(alive)
    rewards = np.zeros((len(lived) + 1, count))
    for t in reversed(range(len(lived))):
        rewards[t] = lived[t] + 0.99 * rewards[t + 1]
    rewards, mask = rewards[:-1], lived.ravel()
    baseline = np.where(lived, rewards, 0).sum(1, keepdims=True) / np.maximum(lived.sum(1, keepdims=True), 1)
    advantage = (rewards - baseline).ravel()[mask]
    feeds = {
        "state": np.concatenate(states)[mask], "right": np.concatenate(pushes)[mask],
        "advantage": (advantage / (advantage.std() + 1e-6)).astype(np.float32),
    }  # fmt: skip
    return feeds, lived.sum(0)


def main() -> int:
    """Runs `python -m examples.training.policy_gradient`."""
    arguments = plot.options(__doc__, "policy_gradient", steps=60, carts=16).parse_args()
    model = linnet.Model(build(arguments.seed).to_bytes())
    store = linnet.Store(model)
    train, policy = (linnet.Session(model, name, store=store) for name in ("train", "infer"))
    rng = np.random.default_rng(arguments.seed)
    lengths: list[float] = []
    start = time.perf_counter()
    for _ in range(arguments.steps):
        feeds, lived = play(policy, arguments.carts, rng)
        train.run(feeds)
        lengths.append(float(lived.mean()))
    taken = time.perf_counter() - start
    print(
        f"{arguments.steps} updates in {taken:.1f} s: the pole stood {lengths[0]:.0f} steps in the first episodes,",
        end=" ",
    )
    print(f"{np.mean(lengths[-5:]):.0f} of {LIMIT} in the last five")
    plot.draw(
        arguments.out, "A pole balanced by policy gradient",
        {"steps until it falls": {"mean of an update": lengths, "mean of 5": plot.smooth(lengths, 5)}},
    )  # fmt: skip
    print(f"Picture: {arguments.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
