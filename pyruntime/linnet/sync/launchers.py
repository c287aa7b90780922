"""Interprets the environment variables of each launcher: linnet launch, TensorFlow, torchrun, MPI, SLURM.
Every function takes the environment and returns a Cluster, or None if its launcher did not start this process."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from linnet.clib.errors import ResourceError, UsageError
from linnet.sync.nodelist import expand
from linnet.sync.roles import Cluster, checked_address

Environment = Mapping[str, str]


def _refuse(
    name: str,
    expected: str,
    got: object,
    hint: str = "",
    what: str = "an environment variable of the launcher is invalid",
) -> NoReturn:
    raise UsageError(what, code=101, tensor=name, expected=expected, got=repr(got), hint=hint)


def _integer(env: Environment, name: str, low: int = 0) -> int:
    text = env.get(name)
    if text is None:
        _refuse(name, f"an integer of at least {low}", None, what="an environment variable of this launcher is missing")
    if re.fullmatch(r" *-?[0-9]{1,9} *", text) is None or int(text) < low:
        _refuse(name, f"an integer of at least {low}", text)
    return int(text)


def _place(env: Environment, rank_name: str, size_name: str) -> tuple[int, int]:
    size, rank = _integer(env, size_name, 1), _integer(env, rank_name)
    if rank >= size:
        _refuse(
            rank_name,
            f"less than {size_name}={size}",
            env[rank_name],
            what="rank and number of processes contradict each other",
        )
    return rank, size


def _local(env: Environment, rank_name: str, size_name: str) -> tuple[int, int | None]:
    """Local rank and size. The size is None if it is unknown."""
    rank = _integer(env, rank_name) if rank_name in env else 0
    if size_name not in env:
        return rank, None
    if rank_name in env:
        _place(env, rank_name, size_name)
    return rank, _integer(env, size_name, 1)


def split_list(text: str) -> list[str]:
    """The items of a comma-separated list. Spaces around them are removed, and the list may be empty."""
    return [part.strip() for part in text.split(",")] if text.strip() else []


def master(env: Environment, *, taken: bool = False) -> str | None:
    """The address from MASTER_ADDR and MASTER_PORT, or None if neither is set. taken: whether torchrun's store listens
    on this port. If so, the next port is used."""
    if "MASTER_ADDR" not in env and "MASTER_PORT" not in env:
        return None
    for name, other in (("MASTER_ADDR", "MASTER_PORT"), ("MASTER_PORT", "MASTER_ADDR")):
        if name not in env:
            _refuse(
                name, f"a value, because {other}={env[other]} is set", None, what="one half of an address is missing"
            )
    host, port = env["MASTER_ADDR"].strip(), _integer(env, "MASTER_PORT", 1)
    if not host or re.search(r"[\s,/]", host):
        _refuse("MASTER_ADDR", "a host name or IP address", env["MASTER_ADDR"])
    if port + taken > 65535:
        _refuse("MASTER_PORT", f"a port up to {65535 - taken}", env["MASTER_PORT"])
    return f"[{host}]:{port + taken}" if ":" in host and host[0] != "[" else f"{host}:{port + taken}"


def private_folder() -> Path:
    """A folder that only this user can access, for Unix sockets: in XDG_RUNTIME_DIR or the temporary folder. Raises
    ResourceError if it belongs to another user."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(base if base and os.access(base, os.W_OK) else tempfile.gettempdir()) / f"linnet-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ResourceError(
            "other users can access the folder for sockets",
            tensor=str(folder),
            expected="a folder owned by this user with mode 700",
            got=f"owner {found.st_uid} and mode {found.st_mode & 0o777:o}",
            hint="remove the folder, or set XDG_RUNTIME_DIR",
        )
    return folder


def local_socket(job: str) -> str:
    """Address of the server of a job on this machine only. The path of a Unix socket is limited to 107 bytes."""
    name = hashlib.sha256(job.encode()).hexdigest()[:16]
    return f"unix:{private_folder() / name}.sock"


def _symmetric(
    source: str,
    rank: int,
    size: int,
    local: tuple[int, int | None],
    job: str,
    address: str | None,
    *,
    servers: Any = None,
) -> Cluster:
    """A Cluster of equal processes. Worker 0 runs the server: at a Unix socket if all processes are on this machine,
    otherwise at `address`."""
    local_rank, local_size = local
    if size == 1 and servers is None:
        return Cluster(job=job, local_rank=local_rank, local_size=local_size or local_rank + 1, source=source)
    hosted: tuple[str, ...] = ()
    if servers is not None:
        hosted = tuple(servers)
    elif local_size == size and job:
        hosted = (local_socket(job),)
    elif address is not None:
        hosted = (address,)
    return Cluster(
        "worker", rank, size, hosted, (), job, local_rank, local_size or local_rank + 1,
        hosts_server=rank == 0 and servers is None, source=source,
    )  # fmt: skip


