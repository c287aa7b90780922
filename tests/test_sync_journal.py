"""Guarantees of a server's folder: every byte of its journal and snapshot matters or is harmless; acknowledged pushes are on
disk; damage is an error that names the place; --repair keeps the old file; links are not followed.
tests/c/test_sync_journal.c has journals of several pages; tests/sim tears them."""
# Dear: every byte of a journal is flipped.

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet.sync import Link, Server, Worker
from tests.native import ROOT, build, compile_c
from tests.test_sync_commands import serve as serve_command
from tests.test_sync_server import Process, counting, ones, together

GRAPH = counting()


@pytest.fixture
def quick() -> Iterator[Path]:
    """A folder in memory, if possible: a thousand servers start in it, and each syncs its files."""
    memory = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None))
    yield path
    shutil.rmtree(path)


def state(server: Server) -> tuple[object, ...]:
    """Everything that survives a server."""
    about = server.status()
    known = [(w["worker"], w["group"]) for w in about["workers"]]
    groups = [(g["group"], g["step"]) for g in about["groups"]]
    return about["version"], about["sequence"], known, groups, server.store["w"].tolist()


def kept(folder: Path, steps: int, save_at: int = 0) -> dict[str, bytes]:
    """The files of a server that was killed after this many steps of two workers."""
    with Server(GRAPH, workers=2, folder=folder) as server:

        def work(k: int) -> None:
            with Worker(GRAPH, server.address, number=3 * k, timeout=30) as worker:
                for i in range(steps):
                    worker.step(ones(float(i + 1)))
                    if i + 1 == save_at and k == 0:
                        worker.save()

        together(2, work)
        return {name: (folder / name).read_bytes() for name in ("journal", "snapshot.lnt") if (folder / name).exists()}


def started(folder: Path, files: dict[str, bytes], repair: bool = False) -> Server:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return Server(GRAPH, workers=2, folder=folder, repair=repair)


@pytest.mark.parametrize("name", ["journal", "snapshot.lnt"])
def test_every_byte_is_flipped(name: str, quick: Path) -> None:
    """Expects an error that names the file and the place, or the same state, but never an older one."""
    files = kept(quick / "job", 6, save_at=3)
    whole = started(quick / "x", files)
    expected = state(whole)
    assert expected[0] == 6 and len(files["journal"]) > 300
    whole.close()
    refused, harmless = 0, 0
    for at, mask in itertools.product(range(len(files[name])), (0xFF, 0x01) if name == "journal" else (0xFF,)):
        data = bytearray(files[name])
        data[at] ^= mask
        try:
            server = started(quick / "x", {**files, name: bytes(data)})
        except linnet.FileError as error:
            refused += 1
            assert str(quick / "x" / name) in str(error), str(error)
            assert re.search(r"\d|[0-9a-f]{8}", (error.got or "") + (error.expected or "")) and error.hint, str(error)
            assert (quick / "x" / name).read_bytes() == data  # and nothing changes
            continue
        harmless += 1
        assert state(server) == expected, f"byte {at}"
        server.close()
    # In a snapshot the padding between its parts does not matter; in a journal, every byte does.
    print(f"{name}: {refused} flips refused, {harmless} harmless")
    assert harmless == 0 if name == "journal" else harmless < len(files[name]) // 2
    assert refused > 300


def test_a_journal_of_an_earlier_version(tmp_path: Path) -> None:
    """An empty journal is started anew; one with records is not taken for something else."""
    files = kept(tmp_path / "job", 2)
    old = bytearray(files["journal"])
    old[4] = 1
    started(tmp_path / "x", {"journal": bytes(old[:64])}).close()
    with pytest.raises(linnet.FileError, match=r"other_model.*older version of linnet.*end it normally"):
        started(tmp_path / "x", {"journal": bytes(old)})


