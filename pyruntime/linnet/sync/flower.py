"""A linnet model as a client of Flower (`pip install 'linnet-runtime[flower]'`), for federations that run on Flower. linnet's own
federated rounds (linnet.sync.Strategy("federated")) need neither Flower nor gRPC."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from linnet import training
from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.ir.dtypes import has_floats
from linnet.sync.sharding import reads

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
except ImportError as failure:
    raise UsageError(
        "the package flwr is not installed", code=101, hint="pip install 'linnet-runtime[flower]'"
    ) from failure

Data = Callable[[Context], Any]


def shared(graph: Graph) -> list[str]:
    """The variables to exchange: floats that `eval` reads. This includes batch-norm averages but not optimizer
    state."""
    if "eval" not in graph.signatures:
        raise UsageError(
            "the model has no signature named 'eval'",
            code=102,
            tensor="eval",
            hint="linnet.training.signatures adds it",
        )
    read = reads(graph.signatures["eval"].function)
    return [name for name, variable in graph.variables.items() if name in read and has_floats(variable.value)]


def arrays(graph: Graph) -> ArrayRecord:
    """The model's values for the server: `strategy.start(grid, initial_arrays=linnet.flower.arrays(graph))`."""
    return ArrayRecord({name: Array(graph.variables[name].value) for name in shared(graph)})


def assign(graph: Graph, record: Mapping[str, Array]) -> None:
    """Sets the graph's variables from a record, for example `result.arrays`. Raises UsageError if names or shapes do
    not match the model."""
    names = shared(graph)
    if set(record) != set(names):
        raise UsageError(
            "the server has a different model", code=102, tensor="arrays", expected=", ".join(sorted(names)),
            got=", ".join(sorted(record)) or "nothing",
        )  # fmt: skip
    values = {name: record[name].numpy() for name in names}
    for name, value in values.items():
        variable = graph.variables[name]
        if value.shape != variable.value.shape:
            raise UsageError(
                "the server's variable has a different shape",
                code=104,
                tensor=name,
                expected=str(list(variable.value.shape)),
                got=str(list(value.shape)),
            )
    for name, value in values.items():
        graph.variables[name].value = np.asarray(value, graph.variables[name].value.dtype)


def app(model: Graph | str | Path, data: Data, *, validation: Data | None = None, **fit: Any) -> ClientApp:
    """A ClientApp that trains with linnet.fit and evaluates with linnet.evaluate.

    model: a graph or file with the signatures `train` and `eval`; its initial values are not used. data, validation:
    functions that take the Context (for `context.node_config["partition-id"]`) and return the node's examples in any
    form that linnet.fit accepts. fit: arguments of linnet.fit. `epochs`, `steps`, `batch_size` and `seed` from the
    server's config take precedence. The optimizer's state starts anew in each round, as is usual. Replies contain
    `num-examples`, which Flower's strategies use as weights.
    """
    whole = model if isinstance(model, Graph) else Graph.load(model)
    client = ClientApp()

    def received(message: Message) -> tuple[Graph, dict[str, Any]]:
        graph = whole.copy()
        records = message.content.array_records
        if len(records) != 1:
            raise UsageError(
                "the message must contain exactly one ArrayRecord",
                code=105,
                expected="one ArrayRecord",
                got=str(len(records)),
            )
        assign(graph, next(iter(records.values())))
        config: Mapping[str, Any] = next(iter(message.content.config_records.values()), ConfigRecord())
        return graph, {k: config[k] for k in ("epochs", "steps", "batch_size", "seed") if k in config}

    @client.train()  # type: ignore[untyped-decorator]
    def train(message: Message, context: Context) -> Message:
        graph, told = received(message)
        examples = data(context)
        history = training.fit(graph, examples, progress=False, **{**fit, **told})
        metrics = {"num-examples": _count(examples), **_numbers((history.records or [{}])[-1])}
        content = RecordDict({"arrays": arrays(history.graph), "metrics": MetricRecord(metrics)})
        return Message(content=content, reply_to=message)

    @client.evaluate()  # type: ignore[untyped-decorator]
    def evaluate(message: Message, context: Context) -> Message:
        graph, _ = received(message)
        examples = (validation or data)(context)
        metrics = {"num-examples": _count(examples), **_numbers(training.evaluate(graph, examples))}
        return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

    return client


def _count(examples: Any) -> int:
    return len(next(iter(examples.values())) if isinstance(examples, Mapping) else examples)


def _numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """The values that a MetricRecord can hold and that can be averaged."""
    return {k: float(v) for k, v in record.items() if isinstance(v, int | float) and k not in ("step", "epoch")}
