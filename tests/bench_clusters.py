"""Predicted beside measured times of ten models on three clusters of two hosts: both at full speed, one slowed fourfold by a
quota of a cgroup, and one behind a link of 100 Mbit/s between network namespaces. `python -m tests.bench_remote clusters`"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import linnet
from tests import zoo
from tests.remote_host import Host, host, new_key

MODELS = ("ppocr_cls", "minilm_int8", "scrfd_500m", "silero_vad", "magika", "dtln_2", "mtcnn_pnet", "nakdimon", "ppocr_v4_det",
          "ppocr_v4_rec")  # fmt: skip
BLOCKS = 7
BLOCK_S = {"quarter": 0.5}  # several periods of the quota
PERIOD_US = 100_000  # of the quota, as Linux and containers have it
GROUPS = Path("/sys/fs/cgroup")


def sh(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def run_ms(runs: Mapping[str, Callable[[], Any]], block_s: float) -> dict[str, float]:
    """The least mean of a block of runs: other programs only make blocks longer. Blocks take turns."""
    least = dict.fromkeys(runs, math.inf)
    for _ in range(BLOCKS):
        for label, run in runs.items():
            run()
            begin, count = time.perf_counter(), 0
            while (took := time.perf_counter() - begin) < block_s or count == 0:
                run()
                count += 1
            least[label] = min(least[label], 1e3 * took / count)
    return least


@contextlib.contextmanager
def quarter() -> Iterator[Sequence[str]]:
    """A command before a program that gives it a quarter of one processor."""
    name = f"linnet-bench-{os.getpid()}"
    unified = (GROUPS / "cgroup.controllers").exists()
    folder = (GROUPS if unified else GROUPS / "cpu") / name
    if unified:
        (GROUPS / "cgroup.subtree_control").write_text("+cpu")
    folder.mkdir()
    try:
        if unified:
            (folder / "cpu.max").write_text(f"{PERIOD_US // 4} {PERIOD_US}")
        else:
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (folder / "cpu.cfs_quota_us").write_text(str(PERIOD_US // 4))
        yield ("sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh")
    finally:
        for _ in range(100):  # the group is busy until its last process is gone
            with contextlib.suppress(OSError):
                folder.rmdir()
                break
            time.sleep(0.05)


@contextlib.contextmanager
def link(mbit: int) -> Iterator[tuple[Sequence[str], str]]:
    """A command that runs a program in a network namespace behind a link of this rate, and the program's address."""
    name, near, far = f"linnet-{os.getpid()}", f"lnb{os.getpid() % 100000}", f"lnf{os.getpid() % 100000}"
    rate = ("root", "tbf", "rate", f"{mbit}mbit", "burst", "1600", "latency", "200ms")
    sh("ip", "netns", "add", name)
    try:
        sh("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", name)
        sh("ip", "address", "add", "10.79.0.1/24", "dev", near)
        sh("ip", "-n", name, "address", "add", "10.79.0.2/24", "dev", far)
        sh("ip", "link", "set", near, "up")
        sh("ip", "-n", name, "link", "set", far, "up")
        sh("ip", "-n", name, "link", "set", "lo", "up")
        sh("tc", "qdisc", "add", "dev", near, *rate)
        sh("tc", "-n", name, "qdisc", "add", "dev", far, *rate)
        yield ("ip", "netns", "exec", name), "10.79.0.2"
    finally:
        subprocess.run(["ip", "link", "del", near], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def tuned(path: Path, under: Sequence[str] = ()) -> Path:
    sh(*under, sys.executable, "-m", "linnet", "tune", "--machine", "--seconds", "4", "-o", str(path))
    return path


@contextlib.contextmanager
def cluster(kind: str, folder: Path) -> Iterator[list[Host]]:
    """Two hosts, each with the rates that were measured where it runs."""
    with contextlib.ExitStack() as stack:
        key, listen, under = new_key(folder), "127.0.0.1:0", tuple[str, ...]()
        rates = theirs = tuned(folder / "here.tuning")
        if kind == "quarter":
            under = tuple(stack.enter_context(quarter()))
            theirs = tuned(folder / "there.tuning", under)
        if kind == "link":
            words, address = stack.enter_context(link(100))
            under, listen = tuple(words), f"{address}:7700"
        made = (("127.0.0.1:0", rates, ()), (listen, theirs, under))
        yield [
            stack.enter_context(host(at, "--threads", "1", "--tuning", str(own), key=key, under=words))
            for at, own, words in made
        ]


def bound(session: linnet.Session, feeds: Mapping[str, Any]) -> Callable[[], Any]:
    """A run without the copies that Python makes of inputs and outputs, which no prediction knows."""
    arrays = {name: session.empty(name, np.shape(value)) for name, value in feeds.items()}
    for name, value in feeds.items():
        arrays[name][...] = value
    try:
        return session.bind(arrays).run
    except linnet.UsageError:  # the shape of an output depends on data
        return partial(session.run, feeds)


def row(name: str, hosts: Sequence[Host], options: linnet.SessionOptions, block_s: float = 0.05) -> dict[str, float]:
    """Milliseconds, predicted and measured, on this machine, on each host, and with the default placement."""
    graph = linnet.from_onnx(zoo.at_hand(lambda: zoo.fetch(name)), input_shapes=zoo.input_shapes(name))
    feeds, names = zoo.inputs(name), [each.name for each in hosts]
    made = linnet.place(graph, names, options=options)
    labels = {share.machine: label for label, share in zip(("here", "one", "two"), made.machines, strict=True)}
    predicted = {labels[share.machine]: share.alone_ms for share in made.machines} | {"default": made.ms}
    where = {label: {"*": machine} for machine, label in labels.items()}
    used = set(made.places.values())
    if len(used) > 1:  # otherwise it is one of the others
        where["default"] = made.places
    sessions = {
        label: linnet.Session(graph, **{**options.fields, "devices": names, "placement": placement})  # type: ignore[arg-type]
        for label, placement in where.items()
    }
    measured = run_ms({label: bound(session, feeds) for label, session in sessions.items()}, block_s)
    measured.setdefault("default", measured[labels[min(used)]])
    return {f"{label} predicted": predicted[label] for label in predicted} | {
        f"{label} measured": measured[label] for label in predicted
    }


def clusters(models: Sequence[str] = MODELS, kinds: Sequence[str] = ("full", "quarter", "link")) -> dict[str, Any]:
    """The rows of all clusters, and how many reach the aims: within 20 %, and no slower than the best machine alone."""
    rows: dict[str, dict[str, float]] = {}
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder, cluster(kind, Path(folder)) as hosts:
            options = linnet.SessionOptions(threads=1, tuning=Path(folder, "here.tuning"))
            for name in models:
                if name not in zoo.names():
                    continue
                found = rows[f"{kind} {name}"] = row(name, hosts, options, BLOCK_S.get(kind, 0.05))
                best = min(found[f"{label} measured"] for label in ("here", "one", "two"))
                found["default / best"] = found["default measured"] / best
                texts = [
                    f"{label} {found[f'{label} predicted']:.3g}/{found[f'{label} measured']:.3g}"
                    for label in ("here", "one", "two", "default")
                ]
                print(kind, name, *texts, f"default / best {found['default / best']:.2f}", flush=True)
    ratios = {
        label: [each[f"{label} predicted"] / each[f"{label} measured"] for each in rows.values()]
        for label in ("here", "one", "two", "default")
    }
    within = {label: sum(abs(ratio - 1) <= 0.2 for ratio in each) for label, each in ratios.items()}
    return {
        "rows": rows,
        "count": len(rows),
        "within 20 %": within,
        "geometric mean of predicted / measured": {
            label: float(np.exp(np.mean(np.log(each)))) for label, each in ratios.items()
        },
        "default as good as the best, to 3 %": sum(each["default / best"] <= 1.03 for each in rows.values()),
    }
