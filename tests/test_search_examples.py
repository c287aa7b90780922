"""The examples of linnet.search in a short form, the study.toml of the documentation, and the count of instructions."""
# Dear: networks are trained, and an emulated processor runs them.

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from examples.search import instructions, sounds
from linnet.deploy import standard_models
from tests.count.counts import count, driver
from tests.native import ROOT, build, need

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of tools for the processors that qemu emulates, which LINNET_TARGETS names."""
    need("qemu-aarch64")
    (tmp_path / "targets" / "aarch64").mkdir(parents=True)
    made = build("deploy-aarch64", "linnet-bench") / "linnet-bench"
    (tmp_path / "targets" / "aarch64" / "linnet-bench").symlink_to(made)
    monkeypatch.setenv("LINNET_TARGETS", str(tmp_path / "targets"))
    return tmp_path


def example(name: str, out: Path, *arguments: object) -> str:
    words = [sys.executable, "-m", f"examples.search.{name}", "--out", str(out), *map(str, arguments)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    with Image.open(out / "front.png") as picture:
        assert len(picture.convert("RGB").getcolors(1 << 24) or []) > 10
    assert (out / "study.html").read_text().startswith("<!doctype html>")
    return done.stdout


def test_digits(tmp_path: Path) -> None:
    words = ("--trials", 3, "--digits", 300, "--epochs", 2)
    text = example("digits", tmp_path / "out", *words)
    lines = [line for line in text.splitlines() if line.startswith("trial ")]
    assert len(lines) == 3 and "bytes at most 25.0 kB" in text and "3 trials: " in text
    assert max(float(n) for n in re.findall(r"accuracy (0\.\d+|1),", text)) > 0.3, "it learns: guessing gives 0.1"
    again = example("digits", tmp_path / "out", *words)
    assert not re.search("^trial ", again, re.MULTILINE) and "3 trials: " in again, "the study is complete"


def test_keywords(tools: Path) -> None:
    need("espeak-ng")
    text = example("keywords", tools / "out", "--trials", 2, "--rounds", 1, "--epochs", 3)
    counts = [int(n.replace(",", "")) for n in re.findall(r"instructions ([\d,]+), bytes", text)]
    assert len(counts) == 2 and all(100_000 < n < 6_000_000 for n in counts)
    assert max(float(n) for n in re.findall(r"accuracy (0\.\d+|1),", text)) > 0.25, "twice what guessing gives"
    assert "6,000,000 instructions stand in for 5 ms" in text


def test_words_are_spoken_by_other_voices(tmp_path: Path) -> None:
    need("espeak-ng")
    x, t = sounds.words(True, 1, tmp_path)
    assert x.shape == (96, 1, 49, 10) and x.dtype == np.float32 and np.isfinite(x).all() and t.dtype == np.int32
    np.testing.assert_array_equal(np.bincount(t), [12] * 8)
    assert not set(sounds._TRAIN) & set(sounds._TEST)
    np.testing.assert_array_equal(sounds.words(True, 1, tmp_path)[0], x)


def test_coefficients_tell_tones_apart() -> None:
    time = np.arange(sounds.RATE) / sounds.RATE
    low, high, louder = (
        sounds.coefficients(a * np.sin(2 * np.pi * f * time)) for a, f in ((0.1, 200), (0.1, 3000), (1, 200))
    )
    assert low.shape == (49, 10) and np.ptp(low, axis=0).max() < 0.2, "a tone that lasts does not change"
    assert low[:, 1].min() > high[:, 1].max(), "coefficient 1 is higher where the power is at low frequencies"
    assert (louder[:, 0] > low[:, 0]).all()


def test_instructions_are_those_of_a_run(tools: Path) -> None:
    """As `make count` counts them, which marks the run in a driver of its own."""
    model = standard_models.MODELS["kws"]().to_bytes()
    (tools / "kws.lnt").write_bytes(model)
    counter = instructions.Counter("cortex-a53", tools)
    expected = count(tools / "kws.lnt", "cortex-a53", driver("cortex-a53")).warm["all"]
    assert abs(counter.count(model) / expected - 1) < 0.01
    assert counter.count(model) == counter.count(model)


def test_what_cannot_be_counted(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert instructions.warm_run([900, 7, 50, 3, 50, 3, 50, 3]) == 50
    with pytest.raises(instructions.CountError, match="no count repeats among 3"):
        instructions.warm_run([1, 2, 3])
    with pytest.raises(instructions.CountError, match="cortex-a7 is no 64-bit ARM"):
        instructions.Counter("cortex-a7", tools)
    with pytest.raises(instructions.CountError, match=r"qemu-aarch64 failed: .*model"):
        instructions.Counter("cortex-a53", tools).count(b"no model")
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(instructions.CountError, match="apt-get install qemu-user"):
        instructions.Counter("cortex-a53", tools)


def test_the_study_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linnet_command: Command) -> None:
    page = (ROOT / "docs" / "search.md").read_text()
    [study] = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    function = re.findall(r"^```python\n(.*?)^settings = ", page, re.MULTILINE | re.DOTALL)[0]
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "examples" / "mnist_small" / "samples.npz", tmp_path)
    (tmp_path / "study.toml").write_text(study)
    (tmp_path / "digits.py").write_text(
        function + "\ndef evaluate(run):\n    return float(run({'x': data['x'][:1]}) is None)\n"
    )
    done = linnet_command("search", "study.toml", "--trials", 2)
    assert done.returncode == 0 and "2 trials: 2 complete" in done.stdout, done.stderr
    for line in re.findall(r"^# (\w+ = .*)$", study, re.MULTILINE):  # what it says to uncomment is understood
        study = study.replace(f"# {line}", line)
    (tmp_path / "study.toml").write_text(study)
    shown = linnet_command("search", "study.toml", "--show")
    assert shown.returncode == 1 and "with other settings; expected space: " in shown.stderr, shown.stderr
