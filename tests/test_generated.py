"""Generated files match the generator: a changed .toml without regenerated outputs fails here."""

from __future__ import annotations

import subprocess
import sys

from tests.native import ROOT, need


def test_generated_files_are_current() -> None:
    need("flatc")
    done = subprocess.run(
        [sys.executable, str(ROOT / "schema" / "generate.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr or done.stdout


def test_generator_names_what_is_missing() -> None:
    """Without flatc the generator says in one line how to get it."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "schema" / "generate.py"), "--check"],
        capture_output=True, text=True, check=False, timeout=60, env={"PATH": ""},
    )  # fmt: skip
    assert done.returncode != 0
    assert "flatbuffers-compiler" in done.stderr
    assert "Traceback" not in done.stderr
