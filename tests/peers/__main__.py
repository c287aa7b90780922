"""`make bench-peers`: measures linnet beside its peers and writes docs/peers.json, docs/peers.svg and docs/benchmarks.md.
`python -m tests.peers [--nets A,B] [--engines A,B] [--threads 1,2] [--rounds 5] [--isa-max avx2] [--busy] [--write]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.peers import load, measure, networks, report
from tests.peers.engines import ENGINES
from tests.peers.networks import NAMES


def _names(text: str, known: tuple[str, ...], what: str) -> list[str]:
    found = [name for name in text.split(",") if name]
    unknown = [name for name in found if name not in known]
    if unknown or not found:
        raise SystemExit(f"{what}: {', '.join(unknown) or 'nothing'} is not one of {', '.join(known)}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nets", default=",".join(NAMES), help="networks; default: all")
    parser.add_argument("--engines", default=",".join(ENGINES), help="default: all")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument(
        "--rounds", type=int, default=5, help="fresh processes per engine, network and thread count (5)"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="time to measure in each process (2)")
    parser.add_argument("--isa-max", help="only with engines that can be restricted: " + ", ".join(measure.RESTRICTED))
    parser.add_argument("--busy", action="store_true", help="measure although others use the machine")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--write", action="store_true", help="write the pages although not everything was measured")
    parser.add_argument("--convert-only", action="store_true", help="install and convert, and measure nothing")
    options = parser.parse_args()
    if options.rounds < 1:
        raise SystemExit(f"--rounds: expected at least 1, got {options.rounds}")
    engines = _names(options.engines, tuple(ENGINES), "--engines")
    nets = [networks.network(name) for name in _names(options.nets, NAMES, "--nets")]
    threads = [int(word) for word in options.threads.split(",")]
    cases = measure.cases(nets, engines, threads, options.isa_max)
    if options.convert_only:
        for case in cases:
            if case.threads == threads[0]:
                print(f"{case.engine} {case.network}: {case.error or 'ready'}")
        return 0
    try:
        measure.interleave(
            cases, options.rounds, options.seconds, busy=options.busy, say=lambda line: print(line, flush=True)
        )
    except load.Busy as error:
        print(error, file=sys.stderr)
        return 1
    found = report.collected(cases, measure.versions(engines), options.rounds, options.seconds, options.isa_max)
    print(report.section(found))
    if options.json:
        options.json.write_text(report.dumped(found))
    whole = (options.nets, options.engines, options.isa_max) == (",".join(NAMES), ",".join(ENGINES), None)
    if options.write or (whole and not options.busy):
        report.write(found)
    else:
        print("docs/ keeps its figures, because not everything was measured on an idle machine; --write replaces them.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
