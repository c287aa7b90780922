"""Commands of training on many machines. Each lives in a module of its own; linnet.cli adds them to its group."""

from __future__ import annotations

from typing import Final

import click

from linnet.cli_launch import launch
from linnet.cli_serve import serve
from linnet.cli_simulate import simulate
from linnet.cli_split import join, split
from linnet.cli_sync_key import sync_key
from linnet.cli_timeline import timeline
from linnet.cli_top import top
from linnet.cli_worker import worker

COMMANDS: Final[tuple[click.Command, ...]] = (
    join,
    launch,
    serve,
    simulate,
    split,
    sync_key,
    timeline,
    top,
    worker,
)