def test_repair_keeps_damage(tmp_path: Path) -> None:
    files = kept(tmp_path / "job", 4)
    lengths = [64]
    while lengths[-1] < len(files["journal"]):
        size = int.from_bytes(files["journal"][lengths[-1] : lengths[-1] + 8], "little")
        lengths.append(lengths[-1] + 32 + -(-size // 32) * 32)
    assert len(lengths) == 5 and lengths[-1] == len(files["journal"])
    for record, offset in itertools.product(range(4), (1, 30, 40, 100)):
        damaged = bytearray(files["journal"])
        damaged[lengths[record] + offset] ^= 4
        place = tmp_path / "x"
        with pytest.raises(linnet.FileError, match=f"record at offset {lengths[record]} of {lengths[-1]}.*--repair"):
            started(place, {"journal": bytes(damaged)})
        with started(place, {"journal": bytes(damaged)}, repair=True) as server:
            assert server.status()["version"] == record
            assert server.status()["left_out"] == lengths[-1] - lengths[record]
            np.testing.assert_array_equal(server.store["w"], np.full(4, -sum(range(1, record + 1)), np.float32))
            aside = [path for path in place.iterdir() if path.name.startswith("journal.damaged-")]
            assert [path.read_bytes() for path in aside] == [bytes(damaged)]
            assert (place / "journal").read_bytes() == files["journal"][: lengths[record]]
        with Server(GRAPH, workers=2, folder=place) as server:  # and it is repaired
            assert server.status()["version"] == record and server.status()["left_out"] == 0
    with started(tmp_path / "x", files, repair=True) as server:  # nothing to repair
        assert server.status()["version"] == 4 and len(list((tmp_path / "x").glob("journal.damaged-*"))) == 0
    # A damaged snapshot cannot be skipped: --repair says so and changes nothing.
    files = kept(tmp_path / "other", 6, save_at=3)
    spoiled = bytearray(files["snapshot.lnt"])
    spoiled[100] ^= 1
    with pytest.raises(linnet.FileError, match=r"snapshot.lnt.*--repair cannot help"):
        started(tmp_path / "x", {**files, "snapshot.lnt": bytes(spoiled)}, repair=True)
    assert (tmp_path / "x" / "journal").read_bytes() == files["journal"]


def test_the_command_repairs(tmp_path: Path) -> None:
    """`linnet parameter-server --repair` and `linnet-parameter-server --repair`. Without it both name the file and the remedy."""
    (tmp_path / "model.lnt").write_bytes(GRAPH.to_bytes())
    files = kept(tmp_path / "job", 2)
    damaged = files["journal"][:-40] + bytes([files["journal"][-40] ^ 1]) + files["journal"][-39:]
    for native in (False, True):
        place = tmp_path / f"{native}" / "job"
        place.mkdir(parents=True)
        (place / "journal").write_bytes(damaged)
        tool = [str(build("release", "linnet-parameter-server") / "linnet-parameter-server")]
        if native:
            done = subprocess.run(
                [*tool, tmp_path / "model.lnt", "--folder", place], capture_output=True, text=True, check=False
            )
            assert done.returncode == 1 and "journal" in done.stderr and "--repair" in done.stderr
            server = Process(tmp_path / "model.lnt", place.parent, "--repair")
            address, process = server.address, server.process
        else:
            process, words = serve_command(tmp_path, "--folder", place)
            assert "journal" in words and "--repair" in words and process.wait(30) == 1
            process, address = serve_command(tmp_path, "--folder", place, "--repair")
        assert linnet.sync.status(address)["version"] == 1
        process.send_signal(signal.SIGTERM)
        _, text = process.communicate(timeout=30)
        assert process.returncode == 0 and (native or "journal.damaged-" in text)
        assert [path.read_bytes() for path in place.glob("journal.damaged-*")] == [damaged]


def test_a_worker_that_is_ahead(tmp_path: Path) -> None:
    """A server that lost an acknowledged update: worker and server report an error; with repair the server continues without
    one."""
    link = Link(heartbeat=0.1, lease=0.4)
    server = Server(GRAPH, folder=tmp_path / "job", link=link, listen=f"unix:{tmp_path}/s")
    server.start()
    worker = Worker(GRAPH, server.address, number=0, timeout=30, lost=20, link=link)
    for i in range(3):
        worker.step(ones(float(i)))
    journal = (tmp_path / "job" / "journal").read_bytes()
    server.stop()
    server.close()
    for name in ("snapshot.lnt", "journal"):
        (tmp_path / "job" / name).unlink()
    older = journal[: -(len(journal) - 64) // 3]
    for repair in (False, True):
        (tmp_path / "job" / "journal").write_bytes(older)
        server = Server(GRAPH, folder=tmp_path / "job", link=link, listen=f"unix:{tmp_path}/s", repair=repair)
        assert server.status()["version"] == 2
        server.start()
        with pytest.raises(
            linnet.SyncError, match=r"refused.*server is behind: step 2 was acknowledged to worker 0"
        ) as caught:
            worker.step(ones(1.0))
        assert "restart the workers" in caught.value.hint
        worker.close()
        if not repair:
            deadline = time.monotonic() + 10
            with pytest.raises(linnet.FileError, match=r"corrupt.*acknowledged updates are missing.*--repair"):
                while not server.wait(0.1):
                    assert time.monotonic() < deadline
            # It did not save: the files on disk are unchanged.
            assert (tmp_path / "job" / "journal").read_bytes() == older
            assert not (tmp_path / "job" / "snapshot.lnt").exists()
            server.close()
            # The worker's next process has no such memory, so another worker that is ahead is made for the repaired server.
            with Server(GRAPH, folder=tmp_path / "more", link=link, listen=f"unix:{tmp_path}/s") as more:
                worker = Worker(GRAPH, more.address, number=0, timeout=30, lost=20, link=link)
                for i in range(3):
                    worker.step(ones(float(i)))
        else:
            with Worker(GRAPH, server.address, number=0, timeout=30, link=link) as again:
                assert again.info.step == 2
                again.step(ones(1.0))
            server.stop()
            server.close()


def test_a_volatile_server_may_go_back(tmp_path: Path) -> None:
    """A server that keeps only snapshots, or nothing, has promised no more: workers follow it."""
    address = f"unix:{tmp_path}/s"
    server = Server(GRAPH, listen=address, folder=tmp_path / "job", durability="volatile")
    server.start()
    with Worker(GRAPH, address, number=0, timeout=30) as worker:
        for i in range(3):
            worker.step(ones(float(i)))
        server.stop()
        server.close()
        (tmp_path / "job" / "snapshot.lnt").unlink()
        with Server(GRAPH, listen=address, folder=tmp_path / "job", durability="volatile") as server:
            worker.step(ones(1.0))
            assert server.status()["version"] == 1


# ---- the disk --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["fsync", "journal", "volatile"])
def test_what_is_synced_and_when(durability: str, tmp_path: Path) -> None:
    """Each step is on disk before its answer: exactly one fdatasync of the journal. Replaced files are synced before their
    rename, and the folder for the names."""
    library = compile_c([ROOT / "tests" / "ext" / "sync_log.c"], tmp_path / "sync_log.so", "-shared", "-fPIC", "-ldl")
    (tmp_path / "model.lnt").write_bytes(GRAPH.to_bytes())
    tool, log, address = (
        build("release", "linnet-parameter-server") / "linnet-parameter-server",
        tmp_path / "log",
        f"unix:{tmp_path}/socket",
    )
    command = [
        tool,
        tmp_path / "model.lnt",
        "--listen",
        address,
        "--folder",
        tmp_path / "job",
        "--durability",
        durability,
    ]
    environment = {**os.environ, "LD_PRELOAD": str(library), "SYNC_LOG": str(log)}

    def lines() -> list[str]:
        found = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return found

    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
    try:
        assert process.stdout and process.stdout.readline().startswith("listening")
        head = ["fsync journal"] if durability == "fsync" else []
        assert lines() == ["fsync epoch.part", "fsync job", *head, "fsync job"]
        with Worker(GRAPH, address, timeout=30) as worker:
            for _ in range(20):
                worker.step(ones(1.0))
                assert lines() == (["fdatasync journal"] if durability == "fsync" else [])
            worker.step(ones(float("nan")))  # its result is kept, too
            assert lines() == (["fdatasync journal"] if durability == "fsync" else [])
            worker.save()
            assert lines() == ["fsync snapshot.lnt.part", "fsync job", *head]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


def test_no_link_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links in the folder do not make the server write elsewhere. The folder itself may be a link."""
    monkeypatch.chdir(tmp_path)  # errors have room only for short names
    tmp_path, victim = Path(), tmp_path / "victim"
    for name in ("lock", "epoch", "epoch.part", "journal", "snapshot.lnt"):
        victim.write_text("precious")
        place = tmp_path / f"folder-{name}"
        place.mkdir()
        (place / name).symlink_to(victim)
        if name == "epoch.part":  # leftovers of a kill there do no harm
            Server(GRAPH, folder=place).close()
            assert not (place / name).exists()
        else:
            with pytest.raises(linnet.FileError, match=rf"{name}'.*a symbolic link.*remove the file"):
                Server(GRAPH, folder=place)
        assert victim.read_text() == "precious", name
        (place / name).unlink(missing_ok=True)
        if name == "epoch.part":
            continue
        os.mkfifo(place / name)  # which would block it forever
        with pytest.raises(linnet.FileError, match=rf"{name}'.*not a regular file"):
            Server(GRAPH, folder=place)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with Server(GRAPH, folder=tmp_path / "link"):
        assert (tmp_path / "real" / "journal").exists()
