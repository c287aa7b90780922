"""The command `linnet worker`: trains on data of this machine, in step with the workers of other machines."""

from __future__ import annotations

import json
from pathlib import Path

import click

from linnet.cli_serve import link_options
from linnet.errors import UsageError


@click.command(short_help="Train on data here, in step with other workers.")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--server", "servers", multiple=True, metavar="ADDRESS", help="Of each server; default: LINNET_SERVERS.")
@click.option("--number", type=click.IntRange(0), help="Of this worker, 0 to workers - 1; default: LINNET_RANK.")
@click.option("--workers", type=click.IntRange(1), help="In the job, which share the data; default: LINNET_WORLD_SIZE.")
@click.option(
    "--data", "data_", required=True, metavar="FILE", help="NPZ, NAME=FILE,... (npy, idx), or a folder of images."
)
@click.option("--own", is_flag=True, help="All of the data is this worker's; otherwise workers share equal data out.")
@click.option(
    "--scale", multiple=True, metavar="NAME=1/255", help="Factor for integers that become floats of an input."
)
@click.option("--batch", type=click.IntRange(1), default=32, show_default=True, help="Examples of a step.")
@click.option("--epochs", type=click.IntRange(1), help="How long, in all; default: one epoch.")
@click.option("--steps", type=click.IntRange(1), help="How long, in all.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Order of the examples.")
@click.option("--compression", default="none", show_default=True, help="Of gradients: f16, bf16, i8, topk:0.01, 1bit.")
@click.option("--local-steps", type=click.IntRange(1), help="Federated: so many steps by `train` before each push.")
@click.option(
    "--groups", type=click.IntRange(1), default=1, show_default=True, help="Of workers, as the server has them."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The trained model, as far as it is here.")
@click.option("--threads", type=click.IntRange(1, 1024), help="Threads; default: cores of the largest cluster.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a line.")
@link_options
def worker(
    model: Path, servers: tuple[str, ...], number: int | None, workers: int | None, data_: str, own: bool,
    scale: tuple[str, ...], batch: int, epochs: int | None, steps: int | None, seed: int, compression: str,
    local_steps: int | None, groups: int, output: Path | None, threads: int | None, as_json: bool,
    key_file: Path | None, certificate: Path | None, private_key: Path | None, authority: Path | None, insecure: bool,
) -> None:  # fmt: skip
    """Train MODEL, a file of linnet.sync.signatures or the worker.lnt of linnet split, with the servers' parameters.

    Which worker this is comes from the options, or from what linnet launch, torchrun, mpirun or srun have set.
    """
    import linnet
    from linnet import data
    from linnet.cli_training import examples
    from linnet.sync import Link, Strategy

    place = linnet.sync.cluster(role="worker", rank=number, world_size=workers, servers=servers or None)
    if place.alone:
        raise UsageError(
            "a worker needs a server", code=101, tensor="--server", hint="start `linnet serve`, and give its address"
        )
    strategy = Strategy(
        "federated" if local_steps else "synchronous", local_steps=local_steps or 1, groups=groups, compression=compression,
        own_data=own, link=Link(key_file, certificate, private_key, authority, insecure=insecure),
    )  # fmt: skip
    opened = linnet.Model(model)
    source = examples(data_, opened, "train" if local_steps else "grad", scale)
    loader = data.Loader(source, batch, seed=seed, drop_last=True)
    history = linnet.fit(
        model, loader, epochs=epochs, steps=steps, cluster=place, strategy=strategy, threads=threads,
        progress=False if as_json else None,
    )  # fmt: skip
    if output is not None:
        history.graph.save(output)
    found = {"worker": place.rank, "step": history.step, "stopped": history.stopped, **history.traffic}
    found |= (history.records or [{}])[-1]
    if as_json:
        click.echo(json.dumps(found))
    else:
        sent, came = (history.traffic[f"bytes_{way}"] / 1e6 for way in ("sent", "received"))
        loss = f", loss {found['loss']:.4f}" if "loss" in found else ""
        click.echo(f"worker {place.rank}: {history.step} steps{loss}, {sent:.1f} MB sent, {came:.1f} MB received")
