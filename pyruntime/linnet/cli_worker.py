"""The command `linnet worker`: trains a model together with others, on this machine's data."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linnet.cli_serve import link_options
from linnet.errors import SyncError

if TYPE_CHECKING:
    from linnet.data.source import Batch
    from linnet.sync import Link
    from linnet.training.feeding import Feed


@click.command(short_help="Train with others, on data of this machine.")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("servers", nargs=-1, required=True, metavar="ADDRESS...")
@click.option(
    "--data", required=True, metavar="FILE", help="FILE.npz, NAME=FILE,... (.npy or idx), or a folder of images."
)
@click.option("--scale", multiple=True, metavar="NAME=1/255", help="Integers become floats, times this.")
@click.option(
    "--batch", type=click.IntRange(1), default=32, show_default=True, help="Examples of a step, of this worker."
)
@click.option("--steps", type=click.IntRange(1), required=True, help="Of the job, in all.")
@click.option(
    "--number", type=click.IntRange(0), help="This worker's, the same again after a restart; default: a free one."
)
@click.option(
    "--workers", type=click.IntRange(1), default=1, show_default=True, help="Who share the data: each N-th batch."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Order of the examples.")
@click.option("--compression", default="none", show_default=True, help="none, f16, bf16, i8, topk:0.01 or 1bit.")
@click.option("--local-steps", type=click.IntRange(0), default=0, help="Federated rounds of so many; 0: none.")
@click.option("--lost", type=click.FloatRange(0, min_open=True), default=60.0, help="Seconds without a server.")
@click.option("--threads", type=click.IntRange(1, 1024), help="Threads; default: cores of the largest cluster.")
@click.option("--log", type=click.IntRange(1), default=10, show_default=True, help="Steps between lines.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects instead of lines.")
@link_options
def worker(
    model: Path, servers: tuple[str, ...], data: str, scale: tuple[str, ...], batch: int, steps: int, number: int | None,
    workers: int, seed: int, compression: str, local_steps: int, lost: float, threads: int | None, log: int, as_json: bool,
    link: Link,
) -> None:  # fmt: skip
    """Train MODEL with the servers at ADDRESS, one for each shard, until the job has made so many steps.

    The data is shared by number: of each --workers batches in turn one is this worker's. A worker that is started again
    with its number goes on where the servers are.
    """
    if number is not None and 1 < workers <= number:
        raise click.BadParameter(
            f"{number} is none of --workers {workers}; expected 0 to {workers - 1}", param_hint="'--number'"
        )
    from linnet.cli_training import examples
    from linnet.model import Model
    from linnet.sync import Worker
    from linnet.sync.contract import ROWS
    from linnet.training.feeding import feed_of, fitted, share_of

    made = Model(model)
    signature = "train" if local_steps else "grad"
    specs = {spec.name: spec for spec in made.inputs(signature) if not spec.name.startswith(ROWS)}
    if "ids" in made.signatures and not local_steps:
        specs |= {spec.name: spec for spec in made.inputs("ids")}
    source = examples(data, made, signature, scale)
    joined = Worker(
        made, servers, number=number, compression=compression, keep_pulled=local_steps > 0, lost=lost, threads=threads,
        link=link,
    )  # fmt: skip
    with joined:
        mine = joined.info.worker
        feed = feed_of(source, list(specs.values()), batch_size=batch, shuffle=True, seed=seed)
        batches, used, begun = Batches(share_of(feed, mine % workers, workers)), max(local_steps, 1), time.monotonic()
        while (step := joined.info.step) < steps:
            feeds = [fitted(batches[step * used + i], specs) for i in range(used)]
            try:
                out = joined.round(feeds) if local_steps else joined.step(feeds[0])
            except SyncError as error:
                if error.status != "job_over":
                    raise
                click.echo(f"step {step}: the job is over", err=as_json)
                return
            info = joined.info
            if info.step % log and info.step < steps:
                continue
            record = {
                "step": info.step, "worker": mine, "loss": float(out["loss"]), "outcome": info.outcome,
                "sent": info.bytes_sent, "received": info.bytes_received, "seconds": time.monotonic() - begun,
            }  # fmt: skip
            text = f"step {info.step}: loss {record['loss']:.4f}, {info.bytes_sent / 1e6:,.1f} MB sent"
            click.echo(json.dumps(record) if as_json else text)


class Batches:
    """The batches of all epochs by number, read in order as long as they are asked for in order."""

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
