"""A linnet model as a client of Flower (`pip install linnet[flower]`), for federations that run on it. linnet's own federated
rounds (linnet.sync.Strategy("federated")) need no Flower and no gRPC."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import linnet
from linnet.errors import UsageError
from linnet.sync.split import reads

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
except ImportError as failure:
    raise UsageError("there is no Flower to be a client of", code=101, hint="pip install linnet[flower]") from failure

Data = Callable[[Context], Any]


def shared(graph: linnet.Graph) -> list[str]:
    """The variables that travel: floats that `eval` reads, so batch-norm averages do and optimizer state does not."""
    if "eval" not in graph.signatures:
        raise UsageError(
            "the model has no signature 'eval'", code=102, tensor="eval", hint="linnet.training.signatures makes it"
        )
    read = reads(graph.signatures["eval"].function)
    return [name for name, variable in graph.variables.items() if name in read and variable.value.dtype.kind == "f"]


def arrays(graph: linnet.Graph) -> ArrayRecord:
    """The model's values, for the server: `strategy.start(grid, initial_arrays=linnet.flower.arrays(graph))`."""
    return ArrayRecord({name: Array(graph.variables[name].value) for name in shared(graph)})


def assign(graph: linnet.Graph, record: Mapping[str, Array]) -> None:
    """Gives the graph the values of a record, e.g. `result.arrays`. Raises UsageError for names or shapes of another model."""
    names = shared(graph)
    if set(record) != set(names):
        raise UsageError(
            "the server has another model", code=102, tensor="arrays", expected=", ".join(sorted(names)),
            got=", ".join(sorted(record)) or "nothing",
        )  # fmt: skip
    values = {name: record[name].numpy() for name in names}
    for name, value in values.items():
        variable = graph.variables[name]
        if value.shape != variable.value.shape:
            raise UsageError(
                "the server's variable has another shape", code=104, tensor=name, expected=str(list(variable.value.shape)),
                got=str(list(value.shape)),
            )  # fmt: skip
    for name, value in values.items():
        graph.variables[name].value = np.asarray(value, graph.variables[name].value.dtype)


def app(model: linnet.Graph | str | Path, data: Data, *, validation: Data | None = None, **fit: Any) -> ClientApp:
    """A ClientApp that trains with linnet.fit and evaluates with linnet.evaluate.

    model: a graph or file with the signatures `train` and `eval`; its initial values do not matter. data, validation: the
    node's examples, as linnet.fit takes them, by the Context (`context.node_config["partition-id"]`). fit: arguments of
    linnet.fit; `epochs`, `steps`, `batch_size` and `seed` of the server's config come first. Optimizer state begins anew in each
    round, as is usual; replies carry `num-examples`, which the strategies of Flower weigh by.
    """
    whole = model if isinstance(model, linnet.Graph) else linnet.Graph.load(model)
    client = ClientApp()

    def received(message: Message) -> tuple[linnet.Graph, dict[str, Any]]:
        graph = whole.copy()
        records = message.content.array_records
        if len(records) != 1:
            raise UsageError("the message has no arrays", code=105, expected="one ArrayRecord", got=str(len(records)))
        assign(graph, next(iter(records.values())))
        config: Mapping[str, Any] = next(iter(message.content.config_records.values()), ConfigRecord())
        return graph, {k: config[k] for k in ("epochs", "steps", "batch_size", "seed") if k in config}

    @client.train()  # type: ignore[untyped-decorator]
    def train(message: Message, context: Context) -> Message:
        graph, told = received(message)
        examples = data(context)
        history = linnet.fit(graph, examples, progress=False, **{**fit, **told})
        metrics = {"num-examples": _count(examples), **_numbers((history.records or [{}])[-1])}
        content = RecordDict({"arrays": arrays(history.graph), "metrics": MetricRecord(metrics)})
        return Message(content=content, reply_to=message)

    @client.evaluate()  # type: ignore[untyped-decorator]
    def evaluate(message: Message, context: Context) -> Message:
        graph, _ = received(message)
        examples = (validation or data)(context)
        metrics = {"num-examples": _count(examples), **_numbers(linnet.evaluate(graph, examples))}
        return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

    return client


def _count(examples: Any) -> int:
    return len(next(iter(examples.values())) if isinstance(examples, Mapping) else examples)


def _numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """What a MetricRecord can hold and an average makes sense of."""
    return {k: float(v) for k, v in record.items() if isinstance(v, int | float) and k not in ("step", "epoch")}
