"""The loader of devices (linnet_device_open, linnet_device_find): names, several devices in one library, options, reasons.
A library that calls linnet through its table alone links nothing, and works in a program with the static liblinnet."""
# Dear: the library is built without devices.

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.clib.ffi import ffi
from tests.capi import NULL, Failure, check, lib, new_struct, text
from tests.native import ROOT, build, compile_c, need, run

INCLUDE = f"-I{ROOT / 'runtime_c' / 'include'}"
EXT = ROOT / "tests" / "ext"


def compiled(source: Path | str, out: Path, *options: str) -> Path:
    """A shared library of one file or text, which links nothing."""
    if isinstance(source, str):
        made = out.with_suffix(".c")
        made.write_text(source)
        source = made
    return compile_c([source], out, "-shared", "-fPIC", INCLUDE, *options)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(EXT / "toy_device.c", tmp_path_factory.mktemp("toy") / "liblinnet_toy.so")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(EXT / "two_devices.c", tmp_path_factory.mktemp("two") / "liblinnet_two.so")


def opened(name: object) -> str:
    """The name of the device that linnet_device_open gives; raises Failure."""
    device, error = ffi.new("const linnet_device **"), ffi.new("linnet_error *")
    status = lib().linnet_device_open(str(name).encode(), device, error)
    assert (device[0] == NULL) == (status != 0)
    check(status, error)
    return text(device[0].name)


def found(name: object) -> Any:
    """The linnet_device_list of linnet_device_find; raises Failure."""
    made, error = new_struct("linnet_device_list"), ffi.new("linnet_error *")
    check(lib().linnet_device_find(str(name).encode(), made, error), error)
    return made


def names(made: Any) -> list[str]:
    return [text(made.devices[i].name) for i in range(made.count)]


def seen(library: Path) -> tuple[str, int]:
    """What two_devices.c was given: its options, and whether the structs had their size."""
    handle = ctypes.CDLL(str(library))  # the library that the loader has opened
    handle.seen_options.restype = ctypes.c_char_p
    return handle.seen_options().decode(), handle.seen_sizes()


def test_a_library_may_have_several_devices(two: Path) -> None:
    assert opened(two) == "first" == opened(f"{two}:0")
    assert opened(f"{two}:1") == "second" == opened(f"{two}:0001")
    assert names(found(two)) == ["first", "second"] == names(found(f"{two}:7"))
    assert found(two).missing == NULL
    with pytest.raises(Failure, match=r"not_found: .*no device '.*:2' .*number 2, counted from 0, got .*2 devices"):
        opened(f"{two}:2")
    for index in (2147483648, 4294967296, 18446744073709551616):
        with pytest.raises(Failure, match="not_found"):
            opened(f"{two}:{index}")


def test_options_are_passed_on(two: Path) -> None:
    assert opened(f"{two}:1,count=2") == "second" and seen(two) == ("count=2", 1)
    assert opened(two) == "first" and seen(two) == ("", 1)
    assert names(found(f"{two},count=1")) == ["first"]
    some = found(f"{two},count=0")
    assert some.count == 0 and text(some.missing) == "no driver is installed: install one"
    for name in (f"{two},count=0", f"{two}:1,count=1"):  # a device that is missing has the library's reason
        with pytest.raises(Failure, match=r"not_found: .*no driver is installed: install one"):
            opened(name)


@pytest.mark.parametrize("call", [opened, found])
def test_an_unknown_option_is_an_error_with_the_reason(call: Any, two: Path, toy: Path) -> None:
    with pytest.raises(
        Failure, match=r"invalid_argument: .*refuses its options; got code 7; the only option is count=N"
    ):
        call(f"{two},size=3")
    with pytest.raises(Failure, match=r"invalid_argument: .*the toy has no option 'speed': leave it out"):
        call(f"{toy},speed=9,other=1")


@pytest.mark.parametrize("call", [opened, found])
def test_a_library_that_is_missing(call: Any, tmp_path: Path) -> None:
    with pytest.raises(
        Failure, match=r"not_found: .*'nothing'; expected a library liblinnet_nothing\.so, got .*"
    ) as no:
        call("nothing:1,f16=on")
    assert f"in ../lib or in {build('release')}/" in no.value.text and "No such file" in no.value.text
    path = tmp_path / "none.so"
    with pytest.raises(Failure, match=r"not_found: .*a shared library for this machine") as no:
        call(path)
    assert f"'{path}'" in no.value.text and "No such file" in no.value.text
    path.write_text("text")
    with pytest.raises(Failure, match=r"not_found: .*cannot load a device"):
        call(path)
    lacking = compiled("int other(void); int linnet_extension_devices(void) { return other(); }", tmp_path / "lack.so")
    with pytest.raises(Failure, match=r"not_found: .*undefined symbol: other"):
        call(lacking)


