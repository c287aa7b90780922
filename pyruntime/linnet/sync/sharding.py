"""Splits one training file into one file per server and one for workers. Whole groups are assigned by size. Tables are
split by rows if each row's update depends on that row alone."""

from __future__ import annotations

import dataclasses
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from linnet.clib.errors import FileError, UsageError
from linnet.facade import Graph
from linnet.file.reader import read_model
from linnet.ir.function import Function, functions_of
from linnet.ir.user_op import named_in
from linnet.passes import remove_dead_functions, simplify
from linnet.session.model import Model
from linnet.sync import contract
from linnet.sync.groups import Groups, groups_of, part
from linnet.sync.rowwise import RowUpdate


@dataclasses.dataclass(frozen=True)
class Parts:
    """The result of `shard`: the graphs of the servers, the graph of the workers, and the reasons why tables were
    kept whole, by the names of the tables."""

    servers: list[Graph]
    worker: Graph
    kept_whole: dict[str, str]

    def save(self, directory: str | Path) -> list[Path]:
        """Creates the folder and writes server-0.lnt, server-1.lnt, ..., worker.lnt. Returns the paths; that of the
        workers' file is the last. Raises FileError."""
        place = Path(directory)
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(
                f"cannot write to '{place}': {error.strerror or error}", code=207, tensor=str(place),
                hint="give a folder that you can write to",
            ) from None  # fmt: skip
        paths = []
        for name, graph in [*((f"server-{k}", g) for k, g in enumerate(self.servers)), ("worker", self.worker)]:
            paths.append(place / f"{name}.lnt")
            graph.save(paths[-1])
        return paths


def shard(
    model: Graph | str | Path, servers: int, *, split: Sequence[str] | Literal["auto"] = "auto", train: bool = False
) -> Parts:
    """Distributes the parameters of a file with the signature `update/all` over several servers.

    A group consists of variables whose updates depend on each other, with their optimizer state. Each group is assigned
    to a single server; groups are assigned largest first, each to the server with the fewest bytes so far.
    split: variables to split by rows over all servers. "auto" splits the variables that are larger than a server's
        share and can be split.
    train: whether the workers' file keeps the signature `train` for local steps, with the variables of its optimizer,
        but without signatures that read remote tables. Values of variables are shared with `model`, or mapped from the
        file; nothing is copied before the parts are written.
    Raises UsageError if there is no `update/all`, if there are fewer groups than servers, or if the rows of a table in
    `split` cannot be separated; the error gives the reason.
    """
    graph, job = _opened(model)
    if contract.UPDATE not in graph.signatures:
        raise UsageError(
            f"the model has no signature named '{contract.UPDATE}'", code=102, tensor=contract.UPDATE,
            expected=" or ".join(graph.signatures) or "a signature", hint="linnet.sync.signatures(...) adds it",
        )  # fmt: skip
    if servers < 1:
        raise UsageError("the number of servers is out of range", code=101, expected="1 or more", got=str(servers))
    groups = groups_of(graph.signatures[contract.UPDATE].function)
    tables, kept = _tables(graph, groups, servers, split)
    plan = _spread(graph, groups, servers, tables)
    made = [
        _server(graph, groups, k, servers, own, averaged, tables) for k, (own, averaged) in enumerate(plan)
    ]  # fmt: skip
    for file in made:
        file.metadata[contract.JOB] = job
    return Parts(made, _worker(graph, job, train), kept)


def worker_part(model: Graph | str | Path, train: bool = False) -> Graph:
    """Makes only the workers' file, which does not depend on the number of servers."""
    graph, job = _opened(model)
    return _worker(graph, job, train)


