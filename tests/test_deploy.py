"""`linnet deploy` to this machine and to an emulated CPU: its results, its tables and JSON, and what it says when it fails.
Nothing is left behind."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import linnet
from linnet.deploy import native_build, outcome_text, tools, verify
from linnet.deploy.address import target_of
from linnet.deploy.folder import Folder
from linnet.deploy.local import CPUS, Local
from linnet.deploy.machine import ARCHITECTURES, architecture, machine_of
from linnet.deploy.models import is_exact
from linnet.deploy.ssh import Ssh
from linnet.deploy.target import Target
from tests.cross_builds import cross
from tests.deploy_targets import DIGITS, HERE, Place, calibration
from tests.native import ROOT, need
from tests.test_tools_system import raspberry

DIGIT = ("--shape", "input=1,1,28,28")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def error(done: subprocess.CompletedProcess[str], status: int = 1) -> str:
    """The one line of a failure."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("linnet: error: ")]
    assert done.returncode == status and len(lines) == 1 and "Traceback" not in done.stderr, done.stderr
    return lines[0]


def test_an_emulated_cpu_gives_the_integers_of_this_machine(place: Place) -> None:
    place.arm_tools()
    samples = calibration(place.folder / "c.npz")
    words = ("--dtypes", "f32,i8", "--calibration", samples, "--threads", "1,2", "--seconds", 0.05)
    done = place.deploy("emulate:cortex-a72", DIGITS / "mnist_small.onnx", *DIGIT, *words, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["machine"]["architecture"] == "aarch64" and found["machine"]["cpu"] == "cortex-a72"
    assert [(r["dtype"], r["threads"], r["isa"]) for r in found["results"]] == [
        ("f32", 1, "neon"), ("f32", 2, "neon"), ("i8", 1, "neon"), ("i8", 2, "neon"),
    ]  # fmt: skip
    f32, i8 = found["verified"]
    assert i8["equal"] and i8["worst"] == 0 and i8["tolerance"] == 0 and 0 < i8["from_f32"] < 0.1
    assert f32["good"] and f32["worst"] < 1e-5 and f32["from_f32"] is None and not found["random_sample"]
    graph = linnet.from_onnx(DIGITS / "mnist_small.onnx", input_shapes={"input": (1, 1, 28, 28)})
    with np.load(samples) as arrays:
        batches = [{"input": array} for array in arrays["input"]]
    values = linnet.Session(linnet.quantize(graph, batches, dtype="i8")).run(batches[0])["logits"]
    assert i8["there"] == values[tuple(i8["index"])]
    assert place.left() == [] and done.stderr.startswith("linnet: note: times under emulation")
    table = place.deploy("emulate:cortex-a72", place.folder / "mlp.lnt", "--seconds", 0.02).stdout
    assert "Times under emulation, which say nothing about the real CPU" in table and "│ yes " in table, table
    assert "peak RSS" not in table and "MHz" not in table, "they would be those of this machine"


@pytest.mark.parametrize("step", ["--bench", "--verify"])
def test_sums_of_f16_have_a_row_where_a_kernel_computes_them(step: str, place: Place) -> None:
    place.arm_tools()
    words = (place.folder / "mlp.lnt", step, "--dtypes", "f16", "--seconds", 0.02, "--threads", "1,2", "--json")
    for target, expected in (("emulate:cortex-a76", ["f16", "f16 sums"]), ("emulate:cortex-a72", ["f16"])):
        done = place.deploy(target, *words)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        rows = found["results"] if step == "--bench" else found["verified"]
        assert list(dict.fromkeys(row["dtype"] for row in rows)) == expected and "f16-sums.lnt" not in found["files"]
        assert len(rows) == len(expected) * (2 if step == "--bench" else 1) and place.left() == []
    told = place.deploy("local", *words[:-1]).stderr
    assert "f16 sums: left out, because no kernel for this processor sums products of the model in f16" in told


@pytest.mark.more
@pytest.mark.parametrize(("cpu", "arch"), [("cortex-a7", "armv7"), ("arm1176", "armv6")])
def test_an_emulated_cpu_of_32_bits(cpu: str, arch: str, place: Place) -> None:
    need("qemu-arm")
    for name in ("linnet-bench", "linnet-run"):
        place.tool(arch, name).symlink_to(cross(arch) / "bin" / name)
    samples = calibration(place.folder / "c.npz")
    words = ("--dtypes", "f32,i8", "--calibration", samples, "--verify")
    done = place.deploy(f"emulate:{cpu}", DIGITS / "mnist_small.onnx", *DIGIT, *words, "--json")
    assert done.returncode == 0, done.stderr
    assert [row["equal"] for row in json.loads(done.stdout)["verified"]][1] and place.left() == []


def test_this_machine_with_tables(place: Place) -> None:
    done = place.deploy("local", place.folder / "mlp.lnt", "--seconds", 0.02, "--plot", place.folder / "times.png")
    assert done.returncode == 0, done.stderr
    assert "Results on random input" in done.stdout and "median ms" in done.stdout and "│ f32   │" in done.stdout
    assert "sending 3 files, " in done.stderr and "measuring for 0.02 s" in done.stderr
    assert (place.folder / "times.png").read_bytes().startswith(b"\x89PNG") and place.left() == []


def test_one_thread_and_the_cores_are_the_default(place: Place) -> None:
    done = place.deploy("local", place.folder / "mlp.lnt", "--bench", "--seconds", 0.02, "--json")
    found = json.loads(done.stdout)
    threads = [row["threads"] for row in found["results"]]
    assert len(set(threads)) == len(threads) and 1 in threads and found["verified"] == []
    assert found["files"]["f32.lnt"] == (place.folder / "mlp.lnt").stat().st_size and "linnet-run" not in found["files"]


def test_what_is_kept_can_be_run(place: Place) -> None:
    done = place.deploy("local", place.folder / "mlp.lnt", "--seconds", 0.02, "--keep", "--json")
    found = json.loads(done.stdout)
    assert [str(path) for path in place.tmp.iterdir()] == [found["kept"]] and len(found["commands"]) == 2
    for line in found["commands"]:
        subprocess.run(["sh", "-c", line + " --json"], check=True, stdout=subprocess.DEVNULL, env=place.env)
    assert place.processes() == {}


def test_a_throttled_raspberry_pi(place: Place) -> None:
    """The machine, its temperature and its clock are those that linnet-bench reads; throttling is a warning."""
    place.env["LINNET_SYSTEM_ROOT"] = str(raspberry(place.folder / "root"))
    done = place.deploy("local", place.folder / "mlp.lnt", "--bench", "--threads", 1, "--seconds", 0.02)
    assert done.returncode == 0, done.stderr
    for text in (
        "82 -> 82",
        "1000 -> 1000",
        "2.10 MB",
        "Raspberry Pi 4 Model B Rev 1.4, Cortex-A72, 4 cores, 4.0 GB, Linux",
    ):
        assert text in done.stdout
    cause = "now: under-voltage, throttled"
    assert f"linnet: warning: f32 on 1 thread: the machine was throttled ({cause})" in done.stderr
    place.env["LINNET_SYSTEM_ROOT"] = str(raspberry(place.folder / "cool", "0"))
    done = place.deploy("local", place.folder / "mlp.lnt", "--bench", "--threads", 1, "--seconds", 0.02)
    assert done.returncode == 0 and "throttled" not in done.stderr
    assert max(len(line.rstrip()) for line in done.stdout.splitlines()[1:]) <= 80, "a common terminal has 80 columns"


def test_a_model_with_picture_steps_is_timed_without_them(place: Place) -> None:
    """`raw` has a fixed shape; only the comparison, which runs `infer`, needs a size for the picture."""
    graph = linnet.from_onnx(DIGITS / "mnist_small.onnx", input_shapes={"input": (1, 1, 28, 28)})
    linnet.preprocess.recipe(graph, "unit").save(place.folder / "photo.lnt")
    words = ("local", place.folder / "photo.lnt", "--threads", 1, "--seconds", 0.02)
    done = place.deploy(*words, "--bench")
    assert done.returncode == 0 and "the times are those of the signature raw" in done.stderr, done.stderr
    assert "Times of the signature raw" in done.stdout
    done = place.deploy(*words)
    assert "the sample is a picture of 640x480 pixels; --shape input=H,W,3 sets another size" in done.stderr
    assert done.returncode == 0 and "Results on random input" in done.stdout
    done = place.deploy(*words, "--shape", "input=40,30,3", "--keep", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    [row] = found["results"]
    assert row["signature"] == "raw" and [i["shape"] for i in row["inputs"]] == [[1, 1, 28, 28]]
    assert [row["good"] for row in found["verified"]] == [True]
    bench, run = found["commands"]
    assert "--signature raw" in bench and "--shape" not in bench and "--shape input=40,30,3" in run
    for line in found["commands"]:
        subprocess.run(["sh", "-c", line], check=True, stdout=subprocess.DEVNULL, env=place.env)


@pytest.fixture
def open_photo(place: Place) -> Path:
    """A model that takes pictures, and whose own input, of the same name, has an open batch."""
    graph = linnet.from_onnx(DIGITS / "mnist_small.onnx")
    assert not isinstance(graph.signatures["infer"].function.inputs[0].shape[0], int)
    linnet.preprocess.recipe(graph, "unit").save(place.folder / "photo.lnt")
    return place.folder / "photo.lnt"


@pytest.mark.parametrize(
    ("shape", "picture", "batch"),
    [
        ((), (480, 640, 3), 1),
        (("--shape", "input=40,30,3"), (40, 30, 3), 1),
        (("--shape", "input=2,1,28,28"), (480, 640, 3), 2),
    ],
)
def test_a_model_with_picture_steps_and_an_open_batch(
    shape: tuple[str, ...], picture: tuple[int, ...], batch: int, open_photo: Path, place: Place
) -> None:
    """A shape is for the picture or for the batch of the model inside, whichever it fits."""
    done = place.deploy("local", open_photo, "--threads", 1, "--seconds", 0.02, "--keep", "--json", *shape)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    [row] = found["results"]
    assert [i["shape"] for i in row["inputs"]] == [[batch, 1, 28, 28]] and [
        row["good"] for row in found["verified"]
    ] == [True]
    size = ",".join(map(str, picture))
    assert f"--shape input={size}" in found["commands"][1]


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ("input=7,7", "input 'input' cannot have this shape; expected [?, ?, 3], got [7, 7]; correct --shape"),
        ("inptu=40,30,3", "the model has no input named 'inptu'; expected"),
    ],
)
def test_shapes_that_no_input_can_have(shape: str, text: str, open_photo: Path, place: Place) -> None:
    done = place.deploy("local", open_photo, "--seconds", 0.02, "--shape", shape)
    assert text in error(done) and "sending" not in done.stderr


