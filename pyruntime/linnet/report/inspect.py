"""The content of a .lnt file as plain data, for `linnet inspect` and for programs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet._generated.fb import Model
from linnet._generated.op_table import OPCODES, OPS
from linnet.clib.errors import Error
from linnet.file.layout import HEADER
from linnet.file.reader import from_bytes, read_linnet
from linnet.ir import traits
from linnet.ir.dtypes import Quantization, bytes_of
from linnet.ir.function import Function, Node, Tensor
from linnet.ir.graph import Graph
from linnet.ir.operands import user_op_name
from linnet.ir.user_op import named_in, unpack

if TYPE_CHECKING:
    from linnet.session.model import Verified

_OPCODE_NAMES = {number: name for name, (number, _, _) in OPCODES.items()}


def details(path: str | Path) -> dict[str, Any]:
    """Everything about the file except the values of its constants. `weights` says whether the weights match their
    digests, and `verified` whether every byte is as it was written. Raises FileError only if the structure is
    damaged."""
    from linnet.session.model import Model as Opened

    content = read_linnet(Path(path))
    graph = from_bytes(content, str(path), verify=False)
    _, version, oldest, start, size, *_ = HEADER.unpack_from(content)
    model = Model.Model.GetRootAs(content[start : start + size])
    opened = Opened(content, verify=False, user_ops=named_in(graph))
    found, problem = opened.verified(strict=True)
    return {
        "model": str(path),
        "bytes": len(content),
        "format": version,
        "oldest_reader": oldest,
        "producer": (model.Producer() or b"").decode(),
        "structure_bytes": size,
        "segments": model.SegmentsLength(),
        "digest": opened.metadata("digest"),
        "verified": problem is None,
        "weights": _weights(found, problem),
        **summary(graph),
    }


def _weights(found: Verified, problem: Error | None) -> str:
    if found.problems or (problem is not None and not found.without_digest):
        return f"DAMAGED: {problem}"
    if found.without_digest:
        return f"{found.without_digest} of {found.segments} segments have no digest; the others match theirs"
    return f"match their digests ({found.segments} segments)"


def summary(graph: Graph) -> dict[str, Any]:
    """The metadata, signatures, variables, functions, and counts of ops and constants, as a dictionary."""
    constants: dict[str, dict[str, int]] = {}
    seen: set[int] = set()
    for function in graph.functions:
        for t in function.tensors():
            if t.data is not None and id(t.data) not in seen:
                seen.add(id(t.data))
                entry = constants.setdefault(t.dtype, {"count": 0, "bytes": 0})
                entry["count"] += 1
                entry["bytes"] += bytes_of(t.dtype, t.data.shape)
    return {
        "metadata": dict(graph.metadata),
        "signatures": [
            {
                "name": name,
                "function": signature.function.name,
                "inputs": [_tensor(t, n) for t, n in zip(signature.function.inputs, signature.inputs, strict=True)],
                "outputs": [_tensor(t, n) for t, n in zip(signature.function.outputs, signature.outputs, strict=True)],
            }
            for name, signature in graph.signatures.items()
        ],
        "variables": [
            {
                "name": v.name,
                "dtype": str(v.value.dtype),
                "shape": list(v.value.shape),
                "bytes": bytes_of(v.dtype, v.value.shape),
                "quantization": _quantization(v.quantization),
                "placement": v.placement,
            }
            for v in graph.variables.values()
        ],
        "ops": dict(Counter(node.op for function in graph.functions for node in function.nodes).most_common()),
        "constants": dict(sorted(constants.items())),
        "functions": [_function(function) for function in graph.functions],
    }


def _quantization(q: Quantization | None) -> dict[str, Any] | None:
    if q is None:
        return None
    if q.block:  # a large tensor has too many scales to list them
        return {"blocks": list(q.scale.shape), "block": q.block, "axis": q.axis, "bits": q.bits}
    return {"scale": q.scale.reshape(-1).tolist(), "zero": q.zero.reshape(-1).tolist(), "axis": q.axis, "bits": q.bits}


def _tensor(t: Tensor, name: str = "") -> dict[str, Any]:
    return {
        "name": name or t.name,
        "dtype": t.dtype,
        "shape": None if t.shape is None else list(t.shape),
        "quantization": _quantization(t.quantization),
    }


def _function(function: Function) -> dict[str, Any]:
    constants = [t for t in function.tensors() if t.data is not None]
    return {
        "name": function.name,
        "inputs": [t.name for t in function.inputs],
        "outputs": [t.name for t in function.outputs],
        "nodes": [_node(node) for node in function.nodes],
        "constants": [
            {**_tensor(t), "bytes": bytes_of(t.dtype, t.data.shape)} for t in constants if t.data is not None
        ],
    }


def _node(node: Node) -> dict[str, Any]:
    attributes = {}
    for name, (_, _, default, _) in OPS[node.op]["attributes"].items():
        value = node.attribute(name)
        if value != default:
            attributes[name] = (
                value.name if isinstance(value, Function) else list(value) if isinstance(value, tuple) else value
            )
    if node.op == "map":
        attributes["program"] = program_text(node)
        attributes = {k: v for k, v in attributes.items() if k in ("program", "shape")}
    if node.op in traits.REGISTERED:
        own = {
            k: v.decode("utf-8", "replace") if isinstance(v, bytes) else v for k, v in unpack(node.attributes).items()
        }
        attributes = {"op": user_op_name(node.attributes), "version": node.attribute("version"), **own}
    return {
        "op": node.op,
        "name": node.name,
        "source": node.source,
        "placement": node.placement,
        "inputs": ["-" if t is None else t.name for t in node.inputs],
        "outputs": [_tensor(t) for t in node.outputs],
        "attributes": attributes,
    }


def program_text(node: Node) -> str:
    """A map program as readable text, for example "r2=max.f32(r0,r1)", with immediates and inputs in place."""
    words, parts = node.attribute("program"), []
    floats, integers = node.attribute("floats"), node.attribute("integers")
    from linnet.ir.dtypes import DTYPE_NAMES

    for at in range(0, len(words), 5):
        number, kind_number, a, b, c = words[at : at + 5]
        opcode, kind = _OPCODE_NAMES.get(number, f"op{number}"), DTYPE_NAMES.get(kind_number, "?")
        arity = OPCODES[opcode][1] if opcode in OPCODES else 3
        if opcode in ("store", "store_quantized"):
            parts.append(f"out{b}={opcode}(r{a})")
            continue
        if opcode == "const":
            table = floats if kind in ("f32", "f64") else integers
            operands = [f"{table[a]:g}" if a < len(table) else "?"]
        elif opcode in ("load", "load_dequantized"):
            operands = [f"in{a}"]
        elif opcode == "iota":
            operands = [f"axis {a}"]
        else:
            operands = [f"r{r}" for r in (a, b, c)[:arity]]
            if opcode == "table":
                operands.append(f"in{b}")
        parts.append(f"r{at // 5}={opcode}.{kind}({','.join(operands)})")
    return "; ".join(parts)
