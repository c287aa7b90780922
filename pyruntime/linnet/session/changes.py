"""What each pass of planning changed. docs/architecture.md says what each pass does."""

from __future__ import annotations

import dataclasses
from typing import Any

from linnet.clib.library import library, new_struct
from linnet.session.model import string_of


@dataclasses.dataclass(frozen=True)
class PassChange:
    """A pass, and the numbers of nodes, values and bytes before and after it.

    ran: false if the plan left the pass out. moved: number of nodes that come after a node that they came before.
    fused: number of nodes that have become epilogues. bytes: before the pass "alias", the bytes of all results; from
    "alias" on, the bytes of the buffers that results share; from "offsets" on, the bytes of the memory that buffers
    share."""

    name: str
    ran: bool
    added: int
    removed: int
    moved: int
    fused: int
    nodes: tuple[int, int]
    values: tuple[int, int]
    bytes: tuple[int, int]


def changes_of(plan: Any) -> list[PassChange]:
    """The passes of a plan, in order. The plan must have been made with linnet_plan_config.passes."""
    lib, info, found = library(), new_struct("linnet_plan_pass"), list[PassChange]()
    while not lib.linnet_plan_get_pass(plan, len(found), info):
        found.append(
            PassChange(
                string_of(info.name), bool(info.ran), info.added, info.removed, info.moved, info.fused,
                (info.nodes_before, info.nodes_after), (info.values_before, info.values_after),
                (info.bytes_before, info.bytes_after),
            )
        )  # fmt: skip
    return found
