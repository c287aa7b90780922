"""The file format only grows: today's schema reads every released file, and no id ever gets a second meaning.
The released schemas are in schema/released/; schema/README.md has the rules."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.native import ROOT, need, run

SCHEMA = ROOT / "schema"
RELEASED = sorted((SCHEMA / "released").glob("v*"))


def _ops(folder: Path) -> dict[str, dict[str, Any]]:
    return {path.stem: tomllib.loads(path.read_text()) for path in sorted((folder / "ops").glob("*.toml"))}


def _opcodes(folder: Path) -> dict[str, dict[str, Any]]:
    return tomllib.loads((folder / "map_opcodes.toml").read_text())


def _conform(schema: Path, released: Path) -> tuple[int, str]:
    done = subprocess.run(
        ["flatc", "-I", str(schema), "--conform", str(released / "linnet.fbs"), "--conform-includes", str(released),
         str(schema / "linnet.fbs")],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_there_is_a_released_version() -> None:
    assert [path.name for path in RELEASED][:1] == ["v1"]


@pytest.mark.parametrize("released", RELEASED, ids=lambda path: path.name)
def test_schema_conforms_to_released(released: Path) -> None:
    need("flatc")
    status, text = _conform(SCHEMA, released)
    assert status == 0, text


def test_conform_sees_a_changed_id(tmp_path: Path) -> None:
    """Shows that the check above can fail: an op that takes another's number, and a field of another type, are refused."""
    need("flatc")
    shutil.copytree(SCHEMA / "generated", tmp_path / "generated")
    shutil.copy(SCHEMA / "linnet.fbs", tmp_path)
    attributes = tmp_path / "generated" / "attributes.fbs"
    text = attributes.read_text()
    attributes.write_text(text.replace("CopyAttributes = 2,", "CopyAttributes = 99,"))
    assert attributes.read_text() != text
    assert _conform(tmp_path, SCHEMA / "released" / "v1")[0] != 0
    attributes.write_text(text)
    structure = tmp_path / "linnet.fbs"
    changed = structure.read_text().replace("producer: string (id: 0)", "producer: long (id: 0)")
    assert changed != structure.read_text()
    structure.write_text(changed)
    assert _conform(tmp_path, SCHEMA / "released" / "v1")[0] != 0


@pytest.mark.parametrize("released", RELEASED, ids=lambda path: path.name)
def test_ids_are_never_reused(released: Path) -> None:
    """flatc knows neither enum words inside an attribute, nor removed rows, nor map opcodes: this test compares them."""
    today = _ops(SCHEMA)
    for name, old in _ops(released).items():
        assert name in today, f"op {name} is in {released.name}: keep its file, and say in its doc that it is retired"
        new = today[name]
        assert new["id"] == old["id"], f"op {name} had id {old['id']} in {released.name}"
        attributes = {a["id"]: a for a in new.get("attributes", [])}
        for attribute in old.get("attributes", []):
            same = attributes.get(attribute["id"])
            assert same is not None, f"{name}: attribute id {attribute['id']} ({attribute['name']}) has gone"
            assert (same["name"], same["type"]) == (attribute["name"], attribute["type"]), (
                f"{name}: id {attribute['id']}"
            )
            assert same.get("default") == attribute.get("default"), f"{name}.{attribute['name']}: defaults are forever"
            for word, value in attribute.get("values", {}).items():
                assert same["values"].get(word) == value, f"{name}.{attribute['name']}: {word} was {value}"
    codes = _opcodes(SCHEMA)
    for name, row in _opcodes(released).items():
        assert name in codes and codes[name]["id"] == row["id"], f"map opcode {name} was {row['id']} in {released.name}"
        assert codes[name]["arity"] == row["arity"], f"map opcode {name}: its operands are forever"


@pytest.mark.parametrize("released", RELEASED, ids=lambda path: path.name)
def test_what_older_readers_would_ignore_has_a_version(released: Path) -> None:
    """An older reader skips attributes that it does not know. So files that use them say that they need a newer reader."""
    versions = tomllib.loads((SCHEMA / "versions.toml").read_text())["attributes"]
    since = int(released.name[1:])
    today = _ops(SCHEMA)
    for name, old in _ops(released).items():
        known = {a["name"] for a in old.get("attributes", [])}
        for attribute in {a["name"] for a in today[name].get("attributes", [])} - known:
            assert versions.get(f"{name}.{attribute}", 1) > since, f"schema/versions.toml lacks {name}.{attribute}"


def test_every_op_says_all_that_it_must() -> None:
    """Faults of a new op's .toml that the generator must notice."""
    dtypes = ["f32", "f16", "bf16", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool", "i4", "u4"]
    for name, row in _ops(SCHEMA).items():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name), name
        assert row["doc"].strip().endswith((".", ")")), f"{name}: doc is a sentence"
        assert row["dtypes"] and set(row["dtypes"]) <= set(dtypes), f"{name}: unknown dtype"
        assert row["outputs"], f"{name}: no output"
        for operands in (row["inputs"], row["outputs"]):
            # A required operand after an optional one would be ambiguous.
            optional = [bool(o.get("optional")) for o in operands]
            assert optional == sorted(optional), f"{name}: a required operand stands behind an optional one"
            assert not any(o.get("variadic") for o in operands[:-1]), f"{name}: only the last operand may be variadic"
        if row["gradient"].startswith("none"):
            assert re.match(r"none: \S", row["gradient"]), f"{name}: say why it has no gradient"
        for attribute in row.get("attributes", []):
            if attribute["type"] == "enum":
                assert 0 in attribute["values"].values(), f"{name}.{attribute['name']}: value 0 is the default"
                assert max(attribute["values"].values()) < 256


def test_every_op_has_one_shape_rule_and_a_reference_kernel() -> None:
    """An op of the schema without its C file would fail to link; the generator reports it by name."""
    sources = "\n".join(path.read_text() for path in (ROOT / "runtime_c").rglob("*.c"))
    for name in _ops(SCHEMA):
        found = len(re.findall(rf"^linnet_status ln_infer_{name}\(const ln_infer", sources, re.MULTILINE))
        assert found == 1, f"{found} definitions of ln_infer_{name} below runtime_c/"


def test_run_helper_reports_failure() -> None:
    """Many tests rely on `native.run`: a failing command must fail them."""
    with pytest.raises(pytest.fail.Exception):
        run(["false"])
