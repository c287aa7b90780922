"""What passes and converters know of an op is a trait in its toml (schema/README.md), which they ask the op table for.
The places that name an op nevertheless are listed here, each with its reason; the lists may only shrink.

The rule. In C, the id of an op stands in runtime_c/ops, runtime_c/fast and the kernel folders, which implement ops; elsewhere
only where C_NAMES says so. In Python, a set, tuple, list or dict of op names is refused everywhere, except the tables of rules
in RULE_TABLES, which have one function per op. A comparison with one op's name is allowed for the ops in CONSTRUCTS, which
passes read and write as a compiler reads its own language, and otherwise where PYTHON_NAMES says so. A call that makes a node
(emit("conv", ...), ops.conv) is no knowledge of an op, and is free. Generated files are free."""
# Dear: the syntax trees of all of linnet are searched.

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

from linnet._generated.op_table import OPS
from tests.native import ROOT

# ---- C -----------------------------------------------------------------------------------------------------------------

C_FREE = ("runtime_c/ops/", "runtime_c/fast/", "runtime_c/generated/")  # and what is not below runtime_c
# (file, op): how often its id stands there, and why.
C_NAMES: dict[tuple[str, str], tuple[int, str]] = {
    ("runtime_c/map/map_convert.c", "cast"): (3, "fast kernels of the three conversions, made of map programs"),
    ("runtime_c/map/map_convert.c", "quantize"): (3, "fast kernels of the three conversions, made of map programs"),
    ("runtime_c/map/map_source.c", "cast"): (3, "the text of the three conversions, made of map programs"),
    ("runtime_c/map/map_source.c", "quantize"): (2, "the text of the three conversions, made of map programs"),
    ("runtime_c/map/map_source.c", "dequantize"): (1, "the text of the three conversions, made of map programs"),
    ("runtime_c/map/result_source.c", "matmul"): (1, "where the channels of the three products are"),
    ("runtime_c/map/result_source.c", "conv_transpose"): (1, "where the channels of the three products are"),
    ("runtime_c/model/structure_nodes.c", "while"): (1, "how a loop hands on carried values is checked once, at load"),
    ("runtime_c/plan/graph/evaluate.c", "map"): (1, "the epilogue of a step is a map, computed after its op"),
    ("runtime_c/model/user.c", "user"): (1, "the rows of registered ops are copies of its row"),
    ("runtime_c/plan/compile/control.c", "call"): (1, "control flow is taken apart here: a call is inlined"),
    ("runtime_c/plan/compile/control.c", "if"): (
        1,
        "control flow is taken apart here: one branch is inlined, or both planned",
    ),
    ("runtime_c/plan/compile/control.c", "while"): (
        1,
        "control flow is taken apart here: a loop is unrolled or planned",
    ),
    ("runtime_c/plan/passes/storage.c", "cast"): (1, "the pass writes casts"),
    ("runtime_c/plan/passes/order.c", "gather"): (1, "the pass writes a gather that checks indices"),
    ("runtime_c/plan/graph/work.c", "copy"): (1, "passes write copies, all by this function"),
}


def test_c_asks_the_op_table() -> None:
    ids = {f"LN_OP_{name.upper()}": name for name in OPS}
    pattern = re.compile(rf"\b(?:{'|'.join(ids)})\b")
    found: Counter[tuple[str, str]] = Counter()
    for path in _files("runtime_c", ".c", ".h", ".inc"):
        if not path.startswith(C_FREE):
            found.update((path, ids[word]) for word in pattern.findall((ROOT / path).read_text()))
    expected = {place: count for place, (count, _) in C_NAMES.items()}
    assert found == expected, _difference(found, expected)
    # The id under the name that the lists of kernels make of it: only the table of kernels uses it.
    named = [p for p in _files("runtime_c", ".c", ".h", ".inc") if re.search(r"\bLN_OP_NAMED_", (ROOT / p).read_text())]
    assert named == ["runtime_c/dispatch/dispatch.c", "runtime_c/generated/op_table.h"]


