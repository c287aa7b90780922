"""A worker process for tests: MODEL SERVERS(comma) NUMBER WORKERS STEPS [PAUSE]. It continues at its servers' step, with batches
determined by its number and the step; a replacement process computes the same."""

from __future__ import annotations

import sys
import time

import numpy as np

from linnet.sync import Worker


def batch(step: int, number: int) -> dict[str, np.ndarray]:
    """Feeds x [8, 6], t [8] and i [8, 3] for one worker's step."""
    rng = np.random.default_rng([step, number])
    return {
        "x": rng.standard_normal((8, 6)).astype(np.float32),
        "t": rng.integers(0, 4, 8).astype(np.int32),
        "i": rng.integers(0, 30, (8, 3)).astype(np.int32),
    }


def main(model: str, servers: str, number: str, steps: str, pause: str = "0") -> None:
    with Worker(model, servers.split(","), number=int(number), lost=60) as worker:
        wanted = {spec.name for spec in worker.model.inputs("grad")} | (
            {spec.name for spec in worker.model.inputs("ids")} if "ids" in worker.model.signatures else set()
        )
        while (step := worker.info.step) < int(steps):
            worker.step({name: value for name, value in batch(step, int(number)).items() if name in wanted})
            print(step, worker.info.outcome, flush=True)
            time.sleep(float(pause))


if __name__ == "__main__":
    main(*sys.argv[1:])
