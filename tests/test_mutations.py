"""The list of mutations stays valid: each still applies, and its tests exist. The runner distinguishes noticed from unnoticed.
`make soak` applies all of them."""
# Dear: small libraries are built and tested with mutations.

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests import mutate
from tests.mutations import PARTS, Mutation, load
from tests.native import ROOT

REQUIRED = ("core", "ops", "kernels", "sync", "converters")
AT_LEAST, SCORE = 100, 0.95


def test_every_mutation_still_applies() -> None:
    """`old` occurs exactly once; if code has moved, the entry must follow."""
    wrong = []
    for mutation in load():
        path = ROOT / mutation.file
        count = path.read_text().count(mutation.old) if path.exists() else 0
        if count != 1 or mutation.old == mutation.new:
            wrong.append(f"{mutation.id}: its old text occurs {count} times in {mutation.file}")
    assert not wrong, "\n".join(wrong)


def test_every_mutation_names_tests_that_exist() -> None:
    wrong = []
    for mutation in load():
        assert mutation.tests and mutation.why, mutation.id
        for test in mutation.tests:
            if test.startswith("c:"):
                known = (ROOT / "tests" / "c" / f"{test[2:]}.c").exists()
            else:
                file, _, name = test.partition("::")
                path = ROOT / file
                known = path.exists() and (not name or f"def {name.split('[')[0]}(" in path.read_text())
            if not known:
                wrong.append(f"{mutation.id}: {test}")
    assert not wrong, "\n".join(wrong)


def test_the_list_is_long_enough_and_its_ids_differ() -> None:
    mutations = load()
    ids = Counter(mutation.id for mutation in mutations)
    assert not [name for name, count in ids.items() if count > 1]
    parts = Counter(mutation.part for mutation in mutations)
    assert set(parts) == set(PARTS) and all(parts[part] >= 15 for part in REQUIRED), parts
    assert sum(parts[part] for part in REQUIRED) >= AT_LEAST, parts


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with one module and its tests, which check the result of `double`, but not `half` and not the time taken."""
    root = tmp_path / "tree"
    (root / "tests").mkdir(parents=True)
    (root / "tests" / "__init__.py").touch()
    (root / "numbers_.py").write_text("def double(x):\n    return 2 * x\n\n\ndef half(x):\n    return x / 2\n")
    (root / "tests" / "test_numbers.py").write_text(
        "import sys\nsys.path.insert(0, '.')\nimport numbers_\nimport pytest\n\n\n"
        "def test_double():\n    assert numbers_.double(3) == 6\n\n\n"
        "@pytest.mark.skip(reason='the machine lacks it')\ndef test_skipped():\n    assert False\n\n\n"
        "def test_wrong():\n    assert False\n"
    )
    return root


def made(name: str, old: str, new: str, test: str = "test_double", needs: tuple[str, ...] = ()) -> Mutation:
    return Mutation(name, "core", "numbers_.py", old, new, "a test", (f"tests/test_numbers.py::{test}",), needs)


@pytest.mark.more
def test_verdicts(tree: Path, tmp_path: Path) -> None:
    mutations = [
        made("noticed", "2 * x", "3 * x"),
        made("not noticed", "x / 2", "x / 3"),
        made("endless", "return 2 * x", "while True: pass"),
        made("no Python", "return 2 * x", "return return"),
        made("gone", "4 * x", "5 * x"),
        made("skipped", "2 * x", "3 * x", "test_skipped"),
        made("elsewhere", "2 * x", "3 * x", needs=("no-such-processor",)),
    ]
    results = mutate.score(mutations, limit=15, root=tree, folder=tmp_path / "copies")
    assert [(result.mutation.id, result.verdict) for result in results] == [
        ("noticed", "killed"), ("not noticed", "survived"), ("endless", "timed out"), ("no Python", "did not build"),
        ("gone", "not applicable"), ("skipped", "not applicable"), ("elsewhere", "not applicable"),
    ]  # fmt: skip
    assert mutate.share(results) == (2, 4)  # a failed build says nothing about the tests and is not a success
    assert "50.0 %" in mutate.table(results) and "not noticed" in mutate.table(results)
    assert "2 * x" in (tree / "numbers_.py").read_text()  # the tree itself was never changed
    assert "2 * x" in (tmp_path / "copies" / "0" / "numbers_.py").read_text()


def test_a_test_that_fails_without_a_mutation_may_not_judge(tree: Path, tmp_path: Path) -> None:
    names = ("test_wrong", "test_that_is_not_there")
    with pytest.raises(SystemExit, match="already fail or do not exist") as caught:
        mutate.score([made(n, "2 * x", "3 * x", n) for n in names], root=tree, folder=tmp_path / "copies")
    assert all(f"tests/test_numbers.py::{name}" in str(caught.value) for name in names)


def test_a_test_that_fails_once_may_judge(tree: Path, tmp_path: Path) -> None:
    """As one that waits for something may, on a busy machine."""
    path = tree / "tests" / "test_numbers.py"
    path.write_text(
        path.read_text() + "\n\ndef test_second_time():\n    from pathlib import Path\n"
        f"    seen = Path({str(tmp_path / 'seen')!r})\n    again = seen.exists()\n    seen.touch()\n"
        "    assert again and numbers_.double(3) == 6\n"
    )
    (result,) = mutate.score([made("n", "2 * x", "3 * x", "test_second_time")], root=tree, folder=tmp_path / "copies")
    assert result.verdict == "killed"


@pytest.mark.soak
def test_the_score() -> None:
    """All mutations; about half an hour on two cores."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutate", "--json"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr[-4000:]
    found = [m for m in json.loads(done.stdout)["mutations"] if m["part"] in REQUIRED]
    counted = [m for m in found if m["verdict"] in mutate.COUNTED]
    noticed = [m for m in counted if m["verdict"] in mutate.NOTICED]
    survivors = [f"{m['part']}: {m['id']}: {m['verdict']}" for m in counted if m not in noticed]
    print(f"{len(noticed)} of {len(counted)} mutations were noticed", *survivors, sep="\n")
    assert len(counted) >= AT_LEAST, done.stderr[-4000:]
    assert len(noticed) >= SCORE * len(counted), survivors
