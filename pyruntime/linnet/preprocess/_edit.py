"""Edits one signature of a copy of a graph: adds steps before an input or after outputs, and describes them in the
metadata. The metadata entry `io:SIGNATURE:NAME` describes an input or output in one line: a word, then key=value words
(docs/preprocess.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.ir import infer, traits
from linnet.ir.dtypes import Dim
from linnet.ir.encode import complete, encode_node
from linnet.ir.function import Function, Node, Tensor, emit
from linnet.ir.graph import Signature, graph_of
from linnet.ir.operands import user_op_name
from linnet.ir.user_op import UserOp
from linnet.passes import remove_dead
from linnet.preprocess._geometry import Fit


class Edit:
    """A signature being edited. `graph` is the copy that the caller gets back."""

    def __init__(self, graph: Graph, signature: str) -> None:
        if not isinstance(graph, Graph):
            raise UsageError(
                "the graph argument has the wrong type", code=101, expected="a linnet.Graph", got=type(graph).__name__,
                hint="create one with linnet.from_onnx(path)",
            )  # fmt: skip
        if signature not in graph.signatures:
            raise UsageError(
                f"the graph has no signature named {signature!r}", code=102, tensor=signature,
                expected=" or ".join(graph.signatures) or "a signature", got=signature,
            )  # fmt: skip
        self.graph = graph.copy()
        self.name = signature
        self.signature: Signature = self.graph.signatures[signature]
        if sum(s.function is self.signature.function for s in self.graph.signatures.values()) > 1:
            own = self.graph.function(self.signature.function.name)  # the other signature keeps its function
            own.fill(self.signature.function)
            self.signature.function = own

    @property
    def function(self) -> Function:
        return self.signature.function

    def input(self, name: str) -> Tensor:
        """The function's tensor for this input. Raises UsageError if there is none."""
        return self.function.inputs[self._index(name, self.signature.inputs, "input")]

    def output(self, name: str) -> Tensor:
        """The function's tensor for this output. Raises UsageError if there is none."""
        return self.function.outputs[self._index(name, self.signature.outputs, "output")]

    def _index(self, name: str, names: Sequence[str], role: str) -> int:
        if name not in names:
            raise UsageError(
                f"signature {self.name!r} has no {role} named {name!r}", code=102, tensor=name,
                expected=" or ".join(names) or f"a signature with {role}s",
            )  # fmt: skip
        return names.index(name)

    def prepend(
        self, name: str, dtype: str, shape: Sequence[Dim], source: str, build: Callable[[Tensor], Tensor]
    ) -> None:
        """Gives input `name` a new `dtype` and `shape`. build(new input) returns the tensor that the model took
        before."""
        function, old = self.function, self.input(name)
        body, function.nodes = function.nodes, []
        fresh = Tensor(function, old.name, dtype, tuple(shape))
        function.source = f"preprocess:{source}"
        result = build(fresh)
        check_fits(result, old, name)
        for node in body:
            node.inputs = [result if t is old else t for t in node.inputs]
        function.outputs = [result if t is old else t for t in function.outputs]
        function.inputs[function.inputs.index(old)] = fresh
        function.nodes += body
        refresh_shapes(function)

    def replace_outputs(self, names: Sequence[str], made: dict[str, Tensor], keep: bool) -> None:
        """Replaces the outputs `names` by `made`, at the position of the first. With `keep` they stay, and the new ones
        are added last."""
        pairs = list(zip(self.signature.outputs, self.function.outputs, strict=True))
        at = len(pairs) if keep else min(self.signature.outputs.index(name) for name in names)
        left = pairs if keep else [pair for pair in pairs if pair[0] not in names]
        at = min(at, len(left))
        for name in made:
            if any(name == other for other, _ in left):
                raise UsageError(
                    f"signature {self.name!r} already has an output named {name!r}", code=101, tensor=name,
                    hint="choose other names for the new outputs",
                )  # fmt: skip
        pairs = [*left[:at], *made.items(), *left[at:]]
        self.signature.outputs = [name for name, _ in pairs]
        self.function.outputs = [tensor for _, tensor in pairs]
        if not keep:
            for name in names:
                self.graph.metadata.pop(io_key(self.name, name), None)

    def describe(self, name: str, kind: str, **values: str) -> None:
        """Describes input or output `name` in the metadata. Raises UsageError for a value that is not one word."""
        for value in values.values():
            if len(value.split()) != 1:
                raise UsageError(
                    f"{value!r} cannot be stored in the metadata of {name!r}", code=101, tensor=name,
                    expected="one word without spaces", hint="choose another name",
                )  # fmt: skip
        words = [kind, *(f"{key}={value}" for key, value in values.items())]
        self.graph.metadata[io_key(self.name, name)] = " ".join(words)

    def photo(self, name: str | None) -> tuple[Tensor, Fit] | None:
        """The photo that the signature takes and how it is resized: input `name`, or the only photo input. Returns None
        if no input is a photo; raises UsageError if there are several."""
        found = [n for n in self.signature.inputs if (about := self.description(n)) is not None and about[0] == "image"]
        if name is None and len(found) > 1:
            raise UsageError(
                "the signature has several image inputs",
                code=101,
                expected=f"input={found[0]!r}, or another one of {found}",
            )
        if name is not None and name not in found:
            self.input(name)
            raise UsageError(
                f"input {name!r} is not an image", code=101, tensor=name, hint="call linnet.preprocess.image first"
            )
        if not found:
            return None
        about = self.description(name or found[0])
        return self.input(name or found[0]), Fit.of_words(about[1] if about else {})

    def description(self, name: str) -> tuple[str, dict[str, str]] | None:
        """The description of an input or output that `describe` stored, or None."""
        return parse_io(self.graph.metadata.get(io_key(self.name, name), ""))


