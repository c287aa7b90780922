"""linnet.sync.simulate against closed forms, conservation laws and the published curves; and `linnet simulate`."""
# Dear: thousands of steps are simulated, and a real server is measured.

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet.cli.main import _main
from linnet.sync import simulate as sim
from linnet.sync.simulate import published, units
from linnet.sync.simulate.compute import Draws
from linnet.sync.simulate.engine import Engine
from linnet.sync.simulate.explain import parts_of
from linnet.sync.simulate.links import FairLink, FifoLink, fair_departures
from linnet.sync.simulate.phases import sync_steps
from linnet.sync.simulate.predict import setting_of, spread_over, step_of
from tests.native import ROOT

FREE = sim.Hardware(
    latency=0, message=0, worker_message=0, receive=0, send=0, aggregate=0, apply=0, row=0, worker_rate=1e9, server_rate=1e9
)  # fmt: skip


def setting(
    compute: sim.Compute, traffic: sim.Traffic, mode: sim.Mode | None = None, **hardware: float | str
) -> sim.Setting:
    return sim.Setting(compute, traffic, dataclasses.replace(FREE, **hardware), mode or sim.Mode())  # type: ignore[arg-type]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs `linnet ARGUMENTS` in this process; returns its output or, if it fails, the one line on stderr."""

    def run(*arguments: str, status: int = 0) -> str:
        assert _main(arguments) == status
        out, error = capsys.readouterr()
        assert (error.count("\n"), out) == (1, "") if status else error == "", error
        return error if status else out

    return run


def poisson(rate: float, count: int, seed: int) -> list[float]:
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count)).tolist()


def through(link: FairLink | FifoLink, arrivals: list[float]) -> np.ndarray:
    """The end of each transfer, in order of arrival."""
    done: list[float] = [0.0] * len(arrivals)
    for i, time in enumerate(arrivals):
        while link.next <= time:
            when = link.next
            for who in link.leave():
                done[who] = when
        link.arrive(time, i)
    while math.isfinite(link.next):
        when = link.next
        for who in link.leave():
            done[who] = when
    return np.asarray(done)


# ---- closed forms


def test_a_step_without_variance_is_computing_plus_transfers() -> None:
    """n workers share a port of 1 GB/s fairly: each has its 10 MB after n * 10 ms, in both directions."""
    for n, servers in ((1, 1), (8, 1), (8, 4), (5, 10)):
        made = setting(sim.Compute(0.2), sim.Traffic(1e7, 1e7), workers=n, servers=servers, latency=1e-3)
        transfer = max(n * 1e7 / servers / 1e9, 1e7 / 1e9)  # the servers' ports, or the worker's own
        assert np.allclose(sim.run(made, steps=5).step_seconds, 0.2 + 2 * transfer + 2e-3, rtol=1e-12)


def test_costs_of_the_server_add_up() -> None:
    n, m, k = 6, 4e6, 2
    made = setting(
        sim.Compute(0.1), sim.Traffic(m, m), workers=n, servers=k, latency=1e-4, message=1e-3, worker_message=2e-5,
        aggregate=1e-9, apply=3e-9, overhead=5e-3,
    )  # fmt: skip
    share, step = m / k, 0.0
    # Replies leave 1 ms apart, and each takes 4 ms on the worker's own port. Pushes return with the same spacing, and the
    # thread takes 1 ms plus the sum of 2 MB for each: 3 ms, longer than the spacing of the pushes.
    link = [t + 0.0 for t in fair_departures([1e-3 * (i + 1) for i in range(n)], share, 1e9, 5e8)]
    ways = 2 * (1e-4 + k * 2e-5)
    sends = [t + ways + 0.1 + 5e-3 for t in link]
    handled = 0.0
    for arrival in fair_departures(sends, share, 1e9, 5e8):
        handled = max(handled, arrival) + 1e-3 + share * 1e-9
    step = handled + share * 3e-9
    assert sim.run(made, steps=4).median == pytest.approx(step, rel=1e-12)


def test_fifo_ports_stagger_workers_so_that_pushes_meet_no_queue() -> None:
    """The k-th worker has its parameters after k transfers and pushes equally later: n + 1 transfers per step, not 2 n."""
    n = 10
    for sharing, transfers in (("fifo", n + 1), ("fair", 2 * n)):
        made = setting(sim.Compute(1.0), sim.Traffic(1e7, 1e7), workers=n, sharing=sharing)
        assert sim.run(made, steps=3).median == pytest.approx(1.0 + transfers * 0.01, rel=1e-9)


