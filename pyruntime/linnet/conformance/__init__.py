"""The conformance check of devices: `check_device` runs every op and dtype that a device takes, and compares the
results with those of the CPU."""

from linnet.clib.arguments import check_all
from linnet.conformance.check import check_device
from linnet.conformance.report import CheckReport, Finding, Result

__all__ = ["CheckReport", "Finding", "Result", "check_device"]

check_all(globals(), __all__)