def _opened(model: Graph | str | Path) -> tuple[Graph, str]:
    """The graph, and the digest that identifies the job. Values stay in the file."""
    if isinstance(model, Graph):
        return model, _job(model, model)
    try:
        with open(model, "rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        missing = isinstance(error, FileNotFoundError)
        raise FileError(
            f"cannot read the model: {error}", code=201 if missing else 202, tensor=str(model), hint="check the path"
        ) from error
    graph = read_model(Graph(), content, str(model))
    return graph, _job(model, graph)


def _job(model: Graph | str | Path, graph: Graph) -> str:
    """The digest that identifies the job of a file or graph."""
    whole = Model(model, user_ops=named_in(graph))
    return graph.metadata.get(contract.JOB) or str(whole.metadata("digest"))


def _bytes(graph: Graph, names: Sequence[str]) -> int:
    return sum(graph.variables[name].value.nbytes for name in names)


def _tables(
    graph: Graph, groups: Groups, servers: int, split: Sequence[str] | Literal["auto"]
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The tables to split, each with its group, and the reasons for the tables that "auto" would split but cannot."""
    tables: dict[str, list[str]] = {}
    kept: dict[str, str] = {}
    share = sum(_bytes(graph, group) for group in groups.groups) / servers
    trained = {contract.variable_of(name) for name in graph.signatures[contract.UPDATE].inputs}
    if split == "auto":
        wanted = [group[0] for group in groups.groups if _bytes(graph, group) > share and servers > 1]
    else:
        wanted = list(split)
    for name in wanted:
        group = next((group for group in groups.groups if name in group), None)
        if group is None or name not in trained:
            raise UsageError(
                "the model has no such parameter to split",
                code=102,
                tensor=name,
                expected=" or ".join(sorted(trained)[:8]),
                got=name,
            )
        try:
            _check_table(graph, groups, group, name, servers, trained)
            tables[name] = group
        except UsageError as error:
            if split != "auto":
                raise
            kept[name] = error.what
    return tables, kept


def _check_table(graph: Graph, groups: Groups, group: list[str], name: str, servers: int, trained: set[str]) -> None:
    """Raises UsageError with the reason if a table cannot be split by rows."""
    value = graph.variables[name].value
    others = [v for v in group if v in trained and v != name]
    odd = [v for v in group if graph.variables[v].value.shape[:1] != value.shape[:1]]
    reason = ""
    if others:
        reason = f"its update also involves {', '.join(repr(v) for v in others[:3])}" + (
            f" and {len(others) - 3} more" if len(others) > 3 else ""
        )
    elif value.ndim == 0 or len(value) < servers:
        reason = f"it has only {len(value) if value.ndim else 0} rows for {servers} servers"
    elif odd:
        reason = f"'{odd[0]}', which belongs to it, does not have the same rows"
    if reason:
        raise UsageError(
            f"'{name}' cannot be split by rows: {reason}", code=101, tensor=name, expected="an update in which each "
                                                                                           "row depends only on "
                                                                                           "itself",
            hint="keep it whole, or clip by value and avoid anything that combines all gradients",
        )  # fmt: skip
    # Other obstacles show up when the update is rebuilt.
    _server(graph, groups, 0, servers, [], [], {name: group})


def _spread(
    graph: Graph, groups: Groups, servers: int, tables: dict[str, list[str]]
) -> list[tuple[list[str], list[str]]]:
    """For each server, the variables of its whole groups, and the averaged variables that it keeps."""
    whole = [group for group in groups.groups if not any(group is g for g in tables.values())]
    if len(whole) < servers and not tables:
        raise UsageError(
            f"{len(whole)} parameter groups cannot be distributed over {servers} servers", code=101,
            expected=f"at most {len(whole)} servers", got=str(servers),
            hint="use fewer servers or split a table; an optimizer that combines all gradients makes a single group",
        )  # fmt: skip
    loads = [0] * servers
    plan: list[tuple[list[str], list[str]]] = [([], []) for _ in range(servers)]
    averaged = contract.names_in(graph.metadata, contract.AVERAGE)
    items = [(group, 0) for group in whole] + [([name], 1) for name in averaged]
    # Assign groups first, so that every server has an update to run.
    for names, kind in sorted(items, key=lambda item: (item[1], -_bytes(graph, item[0]))):
        k = loads.index(min(loads))
        if not kind and not tables:
            empty = [i for i in range(servers) if not plan[i][0]]
            left = len(whole) - sum(len(p[0]) > 0 for p in plan)
            k = k if k in empty or len(empty) < left else empty[0]
        plan[k][kind].extend(names)
        loads[k] += _bytes(graph, names)
    return plan


def _rows(rows: int, k: int, servers: int) -> tuple[int, int]:
    """The first row and the number of rows of a server's part of a table."""
    first = k * rows // servers
    return first, (k + 1) * rows // servers - first


def _server(
    graph: Graph,
    groups: Groups,
    k: int,
    servers: int,
    own: list[str],
    averaged: list[str],
    tables: dict[str, list[str]],
) -> Graph:
    """The file of server k."""
    made = _reduced(graph, [contract.UPDATE])
    made.metadata = {contract.SHARD: f"{k}/{servers}"}
    signature = made.signatures[contract.UPDATE]
    function, names = signature.function, dict(zip(signature.function.inputs, signature.inputs, strict=True))
    sources = {table: part(function, group) for table, group in tables.items()}
    function.inputs, function.nodes = part(function, [*own, *groups.shared])
    signature.inputs = [names[t] for t in function.inputs]
    for table, (inputs, nodes) in sources.items():
        rows = len(graph.variables[table].value)
        first, count = _rows(rows, k, servers)
        for name in tables[table]:
            made.variables[name].value = graph.variables[name].value[first : first + count]
            made.metadata |= {contract.FIRST_ROW + name: str(first), contract.WHOLE_ROWS + name: str(rows)}
        update = RowUpdate(function, table, rows, first, count, frozenset(tables[table]))
        for tensor in inputs:
            update.input(tensor, names[tensor])
            signature.inputs.append(names[tensor])
        for node in nodes:
            update.node(node)
    if tables:
        simplify(function)
    read = [v for v in contract.names_in(graph.metadata, contract.READ) if v in own or (v in groups.shared and not k)]
    for key, listed in ((contract.AVERAGE, averaged), (contract.READ, read)):
        if listed:
            made.metadata[key] = "\n".join(listed)
    if contract.NOT_FINITE in graph.metadata:
        made.metadata[contract.NOT_FINITE] = graph.metadata[contract.NOT_FINITE]
    _drop_unread(made, averaged)
    return made


def _worker(graph: Graph, job: str, train: bool) -> Graph:
    """The workers' file: everything that a batch needs, but neither the servers' state nor remote tables."""
    remote = set(contract.names_in(graph.metadata, contract.REMOTE))
    away = {contract.UPDATE, "accumulate", "apply"} | (set() if train else {"train"})
    kept = [name for name in graph.signatures if name not in away]
    made = _reduced(graph, [name for name in kept if not remote & reads(graph.signatures[name].function)])
    made.metadata = {**graph.metadata, contract.JOB: job}
    _drop_unread(made, contract.names_in(graph.metadata, contract.AVERAGE))
    return made


def _reduced(graph: Graph, signatures: Sequence[str]) -> Graph:
    """A copy with only these signatures."""
    made = graph.copy()
    made.signatures = {name: made.signatures[name] for name in signatures}
    remove_dead_functions(made)
    return made


def reads(function: Function) -> set[str]:
    """The variables that a function reads or assigns, itself or in functions that it calls."""
    found = {t.variable.name for t in function.tensors() if t.variable is not None}
    return found.union(*(reads(inner) for inner in functions_of(function)))


def _drop_unread(graph: Graph, kept: Sequence[str]) -> None:
    remove_dead_functions(graph)
    read = set(kept).union(*(reads(s.function) for s in graph.signatures.values()))
    graph.variables = {name: v for name, v in graph.variables.items() if name in read}
