"""A folder on a target that cannot outlive its deployment. A shell on the target, the holder, makes the folder and
reads its standard input. At the end of this input, it kills all programs that run in the folder and removes the folder.
The input ends when the host closes it, when the host's process ends for any reason, or when the connection is lost."""

from __future__ import annotations

import contextlib
import os
import selectors
import shlex
import subprocess
import time
from typing import Final

from linnet.clib.errors import FileError, SyncError
from linnet.deploy.target import Done, Target

_ANSWER: Final = 30.0  # seconds that a holder may take to make its folder or to remove it

# NEED and BASES are filled in. A script that runs in the folder notes its process id in .pids before it looks for
# .ended; the holder creates .ended before it reads the notes, so it sees the note of every process that did not find
# .ended. .pids is removed first, so that no more notes can be made. The system may have given a noted process id to
# another process. Therefore only processes whose current folder is this folder are killed. SIGPIPE is ignored because
# the host may be gone before the holder has said anything.
_HOLDER: Final = r"""trap "" HUP INT TERM PIPE
umask 077
sh=$(command -v sh)
for base in BASES; do
  [ -d "$base" ] || continue
  d=$(mktemp -d "$base/linnet-deploy.XXXXXX" 2>/dev/null)
  [ -d "$d" ] || { echo "closed $base"; continue; }
  free=$(df -Pk "$d" 2>/dev/null | { read -r head; read -r disk size used free rest; echo "$free"; })
  case $free in ""|*[!0-9]*) free=NEED ;; esac
  if ! { echo "#!$sh" >"$d/probe" && echo "exit 0" >>"$d/probe" && chmod 700 "$d/probe"; } 2>/dev/null; then
    echo "full $free $base"; rm -rf "$d"; continue
  fi
  "$d/probe" 2>/dev/null || { echo "noexec $base"; rm -rf "$d"; continue; }
  [ "$free" -ge NEED ] || { echo "full $free $base"; rm -rf "$d"; continue; }
  mkdir "$d/.pids" && rm "$d/probe" && echo "folder $d"
  read -r order
  rm -f "$d/probe"
  [ "$order" != keep ] || { rm -rf "$d/.pids"; echo kept; exit 0; }
  n=0
  while [ -d "$d" ] && [ $n -lt 4 ]; do
    [ $n -eq 0 ] || sleep 1
    n=$((n + 1))
    : >"$d/.ended"
    for note in "$d"/.pids/*; do
      p=${note##*/}
      [ "/proc/$p/cwd" -ef "$d" ] && kill -9 "$p"
    done 2>/dev/null
    rm -rf "$d/.pids" 2>/dev/null
    rm -rf "$d" 2>/dev/null
  done
  [ -d "$d" ] || echo removed
  exit 0
done
echo none
"""


