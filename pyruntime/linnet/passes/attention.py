"""Recognizes attention: softmax(f(q k^T)) v, where f scales the scores, caps them, adds a mask or hides later keys, becomes
the op `attention`, which stores no scores. `expand_attention` does the reverse."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from linnet.builder import generated as ops
from linnet.builder.attention import ATTRIBUTES, attention_in_parts
from linnet.builder.mapping import Opened, opened
from linnet.ir.function import Function, Node, Tensor, emit
from linnet.ir.graph import Graph
from linnet.ir.program import Instruction, Program, Store
from linnet.ir.scopes import agree
from linnet.passes.affine import only_reader
from linnet.passes.kept_types import rewrites
from linnet.passes.pipeline import simplify
from linnet.passes.rewrite import join_sources, origin, put_in_place, splice

G = TypeVar("G", bound=Graph)
_HIDES = -1e30  # a number up to this one hides a key, whatever its score: in f32, it absorbs any usual score
_DTYPES = frozenset({"f32", "f64", "f16", "bf16"})


@rewrites("softmax")
def find_attention(function: Function) -> bool:
    """Replaces each attention in the function by one node. The keys and the values must be computed: products with
    constants are faster as they are. Returns whether any was found."""
    readers, given = function.consumers(), set(function.outputs)
    places: dict[Node, list[Node]] = {}
    gone: set[Node] = set()
    for node in list(function.nodes):
        found = _match(node, lambda n: only_reader(n, readers, given)) if node.op == "matmul" else None
        if found is None or not agree(*found.nodes, node):
            continue
        node.placement = next((n.placement for n in (node, *found.nodes) if n.placement), "")
        before = len(function.nodes)
        mask = _mask(found.form, found.nodes[0].outputs[0])
        query, key = found.nodes[0].inputs[:2]
        assert query is not None and key is not None and node.inputs[1] is not None
        made = ops.attention(
            query, key, node.inputs[1], mask, scale=found.form.scale, cap=found.form.cap,
            causal="start" if found.form.causal else "none",
            key_transposed=not found.nodes[0].attribute("transpose_b"),
        )  # fmt: skip
        put_in_place(places, node, made, before)
        places[node][-1].source = join_sources(*(origin(n) for n in (*found.nodes, node)))
        gone.update(found.nodes)
    splice(function, places)
    function.nodes = [node for node in function.nodes if node not in gone]
    return bool(places)


@rewrites("attention")
def expand_attention(function: Function) -> bool:
    """Replaces each node `attention` by products, a map and a softmax. Returns whether there was any."""
    places: dict[Node, list[Node]] = {}
    for node in [n for n in function.nodes if n.op == "attention"]:
        before = len(function.nodes)
        made = attention_in_parts(node.inputs, {name: node.attribute(name) for name in ATTRIBUTES})
        put_in_place(places, node, made, before, node.source)
    splice(function, places)
    return bool(places)


def without_attention(graph: G) -> G:
    """The graph itself if no function has the op `attention`, otherwise a copy with all of them expanded."""
    if not any(node.op == "attention" for function in graph.functions for node in function.nodes):
        return graph
    made = graph.copy()
    for function in made.functions:
        expand_attention(function)
        simplify(function)
    return made


class _Form(NamedTuple):
    """A value of a map's program as factor * s + rest, where s is the score; with `inner`, as factor * tanh(inner * s) +
    rest. rest: a register of the program, or None for 0. causal: later keys are hidden."""

    factor: float = 0.0
    rest: int | None = None
    inner: float | None = None
    causal: bool = False
    program: Opened | None = None

    @property
    def scale(self) -> float:
        return self.factor if self.inner is None else self.factor * self.inner

    @property
    def cap(self) -> float:
        return 0.0 if self.inner is None else self.factor


class _Found(NamedTuple):
    """nodes: the product of queries and keys, perhaps a map, and the softmax."""

    nodes: list[Node]
    form: _Form


def _plain_product(node: Node) -> bool:
    """Whether the node is a product of two float matrices without a bias, and a is not transposed."""
    a, b = node.inputs[0], node.inputs[1]
    if node.op != "matmul" or len(node.inputs) > 2 or a is None or b is None or node.attribute("transpose_a"):
        return False
    same = a.dtype == b.dtype == node.outputs[0].dtype
    return same and a.dtype in _DTYPES and min(a.rank or 0, b.rank or 0) >= 2


def _match(last: Node, reader: Callable[[Node], Node | None]) -> _Found | None:
    """The attention whose last product is `last`, or None."""
    if not _plain_product(last) or last.attribute("transpose_b"):
        return None
    weights = last.inputs[0].node if last.inputs[0] is not None else None
    if weights is None or reader(weights) is not last:
        return None
    softmax = _before_zeros(weights, reader)
    if softmax.op != "softmax" or softmax.attribute("log"):
        return None
    scores = softmax.inputs[0]
    if scores is None or scores.rank is None or softmax.attribute("axis") % scores.rank != scores.rank - 1:
        return None
    above = scores.node
    if above is None or reader(above) is not softmax:
        return None
    nodes, form = [above, softmax, *([weights] if weights is not softmax else [])], _Form(1.0)
    if above.op == "map":
        found = _through_map(above, reader)
        if found is None:
            return None
        form, nodes = found.form, [*found.nodes, *nodes]
    first, operands = nodes[0], (nodes[0].inputs[1], last.inputs[1])
    computed = all(t is not None and t.data is None and t.variable is None for t in operands)
    if (
        not _plain_product(first)
        or not computed
        or len({t.dtype for t in (scores, *last.inputs) if t is not None}) != 1
    ):
        return None
    return _Found(nodes, form)


def _before_zeros(node: Node, reader: Callable[[Node], Node | None]) -> Node:
    """The softmax before a map that replaces NaN by 0, as exporters write it for queries that see no key; the op gives
    zeros, too. The node itself if it is no such map."""
    x = node.inputs[0]
    program = opened(node) if node.op == "map" and len(node.inputs) == 1 else None
    if program is None or x is None or x.node is None or reader(x.node) is not node or len(node.outputs) != 1:
        return node
    code, stored = program.program.code, program.program.stores[0]
    last = code[stored.register]
    if stored.quantized or last.opcode != "select" or len(code) != 4 or x.dtype != node.outputs[0].dtype:
        return node
    test, no = (code[r] for r in (last.args[0], last.args[2]))
    zero = code[last.args[1]]
    replaces = test.opcode == "is_nan" and code[test.args[0]].opcode == "load" and no.opcode == "load"
    return x.node if replaces and zero.opcode == "const" and zero.number == 0 else node


def _through_map(node: Node, reader: Callable[[Node], Node | None]) -> _Found | None:
    """The product whose result the map makes scores of, and how."""
    program = opened(node)
    if program is None or len(node.outputs) != 1 or program.program.stores[0].quantized:
        return None
    for tensor in program.operands:
        product = tensor.node
        if product is None or product.op != "matmul" or reader(product) is not node:
            continue
        known = tensor.shape is not None and None not in tensor.shape
        if not known or tensor.shape != node.outputs[0].shape or tensor.dtype != node.outputs[0].dtype:
            continue
        form = _Reading(program, tensor).form()
        if form is not None:
            return _Found([product], form)
    return None


class _Reading:
    """Reads a map's program as a form of the scores."""

    def __init__(self, program: Opened, scores: Tensor) -> None:
        self.code, self.operands, self.scores = program.program.code, program.operands, scores
        self.stored = program.program.stores[0].register
        self.made = Opened(Program(), [])  # computes what is added to the scores
        self.known: dict[int, _Form | None] = {}
        self.rank = len(scores.shape or ())

    def form(self) -> _Form | None:
        """The form of the scores that the map stores. None if op `attention` does not have this form."""
        for register in range(self.stored + 1):
            self.known[register] = self._of(self.code[register])
        form = self.known[self.stored]
        if form is None or form.factor == 0 or (form.inner is not None and form.factor < 0):
            return None
        if form.rest is not None and any(i.opcode == "iota" for i in _needed(self.made.program, form.rest)):
            return None
        return form._replace(program=self.made)

    def _number(self, form: _Form | None) -> float | None:
        """The value of a form that is a constant."""
        if form is None or form.factor != 0:
            return None
        if form.rest is None:
            return 0.0
        made = self.made.program.code[form.rest]
        if made.opcode == "const":
            return float(made.number)
        if made.opcode == "load":
            data = self.made.operands[made.operand].data
            return float(data.reshape(-1)[0]) if data is not None and data.size == 1 else None
        return None

    def _register(self, form: _Form, kind: str) -> int:
        return self.made.program.constant(0, kind) if form.rest is None else form.rest

    def _of(self, i: Instruction) -> _Form | None:
        if i.opcode in ("load", "load_dequantized", "table"):
            tensor = self.operands[i.operand]
            if tensor is self.scores:
                return _Form(1.0) if i.opcode == "load" else None
            if tensor not in self.made.operands:
                self.made.operands.append(tensor)
            i = i._replace(operand=self.made.operands.index(tensor))
        forms = [self.known[r] for r in i.args]
        operands = [f for f in forms if f is not None]
        if len(operands) != len(forms):
            return None
        if all(f.factor == 0 and not f.causal for f in operands):  # does not depend on the scores
            args = tuple(self._register(f, self.code[r].result) for f, r in zip(operands, i.args, strict=True))
            return _Form(rest=self.made.program.add(i._replace(args=args)))
        rule = {"add": self._add, "sub": self._add, "mul": self._multiply, "div": self._multiply}.get(i.opcode)
        if rule is not None:
            return rule(i, operands)
        if i.opcode == "neg":
            return self._scaled(operands[0], -1.0, i.kind)
        if i.opcode == "cast":
            return operands[0] if self.code[i.args[0]].result == i.kind else None
        if i.opcode == "tanh":
            f = operands[0]
            bare = f.rest is None and f.inner is None and not f.causal
            return _Form(1.0, inner=f.factor) if bare else None
        return self._select(i, operands) if i.opcode == "select" else None

    def _scaled(self, f: _Form, by: float, kind: str) -> _Form | None:
        if f.causal and by <= 0:
            return None
        rest = f.rest
        if rest is not None:
            factor = self.made.program.constant(by, kind)
            rest = self.made.program.add(Instruction("mul", kind, (rest, factor)))
        return f._replace(factor=f.factor * by, rest=rest)

    def _add(self, i: Instruction, operands: list[_Form]) -> _Form | None:
        a, b = operands
        if a.factor != 0 and b.factor != 0:
            return None
        if i.opcode == "sub" and b.factor != 0:
            negated = self._scaled(b, -1.0, i.kind)
            return None if negated is None else self._add(i._replace(opcode="add"), [a, negated])
        own, other = (a, b) if a.factor != 0 else (b, a)
        if other.rest is None:
            return own
        if own.rest is None and i.opcode == "add":
            return own._replace(rest=other.rest)
        args = (self._register(own, i.kind), other.rest)
        return own._replace(rest=self.made.program.add(Instruction(i.opcode, i.kind, args)))

    def _multiply(self, i: Instruction, operands: list[_Form]) -> _Form | None:
        if i.opcode == "div":
            number = self._number(operands[1])
            return None if not number else self._scaled(operands[0], 1 / number, i.kind)
        for own, other in (operands, operands[::-1]):
            number = self._number(other)
            if number is not None:
                return self._scaled(own, number, i.kind)
        return None

    def _select(self, i: Instruction, operands: list[_Form]) -> _Form | None:
        condition, yes, no = operands
        if condition.factor != 0 or condition.rest is None:
            return None
        own, other = (yes, no) if yes.factor != 0 else (no, yes)
        if other.factor != 0:
            return None
        number = self._number(other)
        if number is None or number > _HIDES:
            return None
        if self._is_causal(condition.rest, own is yes):
            return own._replace(causal=True)
        added, hidden = self._register(own, i.kind), self._register(other, i.kind)
        args = (condition.rest, added, hidden) if own is yes else (condition.rest, hidden, added)
        return own._replace(rest=self.made.program.add(Instruction("select", i.kind, args)))

    def _is_causal(self, register: int, kept: bool) -> bool:
        """Whether the condition says that the key is not after the query (kept), or that it is (not kept)."""
        code = self.made.program.code
        i = code[register]
        if i.opcode not in ("lt", "le", "gt", "ge"):
            return False
        axes = [code[r].operand if code[r].opcode == "iota" else -1 for r in i.args]
        if axes == [self.rank - 2, self.rank - 1]:  # query compared with key
            return i.opcode == ("ge" if kept else "lt")
        return axes == [self.rank - 1, self.rank - 2] and i.opcode == ("le" if kept else "gt")


