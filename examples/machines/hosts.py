"""The hosts of an example: those that LINNET_HOSTS names, or processes of linnet-host on this machine, which end with the
example, also after Ctrl-C or SIGTERM."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

import linnet

OWN = (sys.executable, "-m", "linnet", "host")


@contextlib.contextmanager
def started(program: Sequence[str] = OWN, options: Sequence[str] = ("--threads", "1")) -> Iterator[str]:
    """Starts a host that only this machine can use, and yields the name of its device. It ends with the block."""
    command = [*program, "--listen", "127.0.0.1:0", *options]
    # In a session of its own: Ctrl-C reaches only the example, which then ends its hosts in order.
    host = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert host.stdout is not None
        words = host.stdout.readline().split()
        if words[:1] != ["listening"]:
            raise SystemExit(f"{' '.join(command)} did not start: exit status {host.wait()}")
        yield f"remote:{words[1]}"
    finally:
        host.terminate()
        host.communicate()


@contextlib.contextmanager
def several(count: int) -> Iterator[list[str]]:
    """The devices of `count` hosts: the first ones of LINNET_HOSTS (docs/machines.md), or new ones on this machine."""
    named = list(linnet.sync.cluster().hosts)
    if named and len(named) < count:
        raise SystemExit(f"LINNET_HOSTS names {len(named)} host; this example needs {count}")
    with contextlib.ExitStack() as stack:
        yield named[:count] or [stack.enter_context(started()) for _ in range(count)]


def run(main: Callable[[], int]) -> int:
    """Runs an example and returns its exit status. SIGTERM and Ctrl-C end it in order; errors of linnet are messages."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return main()
    except KeyboardInterrupt:
        return 130
    except linnet.Error as error:
        print(error, file=sys.stderr)
        return 1


def between(session: linnet.Session) -> int:
    """The bytes of the values that hosts send to each other in each run."""
    return sum(step.bytes for step in session.steps if step.source)