def test_the_layout_pass_knows_no_op_and_no_kind() -> None:
    """What one op wants is in its toml, or in a function beside its shape rule."""
    for name in ("graph/layouts.c", "passes/layout.c"):
        source = (ROOT / "runtime_c/plan" / name).read_text()
        assert not re.findall(r"\bLN_(?:OP|COPY_KIND)_\w+|\bln_\w+_attributes\b", source), name


# ---- Python ------------------------------------------------------------------------------------------------------------

# Generated files, and the cases by which devices are checked, which are about single ops as tests are.
PYTHON_FREE = (
    "pyruntime/linnet/_generated/", "pyruntime/linnet/builder/generated.py", "pyruntime/linnet/conformance/",
)  # fmt: skip
RULE_TABLES = {
    ("pyruntime/linnet/autodiff/indexing.py", "RULES"): "gradient rules, one function per op",
    ("pyruntime/linnet/autodiff/quantized.py", "RULES"): "gradient rules, one function per op",
    ("pyruntime/linnet/autodiff/rules.py", "RULES"): "gradient rules, one function per op",
    ("pyruntime/linnet/autodiff/windows.py", "RULES"): "gradient rules, one function per op",
    ("pyruntime/linnet/ir/symbolic.py", "SHAPES"): "rules of shapes that operands say, one function per op",
    ("pyruntime/linnet/ir/symbolic.py", "ELEMENTS"): "rules of sizes that are computed from sizes, one function per op",
}
CONSTRUCTS = {
    "map": "every pointwise chain: passes read, join and write its programs",
    "copy": "every movement: passes read its kind",
    "reduce": "every reduction: passes read its kind",
    "cast": "a map of one instruction",
    "assign": "the statement of the language: a variable's new value",
    "if": "control flow: each pass knows its functions",
    "while": "control flow: each pass knows its function and what it carries",
    "call": "control flow: each pass knows its function",
    "shape": "shapes become values: passes fold it",
    "quantize": "where floats become integers: passes read its parameters",
    "dequantize": "where integers become floats: passes read its parameters",
}
_RULE = "a rule of its own gradient"
_NORMS = "the pass is about batch norms: they become maps, or weights, or statistics of a batch"
_GATHERS = "rows of a table: gradients, transfers and loops treat them apart"
_PATTERN = "the pass makes one op of this pattern, and takes it apart"
_CASES = "its attributes decide"
PYTHON_NAMES: dict[tuple[str, str], str] = {
    ("pyruntime/linnet/autodiff/loops.py", "gather"): _GATHERS,
    ("pyruntime/linnet/autodiff/rules.py", "scatter"): _RULE,
    ("pyruntime/linnet/autodiff/windows.py", "conv_gradient"): _RULE,
    ("pyruntime/linnet/autodiff/windows.py", "conv_transpose"): _RULE,
    ("pyruntime/linnet/passes/affine.py", "batch_norm"): _NORMS,
    ("pyruntime/linnet/passes/norms.py", "batch_norm"): _NORMS,
    ("pyruntime/linnet/passes/statistics.py", "batch_norm"): _NORMS,
    ("pyruntime/linnet/passes/attention.py", "attention"): _PATTERN,
    ("pyruntime/linnet/passes/attention.py", "matmul"): _PATTERN,
    ("pyruntime/linnet/passes/attention.py", "softmax"): _PATTERN,
    ("pyruntime/linnet/passes/gathers.py", "gather"): _GATHERS,
    ("pyruntime/linnet/passes/heads.py", "conv"): "a head is put on a matmul or on a 1x1 conv, which is averaged first",
    ("pyruntime/linnet/preprocess/_results.py", "softmax"): "an activation that the caller names, not an op",
    ("pyruntime/linnet/quantization/moves.py", "pool"): _CASES,
    ("pyruntime/linnet/quantization/moves.py", "resize"): _CASES,
    ("pyruntime/linnet/quantization/decisions.py", "resize"): _CASES,
    ("pyruntime/linnet/quantization/intervals.py", "softmax"): "its results are probabilities",
    (
        "pyruntime/linnet/quantization/post_training.py",
        "resize",
    ): "its sizes stay f32 in f16 models; those of others may not",
    ("pyruntime/linnet/session/monotone_sizes.py", "gather"): "indices are read as numbers",
    ("pyruntime/linnet/session/monotone_sizes.py", "range"): _CASES,
    ("pyruntime/linnet/session/monotone_sizes.py", "resize"): _CASES,
    ("pyruntime/linnet/sync/remote.py", "gather"): _GATHERS,
    ("pyruntime/linnet/sync/rowwise.py", "gather"): _GATHERS,
    ("pyruntime/linnet/sync/rowwise.py", "scatter"): _GATHERS,
    (
        "converters/export/products.py",
        "matmul",
    ): "the matmul that makes the input of a recurrent op goes into the ONNX op",
}


