"""Walks through a page as a reader does: shell commands in one shell, Python snippets in one Python, C programs saved to files.
The Python and the commands are those that the reader has installed; nothing of this process is used."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PYTHON = """
import json, sys, traceback
space = {"__name__": "__main__"}
for line in sys.stdin:
    try:
        exec(compile(json.loads(line), "<snippet>", "exec"), space)
        print("\\x04done", flush=True)
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        print("\\x04failed", flush=True)
"""
_SECONDS = 1500  # far above what a command takes


class Reader:
    """Runs pages. folder: where the next command runs. replaced: (pattern, text) for commands. left_out: the beginnings of
    commands that are not run, with the reasons. commands, snippets: what has run."""

    def __init__(
        self, folder: Path, env: Mapping[str, str], replaced: Sequence[tuple[str, str]] = (),
        left_out: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.folder, self.env = folder, dict(env)
        self.replaced, self.left_out = replaced, left_out or {}
        self.commands: list[str] = []
        self.snippets: list[str] = []
        self.skipped: list[str] = []

    def page(self, path: Path, code: Path | None = None) -> None:
        """Runs all snippets of a page in their order. code: the folder of the Python snippets, if it is not that of the
        commands."""
        text = path.read_text()
        with contextlib.ExitStack() as ends:
            python: subprocess.Popen[str] | None = None
            for found in _FENCE.finditer(text):
                language, body = found.groups()
                if language == "sh":
                    self.shell(body)
                elif language == "python":
                    if python is None:
                        python = ends.enter_context(self._python(code or self.folder))
                    self._snippet(python, body, path)
                elif language == "c" and "int main" in body:
                    named = re.findall(r"`(\w+\.c)`", text[: found.start()])
                    ((code or self.folder) / (named[-1] if named else "program.c")).write_text(body)

    def shell(self, body: str) -> str:
        """Runs commands one by one; a command may change the folder and the environment. Returns what they print."""
        text = ""
        for line in body.replace("\\\n", " ").splitlines():
            command = re.sub(r"\s+#.*| +$", "", line)
            reason = next((why for start, why in self.left_out.items() if command.startswith(start)), None)
            if reason is not None:
                self.skipped.append(f"{command}: {reason}")
            elif command and not command.startswith("#"):
                text += self.command(command)
        return text

    def command(self, command: str) -> str:
        self.commands.append(command)
        for pattern, other in self.replaced:
            command = re.sub(pattern, other, command)
        script = f'cd "{self.folder}"\n{command}\nstatus=$?\npwd >&3\necho "$PATH" >&3\nexit $status\n'
        reading, writing = os.pipe()
        done = subprocess.run(
            ["bash", "-c", script.replace(">&3", f">&{writing}")], env=self.env, stdin=subprocess.DEVNULL, pass_fds=[writing],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=_SECONDS,
        )  # fmt: skip
        os.close(writing)
        with os.fdopen(reading) as said:
            state = said.read().splitlines()
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}"
        self.folder, self.env["PATH"] = Path(state[0]), state[1]
        return done.stdout

    @contextlib.contextmanager
    def _python(self, folder: Path) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            ["python3", "-c", _PYTHON], cwd=folder, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            executable=self._which("python3"),
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def _which(self, name: str) -> str:
        return next(str(p) for folder in self.env["PATH"].split(":") if (p := Path(folder, name)).is_file())

    def _snippet(self, process: subprocess.Popen[str], body: str, page: Path) -> None:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(body) + "\n")
        process.stdin.flush()
        lines = []
        for line in process.stdout:
            if line.startswith("\x04"):
                break
            lines.append(line)
        else:
            line = "\x04ended"
        assert line == "\x04done\n", f"{page.name}:\n{body}\n{''.join(lines)[-4000:]}"
        self.snippets.append(body)