def test_samples_of_a_function_and_of_one_picture(open_photo: Path, place: Place) -> None:
    script = place.folder / "samples.py"
    script.write_text(
        "import numpy as np\n\ndef digits():\n    return [{'input': np.full((1, 1, 28, 28), i, 'f4')} for i in range(4)]\n"
    )
    words = ("--verify", "--json", "--calibration")
    done = place.deploy("local", DIGITS / "mnist_small.onnx", *DIGIT, *words, f"{script}:digits")
    assert done.returncode == 0, done.stderr
    assert [row["dtype"] for row in json.loads(done.stdout)["verified"]] == ["f32", "i8"]
    assert "has no function 'digit'; expected" in error(place.deploy("local", open_photo, *words, f"{script}:digit"))
    picture = place.folder / "one.png"
    Image.fromarray(np.arange(40 * 30 * 3, dtype=np.uint8).reshape(40, 30, 3)).save(picture)
    found = json.loads(place.deploy("local", open_photo, *words, picture, "--dtypes", "f32,i8").stdout)
    assert [row["dtype"] for row in found["verified"]] == ["f32", "i8"] and not found["random_sample"]
    assert "no such file" in error(place.deploy("local", open_photo, *words, place.folder / "absent.png"))


# ---- wrong command lines and models


@pytest.mark.parametrize(
    ("words", "text", "status"),
    [
        (("emulate:z80", "mlp.lnt"), "the CPU 'z80' is not known; expected one of cortex-a35", 1),
        (("a b", "mlp.lnt"), "the target is not a valid address; expected [user@]host[:port]", 1),
        (("host:99999", "mlp.lnt"), "the target is not a valid address", 1),
        (("local", "mlp.lnt", "--dtypes", "f32,i7"), "expected f32, f16, i16, i8, got i7", 2),
        (("local", "mlp.lnt", "--threads", "1,x"), "expected numbers from 1 to 1024, got 1,x", 2),
        (("local", "mlp.lnt", "--dtypes", "i8"), "add --calibration samples.npz", 1),
        (("local", "absent.lnt"), "absent.lnt", 1),
        (("local", "mlp.lnt", "--verify", "--plot", "x.png"), "add --bench", 2),
    ],
)  # fmt: skip
def test_wrong_usage(words: tuple[str, ...], text: str, status: int, place: Place) -> None:
    done = place.deploy(words[0], place.folder / words[1], *words[2:])
    assert text in error(done, status) and place.left() == []


