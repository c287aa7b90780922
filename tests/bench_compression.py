"""Times encoding and decoding of 100 MB of gradients in each encoding, on one thread, against a plain copy, in alternating
rounds. `python -m tests.bench_compression [--rounds N]`."""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np

from linnet.clib.ffi import ffi
from linnet.clib.library import NULL
from linnet.sync._library import sync_library
from linnet.sync.compression import Compression

COUNT = 25_000_000
CHOICES = ("f16", "bf16", "i8", "topk:0.01", "1bit")


def main() -> None:
    """Prints a table of medians in milliseconds, with the ratio to a copy of the same values."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    library, used, record = sync_library(), ffi.new("size_t *"), ffi.new("linnet_error *")
    values = np.random.default_rng(0).normal(size=COUNT).astype(np.float32) ** 3
    residual, sums = np.zeros(COUNT, np.float32), np.zeros(COUNT, np.float32)
    out, weight = bytearray(5 * COUNT), ffi.new("float *", 0.5)
    buffer = ffi.from_buffer(out)

    def pointer(array: np.ndarray) -> Any:
        return ffi.cast("float *", ffi.from_buffer(array))

    def encode(chosen: Compression, kept: Any) -> None:
        library.linnet_sync_encode(
            chosen.encoding, chosen.fraction, pointer(values), kept, COUNT, buffer, len(out), used, record
        )

    times: dict[tuple[str, str], list[float]] = {}

    def timed(name: str, what: str, work: Any) -> None:
        start = time.perf_counter()
        work()
        times.setdefault((name, what), []).append(1000 * (time.perf_counter() - start))

    sizes = {}
    for _ in range(rounds):
        timed("copy", "copy", lambda: np.copyto(sums, values))
        for name in CHOICES:
            chosen = Compression.parse(name)
            timed(name, "encode", lambda chosen=chosen: encode(chosen, NULL))
            timed(name, "feedback", lambda chosen=chosen: encode(chosen, pointer(residual)))
            sizes[name] = used[0]
            timed(
                name, "add",
                lambda chosen=chosen: library.linnet_sync_decode(
                    chosen.encoding, buffer, used[0], weight, pointer(sums), COUNT, record
                ),
            )  # fmt: skip
    copy = statistics.median(times["copy", "copy"])
    print(f"100 MB; a copy takes {copy:.1f} ms\n")
    print("| | bytes | encode | with error feedback | decode and add |\n|---|---|---|---|---|")
    for name in CHOICES:
        cells = [statistics.median(times[name, what]) for what in ("encode", "feedback", "add")]
        print(f"| {name} | {sizes[name]:,} | " + " | ".join(f"{ms:.0f} ms ({ms / copy:.1f})" for ms in cells) + " |")


if __name__ == "__main__":
    main()