def with_numbers(text: str, rank: str, local_rank: str) -> str:
    """The text with the numbers of a process instead of {rank} and {local_rank}."""
    return text.replace("{rank}", rank).replace("{local_rank}", local_rank)


def host_name(address: str, key_file: str = "") -> str:
    """The name of the device that is linnet-host at this address. Only connections between machines use the key."""
    checked_address(address, "LINNET_HOSTS")
    secret = key_file and not address.startswith(("unix:", "shm:"))
    return f"remote:{address}" + (f",key={key_file}" if secret else "")


def from_linnet(env: Environment) -> dict[str, Any]:
    """The fields of Cluster given by LINNET_* variables (set by `linnet launch`)."""
    found: dict[str, Any] = {}
    for field in ("role", "job", "servers", "workers", "key_file", "state"):
        if text := env.get(f"LINNET_{field.upper()}"):
            found[field] = text
    if text := env.get("LINNET_DEVICE"):
        found["local_device"] = text
    if text := env.get("LINNET_HOSTS"):
        found["hosts"] = tuple(host_name(address, env.get("LINNET_KEY_FILE", "")) for address in split_list(text))
    for field, low in (("rank", 0), ("world_size", 1), ("local_rank", 0), ("local_size", 1)):
        if f"LINNET_{field.upper()}" in env:
            found[field] = _integer(env, f"LINNET_{field.upper()}", low)
    return found


# The role of each job in a TensorFlow cluster. "master" is TensorFlow 1's name for the chief.
_TF_ROLES: Final = {"worker": "worker", "ps": "server", "chief": "chief", "master": "chief", "evaluator": "evaluator"}


def tf_config(env: Environment, servers: Sequence[str] | None = None) -> Cluster | None:
    """TF_CONFIG: {"cluster": {"chief": [..], "worker": [..], "ps": [..]}, "task": {"type": .., "index": ..}}, see
    tensorflow.org/guide/distributed_training. The chief is worker 0, and the workers follow. Without "ps", the first
    worker runs the server, at the worker's own address. An empty cluster means a single process."""
    text = env.get("TF_CONFIG", "")
    if not text.strip():
        return None
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        _refuse("TF_CONFIG", "a JSON object with cluster and task", text[:200], hint=str(error)[:200])
    if not isinstance(config, dict):
        _refuse("TF_CONFIG", "a JSON object with cluster and task", text[:200])
    jobs = config.get("cluster") or {}
    task = config.get("task") or {}
    if not isinstance(jobs, dict) or not isinstance(task, dict):
        _refuse("TF_CONFIG", "objects under cluster and task", text[:200])
    if not jobs:
        return None
    for name in jobs:
        if name not in _TF_ROLES:
            _refuse("TF_CONFIG", "jobs named " + ", ".join(_TF_ROLES), name)
    addresses = {name: _tf_addresses(name, found) for name, found in jobs.items()}
    chiefs = addresses.get("chief", []) + addresses.get("master", [])
    if len(chiefs) > 1:
        _refuse("TF_CONFIG", "at most one chief", len(chiefs))
    kind, index = task.get("type"), task.get("index", 0)
    if isinstance(index, str) and index.isdecimal():
        index = int(index)
    if not isinstance(kind, str) or kind not in _TF_ROLES:
        _refuse("TF_CONFIG", "task.type of " + ", ".join(_TF_ROLES), kind)
    # An evaluator is not part of the cluster and need not be listed.
    count = len(addresses.get(kind, [])) or (2**31 if kind == "evaluator" else 0)
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < count:
        allowed = f"task.index from 0 to {count - 1} for {kind}" if count else f"addresses under cluster.{kind}"
        _refuse("TF_CONFIG", allowed, index if count else sorted(addresses))
    workers = (*chiefs, *addresses.get("worker", []))
    if not workers:
        _refuse("TF_CONFIG", "at least one worker or a chief", sorted(addresses))
    role = _TF_ROLES[kind]
    rank = index + len(chiefs) if role == "worker" else index
    first = role in ("worker", "chief") and rank == 0
    own = tuple(addresses.get("ps", [])) if servers is None else tuple(servers)
    if not own and (len(workers) > 1 or role == "evaluator"):
        return Cluster(role, rank, len(workers), workers[:1], workers, hosts_server=first, source="TF_CONFIG")
    return Cluster(role, rank, len(workers), own, workers, source="TF_CONFIG")