def test_slowest_of_n_log_normals_decides_a_synchronous_step() -> None:
    n, sigma = 50, 0.2
    made = setting(sim.Compute(1.0, f"lognormal:{sigma}"), sim.Traffic(0, 0), workers=n)
    z = np.linspace(-8, 8, 200_001)
    cdf = np.asarray([0.5 * math.erfc(-v / math.sqrt(2)) for v in z])
    mean = float(np.sum(np.exp(sigma * (z[1:] + z[:-1]) / 2) * np.diff(cdf**n)))  # E max = int x dF(x)^n
    assert sim.run(made, steps=4000).mean == pytest.approx(mean, rel=0.005)


@pytest.mark.parametrize("backup", [0, 1, 4])
def test_first_step_closes_with_the_quorums_last_push(backup: int) -> None:
    compute = sim.Compute(1.0, "pareto:3")
    for seed in range(20):
        made = setting(compute, sim.Traffic(0, 0), sim.Mode(backup=backup), workers=20)
        drawn = np.sort(Draws(compute, 20, 1, seed).row(0))
        found = Engine(made, seed).run(1, 0)
        assert found.step_seconds[0] == pytest.approx(drawn[19 - backup], rel=1e-12)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_waiting_at_a_port_is_that_of_the_textbooks(load: float) -> None:
    """First come, first served: M/D/1, wait rho s / (2 (1 - rho)). Fairly shared: M/D/1-PS, s / (1 - rho) in total."""
    arrivals = poisson(load, 300_000, seed=1)
    fifo = through(FifoLink(1.0, 1.0, 1e9), arrivals) - np.asarray(arrivals)
    assert fifo.mean() - 1 == pytest.approx(load / (2 * (1 - load)), rel=0.05)
    fair = through(FairLink(1.0, 1.0, 1e9), arrivals) - np.asarray(arrivals)
    assert fair.mean() == pytest.approx(1 / (1 - load), rel=0.05)


@pytest.mark.parametrize("cap", [1e9, 0.25])
def test_the_two_accounts_of_a_fair_port_agree(cap: float) -> None:
    arrivals = poisson(0.8, 5000, seed=3)
    assert np.allclose(through(FairLink(1.0, 1.0, cap), arrivals), fair_departures(arrivals, 1.0, 1.0, cap), rtol=1e-9)


def test_asynchronous_workers_at_a_fair_port_are_machine_repairmen() -> None:
    """Workers with any distribution of computing time (mean Z) and a fairly shared port, S seconds per push: a product form
    (BCMP), so the throughput is that of M/M/1//N."""
    n, think, service = 20, 1.0, 0.05
    made = setting(
        sim.Compute(think / math.exp(0.08), "lognormal:0.4"), sim.Traffic(0, service * 1e9), sim.Mode("asynchronous"), workers=n,
        worker_rate=1e12,
    )  # fmt: skip
    weights = np.asarray([math.factorial(n) / math.factorial(n - k) * (service / think) ** k for k in range(n + 1)])
    throughput = (1 - weights[0] / weights.sum()) / service
    found = sim.run(made, steps=3000)
    assert found.examples_per_second / 32 == pytest.approx(throughput, rel=0.01)
    assert found.busy["in"] == pytest.approx(1 - weights[0] / weights.sum(), rel=0.01)


def test_two_independent_accounts_of_a_synchronous_step_agree() -> None:
    """The event engine against the array arithmetic, with every cost set, fair and first come, first served."""
    for sharing in ("fair", "fifo"):
        hardware = sim.Hardware(workers=40, servers=6, sharing=sharing, overhead=1e-3)
        made = sim.Setting(
            sim.Compute(0.3, "lognormal:0.2", spread=0.1), sim.Traffic(5e7, 5e7, rows=100, row_bytes=400), hardware
        )
        found = Engine(made, 7).run(30, 0).step_seconds
        assert np.allclose(found, sync_steps(made, 30, 7), rtol=1e-9)


def test_ring_takes_two_rounds_for_each_neighbour() -> None:
    n, size = 8, 8e6
    made = setting(sim.Compute(0.1), sim.Traffic(size, size), sim.Mode("ring"), workers=n, latency=1e-3)
    assert sim.run(made, steps=2).median == pytest.approx(0.1 + 2 * (n - 1) * (1e-3 + size / n / 1e9), rel=1e-12)
    alone = dataclasses.replace(made, hardware=dataclasses.replace(made.hardware, workers=1))
    assert sim.run(alone, steps=2).median == pytest.approx(0.1)


