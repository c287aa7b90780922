"""The command `linnet launch`: starts and watches the processes of one job on this machine."""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
from pathlib import Path

import click

from linnet.cli.declared import option, takes
from linnet.clib.errors import UsageError


@dataclasses.dataclass(frozen=True)
class LaunchOptions:
    """The options of `linnet launch`."""

    workers: int = option(
        "-n", "--workers", type=click.IntRange(1, 4096), default=1, show_default=True, envvar="PET_NPROC_PER_NODE",
        help="Number of workers on this machine.",
    )  # fmt: skip
    servers: int = option(
        "--servers",
        type=click.IntRange(0, 1024),
        default=0,
        show_default=True,
        help="Number of server processes. With 0, worker 0 also runs the server.",
    )
    hosts: int = option(
        "--hosts",
        type=click.IntRange(0, 1024),
        default=0,
        show_default=True,
        help="Number of processes of linnet-host. linnet.sync.cluster().hosts has their names as devices.",
    )
    host_options: str = option(
        "--host-options",
        default="",
        metavar="TEXT",
        help="Options of each host, such as '--threads 1 --folder pieces'.",
    )
    restarts: int = option(
        "--restarts",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        help="Maximum number of restarts of each process that fails. Servers then keep their state and continue from it.",
    )
    grace: float = option(
        "--grace",
        type=click.FloatRange(0),
        default=10.0,
        show_default=True,
        help="Seconds between asking a process to exit and killing it.",
    )
    nodes: int = option(
        "--nodes",
        type=click.IntRange(1, 65536),
        default=1,
        show_default=True,
        envvar="PET_NNODES",
        help="Number of machines in the job.",
    )
    node: int = option(
        "--node",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        envvar="PET_NODE_RANK",
        help="Number of this machine, starting at 0.",
    )
    address: str = option(
        "--at", default="", metavar="HOST:PORT", help="With --nodes: address of the server on machine 0."
    )
    device: str = option(
        "--device",
        default="",
        metavar="NAME",
        help="Device on which workers train, such as cuda:{rank}: {rank} stands for the number of the worker, {local_rank} for "
        "its number on this machine. It becomes LINNET_DEVICE.",
    )
    module: bool = option("-m", is_flag=True, help="PROGRAM is the name of a Python module.")


@click.command(
    short_help="Run a script as several processes that train together.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@takes(LaunchOptions)
def launch(program: str, arguments: tuple[str, ...], given: LaunchOptions) -> int:
    """Run PROGRAM (a .py script or any executable) as the workers and servers of one job.

    In the script, linnet.sync.cluster() tells each process its role. In ARGUMENTS, {rank} and {local_rank} stand for the
    numbers of the process, as in --device. Each line of output is prefixed with the name of
    the process that printed it. A process that fails is restarted up to --restarts times. If it fails again, all
    processes are stopped and the command returns its exit status.
    """
    address = given.address
    from linnet.sync.processes import Job, Layout, command_of
    from linnet.sync.roles import checked_address

    if not given.module and program.endswith(".py"):
        if not Path(program).is_file():
            raise UsageError("the script does not exist", code=101, tensor=program, hint="check the path")
    elif not given.module and shutil.which(program) is None:
        raise UsageError(
            "the program is not found", code=101, tensor=program, hint="give a .py file or an executable on the PATH"
        )
    if given.nodes > 1:
        if not address and "PET_MASTER_ADDR" in os.environ:
            address = f"{os.environ['PET_MASTER_ADDR']}:{os.environ.get('PET_MASTER_PORT', '')}"
        checked_address(address, "--at")
        if address.startswith(("unix:", "shm:", ":")):
            raise UsageError(
                "other machines cannot reach this address", code=101, tensor="--at", expected="HOST:PORT", got=address
            )
        if given.node >= given.nodes:
            raise UsageError(
                "the machine number is out of range",
                code=101,
                tensor="--node",
                expected=f"0 to {given.nodes - 1}",
                got=str(given.node),
            )
        if given.servers:
            raise UsageError(
                "separate server processes run on one machine only",
                code=101,
                tensor="--servers",
                expected="0 together with --nodes",
                got=str(given.servers),
                hint="to use servers on several machines, start linnet parameter-server on each and set LINNET_SERVERS",
            )
        if given.hosts:
            raise UsageError(
                "hosts for this machine only", code=101, tensor="--hosts", expected="0 together with --nodes",
                got=str(given.hosts), hint="start linnet host on each machine that lends itself, and set LINNET_HOSTS",
            )  # fmt: skip
    layout = Layout(
        workers=given.workers, servers=given.servers, nodes=given.nodes, node=given.node, address=address,
        device=given.device, hosts=given.hosts, host_options=tuple(shlex.split(given.host_options)),
    )  # fmt: skip
    return Job(command_of(program, arguments, given.module), layout, restarts=given.restarts, grace=given.grace).run()