def test_a_quantized_model_is_deployed_as_it_is(place: Place) -> None:
    graph = linnet.from_onnx(DIGITS / "mnist_small.onnx", input_shapes={"input": (1, 1, 28, 28)})
    with np.load(calibration(place.folder / "c.npz")) as arrays:
        quantized = linnet.quantize(graph, [{"input": array} for array in arrays["input"]], dtype="i8")
    assert is_exact(quantized) and not is_exact(graph)
    quantized.save(place.folder / "q.lnt")
    done = place.deploy("local", place.folder / "q.lnt", "--verify", "--json")
    [row] = json.loads(done.stdout)["verified"]
    assert row["dtype"] == "i8" and row["equal"] and row["from_f32"] is None
    wrong = place.deploy("local", place.folder / "q.lnt", "--dtypes", "i8,f16")
    assert "already quantized; expected --dtypes i8, as it is, got f16; deploy the float model" in error(wrong)


def test_a_folder_of_samples(place: Place) -> None:
    samples = place.folder / "samples"
    samples.mkdir()
    with np.load(calibration(place.folder / "c.npz")) as arrays:
        for i, array in enumerate(arrays["input"]):
            np.save(samples / f"{i}.npy", array)
    words = (*DIGIT, "--calibration", samples, "--verify", "--json")
    done = place.deploy("local", DIGITS / "mnist_small.onnx", *words)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["dtype"] for row in found["verified"]] == ["f32", "i8"] and not found["random_sample"]


