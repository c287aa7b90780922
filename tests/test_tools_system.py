"""linnet-bench and `linnet bench` say which machine they measured, and warn if it was slower than it can be. Folders that look
like /proc and /sys of other machines provoke every case."""
# Dear: the tool measures for as long as a clock needs to fall.

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from linnet.cli.main import cli
from linnet.session import machine
from tests.graphs import bytes_of
from tests.native import ROOT, build

CPU = "sys/devices/system/cpu"
THROTTLED = "sys/devices/platform/soc/soc:firmware/get_throttled"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def cores(*parts: str, implementer: str = "0x41") -> str:
    """The part of /proc/cpuinfo that a 64-bit ARM kernel writes."""
    return "".join(
        f"processor\t: {i}\nBogoMIPS\t: 108.00\nFeatures\t: {'asimd ' * 90}\nCPU implementer\t: {implementer}\n"
        f"CPU part\t: {part}\nCPU revision\t: 3\n\n"
        for i, part in enumerate(parts)
    )


def clocks(*cores: tuple[int | None, int]) -> dict[str, str]:
    """Files of cpufreq: the clock now and at most, in MHz. A core that is off has no clock."""
    files = {}
    for i, (now, most) in enumerate(cores):
        files[f"{CPU}/cpu{i}/cpufreq/cpuinfo_max_freq"] = f"{most * 1000}\n"
        if now is not None:
            files[f"{CPU}/cpu{i}/cpufreq/scaling_cur_freq"] = f"{now * 1000}\n"
    return files


def raspberry(root: Path, throttled: str = "50005") -> Path:
    return tree(
        root,
        {
            "proc/device-tree/model": "Raspberry Pi 4 Model B Rev 1.4\0",
            "proc/cpuinfo": cores(*["0xd08"] * 4) + "Hardware\t: BCM2835\nModel\t\t: Raspberry Pi 4 Model B Rev 1.4\n",
            "proc/meminfo": "MemTotal:        3885396 kB\nMemFree:         3200000 kB\n",
            "proc/self/status": "Name:\tlinnet-bench\nVmHWM:\t    2048 kB\nCpus_allowed_list:\t0-3\n",
            "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
            "sys/class/thermal/thermal_zone0/temp": "82312\n",
            THROTTLED: f"{throttled}\n",
        }
        | clocks(*[(1000, 1800)] * 4),
    )


def phone(root: Path) -> Path:
    """Two clusters of which one core is off, sensors of many kinds, a name in build.prop."""
    zones = {
        "battery": "99000",
        "soc": "61",
        "CPU-big": "55250",
        "cpu-little": "48000",
        "vbat": "4200000",
        "off": "-274000",
    }
    files = {
        "system/build.prop": "# begin\nro.product.brand=acme\nro.product.model=Acme 7\n",
        "proc/cpuinfo": cores("0xd05", "0xd05", "0xd05", "0xd05", "0xd0b", "0xfff"),
        "proc/self/status": "Cpus_allowed_list:\t0-3,5\n",
    }
    for i, (kind, value) in enumerate(zones.items()):
        files |= {f"sys/class/thermal/thermal_zone{2 * i}/{n}": t for n, t in (("type", kind), ("temp", value))}
    return tree(
        root, files | clocks((1000, 1800), (1800, 1800), (1800, 1800), (None, 1800), (2208, 2400), (2400, 2400))
    )


def unreadable(root: Path) -> Path:
    """A folder where each file should be, files without text, and numbers that are none."""
    for name in ("proc/meminfo", "proc/device-tree/model", THROTTLED, "sys/class/thermal/thermal_zone0/temp"):
        (root / name).mkdir(parents=True)
    return tree(
        root,
        {
            "proc/cpuinfo": "CPU implementer\t: arm\nCPU part\t: 0xd08\ncpu MHz\t: fast\nnonsense\n",
            "proc/self/status": "VmHWM:\tmuch\n",
            "sys/class/thermal/thermal_zone1/temp": "warm\n",
            "sys/class/thermal/thermal_zone2/type": "cpu\n",
            f"{CPU}/cpu0/cpufreq/scaling_cur_freq": "",
            f"{CPU}/cpu0/cpufreq/cpuinfo_max_freq": "0\n",
        },
    )


def bench(root: Path, folder: Path, *more: str, seconds: float = 0.01) -> subprocess.CompletedProcess[str]:
    (folder / "m.lnt").write_bytes(bytes_of("mlp"))
    command = [str(build("release", "linnet-bench") / "linnet-bench"), "m.lnt", "--seconds", str(seconds), *more]
    about = os.environ | {"LINNET_SYSTEM_ROOT": str(root)}
    return subprocess.run(command, cwd=folder, env=about, capture_output=True, text=True, timeout=120, check=False)


