"""linnet.pack: a copy of a model whose file also holds the weights as the kernels of a machine pack them (docs/format.md).
Sessions use these weights in place, so they pack nothing when they are created."""

from __future__ import annotations

import dataclasses
import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from linnet.clib.errors import UsageError
from linnet.clib.ffi import ffi
from linnet.clib.library import library, new_struct
from linnet.file.atomic import write_atomic
from linnet.file.reader import read_linnet, read_model
from linnet.file.writer import chunks
from linnet.ir.graph import Graph
from linnet.ir.user_op import UserOp, register
from linnet.session.model import Model, isa_names, string_of
from linnet.session.planner import Planner

_ELSEWHERE = ("sse2", "avx2", "avx512", "avx512vnni", "neon", "dotprod", "i8mm", "neon32")  # of some build


@dataclasses.dataclass(frozen=True)
class Packed:
    """What linnet.pack has written. isas: the instruction sets for which the weights were packed. constants, bytes: how
    many packed constants the file holds, and their size. file_bytes: the size of the file."""

    output: str
    isas: tuple[str, ...]
    constants: int
    bytes: int
    file_bytes: int


def pack(
    model: str | Path | Graph,
    output: str | Path,
    target: str | Sequence[str] = "native",
    *,
    signature: str = "infer",
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | None = None,
    user_ops: Iterable[UserOp] = (),
) -> Packed:
    """Writes a copy of a model that also holds its weights as kernels pack them. Sessions map these weights and use them in
    place. On another machine or with another version of linnet, kernels may pack weights in another way. The session
    then packs them itself, as usual.

    model: a .lnt file or a Graph. target: "native" for all instruction sets of this machine, or one of isa_names(), or
    several of these names. signature, input_shapes, threads: what the sessions will use; they influence which kernels a
    plan takes.
    threads: None packs for one thread and for the number of cores.
    Results have the same bits with a packed file as without. The file is written atomically. Raises FileError,
    GraphError, UsageError (a target that this machine cannot pack for).
    """
    isas = [_isa_of(name) for name in dict.fromkeys([target] if isinstance(target, str) else target)]
    if not isas:
        raise UsageError("no target is given", code=101, expected=_expected(), hint="give target='native'")
    graph = model if isinstance(model, Graph) else _load(Path(model), user_ops)
    opened = Model(graph, user_ops=user_ops)
    blocks: dict[str, Any] = {}
    used: list[str] = []
    for isa in isas:
        for count in (1, None) if threads is None else (threads,):
            planner = Planner(opened, signature, threads=count, isa_max=isa)
            planner.plan({name: tuple(shape) for name, shape in (input_shapes or {}).items()})
            used.append(planner.plan_info["isa"])
            _collect(planner, blocks)
    write_atomic(Path(output), chunks(graph, blocks))
    total = sum(block.nbytes for block in blocks.values())
    return Packed(os.fspath(output), tuple(dict.fromkeys(used)), len(blocks), total, os.stat(output).st_size)


def _load(path: Path, user_ops: Iterable[UserOp]) -> Graph:
    """The graph of a file. The file stays mapped into memory."""
    try:
        with open(path, "rb") as file:
            content: bytes | mmap.mmap = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        content = read_linnet(path)  # reports what is wrong
    graph = read_model(Graph(), content, str(path))
    register(graph.user_ops, user_ops)
    return graph


def _expected() -> str:
    return ", ".join(["native", *isa_names()])


def _isa_of(target: str) -> str | None:
    """The value of isa_max for a target."""
    if target == "native" or target in isa_names():
        return None if target == "native" else target
    if target in _ELSEWHERE:
        raise UsageError(
            f"this machine cannot pack for '{target}'",
            code=102,
            tensor=target,
            expected=_expected(),
            hint=f"run linnet pack on a machine that has {target}: kernels pack only on processors that can run them",
        )
    raise UsageError(
        f"there is no target '{target}'",
        code=102,
        tensor=target,
        expected=_expected(),
        hint="give native, or the name of an instruction set",
    )


def _collect(planner: Planner, blocks: dict[str, Any]) -> None:
    """Adds what the plan packs, by key."""
    lib, info, plan = library(), new_struct("linnet_packed"), planner._current_plan()
    number = 0
    while not lib.linnet_plan_get_packed(plan, number, ffi.NULL, info):
        key = string_of(info.key)
        if key not in blocks:
            block = np.empty(info.bytes, np.uint8)
            lib.linnet_plan_get_packed(plan, number, ffi.from_buffer(block, require_writable=True), info)
            blocks[key] = block
        number += 1
