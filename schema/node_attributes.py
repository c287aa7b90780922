"""Writes runtime_c/generated/node_attributes.inc: the ops and attributes of nodes, for code on public headers alone."""

from __future__ import annotations

from rows import Op


def attribute_list(ops: list[Op], note: str) -> str:
    """One line per attribute that a step can have, for code on public headers alone that writes nodes."""
    out = [
        f"/* {note} */",
        "/* LN_NODE_OP(op, id) for each op that a step of a plan can have, and LN_NODE_ATTRIBUTE(op, attribute, slot, type)",
        " * for each of its attributes. Types are those of the tables in schema/generated/attributes.fbs. */",
    ]
    words = {"int": "LONG", "bool": "BYTE", "float": "DOUBLE", "enum": "BYTE", "dtype": "BYTE"}
    words |= {"ints": "LONGS", "floats": "DOUBLES", "function": "FUNCTION"}
    for op in ops:
        if op.name in ("call", "user"):  # a plan has no calls
            continue
        out.append(f"LN_NODE_OP({op.name}, {op.id})")
        out += [f"LN_NODE_ATTRIBUTE({op.name}, {a['name']}, {a['id']}, {words[a['type']]})" for a in op.attributes]
    return "\n".join([*out, ""])
