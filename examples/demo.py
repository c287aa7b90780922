"""The demo of the project: reads a page with three real networks at four number formats.
If the package index that has them cannot be reached, it shows the project's own small net instead."""

from __future__ import annotations

import sys
from pathlib import Path

# So that `python examples/demo.py` works from any folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from examples import report
from examples.mnist_small import demo as mnist_demo
from examples.ocr import demo as ocr_demo
from linnet._fetch import FetchError


def main() -> int:
    """Parses the options, runs the demo and returns the exit status."""
    parser = report.parser("examples.demo", __doc__ or "")
    parser.add_argument(
        "--only",
        choices=("ocr", "mnist_small"),
        help="run this demo; do not fall back to mnist_small if ocr cannot be fetched",
    )
    args = parser.parse_args()
    options = report.options(args)
    if args.only != "mnist_small":
        try:
            ocr_demo.run(options)
            return 0
        except FetchError as error:
            if args.only:
                print(f"demo: {error}", file=sys.stderr)
                return 1
            print(f"No OCR networks ({error}); showing the built-in digit classifier instead.")
    mnist_demo.run(options)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
