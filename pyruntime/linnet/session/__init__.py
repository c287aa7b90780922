"""Models and sessions of the C library, and the memory they need. The public names are linnet.Session and linnet.Model."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from linnet.session.session import Session as Session


def __getattr__(name: str) -> Any:
    if name != "Session":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from linnet.session.session import Session

    return Session
