"""`linnet pack`: writes a copy of a model that also holds its weights as the kernels of a machine pack them.
linnet.cli.main adds it to its group."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linnet.cli.declared import option, shared, takes
from linnet.cli.options import (
    json_option,
    refuse_same,
    shapes_of,
    shapes_option,
    signature_option,
    threads_option,
    trust_pickle_option,
    user_ops_of,
    user_ops_option,
)
from linnet.report.tables import count as _count
from linnet.report.tables import size as _size

if TYPE_CHECKING:
    from linnet.facade import Graph


@dataclasses.dataclass(frozen=True)
class PackOptions:
    """The options of `linnet pack`."""

    output: Path = option(
        "-o", "--output", type=click.Path(path_type=Path), required=True, help="The .lnt file to write."
    )
    targets: Sequence[str] = option(
        "--target",
        multiple=True,
        default=["native"],
        show_default=True,
        metavar="NAME",
        help="Machines to pack for: native (this machine), or an instruction set, as for --isa-max. May be repeated.",
    )
    inputs: Sequence[str] = shared(shapes_option())
    signature: str = shared(signature_option)
    threads: int | None = shared(threads_option)
    trust_pickle: bool = shared(trust_pickle_option)
    user_ops: Sequence[str] = shared(user_ops_option)
    as_json: bool = shared(json_option)


@click.command(short_help="Store a model's weights already packed for the kernels, so that sessions start faster.")
@click.argument("model", type=click.Path(path_type=Path))
@takes(PackOptions)
def pack(model: Path, given: PackOptions) -> None:
    """Write a copy of MODEL that also holds its weights already packed for the kernels.

    Sessions then map these weights and use them in place. If the kernels of a machine pack in another way, sessions on
    this machine pack the weights themselves, as usual. MODEL is a .lnt file, or any file that `linnet convert` reads.
    Without --threads, the weights are packed for one thread, and for one thread per core.
    """
    from linnet.converters.recognition import is_linnet
    from linnet.session.packing import pack as write

    refuse_same(given.output, model)
    ops, shapes = user_ops_of(given.user_ops), shapes_of(given.inputs)
    source: Path | Graph = model
    if model.exists() and not is_linnet(model):
        from linnet.converters.formats import load_graph

        source = load_graph(model, shapes, user_ops=ops, trust_pickle=given.trust_pickle)
    found = write(
        source,
        given.output,
        list(given.targets),
        signature=given.signature,
        input_shapes=shapes,
        threads=given.threads,
        user_ops=ops,
    )
    if given.as_json:
        click.echo(json.dumps({"model": str(model), **dataclasses.asdict(found)}))
        return
    click.echo(
        f"{model}: {_count(found.constants, 'packed constant')} for {', '.join(found.isas)}, {_size(found.bytes)} of "
        f"{_size(found.file_bytes)} -> {given.output}"
    )
