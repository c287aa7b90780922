"""The ring all-reduce: sums and bits, all transports, ranks that are missing, wrong, dead or silent, and a new ring of the
remaining ranks. Ranks are threads (the C code holds no lock of Python); ranks that die are processes."""
# Dear: processes of a ring are killed one by one.

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet.sync import Link, Ring


def ranks(
    size: int, work: Callable[[int], Any], *, only: tuple[int, ...] | None = None, timeout: float = 60
) -> list[Any]:
    """Runs work(rank) in a thread each; returns its results or exceptions."""
    found: list[Any] = [None] * size

    def one(rank: int) -> None:
        try:
            found[rank] = work(rank)
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in only or range(size)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + timeout
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
        assert not thread.is_alive(), f"a rank hangs; the others: {found}"
    return found


def values(rank: int, count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, rank, count]).normal(size=count).astype(np.float32)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_means_are_right_and_the_same_bits(size: int, tmp_path: Path) -> None:
    counts = (0, 1, 2, size, size + 1, 1000, 65_537, 700_001)

    def work(rank: int) -> list[bytes]:
        with Ring(f"unix:{tmp_path}/ring", rank, size, timeout=20) as ring:
            return [ring.all_reduce(values(rank, count), "mean").tobytes() for count in counts]

    found = ranks(size, work)
    assert all(result == found[0] for result in found), [r for r in found if isinstance(r, Exception)]
    for count, got in zip(counts, found[0], strict=True):
        expected = np.mean([values(rank, count).astype(np.float64) for rank in range(size)], axis=0)
        np.testing.assert_allclose(np.frombuffer(got, np.float32), expected, rtol=0, atol=1e-6)


def _by_hand(inputs: list[np.ndarray]) -> np.ndarray:
    """Segment s starts at rank s; s + 1, s + 2, ... each add their own values to the received ones; the last rank divides."""
    size = len(inputs)
    parts = [np.array_split(array, size) for array in inputs]
    total = []
    for segment in range(size):
        value = parts[segment][segment]
        for step in range(1, size):
            value = parts[(segment + step) % size][segment] + value
        total.append(value / np.float32(size))
    return np.concatenate(total)


def test_the_order_of_summation_is_the_documented_one(tmp_path: Path) -> None:
    def work(rank: int) -> np.ndarray:
        with Ring(f"unix:{tmp_path}/ring", rank, 3, timeout=20) as ring:
            return ring.all_reduce(values(rank, 100_003), "mean")

    expected = _by_hand([values(rank, 100_003) for rank in range(3)])
    for got in ranks(3, work):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", ["float64", "int32", "int64"])
def test_sums_of_other_dtypes(dtype: str, tmp_path: Path) -> None:
    def work(rank: int) -> np.ndarray:
        with Ring(f"unix:{tmp_path}/ring", rank, 4, timeout=20) as ring:
            return ring.all_reduce(np.arange(10_007).astype(dtype).reshape(10_007, 1) * (rank + 1))

    for got in ranks(4, work):
        np.testing.assert_array_equal(got[:, 0], np.arange(10_007).astype(dtype) * 10)
        assert got.dtype == dtype and got.shape == (10_007, 1)


def test_means_of_doubles(tmp_path: Path) -> None:
    def work(rank: int) -> np.ndarray:
        with Ring(f"unix:{tmp_path}/ring", rank, 3, timeout=20) as ring:
            return ring.all_reduce(np.arange(1001) * (rank + 1.0), "mean")

    for got in ranks(3, work):
        np.testing.assert_array_equal(got, np.arange(1001) * 2.0)


@pytest.mark.parametrize(("address", "listen"), [("unix:{}/ring", None), ("unix:{}/ring", ":0"), ("shm:{}/ring", None)])
def test_transports(address: str, listen: str | None, tmp_path: Path) -> None:
    def work(rank: int) -> float:
        with Ring(address.format(tmp_path), rank, 3, listen=listen, timeout=20) as ring:
            return float(ring.all_reduce(np.full(300_000, rank, np.float32))[299_999])

    assert ranks(3, work) == [3.0, 3.0, 3.0]


def test_meeting_over_tcp() -> None:
    with socket.socket() as probe:  # the rendezvous port must be known to all
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def work(rank: int) -> float:
        with Ring(f"127.0.0.1:{port}", rank, 3, timeout=20) as ring:
            return float(ring.all_reduce(np.ones(10, np.float32))[0])

    assert ranks(3, work) == [3.0, 3.0, 3.0]


