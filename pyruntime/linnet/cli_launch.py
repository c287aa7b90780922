"""The command `linnet launch`: a job's processes on this machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click

from linnet.errors import UsageError


@click.command(
    short_help="Run a script as several processes that train together.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "-n", "--workers", type=click.IntRange(1, 4096), default=1, show_default=True, envvar="PET_NPROC_PER_NODE",
    help="Workers on this machine.",
)  # fmt: skip
@click.option(
    "--servers", type=click.IntRange(0, 1024), default=0, show_default=True, help="0: worker 0 has the server."
)
@click.option("--restarts", type=click.IntRange(0), default=0, show_default=True, help="Of each process that fails.")
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=10.0,
    show_default=True,
    help="Seconds between asking a process to end and killing it.",
)
@click.option(
    "--nodes", type=click.IntRange(1, 65536), default=1, show_default=True, envvar="PET_NNODES", help="Machines."
)
@click.option(
    "--node",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    envvar="PET_NODE_RANK",
    help="Which of them this is.",
)
@click.option("--at", "address", default="", metavar="HOST:PORT", help="Of the server on machine 0, with --nodes.")
@click.option("-m", "module", is_flag=True, help="PROGRAM is a Python module.")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def launch(
    workers: int, servers: int, restarts: int, grace: float, nodes: int, node: int, address: str, module: bool,
    program: str, arguments: tuple[str, ...],
) -> int:  # fmt: skip
    """Run PROGRAM (a .py script, or any program) as workers and servers of one job.

    linnet.sync.cluster() in the script says which of them a process is. Lines that the processes print have their
    names before them. When one fails, it is restarted as often as --restarts allows; then all end,
    and its exit status is the command's.
    """
    from linnet.sync.processes import Job, command_of
    from linnet.sync.roles import checked_address

    if not module and program.endswith(".py"):
        if not Path(program).is_file():
            raise UsageError("there is no such script", code=101, tensor=program)
    elif not module and shutil.which(program) is None:
        raise UsageError("there is no such program", code=101, tensor=program, hint="give a .py file, or an executable")
    if nodes > 1:
        if not address and "PET_MASTER_ADDR" in os.environ:
            address = f"{os.environ['PET_MASTER_ADDR']}:{os.environ.get('PET_MASTER_PORT', '')}"
        checked_address(address, "--at")
        if address.startswith(("unix:", "shm:", ":")):
            raise UsageError(
                "no address for other machines", code=101, tensor="--at", expected="HOST:PORT", got=address
            )
        if node >= nodes:
            raise UsageError("no such machine", code=101, tensor="--node", expected=f"0 to {nodes - 1}", got=str(node))
        if servers:
            raise UsageError(
                "servers of their own are for one machine", code=101, tensor="--servers", expected="0 with --nodes",
                got=str(servers), hint="start linnet serve on the machines of your choice, and set LINNET_SERVERS",
            )  # fmt: skip
    return Job(
        command_of(program, arguments, module), workers, servers,
        restarts=restarts, grace=grace, nodes=nodes, node=node, address=address,
    ).run()  # fmt: skip
