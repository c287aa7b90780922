"""Compares the all-reduce of linnet.sync.Ring with torch.distributed's on Gloo: the same processes run both, in turn, on
loopback. `python -m tests.bench_ring [--ranks 2,4] [--bytes 4000,1000000,100000000] [--rounds N]`."""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from linnet.sync import Ring


def process(folder: str, rank: int, size: int, lengths: list[int], rounds: int, results: Any) -> None:
    """One rank: runs every engine in turn, `rounds` times. Rank 0 returns the medians in seconds through a queue."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/gloo", rank=rank, world_size=size)
    with ExitStack() as stack:
        tcp = stack.enter_context(Ring(f"unix:{folder}/tcp", rank, size, listen=":0"))
        local = stack.enter_context(Ring(f"shm:{folder}/shm", rank, size))
        for length in lengths:
            array = np.zeros(length // 4, np.float32)
            tensor = torch.from_numpy(array)

            def gloo(tensor: Any = tensor) -> None:
                dist.all_reduce(tensor)

            engines: dict[str, Callable[[], object]] = {
                "linnet, TCP": lambda array=array: tcp.all_reduce(array),
                "linnet, shared memory": lambda array=array: local.all_reduce(array),
                "Gloo, TCP": gloo,
            }
            times: dict[str, list[float]] = {name: [] for name in engines}
            repeats = max(1, min(50, 2_000_000 // length))
            for count in range(rounds + 1):
                for name, reduce in engines.items():
                    dist.barrier()
                    start = time.perf_counter()
                    for _ in range(repeats):
                        reduce()
                    if count:  # the first round is a warm-up
                        times[name].append((time.perf_counter() - start) / repeats)
            if rank == 0:
                results.put((size, length, {name: statistics.median(taken) for name, taken in times.items()}))
    dist.destroy_process_group()


def main() -> None:
    """Prints a table of medians, with linnet's time as a fraction of Gloo's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--bytes", default="4000,1000000,100000000")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    lengths = [int(number) for number in arguments.bytes.split(",")]
    context = multiprocessing.get_context("spawn")
    print(
        "| ranks | array | linnet, TCP | of Gloo | linnet, shared memory | of Gloo | Gloo, TCP |\n|---|---|---|---|---|---|---|"
    )
    for size in map(int, arguments.ranks.split(",")):
        results = context.Queue()
        with tempfile.TemporaryDirectory() as folder:
            ranks = [
                context.Process(target=process, args=(folder, rank, size, lengths, arguments.rounds, results))
                for rank in range(size)
            ]
            for rank in ranks:
                rank.start()
            for _ in lengths:
                _, length, found = results.get(timeout=600)
                gloo = found["Gloo, TCP"]
                cells = [
                    f"{found[name] * 1000:.2f} ms | {found[name] / gloo:.2f}"
                    for name in ("linnet, TCP", "linnet, shared memory")
                ]
                print(f"| {size} | {length / 1e6:g} MB | {' | '.join(cells)} | {gloo * 1000:.2f} ms |", flush=True)
            for rank in ranks:
                rank.join(60)


if __name__ == "__main__":
    main()
