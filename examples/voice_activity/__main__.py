"""`python -m examples.voice_activity [FILE.wav] [--out FILE.png]`: finds speech; prints a table and draws a picture.
Without a file it generates a sound: sentences between silence, noise and a melody."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from linnet._fetch import FetchError

from . import detect, picture, sound


def main() -> int:
    """Runs `python -m examples.voice_activity`; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m examples.voice_activity", description=__doc__)
    parser.add_argument("wav", nargs="?", type=Path, help="a WAV file of 16-bit samples")
    parser.add_argument("--out", type=Path, default=Path("voice_activity.png"), help="the picture to write")
    args = parser.parse_args()
    try:
        session = detect.network()
        if args.wav:
            samples, truth, source = sound.load(args.wav), [], args.wav.name
        else:
            samples, truth, source = sound.sample_sound()
    except (FetchError, OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"voice_activity: {error}", file=sys.stderr)
        return 1
    start = time.perf_counter()
    probability = detect.probabilities(session, samples)
    taken = time.perf_counter() - start
    found = detect.spans(probability)
    seconds = len(samples) / detect.RATE
    table = Table(title=f"{source}: {seconds:.1f} s, of which {sum(s.end - s.start for s in found):.1f} s are speech")
    for heading in ("speech from, s", "to, s"):
        table.add_column(heading, justify="right")
    for span in found:
        table.add_row(f"{span.start:.2f}", f"{span.end:.2f}")
    Console(width=None if sys.stdout.isatty() else 100).print(table)
    try:
        picture.draw(samples, probability, found, truth, args.out)
    except (OSError, ValueError) as error:  # ValueError: Pillow has no format with that extension
        print(f"voice_activity: cannot write {args.out}: {error}", file=sys.stderr)
        return 1
    if truth:
        print("Spoken: " + ", ".join(f"{span.start:.2f} to {span.end:.2f} s" for span in truth))
    print(
        f"{1e3 * taken / len(probability):.2f} ms per 32 ms of sound. Picture: {args.out}"
        if len(probability)
        else "empty"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
