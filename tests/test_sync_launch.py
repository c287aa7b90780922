"""`linnet launch` with real processes: their environment, the output, exit statuses, restarts, signals, and that no process
remains, whatever kills the launcher."""
# Dear: jobs of several processes, each of which imports linnet, are started and killed.

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

MARK = "LINNET_TEST_MARK"


def marked(mark: str) -> list[int]:
    """Processes that have inherited the mark of a test, found here independently of the launcher."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and f"{MARK}={mark}\0".encode() in (entry / "environ").read_bytes() + b"\0":
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


def wait_for(what: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "this took too long"
        time.sleep(0.01)


class Launcher:
    """Runs `linnet launch` on a script, and tracks all processes that it starts."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mark = folder, uuid.uuid4().hex

    def start(self, script: str, *options: str, arguments: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        path = self.folder / "script.py"
        path.write_text("import os, signal, subprocess, sys, time\n" + script)
        return subprocess.Popen(
            [sys.executable, "-m", "linnet", "launch", *options, str(path), *arguments], env={**os.environ, MARK: self.mark},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder,
        )  # fmt: skip

    def run(self, script: str, *options: str, arguments: tuple[str, ...] = ()) -> tuple[int, list[str], list[str]]:
        """Exit status and the lines of stdout and stderr, once no process is left."""
        ran = self.start(script, *options, arguments=arguments)
        out, err = ran.communicate(timeout=60)
        assert marked(self.mark) == []
        return ran.returncode, out.splitlines(), err.splitlines()

    def names(self) -> set[str]:
        """Files that the script's processes have made."""
        return {path.name for path in self.folder.iterdir()} - {"script.py"}


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    made = Launcher(tmp_path)
    yield made
    for pid in marked(made.mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


ROLE = "from linnet.sync import cluster\nc = cluster()\n"


def test_processes_know_their_place_and_lines_their_process(launcher: Launcher) -> None:
    script = ROLE + (
        "print(c.role, c.rank, c.world_size, c.local_rank, c.local_size, c.hosts_server, *sys.argv[1:])\n"
        "print('server', *c.servers, file=sys.stderr)\n"
    )
    status, out, err = launcher.run(script, "-n", "3", arguments=("-n", "9", "--lr=1"))
    assert status == 0
    assert sorted(out) == [f"[worker {r}] worker {r} 3 {r} 3 {r == 0} -n 9 --lr=1" for r in range(3)]
    addresses = {line.split()[-1] for line in err}
    assert sorted(err)[0].startswith("[launch]   watch this job with: linnet top unix:/")
    assert len(err) == 4 and len(addresses) == 1 and addresses.pop().startswith("unix:/")
    # Servers are asked to end when the workers are done, but not before they have identified themselves.
    script += (
        "open(f'{c.role}{c.rank}', 'w').close()\n"
        "while not (os.path.exists('server0') and os.path.exists('server1')):\n    time.sleep(0.01)\n"
    )
    status, out, err = launcher.run(script, "-n", "2", "--servers", "2")
    assert status == 0
    expected = [f"[server {r}] server {r} 2 {r} 2 False" for r in range(2)] + [
        f"[worker {r}] worker {r} 2 {r} 2 False" for r in range(2)
    ]
    assert sorted(out) == expected and len(err) == 5
    assert len({tuple(line.split()[-2:]) for line in err}) == 1, "the launcher names the same two addresses"


def test_lines_are_whole(launcher: Launcher) -> None:
    script = (
        "w = sys.stdout.write\n"
        "w('half'); sys.stdout.flush(); time.sleep(0.1); w(' and half\\n')\n"
        "w('10%\\r50%\\r100%\\r\\n'); w('\\n'); w('x' * 200000 + '\\n'); w('no end')\n"
    )
    status, out, _ = launcher.run(script)
    assert status == 0 and out[0] == "[worker 0] half and half" and out[1] == "[worker 0] 100%"
    assert out[2].rstrip() == "[worker 0]" and out[-1] == "[worker 0] no end"
    assert "".join(line.removeprefix("[worker 0] ") for line in out[3:-1]) == "x" * 200000


def test_the_first_failure_ends_all_and_is_the_status(launcher: Launcher) -> None:
    script = ROLE + "time.sleep(0.2 if c.rank == 1 else 60)\nsys.exit(7)\n"
    began = time.monotonic()
    status, _, err = launcher.run(script, "-n", "3", "--servers", "1")
    assert status == 7 and time.monotonic() - began < 50  # the others sleep for 60
    assert "worker 1 exited with status 7" in err[-1] and "the other 3" in err[-1]
    status, _, err = launcher.run(ROLE + "c.rank == 0 and os.kill(os.getpid(), 9)\ntime.sleep(60)\n", "-n", "2")
    assert status == 137 and "SIGKILL" in err[-1]


def test_restarts(launcher: Launcher) -> None:
    script = ROLE + (
        "again = int(os.environ['LINNET_RESTART'])\nprint('run', again)\n"
        "open(f'{c.role}{c.rank}.{again}', 'w').close()\nsys.exit(3 if c.rank == 1 and again < 2 else 0)\n"
    )
    status, out, err = launcher.run(script, "-n", "2", "--restarts", "2")
    assert status == 0 and launcher.names() == {"worker0.0", "worker1.0", "worker1.1", "worker1.2"}
    assert out.count("[worker 1] run 2") == 1 and "restart 2 of 2" in err[-1]
    assert launcher.run(script, "-n", "2", "--restarts", "1")[0] == 3


SERVER = ROLE + (
    "def end(*_):\n    open('saved', 'w').close()\n    sys.exit(0)\n"
    "if c.role == 'server':\n    signal.signal(signal.SIGTERM, end)\n    open('up', 'w').close()\n    time.sleep(60)\n"
    "while not os.path.exists('up'):\n    time.sleep(0.01)\n"
)


def test_servers_end_in_order_when_the_workers_are_done(launcher: Launcher) -> None:
    status, _, err = launcher.run(SERVER, "-n", "2", "--servers", "1")
    assert status == 0 and len(err) == 1 and "saved" in launcher.names()


def test_hosts_run_nodes_of_the_workers(launcher: Launcher) -> None:
    script = ROLE + (
        "import linnet, numpy as np\n"
        "g = linnet.Graph(seed=1)\nx = g.placeholder('x', (4, 8))\ng.signature('infer', {'x': x}, {'y': linnet.nn.relu(x)})\n"
        "s = linnet.Session(g, devices=c.hosts, placement={'*': c.hosts[c.rank]})\n"
        "y = s.run({'x': np.ones((4, 8), np.float32)})['y']\n"
        "print(len(c.hosts), c.hosts[c.rank] in [t.device for t in s.steps], float(y.sum()))\n"
    )
    status, out, err = launcher.run(script, "-n", "2", "--hosts", "2", "--host-options", "--threads 1 --max-bytes 8MB")
    assert status == 0, err
    workers = sorted(line for line in out if line.startswith("[worker"))
    assert workers == [f"[worker {r}] 2 True 32.0" for r in range(2)]
    assert sum("listening unix:" in line for line in out) == 2
    status, _, err = launcher.run("time.sleep(60)", "--hosts", "1", "--host-options", "--wrong")
    assert status == 2 and "unknown option '--wrong'" in err[0]
    status, _, err = launcher.run("", "--nodes", "2", "--at", "a:1", "--hosts", "1")
    assert status == 1 and "LINNET_HOSTS" in err[-1]


def test_who_does_not_end_is_killed(launcher: Launcher) -> None:
    script = ROLE + (
        "if c.role == 'server':\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    open('up', 'w').close()\n"
        "    time.sleep(60)\n"
        "while not os.path.exists('up'):\n    time.sleep(0.01)\n"
    )
    status, _, err = launcher.run(script, "--servers", "1", "--grace", "0.3")
    assert status == 137 and "did not exit within 0.3 s" in err[-1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_passed_on(launcher: Launcher, number: signal.Signals) -> None:
    script = ROLE + (
        f"def end(n, _):\n    open(f'got{{c.rank}}.{{n}}', 'w').close()\n    sys.exit(0)\nsignal.signal({int(number)}, end)\n"
        "open(f'up{c.rank}', 'w').close()\ntime.sleep(60)\n"
    )
    ran = launcher.start(script, "-n", "2")
    wait_for(lambda: {"up0", "up1"} <= launcher.names())
    ran.send_signal(number)
    ran.communicate(timeout=20)
    assert ran.returncode == 0 and {f"got{r}.{int(number)}" for r in (0, 1)} <= launcher.names()
    assert marked(launcher.mark) == []


def test_status_of_a_signal_that_ends_them(launcher: Launcher) -> None:
    ran = launcher.start("open('up', 'w').close()\ntime.sleep(60)\n")
    wait_for(lambda: "up" in launcher.names())
    ran.send_signal(signal.SIGTERM)
    ran.communicate(timeout=20)
    assert ran.returncode == 128 + signal.SIGTERM and marked(launcher.mark) == []


def test_other_signals_reach_the_processes_and_a_second_one_is_not_waited_for(launcher: Launcher) -> None:
    script = (
        "signal.signal(signal.SIGUSR1, lambda *_: open('usr1', 'w').close())\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "open('up', 'w').close()\n[time.sleep(1) for _ in range(60)]\n"
    )
    ran = launcher.start(script, "--grace", "60")
    wait_for(lambda: "up" in launcher.names())
    ran.send_signal(signal.SIGUSR1)
    wait_for(lambda: "usr1" in launcher.names())
    began = time.monotonic()
    for _ in range(2):
        ran.send_signal(signal.SIGINT)
        time.sleep(0.2)
    ran.communicate(timeout=50)
    assert ran.returncode == 130 and time.monotonic() - began < 50


# A process that has left its group and session, and resists ending.
STRAY = (
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "subprocess.Popen([sys.executable, '-c', \"import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "open('stray', 'w').close(); time.sleep(60)\"], start_new_session=True)\n"
)


def test_nothing_outlives_a_launch(launcher: Launcher) -> None:
    wait = "while not os.path.exists('stray'):\n    time.sleep(0.01)\n"
    status, _, _ = launcher.run(STRAY + wait, "-n", "1", "--grace", "0.2")
    assert status == 0  # and run() has checked that nothing is left


def test_nothing_outlives_a_launcher_that_is_killed(launcher: Launcher) -> None:
    script = (
        ROLE + "open(f'at{c.rank}', 'w').write(c.servers[0])\nif c.address:\n    open(c.address[5:], 'w').close()\n"
    )
    ran = launcher.start(script + STRAY + "time.sleep(60)\n", "-n", "3", "--grace", "0.3")
    wait_for(lambda: {"at0", "at1", "at2", "stray"} <= launcher.names())
    socket = Path((launcher.folder / "at0").read_text().removeprefix("unix:"))
    assert socket.exists() and len(marked(launcher.mark)) >= 5
    ran.kill()
    wait_for(lambda: marked(launcher.mark) == [])
    assert not socket.exists()
    ran.communicate()


@pytest.mark.parametrize("delay", [0.15, 0.2, 0.25, 0.3, 0.35, 0.4])
def test_killed_while_it_starts(launcher: Launcher, delay: float) -> None:
    ran = launcher.start("time.sleep(60)\n", "-n", "4", "--grace", "0.1")
    time.sleep(delay)
    ran.kill()
    wait_for(lambda: marked(launcher.mark) == [])
    ran.communicate()


def test_when_nobody_reads(launcher: Launcher) -> None:
    ran = launcher.start("while True:\n    print('y' * 1000)\n", "-n", "2")
    assert ran.stdout is not None and ran.stdout.readline()
    ran.stdout.close()
    assert ran.wait(timeout=20) != 0
    wait_for(lambda: marked(launcher.mark) == [])


def test_programs_modules_and_mistakes(
    launcher: Launcher, linnet_process: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    ran = linnet_process("launch", "-n", "2", "sh", "-c", "echo $LINNET_RANK of $LINNET_WORLD_SIZE")
    assert sorted(ran.stdout.splitlines()) == ["[worker 0] 0 of 2", "[worker 1] 1 of 2"]
    ran = linnet_process("launch", "-m", "json.tool", "/nowhere")
    assert ran.returncode == 1 or ran.returncode == 2
    for arguments, word in (
        (("none.py",), "none.py"), (("no-such-program",), "no-such-program"), (("-n", "0", "x.py"), "-n"),
        (("--nodes", "2", "sh"), "--at"), (("--nodes", "2", "--at", "h:1", "--node", "2", "sh"), "--node"),
        (("--nodes", "2", "--at", "h:1", "--servers", "1", "sh"), "--servers"), ((), "PROGRAM"),
    ):  # fmt: skip
        ran = linnet_process("launch", *arguments)
        assert ran.returncode in (1, 2) and word in ran.stderr and ran.stderr.count("\n") == 1, ran.stderr


def test_several_machines(launcher: Launcher) -> None:
    script = ROLE + "print(c.rank, c.world_size, c.local_rank, c.servers[0], c.address)\n"
    lines: list[str] = []
    for node in range(2):
        status, out, err = launcher.run(
            script, "-n", "2", "--nodes", "2", "--node", str(node), "--at", "127.0.0.1:4711"
        )
        assert status == 0, err
        lines += out
    at = "127.0.0.1:4711"
    assert sorted(lines) == [f"[worker {r}] {r} 4 {r % 2} {at} {at if r == 0 else None}" for r in range(4)]


FIT = """import numpy as np, linnet
graph = linnet.Graph(seed=0)
x, y = graph.placeholder("x", ("batch",)), graph.placeholder("y", ("batch",))
w, b = graph.variable("w", np.zeros((), np.float32)), graph.variable("b", np.zeros((), np.float32))
linnet.sync.signatures(graph, ((w * x + b - y) * (w * x + b - y)).mean(), linnet.SGD(0.1), {"x": x, "y": y}, accumulate=True)
examples = np.random.default_rng(0).standard_normal(400).astype(np.float32)
cluster = linnet.sync.cluster()
history = linnet.fit(graph, {"x": examples, "y": 3 * examples - 1}, batch_size=10, epochs=2, cluster=cluster, progress=False)
if cluster.is_chief:
    variables = history.graph.variables
    print("trained", history.step, float(variables["w"].value), float(variables["b"].value))
"""


def _trained(lines: list[str]) -> str:
    (line,) = [line for line in lines if "trained" in line]
    return line[line.index("trained") :]


def test_one_script_trains_alike_however_it_is_started(launcher: Launcher) -> None:
    """With a server in worker 0, with separate servers, and under the other launchers: the same bits."""
    status, out, err = launcher.run(FIT, "-n", "2")
    assert status == 0, err
    result = _trained(out)
    _, steps, w, b = result.split()
    assert steps == "40" and float(w) == pytest.approx(3, abs=1e-2) and float(b) == pytest.approx(-1, abs=1e-2)
    status, out, err = launcher.run(FIT, "-n", "2", "--servers", "2")
    assert status == 0 and _trained(out) == result, err
    script = str(launcher.folder / "script.py")
    alone = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True)
    assert _trained(alone.stdout.splitlines()).split()[1] == "80"
    folder = Path(sys.executable).parent
    others = [[str(folder / "torchrun"), "--standalone", "--nproc-per-node=2", script]]
    others.append([str(folder / "mpirun"), "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable, script])
    for command in others:
        if not Path(command[0]).exists():  # tests/test_sync_cluster.py says what to install
            continue
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert ran.returncode == 0 and _trained(ran.stdout.splitlines()) == result, ran.stderr


TOGETHER = """
import numpy as np
import linnet

rng = np.random.default_rng(0)
data = {"x": rng.standard_normal((40, 6)).astype(np.float32), "t": rng.integers(0, 3, 40).astype(np.int32)}
graph = linnet.Graph(seed=1)
x, t = graph.placeholder("x", ("batch", 6)), graph.placeholder("t", ("batch",), "i32")
loss = linnet.softmax_cross_entropy(linnet.nn.dense(x, 3), t).mean()
linnet.sync.signatures(graph, loss, linnet.Adam(0.05), {"x": x, "t": t}, accumulate=True)
history = linnet.fit(graph, data, epochs=3, batch_size=5, accumulate=4, cluster=linnet.sync.cluster())
print(round(history["loss"][-1], 5))
"""


def test_every_role_has_a_history(launcher: Launcher) -> None:
    """Each process prints the last loss: all workers print what one process prints."""
    path = launcher.folder / "alone.py"
    path.write_text(TOGETHER)
    alone = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True, timeout=120).stdout
    status, out, err = launcher.run(TOGETHER, "-n", "4", "--servers", "1")
    assert status == 0, err
    lines = dict(line.lstrip("[").split("]") for line in out)
    workers = {float(text) for name, text in lines.items() if name.startswith("worker")}
    assert len(lines) == 5 and workers == {float(alone)}


TRAIN = """
import numpy as np, linnet
from linnet.sync import cluster
if "forget" in sys.argv:
    os.environ.pop("LINNET_STATE", None)
c, graph = cluster(), linnet.Graph(seed=1)
x, t = graph.placeholder("x", ("batch", 8)), graph.placeholder("t", ("batch", 1))
loss = linnet.losses.mse(linnet.nn.dense(x, 1), t).mean()
linnet.sync.signatures(graph, loss, linnet.Adam(0.05), {"x": x, "t": t}, accumulate=True)
rng = np.random.default_rng(0)
rows = rng.standard_normal((200, 8)).astype(np.float32)
data = {"x": rows, "t": rows @ rng.standard_normal((8, 1)).astype(np.float32)}
with open(f"pid.{c.role}{c.rank}", "w") as file:
    file.write(str(os.getpid()))
class Kill(linnet.Callback):
    def on_step(self, run, metrics):
        if any(sys.argv[1:2]) and c.rank == 0 and run.step == 17 and not os.path.exists("killed"):
            open("killed", "w").write(os.environ.get("LINNET_STATE", ""))
            os.kill(int(open("pid." + sys.argv[1]).read()), signal.SIGKILL)
            time.sleep(0.2)
place = {"directory": "run"} if "directory" in sys.argv else {}
strategy = linnet.sync.Strategy(lost=20)
history = linnet.fit(graph, data, batch_size=5, epochs=6, cluster=c, strategy=strategy, callbacks=[Kill()], **place)
if c.role == "worker":
    print("ended", history.step, history["loss"][-1], float(history.store["dense/weight"].sum()))
"""


def ends(out: list[str]) -> set[str]:
    """What the workers print at the end."""
    found = [line.partition("ended ")[2] for line in out if "ended " in line]
    assert len(found) == 2, out
    return set(found)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The end of the job in which nothing is killed."""
    (found,) = ends(Launcher(tmp_path_factory.mktemp("whole")).run(TRAIN, "-n", "2", "--servers", "1")[1])
    assert found.startswith("120 ")
    return found


@pytest.mark.parametrize(
    ("victim", "options"),
    [
        ("server0", ("--servers", "1")), ("worker0", ()),
        *(
            pytest.param(victim, ("--servers", servers), marks=pytest.mark.more)
            for victim, servers in (("server1", "2"), ("worker0", "1"), ("worker1", "1"))
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", [(), ("directory",)], ids=["no directory", "directory"])
def test_a_killed_process_costs_no_step(
    launcher: Launcher, undisturbed: str, victim: str, options: tuple[str, ...], place: tuple[str, ...]
) -> None:
    """Servers keep their state while the launcher may restart them, so that the job ends as without the kill -9."""
    status, out, err = launcher.run(TRAIN, "-n", "2", "--restarts", "1", *options, arguments=(victim, *place))
    assert status == 0, (out, err)
    assert sum("SIGKILL; restart 1 of 1" in line for line in err) == 1, err
    assert ends(out) == {undisturbed}
    state = Path((launcher.folder / "killed").read_text())
    assert state.is_absolute() and not state.exists()  # the launcher's folder, which it has removed
    assert (launcher.folder / "run").exists() == bool(place)


@pytest.mark.more
def test_a_server_without_its_state_is_an_error(launcher: Launcher) -> None:
    """Whatever has started the server again: the workers do not follow it to an older step."""
    arguments = ("server0", "forget")
    status, out, err = launcher.run(TRAIN, "-n", "2", "--servers", "1", "--restarts", "1", arguments=arguments)
    assert status == 1 and not any("ended " in line for line in out), out
    text = "the server has lost 16 of 17 steps because it was started again without its state"
    assert any(text in line and "give fit a directory=" in line for line in err), err


def test_a_directory_of_another_job_is_not_continued(launcher: Launcher) -> None:
    """A restart continues what its own job has begun, and nothing else."""
    arguments = ("", "directory")
    assert launcher.run(TRAIN, "-n", "2", "--servers", "1", arguments=arguments)[0] == 0
    status, _, err = launcher.run(
        TRAIN, "-n", "2", "--servers", "1", "--restarts", "2", "--grace", "0.2", arguments=arguments
    )
    assert status == 1 and sum("already holds a" in line for line in err) >= 3, err


def test_the_state_goes_with_a_launcher_that_is_killed(launcher: Launcher) -> None:
    script = "open('up', 'w').write(os.environ['LINNET_STATE'])\ntime.sleep(60)\n"
    ran = launcher.start(script, "--restarts", "1", "--grace", "0.2")
    wait_for(lambda: "up" in launcher.names() and (launcher.folder / "up").read_text() != "")
    state = Path((launcher.folder / "up").read_text())
    assert state.is_dir() and state.stat().st_mode & 0o077 == 0
    ran.kill()
    wait_for(lambda: not state.exists())
    ran.communicate()
    assert (
        "LINNET_STATE" not in launcher.run("print(*os.environ)\n")[1][0]
    )  # nothing is kept for a job without restarts