def copy_signature(graph: Graph, signature: str, name: str) -> Graph:
    """A graph with one more signature `name`, equal to `signature`. So a file can contain both the bare model and the
    model with added steps. Weights are stored once. Raises UsageError if `signature` is unknown or `name` is taken."""
    edit = Edit(graph, signature)
    if name in edit.graph.signatures:
        raise UsageError(
            f"the graph already has a signature named {name!r}", code=101, tensor=name, hint="choose another name"
        )
    old = edit.signature
    edit.graph.signatures[name] = Signature(old.function, list(old.inputs), list(old.outputs))
    for prefix in ("io", "labels"):
        for key, value in list(edit.graph.metadata.items()):
            if key.startswith(f"{prefix}:{signature}:"):
                edit.graph.metadata[f"{prefix}:{name}:" + key.removeprefix(f"{prefix}:{signature}:")] = value
    return edit.graph


def keep_outputs(graph: Graph, outputs: Sequence[str], *, signature: str = "infer") -> Graph:
    """A graph whose signature has only these outputs, in this order. Nodes that only other outputs need are removed.
    Raises UsageError for an unknown output or an empty list."""
    edit = Edit(graph, signature)
    if not outputs or isinstance(outputs, str):
        raise UsageError("no outputs to keep are given", code=101, expected="a list of names", got=repr(outputs))
    edit.function.outputs = [edit.output(name) for name in outputs]
    for name in set(edit.signature.outputs) - set(outputs):
        edit.graph.metadata.pop(io_key(signature, name), None)
        edit.graph.metadata.pop(labels_key(signature, name), None)
    edit.signature.outputs = list(outputs)
    remove_dead(edit.function)
    return edit.graph


def io_key(signature: str, name: str) -> str:
    """The metadata key of an input's or output's description."""
    return f"io:{signature}:{name}"


def labels_key(signature: str, name: str) -> str:
    """The metadata key of an output's labels, one per line."""
    return f"labels:{signature}:{name}"


def parse_io(text: str) -> tuple[str, dict[str, str]] | None:
    """(kind, {key: value}) of a description, or None if it is empty."""
    words = text.split(" ")
    if not words[0]:
        return None
    return words[0], dict(word.split("=", 1) for word in words[1:] if "=" in word)


def check_fits(result: Tensor, old: Tensor, name: str) -> None:
    """Raises UsageError if the result of the new steps does not match the model's input."""
    a, b = result.shape, old.shape
    unequal = (isinstance(x, int) and isinstance(y, int) and x != y for x, y in zip(a or (), b or (), strict=False))
    if result.dtype == old.dtype and (a is None or b is None or (len(a) == len(b) and not any(unequal))):
        return
    raise UsageError(
        f"the steps before input {name!r} produce a tensor that the model does not accept", code=104, tensor=name,
        expected=f"{old.dtype} {_text(b)}", got=f"{result.dtype} {_text(a)}",
    )  # fmt: skip


def _text(shape: tuple[Dim, ...] | None) -> str:
    return "any shape" if shape is None else "[" + ", ".join("?" if d is None else str(d) for d in shape) + "]"


def refresh_shapes(function: Function) -> None:
    """Infers shapes again, because they may now be known better than when the nodes were created. Raises GraphError if
    operands no longer match."""
    for node in function.nodes:
        for tensor, shape in zip(node.outputs, _shapes(function, node), strict=True):
            tensor.shape = _better(tensor.shape, shape)


def _shapes(function: Function, node: Node) -> list[tuple[Dim, ...] | None]:
    outputs, quantization = node.outputs, [t.quantization for t in node.outputs]
    if node.op in traits.CONTROL:
        specs = infer.control_flow(node.op, node.inputs, complete(node.op, node.attributes), len(outputs), node.name)
    elif node.op in traits.REGISTERED:
        known = graph_of(function).user_ops
        op = known.get(user_op_name(node.attributes))
        if not isinstance(op, UserOp) or op.ruleless:
            return [t.shape for t in outputs]
        specs = infer.outputs_of_user_op(node.inputs, node.attributes, len(outputs), quantization, known).specs
    else:
        message = encode_node(node.op, node.attributes)
        specs = infer.infer(message, node.inputs, len(outputs), quantization, [t.dtype for t in outputs])
    return [shape for _, shape in specs]


def _better(old: tuple[Dim, ...] | None, new: tuple[Dim, ...] | None) -> tuple[Dim, ...] | None:
    if old is None or new is None or len(old) != len(new):
        return old if new is None else new
    return tuple(a if b is None else b for a, b in zip(old, new, strict=True))


def real(x: Tensor) -> Tensor:
    """The tensor as f32. Quantized integers are dequantized."""
    if x.dtype == "f32":
        return x
    if x.quantization is not None:
        return emit("dequantize", [x], {"dtype": "f32"})[0]
    return emit("cast", [x], {"dtype": "f32"})[0]