def test_tree_passes_two_levels_of_ports() -> None:
    """16 workers, 4 per aggregator, one server: 4 transfers at each level, in each direction."""
    made = setting(sim.Compute(0.1), sim.Traffic(1e7, 1e7), sim.Mode("tree", fan_in=4), workers=16)
    assert sim.run(made, steps=2).median == pytest.approx(0.1 + 16 * 0.01, rel=1e-9)


def test_federated_rounds_pay_for_transfers_once() -> None:
    made = setting(sim.Compute(0.1), sim.Traffic(1e7, 1e7), sim.Mode("federated", local_steps=20), workers=4)
    found = sim.run(made, steps=3)
    assert found.median == pytest.approx(20 * 0.1 + 0.08, rel=1e-9)
    assert found.examples_per_second == pytest.approx(4 * 20 * 32 / 2.08, rel=1e-9)


# ---- laws


@pytest.mark.parametrize(
    "mode",
    [
        sim.Mode(), sim.Mode(backup=3), sim.Mode(backup=3, late="drop"), sim.Mode("asynchronous"),
        sim.Mode("asynchronous", staleness=2), sim.Mode("groups", groups=3), sim.Mode("groups", groups=3, backup=1, staleness=1),
        sim.Mode("federated", local_steps=5, backup=2),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("overlap", [0.0, 0.5])
def test_nothing_is_lost_or_invented(mode: sim.Mode, overlap: float) -> None:
    hardware = sim.Hardware(workers=18, overlap=overlap)
    made = sim.Setting(sim.Compute(0.1, "stragglers:0.1,2", spread=0.1), sim.Traffic(1e7, 1e7), hardware, mode)
    engine = Engine(made, 5)
    found = engine.run(40, 0)
    assert found.sent == found.handled + found.in_flight and 0 <= found.in_flight <= 18
    assert found.accepted + found.dropped == found.handled
    assert sum(found.staleness) == found.accepted
    sizes = mode.members(18)
    closed = np.bincount(engine.closed_by, minlength=len(sizes))
    waiting = sum(len(arrived) for arrived in engine.arrived)
    assert sum(c * (s - mode.backup) for c, s in zip(closed, sizes, strict=True)) + waiting == found.accepted
    assert (found.dropped > 0) == (mode.backup > 0)
    if len(sizes) == 1:
        assert len(found.staleness) == 1, "one barrier: nobody's gradient is stale"
    if mode.staleness is not None:
        assert found.ahead <= mode.staleness + 1, "a closed step more than the bound, and then it waits"
        assert all(
            engine.step[b] - min(engine.step) <= mode.staleness for b in set(engine.barrier_of) - set(engine.waiting)
        )
    assert all(0 <= share <= 1 for share in found.busy.values()) and 0 < found.computing < 1
    assert np.all(found.step_seconds > 0)


def test_staleness_of_equal_workers_is_their_number_less_one() -> None:
    """Between a worker's pull and its push every other worker applies one update."""
    made = setting(sim.Compute(0.1, "lognormal:0.1"), sim.Traffic(1e5, 1e5), sim.Mode("asynchronous"), workers=12)
    assert sim.run(made, steps=300).staleness == pytest.approx(11, abs=0.1)


def test_a_bound_on_staleness_costs_speed_and_bounds_lead() -> None:
    found = {}
    for tau in (0, 2, 8, None):
        made = setting(
            sim.Compute(0.1, "lognormal:0.6"), sim.Traffic(0, 0), sim.Mode("asynchronous", staleness=tau), workers=10
        )
        found[tau] = sim.run(made, steps=400).examples_per_second
    assert found[0] < found[2] < found[8] <= found[None] * 1.01


def test_a_worker_that_knows_it_is_late_sends_nothing() -> None:
    carried = {}
    for late in ("skip", "drop"):
        made = setting(
            sim.Compute(0.1, "stragglers:0.1,2"), sim.Traffic(1e6, 1e6), sim.Mode(backup=2, late=late), workers=10
        )
        engine = Engine(made, 0)
        found = engine.run(200, 0)
        assert found.dropped > 100
        carried[late] = engine.port_in.busy / 1e6, found.sent, found.accepted
    assert carried["drop"][0] == carried["drop"][1], "every push goes through the port"
    assert carried["skip"][2] <= carried["skip"][0] < carried["skip"][1] - 100


def test_examples_by_speed_make_all_machines_equally_fast() -> None:
    """Speeds 1/f: a step takes n / sum(1/f), the harmonic mean of the factors, instead of the largest."""
    compute = sim.Compute(1.0, spread=0.5)
    factors = np.asarray(Draws(compute, 10, 1, 0).row(0))
    for balanced, step in ((False, factors.max()), (True, 10 / (1 / factors).sum())):
        made = setting(dataclasses.replace(compute, balanced=balanced), sim.Traffic(0, 0), workers=10)
        assert sim.run(made, steps=3).median == pytest.approx(step, rel=1e-9)


def test_overlap_hides_transfers_and_never_more_than_them() -> None:
    medians = []
    for overlap in (0.0, 0.3, 0.6, 1.0):
        made = setting(sim.Compute(0.5), sim.Traffic(1e7, 1e7), workers=8, overlap=overlap)
        medians.append(sim.run(made, steps=3).median)
    assert medians == sorted(medians, reverse=True) and medians[0] > medians[-1]
    assert medians[0] == pytest.approx(0.66) and medians[-1] >= 0.5


def test_seed_decides_everything() -> None:
    for mode in (sim.Mode(backup=2), sim.Mode("asynchronous"), sim.Mode("tree", fan_in=4), sim.Mode("ring")):
        made = sim.Setting(sim.Compute(0.1, "lognormal:0.3", spread=0.1), sim.Traffic(), sim.Hardware(workers=16), mode)
        texts = [sim.run(made, steps=20, seed=seed).to_json() for seed in (1, 1, 2)]
        assert texts[0] == texts[1] != texts[2]


def test_steps_take_as_long_in_every_mode_and_among_any_number_of_workers() -> None:
    """Compared settings get the same random numbers."""
    rows = []
    for mode, workers in ((sim.Mode(), 5), (sim.Mode("asynchronous"), 5), (sim.Mode("asynchronous"), 130)):
        hardware = sim.Hardware(workers=workers)
        engine = Engine(sim.Setting(sim.Compute(0.1, "lognormal:0.3", spread=0.2), sim.Traffic(), hardware, mode), 3)
        engine.run(10, 0)
        rows.append([engine.draws.row(k)[:5] for k in range(8)])
    assert rows[0] == rows[1] == rows[2] and len({seconds for row in rows[0] for seconds in row}) == 40


# ---- step times


@pytest.mark.parametrize(
    "scatter", ["constant", "lognormal:0.3", "pareto:3", "stragglers:0.05,2", "stragglers:0.1,1,8"]
)
def test_means_of_scatters(scatter: str) -> None:
    compute = sim.Compute(2.0, scatter)
    assert compute.draw(400_000, np.random.default_rng(0)).mean() == pytest.approx(compute.mean, rel=0.01)


def test_disturbances_last_as_long_as_they_should() -> None:
    for steps in (1, 10):
        draws = Draws(sim.Compute(1.0, f"stragglers:0.1,1,{steps}"), 128, 1, 0)
        slow = np.asarray([draws.row(k) for k in range(2000)]) > 1.5
        assert slow.mean() == pytest.approx(0.1, rel=0.1)
        stays = (slow[1:] & slow[:-1]).sum() / slow[:-1].sum()
        assert stays == pytest.approx(1 - 1 / steps if steps > 1 else 0.1, abs=0.02)


def test_measured_times_are_drawn_as_they_are(tmp_path: Path) -> None:
    values = [9.0, 0.1, 0.2, 0.3]
    files = {
        "a.json": json.dumps(values), "b.json": json.dumps({"seconds": values}),
        "c.jsonl": "\n".join(json.dumps({"step": i, "seconds": v}) for i, v in enumerate(values)) + '\n{"record": 1}\n',
        "d.csv": "step,seconds\n" + "\n".join(f"{i},{v}" for i, v in enumerate(values)),
        "e.csv": "\n".join(map(str, values)),
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        assert sim.read_times(tmp_path / name) == values[1:], name  # without the first step, which plans
    compute = sim.Compute(measured=values[1:])
    assert set(compute.draw(100, np.random.default_rng(0))) == {0.1, 0.2, 0.3}
    assert compute.mean == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.json", "[1, 2"), ("b.json", '{"other": 1}'), ("c.csv", "x,y\n1,2"), ("d.csv", ""), ("e.jsonl", "{}"), ("f.json", "[-1]"),
     ("g.json", '["fast"]'), ("h.json", "[NaN, 1]")],
)  # fmt: skip
def test_step_times_that_are_none(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(linnet.FileError, match=name):
        sim.read_times(tmp_path / name)


def test_step_times_of_a_run_are_written_and_read(tmp_path: Path) -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", ("batch", 2))
    w = graph.variable("w", np.ones(2, np.float32))
    loss = ((x * w) ** 2).mean()
    graph.signature("train", {"x": x}, {"loss": loss}, updates=linnet.SGD(0.1).minimize(loss))
    path = tmp_path / "times.jsonl"
    linnet.fit(graph, {"x": np.ones((12, 2), np.float32)}, batch_size=2, steps=9, callbacks=[sim.StepTimes(path)])
    found = sim.read_times(path)
    assert len(found) == 8 and all(0 < seconds < 5 for seconds in found)
    with pytest.raises(linnet.FileError, match="cannot write"):
        linnet.fit(graph, {"x": np.ones((2, 2), np.float32)}, steps=1, callbacks=[sim.StepTimes(tmp_path / "no" / "x")])


def test_missing_step_times() -> None:
    with pytest.raises(linnet.FileError, match="cannot read"):
        sim.read_times("nowhere.json")


# ---- wrong settings


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: sim.Compute(-1), "negative"),
        (lambda: sim.Compute(1, "pareto:1"), "finite mean"),
        (lambda: sim.Compute(1, "lognormal"), "not a valid distribution"),
        (lambda: sim.Compute(1, "lognormal:x"), "not a valid distribution"),
        (lambda: sim.Compute(1, "stragglers:2,1"), "not a valid distribution"),
        (lambda: sim.Compute(1, "stragglers:0.9,1,2"), "not a valid distribution"),
        (lambda: sim.Compute(1, "stragglers:0.1"), "not a valid distribution"),
        (lambda: sim.Compute(1, "normal:1"), "constant, lognormal"),
        (lambda: sim.Compute(measured=[1, math.nan]), "measured"),
        (lambda: sim.Traffic(pull=-1), "pull"),
        (lambda: sim.Hardware(workers=0), "workers"),
        (lambda: sim.Hardware(server_rate=0), "port"),
        (lambda: sim.Hardware(overlap=2), "overlap"),
        (lambda: sim.Hardware(sharing="luck"), "fair or fifo"),
        (lambda: sim.Mode("both"), "synchronous, asynchronous"),
        (lambda: sim.Mode("asynchronous", backup=1), "does not support backup"),
        (lambda: sim.Mode("asynchronous", staleness=-1), "staleness"),
        (lambda: sim.Mode(local_steps=3), "federated"),
        (lambda: sim.Mode(late="wait"), "skip or drop"),
        (lambda: sim.Mode(backup=-1), "backup"),
        (lambda: sim.run(sim.Setting(mode=sim.Mode(backup=8))), "barrier"),
        (lambda: sim.run(sim.Setting(mode=sim.Mode("groups", groups=9))), "barrier"),
        (lambda: sim.run(sim.Setting(), steps=0), "step"),
        (lambda: sim.run(sim.Setting(traffic=sim.Traffic(rows=1, row_bytes=8), mode=sim.Mode("ring"))), "ring"),
        (lambda: sim.run(sim.Setting(hardware=sim.Hardware(overlap=0.5), mode=sim.Mode("tree"))), "overlap"),
        (lambda: Engine(sim.Setting(mode=sim.Mode("ring"))), "ring"),
        (lambda: sim.ratio("zip"), "topk"),
        (lambda: sim.ratio("topk:2"), "topk"),
        (lambda: sim.ratio("1bit", parameters=True), "none, f16"),
        (lambda: sim.ratio("i8", parameters=True), "none, f16, bf16, or a ratio"),
        (lambda: units.size("ten"), "size"),
        (lambda: units.rate("0gbit"), "must be above 0"),
        (lambda: units.seconds("5 parsec"), "duration"),
    ],
)  # fmt: skip
def test_impossible_settings_are_refused_in_words(make: object, text: str) -> None:
    with pytest.raises(linnet.UsageError, match=text):
        make()  # type: ignore[operator]


