"""Device strings in TensorFlow's notation: /job:worker/task:17/device:gpu:3, or a part of it (`DeviceSpec`)."""

from __future__ import annotations

import dataclasses
import re

from linnet.clib.errors import UsageError

_PART = re.compile(
    r"job:(?P<job>[A-Za-z][A-Za-z0-9_]*)"
    r"|replica:(?P<replica>\*|[0-9]{1,9})"
    r"|task:(?P<task>\*|[0-9]{1,9})"
    r"|device:(?P<kind>[A-Za-z_][A-Za-z0-9_]*):(?P<index>\*|[0-9]{1,9})"
    r"|device:(?P<kind_only>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<old>cpu|gpu):(?P<old_index>\*|[0-9]{1,9})",
    re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True)
class DeviceSpec:
    """A device, or a constraint on devices. A field that is None matches anything.

    job: name of the job ("worker", "ps", "parameters", "localhost"). replica, task: indices within it. kind: device
    type in lower case ("cpu", "gpu"). index: number of the device.
    """

    job: str | None = None
    replica: int | None = None
    task: int | None = None
    kind: str | None = None
    index: int | None = None

    def __post_init__(self) -> None:
        if self.index is not None and self.kind is None:
            raise UsageError(
                "a device index needs a device kind", code=101, tensor="kind", expected="cpu or gpu", got="None"
            )

    @classmethod
    def parse(cls, text: str) -> DeviceSpec:
        """Parses `text`. Its parts are job:NAME, replica:N, task:N, device:KIND:N or KIND:N, each at most once and
        after a slash. * matches any number, and "" matches any device. Raises UsageError."""
        fields: dict[str, str | int | None] = {}
        if text and not text.startswith("/"):
            raise _refused(text, "it does not start with a slash")
        for part in text.split("/")[1:] if text else []:
            match = _PART.fullmatch(part)
            if match is None:
                raise _refused(text, f"invalid part '{part}'")
            found = {name: value for name, value in match.groupdict().items() if value is not None}
            found["kind"] = found.pop("old", None) or found.pop("kind_only", None) or found.get("kind", "")
            found["index"] = found.pop("old_index", None) or found.get("index", "")
            for name, value in found.items():
                if value == "":
                    continue
                if name in fields:
                    raise _refused(text, f"{name} is given twice")
                number = name in ("replica", "task", "index")
                fields[name] = (None if value == "*" else int(value)) if number else value
        if isinstance(fields.get("kind"), str):
            fields["kind"] = str(fields["kind"]).lower()
        return cls(**fields)  # type: ignore[arg-type]

    def __str__(self) -> str:
        named = (("job", self.job), ("replica", self.replica), ("task", self.task))
        text = "".join(f"/{name}:{value}" for name, value in named if value is not None)
        if self.kind is not None:
            text += f"/device:{self.kind}:{'*' if self.index is None else self.index}"
        return text

    def merged(self, other: DeviceSpec) -> DeviceSpec:
        """Combines two specs: fields of `other` where they are set, otherwise those of this one."""
        inner = {name: value for name, value in dataclasses.asdict(other).items() if value is not None}
        return dataclasses.replace(self, **inner)

    def matches(self, device: DeviceSpec) -> bool:
        """Whether `device` satisfies this constraint."""
        mine, theirs = dataclasses.asdict(self), dataclasses.asdict(device)
        return all(value is None or theirs[name] == value for name, value in mine.items())


def _refused(text: str, why: str) -> UsageError:
    return UsageError(
        f"invalid device string: {why}",
        code=101,
        tensor=text[:200],
        expected="as in /job:worker/task:17/device:gpu:3",
        got=repr(text[:200]),
    )
