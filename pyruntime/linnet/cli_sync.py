"""Commands of training on many machines. Each lives in a module of its own; linnet.cli adds them to its group."""

from __future__ import annotations

from typing import Final

import click

from linnet.cli_launch import launch
from linnet.cli_serve import serve
from linnet.cli_split import join, split
from linnet.cli_worker import worker

COMMANDS: Final[tuple[click.Command, ...]] = (launch, serve, worker, split, join)