def test_units() -> None:
    assert units.size("100MB") == 1e8 and units.size("64KiB") == 65536 and units.size("5") == 5
    assert units.rate("10gbit") == 1.25e9 and units.rate("900MB/s") == 9e8 and units.rate("100Mbps") == 1.25e7
    assert units.seconds("50us") == pytest.approx(5e-5) and units.seconds("1.5s") == 1.5
    assert units.duration_text(1.934) == "1.93 s" and units.duration_text(0.0088) == "8.8 ms"
    assert units.size_text(1.09e8) == "109 MB"


def test_compression_ratios_are_those_of_the_encodings() -> None:
    assert sim.ratio("none") == 1 and sim.ratio("bf16") == 0.5
    assert sim.ratio("i8") == pytest.approx(0.254, abs=1e-3) and sim.ratio("1bit") == pytest.approx(0.033, abs=1e-3)
    assert sim.ratio("topk:0.01") == pytest.approx(0.01) and sim.ratio("0.1") == 0.1
    plain, small = (
        sim.run(setting(sim.Compute(0.1), sim.Traffic(1e8, 1e8, push_ratio=r, pull_ratio=r), workers=4))
        for r in (1.0, 0.25)
    )
    assert plain.median - 0.1 == pytest.approx(4 * (small.median - 0.1), rel=1e-9)
    assert plain.bytes_per_step == 4 * small.bytes_per_step == 8e8