def both(root: Path, folder: Path) -> dict[str, Any]:
    """What linnet-bench reports, after checking that Python reads the same."""
    done = bench(root, folder, "--json")
    assert done.returncode == 0, done.stderr
    assert f"note: LINNET_SYSTEM_ROOT is set, so the machine is the one that {root} describes\n" in done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["machine"] == machine.machine(root)
    assert report["before"] == report["after"] == machine.state(root)
    assert report["peak_rss"] == machine.peak_rss(root)
    lines = bench(root, folder).stdout.splitlines()
    assert f"machine {machine.machine_text(report['machine'])}" in lines
    assert f"before  {machine.state_text(report['before'])}" in lines
    assert f"after   {machine.state_text(report['after'])}" in lines
    return report


def system() -> str:
    about = platform.uname()
    return f"{about.system} {about.release} {about.machine}"


def test_a_raspberry_pi_that_is_throttled(tmp_path: Path) -> None:
    root = raspberry(tmp_path / "root")
    report = both(root, tmp_path)
    assert report["machine"] == {
        "name": "Raspberry Pi 4 Model B Rev 1.4",
        "cpu": "Cortex-A72",
        "cores": 4,
        "ram": 3885396 * 1024,
        "system": system(),
    }
    cause = "now: under-voltage, throttled"
    assert report["after"] == {
        "celsius": 82.3, "mhz": [1000] * 4, "mhz_most": [1800] * 4, "throttled": cause,
    }  # fmt: skip
    assert report["peak_rss"] == 2 << 20
    done = bench(root, tmp_path)
    warning = (
        f"linnet-bench: warning: the machine was throttled ({cause}), so it can be faster than these times; check its"
    )
    assert done.returncode == 0 and warning in done.stderr and done.stderr.count("warning") == 1
    assert f"82.3 C, cores 0-3 at 1000 of 1800 MHz, {cause}" in done.stdout
    assert "the process needed 2097.2 at most" in done.stdout


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("0", ""),
        ("0x0", ""),
        ("1", "now: under-voltage"),
        ("f", "now: under-voltage, frequency capped, throttled, temperature limit"),
        ("80000", "since the start: temperature limit"),
        ("f0000", "since the start: under-voltage, frequency capped, throttled, temperature limit"),
        ("70002", "now: frequency capped; since the start: under-voltage, throttled"),
        ("100000", None),
        ("-1", None),
        ("yes", None),
    ],
)
def test_bits_of_the_firmware(bits: str, text: str | None, tmp_path: Path) -> None:
    root = raspberry(tmp_path / "root", bits)
    assert both(root, tmp_path)["after"]["throttled"] == text
    assert ("warning: the machine was throttled" in bench(root, tmp_path).stderr) == bool(text)
    assert ("MHz, not throttled\n" in bench(root, tmp_path).stdout) == (text == "")


def test_a_phone_with_two_clusters(tmp_path: Path) -> None:
    report = both(phone(tmp_path / "root"), tmp_path)
    assert report["machine"] == {
        "name": "Acme 7",
        "cpu": "4x Cortex-A55, 1x Cortex-A76, 1x implementer 0x41 part 0xfff",
        "cores": 5,
        "ram": None,
        "system": system(),
    }
    assert report["before"] == {
        "celsius": 55.2,
        "mhz": [1000, 1800, 1800, None, 2208, 2400],
        "mhz_most": [1800] * 4 + [2400] * 2,
        "throttled": None,
    }
    done = bench(tmp_path / "root", tmp_path)
    assert ", cores 0-3 at 1000 to 1800 of 1800 MHz, cores 4-5 at 2208 to 2400 of 2400 MHz\n" in done.stdout
    assert "warning" not in done.stderr


def test_sensors_that_are_not_of_the_processor(tmp_path: Path) -> None:
    """They count only where no sensor is the processor's."""
    zones = {"battery": "31000", "acpitz": "44500"}
    files = {f"sys/class/thermal/thermal_zone{i}/type": kind for i, kind in enumerate(zones)}
    files |= {f"sys/class/thermal/thermal_zone{i}/temp": value for i, value in enumerate(zones.values())}
    root = tree(tmp_path / "root", files)
    assert both(root, tmp_path)["before"]["celsius"] == 44.5
    tree(root, {"sys/class/thermal/thermal_zone2/type": "SoC_max", "sys/class/thermal/thermal_zone2/temp": "40000"})
    assert both(root, tmp_path)["before"]["celsius"] == 40


