"""Says what Python lacks for `make test-cuda` and `make bench-cuda`: `python -m tests.cuda.needs`."""

from __future__ import annotations

import importlib.util
import sys

NEEDED = ("cffi", "click", "flatbuffers", "ml_dtypes", "numpy", "onnx", "rich")


def main() -> int:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"{sys.executable} lacks {', '.join(missing)}; install them with pip, or put a folder that has them on PYTHONPATH"
        )
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
