"""`linnet report`: the file that it writes, what must not be in it, and readers that trust no file."""
# Dear: an emulated processor measures a model.

from __future__ import annotations

import copy
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import linnet
from linnet.deploy import report_file, standard_models
from tests import benchmark_page
from tests.deploy_targets import DIGITS, Place, sshd, stand_in_adb
from tests.native import ROOT
from tests.test_tools_system import raspberry

FAST = ("--seconds", 0.02, "--threads", 1)


class Here(Place):
    """A folder from which `linnet report` runs."""

    def start_report(self, *words: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "linnet", "report", *map(str, words)]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=self.env,
            start_new_session=True,
        )  # fmt: skip

    def report(self, *words: object) -> subprocess.CompletedProcess[str]:
        process = self.start_report(*words)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def files(self) -> list[str]:
        """Names of reports, whole or half."""
        return sorted(path.name for path in self.folder.iterdir() if "report" in path.name)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def test_a_throttled_raspberry_pi(here: Here) -> None:
    """The target is local by default. The file has the facts of the machine, and the terminal says how to send it."""
    here.env["LINNET_SYSTEM_ROOT"] = str(raspberry(here.folder / "root"))
    done = here.report("--models", "kws", "--seconds", 0.02, "--dtypes", "f32,i8")
    assert done.returncode == 0, done.stderr
    report = report_file.read(here.folder / "report.json")
    system = f"Linux {re.match(r'[0-9.]*[0-9]', platform.release())[0]} {platform.machine()}"  # type: ignore[index]
    machine = report["machine"]
    assert (machine["name"], machine["cpu"], machine["cores"]) == ("Raspberry Pi 4 Model B Rev 1.4", "Cortex-A72", 4)
    assert machine["ram"] == 3885396 * 1024 and machine["system"] == system and report["target"] == "local"
    threads = {row["threads"] for row in report["rows"]}
    assert [(row["dtype"], row["threads"]) for row in report["rows"]] == [
        (dtype, number) for dtype in ("f32", "i8") for number in sorted(threads)
    ]
    state = {"celsius": 82.3, "mhz": 1000, "throttled": "now: under-voltage, throttled"}
    for row in report["rows"]:
        assert row["before"] == row["after"] == state and row["peak_rss"] == 2 << 20 and row["plan_bytes"] > 1e5
    [model] = report["models"]
    assert model["name"] == "kws" and model["standard"] and 2.6e6 < model["macs"] < 2.7e6
    f32, i8 = report["verified"]
    assert f32["worst"] < 1e-5 and f32["allowed"] == 1e-3 and i8["same_bits"] and i8["worst"] == 0
    text = (here.folder / "report.json").read_text()
    assert len(text) < 3000 and f"report.json: {len(text) / 1e3:.1f} kB. To send it, open an issue" in done.stdout
    for shown in (
        "Raspberry Pi 4 Model B Rev 1.4, Cortex-A72, 4 cores, 4.0 GB, Linux",
        "82 -> 82",
        "1000 -> 1000",
        "2.10 MB",
    ):
        assert shown in done.stdout
    count = len(report["rows"])
    assert f"linnet: warning: the machine was throttled in {count} of {count} measurements (now: under-v" in done.stderr
    assert "2 model files to measure: about 1" in done.stderr and here.left() == [] and here.files() == ["report.json"]


def test_nothing_private_is_in_the_file(here: Here) -> None:
    """Neither names of the host and the user, nor paths, nor serial numbers, even where the system tells them."""
    root = raspberry(here.folder / "root")
    info = root / "proc/cpuinfo"
    info.write_text(info.read_text() + "Serial\t\t: 10000000deadbeef\n")
    here.env |= {"LINNET_SYSTEM_ROOT": str(root), "USER": "mallory", "LOGNAME": "mallory", "HOSTNAME": "secret-host"}
    here.program("hostname", "echo secret-host")
    here.program("whoami", "echo mallory")
    here.program(
        "uname", 'case $1 in -n) echo secret-host;; -r) echo 6.1.0-secret-host;; *) exec /bin/uname "$@";; esac'
    )
    done = here.report("local", "mlp.lnt", *FAST, "--dtypes", "f32", "-o", "out.json")
    assert done.returncode == 0, done.stderr
    text = (here.folder / "out.json").read_text()
    for private in (
        "mallory",
        "secret",
        "deadbeef",
        str(here.folder),
        str(here.tmp),
        socket.gethostname(),
        "tmp",
        "/",
        "home",
    ):
        assert private not in text, private
    release = platform.release()
    assert re.fullmatch(r"[0-9.]+", release) or release not in text
    assert json.loads(text)["models"][0]["name"] == "mlp"