def test_encrypted(tmp_path: Path) -> None:
    """TLS with one key. A rank with another key, or none, is refused and told why."""
    keys = []
    for number in range(2):
        key = tmp_path / f"key-{number}"
        key.touch(0o600)
        key.write_text(f"{number + 1:02x}" * 32)
        keys.append(Link(key_file=key))

    def work(rank: int) -> float:
        with Ring(f"unix:{tmp_path}/ring", rank, 3, listen=":0", timeout=20, link=keys[0]) as ring:
            return float(ring.all_reduce(np.full(300_000, rank, np.float32))[299_999])

    assert ranks(3, work) == [3.0, 3.0, 3.0]
    for other in (keys[1], None):

        def stranger(rank: int, other: Link | None = other) -> None:
            Ring(f"unix:{tmp_path}/other", rank, 2, timeout=1, link=keys[0] if rank == 0 else other)

        found = ranks(2, stranger)
        assert found[0].status == "timed_out" and found[1].status == "not_authenticated", found


def test_strangers_at_the_door_change_nothing(tmp_path: Path) -> None:
    """Silent connections and ones that send nonsense, where rank 0 waits."""
    path = f"{tmp_path}/ring"

    def work(rank: int) -> float:
        if rank == 1:  # after the strangers have connected
            until = time.monotonic() + 10
            while not Path(path).exists() and time.monotonic() < until:
                time.sleep(0.01)
            for number in range(10):
                strangers.append(socket.socket(socket.AF_UNIX))
                strangers[-1].connect(path)
                strangers[-1].send(b"GET / HTTP/1.1\r\n\r\n" * (number % 2 * 20))
        with Ring(f"unix:{path}", rank, 2, timeout=10) as ring:
            return float(ring.all_reduce(np.ones(9, np.float32))[0])

    strangers: list[socket.socket] = []
    assert ranks(2, work) == [2.0, 2.0]
    for stranger in strangers:
        stranger.close()


def test_rings_made_one_after_another(tmp_path: Path) -> None:
    """A rank that has its ring starts the next one; data that its neighbours still need has already been sent."""

    def work(rank: int) -> int:
        for number in range(30):
            with (
                Ring(f"unix:{tmp_path}/a{number}", rank, 2, listen=":0", timeout=10) as one,
                Ring(f"shm:{tmp_path}/b{number}", rank, 2, timeout=10) as other,
            ):
                assert other.all_reduce(np.ones(3, np.float32))[0] == one.all_reduce(np.ones(3, np.float32))[0] == 2
        return 30

    assert ranks(2, work) == [30, 30]


def test_ranks_of_different_speed_wait_for_one_another(tmp_path: Path) -> None:
    """A fast rank starts the next all-reduce while a slow one is still in the last: its bytes wait."""

    def work(rank: int) -> list[float]:
        out = []
        with Ring(f"unix:{tmp_path}/ring", rank, 3, timeout=20) as ring:
            for step in range(20):
                if (step + rank) % 3 == 0:
                    time.sleep(0.01)
                out.append(float(ring.all_reduce(np.full(50_000, step + rank, np.float32)).sum()))
        return out

    assert ranks(3, work) == [[50_000.0 * (3 * step + 3) for step in range(20)]] * 3


def test_a_rank_that_does_not_come_is_named(tmp_path: Path) -> None:
    def work(rank: int) -> None:
        Ring(f"unix:{tmp_path}/ring", rank, 4, timeout=1)

    found = ranks(4, work, only=(0, 1, 3))
    assert isinstance(found[0], linnet.SyncError) and found[0].status == "timed_out"
    assert "rank 2 did not join" in str(found[0]) and found[0].op_index == 2
    for rank in (1, 3):
        assert isinstance(found[rank], linnet.SyncError), found[rank]
        assert "did not join" in str(found[rank])


def test_a_ring_of_another_size_is_refused(tmp_path: Path) -> None:
    def work(rank: int) -> None:
        Ring(f"unix:{tmp_path}/ring", rank, 2 if rank == 0 else 3, timeout=1)

    found = ranks(2, work)
    assert found[1].status == "refused" and "2 ranks, not 3" in str(found[1])
    assert found[0].status == "timed_out"


def test_arrays_of_different_sizes_are_refused(tmp_path: Path) -> None:
    def work(rank: int) -> None:
        with Ring(f"unix:{tmp_path}/ring", rank, 3, timeout=5) as ring:
            ring.all_reduce(np.zeros(1000 if rank != 1 else 999, np.float32))

    found = ranks(3, work)
    for error in found:
        assert isinstance(error, linnet.SyncError) and error.status == "protocol_error", found
        assert "rank 0 of 3 does not fit" in str(error) and "1336 bytes, but rank 1 expects 1332" in str(error), found
        assert "same size and dtype" in str(error)


