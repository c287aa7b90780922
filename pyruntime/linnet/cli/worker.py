"""The command `linnet worker`: trains a model together with other workers, on this machine's data."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linnet.cli.options import note, session_options, user_ops_of, user_ops_option
from linnet.cli.parameter_server import link_options
from linnet.clib.errors import SyncError

if TYPE_CHECKING:
    from linnet.data.source import Batch
    from linnet.session.options import SessionOptions
    from linnet.sync import Link
    from linnet.training.feeding import Feed


@click.command(short_help="Train together with other workers, on this machine's data.")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("servers", nargs=-1, required=True, metavar="ADDRESS...")
@click.option(
    "--data", required=True, metavar="FILE", help="FILE.npz, NAME=FILE,... (.npy or idx files), or a folder of images."
)
@click.option(
    "--scale",
    multiple=True,
    metavar="NAME=1/255",
    help="Convert this integer input to float and multiply it by the factor. May be repeated.",
)
@click.option(
    "--batch",
    type=click.IntRange(1),
    help="Examples in each step of this worker. Default: 32, or all if there are fewer.",
)
@click.option("--steps", type=click.IntRange(1), required=True, help="Total number of steps of the job.")
@click.option(
    "--number",
    type=click.IntRange(0),
    help="Number of this worker. Use the same number again after a restart. Default: a free number.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of workers that share the data; each takes every Nth batch.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed for the order of the examples."
)
@click.option(
    "--compression",
    default="none",
    show_default=True,
    help="Compression of gradients: none, f16, bf16, i8, topk:0.01 or 1bit.",
)
@click.option(
    "--pull-compression",
    default="none",
    show_default=True,
    help="Compression of the values that servers send: none, f16 or bf16. The servers keep f32.",
)
@click.option(
    "--local-steps",
    type=click.IntRange(0),
    default=0,
    help="Local steps in each federated round. 0: no federated rounds.",
)
@click.option(
    "--lost",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    help="Give up after this many seconds without a server.",
)
@session_options()
@click.option("--log", type=click.IntRange(1), default=10, show_default=True, help="Number of steps between log lines.")
@user_ops_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects instead of lines.")
@link_options
def worker(
    model: Path, servers: tuple[str, ...], data: str, scale: tuple[str, ...], batch: int | None, steps: int, number: int | None,
    workers: int, seed: int, compression: str, pull_compression: str, local_steps: int, lost: float,
    log: int, user_ops: tuple[str, ...], as_json: bool, options: SessionOptions, link: Link,
) -> None:  # fmt: skip
    """Train MODEL until the job has made --steps steps. Give the ADDRESS of one server per shard.

    The batches are divided by worker number: out of every --workers consecutive batches, this worker takes one. A
    worker that is restarted with the same number continues at the servers' current step.
    """
    if number is not None and 1 < workers <= number:
        raise click.BadParameter(
            f"worker number {number} is out of range for --workers {workers}; expected 0 to {workers - 1}",
            param_hint="'--number'",
        )
    from linnet.cli.training import examples
    from linnet.session.model import Model
    from linnet.sync import Worker
    from linnet.sync.contract import ROWS
    from linnet.training.feeding import feed_of, fitted, share_of

    made = Model(model, user_ops=user_ops_of(user_ops))
    signature = "train" if local_steps else "grad"
    specs = {spec.name: spec for spec in made.inputs(signature) if not spec.name.startswith(ROWS)}
    if "ids" in made.signatures and not local_steps:
        specs |= {spec.name: spec for spec in made.inputs("ids")}
    source = examples(data, made, signature, scale)
    joined = Worker(
        made, servers, number=number, compression=compression, pull_compression=pull_compression,
        keep_pulled=local_steps > 0, lost=lost, log=note, options=options, link=link,
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
                click.echo(f"step {step}: the job has ended", err=as_json)
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