def test_an_emulated_cpu_is_marked(here: Here) -> None:
    here.arm_tools()
    done = here.report("emulate:cortex-a53", "--models", "kws", *FAST)
    assert done.returncode == 0, done.stderr
    report = report_file.read(here.folder / "report.json")
    machine = report["machine"]
    assert report["target"] == "emulate" and machine["architecture"] == "aarch64" and machine["isa"] == "neon"
    assert machine["name"] is None and machine["cpu"] == "cortex-a53"
    assert {row["after"]["mhz"] for row in report["rows"]} == {None}
    assert [(row["dtype"], row["worst"] <= row["allowed"]) for row in report["verified"]] == [
        (dtype, True) for dtype in ("f32", "f16", "i16", "i8")
    ]
    assert "does not count as hardware" in done.stderr and "emulated: cortex-a53" in done.stdout and here.left() == []


@pytest.mark.parametrize("kind", ["adb", "ssh"])
def test_other_machines(kind: str, here: Here) -> None:
    """The report tells the kind of connection, but neither the serial number nor the address."""
    words = ("mlp.lnt", *FAST, "--dtypes", "f32,i8")
    if kind == "adb":
        stand_in_adb(here, "A1\tdevice\n")
        done, private = here.report("adb:A1", *words), "A1"
    else:
        with sshd(here) as server:
            done, private = here.report(server.target, *words, *server.options), "127.0.0.1"
    assert done.returncode == 0, done.stderr
    report = report_file.read(here.folder / "report.json")
    assert report["target"] == kind and [row["dtype"] for row in report["rows"]] == ["f32", "i8"]
    assert private not in (here.folder / "report.json").read_text() and here.left() == []


