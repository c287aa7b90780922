"""Reports of what a model contains and whether it can be converted, as text, JSON and HTML. The public names are linnet.check
and linnet.Report."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from linnet.report.report import Report as Report
    from linnet.report.report import check as check


def __getattr__(name: str) -> Any:
    if name not in ("Report", "check"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from linnet.clib.arguments import checked
    from linnet.report import report

    return checked(getattr(report, name), f"linnet.{name}")