@pytest.mark.parametrize("name", ["", ":1", ",f16=on", "opencl:", "opencl:x", "a:b:1", "x" * 9000])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(Failure, match=r"invalid_argument: .*expected LIBRARY\[:INDEX\]\[,OPTION=VALUE\]"):
        opened(name)


@pytest.mark.parametrize("call", [opened, found])
def test_a_library_of_something_else(call: Any, tmp_path: Path) -> None:
    other = compiled("int other(void); int other(void) { return 0; }", tmp_path / "other.so")
    with pytest.raises(Failure, match=r"invalid_argument: .*exports linnet_extension_devices, got .*without this func"):
        call(other)


def test_one_device_of_the_old_function(tmp_path: Path) -> None:
    library = tmp_path / "old:3.so"  # what follows the last colon is no number
    text_of = """#include "linnet_device.h"
    static const linnet_device old = {.struct_size = sizeof old, .version = LINNET_DEVICE_VERSION, .name = "old"};
    const linnet_device *linnet_extension_device(void) { return &old; }"""
    compiled(text_of, library)
    assert opened(library) == opened(f"{library}:0") == "old"
    made = found(library)
    assert names(made) == ["old"] and made.devices == ffi.addressof(made, "single")
    with pytest.raises(Failure, match=r"not_found: .*number 1, counted from 0, got a library with 1 devices"):
        opened(f"{library}:1")
    with pytest.raises(Failure, match=r"invalid_argument: .*takes no options; got f16=on"):
        opened(f"{library},f16=on")
    none = compiled("const void *linnet_extension_device(void) { return 0; }", tmp_path / "null.so", "-w")
    made = found(none)
    assert made.count == 0 and "driver" in text(made.missing)
    with pytest.raises(Failure, match=r"not_found: .*driver"):
        opened(none)


def test_arguments_of_the_functions(two: Path) -> None:
    device, error = ffi.new("const linnet_device **"), ffi.new("linnet_error *")
    with pytest.raises(Failure, match="`name` must not be NULL"):
        check(lib().linnet_device_open(NULL, device, error), error)
    with pytest.raises(Failure, match="`device` must not be NULL"):
        check(lib().linnet_device_open(b"opencl", NULL, error), error)
    assert lib().linnet_device_open(str(two).encode(), device, NULL) == 0
    assert lib().linnet_device_open(b"nothing", device, NULL) == lib().LINNET_NOT_FOUND
    made = new_struct("linnet_device_list")
    assert lib().linnet_device_find(b"nothing", made, NULL) == lib().LINNET_NOT_FOUND and made.count == 0
    assert lib().linnet_device_find(str(two).encode(), NULL, error) == lib().LINNET_INVALID_ARGUMENT
    made.struct_size = 3
    with pytest.raises(Failure, match="struct_size is not the size"):
        check(lib().linnet_device_find(str(two).encode(), made, error), error)


def test_the_table_has_every_function() -> None:
    host = lib().linnet_device_host()
    assert host.struct_size == ffi.sizeof("linnet_host") and host == lib().linnet_device_host()
    fields = [name for name, _ in ffi.typeof("linnet_host").fields][1:]
    assert len(fields) >= 17
    for name in fields:
        assert getattr(host, name) == ffi.addressof(lib(), f"linnet_{name}"), name


HOST = """#include "linnet_device.h"
#include <stdio.h>
int main(int argc, char **argv) {
    const linnet_device *device;
    linnet_error error;
    char text[600];
    if (argc != 2) return 3;
    if (linnet_device_open(argv[1], &device, &error) == LINNET_OK) return puts(device->name) < 0;
    linnet_error_format(&error, text, sizeof text);
    puts(text);
    return 1;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that links liblinnet statically and opens a device by name."""
    source = tmp_path_factory.mktemp("host") / "host.c"
    source.write_text(HOST)
    library = build("release", "linnet_static") / "liblinnet.a"
    return compile_c([source, library], source.parent / "host", INCLUDE, "-lm", "-lpthread", "-ldl")