def test_results_that_differ_are_reported(here: Here) -> None:
    """A fault of a processor must reach the file. The last element of each output gets other bits on the way."""
    change = 'printf "\\200\\277" | dd of="$f" bs=1 seek=$(($(wc -c <"$f") - 2)) conv=notrunc 2>/dev/null'
    here.replace("linnet-run", f'REAL "$@"; s=$?; for f in */*.npy; do [ -f "$f" ] && {change}; done; exit $s\n')
    done = here.report("local", "mlp.lnt", *FAST, "--dtypes", "f32", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report == report_file.read(here.folder / "report.json")
    [row] = report["verified"]
    assert not row["same_bits"] and row["worst"] > 1 and row["allowed"] == 1e-3
    assert "linnet: warning: the results of mlp in f32 differ from those of scalar kernels" in done.stderr
    assert "please send this report" in done.stderr


def test_files_that_are_measured(here: Here) -> None:
    """A quantized file is measured as it is, other models in all dtypes; equal names get different ones."""
    linnet.quantize(linnet.Graph.load(here.folder / "mlp.lnt"), dtype="f16").save(here.folder / "half.lnt")
    (here.folder / "other").mkdir()
    (here.folder / "other" / "mlp.lnt").write_bytes((here.folder / "mlp.lnt").read_bytes())
    digits = DIGITS / "mnist_small.onnx"
    done = here.report("local", "half.lnt", "mlp.lnt", "other/mlp.lnt", *FAST, "--dtypes", "f32")
    assert done.returncode == 0, done.stderr
    report = report_file.read(here.folder / "report.json")
    assert [(row["model"], row["dtype"]) for row in report["rows"]] == [
        ("half", "f16"),
        ("mlp", "f32"),
        ("mlp+", "f32"),
    ]
    assert [model["sha256"] for model in report["models"]][1:] == [report["models"][1]["sha256"]] * 2
    done = here.report("local", digits, *FAST, "--shape", "input=1,1,28,28")
    assert done.returncode == 0, done.stderr
    rows = report_file.read(here.folder / "report.json")["rows"]
    assert [row["dtype"] for row in rows] == ["f32", "f16", "i16", "i8"]


def test_an_interrupt_leaves_neither_files_nor_half_a_report(here: Here) -> None:
    process = here.start_report("--models", "kws", "--seconds", 60, "--dtypes", "f32")
    end = time.monotonic() + 60
    while not any("linnet-bench" in words for words in here.processes().values()) and time.monotonic() < end:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted; nothing is left on this machine" in err
    assert here.left() == [] and here.files() == []


@pytest.mark.parametrize(
    ("words", "text", "status"),
    [
        (("--models", "kws,vgg"), "expected mobilenet_v2, kws, lstm, resnet50, got vgg", 2),
        (("--dtypes", "i4"), "expected f32, f16, i16, i8, got i4", 2),
        (("--threads", "0"), "expected numbers from 1 to 1024", 2),
        (("emulate:z80",), "the CPU 'z80' is not known", 1),
        (("-o", "absent/report.json"), "expected a file in an existing folder", 1),
        (("-o", "t"), "expected a file in an existing folder", 1),
        (("local", "absent.lnt"), "absent.lnt", 1),
    ],
)  # fmt: skip
def test_wrong_usage(words: tuple[str, ...], text: str, status: int, here: Here) -> None:
    done = here.report(*words)
    lines = [line for line in done.stderr.splitlines() if line.startswith("linnet: error: ")]
    assert done.returncode == status and len(lines) == 1 and text in lines[0], done.stderr
    assert here.left() == [] and here.files() == []


def test_a_tool_that_fails_leaves_no_report(here: Here) -> None:
    here.replace("linnet-bench", 'case "$*" in *i8.lnt*) echo boom >&2; exit 3;; esac\nexec REAL "$@"\n')
    done = here.report("--models", "kws", *FAST, "--dtypes", "f32,i8")
    assert done.returncode == 1 and "for kws, i8 on 1 thread; got exit status 3: boom" in done.stderr
    assert "median ms" in done.stdout and here.files() == [] and here.left() == []
    here.replace("linnet-bench", 'REAL "$@" | sed \'s/"peak_rss"/"rss"/\'\n')
    done = here.report("--models", "kws", *FAST, "--dtypes", "f32")
    assert done.returncode == 1 and "expected the field 'peak_rss'; use tools of this version" in done.stderr


def test_standard_models_are_the_published_ones() -> None:
    """Their numbers of weights are those of the papers, without batch norms, and two builds give the same bytes."""
    sizes = {name: len(make().to_bytes()) / 4 for name, make in standard_models.MODELS.items() if name != "resnet50"}
    assert sizes["mobilenet_v2"] == pytest.approx(3.487e6, rel=0.002) and sizes["kws"] == pytest.approx(
        22.6e3, rel=0.08
    )
    assert standard_models.kws().to_bytes() == standard_models.kws().to_bytes()
    assert set(standard_models.DEFAULT) <= set(standard_models.MODELS)


# ---- files from strangers


def good() -> dict[str, Any]:
    state = {"celsius": 50.0, "mhz": 1500, "throttled": ""}
    row = {
        "model": "kws", "dtype": "f32", "threads": 1, "median_ms": 2.0, "p95_ms": 3.0, "min_ms": 1.0, "runs": 9,
        "plan_bytes": 1000, "peak_rss": None, "file_bytes": 1000, "before": state, "after": dict(state),
    }  # fmt: skip
    return {
        "format": "linnet-report-1", "linnet": "0.1.0", "date": "2026-11-26", "target": "ssh", "seconds": 3.0,
        "machine": {
            "name": "Board 1", "cpu": None, "cores": 4, "ram": 1 << 30, "system": "Linux 6.6 aarch64",
            "architecture": "aarch64", "isa": "neon", "virtual": False,
        },
        "models": [{"name": "kws", "sha256": "0" * 64, "macs": 100, "standard": True}],
        "verified": [{"model": "kws", "dtype": "f32", "same_bits": True, "worst": 0.0, "allowed": 0.001}],
        "rows": [row, row | {"threads": 4}],
    }  # fmt: skip


def put(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(report: dict[str, Any]) -> None:
        inner: Any = report
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (put("format", value="linnet-report-2"), "the key format of the report"),
        (put("extra", value=1), "the key extra"),
        (lambda r: r["machine"].pop("cores"), "the key machine.cores"),
        (put("machine", value=[]), "the key machine of"),
        (put("machine", "cores", value=True), "the key machine.cores"),
        (put("machine", "ram", value=1e30), "the key machine.ram"),
        (put("machine", "name", value="<script>"), "the key machine.name"),
        (put("machine", "name", value="a | b"), "the key machine.name"),
        (put("machine", "cpu", value="x" * 121), "the key machine.cpu"),
        (put("machine", "system", value="Linux\n## heading"), "the key machine.system"),
        (put("machine", "serial", value="1"), "the key machine.serial"),
        (put("date", value="2026-13-40"), "the key date"),
        (put("date", value="today"), "the key date"),
        (put("target", value="root"), "the key target"),
        (put("seconds", value=-1), "the key seconds"),
        (put("models", value=[]), "the key models"),
        (put("models", 0, "name", value="/etc/passwd"), "the key models[0].name"),
        (put("models", 0, "sha256", value="0" * 63), "the key models[0].sha256"),
        (put("rows", value={}), "the key rows"),
        (put("rows", 0, value=1), "the key rows[0]"),
        (put("rows", 1, "model", value="lstm"), "the key rows[1].model"),
        (put("rows", 1, "threads", value=1), "the key rows[1] of"),
        (put("rows", 1, "dtype", value="f64"), "the key rows[1].dtype"),
        (put("rows", 0, "median_ms", value=0.5), "the key rows[0].median_ms"),
        (put("rows", 0, "median_ms", value=1e-9), "the key rows[0].median_ms"),
        (put("rows", 0, "median_ms", value="2"), "the key rows[0].median_ms"),
        (put("rows", 0, "after", "celsius", value=5000), "the key rows[0].after.celsius"),
        (put("rows", 0, "after", "throttled", value="`rm`"), "the key rows[0].after.throttled"),
        (put("verified", 0, "worst", value=float("nan")), "NaN is not JSON"),
        (put("verified", 0, "same_bits", value=1), "the key verified[0].same_bits"),
    ],
)  # fmt: skip
def test_hostile_reports_are_refused(change: Callable[[dict[str, Any]], None], text: str, tmp_path: Path) -> None:
    report = copy.deepcopy(good())
    path = tmp_path / "sent.json"
    path.write_text(report_file.text(report))
    assert report_file.read(path) == report
    change(report)
    path.write_text(json.dumps(report))
    with pytest.raises(linnet.FileError, match=re.escape(text)) as caught:
        report_file.read(path)
    assert "sent.json" in str(caught.value) and len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "the report is wrong"), (b"\xff\xfe{", "the report is wrong"), (b"[" * 100_000, "the report is wrong"),
        (b" " * (1 << 20) + b"{}", "expected at most 1048576 bytes"), (b"[]", "the key format"), (b"7", "the key format"),
        (b'{"format": {}}', "the key format"),
    ],
)  # fmt: skip
def test_files_that_are_no_reports(content: bytes, text: str, tmp_path: Path) -> None:
    path = tmp_path / "sent.json"
    path.write_bytes(content)
    with pytest.raises(linnet.FileError, match=text):
        report_file.read(path)
    with pytest.raises(linnet.FileError, match="cannot read the report"):
        report_file.read(tmp_path / "absent.json")