def test_forms_of_targets() -> None:
    for text, host, port in [
        ("pi@board.local", "pi@board.local", None), ("board:22", "board", 22), ("ssh://pi@board:2222/", "pi@board", 2222),
        ("[fe80::1]:22", "fe80::1", 22), ("local.net", "local.net", None),
    ]:  # fmt: skip
        target = target_of(text)
        assert isinstance(target, Ssh) and (target.host, target.port) == (host, port)
    for text in ("", "-oProxyCommand=x", "a:b", "a@b@c", "x@-host", "ssh://", "host:0", "h;ls"[:1] + ":;ls"):
        with pytest.raises(linnet.UsageError):
            target_of(text)


# ---- the machine


@pytest.mark.parametrize(
    ("machine", "bits", "features", "expected"),
    [
        ("aarch64", 64, None, "aarch64"), ("aarch64", 0, None, "aarch64"), ("aarch64", 32, None, "armv7"),
        ("armv7l", 32, "half thumb neon vfpv3", "armv7"), ("armv7l", 32, "half thumb vfpv3d16", "armv6"),
        ("armv8l", 32, "fp asimd", "armv7"), ("armv6l", 32, "half thumb vfp", "armv6"), ("riscv64", 64, None, "riscv64"),
        ("x86_64", 64, None, "x86_64"), ("x86_64", 32, None, ""), ("i686", 32, None, ""), ("mips", 32, None, ""),
    ],
)  # fmt: skip
def test_architectures(machine: str, bits: int, features: str | None, expected: str) -> None:
    assert architecture(machine, bits, features) == expected
    assert {arch for arch, _ in CPUS.values()} <= set(ARCHITECTURES)