def _tf_addresses(job: str, found: Any) -> list[str]:
    """The addresses of a job: a list, or an object from index to address."""
    if isinstance(found, dict):
        if sorted(found) != sorted(str(i) for i in range(len(found))):
            _refuse("TF_CONFIG", f"indices 0 to {len(found) - 1} in cluster.{job}", sorted(found))
        found = [found[str(i)] for i in range(len(found))]
    if not isinstance(found, list) or not all(isinstance(address, str) for address in found):
        _refuse("TF_CONFIG", f"a list of HOST:PORT in cluster.{job}", found)
    return list(found)


def torch(env: Environment, servers: Sequence[str] | None = None) -> Cluster | None:
    """RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, LOCAL_RANK, LOCAL_WORLD_SIZE: set by torchrun and by Kubernetes
    operators for PyTorch (pytorch.org/docs/stable/elastic/run.html). torchrun's own store listens on MASTER_PORT, so
    the server for several machines uses the next port. Without torchrun, the server uses MASTER_PORT."""
    if "RANK" not in env and "WORLD_SIZE" not in env:
        return None
    rank, size = _place(env, "RANK", "WORLD_SIZE")
    run = env.get("TORCHELASTIC_RUN_ID")
    local = _local(env, "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    job = run or ""
    if run is not None:  # a run name may be reused (--rdzv-id); the port is unique to this run
        job = f"{run}:{env.get('MASTER_PORT', '')}"
    address = None if servers is not None else master(env, taken=run is not None)
    if size > 1 and address is None and servers is None and not (job and local[1] == size):
        _refuse(
            "MASTER_ADDR",
            "the host of worker 0, together with MASTER_PORT",
            None,
            "set it, or set LINNET_SERVERS=host:port",
        )
    return _symmetric("torchrun" if run else "RANK", rank, size, local, job, address, servers=servers)


def pet(env: Environment, servers: Sequence[str] | None = None) -> Cluster | None:
    """PET_NNODES, PET_NODE_RANK, PET_NPROC_PER_NODE, PET_MASTER_ADDR, PET_MASTER_PORT, if torchrun is not used: set by
    Kubeflow for a container. With one process per node, this process is the node's worker. If there are more, `linnet
    launch` or torchrun must start them."""
    if "PET_NNODES" not in env and "PET_NODE_RANK" not in env:
        return None
    nodes = env.get("PET_NNODES", "1")
    low, _, high = nodes.partition(":")  # MIN:MAX of an elastic job; the environment does not say how many joined
    if high and high != low:
        _refuse(
            "PET_NNODES",
            "one number",
            nodes,
            "use torchrun for an elastic range",
            what="the number of nodes is unknown",
        )
    values = {**env, "PET_NNODES": low}
    rank, size = _place(values, "PET_NODE_RANK", "PET_NNODES")
    each = env.get("PET_NPROC_PER_NODE", "1")
    if each != "1":
        _refuse(
            "PET_NPROC_PER_NODE", "1 for a script that is started directly", each,
            "start it with torchrun or linnet launch -n", what="the local rank of this process is unknown",
        )  # fmt: skip
    address = master({k.removeprefix("PET_"): v for k, v in env.items() if k.startswith("PET_MASTER")})
    return _symmetric("PET_*", rank, size, (0, 1), env.get("PET_RDZV_ID", ""), address, servers=servers)


def open_mpi(env: Environment, servers: Sequence[str] | None = None) -> Cluster | None:
    """OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE of Open MPI's mpirun. On several machines the server's
    address comes from MASTER_ADDR and MASTER_PORT (mpirun -x) or LINNET_SERVERS."""
    if "OMPI_COMM_WORLD_RANK" not in env and "OMPI_COMM_WORLD_SIZE" not in env:
        return None
    rank, size = _place(env, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
    local = _local(env, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
    job = env.get("PMIX_NAMESPACE") or env.get("OMPI_MCA_ess_base_jobid") or env.get("OMPI_MCA_orte_hnp_uri", "")
    return _symmetric("Open MPI", rank, size, local, job, master(env), servers=servers)


def pmi(env: Environment, servers: Sequence[str] | None = None) -> Cluster | None:
    """PMI_RANK, PMI_SIZE, MPI_LOCALRANKID and MPI_LOCALNRANKS of the process manager Hydra (MPICH, Intel MPI)."""
    if "PMI_RANK" not in env and "PMI_SIZE" not in env:
        return None
    rank, size = _place(env, "PMI_RANK", "PMI_SIZE")
    local = _local(env, "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
    proxy = _ancestor("hydra_pmi_proxy")  # shared by all processes of a job on a machine
    job = env.get("PMI_JOBID") or (f"hydra-{proxy}" if proxy else "")
    return _symmetric("PMI", rank, size, local, job, master(env), servers=servers)


def _ancestor(name: str) -> int | None:
    """Process id of the nearest ancestor with this name, found in /proc, or None."""
    pid = os.getppid()
    while pid > 1:
        try:
            comm, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            return None
        if comm == name[:15]:
            return pid
        pid = int(rest.split()[1])
    return None


def slurm(env: Environment, servers: Sequence[str] | None = None) -> Cluster | None:
    """SLURM_PROCID, SLURM_NTASKS (or SLURM_STEP_NUM_TASKS), SLURM_LOCALID and SLURM_STEP_NODELIST of srun (see `man
    srun`). The server for several machines runs on the step's first node, at MASTER_PORT or port 20000 + SLURM_JOB_ID
    mod 10000."""
    if "SLURM_PROCID" not in env:
        return None
    size_name = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in env else "SLURM_NTASKS"
    if size_name not in env:
        return None
    rank, size = _place(env, "SLURM_PROCID", size_name)
    step = any(name in env for name in ("SLURM_STEP_ID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_TASKS"))
    if size > 1 and not step and "SLURM_JOB_ID" in env:
        _refuse(
            "SLURM_NTASKS", "1 in a batch script", env[size_name], "start the script with srun, or use srun "
                                                                   "--ntasks=1",
            what="this process was not started by srun, so the other tasks would never start",
        )  # fmt: skip
    list_name = "SLURM_STEP_NODELIST" if "SLURM_STEP_NODELIST" in env else "SLURM_JOB_NODELIST"
    nodes = expand(env[list_name], list_name) if list_name in env else []
    local_rank = _integer(env, "SLURM_LOCALID") if "SLURM_LOCALID" in env else 0
    local_size = size if len(nodes) == 1 else _tasks_here(env)
    number = env.get("SLURM_JOB_ID", "")
    job = f"slurm-{number}.{env.get('SLURM_STEP_ID', '0')}" if number else ""
    address = master(env) if "MASTER_ADDR" in env else None
    if address is None and nodes:
        if "MASTER_PORT" not in env and not number.isdecimal():
            _refuse(
                "SLURM_JOB_ID",
                "an integer, from which the port is derived",
                env.get("SLURM_JOB_ID"),
                "set MASTER_PORT",
            )
        port = _integer(env, "MASTER_PORT", 1) if "MASTER_PORT" in env else 20000 + int(number) % 10000
        address = f"{nodes[0]}:{port}"
    return _symmetric("SLURM", rank, size, (local_rank, local_size), job, address, servers=servers)


def _tasks_here(env: Environment) -> int | None:
    """Number of tasks on this node, from SLURM_STEP_TASKS_PER_NODE (for example "2(x3),1") and SLURM_NODEID."""
    text = env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE")
    if not text or "SLURM_NODEID" not in env:
        return None
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?", part.strip())
        if match is None:
            _refuse("SLURM_STEP_TASKS_PER_NODE", 'counts as in "2(x3),1"', text)
        counts += [int(match[1])] * int(match[2] or 1)
    node = _integer(env, "SLURM_NODEID")
    if node >= len(counts):
        _refuse(
            "SLURM_NODEID",
            f"less than {len(counts)}, the number of nodes in SLURM_STEP_TASKS_PER_NODE",
            env["SLURM_NODEID"],
        )
    return counts[node]


def pmix(env: Environment, servers: Sequence[str] | None = None) -> Cluster | None:
    """PMIX_RANK without other variables of a launcher (prun, srun --mpi=pmix). PMIx has no variable for the size, so
    another variable must give it."""
    if "PMIX_RANK" not in env:
        return None
    _refuse(
        "PMIX_RANK",
        "also the number of processes (WORLD_SIZE, OMPI_COMM_WORLD_SIZE or SLURM_NTASKS)",
        env["PMIX_RANK"],
        "set RANK and WORLD_SIZE, or start it with mpirun or srun",
    )


# In order of precedence. PMIX_RANK is last because Open MPI and SLURM set it along with their own.
LAUNCHERS: Final[tuple[Callable[..., Cluster | None], ...]] = (tf_config, torch, pet, open_mpi, pmi, slurm, pmix)


def detect(env: Environment, servers: Sequence[str] | None = None) -> Cluster | None:
    """The Cluster from the first launcher in the list whose variables are set, or None. servers: addresses of the
    servers if they are already known."""
    return next((found for launcher in LAUNCHERS if (found := launcher(env, servers)) is not None), None)
