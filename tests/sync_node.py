"""`python -m tests.sync_node serve|work ...`: a server or worker in a separate process, for tests that put it into a network
namespace. Lines of output report that it listens, that a step is done, and the final result."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from linnet.clib.errors import Error
from linnet.facade import Graph
from linnet.sync import Link, Server, Worker
from tests.test_sync_server import feed


def _say(text: str) -> None:
    print(text, flush=True)


def _serve(options: argparse.Namespace, link: Link) -> None:
    server = Server(options.model, listen=options.address, workers=options.workers, elastic=options.elastic, link=link)
    with server:
        _say(server.address)
        sys.stdin.read()  # runs until the test closes it
    np.savez(
        options.model.with_suffix(".npz"), **{spec.name: server.store[spec.name] for spec in server.model.variables}
    )


def _work(options: argparse.Namespace, link: Link) -> None:
    data = options.model.read_bytes()
    graph = Graph.load(options.model)
    try:
        with Worker(data, options.address, number=options.number, lost=options.lost, link=link) as worker:
            for step in range(options.steps):
                worker.step(feed(graph, step, options.number, options.workers), weight=1.0)
                _say(f"step {step}")
            info = worker.info
        _say(json.dumps({"applied": info.applied, "reconnects": info.links[0].reconnects}))
    except Error as error:
        _say(json.dumps({"error": error.status, "text": str(error)}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["serve", "work"])
    parser.add_argument("model", type=Path)
    parser.add_argument("address")
    parser.add_argument("--key", type=Path)
    parser.add_argument("--number", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--lost", type=float, default=60)
    parser.add_argument("--elastic", action="store_true")
    options = parser.parse_args()
    link = Link(options.key, heartbeat=0.2, lease=0.6)
    (_serve if options.role == "serve" else _work)(options, link)


if __name__ == "__main__":
    main()