def test_texts_of_a_system_become_plain() -> None:
    assert report_file.plain("Acme\t7 <b>|x|\0/dev") == "Acme 7 b x dev"
    assert (
        report_file.plain(None) is None
        and report_file.plain("\n/") is None
        and report_file.plain("a" * 200) == "a" * 120
    )


# ---- the page


def boards() -> list[dict[str, Any]]:
    """A Raspberry Pi 4 that is throttled at the end, and a phone whose i8 results are wrong."""
    pi, phone = copy.deepcopy(good()), copy.deepcopy(good())
    pi["machine"] |= {"name": "Raspberry Pi 4 Model B Rev 1.4", "cpu": "Cortex-A72", "ram": 3978645504}
    pi["rows"][1]["after"] = {"celsius": 82.3, "mhz": 1000, "throttled": "now: throttled"}
    phone["target"] = "adb"
    phone["machine"] |= {"name": "Acme 7", "cpu": "4x Cortex-A55, 4x Cortex-A76", "cores": 8, "ram": None}
    wrong = {"model": "kws", "dtype": "i8", "same_bits": False, "worst": None, "allowed": 0.0}
    phone["verified"].append(wrong)
    return [report_file.checked(report, "made up") for report in (pi, phone)]


def test_a_page_of_two_boards() -> None:
    text = benchmark_page.page(boards())
    phone, pi = text.index("### Acme 7"), text.index("### Raspberry Pi 4 Model B Rev 1.4")
    assert phone < pi and "not yet measured" not in text and "## Checks of results" not in text
    assert "Cortex-A72, 4 cores, 4.0 GB, Linux 6.6 aarch64, neon, linnet 0.1.0, 2026-11-26." in text[pi:]
    assert "| kws | f32 | 1 | 2.000 | 3.000 | 0.00 | 0.00 | - | 0.00 | 50 to 50 | 1500 to 1500 |" in text[pi:]
    assert "| 50 to 82 | 1500 to 1000 |" in text[pi:] and "| 50 to 82 |" not in text[phone:pi]
    assert "**Throttled** in 1 of 2 measurements: now: throttled." in text[pi:] and "Throttled" not in text[phone:pi]
    assert "**Results differ** from those of scalar kernels: kws in i8." in text[phone:pi]
    assert "All results agree with those of scalar kernels; the same bits: kws in f32." in text[pi:]