@pytest.mark.parametrize("kind", ["unreadable", "empty"])
def test_a_system_that_tells_nothing(kind: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    report = both(unreadable(root) if kind == "unreadable" else root, tmp_path)
    online = os.sysconf("SC_NPROCESSORS_ONLN")
    assert report["machine"] == {"name": None, "cpu": None, "cores": online, "ram": None, "system": system()}
    assert report["after"] == {"celsius": None, "mhz": [], "mhz_most": [], "throttled": None}
    assert report["peak_rss"] is None
    done = bench(root, tmp_path)
    assert "unknown temperature, unknown clock\n" in done.stdout and "the process needed" not in done.stdout
    assert "machine unknown processor, " in done.stdout and done.stderr.count("\n") == 1


def test_an_x86_machine_without_cpufreq(tmp_path: Path) -> None:
    info = "".join(f"model name\t: ACME 9\ncpu MHz\t\t: {mhz}\n" for mhz in (2445.406, 3000.5))
    report = both(tree(tmp_path / "root", {"proc/cpuinfo": info}), tmp_path)
    assert report["machine"]["cpu"] == "ACME 9" and report["before"]["mhz"] == [2445, 3001]
    assert report["before"]["mhz_most"] == []


def test_a_clock_that_falls_is_reported(tmp_path: Path) -> None:
    """The tree changes while the tool measures: first the clock rises, as at the start of work, and then it falls."""
    root = raspberry(tmp_path / "root", "0")
    tree(root, clocks(*[(600, 1800)] * 4))
    (tmp_path / "m.lnt").write_bytes(bytes_of("conv_net"))  # slow enough that the number of runs is no limit
    command = [str(build("release", "linnet-bench") / "linnet-bench"), "m.lnt", "--seconds", "6", "--json"]
    command += ["--isa-max", "scalar", "--threads", "1"]
    about = os.environ | {"LINNET_SYSTEM_ROOT": str(root)}
    with subprocess.Popen(
        command, cwd=tmp_path, env=about, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        with pytest.raises(subprocess.TimeoutExpired):
            run.wait(2)
        tree(root, clocks(*[(1800, 1800)] * 4))
        with pytest.raises(subprocess.TimeoutExpired):
            run.wait(2)
        tree(root, clocks(*[(1500, 1800)] * 4))
        out, errors = run.communicate(timeout=60)
    assert json.loads(out)["before"]["mhz"] == [600] * 4 and json.loads(out)["after"]["mhz"] == [1500] * 4
    assert (
        "warning: the clock of the fastest core fell from 1800 to 1500 MHz, so times differ within the run; " in errors
    )
    before = machine.state(root)
    slower = before | {"mhz": [1349] * 4}
    assert machine.warnings(before, slower)[0].startswith("the clock of the fastest core fell from 1500 to 1349 MHz")
    assert not machine.warnings(before, before | {"mhz": [1350, 600, 600, 600]})


def test_both_know_the_same_processors(tmp_path: Path) -> None:
    source = (ROOT / "runtime_c" / "tools" / "system.c").read_text()
    rows = re.findall(r'\{(0x[0-9a-f]+), (0x[0-9a-f]+), "(.+?)"\}', source)
    assert {(int(a, 16), int(b, 16)): name for a, b, name in rows} == machine.PARTS and len(rows) == len(machine.PARTS)
    for implementer, part, name in rows:
        root = tree(tmp_path / "root", {"proc/cpuinfo": cores(part, implementer=implementer)})
        assert machine.machine(root)["cpu"] == name


def test_this_machine(tmp_path: Path) -> None:
    """What linnet-bench reports here is what the system reports to others."""
    (tmp_path / "m.lnt").write_bytes(bytes_of("mlp"))
    command = [str(build("release", "linnet-bench") / "linnet-bench"), "m.lnt", "--seconds", "0.01", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    report = json.loads(done.stdout)
    assert report["machine"] == machine.machine()
    assert report["machine"]["cores"] == len(os.sched_getaffinity(0))
    assert abs(report["machine"]["ram"] - os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) < 1 << 20
    assert 1 << 20 < report["peak_rss"] < 64 << 20
    assert "LINNET_SYSTEM_ROOT" not in done.stderr
    result = CliRunner().invoke(cli, ["bench", str(tmp_path / "m.lnt"), "--seconds", "0.05", "--json"])
    told = json.loads(result.stdout)
    assert told["machine"] == report["machine"] and told["before"].keys() == report["before"].keys()
    assert told["peak_rss"] > 1 << 20
    result = CliRunner().invoke(cli, ["bench", str(tmp_path / "m.lnt"), "--seconds", "0.05"])
    assert f"machine {machine.machine_text(told['machine'])}\nbefore  " in result.stdout


def test_python_warns_of_a_slow_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.lnt").write_bytes(bytes_of("mlp"))
    slow = machine.state(raspberry(tmp_path / "root"))
    monkeypatch.setattr(machine, "state", lambda: slow)
    result = CliRunner().invoke(cli, ["bench", str(tmp_path / "m.lnt"), "--seconds", "0.05"])
    assert result.exit_code == 0 and "linnet: warning: the machine was throttled (now: under-voltage" in result.stderr
