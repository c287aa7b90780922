"""Turns the argument TARGET into a target."""

from __future__ import annotations

import re
from collections.abc import Sequence

from linnet.clib.errors import UsageError
from linnet.deploy.adb import Adb
from linnet.deploy.local import Emulated, Local
from linnet.deploy.ssh import Ssh
from linnet.deploy.target import Target

FORMS = "[user@]host[:port], ssh://[user@]host[:port], adb, adb:SERIAL, local, or emulate:CPU"
# user, host (IPv6 addresses in brackets), port. A host that begins with "-" would be an option of ssh.
_HOST = re.compile(
    r"(?:(?P<user>[^@\s:/-][^@\s:/]*)@)?(?P<host>\[[0-9a-fA-F:.%]+\]|[^@\s:/\[\]-][^@\s:/\[\]]*)(?::(?P<port>\d+))?/?"
)


def target_of(text: str, ssh_options: Sequence[str] = ()) -> Target:
    """Returns the target that a text names, without connecting to it. Raises UsageError if the text does not have one
    of the allowed forms."""
    kind, _, rest = text.partition(":")
    if text == "local":
        return Local("this machine")
    if kind == "emulate":
        return Emulated(text, rest)
    if kind == "adb":
        return Adb(text, rest)
    name = text.removeprefix("ssh://").removesuffix("/")
    found = _HOST.fullmatch(name)
    port = int(found["port"]) if found and found["port"] else None
    if found is None or (port is not None and not 0 < port < 65536):
        raise UsageError(
            "the target is not a valid address", code=101, tensor=text, expected=FORMS, got=text or "an empty text",
            hint="for example pi@raspberrypi.local",
        )  # fmt: skip
    host = found["host"].strip("[]")
    return Ssh(name, f"{found['user']}@{host}" if found["user"] else host, port, ssh_options)
