"""Changed sessions of the sync protocol and random bytes, in random pieces, under AddressSanitizer and UBSan: into the
stream, and into the cores of server and worker. `make soak` tries 10 million of the first, and a million of the others."""

from __future__ import annotations

import re

import pytest

from tests.native import ROOT, SANITIZED, build, run

_FUZZERS = sorted(path.stem for path in (ROOT / "tests" / "fuzz").glob("fuzz_sync_*.c"))


def _fuzz(name: str, count: int, seed: int) -> dict[str, int]:
    """{what happened: how often}."""
    text = run([str(build("address", name) / name), str(count), str(seed)], env=SANITIZED, timeout=3000)
    found = re.match(r"(\d+) inputs: (\d+) fine; (\d+) frames, (\d+) messages; refused(.*)", text)
    assert found, text
    return {
        "inputs": int(found[1]), "fine": int(found[2]), "frames": int(found[3]), "messages": int(found[4]),
        **{words.strip(): int(number) for words, number in re.findall(r"([a-z ]+) (\d+)", found[5])},
    }  # fmt: skip


@pytest.mark.parametrize("name", _FUZZERS)
def test_changed_sessions(name: str) -> None:
    count = 200_000 if name == "fuzz_sync_stream" else 20_000
    found = _fuzz(name, count, 1)
    print(f"{name}: {found}")
    assert found["inputs"] == count
    # Neither all refused at the door nor all let in; and every check of a header has been reached.
    assert count // 50 < found["fine"] < count * 9 // 10
    assert found["frames"] > count // 50 and found["messages"] > count // 50
    assert {"malformed", "checksum", "version", "unexpected frame", "unknown tensor", "wrong length"} <= found.keys()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 22))
@pytest.mark.parametrize("name", _FUZZERS)
def test_changed_sessions_at_length(name: str, seed: int) -> None:
    _fuzz(name, 500_000 if name == "fuzz_sync_stream" else 50_000, seed)
