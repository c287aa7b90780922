"""The command `linnet worker`: trains a model together with other workers, on this machine's data."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linnet.cli.declared import option, shared, takes
from linnet.cli.options import (
    note,
    order_seed_option,
    session_options,
    training_data_option,
    user_ops_of,
    user_ops_option,
)
from linnet.cli.parameter_server import link_options
from linnet.clib.errors import SyncError

if TYPE_CHECKING:
    from linnet.data.source import Batch
    from linnet.session.options import SessionOptions
    from linnet.sync import Link
    from linnet.training.feeding import Feed


@dataclasses.dataclass(frozen=True)
class WorkerOptions:
    """The options of `linnet worker`."""

    data: str = shared(training_data_option)
    scale: tuple[str, ...] = option(
        "--scale",
        multiple=True,
        metavar="NAME=1/255",
        help="Convert this integer input to float and multiply it by the factor. May be repeated.",
    )
    batch: int | None = option(
        "--batch",
        type=click.IntRange(1),
        help="Examples in each step of this worker. Default: 32, or all if there are fewer.",
    )
    steps: int = option("--steps", type=click.IntRange(1), required=True, help="Total number of steps of the job.")
    number: int | None = option(
        "--number",
        type=click.IntRange(0),
        help="Number of this worker. Use the same number again after a restart. Default: a free number.",
    )
    workers: int = option(
        "--workers",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Number of workers that share the data; each takes every Nth batch.",
    )
    seed: int = shared(order_seed_option)
    compression: str = option(
        "--compression",
        default="none",
        show_default=True,
        help="Compression of gradients: none, f16, bf16, i8, topk:0.01 or 1bit.",
    )
    pull_compression: str = option(
        "--pull-compression",
        default="none",
        show_default=True,
        help="Compression of the values that servers send: none, f16 or bf16. The servers keep f32.",
    )
    local_steps: int = option(
        "--local-steps",
        type=click.IntRange(0),
        default=0,
        help="Local steps in each federated round. 0: no federated rounds.",
    )
    lost: float = option(
        "--lost",
        type=click.FloatRange(0, min_open=True),
        default=60.0,
        help="Give up after this many seconds without a server.",
    )
    options: SessionOptions = shared(session_options())
    log: int = option(
        "--log", type=click.IntRange(1), default=10, show_default=True, help="Number of steps between log lines."
    )
    user_ops: tuple[str, ...] = shared(user_ops_option)
    as_json: bool = option("--json", is_flag=True, help="Print JSON objects instead of lines.")
    link: Link = shared(link_options)


@click.command(short_help="Train together with other workers, on this machine's data.")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("servers", nargs=-1, required=True, metavar="ADDRESS...")
@takes(WorkerOptions)
def worker(model: Path, servers: tuple[str, ...], given: WorkerOptions) -> None:
    """Train MODEL until the job has made --steps steps. Give the ADDRESS of one server per shard.

    The batches are divided by worker number: out of every --workers consecutive batches, this worker takes one. A
    worker that is restarted with the same number continues at the servers' current step.
    """
    if given.number is not None and 1 < given.workers <= given.number:
        raise click.BadParameter(
            f"worker number {given.number} is out of range for --workers {given.workers}; expected 0 to {given.workers - 1}",
            param_hint="'--number'",
        )
    from linnet.cli.training import examples
    from linnet.session.model import Model
    from linnet.sync import Worker
    from linnet.sync.contract import ROWS
    from linnet.training.feeding import feed_of, fitted, share_of

    made = Model(model, user_ops=user_ops_of(given.user_ops))
    signature = "train" if given.local_steps else "grad"
    specs = {spec.name: spec for spec in made.inputs(signature) if not spec.name.startswith(ROWS)}
    if "ids" in made.signatures and not given.local_steps:
        specs |= {spec.name: spec for spec in made.inputs("ids")}
    source = examples(given.data, made, signature, given.scale)
    joined = Worker(
        made, servers, number=given.number, compression=given.compression, pull_compression=given.pull_compression,
        keep_pulled=given.local_steps > 0, lost=given.lost, log=note, options=given.options, link=given.link,
    )  # fmt: skip
    with joined:
        mine = joined.info.worker
        feed = feed_of(source, list(specs.values()), batch_size=given.batch, shuffle=True, seed=given.seed)
        batches, used, begun = (
            Batches(share_of(feed, mine % given.workers, given.workers)),
            max(given.local_steps, 1),
            time.monotonic(),
        )
        while (step := joined.info.step) < given.steps:
            feeds = [fitted(batches[step * used + i], specs) for i in range(used)]
            try:
                out = joined.round(feeds) if given.local_steps else joined.step(feeds[0])
            except SyncError as error:
                if error.status != "job_over":
                    raise
                click.echo(f"step {step}: the job has ended", err=given.as_json)
                return
            info = joined.info
            if info.step % given.log and info.step < given.steps:
                continue
            record = {
                "step": info.step, "worker": mine, "loss": float(out["loss"]), "outcome": info.outcome,
                "sent": info.bytes_sent, "received": info.bytes_received, "seconds": time.monotonic() - begun,
            }  # fmt: skip
            text = f"step {info.step}: loss {record['loss']:.4f}, {info.bytes_sent / 1e6:,.1f} MB sent"
            click.echo(json.dumps(record) if given.as_json else text)


class Batches:
    """The batches of all epochs, by number. They are read in order as long as each requested number follows the one
    before."""

    def __init__(self, feed: Feed) -> None:
        self._feed, self._length = feed, feed.length or 1
        self._next = -1
        self._epoch: Iterator[Batch] = iter(())

    def __getitem__(self, number: int) -> Batch:
        epoch, first = divmod(number, self._length)
        if number != self._next or first == 0:
            self._epoch = (batch for batch, _ in self._feed.epoch(epoch, first))
        self._next = number + 1
        return next(self._epoch)
