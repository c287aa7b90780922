"""`python -m examples.machines.phone_and_pc [PHOTO]`: the first layers of a face detector run on a phone, an emulated ARM
processor, and the rest on this machine. Prints what crosses between them, and draws both as lanes over time."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

import linnet
from examples.face.__main__ import sample_photo
from examples.face.detect import decode, model_file
from linnet._fetch import FetchError
from linnet.deploy import tools

from . import hosts

RUNS = 5


@dataclass(frozen=True)
class Border:
    """A place where the order of nodes can be cut: after `node`, the `count`-th. bytes: what crosses there in each run.
    share: how much of the work comes before it, by the time that it takes on one machine."""

    count: int
    node: str
    bytes: int
    share: float


def network() -> linnet.Graph:
    """MediaPipe's face detector, which phones run: a photo u8 [H, W, 3] -> regressors f32 [1, 896, 16], classificators f32
    [1, 896, 1]. Raises `FetchError`."""
    steps = linnet.preprocess
    graph = linnet.from_tflite(model_file("face_detection/face_detection_short_range"))
    return steps.sigmoid(steps.image(graph, "input", fit="letterbox", mean=0.5, std=0.5), "classificators")


@contextlib.contextmanager
def phone(named: str | None) -> Iterator[tuple[str, str]]:
    """Yields the device of the phone, and what it is: the named one, an emulated ARM processor, or this processor."""
    if named:
        yield named, named
        return
    try:
        program = tools.find("aarch64", "linnet-host")
        emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
        missing = None if emulator else "there is no qemu-aarch64: apt-get install qemu-user"
    except linnet.Error as error:
        emulator, missing = None, f"{error.what}: {error.hint}"
    if emulator is None:
        print(f"No emulated phone ({missing}).\nA second process on this processor takes its place.\n")
        with hosts.started() as device:
            yield device, "a process on this machine's own processor"
        return
    with hosts.started([emulator, "-cpu", "max", str(program)]) as device:
        yield device, "an ARM processor, emulated by qemu"


def borders(placement: linnet.Placement) -> list[Border]:
    """The places where the order of nodes can be cut into a part before and a part after, with the bytes that cross there."""
    costs = placement.costs
    found, total, done = [], sum(node.ns[0] for node in costs.nodes), 0.0
    for count, node in enumerate(costs.nodes[:-1], 1):
        before, after = costs.nodes[:count], costs.nodes[count:]
        read = {value for later in after for value in later.reads}
        crossing = {value for earlier in before for value in earlier.writes} & (read | set(costs.results))
        done += node.ns[0]
        found.append(Border(count, node.name, sum(costs.sizes[value] for value in crossing), done / total))
    return found


def faces(results: dict[str, np.ndarray]) -> str:
    """The best face in words."""
    scores = results["classificators"][0, :, 0]
    best = int(scores.argmax())
    left, top, right, bottom = decode(results["regressors"][0])[0][best]
    size = f"{right - left:.1f} x {bottom - top:.1f} of the detector's 128 x 128 pixels"
    return f"a face of {size}, with the score {scores[best]:.3f}"


def main() -> int:
    """Runs `python -m examples.machines.phone_and_pc`."""
    parser = argparse.ArgumentParser(prog="python -m examples.machines.phone_and_pc", description=__doc__)
    parser.add_argument("photo", nargs="?", type=Path, help="default: a photo that comes with Matplotlib")
    parser.add_argument("--phone", metavar="DEVICE", help="a real host, such as remote:phone:7700,key=phone.key")
    parser.add_argument(
        "--share", type=float, default=0.5, help="what the phone computes at least, 0 to 0.9 (%(default)s)"
    )
    parser.add_argument(
        "--cut", metavar="NODE", help="the last node on the phone (default: where the fewest bytes cross)"
    )
    parser.add_argument("--out", type=Path, default=Path("phone_and_pc.svg"), help="the picture to write (%(default)s)")
    arguments = parser.parse_args()
    try:
        graph, path = network(), arguments.photo or sample_photo()
    except FetchError as error:
        print(f"phone_and_pc: {error}", file=sys.stderr)
        return 1
    photo = np.asarray(Image.open(path).convert("RGB"))
    with phone(arguments.phone) as (device, what):
        print(f"The phone is {what}.")
        shapes, own = {"input": photo.shape}, linnet.SessionOptions(threads=1)
        found = borders(linnet.place(graph, [device], shapes=shapes, options=own))
        cut = min((border for border in found if border.share >= arguments.share), key=lambda border: border.bytes)
        if arguments.cut:
            cut = next((border for border in found if border.node == arguments.cut), cut)
            if cut.node != arguments.cut:
                raise SystemExit(f"no node is called {arguments.cut}; there are {', '.join(b.node for b in found)}")
        places = {border.node: device for border in found[: cut.count]} | {"*": "cpu"}

        both = linnet.Session(graph, devices=[device], placement=places, threads=1, trace=True)
        alone = linnet.Session(graph, threads=1)
        for _ in range(RUNS):
            results, expected = both.run({"input": photo}), alone.run({"input": photo})
        difference = max(float(np.abs(results[name] - expected[name]).max()) for name in expected)
        largest = max(float(np.abs(value).max()) for value in expected.values())

        placed = linnet.SessionOptions(threads=1, placement=places)
        predicted = linnet.place(graph, [device], shapes=shapes, options=placed)
        report(both, predicted, device, cut, photo.nbytes)
        if "emulated" in what:
            print("An emulator is much slower than a phone. The prediction is for a real processor of this kind.")
        print(f"Both together find {faces(results)}.")
        print(f"One machine finds {faces(expected)}.")
        print(f"Their results differ by {difference:.1e} at most; the largest value is {largest:.0f}.")
        arguments.out.write_text(predicted.picture())
        print(f"Picture: {arguments.out}")
    if difference > 1e-4 * largest:
        print("phone_and_pc: the results differ by more than two processors may", file=sys.stderr)
        return 1
    return 0


def report(session: linnet.Session, predicted: linnet.Placement, device: str, cut: Border, given: int) -> None:
    """Prints what each machine does, and what crosses. given: the bytes of the photo."""
    work = [step for step in session.steps if step.op != "transfer"]
    down = sum(step.bytes for step in session.steps if step.kernel == "download")
    print(f"The cut is after the node {cut.node}, number {cut.count} of {len(predicted.costs.nodes)}.")
    parts = (cut.share, 1 - cut.share)
    for name, share, part in zip((device, "cpu"), reversed(predicted.machines), parts, strict=True):
        mine = [step for step in work if step.device == name]
        measured = sum(step.device_ms if step.spans else 0.0 if name != "cpu" else step.ms for step in mine)
        print(
            f"  {'phone' if name == device else 'this machine':>12}: {share.nodes} nodes, "
            f"{100 * part:.0f} % of the work; "
            f"{share.ms:.2f} ms predicted, {measured:.2f} ms measured"
        )
    print(f"Each photo has {given:,} bytes, and {down:,} bytes cross to this machine: {100 * down / given:.1f} %.")


if __name__ == "__main__":
    raise SystemExit(hosts.run(main))