# ---- published curves


def test_null_steps_of_osdi() -> None:
    """Published: scalar 1.8 to 8.8 ms, 100 MB 147 to 613 ms, 1 GB 1.01 to 7.16 s, sparse 5 to 20 ms for any size of the table."""
    found = published.null_step(steps=5)
    for series in found.series:
        assert all(a <= b * (1 + 1e-9) for a, b in itertools.pairwise(series.simulated)), "no worker makes it faster"
        for simulated, printed in zip(series.simulated, series.published, strict=True):
            assert printed is None or simulated == pytest.approx(printed, rel=0.25), series.label
    tables = [series.simulated for series in found.series if series.label.startswith("sparse")]
    assert len(tables) == 2 and tables[0] == tables[1]


@pytest.mark.more
def test_backup_workers_of_osdi() -> None:
    """Published: the shortest step has 4 backups of 50 workers, 1.93 s, at most 15 % below none. The best normalized speed-up
    has 3, about 9.5 %; a fifth makes it slightly worse."""
    found = published.backup(steps=2000)
    step, gain = (series.simulated for series in found.series)
    assert published.best_backup(found) == (4, 3)
    assert step[4] == pytest.approx(1.93, rel=0.03) and 0.10 <= 1 - step[4] / step[0] <= 0.155
    assert gain[3] == pytest.approx(9.5, abs=1.5)
    assert step[4] < step[5] < 1.01 * step[4]


