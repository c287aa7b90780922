"""`linnet devices`: lists this machine's devices, the names by which other commands take them, and what is missing for
other devices. linnet.cli.main adds it to its group."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from linnet.cli.options import json_option
from linnet.clib.errors import Error
from linnet.report.tables import show as _show
from linnet.report.tables import table as _table

if TYPE_CHECKING:
    from linnet.session.device import DeviceInfo

KNOWN = ("cuda", "opencl")  # libraries of devices that are part of linnet


@click.command(short_help="List the devices of this machine, such as GPUs.")
@click.argument("names", nargs=-1, metavar="[NAME|PATH]...")
@json_option
def devices(names: Sequence[str], as_json: bool) -> None:
    """List the devices that linnet's own libraries (cuda, opencl) and the libraries NAME find on this machine.

    The names in the first column are values for --device and linnet.Session(device=). A name may have options, such as
    opencl,f16=on.
    """
    from linnet.session.device import devices as devices_of

    found: list[DeviceInfo] = []
    given = {name.partition(",")[0].partition(":")[0] for name in names}
    for name in KNOWN:
        if name not in given:
            found += _of_known(name)
    for name in names:
        found += devices_of(name)
    if as_json:
        click.echo(json.dumps({"devices": [dataclasses.asdict(device) for device in found]}))
        return
    there = [device for device in found if not device.missing]
    table = _table("Devices", "name", "hardware", "kind", "driver", ">memory", ">free", "features")
    for d in there:
        table.add_row(
            d.name,
            d.hardware or d.device,
            d.kind,
            d.driver,
            _size(d.memory),
            _size(d.memory_free),
            " ".join(d.features),
        )
    if there:
        _show(table)
    else:
        click.echo("no device: every step runs on the CPU")
    for device in found:
        if device.missing:
            click.echo(f"{device.name}: {device.missing}")


def _of_known(name: str) -> list[DeviceInfo]:
    """The devices of one of linnet's own libraries, which an installation may lack."""
    from linnet.session.device import DeviceInfo
    from linnet.session.device import devices as devices_of

    try:
        return devices_of(name)
    except Error as error:
        return [DeviceInfo(name, missing=f"{error.what}: {error.got}; {error.hint}")]


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count else ""