def test_who_leaves_is_named(tmp_path: Path) -> None:
    def work(rank: int) -> str:
        with Ring(f"unix:{tmp_path}/ring", rank, 4, timeout=10) as ring:
            ring.all_reduce(np.zeros(10, np.float32))
            if rank == 2:
                return "left"
            with pytest.raises(linnet.SyncError, match="rank 2 of 4") as caught:
                ring.all_reduce(np.zeros(10_000_000, np.float32))
            with pytest.raises(linnet.SyncError, match="rank 2 of 4"):  # and it remains so
                ring.all_reduce(np.zeros(10, np.float32))
            return f"{caught.value.status} {caught.value.op_index}"

    assert ranks(4, work) == ["connection_lost 2", "connection_lost 2", "left", "connection_lost 2"]


_VICTIM = """
import sys, time
import numpy as np
from linnet.sync import Ring
ring = Ring(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), timeout=5)
ring.all_reduce(np.zeros(10, np.float32))
print("ready", flush=True)
while True:
    ring.all_reduce(np.ones(200_000, np.float32))
"""


@pytest.mark.parametrize(
    ("victim", "how"), [(0, signal.SIGKILL), (1, signal.SIGKILL), (3, signal.SIGKILL), (2, signal.SIGSTOP)]
)
def test_the_others_go_on_without_a_dead_rank(victim: int, how: signal.Signals, tmp_path: Path) -> None:
    """A killed rank is noticed at once, a stopped one, which is only silent, within the timeout. All ranks name the same one
    in the same words, and continue in a new ring."""
    size, timeout = 4, 5.0
    process = subprocess.Popen(
        [sys.executable, "-c", _VICTIM, f"unix:{tmp_path}/a", str(victim), str(size)], stdout=subprocess.PIPE, text=True
    )
    hit: list[float] = []

    def work(rank: int) -> tuple[int, float, float]:
        ring = Ring(f"unix:{tmp_path}/a", rank, size, timeout=timeout)
        ring.all_reduce(np.zeros(10, np.float32))
        try:
            for _ in range(100_000):
                ring.all_reduce(np.ones(200_000, np.float32))
        except linnet.SyncError as error:
            took = time.monotonic() - hit[0]
            again = ring.without(error.op_index, f"unix:{tmp_path}/b")
            with again:
                return error.op_index, took, float(again.all_reduce(np.ones(5, np.float32))[0])
        raise AssertionError("nothing was noticed")

    def strike() -> None:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.2)
        hit.append(time.monotonic())
        process.send_signal(how)

    striker = threading.Thread(target=strike)
    striker.start()
    try:
        found = ranks(size, work, only=tuple(rank for rank in range(size) if rank != victim))
    finally:
        striker.join()
        process.kill()
        process.wait()
    for rank, result in enumerate(found):
        if rank != victim:
            assert isinstance(result, tuple), result
            assert result[0] == victim and result[2] == size - 1
            assert result[1] < (3 if how == signal.SIGKILL else timeout + 3)


def test_wrong_calls(tmp_path: Path) -> None:
    with pytest.raises(linnet.UsageError, match="rank 2, size 2"):
        Ring("unix:x", 2, 2)
    with pytest.raises(linnet.UsageError, match="rank 0 cannot use port 0"):
        Ring("127.0.0.1:0", 0, 2)
    with pytest.raises(linnet.UsageError, match="time is out of range"):
        Ring("unix:x", 0, 2, timeout=0)
    with pytest.raises(linnet.Error, match="no-such"):
        Ring("unix:/no-such-folder/ring", 0, 2, timeout=0.3)
    with Ring("unix:never-used", 0, 1) as ring:
        assert ring.all_reduce(np.ones(3, np.float32), "mean").tolist() == [1, 1, 1]
        for array, operation, message in (
            (np.ones(3, np.float16), "sum", "float16"), (np.ones((4, 4), np.float32).T[1:], "sum", "strided"),
            (np.ones(3, np.int64), "mean", "cannot reduce"), (np.ones(3, np.float32), "max", "unknown operation"),
        ):  # fmt: skip
            with pytest.raises(linnet.UsageError, match=message):
                ring.all_reduce(array, operation)  # type: ignore[arg-type]
        with pytest.raises(linnet.UsageError, match="must be another rank"):
            ring.without(0, "unix:x")
    with pytest.raises(linnet.UsageError, match="closed"):
        ring.all_reduce(np.ones(3, np.float32))
    ring.close()
