#!/usr/bin/env python3
"""Runs a command and prints what it took, with its children: `.ci/phase.py NAME COMMAND...`. The seconds of processors compare
between machines that do other things too; those of the clock do not."""

from __future__ import annotations

import resource
import subprocess
import sys
import time

name, *command = sys.argv[1:]
begun = time.monotonic()
try:
    status = subprocess.run(command, check=False).returncode
except KeyboardInterrupt:
    status = 130
use = resource.getrusage(resource.RUSAGE_CHILDREN)
took, spent = time.monotonic() - begun, use.ru_utime + use.ru_stime
print(f"phase {name}: {took:.0f} s, {spent:.0f} processor seconds", file=sys.stderr, flush=True)
sys.exit(status if status >= 0 else 128 - status)