class Folder:
    """A folder on `target` with room for `need` bytes. `open` makes it and `close` removes it.

    path: "" until the folder is made. gone: whether the holder has confirmed that nothing is left. keep: whether to
    keep the folder at the end if nothing fails.
    """

    def __init__(self, target: Target, need: int = 0) -> None:
        self.target, self.need, self.path, self.gone, self.keep = target, need, "", True, False
        self._holder: subprocess.Popen[bytes] | None = None
        self._rest = b""

    def open(self) -> None:
        """Makes the folder. Raises FileError if there is no place that is writable, allows execution and has room;
        SyncError if the target does not answer; Interrupted after a signal. `close` must be called in any case."""
        target = self.target
        target.interrupts.check()
        bases = " ".join(f'"{base}"' for base in target.bases)
        script = _HOLDER.replace("BASES", bases).replace("NEED", str(-(-self.need // 1024)))
        self._holder, self.gone = target.start(script), False
        refused: list[list[str]] = []
        end = time.monotonic() + _ANSWER
        while not self.path:
            target.interrupts.check()
            line = self._line(end)
            if line is None:
                if target.interrupts.pending:
                    continue
                raise self._silent(time.monotonic() > end)
            words = line.split(" ", 1)
            if words[0] == "folder":
                self.path = words[1]
            elif words[0] == "none":
                self.gone = True
                raise self._no_place(refused)
            else:
                refused.append(line.split(" "))

    def close(self, keep: bool = False) -> bool:
        """Ends the holder. Returns whether the holder confirms that the folder is removed, or kept if that was
        requested."""
        holder = self._holder
        if holder is None or holder.stdin is None or holder.stdout is None or holder.stderr is None:
            return self.gone
        self._holder = None
        with contextlib.suppress(OSError):
            if keep:
                holder.stdin.write(b"keep\n")
                holder.stdin.flush()
        with contextlib.suppress(OSError):
            holder.stdin.close()
        end = time.monotonic() + _ANSWER
        said = self.gone
        while (line := self._line(end, holder)) is not None:
            self.path = self.path or (line.partition(" ")[2] if line.startswith("folder ") else "")
            said = said or line in ("removed", "kept", "none")
        with contextlib.suppress(subprocess.TimeoutExpired):
            holder.wait(timeout=1)
        if holder.poll() is None:
            holder.kill()
            holder.wait()
        holder.stdout.close()
        holder.stderr.close()
        self.gone = said
        return said

    def run(self, script: str, data: bytes = b"", timeout: float | None = None) -> Done:
        """Runs a script in the folder. If the script still runs at the end, the holder kills it. The script's last
        command must begin with `exec`."""
        return self.target.run(self._noted(script), data, timeout)

    def send(self, data: bytes, name: str) -> None:
        """Writes a file in the folder. Raises FileError."""
        self.target.interrupts.check()
        done = self.target.send(data, f"{self.path}/{name}")
        if done.status:
            raise FileError(
                f"cannot write {self.path}/{name} on {self.target.name}", code=207, expected=f"{len(data)} bytes",
                got=done.last or f"exit status {done.status}", hint="check that the machine has room for the files",
            )  # fmt: skip

    def fetch(self, name: str) -> bytes:
        """Reads a file in the folder. Raises FileError."""
        self.target.interrupts.check()
        done = self.target.fetch(f"{self.path}/{name}")
        if done.status:
            raise FileError(
                f"cannot read {self.path}/{name} on {self.target.name}", code=202,
                got=done.last or f"exit status {done.status}", hint="deploy again",
            )  # fmt: skip
        return done.out

    def _noted(self, script: str) -> str:
        return f"cd {shlex.quote(self.path)} && : >.pids/$$ && [ ! -e .ended ] && {script}"

    def _line(self, end: float, holder: subprocess.Popen[bytes] | None = None) -> str | None:
        """The holder's next line. None at the end of its output and after the time `end`. Also None after a signal
        while the folder is being opened."""
        opening = holder is None
        holder = holder or self._holder
        assert holder is not None and holder.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(holder.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if time.monotonic() > end or (opening and self.target.interrupts.pending):
                    return None
                if selector.select(0.1):
                    got = os.read(holder.stdout.fileno(), 4096)
                    if not got:
                        return None
                    self._rest += got
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace").rstrip("\r")

    def _silent(self, late: bool) -> SyncError:
        assert self._holder is not None and self._holder.stderr is not None
        got = ""
        if not late:
            done = Done(0, b"", self._holder.stderr.read())
            got, self.gone = done.last, not self.target.lost(done)
        return SyncError(
            f"no folder could be made on {self.target.name}", code=603 if late else 607,
            expected=f"an answer within {_ANSWER:.0f} seconds" if late else "a shell that runs mktemp", got=got,
            hint="check that the user there has a POSIX shell",
        )  # fmt: skip

    def _no_place(self, refused: list[list[str]]) -> FileError:
        rooms = [int(words[1]) * 1024 for words in refused if words[0] == "full" and words[1].isdecimal()]
        where = ", ".join(" ".join(words[2:] if words[0] == "full" else words[1:]) for words in refused)
        if rooms:
            return FileError(
                f"{self.target.name} has no room for the files", code=207, expected=f"{self.need} bytes",
                got=f"{max(rooms)} bytes free in the best of {where}",
                hint="free some space on that machine, or set its TMPDIR to a folder with enough room",
            )  # fmt: skip
        why = ", ".join(
            f"{' '.join(words[1:])} ({'does not allow execution' if words[0] == 'noexec' else 'cannot be written'})"
            for words in refused
        )
        return FileError(
            f"{self.target.name} has no folder in which files can be written and executed", code=207,
            expected=f"one of {', '.join(self.target.bases)}".replace("${TMPDIR:-}", "$TMPDIR").replace("${HOME:-}", "$HOME"),
            got=why or "none of these folders", hint="set TMPDIR on that machine to a folder of a file system without noexec",
        )  # fmt: skip
