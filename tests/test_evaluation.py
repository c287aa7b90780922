"""The evaluations of examples/evaluation: each command prints its table and draws its picture, and what its figures say holds for
any machine: more backup workers never delay a simulated update, and the networks are those of the papers."""
# Dear: real servers, workers and hosts run as a user runs them.

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import linnet
from examples.evaluation import __main__ as every
from examples.evaluation import (
    backup_workers,
    language_model,
    networks,
    null_step,
    placement,
    result,
    scaling,
    step_times,
    steps,
    workers,
)
from linnet import init
from linnet.sync import simulate


def run(name: str, folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[result.Result, str]:
    """Runs a command in quick form. Its table has every figure, its picture has several colours, its JSON file all facts."""
    found = every.module(name).main(["--quick", "--out", str(folder), *words])
    said = capsys.readouterr().out
    assert found.figures and len({figure.name for figure in found.figures}) == len(found.figures)
    for figure in found.figures:
        assert np.isfinite(figure.value) and figure.kind in (result.MEASURED, result.SIMULATED, result.MODELLED)
        assert figure.name in said
    assert found.sentence in said and found.setting in said and f"Source: {found.source}." in said
    kinds = {figure.kind for figure in found.figures}
    assert all(f"({kind}" in found.sentence for kind in kinds), "the sentence says what is measured"
    with Image.open(folder / f"{name}.png") as picture:
        assert picture.size == (1320, 504) and len(picture.convert("RGB").getcolors(1 << 24) or []) > 10
    record = json.loads((folder / f"{name}.json").read_text())
    assert record["machine"]["cores"] >= 1 and record["machine"]["linnet"] and record["machine"]["quick"] is True
    assert [figure["value"] for figure in record["figures"]] == [figure.value for figure in found.figures]
    return found, said


def test_null_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, _ = run("null_step", tmp_path, capsys)
    assert result.labels(found)[:2] == ["scalar", "dense 1 MB"]
    for name in result.labels(found):
        for kind in (result.MEASURED, result.SIMULATED):
            assert result.series(found, name, kind)[0] == [1, 3]
    sizes = [result.series(found, f"sparse {table} MB", result.SIMULATED)[1] for table in (1, 4)]
    assert sizes[0] == sizes[1], "the size of a table does not matter to the simulator"


def test_null_steps_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers in Python do the same steps."""
    monkeypatch.setattr(null_step.null_workers.shutil, "which", lambda name: None)
    engine = null_step.null_workers.best_engine()
    assert engine == "linnet_python"
    for case in null_step.cases(quick=True):
        assert null_step.measured(case, 2, engine, tmp_path, quick=True) > 0


def test_dense_steps_stop_where_memory_does() -> None:
    large = null_step.Case("dense", 1, 10**14, 10**14)
    assert null_step.workers_of(large, null_step.COUNTS) == []
    assert null_step.workers_of(null_step.cases(quick=True)[0], [1, 2]) == [1, 2]


def test_backup_workers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, _ = run("backup_workers", tmp_path, capsys)
    for label in ("TensorFlow's servers", "linnet's servers"):
        steps = result.series(found, label)[1]
        assert len(steps) == 7 and max(steps[1:]) < steps[0], label


@pytest.mark.parametrize("seed", range(4))
def test_backup_workers_never_delay_an_update(seed: int) -> None:
    """The k-th update of the same workers with the same times comes no later if it waits for fewer of them."""
    none = np.cumsum(backup_workers.simulated(12, 0, 40, seed).step_seconds)
    for backup in (1, 2, 4):
        some = np.cumsum(backup_workers.simulated(12, backup, 40, seed).step_seconds)
        assert (some <= none * (1 + 1e-9)).all(), backup


def test_scaling(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, _ = run("scaling", tmp_path, capsys)
    assert result.series(found, "synchronous")[0] == [1, 2, 5, 10] == result.series(found, "asynchronous")[0]
    assert result.series(found, "this machine")[0] == list(range(1, min(result.cores(), scaling.MOST) + 1))


def test_more_workers_train_more_until_the_servers_are_busy() -> None:
    """With a given step and the simulator's own costs of servers, which no measurement changes."""
    step = workers.Step((0.1,), simulate.Traffic(2.8e7, 2.8e7, examples=8))
    for kind in scaling.MODES:
        mode = simulate.Mode(kind)
        rates = [
            workers.simulated(step, workers.hardware({}, 17, n), mode, 10, 0).examples_per_second for n in (1, 10, 100)
        ]
        assert rates[0] < 8 / 0.1 and rates[0] < rates[1] < rates[2] < 100 * 8 / 0.1


def test_step_times_without_pytorch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(steps, "engines", lambda: ["linnet"])
    found, said = run("step_times", tmp_path, capsys)
    assert [figure.name for figure in found.figures] == ["GoogLeNet, linnet"] and step_times.MISSING in said


def test_step_times_beside_pytorch(tmp_path: Path, capsys: pytest.CaptureFixture[str], torch: Any) -> None:
    found, said = run("step_times", tmp_path, capsys, "--threads", "1")
    ours, theirs, ratio = (found.value(f"GoogLeNet, {name}") for name in ("linnet", "PyTorch", "linnet / PyTorch"))
    assert (
        ratio == pytest.approx(ours / theirs)
        and step_times.MISSING not in said
        and f"{ratio:.2f} for GoogLeNet" in said
    )


def test_both_engines_have_the_same_network(torch: Any) -> None:
    from examples.evaluation import in_torch

    made = in_torch.Network(networks.googlenet, torch.zeros(1, 3, 64, 64))
    ours = [list(variable.value.shape) for variable in networks.training("GoogLeNet", 1, side=64).trainable_variables]
    theirs = [list(p.shape) for p in made.parameters()]
    assert (
        ours[:-2] == theirs[:-2] and ours[-2] == theirs[-2][::-1] and ours[-1] == theirs[-1]
    )  # the last is transposed


def test_language_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, _ = run("language_model", tmp_path, capsys)
    for kind in language_model.KINDS:
        for servers in ("1 server", "4 servers", "32 servers"):
            assert result.series(found, f"{kind}, {servers}")[0] == [1, 4, 16]
    assert found.value("sampled, sent per step") < found.value("full, sent per step")


def test_the_sampled_softmax_touches_only_its_rows() -> None:
    """One training step changes the rows of the labels and of the candidates, and no others; the full softmax changes all."""
    sizes = language_model.SMALL
    for kind in language_model.KINDS:
        feeds = language_model.feeds_of(sizes, kind, 1)
        session = linnet.Session(language_model.build(sizes, kind, 0), "train")
        before = np.array(session.variables["softmax/weight"])
        session.run(feeds)
        changed = np.flatnonzero((np.array(session.variables["softmax/weight"]) != before).any(axis=1))
        if kind == "sampled":
            touched = {*feeds["next"].ravel().tolist(), *feeds["candidates"].tolist()}
            assert set(changed.tolist()) <= touched and len(touched) < sizes.vocabulary
            assert set(feeds["next"].ravel().tolist()) <= set(changed.tolist())
        else:
            assert len(changed) == sizes.vocabulary


def test_a_worker_holds_no_table_that_stays_on_the_server() -> None:
    parts = linnet.sync.shard(language_model.build(language_model.SMALL, "sampled", 0, remote=True), 1)
    assert not {"words/weight", "softmax/weight"} & set(parts.worker.variables)
    assert (
        "words/weight" in linnet.sync.shard(language_model.build(language_model.SMALL, "full", 0), 1).worker.variables
    )


def test_deepbench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, said = run("deepbench", tmp_path, capsys)
    rows = found.extra["rows"]
    assert found.value("problems measured") == len(rows) > 5 and all(row["flops"] <= 5e7 for row in rows)
    assert said.count("\ndevice ") == len(rows) and "are left out (--most-gflop)" in found.sentence
    assert "14.9 ms" in said, "the Raspberry Pi's time of a product stands beside linnet's"


def test_placement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the predictions, a search finds nothing worse than the costs, and the costs nothing worse than one machine."""
    found, _ = run("placement", tmp_path, capsys)
    ms = {way: found.value(f"{way}, modelled") for way in placement.WAYS}
    assert found.value(placement.BEST) <= ms["by cost"] * (1 + 1e-9)
    places = found.extra["places"]
    towers = {name.split("/")[0]: device for name, device in places["by hand"].items()}
    assert len({towers[name] for name in placement.TOWERS} - {"cpu"}) == 2, "each tower has a host of its own"
    assert len(set(places["one machine"].values())) == 1
    assert found.value("by hand, bytes between machines") > 0 == found.value("one machine, bytes between machines")


def test_traffic_counts_each_row_once() -> None:
    """A sparse gradient's rows count once, and a dense gradient with all its bytes."""
    graph = linnet.Graph(seed=0)
    ids, t = graph.placeholder("ids", (6,), "i64"), graph.placeholder("t", (6,), "i32")
    loss = linnet.softmax_cross_entropy(linnet.nn.dense(linnet.nn.embedding(ids, 100, 8), 3), t).mean()
    linnet.sync.signatures(graph, loss, linnet.SGD(0.1), {"ids": ids, "t": t})
    feeds = {"ids": np.array([5, 5, 7, 7, 7, 9]), "t": np.zeros(6, np.int32)}
    step = workers.alone(graph, feeds, 0.0)
    assert len(step.seconds) == 3
    traffic = step.traffic
    assert (traffic.push, traffic.pull, traffic.rows, traffic.row_bytes) == (4 * (8 * 3 + 3), 4 * (8 * 3 + 3), 3, 32)


@pytest.mark.parametrize(
    "name, parameters",
    [("AlexNet", 60_965_224), ("OverFeat", 145_920_872), ("OxfordNet", 132_863_336), ("GoogLeNet", 6_998_552)],
)
def test_networks_are_those_of_the_papers(name: str, parameters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for layer in ("conv", "dense"):  # drawing 146 million numbers takes seconds
        monkeypatch.setattr(networks.nn, layer, partial(getattr(networks.nn, layer), weight_start=init.zeros))
    graph = networks.training(name, 1)
    assert sum(variable.value.size for variable in graph.trainable_variables) == parameters


def test_the_list_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    every.main(["--list"])
    said = capsys.readouterr().out
    folder = Path(every.__file__).parent
    commands = {
        path.stem for path in folder.glob("*.py") if "result.command(" in path.read_text() and path.stem != "result"
    }
    assert commands == set(every.NAMES)
    readme = (folder / "README.md").read_text()
    for name in every.NAMES:
        assert f"{name}: " in said and f"| `{name}` |" in readme


def test_named_evaluations_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a name, all run; the options reach each of them."""
    ran: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(
        every,
        "module",
        lambda name: type("", (), {"__doc__": f"`{name}`: x.", "main": lambda w: ran.append((name, w))}),
    )
    every.main(["--quick", "--out", str(tmp_path), "--seed", "3"])
    assert ran == [(name, ["--out", str(tmp_path), "--seed", "3", "--quick"]) for name in every.NAMES]
    every.main(["scaling", "deepbench", "--out", str(tmp_path)])
    assert [name for name, _ in ran[len(every.NAMES) :]] == ["scaling", "deepbench"]
    assert "deepbench: x." in capsys.readouterr().out


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit, match=r"cannot make the folder .*give another one with --out"):
        every.module("backup_workers").main(["--quick", "--out", str(tmp_path / "file" / "folder")])


def test_the_readme_has_the_published_figures() -> None:
    text = every.README.read_text().split(every.BEGIN)[1].split(every.END)[0].strip()
    assert text == (every.section(result.published()) or "No figures are published yet.")


def test_published_figures_stand_beside_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """--publish keeps the records and writes the README; a later run says which figures are close."""
    made = result.Result(
        "scaling", "Title", "Set so.", "a paper", (figure("a", 2.0), figure("b", 4.0)), "It shows (measured)."
    )
    record: dict[str, Any] = {
        "machine": result.machine() | {"quick": False, "others": 0.0},
        **result.dataclasses.asdict(made),
    }
    (tmp_path / "scaling.json").write_text(json.dumps(record))
    readme = tmp_path / "README.md"
    readme.write_text(f"Head.\n\n{every.BEGIN}\n\nold\n\n{every.END}\n\nFoot.\n")
    monkeypatch.setattr(every, "README", readme)
    monkeypatch.setattr(result, "PUBLISHED", tmp_path / "published.json")
    every.publish(["scaling"], tmp_path)
    text = readme.read_text()
    assert (
        text.startswith("Head.")
        and text.endswith("Foot.\n")
        and "| a | 2 | ms | measured |  |" in text
        and "old" not in text
    )
    later = result.dataclasses.replace(made, figures=(figure("a", 2.1), figure("b", 5.0), figure("c", 1.0)))
    capsys.readouterr()
    result.show(later, record["machine"])
    said = capsys.readouterr().out
    assert "1 of 2 figures are within 10%" in said and "1.05" in said and "1.25" in said
    result.show(later, record["machine"] | {"quick": True})
    assert "within" not in capsys.readouterr().out


def figure(name: str, value: float) -> result.Figure:
    return result.Figure(name, value, "ms", result.MEASURED)


@pytest.mark.parametrize(
    "words, error", [(["nothing"], "no evaluation is called nothing"), (["--quick", "--publish"], "leave out --quick")]
)
def test_wrong_options(words: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        every.main(words)
    assert error in capsys.readouterr().err
