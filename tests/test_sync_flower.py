"""linnet.flower: Flower's FedAvg over two clients, in this process, against the same rounds in NumPy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import linnet

pytest.importorskip("flwr", reason="needs pip install 'linnet-runtime[flower]'")

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp.grid import Grid
from flwr.serverapp.strategy import FedAvg

import linnet.flower
from linnet.data.shuffle import permutation

RATE, COUNTS = 0.25, (30, 10)


def graph_of_line() -> linnet.Graph:
    """y = w x + b with the mean of squares as loss."""
    graph = linnet.Graph(seed=0)
    x, y = graph.placeholder("x", ("batch",)), graph.placeholder("y", ("batch",))
    w, b = graph.variable("w", np.zeros((), np.float32)), graph.variable("b", np.zeros((), np.float32))
    loss = ((w * x + b - y) * (w * x + b - y)).mean()
    linnet.training.signatures(graph, loss, linnet.Momentum(RATE, 0.0), {"x": x, "y": y})
    return graph


def part(number: int) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(number)
    x = rng.standard_normal(COUNTS[number]).astype(np.float32)
    return {"x": x, "y": (3 * x - number).astype(np.float32)}


def batches(data: dict[str, Any], epoch: int) -> Iterable[dict[str, Any]]:
    """Full batches of ten in the order of linnet.fit."""
    chosen = permutation(len(data["x"]), 5, epoch)
    for i in range(0, len(chosen) - 9, 10):
        yield {name: values[chosen[i : i + 10]] for name, values in data.items()}


class InProcess(Grid):
    """Passes messages to a ClientApp and returns its replies."""

    def __init__(self, app: Any, nodes: int) -> None:
        self.app, self.nodes, self.errors = app, nodes, list[Any]()

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(
        self, content: Any, message_type: str, dst_node_id: int, group_id: str, ttl: Any = None
    ) -> Message:
        return Message(content, dst_node_id=dst_node_id, message_type=message_type, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return range(1, self.nodes + 1)

    def get_nodes(self) -> Iterable[Any]:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            context = Context(
                run_id=0, node_id=node, node_config={"partition-id": node - 1}, state=RecordDict(), run_config={}
            )
            replies.append(self.app(message, context))
        return replies


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration that a Flower process gets at its start."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.mark.usefixtures("identity")
def test_rounds_of_fedavg() -> None:
    graph = graph_of_line()
    app = linnet.flower.app(graph, lambda context: part(int(context.node_config["partition-id"])), batch_size=10)
    strategy = FedAvg(fraction_train=1.0, min_train_nodes=2, min_available_nodes=2)
    result = strategy.start(
        grid=InProcess(app, 2), initial_arrays=linnet.flower.arrays(graph), num_rounds=3,
        train_config=ConfigRecord({"epochs": 2, "seed": 5}), timeout=60,
    )  # fmt: skip
    w, b = np.zeros(2), np.zeros(2)
    for _ in range(3):
        for n in range(2):
            for epoch in range(2):
                for batch in batches(part(n), epoch):
                    error = w[n] * batch["x"] + b[n] - batch["y"]
                    w[n], b[n] = w[n] - RATE * (2 * error * batch["x"]).mean(), b[n] - RATE * (2 * error).mean()
        w[:], b[:] = (np.average(v, weights=COUNTS) for v in (w, b))
    assert result.arrays is not None
    linnet.flower.assign(graph, result.arrays)
    assert graph.variables["w"].value == pytest.approx(w[0], rel=1e-5)
    assert graph.variables["b"].value == pytest.approx(b[0], rel=1e-5)
    evaluated = result.evaluate_metrics_clientapp[3]
    losses = [np.mean((w[0] * part(n)["x"] + b[0] - part(n)["y"]) ** 2) for n in range(2)]
    assert evaluated["loss"] == pytest.approx(np.average(losses, weights=COUNTS), rel=1e-4)


def test_what_travels_and_what_is_refused() -> None:
    graph = graph_of_line()
    assert linnet.flower.shared(graph) == ["w", "b"]
    record = linnet.flower.arrays(graph)
    other = linnet.Graph()
    x = other.placeholder("x", ("batch",))
    v = other.variable("v", np.zeros(2, np.float32))
    linnet.training.signatures(other, (x.mean() * v).sum(), linnet.SGD(1.0), {"x": x})
    with pytest.raises(linnet.UsageError, match="a different model"):
        linnet.flower.assign(other, record)
    wrong = linnet.flower.arrays(other)
    with pytest.raises(linnet.UsageError, match="shape"):
        other.variables["v"].value = np.zeros(3, np.float32)
        linnet.flower.assign(other, wrong)
    with pytest.raises(linnet.UsageError, match="eval"):
        linnet.flower.shared(linnet.Graph())
