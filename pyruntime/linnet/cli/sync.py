"""The commands for training on several machines. Each command has a module of its own; linnet.cli.main adds them to its
group."""

from __future__ import annotations

from typing import Final

import click

from linnet.cli.launch import launch
from linnet.cli.put import put
from linnet.cli.serve import serve
from linnet.cli.simulate import simulate
from linnet.cli.split import join, split
from linnet.cli.sync_key import sync_key
from linnet.cli.timeline import timeline
from linnet.cli.top import top
from linnet.cli.worker import worker

COMMANDS: Final[tuple[click.Command, ...]] = (
    join,
    launch,
    put,
    serve,
    simulate,
    split,
    sync_key,
    timeline,
    top,
    worker,
)
