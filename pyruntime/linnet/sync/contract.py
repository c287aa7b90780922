"""What a file says to workers and servers: signatures `grad`, `ids` and `update/all` by the names of their inputs and outputs,
and metadata. So C needs neither JSON nor autodiff, and every optimizer written in Python works on a server unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from linnet import training
from linnet.autodiff import SparseRows
from linnet.errors import UsageError
from linnet.graph import Graph, Tensor, Variable
from linnet.mapping import REGISTER
from linnet.optimizers import DynamicLossScale, Gradient, Optimizer

GRAD, IDS, UPDATE = "grad", "ids", "update/all"
GRADIENT = "gradient/"  # + variable: an output of `grad`, an input of `update/all`; sparse ones have /ids and /rows
ROWS = "rows/"  # + remote table: an input of `grad`; with /ids an output of `ids`
AVERAGE, READ, COUNT = "sync.average", "sync.read", "sync.count"  # metadata: names of variables, one per line
JOB, SHARD, REMOTE = "sync.job", "sync.shard", "sync.remote"
NOT_FINITE = "sync.not_finite"  # "update": gradients that are not finite are its business; otherwise servers drop them
FIRST_ROW, WHOLE_ROWS = "sync.first_row/", "sync.rows/"  # + variable: of a part of it, and how many rows the whole has


def signatures(
    graph: Graph,
    loss: Tensor,
    optimizer: Optimizer,
    inputs: Mapping[str, Tensor],
    outputs: Mapping[str, Tensor] | None = None,
    *,
    variables: Sequence[Variable] | None = None,
    evaluate: Mapping[str, Tensor] | None = None,
    remote: Sequence[Variable] = (),
    local: Optimizer | None = None,
    accumulate: bool = False,
) -> None:
    """Writes `grad` and `update/all`, for workers and servers, beside what linnet.training.signatures writes (`train`,
    `eval`, with `accumulate` also `accumulate` and `apply`), over the same variables: one file trains alone or in company.

    loss, inputs, outputs, variables, evaluate, accumulate: as there. optimizer: what servers apply, and `train`. local: what
    `train` applies instead, the local steps of federated rounds. remote: tables too large for a worker, which `grad` only
    looks rows up in (ops.gather, linnet.nn.embedding).

    `grad`: inputs of the batch -> loss, outputs, and for each trained variable `gradient/<variable>`, f32 (f64 for f64), of its
    shape; where that is sparse, `gradient/<variable>/ids` i64 [n] and `gradient/<variable>/rows` [n, ...], in which a row may
    occur more than once. Moving averages are updated in the worker's store; metadata "sync.average" names them.
    `update/all`: the same names -> nothing; the optimizer's updates, in one signature, so that a step is applied whole or not
    at all. Its ids are sorted; where one occurs twice its rows are equal, each the whole sum, so n may be rounded up.
    With remote tables `grad` has inputs `rows/<table>` [n, ...], a row for each number looked up, and `ids` gives these:
    inputs of the batch -> `rows/<table>/ids` i64 [n].
    Further metadata: "sync.read", what updates change and `grad` reads beside all that (a loss scale); "sync.count", counters
    of steps that belong to a worker (random numbers); "sync.remote", the remote tables; "sync.not_finite" is "update" where
    the optimizer deals with gradients that are not finite (a dynamic loss scale), which servers drop otherwise.
    Raises UsageError, GraphError.
    """
    from linnet.sync.remote import look_ups

    training.signatures(
        graph, loss, local or optimizer, inputs, outputs, variables=variables, evaluate=evaluate, accumulate=accumulate
    )
    given = optimizer.differentiate(loss, variables)
    tables = look_ups(loss, remote)
    side = graph.side_updates_of([loss])
    results = {"loss": loss, **(outputs or {})}
    feeds = dict(inputs)
    for variable, g in given.items():
        if variable.name.endswith(("/ids", "/rows")):
            raise UsageError(
                "a trained variable cannot have this name", code=101, tensor=variable.name,
                expected="one that does not end with /ids or /rows", hint="these are the ends of sparse gradients' names",
            )  # fmt: skip
        results |= _gradient(variable, g, loss)
    for table in tables:
        feeds[ROWS + table.variable.name] = table.rows
    stand_ins = {old: new for table in tables for old, new in table.stand_ins.items()}
    graph.signature(GRAD, feeds, results, updates=side, replace=stand_ins)
    if tables:
        _refuse_reads(graph, [table.variable for table in tables], GRAD)
        numbers = {f"{ROWS}{table.variable.name}/ids": table.ids for table in tables}
        graph.signature(IDS, _needed(inputs, numbers.values()), numbers)
        _refuse_reads(graph, [table.variable for table in tables], IDS)
    arriving, pushed = _arriving(graph, given)
    updates = optimizer.apply(pushed)
    graph.signature(UPDATE, arriving, {}, updates=updates)
    lenient = isinstance(optimizer.loss_scale, DynamicLossScale)
    _describe(graph, side, updates, list(given), [table.variable for table in tables], lenient)


def wire_dtype(variable: Variable) -> str:
    """The type in which a gradient travels and is summed: f32, f64 for an f64 variable."""
    return REGISTER[variable.dtype]


def _gradient(variable: Variable, g: Gradient, loss: Tensor) -> dict[str, Tensor]:
    """The outputs of `grad` for a variable."""
    name, dtype = GRADIENT + variable.name, wire_dtype(variable)
    if isinstance(g, SparseRows):
        return {f"{name}/ids": g.ids, f"{name}/rows": g.rows if g.dtype == dtype else g.rows.cast(dtype)}
    return {name: g if g.dtype == dtype else g.cast(dtype)}


def _arriving(graph: Graph, given: Mapping[Variable, Gradient]) -> tuple[dict[str, Tensor], dict[Variable, Gradient]]:
    """The inputs of `update/all` by name, and the gradients that they are."""
    feeds: dict[str, Tensor] = {}
    gradients: dict[Variable, Gradient] = {}
    for variable, g in given.items():
        name, dtype, shape = GRADIENT + variable.name, wire_dtype(variable), variable.value.shape
        if isinstance(g, SparseRows):
            count = f"{variable.name}/pushed"
            ids = feeds[f"{name}/ids"] = graph.placeholder(f"{name}/ids", (count,), "i64")
            rows = feeds[f"{name}/rows"] = graph.placeholder(f"{name}/rows", (count, *shape[1:]), dtype)
            gradients[variable] = SparseRows(ids, rows, shape, summed=True)
        else:
            gradients[variable] = feeds[name] = graph.placeholder(name, shape, dtype)
    return feeds, gradients


def _needed(inputs: Mapping[str, Tensor], wanted: Iterable[Tensor]) -> dict[str, Tensor]:
    from linnet.autodiff._tools import behind

    used = set().union(*(behind(t) for t in wanted))
    return {name: t for name, t in inputs.items() if t in used}


def _refuse_reads(graph: Graph, remote: Sequence[Variable], signature: str) -> None:
    """UsageError when a signature reads a remote table all the same."""
    for tensor in graph.signatures[signature].function.tensors():
        if tensor.variable is not None and tensor.variable in remote:
            raise UsageError(
                f"what a worker computes depends on this table by more than the rows of a batch (in `{signature}`)", code=101,
                tensor=tensor.variable.name, hint="leave it out of remote=, or look it up by inputs alone",
            )  # fmt: skip


def _describe(
    graph: Graph,
    side: Mapping[Variable, Tensor],
    updates: Mapping[Variable, Tensor],
    trained: Sequence[Variable],
    remote: Sequence[Variable],
    lenient: bool,
) -> None:
    """The metadata: which variables travel, beside those that have a gradient."""
    read = {t.variable for t in graph.signatures[GRAD].function.tensors() if t.variable is not None}
    lists = {
        AVERAGE: [v.name for v in side if v.value.dtype.kind == "f"],
        COUNT: [v.name for v in side if v.value.dtype.kind != "f"],
        READ: [v.name for v in updates if v in read and v not in trained],
        REMOTE: [v.name for v in remote],
    }
    graph.metadata.pop(NOT_FINITE, None)
    if lenient:
        graph.metadata[NOT_FINITE] = "update"
    for key, names in lists.items():
        graph.metadata.pop(key, None)
        if names:
            graph.metadata[key] = "\n".join(names)


def variable_of(name: str) -> str:
    """The variable whose gradient an input or output is."""
    return name.removeprefix(GRADIENT).removesuffix("/ids").removesuffix("/rows")


def names_in(metadata: Mapping[str, str], key: str) -> list[str]:
    """The variables that a metadata entry lists."""
    return metadata[key].split("\n") if metadata.get(key) else []
