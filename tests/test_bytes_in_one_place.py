"""Bytes are computed from a count of elements in one place, base/types.c, because i4 and u4 have two elements in a byte.
Elsewhere only kernels for elements of whole bytes, and tools that read arrays of other formats, ask for an element's size."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    path for folder in ("runtime_c", "kernels_x86", "kernels_arm") for path in (ROOT / folder).rglob("*.[chi]*")
)
# Folders and files that may ask for the size of an element, with the reason.
ALLOWED = {
    "runtime_c/base/types": "defines it",
    "runtime_c/base/library.c": "makes it public",
    "runtime_c/include/": "declares it",
    "runtime_c/fast/": "kernels; an op reaches them only with elements of whole bytes",
    "runtime_c/map/": "registers and loads of whole bytes; `map` is not defined for i4 and u4",
    "runtime_c/ops/": "kernels; those for i4 and u4 read elements with ln_load_i64",
    "kernels_arm/": "kernels",
    "runtime_c/tools/": "arrays in NPY files and batches of them, which have no i4 and u4",
    "runtime_c/sync/codec/manifest.c": "tensors of the wire, which have no i4 and u4: a size of 0 is refused",
    "runtime_c/sync/worker/worker_model.c": "the same tensors",
    "runtime_c/sync/worker/posix_rows.c": "indices, i32 or i64",
}
# Ops whose kernels may multiply by the size of an element are not defined for elements that share a byte.
PACKED = {"cast", "copy", "dequantize", "gather", "matmul", "quantize"}


def test_only_listed_files_ask_for_the_size_of_an_element() -> None:
    using = {
        str(path.relative_to(ROOT)) for path in SOURCES if re.search(r"\b(ln|linnet)_dtype_size\(", path.read_text())
    }
    assert not {name for name in using if not name.startswith(tuple(ALLOWED))}
    assert all(any(name.startswith(start) for name in using) for start in ALLOWED), "an exception that nothing needs"


@pytest.mark.parametrize("folder", ["plan", "run", "model", "kernel", "base"])
def test_planning_and_running_never_see_it(folder: str) -> None:
    for path in (ROOT / "runtime_c" / folder).rglob("*.[ch]"):
        if path.stem in ("types", "library"):
            continue
        text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
        assert "dtype_size(" not in text, f"{path}: use ln_bytes, ln_bytes_of or ln_offset_of_element"
        assert not re.search(r"\*\s*(\([a-z0-9_]+\)\s*)?ln_dtype_bits\(", text), path


def test_ops_with_packed_elements_are_few() -> None:
    found = {
        path.stem
        for path in (ROOT / "schema" / "ops").glob("*.toml")
        if {"i4", "u4"} & set(tomllib.loads(path.read_text())["dtypes"])
    }
    assert found <= PACKED
