"""Runs the processes of a job on this machine for `linnet launch`: starts them, shows their output, forwards signals,
restarts or ends them, and leaves none behind. It uses one thread and one loop."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from linnet.sync import guard, launchers

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PASSED: Final = (*_ENDING, signal.SIGUSR1, signal.SIGUSR2)
_LINE: Final = 1 << 16  # bytes of a line that are shown in one piece
_HOSTS_START: Final = 20.0  # seconds within which a host listens


@dataclasses.dataclass(eq=False)
class _Process:
    """One process of the job and its state. rank: index within its role."""

    role: str
    rank: int
    env: dict[str, str]
    command: list[str]
    running: subprocess.Popen[bytes] | None = None
    restarts: int = 0
    start_at: float | None = None  # when to start it (again)
    status: int | None = None  # exit status as reported by subprocess
    told: bool = False  # the launcher has asked it to exit

    @property
    def name(self) -> str:
        return f"{self.role} {self.rank}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """The processes of a job, and where they run.

    workers, servers: number of each on this machine. If there are no servers, worker 0 runs the server.
    hosts, host_options: number of processes of linnet-host on this machine, on which workers may run nodes, and options
        of each.
    device: what LINNET_DEVICE is in workers. In `device` and in the command, {rank} stands for the rank of the process,
        and {local_rank} for its index on this machine.
    nodes, node, address: for several machines, which all run the same number of workers: the number of machines, the
        index of this machine, and HOST:PORT of the server on the first machine.
    """

    workers: int
    servers: int = 0
    hosts: int = 0
    host_options: tuple[str, ...] = ()
    nodes: int = 1
    node: int = 0
    address: str = ""
    device: str = ""


class Job:
    """The processes of a job on this machine. `run` returns the exit status for the shell.

    command: what every process runs.
    restarts: how often a failed process is restarted. Servers then keep their state in a temporary folder, unless the
        program gives them a directory. grace: seconds between asking a process to exit and killing it.
    """

    def __init__(self, command: Sequence[str], layout: Layout, *, restarts: int = 0, grace: float = 10.0) -> None:
        self.command, self.restarts, self.grace = list(command), restarts, grace
        workers, servers, nodes, address = layout.workers, layout.servers, layout.nodes, layout.address
        self.token = secrets.token_hex(8)
        name = f"launch-{self.token}"
        self.addresses = [launchers.local_socket(f"{name}/{k}") for k in range(servers)]
        self.hosts = [launchers.local_socket(f"{name}/host/{k}") for k in range(layout.hosts)]
        shared = {
            **os.environ, "PYTHONUNBUFFERED": "1", guard.TOKEN: self.token, "LINNET_JOB": name,
            "LINNET_WORLD_SIZE": str(workers * nodes),
        }  # fmt: skip
        if self.hosts:
            shared["LINNET_HOSTS"] = ",".join(self.hosts)
        if nodes > 1:
            host, _, port = address.rpartition(":")
            shared |= {"MASTER_ADDR": host.strip("[]"), "MASTER_PORT": port}
        if servers:
            shared["LINNET_SERVERS"] = ",".join(self.addresses)
        elif nodes == 1:
            self.addresses = [launchers.local_socket(name)]  # where worker 0 will run its server
        # Where `linnet top` finds the servers of this machine; a process alone needs none.
        self.watched = (
            ([address] if layout.node == 0 else []) if nodes > 1 else self.addresses if servers or workers > 1 else []
        )

        def process(role: str, local: int, rank: int, count: int) -> _Process:
            place = {"LINNET_ROLE": role, "LINNET_RANK": rank, "LINNET_LOCAL_RANK": local, "LINNET_LOCAL_SIZE": count}
            env = {**shared, **{k: str(v) for k, v in place.items()}}
            if layout.device and role == "worker":
                env["LINNET_DEVICE"] = _placed(layout.device, env)
            return _Process(role, rank, env, self.command)

        self.processes = [process("host", k, k, layout.hosts) for k in range(layout.hosts)]
        for address, host_process in zip(self.hosts, self.processes, strict=True):
            tool = [sys.executable, "-m", "linnet", "host", "--listen", address]
            host_process.command = [*tool, *layout.host_options]
        self.processes += [process("server", k, k, servers) for k in range(servers)]
        self.processes += [process("worker", i, layout.node * workers + i, workers) for i in range(workers)]
        self._width = max(len(p.name) for p in self.processes)
        self._selector = selectors.DefaultSelector()
        self._rests: dict[IO[bytes], bytes] = {}
        self._failure: int | None = None  # exit status determined by the first failure
        self._signal: int | None = None
        self._kill_at: float | None = None  # when to kill the processes that were asked to exit

    # ---- the loop ------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Runs the job to its end. Returns 0 on success. If a process failed, returns the status of the first one that
        failed (128 + n if signal n killed it). If signal n ended the launcher, returns 128 + n, or 0 if every process
        then exited with 0."""
        files = [Path(address.partition(":")[2]) for address in (*self.addresses, *self.hosts)]
        if self.restarts:
            files.append(Path(tempfile.mkdtemp(prefix="linnet-state-")))
            for process in self.processes:
                process.env["LINNET_STATE"] = str(files[-1])
        watcher = guard.Guard(self.token, files, self.grace)
        woken, wake = os.pipe()
        for fd in (woken, wake):
            os.set_blocking(fd, False)
        handlers = {number: signal.signal(number, lambda *_: None) for number in (*_PASSED, signal.SIGCHLD)}
        previous = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._selector.register(woken, selectors.EVENT_READ)
        try:
            if self.watched:
                self._say("watch this job with: linnet top " + " ".join(self.watched))
            for process in self.processes:
                if process.role != "host":
                    self._await_hosts()
                self._start(process)
            while any(p.running is not None or p.start_at is not None for p in self.processes):
                self._turn(woken)
        finally:
            guard.end_all(self.token, self.grace if sys.exc_info()[0] is None else 0)
            for pipe in list(self._rests):
                self._show(pipe)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(previous)
            self._selector.close()
            for fd in (woken, wake):
                os.close(fd)
            watcher.close()
            guard.remove(files)
        return self._result()

    def _turn(self, woken: int) -> None:
        moments = [p.start_at for p in self.processes if p.start_at is not None]
        if self._kill_at is not None:
            moments.append(self._kill_at)
        wait = max(0.0, min(moments) - time.monotonic()) if moments else None
        for key, _ in self._selector.select(wait):
            if key.fd == woken:
                for number in os.read(woken, 4096):
                    if number in _PASSED:
                        self._pass_on(number)
            else:
                self._show(key.fileobj)  # type: ignore[arg-type]
        for process in self.processes:
            if process.running is not None and process.running.poll() is not None:
                self._ended(process)
        now = time.monotonic()
        for process in self.processes:
            if process.start_at is not None and process.start_at <= now:
                self._start(process)
        if self._kill_at is not None and self._kill_at <= now:
            self._kill_at = None
            for process in self.processes:
                if process.running is not None:
                    self._say(f"{process.name} did not exit within {self.grace:g} s; killing it")
                    self._send(process, signal.SIGKILL)

    # ---- processes -----------------------------------------------------------------------------------------------

    def _await_hosts(self) -> None:
        """Waits until hosts listen or have ended, because a program names them at once. At most some seconds."""
        end = time.monotonic() + _HOSTS_START
        for address, process in zip(self.hosts, self.processes, strict=False):
            while process.running is not None and process.running.poll() is None and not _listens(address):
                if time.monotonic() > end:
                    return
                time.sleep(0.01)

    def _start(self, process: _Process) -> None:
        process.start_at = process.status = None
        process.env["LINNET_RESTART"] = str(process.restarts)
        process.running = subprocess.Popen(
            [_placed(word, process.env) for word in process.command], env=process.env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        for pipe, out in ((process.running.stdout, sys.stdout), (process.running.stderr, sys.stderr)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, (process, out))
            self._rests[pipe] = b""

    def _ended(self, process: _Process) -> None:
        assert process.running is not None
        for pipe in (process.running.stdout, process.running.stderr):
            if pipe in self._rests:
                self._show(pipe)
        process.status, process.running = process.running.returncode, None
        ending = self._failure is not None or self._signal is not None
        if process.status == 0 or process.told:
            if process.role == "worker" and not ending and self._workers_done():
                self._ask_to_end([p for p in self.processes if p.role != "worker"], signal.SIGTERM)
            return
        if ending:
            return
        how = _how(process.status)
        if process.restarts < self.restarts:
            pause = min(5.0, 0.1 * 2**process.restarts)
            process.restarts += 1
            process.start_at = time.monotonic() + pause
            self._say(f"{process.name} {how}; restart {process.restarts} of {self.restarts} in {pause:g} s")
            return
        self._failure = _shell_status(process.status)
        others = [p for p in self.processes if p.running is not None]
        self._say(f"{process.name} {how}" + (f"; stopping the other {len(others)}" if others else ""))
        self._ask_to_end(self.processes, signal.SIGTERM)

    def _workers_done(self) -> bool:
        return all(p.status == 0 and p.start_at is None for p in self.processes if p.role == "worker")

    def _ask_to_end(self, processes: Sequence[_Process], number: int) -> None:
        for process in processes:
            process.start_at = None
            process.told = True
            self._send(process, number)
        self._kill_at = time.monotonic() + self.grace

    def _pass_on(self, number: int) -> None:
        if number not in _ENDING:
            for process in self.processes:
                if process.role != "host":  # linnet-host gives them no meaning
                    self._send(process, number)
        elif self._signal is None:
            self._signal = number
            self._ask_to_end(self.processes, number)
        else:
            self._kill_at = time.monotonic()  # asked a second time

    @staticmethod
    def _send(process: _Process, number: int) -> None:
        """Sends a signal to the process and the processes that it has started."""
        if process.running is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.running.pid, number)

    def _result(self) -> int:
        if self._failure is not None:
            return self._failure
        if self._signal is not None:
            return 0 if all(p.status == 0 for p in self.processes) else 128 + self._signal
        # A server that is asked to exit when the work is done may die by SIGTERM's default action.
        bad = [p.status for p in self.processes if p.status not in (0, -signal.SIGTERM, 128 + signal.SIGTERM)]
        return _shell_status(bad[0] or 0) if bad else 0

    # ---- output --------------------------------------------------------------------------------------------------

    def _show(self, pipe: IO[bytes]) -> None:
        """Prints complete lines of a process's output, each prefixed with its name. An incomplete line is kept until
        the pipe ends."""
        process, out = self._selector.get_key(pipe).data
        while True:
            try:
                data = os.read(pipe.fileno(), _LINE)
            except BlockingIOError:
                return
            rest = self._rests[pipe] + data
            *lines, rest = rest.split(b"\n")
            if rest and (not data or len(rest) >= _LINE):
                lines, rest = [*lines, rest], b""
            self._rests[pipe] = rest
            # A progress bar overwrites itself. Only the last text that it showed is kept.
            self._write(out, process.name, [line.rstrip(b"\r").rpartition(b"\r")[2] for line in lines])
            if not data:
                self._selector.unregister(pipe)
                del self._rests[pipe]
                pipe.close()
                return

    def _write(self, out: IO[str], name: str, lines: Sequence[bytes]) -> None:
        prefix = f"[{name}]".ljust(self._width + 2).encode()
        try:
            left = b"".join(prefix + b" " + line + b"\n" for line in lines)
            while left:
                left = left[os.write(out.fileno(), left) :]
        except BrokenPipeError:  # the reader has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
            self._pass_on(signal.SIGTERM)

    def _say(self, text: str) -> None:
        self._write(sys.stderr, "launch", [text.encode()])


def _listens(address: str) -> bool:
    """Whether a Unix socket takes connections."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(address.partition(":")[2]) == 0


def _placed(text: str, env: Mapping[str, str]) -> str:
    """The text for the process with this environment."""
    return launchers.with_numbers(text, env["LINNET_RANK"], env["LINNET_LOCAL_RANK"])


def _how(status: int) -> str:
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


def _shell_status(status: int) -> int:
    return 128 - status if status < 0 else status


def command_of(program: str, arguments: Sequence[str], module: bool) -> list[str]:
    """The command line for a Python script or module, or any other program."""
    if module:
        return [sys.executable, "-m", program, *arguments]
    return [*([sys.executable] if program.endswith(".py") else []), program, *arguments]
