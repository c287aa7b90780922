"""Every kernel that the quick cases of `linnet check-device` reach compiles with nvcc for each architecture without a register in
memory. tests/cuda/registers.json has the programs and registers of each kernel (tests/cuda/texts.py writes it)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cuda import texts
from tests.cuda.nvcc import need_nvcc

OF_ANOTHER_NVCC = 8  # registers by which another version may differ
MOST = 66  # texts per architecture in `make test-more`; `make soak` compiles all


def table(compute: int) -> dict[str, dict[str, int]]:
    known = json.loads(texts.TABLE.read_text())
    prefix = f"sm_{compute} "
    return {name.removeprefix(prefix): of for name, of in known.items() if name.startswith(prefix)}


def test_the_table_has_no_spills() -> None:
    known = json.loads(texts.TABLE.read_text())
    assert {name.partition(" ")[0] for name in known} == {f"sm_{compute}" for compute in texts.TARGETS}
    assert [name for name, of in known.items() if of["spilled"] or not 0 < of["registers"] <= 255] == []


@pytest.mark.parametrize("compute", texts.TARGETS)
def test_the_texts_are_those_of_the_table(compute: int, tmp_path: Path) -> None:
    """Without nvcc: each kernel of the table has a text."""
    texts.write(tmp_path, compute)
    names = {name for path in tmp_path.glob("*.cu") for name in texts.kernels_in(path.read_text())}
    assert set(table(compute)) <= names


@pytest.mark.more
@pytest.mark.parametrize("compute", texts.TARGETS)
@pytest.mark.parametrize("most", [MOST, pytest.param(10**6, marks=pytest.mark.soak)])
def test_kernels_keep_their_registers(compute: int, most: int, tmp_path: Path) -> None:
    nvcc, known = need_nvcc(), table(compute)
    texts.write(tmp_path, compute)
    found = texts.compile_all(nvcc, texts.chosen(tmp_path, most), compute)
    # The preprocessor chooses one of several kernels in some texts, so a sample of the texts can miss a kernel.
    assert set(found) <= set(known), "python -m tests.cuda.texts writes the table anew"
    for kernel, of in found.items():
        assert of["spilled"] == 0, f"{kernel} keeps registers in memory: {of}"
        assert of["registers"] <= known[kernel]["registers"] + OF_ANOTHER_NVCC, (kernel, of, known[kernel])
    if most > MOST:
        programs = {kernel: of["programs"] for kernel, of in found.items()}
        assert programs == {kernel: of["programs"] for kernel, of in known.items()}
