"""Editing one signature of a graph: steps in front of an input or behind outputs, on a copy; what stands in the metadata.
Metadata `io:SIGNATURE:NAME` says in one line what an input or output is: a word, then key=value words (docs/preprocess.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from linnet import _ops
from linnet._encode import complete, encode_node
from linnet.errors import UsageError
from linnet.graph import Dim, Function, Graph, Node, Signature, Tensor, emit
from linnet.passes import remove_dead
from linnet.preprocess._geometry import Fit


class Edit:
    """A signature under change. `graph` is the copy that the caller gets back."""

    def __init__(self, graph: Graph, signature: str) -> None:
        if not isinstance(graph, Graph):
            raise UsageError(
                "the graph cannot be this", code=101, expected="a linnet.Graph", got=type(graph).__name__,
                hint="linnet.from_onnx(path) makes one",
            )  # fmt: skip
        if signature not in graph.signatures:
            raise UsageError(
                f"the graph has no signature {signature!r}", code=102, tensor=signature,
                expected=" or ".join(graph.signatures) or "a signature", got=signature,
            )  # fmt: skip
        self.graph = graph.copy()
        self.name = signature
        self.signature: Signature = self.graph.signatures[signature]
        if sum(s.function is self.signature.function for s in self.graph.signatures.values()) > 1:
            own = self.graph.function(self.signature.function.name)  # the other signature keeps what it has
            own.fill(self.signature.function)
            self.signature.function = own

    @property
    def function(self) -> Function:
        return self.signature.function

    def input(self, name: str) -> Tensor:
        """The function's tensor for that input. UsageError when there is none."""
        return self.function.inputs[self._index(name, self.signature.inputs, "input")]

    def output(self, name: str) -> Tensor:
        """The function's tensor for that output. UsageError when there is none."""
        return self.function.outputs[self._index(name, self.signature.outputs, "output")]

    def _index(self, name: str, names: Sequence[str], role: str) -> int:
        if name not in names:
            raise UsageError(
                f"signature {self.name!r} has no {role} {name!r}", code=102, tensor=name,
                expected=" or ".join(names) or f"no {role}",
            )  # fmt: skip
        return names.index(name)

    def prepend(
        self, name: str, dtype: str, shape: Sequence[Dim], source: str, build: Callable[[Tensor], Tensor]
    ) -> None:
        """Input `name` becomes one of `dtype` and `shape`; build(new input) makes what the model took so far."""
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
        """Outputs `names` give way to `made`, at the place of the first; with `keep` they stay, and the new come last."""
        pairs = list(zip(self.signature.outputs, self.function.outputs, strict=True))
        at = len(pairs) if keep else min(self.signature.outputs.index(name) for name in names)
        left = pairs if keep else [pair for pair in pairs if pair[0] not in names]
        at = min(at, len(left))
        for name in made:
            if any(name == other for other, _ in left):
                raise UsageError(
                    f"signature {self.name!r} has an output {name!r} already", code=101, tensor=name,
                    hint="give other names for the new outputs",
                )  # fmt: skip
        pairs = [*left[:at], *made.items(), *left[at:]]
        self.signature.outputs = [name for name, _ in pairs]
        self.function.outputs = [tensor for _, tensor in pairs]
        if not keep:
            for name in names:
                self.graph.metadata.pop(io_key(self.name, name), None)

    def describe(self, name: str, kind: str, **values: str) -> None:
        """Says in the metadata what input or output `name` is. UsageError for a value that is not one word."""
        for value in values.values():
            if len(value.split()) != 1:
                raise UsageError(
                    f"{value!r} cannot be told in the metadata of {name!r}", code=101, tensor=name,
                    expected="one word, without spaces", hint="give another name",
                )  # fmt: skip
        words = [kind, *(f"{key}={value}" for key, value in values.items())]
        self.graph.metadata[io_key(self.name, name)] = " ".join(words)

    def photo(self, name: str | None) -> tuple[Tensor, Fit] | None:
        """The photo that goes into the signature and how it is brought to size: input `name`, or the only one there is.
        None when no input is a photo; UsageError when there are several to choose from."""
        found = [n for n in self.signature.inputs if (about := self.description(n)) is not None and about[0] == "image"]
        if name is None and len(found) > 1:
            raise UsageError("which photo is meant?", code=101, expected=f"input={found[0]!r}, or another of {found}")
        if name is not None and name not in found:
            self.input(name)
            raise UsageError(
                f"input {name!r} is no photo", code=101, tensor=name, hint="call linnet.preprocess.image first"
            )
        if not found:
            return None
        about = self.description(name or found[0])
        return self.input(name or found[0]), Fit.of_words(about[1] if about else {})

    def description(self, name: str) -> tuple[str, dict[str, str]] | None:
        """What `describe` said of an input or output."""
        return parse_io(self.graph.metadata.get(io_key(self.name, name), ""))