def test_inception_saturates_at_200_workers() -> None:
    found = published.inception(steps=30)
    free, sync = found.series[0], found.series[1]
    at = dict(zip(free.x, free.simulated, strict=True))
    assert at[200] == pytest.approx(2300, rel=0.05)
    assert at[50] / at[25] > 1.9 and at[200] / at[100] < 1.5 and at[400] / at[200] < 1.05, "diminishing returns"
    assert all(s < a for s, a in zip(sync.simulated[1:], free.simulated[1:], strict=True))


def test_dense_models_gain_10_to_40_with_50_replicas() -> None:
    curve, together, apart = published.dense(steps=30).series
    at = dict(zip(curve.x, curve.simulated, strict=True))
    assert list(curve.simulated) == sorted(curve.simulated)
    assert at[2] == pytest.approx(10, rel=0.3) and at[16] > 40 and at[0.5] < 5
    assert 30 < together.simulated[0] < 40 < apart.simulated[0] <= 50


def test_sparse_models_gain_300_with_500_and_go_on() -> None:
    curve = published.sparse(steps=20).series[0]
    at = dict(zip(curve.x, curve.simulated, strict=True))
    assert at[500] == pytest.approx(300, rel=0.1)
    assert at[1000] > 1.5 * at[500] and at[2000] > 1.5 * at[1000]
    assert at[100] > 60


