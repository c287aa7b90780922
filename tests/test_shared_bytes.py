"""Files that refer to the same bytes many times: tensors may share a segment, but a small file cannot make a reader read a
megabyte a hundred thousand times. Both readers refuse it after work in proportion to the file."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import flatbuffers
import numpy as np
import pytest

import linnet
from linnet._generated.fb import Function, Model, Segment, Signature, Tensor
from linnet.file.digests import crc32c
from linnet.file.layout import HEADER, MAGIC
from linnet.file.reader import from_bytes

F32 = 1
Builder = flatbuffers.Builder


def file_of(structure: Callable[[Builder, int], int], tail: bytes) -> bytes:
    """A file with `tail` behind its structure. structure: builds the table Model, given the offset of `tail`."""

    def built(at: int) -> bytes:
        builder = Builder(1024)
        builder.Finish(structure(builder, at), file_identifier=b"LNT1")
        content = bytes(builder.Output())
        return content + bytes(-len(content) % 64)

    start = HEADER.size + len(built(1 << 40))
    content = built(start)
    crc, size = zlib.crc32(content), start + len(tail)
    return HEADER.pack(MAGIC, 1, 1, HEADER.size, len(content), crc, 0, size).ljust(64, b"\0") + content + tail


def offsets(builder: Builder, entries: Sequence[int]) -> int:
    builder.StartVector(4, len(entries), 4)
    for entry in reversed(entries):
        builder.PrependUOffsetTRelative(entry)
    return int(builder.EndVector())


def numbers(builder: Builder, *values: int, width: int = 4) -> int:
    return int(builder.CreateNumpyVector(np.array(values, np.int32 if width == 4 else np.int64)))


def model(
    segments: Sequence[tuple[int, int]], constants: Sequence[int], tail: bytes, digests: bool, name: str = ""
) -> bytes:
    """A file that returns its input x as y0, and constants. segments: (first byte, number of bytes) in `tail`. constants: the
    segment of each constant; their names are `name` and share its bytes if it is given."""

    def structure(b: Builder, at: int) -> int:
        made = []
        for first, size in segments:
            Segment.Start(b)
            Segment.AddOffset(b, at + first)
            Segment.AddSize(b, size)
            if digests:
                Segment.AddDigestKind(b, 2)
                Segment.AddDigest(b, crc32c(tail[first : first + size]))
            made.append(Segment.End(b))
        table, tensors = offsets(b, made), []
        shared = b.CreateString(name)
        for k, segment in enumerate([-1, *constants]):
            text = shared if name and k else b.CreateString(f"t{k}")
            shape = numbers(b, segments[segment][1] // 4 if k else 4, width=8)
            Tensor.Start(b)
            Tensor.AddName(b, text)
            Tensor.AddDtype(b, F32)
            Tensor.AddRank(b, 1)
            Tensor.AddShape(b, shape)
            Tensor.AddSegment(b, segment)
            tensors.append(Tensor.End(b))
        ports = [
            offsets(b, tensors),
            numbers(b, 0),
            numbers(b, *range(len(tensors))),
            b.CreateString("main"),
            b.CreateString("infer"),
        ]
        names = [offsets(b, [b.CreateString("x")]), offsets(b, [b.CreateString(f"y{k}") for k in range(len(tensors))])]
        Function.Start(b)
        Function.AddName(b, ports[3])
        Function.AddTensors(b, ports[0])
        Function.AddInputs(b, ports[1])
        Function.AddOutputs(b, ports[2])
        functions = offsets(b, [Function.End(b)])
        Signature.Start(b)
        Signature.AddName(b, ports[4])
        Signature.AddInputs(b, names[0])
        Signature.AddOutputs(b, names[1])
        signatures = offsets(b, [Signature.End(b)])
        Model.Start(b)
        Model.AddFunctions(b, functions)
        Model.AddSignatures(b, signatures)
        Model.AddSegments(b, table)
        return int(Model.End(b))

    return file_of(structure, tail)


def refused(content: bytes, match: str) -> None:
    for read in (linnet.Model, from_bytes):
        with pytest.raises(linnet.FileError, match=match):
            read(content)


@pytest.mark.parametrize("digests", [False, True])
def test_tensors_may_share_a_segment(digests: bool) -> None:
    tail = np.arange(32, dtype=np.float32).tobytes()
    content = model([(0, 64), (64, 64), (64, 0)], [0, 1, 0, 0, 1, 2], tail, digests)
    assert linnet.Session(content).run({"x": np.ones(4, np.float32)})["y0"].tolist() == [1] * 4
    data = [t.data for t in from_bytes(content).functions[0].tensors() if t.data is not None]
    assert [len(array) for array in data] == [16, 16, 16, 16, 16, 0]
    assert np.shares_memory(data[0], data[2]) and data[1][0] == 16


@pytest.mark.parametrize("digests", [False, True])
@pytest.mark.parametrize("count", [3, 2000])
def test_segments_do_not_overlap(count: int, digests: bool) -> None:
    """Their digests are computed one by one: 120,000 segments over the same megabyte took 20 s."""
    refused(model([(0, 1 << 16)] * count, [], bytes(1 << 16), digests), "overlaps other")


def test_strings_are_shared_within_a_limit() -> None:
    tail = bytes(64)
    assert linnet.Model(model([(0, 64)], [0], tail, True, "n" * 10_000)).signatures
    refused(model([(0, 64)], [0] * 500, tail, True, "n" * 100_000), "the same bytes are referenced too many times")