def _needed(program: Program, register: int) -> list[Instruction]:
    """The instructions that a register depends on."""
    found, pending = set(), [register]
    while pending:
        at = pending.pop()
        if at not in found:
            found.add(at)
            pending += program.code[at].args
    return [program.code[r] for r in found]


def _mask(form: _Form, scores: Tensor) -> Tensor | None:
    """The tensor that the form adds to the scores."""
    if form.rest is None or form.program is None:
        return None
    code = _needed(form.program.program, form.rest)
    if len(code) == 1 and code[0].opcode == "load":
        tensor = form.program.operands[code[0].operand]
        if tensor.dtype == scores.dtype and tensor.quantization is None:
            return tensor
    program, operands, place = Program(), [], dict[int, int]()
    for register in range(form.rest + 1):
        i = form.program.program.code[register]
        if i not in code:
            continue
        if i.opcode in ("load", "load_dequantized", "table"):
            tensor = form.program.operands[i.operand]
            if tensor not in operands:
                operands.append(tensor)
            i = i._replace(operand=operands.index(tensor))
        place[register] = program.add(i._replace(args=tuple(place[r] for r in i.args)))
    program.stores = [Store(place[form.rest], False)]
    if not operands:
        return None  # one number added to all scores changes nothing
    return emit("map", operands, program.attributes([scores.dtype]), function=scores.function)[0]