@pytest.mark.parametrize("how", ["absolute", "relative", "PATH"])
@pytest.mark.parametrize("place", [".", "../lib"])
def test_short_names_are_searched_beside_the_code(
    how: str, place: str, program: Path, toy: Path, tmp_path: Path
) -> None:
    """The folder of a program that links liblinnet statically, or ../lib beside it, however the program was started."""
    folder = tmp_path / "bin"
    folder.mkdir()
    shutil.copy(program, folder / "host")
    missing = subprocess.run([folder / "host", "toy"], capture_output=True, text=True, check=False)
    assert missing.returncode == 1 and f"{folder}/" in missing.stdout
    (folder / place).mkdir(exist_ok=True)
    shutil.copy(toy, folder / place / "liblinnet_toy.so")
    command, where = {
        "absolute": (folder / "host", Path("/")),
        "relative": (Path("bin/host"), tmp_path),
        "PATH": (Path("host"), Path("/")),
    }[how]
    path = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    run_it = ["/bin/sh", "-c", f"exec {command} toy"]
    assert run(run_it, cwd=where, env=path) == "toy\n"


def test_short_names_are_searched_where_the_system_searches(program: Path, toy: Path, tmp_path: Path) -> None:
    assert run([str(program), "toy"], env={"LD_LIBRARY_PATH": str(toy.parent)}) == "toy\n"
    # One that is beside the code but cannot be loaded is an error, and not passed over.
    shutil.copy(program, tmp_path / "host")
    (tmp_path / "liblinnet_toy.so").write_text("no library")
    text_of = run([str(tmp_path / "host"), "toy"], env={"LD_LIBRARY_PATH": str(toy.parent)}, status=1)
    assert "cannot load a device from 'toy'" in text_of


def test_a_name_without_a_slash_is_a_file_here_first(program: Path, toy: Path) -> None:
    assert run([str(program), "liblinnet_toy.so"], cwd=toy.parent) == "toy\n"
    assert run([str(program), "liblinnet_toy.so"], cwd=Path("/"), env={"LD_LIBRARY_PATH": str(toy.parent)}) == "toy\n"


def test_a_library_that_uses_the_table_needs_no_liblinnet(toy: Path) -> None:
    """It has no symbol of liblinnet, so no second liblinnet is loaded beside the one that plans."""
    need("readelf", "nm")
    assert "liblinnet.so" not in run(["readelf", "-d", str(toy)])
    assert "linnet" not in run(["nm", "-D", "--undefined-only", str(toy)])


def test_a_library_that_links_nothing_runs_in_python(toy: Path) -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (4, 8))
    w = graph.variable("w", np.random.default_rng(5).standard_normal((8, 3)).astype(np.float32))
    graph.signature("infer", {"x": x}, {"y": ops.softmax(x @ w)})
    feeds = {"x": np.random.default_rng(6).standard_normal((4, 8)).astype(np.float32)}
    session = linnet.Session(graph, devices=[linnet.load_device(toy)])
    np.testing.assert_allclose(session.run(feeds)["y"], linnet.Session(graph).run(feeds)["y"], rtol=1e-5)
    assert {step.op: step.device for step in session.steps}["matmul"] == "toy"


def test_a_build_without_devices_says_so() -> None:
    library = ffi.dlopen(str(build("no_devices", "linnet") / "liblinnet.so"))
    device, error = ffi.new("const linnet_device **"), ffi.new("linnet_error *")
    assert library.linnet_device_open(b"opencl", device, error) == library.LINNET_UNSUPPORTED
    assert "not in this build" in text(error.what) and "LINNET_DEVICES" in text(error.expected)
    assert library.linnet_device_host() != NULL


def test_the_compiler_that_pip_has_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For CUDA alone, and only if the environment does not name one."""
    from linnet.session import device

    path = tmp_path / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13"
    path.parent.mkdir(parents=True)
    path.touch()
    monkeypatch.setenv("LINNET_NVRTC", "another")
    monkeypatch.syspath_prepend(str(tmp_path))
    device._name_nvrtc("cuda:1,graphs=off")
    assert os.environ["LINNET_NVRTC"] == "another"
    monkeypatch.delenv("LINNET_NVRTC")
    device._name_nvrtc("opencl")
    assert "LINNET_NVRTC" not in os.environ
    device._name_nvrtc("cuda:1,graphs=off")
    assert os.environ["LINNET_NVRTC"] == str(path)