def copy_signature(graph: Graph, signature: str, name: str) -> Graph:
    """A graph with one more signature `name`, equal to `signature`: to keep the bare model beside the one with steps around
    it. Weights are stored once. Raises UsageError when `signature` is unknown or `name` taken."""
    edit = Edit(graph, signature)
    if name in edit.graph.signatures:
        raise UsageError(f"the graph has a signature {name!r} already", code=101, tensor=name, hint="give another name")
    old = edit.signature
    edit.graph.signatures[name] = Signature(old.function, list(old.inputs), list(old.outputs))
    for prefix in ("io", "labels"):
        for key, value in list(edit.graph.metadata.items()):
            if key.startswith(f"{prefix}:{signature}:"):
                edit.graph.metadata[f"{prefix}:{name}:" + key.removeprefix(f"{prefix}:{signature}:")] = value
    return edit.graph


def keep_outputs(graph: Graph, outputs: Sequence[str], *, signature: str = "infer") -> Graph:
    """A graph whose signature gives only these outputs, in this order; what served the others alone is gone.
    Raises UsageError for an unknown one, or none at all."""
    edit = Edit(graph, signature)
    if not outputs or isinstance(outputs, str):
        raise UsageError("which outputs are kept?", code=101, expected="a list of names", got=repr(outputs))
    edit.function.outputs = [edit.output(name) for name in outputs]
    for name in set(edit.signature.outputs) - set(outputs):
        edit.graph.metadata.pop(io_key(signature, name), None)
        edit.graph.metadata.pop(labels_key(signature, name), None)
    edit.signature.outputs = list(outputs)
    remove_dead(edit.function)
    return edit.graph


def io_key(signature: str, name: str) -> str:
    """The metadata key under which an input or output is described."""
    return f"io:{signature}:{name}"


def labels_key(signature: str, name: str) -> str:
    """The metadata key of an output's labels, one per line."""
    return f"labels:{signature}:{name}"


def parse_io(text: str) -> tuple[str, dict[str, str]] | None:
    """(kind, {key: value}) of a description; None for an empty one."""
    words = text.split(" ")
    if not words[0]:
        return None
    return words[0], dict(word.split("=", 1) for word in words[1:] if "=" in word)


def check_fits(result: Tensor, old: Tensor, name: str) -> None:
    """UsageError when what the new steps give is not what the model takes."""
    a, b = result.shape, old.shape
    unequal = (isinstance(x, int) and isinstance(y, int) and x != y for x, y in zip(a or (), b or (), strict=False))
    if result.dtype == old.dtype and (a is None or b is None or (len(a) == len(b) and not any(unequal))):
        return
    raise UsageError(
        f"what the steps in front of input {name!r} give is not what the model takes", code=104, tensor=name,
        expected=f"{old.dtype} {_text(b)}", got=f"{result.dtype} {_text(a)}",
    )  # fmt: skip


def _text(shape: tuple[Dim, ...] | None) -> str:
    return "any shape" if shape is None else "[" + ", ".join("?" if d is None else str(d) for d in shape) + "]"


def refresh_shapes(function: Function) -> None:
    """Shapes that are better known now than when the nodes were made. Raises GraphError where operands no longer fit."""
    for node in function.nodes:
        for tensor, shape in zip(node.outputs, _shapes(node), strict=True):
            tensor.shape = _better(tensor.shape, shape)


def _shapes(node: Node) -> list[tuple[Dim, ...] | None]:
    outputs = node.outputs
    if node.op in _ops.CONTROL_FLOW:
        specs = _ops._control_flow(node.op, node.inputs, complete(node.op, node.attributes), len(outputs), node.name)
    else:
        message = encode_node(node.op, node.attributes)
        specs = _ops.infer(
            message, node.inputs, len(outputs), [t.quantization for t in outputs], [t.dtype for t in outputs]
        )
    return [shape for _, shape in specs]


def _better(old: tuple[Dim, ...] | None, new: tuple[Dim, ...] | None) -> tuple[Dim, ...] | None:
    if old is None or new is None or len(old) != len(new):
        return old if new is None else new
    return tuple(a if b is None else b for a, b in zip(old, new, strict=True))


def real(x: Tensor) -> Tensor:
    """The tensor as f32: dequantized when it holds quantized integers."""
    if x.dtype == "f32":
        return x
    if x.quantization is not None:
        return emit("dequantize", [x], {"dtype": "f32"})[0]
    return emit("cast", [x], {"dtype": "f32"})[0]
