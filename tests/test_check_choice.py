"""What `make check` chooses (tests/check.py): its table names what exists and covers every file of C, and a change of Python
finds the tests that import it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import check
from tests.native import c_tests
from tests.tree import ROOT


def test_the_table_names_what_exists() -> None:
    programs, files = set(), set()
    for prefix in check.COVERED:
        assert any(True for _ in (ROOT / prefix).parent.glob(f"{Path(prefix).name}*")), prefix
        more, tests = check.covering(prefix)
        programs |= set(more)
        files |= set(tests)
    assert programs == set(c_tests()), "a C test that no change of C chooses, or one that is gone"
    assert [name for name in files if not (ROOT / name).exists()] == []


def test_every_file_of_c_is_covered() -> None:
    folders = (ROOT / name for name in ("runtime_c", "kernels_x86", "kernels_arm"))
    files = [str(path.relative_to(ROOT)) for folder in folders for path in folder.rglob("*.[chi]*") if path.is_file()]
    assert len(files) > 300
    assert [name for name in files if name.endswith((".c", ".h", ".inc")) and check.covering(name) == ([], [])] == []


@pytest.mark.parametrize(
    ("path", "test"),
    [
        ("pyruntime/linnet/session/session.py", "tests/test_session.py"),
        ("converters/onnx/rules/convolution.py", "tests/test_onnx_attributes.py"),
        ("pyruntime/linnet/cli/bench.py", "tests/test_cli.py"),
        ("pyruntime/linnet/optimizers/__init__.py", "tests/test_optimizers.py"),
        ("pyruntime/linnet/quantization/entry.py", "tests/test_quantize.py"),
        ("tests/nets.py", "tests/test_cross.py"),
        ("tests/test_feeds.py", "tests/test_feeds.py"),
        ("docs/running.md", "tests/test_docs.py"),
        ("runtime_c/plan/graph/fold.c", "tests/test_plan_random.py"),
    ],
)
def test_choice(path: str, test: str) -> None:
    assert test in check.choose([path])[1]


def test_c_tests_follow_the_folder() -> None:
    assert "test_gemm" in check.choose(["kernels_x86/gemm/some.c"])[0]
    assert check.choose(["runtime_c/base/resting.c"])[0] == ["test_threads"]
    assert check.choose(["tests/c/test_gemm.c"])[0] == ["test_gemm"]
    assert check.choose(["LICENSE"]) == ([], {})