# ---- a model's own figures


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with `grad` and `train`: w f32 [64, 32], b f32 [32], and an embedding f32 [1000, 8] with 6 look-ups per step."""
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (4, 64))
    ids = graph.placeholder("ids", (6,), "i32")
    w = graph.variable("w", linnet.init.glorot((64, 32)))
    b = graph.variable("b", linnet.init.zeros(32))
    table = graph.variable("table", linnet.init.glorot((1000, 8)))
    loss = ((x @ w + b) ** 2).mean() + (linnet.ops.gather(table.tensor(x), ids) ** 2).mean()
    linnet.sync.signatures(graph, loss, linnet.SGD(0.1), {"x": x, "ids": ids})
    path = tmp_path_factory.mktemp("model") / "model.lnt"
    graph.save(path)
    return path


def test_a_models_bytes_are_those_of_its_gradients(trained: Path) -> None:
    step = step_of(trained, seconds=0.05)
    assert step.signature == "grad" and 0 < step.seconds < 1
    dense = 4 * (64 * 32 + 32)
    assert step.traffic.push == step.traffic.pull == dense
    assert step.traffic.rows == 6 and step.traffic.row_bytes == 32 and step.traffic.table == 32000
    assert step.traffic.examples == 4
    assert step.traffic.up == dense + 6 * 32 + 8 * 6 and step.traffic.down == dense + 6 * 32
    whole = step_of(trained, signature="train", seconds=0.05)
    assert whole.traffic.push == dense + 32000 and whole.traffic.rows == 0
    assert spread_over(whole, 2) == pytest.approx(32000 / (dense + 32000)) and spread_over(step, 4) == 0.25
    hardware = sim.Hardware(workers=2, servers=2)
    assert setting_of(whole, hardware).shard().up == pytest.approx(32000)
    assert whole.ratio(hardware) == pytest.approx(whole.seconds / (2 * whole.traffic.up / hardware.worker_rate))


def test_a_model_without_a_training_step(tmp_path: Path) -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (1,))
    graph.signature("infer", {"x": x}, {"y": x * 2})
    graph.save(tmp_path / "infer.lnt")
    with pytest.raises(linnet.UsageError, match="no signature for a training step"):
        step_of(tmp_path / "infer.lnt")


# ---- the command


def test_command_prints_a_table_and_a_picture(command: Callable[..., str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots need matplotlib: pip install 'linnet-runtime[train]'")
    picture = tmp_path / "backup.png"
    text = command(
        "simulate", "--workers", "50", "--backup", "0,4", "--scatter", "stragglers:0.03,0.5", "--step-time", "2s",
        "--servers", "16", "--steps", "30", "--plot", str(picture),
    )  # fmt: skip
    assert "synchronous, 4 backup" in text and " 54 " in text
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 5000
    curves = tmp_path / "curves.svg"
    command(
        "simulate",
        "--mode",
        "synchronous,asynchronous,ring,tree,groups,federated",
        "--workers",
        "8,16",
        "--steps",
        "5",
        "--plot",
        str(curves),
    )
    assert curves.read_text().count("groups") == 1


def test_command_gives_json_and_repeats_it(command: Callable[..., str]) -> None:
    line = (
        "simulate",
        "--workers",
        "2,4",
        "--scatter",
        "lognormal:0.2",
        "--compression",
        "i8",
        "--steps",
        "10",
        "--json",
    )
    first, second = (json.loads(command(*line)) for _ in range(2))
    assert first == second
    assert [r["setting"]["hardware"]["workers"] for r in first["results"]] == [2, 4]
    assert first["results"][0]["setting"]["traffic"]["push_ratio"] == pytest.approx(0.254, abs=1e-3)


def test_command_halves_pulled_values(command: Callable[..., str]) -> None:
    """As servers do: pulls have half the bytes, pushes have all."""
    line = ("simulate", "--workers", "2", "--steps", "5", "--json")
    plain, half = (json.loads(command(*line, *more))["results"][0] for more in ((), ("--pull-compression", "bf16")))
    assert half["setting"]["traffic"]["pull_ratio"] == 0.5 and half["setting"]["traffic"]["push_ratio"] == 1
    assert half["bytes_per_step"] == 0.75 * plain["bytes_per_step"]


def test_command_predicts_a_models_speed_up(command: Callable[..., str], trained: Path) -> None:
    line = ("simulate", str(trained), "--workers", "1,4", "--steps", "5")
    slow, fast = (json.loads(command(*line, "--link", link, "--json")) for link in ("1mbit", "100gbit"))
    assert slow["model"]["compute_to_transfer"] < fast["model"]["compute_to_transfer"]
    assert slow["results"][1]["speedup"] < fast["results"][1]["speedup"]
    assert "ratio of computation to transfer" in command(*line)


def test_command_shows_published_results(command: Callable[..., str]) -> None:
    text = command("simulate", "--published", "null-step")
    assert "published" in text and "assumed:" in text and "OSDI 2016" in text
    found = json.loads(command("simulate", "--published", "sparse", "--json"))["comparisons"]
    assert [c["name"] for c in found] == ["sparse"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--workers", "0"), "--workers"), (("--workers", "a"), "--workers"), (("--link", "fast"), "data rate"),
        (("--mode", "chaos"), "unknown mode"), (("--times", "nowhere.csv"), "nowhere.csv"),
        (("--costs", "nowhere.json"), "nowhere.json"), (("nowhere.lnt",), "nowhere.lnt"), (("--compression", "lzma"), "lzma"),
        (("--backup", "-1"), "--backup"), (("--plot", "/nowhere/x.png", "--steps", "2", "--workers", "2"), "/nowhere"),
    ],
)  # fmt: skip
def test_command_refuses_in_one_line(command: Callable[..., str], arguments: tuple[str, ...], text: str) -> None:
    assert text in command("simulate", *arguments, status=1)


@pytest.mark.more
def test_costs_are_measured_on_a_real_server(command: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    text = command("simulate", "--measure", str(path))
    found = json.loads(path.read_text())
    assert "ns a byte" in text and set(found) == {
        "message",
        "worker_message",
        "receive",
        "send",
        "aggregate",
        "apply",
        "row",
    }
    assert (
        1e-7 < found["message"] < 0.1
        and 1e-12 < found["receive"] < 1e-6
        and all(value >= 0 for value in found.values())
    )
    made = json.loads(command("simulate", "--costs", str(path), "--workers", "2", "--steps", "2", "--json"))
    assert made["results"][0]["setting"]["hardware"]["receive"] == found["receive"]


def test_command_takes_costs(command: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text('{"message": 0.01}')
    line = ("simulate", "--workers", "4", "--bytes", "1KB", "--steps", "3", "--json")
    plain, dear = (json.loads(command(*line, *more))["results"][0] for more in ((), ("--costs", str(path))))
    assert dear["step_seconds"]["median"] > plain["step_seconds"]["median"] + 0.04
    for text, reason in (('{"mesage": 1}', "the file of costs has unknown names"), ("[1]", "must hold a JSON object")):
        path.write_text(text)
        assert reason in command(*line, "--costs", str(path), status=1)


def test_the_output_explains_itself(command: Callable[..., str]) -> None:
    """The example of the page: backup workers gain what the output says, and the parts of a step are named."""
    lines = (ROOT / "docs" / "simulation.md").read_text().splitlines()
    example = next(line for line in lines if line.startswith("linnet simulate --workers 50 --backup 0,4"))
    text = command(*example.split()[1:])
    assert "a step takes the first 50 gradients of 54, and on average 1.58 s instead of 2.62 s." in text
    assert "65% more examples per second; 5.9% of the gradients are dropped." in text
    assert "Speed-up: against one worker" in text and "waiting for slower workers" in text
    text = command("simulate", "--workers", "50", "--backup", "4", "--steps", "20")
    assert "All workers are equally fast here, so backup workers cannot help" in text
    assert "99% of a step are transfers: 10.8 GB to and from 1 server." in text
    text = command("simulate", "--backup", "2", "--scatter", "lognormal:0.3", "--workers", "8", "--steps", "20")
    assert "Without backup workers for comparison: --backup 0,2." in text


def test_the_parts_of_a_step() -> None:
    """Computing, transfers and waiting add up to the step, and are what a closed formula says where one is known."""
    even = setting(sim.Compute(1.0), sim.Traffic(1.0, 1.0), workers=20)
    assert parts_of(sim.run(even, steps=20)) == pytest.approx((1.0, 0.0, 0.0), abs=1e-3)
    slow = dataclasses.replace(even, compute=sim.Compute(1.0, "stragglers:0.5,1"))
    parts = parts_of(sim.run(slow, steps=200))  # in nearly each step, one of 20 workers takes twice as long
    assert (
        parts.computing == pytest.approx(1.5 / 2.1, abs=0.04)
        and parts.transfers < 1e-3
        and sum(parts) == pytest.approx(1.0)
    )
    far = setting(sim.Compute(1.0), sim.Traffic(1e9, 1e9), workers=1)  # a second in each direction
    assert parts_of(sim.run(far, steps=20)) == pytest.approx((1 / 3, 2 / 3, 0.0), abs=1e-2)
