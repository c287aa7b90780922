"""Runs Python tests on libraries built with the sanitizers of either compiler: random shapes, training and recurrent layers reach
code of the fast kernels that the C suite alone does not. `make soak` runs many more of them."""
# Dear: Python tests run again with a sanitized library.

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native import ROOT, SANITIZED, build, run

COMPILERS = {"address": ("cc", "libasan.so"), "address-clang": ("clang", "libclang_rt.asan-x86_64.so")}
FILES = {
    "address": ["graph_regressions", "user_ops"],
    "address-clang": ["graph_regressions", "recurrent_gradient", "user_ops"],
}
# Files whose tests start no compiler: it would be sanitized too.
MORE = [
    "autodiff", "data", "finetune", "gradients", "losses", "nn", "nn_sequences",
    "onnx_attention", "onnx_contrib", "onnx_detection", "onnx_nodes", "onnx_quantized", "onnx_rules", "onnx_sequences",
    "optimizers", "plan_random", "quantize", "quantize_aware", "random", "recurrent", "recurrent_gradient",
    "sparse",
    "tflite_control", "tflite_detection", "tflite_ops", "tflite_recurrent", "trainable", "training", "variables",
]  # fmt: skip


def _run(kind: str, names: list[str], folder: Path) -> None:
    compiler, runtime = COMPILERS[kind]
    library = build(kind, "linnet", "linnet_sync") / "liblinnet.so"
    preload = run([compiler, f"-print-file-name={runtime}"]).strip()
    if not Path(preload).is_absolute():
        pytest.skip(f"{compiler} has no {runtime}")
    log = folder / "sanitizer"
    env = {
        **os.environ, **SANITIZED, "LD_PRELOAD": preload, "LINNET_LIBRARY": str(library),
        # Python itself leaks. Reports go to a file, because pytest captures the output of a dying process.
        "ASAN_OPTIONS": f"detect_leaks=0:exitcode=99:allocator_may_return_null=1:log_path={log}",
        "UBSAN_OPTIONS": f"{SANITIZED['UBSAN_OPTIONS']}:log_path={log}",
    }  # fmt: skip
    files = [f"tests/test_{name}.py" for name in names]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files],
        cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=3600,
    )  # fmt: skip
    reports = "".join(path.read_text(errors="replace")[:4000] for path in folder.glob("sanitizer.*"))
    assert done.returncode == 0 and not reports, f"{reports}\n{(done.stdout + done.stderr)[-3000:]}"
    assert " passed" in done.stdout


@pytest.mark.more
@pytest.mark.parametrize("kind", COMPILERS)
def test_python_tests_under_sanitizers(kind: str, tmp_path: Path) -> None:
    _run(kind, FILES[kind], tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("name", MORE)
@pytest.mark.more
@pytest.mark.parametrize("kind", COMPILERS)
def test_python_tests_under_sanitizers_at_length(kind: str, name: str, tmp_path: Path) -> None:
    _run(kind, [name], tmp_path)
