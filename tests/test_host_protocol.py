"""The part Hosts of docs/protocol.md against itself and the C code: layouts without gaps, the same numbers as in C, vectors made
from the page's tables, and a client that was written from the page and works with linnet-host."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import time
from pathlib import Path

import numpy as np
import pytest

import linnet
from tests import host_document_client as client
from tests import sync_protocol as page
from tests.host_document_client import Client, Failed, Refused, part, upload
from tests.native import ROOT
from tests.remote_host import host
from tests.test_remote import small, values

_REMOTE = ROOT / "runtime_c" / "remote"
_WIRE = (_REMOTE / "wire.h").read_text()
_STATUS = {"NOT_FOUND": 201, "CORRUPT": 206, "OUT_OF_MEMORY": 401, "PROTOCOL_ERROR": 604}


def _size(title: str) -> int:
    return page.size_of(page.layout(title))


def _number(name: str) -> int:
    found = re.search(rf"\bLN_REMOTE_{name} = ([0-9< ]+)[,; }}]", _WIRE)
    assert found, name
    return int(eval(found[1], {}))


@pytest.mark.parametrize("title", [*client.CODES, "ANSWER", "RECIPE", client.RECORD, *client.TITLES.values()])
def test_layouts_have_no_gaps(title: str) -> None:
    at = 0
    for field in page.layout(title):
        assert field.offset == at, f"{title}: {field.name} at {field.offset}, expected {at}"
        at += page.size_of([field])
    stated = re.search(rf"^### {title} \((\d+) bytes\)$", page.DOCUMENT.read_text(), re.M)
    assert stated and int(stated[1]) == at


def test_numbers_are_those_of_the_code() -> None:
    types = dict(re.findall(r"LN_REMOTE_(\w+) = (\d+),", _WIRE.partition("ln_remote_protocol")[0]))
    assert {**types, "REFUSE": "5"} == {name: str(number) for name, number in client.TYPES.items()}
    codes = re.search(r"typedef enum ln_remote_code \{(.*?)LN_REMOTE_CODES", _WIRE, re.S)
    assert codes
    numbers: dict[str, int] = {}
    for name, number in re.findall(r"^ +LN_REMOTE_(\w+)(?: = (\d+))?", codes[1], re.M):
        numbers[name] = int(number) if number else max(numbers.values()) + 1
    assert numbers == client.CODES
    words = {name: int(n) for name, n in re.findall(r"\[LN_REMOTE_(\w+)\] = (\d+)", (_REMOTE / "wire.c").read_text())}
    for cells in page.rows("Commands of hosts", 4):
        name = cells[1]
        assert words[name] == (_size(name) - 8) // 8 == (int(cells[2].split()[0]) - 8) // 8
        assert unpacked_code(name) == client.CODES[name]
    sizes = {"HELLO_BYTES": client.TITLES["HELLO"], "WELCOME_BYTES": client.TITLES["WELCOME"], "ANSWER_BYTES": "ANSWER"}
    sizes |= {"RUN_BYTES": client.TITLES["last run"], "TIME_BYTES": client.TITLES["time"]}
    sizes |= {"TEXT_BYTES": client.TITLES["step"]}
    sizes |= {"RECIPE_BYTES": "RECIPE", "HOLE_BYTES": client.TITLES["hole"]}
    for constant, title in {**sizes, "RECORD": client.RECORD}.items():
        assert _number(constant) == _size(title)
    assert _number("MISSING") == client.MISSING and _number("VERSION") == 1 and _number("CHUNK") == 1 << 20


def unpacked_code(name: str) -> int:
    """The code that the table of a command states."""
    (row,) = (cells for cells in page.rows(name, 4) if cells[2] == "code")
    return int(row[3].rstrip(" |"))


def test_vectors_are_made_from_the_tables() -> None:
    block = re.search(r"```\n(.*?)```", page.section("Vectors of hosts"), re.S)
    assert block
    found = re.findall(r"^(\w+):(.*)\n((?:[0-9a-f]+\n)+)", block[1], re.M)
    assert len(found) >= 8
    for name, fields, lines in found:
        given: dict[str, page.Value] = {}
        more = b""
        for key, value in re.findall(r"(\w+)=(\w+)", fields):
            if key == "then":
                more = bytes.fromhex(value)
            else:
                given[key] = bytes.fromhex(value) if key in ("token", "digest", "name") else int(value)
        made = part(name, **given) + client.padded(more)
        made = client.frame(name, made) if name in client.TITLES else made
        assert made.hex() == lines.replace("\n", ""), name


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("piece") / "small.lnt"
    small().save(path)
    return path.read_bytes()


SIZE = 4 * 8 * 64  # bytes of the input and of the output


def test_the_client_of_the_page_runs_a_piece(file: bytes) -> None:
    rng = np.random.default_rng(2)
    with host("127.0.0.1:0", "--threads", "1", "--max-bytes", "8MB") as there:
        one = Client(there.address)
        assert one.welcome["version"] == 1 and one.welcome["threads"] == 1
        assert one.welcome["most_bytes"] == 8_000_000 and client.text(one.welcome["name"])
        one.submit(part("NOTHING"), part("ALLOCATE", buffer=7, bytes=SIZE), part("ALLOCATE", buffer=8, bytes=2 * SIZE))
        assert one.prepare(3, file, [(7, 0, SIZE)], [(8, 64, SIZE)])
        other = Client(there.address, token=one.token)  # the same client, by another connection
        session = linnet.Session(small(), threads=1)
        for connection in (one, other, one):
            x = rng.standard_normal((8, 64)).astype(np.float32)
            (y,) = connection.submit(
                upload(7, x.tobytes()), part("RUN", piece=3), part("DOWNLOAD", buffer=8, offset=64, bytes=SIZE),
                downloads=[SIZE],
            )  # fmt: skip
            expected = values(session.run({"x": x}))[0]
            assert y == expected.tobytes()
        (copied,) = one.submit(
            part("COPY", buffer=8, offset=64, to_buffer=8, to_offset=SIZE + 64, bytes=12),
            part("DOWNLOAD", buffer=8, offset=SIZE + 64, bytes=12), downloads=[12],
        )  # fmt: skip
        assert copied == y[:12]
        (zeroed,) = one.submit(
            part("ZERO", buffer=8, offset=SIZE + 68, bytes=4),
            part("DOWNLOAD", buffer=8, offset=SIZE + 64, bytes=12), downloads=[12],
        )  # fmt: skip
        assert zeroed == y[:4] + bytes(4) + y[8:12]
        assert not other.prepare(4, file, [(7, 0, SIZE)], [(8, SIZE, SIZE)])  # the host has the piece
        with pytest.raises(Failed, match="bound") as failed:
            one.submit(part("NOTHING"), part("RELEASE", buffer=8))
        assert (failed.value.status, failed.value.command) == (_STATUS["PROTOCOL_ERROR"], 1)
        one.submit(part("UNPREPARE", piece=3), part("UNPREPARE", piece=4), part("UNPREPARE", piece=5))
        one.submit(part("RELEASE", buffer=8), part("RELEASE", buffer=7), part("RELEASE", buffer=9))
        one.close()
        other.close()


def test_a_host_says_when_the_steps_of_a_traced_piece_ran(file: bytes) -> None:
    with host("127.0.0.1:0", "--threads", "1") as there:
        one = Client(there.address)
        one.submit(part("ALLOCATE", buffer=7, bytes=SIZE), part("ALLOCATE", buffer=8, bytes=2 * SIZE))
        places = [(7, 0, SIZE)], [(8, 0, SIZE)]
        one.prepare(1, file, *places)
        one.submit(one.preparation(2, file, [(7, 0, SIZE)], [(8, SIZE, SIZE)], flags=1))
        sent = time.monotonic_ns()  # one machine has one clock
        one.submit(part("RUN", piece=1), part("RUN", piece=2))
        head, times = client.TITLES["last run"], client.TITLES["time"]
        (found,) = one.submit(part("TIMES", piece=2, step=0, count=9), downloads=[_size(head) + 9 * _size(times)])
        run = client.unpack(head, found)
        assert sent < run["begun"] < run["start"] < run["end"] < run["now"] < time.monotonic_ns()
        assert 2 <= run["steps"] < 9 and run["fetched_ns"] == run["fetched_bytes"] == 0
        (texts,) = one.submit(part("STEPS", piece=2, step=1, count=9), downloads=[9 * 128])
        for i in range(9):
            step = client.unpack(times, found[_size(head) + 16 * i :])
            name = client.unpack(client.TITLES["step"], texts[128 * (i - 1) :]) if i > 0 else None
            if i >= run["steps"]:
                assert step["start"] == step["ns"] == 0 and not any(texts[128 * (i - 1) :])
                continue
            assert run["start"] <= step["start"] and step["start"] + step["ns"] <= run["end"]
            assert name is None or (
                client.text(name["name"]) and client.text(name["op"]) and client.text(name["kernel"])
            )
        for bad in ({"piece": 1}, {"piece": 3}, {"piece": 2, "count": 1025}):
            for command in ("TIMES", "STEPS"):
                with pytest.raises(Failed) as failed:
                    one.submit(part(command, **bad))
                assert failed.value.status == _STATUS["PROTOCOL_ERROR"]
        with pytest.raises(Failed, match="unknown code"):
            one.submit(struct.pack("<II", 29, 0))
        one.close()


def test_a_host_predicts_what_a_piece_costs(file: bytes) -> None:
    """From its tables alone, and as linnet itself does."""
    end = sum(struct.unpack_from("<QQ", file, 16))  # of the tables
    assert end < len(file) - 4 * 64 * 64
    plan = linnet.Session(small(), threads=1).plan_info
    with host("127.0.0.1:0", "--threads", "1", "--max-bytes", "8MB") as there:
        one = Client(there.address)
        for size in (end, len(file)):
            command = part("PREDICT", file_bytes=len(file), bytes=size) + client.padded(file[:size])
            cost = client.unpack("What a piece costs", *one.submit(command, downloads=[16]))
            assert abs(cost["run_ns"] - 1e6 * plan["modelled_ms"]) <= 1
            assert 2 * SIZE < cost["session_bytes"] < 8_000_000
        for bad in ((end - 8, end), (1 << 50, end), (len(file), 0)):
            with pytest.raises(Failed) as failed:
                one.submit(part("PREDICT", file_bytes=bad[0], bytes=bad[1]) + client.padded(file[: bad[1]]))
            assert failed.value.record["what"]
        one.close()


def constants(file: bytes) -> list[tuple[int, int]]:
    """Offset and bytes of the weights of `small`."""
    rng = np.random.default_rng(3)
    found = [(rng.standard_normal((64, 64)).astype(np.float32) / 8).tobytes() for _ in range(2)]
    return [(file.index(data), len(data)) for data in found]


def test_the_client_of_the_page_sends_constants_once(file: bytes, tmp_path: Path) -> None:
    holes, x = constants(file), np.ones((8, 64), np.float32)
    expected = values(linnet.Session(small(), threads=1).run({"x": x}))[0].tobytes()
    for options in ((), ("--folder", str(tmp_path))):
        with host("127.0.0.1:0", "--threads", "1", "--max-bytes", "8MB", *options) as there:
            one = Client(there.address)
            one.submit(part("ALLOCATE", buffer=7, bytes=SIZE), part("ALLOCATE", buffer=8, bytes=SIZE))
            assert one.begin(client.recipe(file, holes), 2) == [True, True]
            one.send("CONSTANT", bytes(64 * 64 * 4))  # belongs to no hole
            with pytest.raises(Failed) as failed:
                one.submit(one.preparation(3, file, [(7, 0, SIZE)], [(8, 0, SIZE)]))
            assert failed.value.status == client.MISSING
            assert one.prepare(3, file, [(7, 0, SIZE)], [(8, 0, SIZE)], holes)
            (y,) = one.submit(
                upload(7, x.tobytes()), part("RUN", piece=3), part("DOWNLOAD", buffer=8, bytes=SIZE), downloads=[SIZE]
            )
            assert y == expected
            other = Client(there.address)  # another client, with another piece
            assert other.begin(client.recipe(file, holes[1:]), 1) == [False]
            one.close()
            other.close()
    assert hashlib.sha256(file).hexdigest() + ".lnt" in {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("holes", "wrong", "cut", "text"),
    [
        ([(0, 511)], {}, None, "fewer than 512 bytes"),
        ([(512, 1024), (1024, 1024)], {}, None, "begins before the end of the last one"),
        ([(1024, 512), (0, 512)], {}, None, "begins before the end of the last one"),
        ([(1 << 40, 512)], {}, None, "after the end of the file"),
        ([(0, 512)], {"holes": 65_537}, None, "more than 65536 holes"),
        ([(0, 512)], {"holes": 60_000}, None, "fewer holes than it says"),
        ([(0, 512)], {"size": 1 << 62}, None, "outside of the holes are too few"),
        ([(0, 512)], {}, -8, "outside of the holes are too few"),
        ([(0, 512)], {}, 40, "too few bytes"),
    ],
)
def test_recipes_that_lie_are_refused(
    file: bytes, holes: list[tuple[int, int]], wrong: dict[str, int], cut: int | None, text: str
) -> None:
    with host() as there:
        one = Client(there.address)
        with pytest.raises(Failed, match=text) as failed:
            one.begin(client.recipe(file, holes, **wrong)[:cut], 0)
        assert failed.value.status == _STATUS["PROTOCOL_ERROR"]
        assert one.begin(client.recipe(file, []), 0) == []  # and goes on
        one.close()


def test_a_recipe_must_make_the_file_that_it_names(file: bytes) -> None:
    changed = file[:-64] + bytes(64)
    with host() as there:
        one = Client(there.address)
        one.submit(part("ALLOCATE", buffer=7, bytes=SIZE), part("ALLOCATE", buffer=8, bytes=SIZE))
        recipe = client.recipe(file, [], digest=hashlib.sha256(changed).digest())
        one.begin(recipe, 0)
        with pytest.raises(Failed, match="does not make its piece") as failed:
            one.submit(one.preparation(3, changed, [(7, 0, SIZE)], [(8, 0, SIZE)]))
        assert failed.value.status == _STATUS["PROTOCOL_ERROR"]
        one.close()


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (part("ALLOCATE", buffer=1, bytes=64), "PROTOCOL_ERROR"),  # the number is in use
        (part("ALLOCATE", buffer=2, bytes=1 << 40), "OUT_OF_MEMORY"),
        (part("RUN", piece=1), "PROTOCOL_ERROR"),
        (part("DOWNLOAD", buffer=1, offset=60, bytes=5), "PROTOCOL_ERROR"),
        (part("UPLOAD", buffer=1, offset=0, bytes=64), "PROTOCOL_ERROR"),  # without its bytes
        (bytes([99, *bytes(7)]), "PROTOCOL_ERROR"),
    ],
)
def test_what_fails_is_answered_and_nothing_after_it_is_done(command: bytes, status: str) -> None:
    with host("127.0.0.1:0", "--max-bytes", "8MB") as there:
        one = Client(there.address)
        one.submit(part("ALLOCATE", buffer=1, bytes=64), upload(1, b"12345678"))
        with pytest.raises(Failed) as failed:
            one.submit(part("NOTHING"), upload(1, b"abcd"), command)
        assert (failed.value.status, failed.value.command) == (_STATUS[status], 2) and failed.value.record["what"]
        assert one.submit(part("DOWNLOAD", buffer=1, bytes=8), downloads=[8]) == [b"abcd5678"]
        one.close()


def test_another_version_is_refused() -> None:
    with host() as there:
        with pytest.raises(Refused) as refused:
            Client(there.address, version=2)
        assert page.rows("Refusals", 4)[refused.value.code - 1][1] == "BAD_VERSION"


def test_a_host_keeps_two_values_of_a_variable(tmp_path: Path) -> None:
    """Under the client's token, also when the host has started again; it never gives an older or damaged value."""
    keep = {"name": bytes(range(16)), "buffer": 7, "offset": 0, "bytes": 12}
    folder = ["--folder", str(tmp_path)]
    with host("127.0.0.1:0", *folder) as there:
        one = Client(there.address)
        one.submit(part("ALLOCATE", buffer=7, bytes=64))
        for number in (1, 2, 3, 3):
            one.submit(upload(7, bytes([number]) * 12), part("KEEP", **keep, number=number))
    with host("127.0.0.1:0", *folder) as there:
        again, other = Client(there.address, token=one.token), Client(there.address)
        again.submit(part("ALLOCATE", buffer=7, bytes=64))
        other.submit(part("ALLOCATE", buffer=7, bytes=64))
        download = part("DOWNLOAD", buffer=7, offset=0, bytes=12)
        for number in (3, 2):
            assert again.submit(part("RECALL", **keep, number=number), download, downloads=[12]) == [
                bytes([number]) * 12
            ]
        for client_, number in ((again, 1), (again, 4), (other, 3)):
            with pytest.raises(Failed, match="has not kept") as failed:
                client_.submit(part("RECALL", **keep, number=number))
            assert failed.value.status == _STATUS["NOT_FOUND"]
        (path,) = tmp_path.glob("*.kept")
        data = bytearray(path.read_bytes())
        data[4096] ^= 1  # the first slot has the even number
        path.write_bytes(data)
        with pytest.raises(Failed, match="damaged") as failed:
            again.submit(part("RECALL", **keep, number=2))
        assert failed.value.status == _STATUS["CORRUPT"]
        again.submit(part("RECALL", **keep, number=3))
    os.utime(path, (time.time() - 2 * 86400,) * 2)  # nobody has written it for two days
    with host("127.0.0.1:0", *folder):
        assert not list(tmp_path.glob("*.kept"))
    with host("127.0.0.1:0") as there:
        one = Client(there.address)
        one.submit(part("ALLOCATE", buffer=7, bytes=64))
        with pytest.raises(Failed, match="no folder"):
            one.submit(part("KEEP", **keep, number=1))
