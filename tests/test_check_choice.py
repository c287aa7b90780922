"""What `make check` chooses (tests/check.py): the tests that have executed the changed functions; where none is known, those that
import a module, and those of a table of folders, which names what exists and covers every file of C."""

from __future__ import annotations

import gzip
import json
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import check, contexts
from tests.native import c_tests
from tests.tree import ROOT

SESSION = "pyruntime/linnet/session/session.py"
KNOWN = {
    "tests": [
        "tests/test_session.py::test_one",
        "tests/test_feeds.py::test_two",
        "tests/test_c_suite.py::test_plain[test_plan]",
    ],
    "seconds": [1.0, 2.0, 3.0],
    "files": {SESSION: {"Session.run": [0], "Session.bind": [1]}, "runtime_c/plan/graph/fold.c": {"ln_fold": [2, 0]}},
}


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is known of other files."""
    monkeypatch.setattr(check, "CONTEXTS", tmp_path / "contexts.json.gz")
    check.CONTEXTS.write_bytes(gzip.compress(json.dumps(KNOWN).encode()))
    check.contexts.cache_clear()
    yield
    check.contexts.cache_clear()


def _lines(path: str, name: str) -> list[int]:
    return next([first] for found, first, _ in check.functions(path, (ROOT / path).read_text()) if found == name)


@pytest.mark.usefixtures("known")
def test_a_changed_function_chooses_the_tests_that_executed_it() -> None:
    for name, test in (("Session.run", 0), ("Session.bind", 1)):
        lines = _lines(SESSION, name)
        tests = check.choose([SESSION], lambda _, lines=lines: lines)[1]
        assert {t for t in tests if "::" in t} == {KNOWN["tests"][test]}
    programs, tests = check.choose(["runtime_c/plan/graph/fold.c"])  # which lines is not known
    assert programs == ["test_plan"] and KNOWN["tests"][0] in tests and "tests/test_plan_random.py" not in tests


@pytest.mark.usefixtures("known")
def test_functions_that_are_not_known_choose_from_their_file() -> None:
    tests = check.choose([SESSION], lambda _: [1])[1]
    assert {t for t in tests if "::" in t} == set(KNOWN["tests"][:2])


def test_functions_of_a_source() -> None:
    python = "import os\n\nclass A:\n    @property\n    def b(self):\n        def c(): ...\n        return c\n\ndef d(): ...\n"
    assert check.functions("a.py", python) == [("A.b", 4, 7), ("d", 9, 9)]
    native = (
        "#define M(x) (x)\nint a(int x);\nstatic int b(\n    int x) {\n    return x;\n}\nint c(void) { return 1; }\n"
    )
    assert check.functions("a.c", native) == [("b", 3, 6), ("c", 7, 7)]


def test_changed_lines_are_those_of_the_file_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "ROOT", tmp_path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    (tmp_path / "a.py").write_text("1\n2\n3\n4\n5\n")
    for words in (["init", "-q", "-b", "main"], ["add", "a.py"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    (tmp_path / "a.py").write_text("1\n2\nnew\nnew\n3\n5\n")
    (tmp_path / "b.py").write_text("1\n")
    assert check.changed_lines("main", "a.py") == [3, 4, 5]
    assert check.changed_lines("main", "b.py") is None


def test_what_is_kept_of_a_function() -> None:
    """The tests that execute the fewest functions besides, and few of one file."""
    tests = {f"tests/test_a.py::t{i}": (1.0, {"f.py:F", *(f"f.py:g{k}" for k in range(i))}) for i in range(5)}
    tests["tests/test_b.py::wide"] = (1.0, {"f.py:F", *(f"h.py:{k}" for k in range(50))})
    kept = contexts._kept(tests)
    chosen = [kept["tests"][number] for number in kept["files"]["f.py"]["F"]]
    assert chosen == ["tests/test_a.py::t0", "tests/test_a.py::t1", "tests/test_a.py::t2", "tests/test_b.py::wide"]


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
    folders = (ROOT / name for name in ("runtime_c", "kernels_x86", "kernels_arm", "kernels_gpu"))
    files = [str(path.relative_to(ROOT)) for folder in folders for path in folder.rglob("*.[chi]*") if path.is_file()]
    assert len(files) > 300
    assert [name for name in files if name.endswith((".c", ".h", ".inc")) and check.covering(name) == ([], [])] == []


@pytest.mark.parametrize(
    ("path", "test"),
    [
        ("pyruntime/linnet/session/device.py", "tests/test_devices.py"),
        ("converters/onnx/rules/convolution.py", "tests/test_onnx_attributes.py"),
        ("pyruntime/linnet/cli/bench.py", "tests/test_cli.py"),
        ("pyruntime/linnet/optimizers/__init__.py", "tests/test_optimizers.py"),
        ("pyruntime/linnet/quantization/entry.py", "tests/test_quantize.py"),
        ("tests/nets.py", "tests/test_cross.py"),
        ("tests/test_feeds.py", "tests/test_feeds.py"),
        ("docs/running.md", "tests/test_docs.py"),
        ("runtime_c/plan/graph/infer.c", "tests/test_plan_random.py"),
        ("kernels_gpu/common/pool.inc", "tests/test_opencl_norms.py"),
        ("kernels_gpu/cuda/cu.c", "tests/test_cuda_memory.py"),
        ("kernels_gpu/cuda/gemm_gradient.inc", "tests/test_cuda_gradients.py"),
        ("kernels_gpu/cuda/depthwise.inc", "tests/test_cuda_check.py"),
    ],
)
@pytest.mark.usefixtures("known")
def test_choice(path: str, test: str) -> None:
    assert test in check.choose([path])[1]


def test_every_file_of_the_gpu_libraries_chooses_a_test_of_its_backend() -> None:
    """Also without a list of what tests have executed: the kernels of common/ run on both backends."""
    files = [path for path in (ROOT / "kernels_gpu").rglob("*") if path.suffix in (".c", ".h", ".inc")]
    assert {path.parent.name for path in files} == {"common", "cuda", "opencl"}
    for path in files:
        tests = check.covering(str(path.relative_to(ROOT)))[1]
        for backend in {"cuda", "opencl"} & {path.parent.name} or {"cuda", "opencl"}:
            assert [name for name in tests if name.startswith(f"tests/test_{backend}")], path


@pytest.mark.usefixtures("known")
def test_c_tests_follow_the_folder() -> None:
    assert "test_gemm" in check.choose(["kernels_x86/gemm/some.c"])[0]
    assert check.choose(["runtime_c/base/resting.c"])[0] == ["test_threads"]
    assert check.choose(["tests/c/test_gemm.c"])[0] == ["test_gemm"]
    assert check.choose(["LICENSE"]) == ([], {})


def test_linters_leave_generated_files_out() -> None:
    """A changed header changes clib/ffi.py, which is generated and not formatted."""
    named = "pyruntime/linnet/clib/ffi.py"
    assert all("--force-exclude" in command for command in check.lint([named])[:2])
    with open(ROOT / "pyproject.toml", "rb") as file:
        assert named in tomllib.load(file)["tool"]["ruff"]["extend-exclude"]