def test_programs_of_32_bits_on_a_kernel_of_64(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", place.env["PATH"])
    place.program("uname", "echo aarch64")
    place.program("getconf", "echo 32")
    assert machine_of(Local("here")).architecture == "armv7"
    place.program("getconf", "exit 1")  # the programs of this machine have 64 bits
    assert machine_of(Local("here")).architecture == "aarch64"


def test_another_processor(place: Place) -> None:
    place.program("uname", "echo mips")
    text = error(place.deploy("local", place.folder / "mlp.lnt"))
    assert "there are no tools for the processor of this machine; expected aarch64 or" in text and "got mips" in text


def test_where_tools_are_looked_for(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINNET_TARGETS", str(place.targets))
    assert tools.find(HERE, "linnet-run") == place.targets / HERE / "linnet-run"
    with pytest.raises(
        linnet.FileError, match=r"the environment variable LINNET_TARGETS .* make cross TARGET=vax in the"
    ):
        tools.find("vax", "linnet-run")
    places = list(tools._places("armv7", "linnet-run", False))
    assert places[-1] == ROOT / "build-armv7" / "bin" / "linnet-run", "where make cross puts it"


def test_tools_that_a_wheel_carries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are unpacked into the cache once; another archive gets another folder."""
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LINNET_TARGETS", raising=False)
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path / package)
    (tmp_path / "linnet" / "targets").mkdir(parents=True)
    found = []
    for text in (b"one", b"one", b"two"):
        with tarfile.open(tmp_path / "linnet" / "targets" / "vax.tar.xz", "w:xz") as archive:
            info = tarfile.TarInfo("bin/linnet-run")
            info.size, info.mode = len(text), 0o755
            archive.addfile(info, io.BytesIO(text))
        found.append(tools.find("vax", "linnet-run"))
        assert found[-1].read_bytes() == text and os.access(found[-1], os.X_OK)
    assert found[0] == found[1] != found[2]
    assert len(list((tmp_path / "cache" / "targets").iterdir())) == 2


# A source tree in small: four tools, for which CMake gets the same options as for linnet.
SMALL = """cmake_minimum_required(VERSION 3.20)
project(small LANGUAGES C)
file(WRITE ${CMAKE_BINARY_DIR}/main.c "int main(void) { return 0 BODY }")
foreach(tool linnet-bench linnet-run linnet-train linnet-parameter-server linnet-host)
  add_executable(${tool} ${CMAKE_BINARY_DIR}/main.c)
endforeach()
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Makes a package that carries a small source tree, whose tools have this text in main. Returns the folder of the cache."""
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LINNET_TARGETS", str(tmp_path / "none"))
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path / package)
    monkeypatch.setattr(native_build, "_zig", lambda: None)  # GCC builds faster
    (tmp_path / "linnet" / "targets").mkdir(parents=True)

    def make(body: str) -> Path:
        with tarfile.open(tmp_path / "linnet" / "targets" / "sources.tar.xz", "w:xz") as archive:
            data = SMALL.replace("BODY", body).encode()
            info = tarfile.TarInfo("CMakeLists.txt")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
            for path in sorted((ROOT / "runtime_c" / "toolchains").iterdir()):
                archive.add(path, path.relative_to(ROOT).as_posix())
        return tmp_path / "cache" / "targets"

    return make


def test_tools_are_built_once_from_the_sources_of_a_wheel(
    small: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    need("cmake", "aarch64-linux-gnu-gcc")
    monkeypatch.setattr(tools, "_places", lambda *_: iter(()))  # no tools of the tree
    said: list[str] = []
    cache = small(";")
    found = [tools.find("aarch64", name, show=said.append) for name in ("linnet-run", "linnet-bench", "linnet-run")]
    (folder,) = (path for path in cache.iterdir() if path.name.startswith("aarch64-"))
    assert [path.relative_to(folder).as_posix() for path in found] == [
        "bin/linnet-run",
        "bin/linnet-bench",
        "bin/linnet-run",
    ]
    assert said == [f"building the tools for aarch64 with aarch64-linux-gnu-gcc in {folder}: a minute or two, once"]
    header = found[0].read_bytes()[:20]
    assert header[:4] == b"\x7fELF" and header[18] == 183 and [path.name for path in cache.iterdir()] == [folder.name]


def test_tools_that_cannot_be_built(small: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    need("cmake", "aarch64-linux-gnu-gcc")
    monkeypatch.setattr(tools, "_places", lambda *_: iter(()))
    cache = small("nonsense;")
    with pytest.raises(
        linnet.Error, match=r"the tools for aarch64 cannot be built.*error.*nonsense.*read .*aarch64.log"
    ) as caught:
        tools.find("aarch64", "linnet-run")
    assert "LINNET_TARGETS" in str(caught.value) and [path.name for path in cache.iterdir()] == ["aarch64.log"]


@pytest.mark.parametrize(
    ("arch", "programs", "text"),
    [
        ("aarch64", (), "zig or aarch64-linux-gnu-gcc, got no such compiler; pip install 'linnet-runtime[deploy]', or "
                        "apt-get install gcc-aarch64-linux-gnu cmake"),
        ("aarch64", ("aarch64-linux-gnu-gcc",), "got aarch64-linux-gnu-gcc, but no CMake; pip install "
                                                "'linnet-runtime[deploy]', or apt-get install cmake"),
        ("armv6", ("cmake",), "zig, got no such compiler; pip install 'linnet-runtime[deploy]'"),
    ],
)  # fmt: skip
def test_a_compiler_that_is_not_installed(
    arch: str, programs: tuple[str, ...], text: str, small: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    small(";")
    monkeypatch.setattr(tools, "_places", lambda *_: iter(()))
    monkeypatch.setattr("shutil.which", lambda name, path=None: name if name in programs else None)
    with pytest.raises(linnet.FileError, match=f"there are no tools for {arch}, and they cannot be built") as caught:
        tools.find(arch, "linnet-run")
    assert str(caught.value).endswith(text), caught.value


def test_an_interrupted_build_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids: list[str] = []

    def interrupted(process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        pids.append(process.stdout.readline().decode().strip())
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        native_build._run(["sh", "-c", "sleep 1000 & echo $!; wait"], "aarch64", str(tmp_path))
    left = Path("/proc", *pids, "stat")
    end = time.monotonic() + 20
    while left.exists() and left.read_text().rpartition(")")[2].split()[0] != "Z" and time.monotonic() < end:
        time.sleep(0.02)  # a killed process needs a moment to end
    assert not left.exists() or left.read_text().rpartition(")")[2].split()[0] == "Z"


def test_an_emulator_that_is_not_installed(place: Place) -> None:
    place.env["PATH"] = str(place.bin)
    for name in ("sh", "mktemp", "df", "chmod", "rm", "mkdir"):
        (place.bin / name).symlink_to(next(p for d in ("/bin", "/usr/bin") if (p := Path(d, name)).exists()))
    text = error(place.deploy("emulate:cortex-a72", place.folder / "mlp.lnt"))
    assert "qemu-aarch64 cannot be started" in text and "apt-get install qemu-user" in text


# ---- folders


def test_no_room(place: Place) -> None:
    place.program(
        "df", "echo 'Filesystem 1024-blocks Used Available Capacity Mounted on'; echo '/dev/x 99 49 50 50% /'"
    )
    text = error(place.deploy("local", place.folder / "mlp.lnt"))
    need = int(text.split("expected ")[1].split()[0])
    assert need > 1_000_000 and "got 51200 bytes free in the best of" in text and place.left() == []


def test_no_folder_that_can_be_written(place: Place) -> None:
    target = Local("here")
    target.bases = ("/proc", "/nowhere", "${TMPDIR:-}/absent")
    folder = Folder(target)
    with pytest.raises(
        linnet.FileError, match=r"no folder in which .* expected one of .*, got /proc \(cannot be written\)"
    ):
        folder.open()
    assert folder.close()


def test_no_folder_that_allows_execution(place: Place) -> None:
    place.program("chmod", "exit 0")  # the test program of the holder is then not executable, as with noexec
    text = error(place.deploy("local", place.folder / "mlp.lnt"))
    assert f"got {place.tmp} (does not allow execution)" in text and place.left() == []


def test_a_target_without_a_shell(place: Place) -> None:
    class Mute(Target):
        def command(self, script: str) -> list[str]:
            return ["sh", "-c", "echo not here >&2; exit 4"]

    with pytest.raises(linnet.SyncError, match=r"does not say what machine it is; .* got not here"):
        machine_of(Mute("mute"))
    folder = Folder(Mute("mute"))
    with pytest.raises(linnet.SyncError, match=r"no folder could be made on mute; .* got not here"):
        folder.open()
    assert folder.close()


def test_a_folder_ends_what_runs_in_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(place.tmp))
    target = Local("here")
    folder = Folder(target)
    folder.open()
    assert folder.path.startswith(str(place.tmp)) and os.stat(folder.path).st_mode & 0o777 == 0o700
    folder.send(b"x" * 3_000_000, "a file")
    assert folder.fetch("a file") == b"x" * 3_000_000
    slowly = folder.run("sleep 0.5 && exec wc -c", b"x" * 3_000_000)  # the input is larger than a pipe
    assert slowly.out.split() == [b"3000000"]
    with pytest.raises(linnet.FileError, match=r"cannot read .*absent"):
        folder.fetch("absent")
    running = target.start(folder._noted("exec sleep 100"))
    while (
        Path(f"/proc/{running.pid}/cmdline").read_bytes() != b"sleep\x00100\x00"
    ):  # the shell's own words say sleep, too
        assert running.poll() is None
        time.sleep(0.01)
    assert folder.close() and running.wait(timeout=10) == -9 and not Path(folder.path).exists()
    assert folder.run("exec true").status != 0, "a script that comes late must not run"
    for pipe in (running.stdin, running.stdout, running.stderr):
        assert pipe is not None
        pipe.close()


# ---- tools that fail


def test_a_tool_that_dies_in_the_middle(place: Place) -> None:
    place.replace(
        "linnet-bench", 'case "$*" in *"--threads 1"*) echo note >&2; echo boom >&2; exit 3;; esac\nexec REAL "$@"\n'
    )
    words = ("local", place.folder / "mlp.lnt", "--bench", "--threads", "2,1", "--seconds", 0.02)
    done = place.deploy(*words)
    assert "linnet-bench failed on this machine for f32 on 1 thread; got exit status 3: boom" in error(done)
    assert "median ms" in done.stdout and "│ f32   │       2 │" in done.stdout and place.left() == []
    found = json.loads(place.deploy(*words, "--json").stdout)
    assert [row["threads"] for row in found["results"]] == [2] and "boom" in found["error"]


@pytest.mark.parametrize(
    ("text", "got"),
    [("kill -ILL $$", "SIGILL"), ("exec ./garbage", "garbage"), ("exit 126; cannot execute", "exit status 126")],
)
def test_a_tool_that_cannot_be_executed(text: str, got: str, place: Place) -> None:
    if text.startswith("exec"):
        place.tool(HERE, "linnet-bench").write_bytes(b"\x7fELF\2\1\1" + bytes(57))
        got = "Exec format error"
    elif text.startswith("exit"):
        place.replace("linnet-bench", "echo 'sh: linnet-bench: Permission denied' >&2; exit 126\n")
    else:
        place.replace("linnet-bench", text + "\n")
    message = error(place.deploy("local", place.folder / "mlp.lnt", "--bench"))
    assert "linnet-bench cannot be executed on this machine" in message and got in message and place.left() == []


def test_results_that_differ(place: Place) -> None:
    """The last element of a .npy file gets other bits on the way."""
    change = 'printf "\\200\\277" | dd of="$f" bs=1 seek=$(($(wc -c <"$f") - 2)) conv=notrunc 2>/dev/null'
    place.replace("linnet-run", f'REAL "$@"; s=$?; for f in f32/*.npy; do [ -f "$f" ] && {change}; done; exit $s\n')
    done = place.deploy("local", place.folder / "mlp.lnt", "--verify")
    text = error(done)
    assert (
        "the results in f32 differ from those of the host; expected " in text and "(within 0.001 of the range)" in text
    )
    assert "got -1." in text and "│ no " in done.stdout and place.left() == []


def test_distances() -> None:
    def of(a: Any, b: Any) -> float:
        return verify.distance(np.array(a, np.float32), np.array(b, np.float32))[0]

    assert of([0.0, 1.5], [0.0, 1.0]) == 0.5 and of([3.0], [2.0]) == 0.5 and of([1.0], [0.0]) == 1.0
    assert of([np.nan, 1.0, np.inf], [np.nan, 1.0, np.inf]) == 0 and of([np.nan, 1.0], [0.0, 1.0]) == np.inf
    assert of([np.inf], [-np.inf]) == np.inf and of([], []) == 0
    assert verify.distance(np.array([[0, 200]], np.uint8), np.array([[100, 200]], np.uint8)) == (1.0, (0, 0))


def test_pictures_need_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else object())
    with pytest.raises(
        linnet.UsageError, match=r"matplotlib, which is not installed; run pip install 'linnet-runtime\[train\]'"
    ):
        outcome_text.check_plot()