@pytest.mark.parametrize("kind", ["emulate", "virtual"])
def test_what_is_no_hardware_counts_only_as_a_check(kind: str) -> None:
    report = boards()[1]
    report |= {"target": "emulate"} if kind == "emulate" else {"machine": report["machine"] | {"virtual": True}}
    text = benchmark_page.page([report])
    assert "**not yet measured on hardware**" in text and "1500" not in text and "### " not in text
    row = "| kws | i8 | no | - | 0 | **differs** |"
    assert row in text[text.index("## Checks of results") :] and "| kws | f32 | yes | 0 | 0.001 | good |" in text
    both = benchmark_page.page([report, boards()[0]])
    assert "not yet measured" not in both and both.index("### Raspberry") < both.index(row)


def test_the_page_is_current() -> None:
    """After a new report: `python -m tests.benchmark_page --write`."""
    assert benchmark_page.PAGE.read_text() == benchmark_page.current()


def test_the_command_that_makes_the_page(tmp_path: Path) -> None:
    for i, report in enumerate(boards()):
        (tmp_path / f"{i}.json").write_text(report_file.text(report))

    def command(*names: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "tests.benchmark_page", *(str(tmp_path / name) for name in names)]
        return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)

    done = command("0.json", "1.json")
    assert done.returncode == 0 and done.stdout == benchmark_page.page(boards())
    (tmp_path / "1.json").write_text(report_file.text(boards()[1] | {"seconds": "much"}))
    done = command("0.json", "1.json")
    assert done.returncode == 1 and "1.json" in done.stderr and "the key seconds of the report" in done.stderr
    assert "Traceback" not in done.stderr