def test_python_has_no_sets_of_ops() -> None:
    found = {(path, table) for path, table, _ in _collections()}
    assert found == set(RULE_TABLES), (
        "\n".join(
            f"{path}:{line}: op names in a row ({table or 'no name'}): ask linnet.ir.traits"
            for path, table, line in _collections()
            if (path, table) not in RULE_TABLES
        )
        or f"not there any more: {set(RULE_TABLES) - found}"
    )


def test_python_compares_with_constructs() -> None:
    found = {(path, name) for path, name, _ in _comparisons() if name not in CONSTRUCTS}
    unlisted = [
        f"{p}:{line}: {n!r}" for p, n, line in _comparisons() if n not in CONSTRUCTS and (p, n) not in PYTHON_NAMES
    ]
    assert not unlisted, "compared with the name of an op: ask linnet.ir.traits\n" + "\n".join(unlisted)
    assert found == set(PYTHON_NAMES), f"not there any more: {set(PYTHON_NAMES) - found}"


def _collections() -> Iterator[tuple[str, str, int]]:
    """(file, variable, line) of each literal that holds op names and nothing else."""
    for path, tree in _modules():
        names: dict[ast.AST, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign | ast.AnnAssign):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Name) and node.value is not None:
                    names[node.value] = target.id
            if isinstance(node, ast.Set | ast.Tuple | ast.List):
                words, least = node.elts, 1 if isinstance(node, ast.Set) else 2
            elif isinstance(node, ast.Dict):
                words, least = [key for key in node.keys if key is not None], 2
            else:
                continue
            texts = [word.value for word in words if isinstance(word, ast.Constant)]
            if len(texts) == len(words) >= least and all(text in OPS for text in texts):
                yield path, names.get(node, ""), node.lineno


def _comparisons() -> Iterator[tuple[str, str, int]]:
    """(file, op, line) of each comparison, and each `case`, with the name of an op."""
    for path, tree in _modules():
        for node in ast.walk(tree):
            words = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            words += [node.value] if isinstance(node, ast.MatchValue) else []
            for word in words:
                if isinstance(word, ast.Constant) and isinstance(word.value, str) and word.value in OPS:
                    yield path, word.value, node.lineno


@cache
def _modules() -> list[tuple[str, ast.Module]]:
    paths = [path for folder in ("pyruntime", "converters") for path in _files(folder, ".py")]
    return [(p, ast.parse((ROOT / p).read_text())) for p in paths if not p.startswith(PYTHON_FREE)]


def _files(folder: str, *endings: str) -> list[str]:
    paths = sorted(path for path in (ROOT / folder).rglob("*") if path.name.endswith(endings))
    return [path.relative_to(ROOT).as_posix() for path in paths]


def _difference(found: Counter[tuple[str, str]], expected: dict[tuple[str, str], int]) -> str:
    lines = [
        f"{file}: {op} {n} times: ask the op table"
        for (file, op), n in found.items()
        if n > expected.get((file, op), 0)
    ]
    lines += [
        f"{file}: {op} {n} times: take it off the list" for (file, op), n in expected.items() if n > found[file, op]
    ]
    return "\n".join(lines)
