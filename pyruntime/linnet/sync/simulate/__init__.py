"""Simulates training with many workers, message by message, from measured step times and links.
`run` simulates one setting, `sweep` several. `linnet simulate` is the same on the command line. See docs/simulation.md.
"""

from linnet.clib.arguments import check_all
from linnet.sync.simulate.compute import Compute
from linnet.sync.simulate.run import Result, alone, run, sweep
from linnet.sync.simulate.setting import TCP, Hardware, Mode, Setting, Traffic, ratio
from linnet.sync.simulate.times import StepTimes, read_times

__all__ = [
    "TCP",
    "Compute",
    "Hardware",
    "Mode",
    "Result",
    "Setting",
    "StepTimes",
    "Traffic",
    "alone",
    "ratio",
    "read_times",
    "run",
    "sweep",
]

check_all(globals(), __all__)
