"""What workers and servers expect in a model file: metadata, and the signatures `grad`, `ids` and `update/all` with
fixed names of inputs and outputs. So C needs neither JSON nor autodiff, and every optimizer written in Python works on
a server unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from linnet.autodiff import SparseRows
from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.ir.dtypes import has_floats
from linnet.ir.function import Tensor, Variable
from linnet.ir.program import REGISTER
from linnet.optimizers import DynamicLossScale, Gradient, Optimizer
from linnet.training.signatures import signatures as train_alone

GRAD, IDS, UPDATE = "grad", "ids", "update/all"
GRADIENT = "gradient/"  # + variable: an output of `grad` and input of `update/all`; sparse ones have /ids and /rows
ROWS = "rows/"  # + remote table: an input of `grad`; with /ids an output of `ids`
AVERAGE, READ, COUNT = "sync.average", "sync.read", "sync.count"  # metadata: names of variables, one per line
JOB, SHARD, REMOTE = "sync.job", "sync.shard", "sync.remote"
NOT_FINITE = "sync.not_finite"  # "update": the update handles non-finite gradients itself; otherwise servers drop them
FIRST_ROW, WHOLE_ROWS = (
    "sync.first_row/",
    "sync.rows/",
)  # + variable: first row of this part, and the row count of the whole


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
    """Adds the signatures `grad` and `update/all`, for workers and servers, in addition to those of
    linnet.training.signatures (`train`, `eval`, and with `accumulate` also `accumulate` and `apply`). All use the same
    variables, so one file can be trained by a single process or by several.

    loss, inputs, outputs, variables, evaluate, accumulate: as in linnet.training.signatures. optimizer: applied by
    servers and by `train`. local: the optimizer that `train` applies instead, for the local steps of federated rounds.
    remote: tables that are too large for a worker; `grad` may only look up rows in them (ops.gather,
    linnet.nn.embedding).

    `grad` maps the inputs of the batch to the loss, the outputs, and for each trained variable `gradient/<variable>`.
    This gradient has the variable's shape and is f32 (f64 for an f64 variable). A sparse gradient consists of
    `gradient/<variable>/ids` i64 [n] and `gradient/<variable>/rows` [n, ...], in which a row may occur more than once.
    Moving averages are updated in the worker's store; the metadata "sync.average" names them. `update/all` takes the
    same names and has no outputs. It contains all updates of the optimizer in one signature, so that a step is applied
    completely or not at all. Its ids must be sorted. A server may make n larger by repeating an id with its row, so
    that there are fewer different shapes. So if an id occurs several times, its rows are equal, and each is the whole
    sum. With remote tables, `grad` has inputs `rows/<table>` [n, ...] with one row per lookup, and the signature `ids`
    maps the inputs of the batch to the row numbers `rows/<table>/ids` i64 [n]. Further metadata: "sync.read": other
    variables that updates change and `grad` reads (such as a loss scale). "sync.count": step counters that each worker
    keeps for itself (for random numbers). "sync.remote": the remote tables. "sync.not_finite": "update" if the
    optimizer handles non-finite gradients (a dynamic loss scale); otherwise servers drop them. Raises UsageError,
    GraphError.
    """
    from linnet.sync.remote import look_ups

    train_alone(
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
                "the name of a trained variable must not end with /ids or /rows",
                code=101,
                tensor=variable.name,
                expected="another name",
                hint="these endings mark sparse gradients; rename the variable",
            )
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
    """The dtype in which a gradient is sent and summed: f32, or f64 for an f64 variable."""
    return REGISTER[variable.dtype]


def _gradient(variable: Variable, g: Gradient, loss: Tensor) -> dict[str, Tensor]:
    """The outputs of `grad` for one variable."""
    name, dtype = GRADIENT + variable.name, wire_dtype(variable)
    if isinstance(g, SparseRows):
        return {f"{name}/ids": g.ids, f"{name}/rows": g.rows if g.dtype == dtype else g.rows.cast(dtype)}
    return {name: g if g.dtype == dtype else g.cast(dtype)}


def _arriving(graph: Graph, given: Mapping[Variable, Gradient]) -> tuple[dict[str, Tensor], dict[Variable, Gradient]]:
    """The inputs of `update/all` by name, and the gradients that they represent."""
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
    """Raises UsageError if a signature reads a remote table directly."""
    for tensor in graph.signatures[signature].function.tensors():
        if tensor.variable is not None and tensor.variable in remote:
            raise UsageError(
                f"the worker's computation needs more of this table than the rows of a batch (in `{signature}`)",
                code=101,
                tensor=tensor.variable.name,
                hint="remove it from remote=, or look it up only by inputs",
            )


def _describe(
    graph: Graph,
    side: Mapping[Variable, Tensor],
    updates: Mapping[Variable, Tensor],
    trained: Sequence[Variable],
    remote: Sequence[Variable],
    lenient: bool,
) -> None:
    """Writes the metadata. They name the variables to transfer in addition to those with a gradient."""
    read = {t.variable for t in graph.signatures[GRAD].function.tensors() if t.variable is not None}
    lists = {
        AVERAGE: [v.name for v in side if has_floats(v.value)],
        COUNT: [v.name for v in side if not has_floats(v.value)],
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
    """The variable to which a gradient input or output belongs."""
    return name.removeprefix(GRADIENT).removesuffix("/ids").removesuffix("/rows")


def names_in(metadata: Mapping[str, str], key: str) -> list[str]:
    """The names of the variables that a metadata entry lists."""
    return metadata[key].split("\n") if metadata.get(key) else []
