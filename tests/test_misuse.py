"""Every public function and class of linnet, called with the wrong kind of thing in each of its arguments in turn, works or
raises linnet.Error. Python's own exceptions say nothing about which argument was wrong."""

from __future__ import annotations

import importlib
import inspect
import pickle
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet.clib import arguments

NAMES: dict[str, list[str]] = tomllib.loads((Path(__file__).parent / "public_names.toml").read_text())
WAITING = ("linnet.sync.Ring", "linnet.sync.RingTrainer", "linnet.sync.Worker")  # these wait for a server that answers


def wrong_values() -> list[Any]:
    array = np.array([None, "a"], object)
    return [None, -5, 0, 1.5, "no/such.lnt", Path("no/such"), b"xy", [], {}, ["a", None], array, object()]


class Things:
    """A small graph with its tensors: what a right argument is."""

    def __init__(self) -> None:
        self.graph = linnet.Graph()
        self.x = self.graph.placeholder("x", (None, 4))
        self.labels = self.graph.placeholder("t", (None,), "i32")
        self.w = self.graph.variable("w", np.ones((4, 3), np.float32))
        self.y = self.x @ self.w
        self.graph.signature("infer", {"x": self.x}, {"y": self.y})

    def right(self, parameter: inspect.Parameter) -> Any:
        """A value that fits the annotation of a required parameter."""
        by_name: dict[str, Any] = {
            "model": self.graph, "labels": self.labels, "target": self.labels, "targets": self.labels, "shape": (4, 3),
            "dtype": "f32", "path": "nothing", "folder": "nothing", "root": "nothing", "output": "y", "signature": "infer",
        }  # fmt: skip
        by_kind: dict[str, Any] = {
            "Graph": self.graph, "G": self.graph, "Function": self.x.function, "Variable": self.w, "int": 2, "float": 0.5,
            "Rate": 0.5, "str": "x", "tuple[int, int]": (2, 2), "Sequence[int]": [0, 1], "Sequence[float]": [0.5, 0.5],
            "Sequence[Operators]": [self.y, self.y], "Mapping": {}, "Callable": lambda *given: given[0],
        }  # fmt: skip
        text = str(parameter.annotation)
        for key, value in sorted(by_kind.items(), key=lambda item: -len(item[0])):
            if text == key or text.startswith((f"{key}[", f"{key} |")):
                return by_name.get(parameter.name, value)
        return by_name.get(parameter.name, self.y)


def calls(function: Callable[..., Any], things: Things) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """(name of the wrong argument, positional and keyword arguments), for every argument and wrong value."""
    every = inspect.signature(function).parameters.values()
    parameters = [p for p in every if p.kind is not p.VAR_KEYWORD]
    for wrong in parameters:
        for value in [*wrong_values(), things.graph, things.y]:
            args: list[Any] = []
            kwargs: dict[str, Any] = {}
            for p in parameters:
                given = value if p is wrong else things.right(p) if p.default is p.empty else p.default
                if p.kind is p.KEYWORD_ONLY:
                    kwargs[p.name] = given
                elif p.kind is not p.VAR_POSITIONAL or p is wrong:
                    args.append(given)
            yield wrong.name, args, kwargs


def raw_exceptions(function: Callable[..., Any], things: Things) -> list[str]:
    """What calls with a wrong argument raise besides linnet.Error."""
    found = []
    for name, args, kwargs in calls(function, things):
        try:
            function(*args, **kwargs)
        except linnet.Error:
            pass
        except Exception as error:
            found.append(f"{name}: {type(error).__name__}: {error}")
    return found


def is_public(value: Any) -> bool:
    exempt = inspect.isclass(value) and (issubclass(value, Exception) or getattr(value, "_is_protocol", False))
    return (inspect.isfunction(value) or inspect.isclass(value)) and not exempt


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("module", NAMES)
def test_functions_and_classes(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    package = importlib.import_module(module)
    found: dict[str, list[str]] = {}
    tried = 0
    for name in NAMES[module]:
        value = getattr(package, name)
        if (
            is_public(value)
            and f"{module}.{name}" not in WAITING
            and not (module != "linnet" and hasattr(linnet, name))
        ):
            tried += 1
            if raw := raw_exceptions(value, Things()):
                found[name] = raw
    assert not found
    assert tried or all(hasattr(linnet, name) or not is_public(getattr(package, name)) for name in NAMES[module])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["Graph", "Tensor", "Session", "Model", "Store"])
def test_methods(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    things = Things()
    model = linnet.Model(things.graph)
    owners = {
        "Graph": things.graph, "Tensor": things.y, "Session": linnet.Session(model), "Model": model,
        "Store": linnet.Store(model),
    }  # fmt: skip
    names = [n for n, member in inspect.getmembers(getattr(linnet, kind)) if callable(member) and not n.startswith("_")]
    found = {name: raw for name in names if (raw := raw_exceptions(getattr(owners[kind], name), things))}
    assert not found
    assert len(names) > 1


@pytest.mark.parametrize("kind", WAITING)
def test_what_waits_for_a_server_rejects_a_wrong_model_before(kind: str) -> None:
    make = getattr(linnet.sync, kind.rpartition(".")[2])
    for value in wrong_values():
        with pytest.raises(linnet.Error):
            make(value, *[None] * (2 if kind.endswith("Ring") else 1))


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x + object(), lambda x: "a" * x, lambda x: x @ None, lambda x: x["a"], lambda x: x[1.5],
        lambda x: x[:, [1]], lambda x: x.reshape(None), lambda x: x.equal("a"), lambda x: x**"a", lambda x: x > b"xy",
    ],
)  # fmt: skip
def test_operators(operation: Callable[[Any], Any]) -> None:
    with pytest.raises(linnet.Error):
        operation(Things().x)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: linnet.quantize("m.onnx"), "linnet.quantize: the argument 'graph'.*a linnet.Graph, got 'm.onnx'; open"),
        (linnet.load_checkpoint, "linnet.load_checkpoint: the argument 'path'.*a path, got a Graph; save"),
        (lambda g: linnet.Session(g, max_bytes=-5), "'max_bytes' is out of range; expected 0 or more, got -5"),
        (lambda g: linnet.Session(g, fetches=3), "linnet.Session: the argument 'fetches'.*got 3"),
        (lambda g: linnet.Session(g, input_shapes={"x": [-1, 4]}), r"negative; expected 0 or more, got \[-1, 4\]"),
        (lambda g: linnet.Session(g).run({"x": np.ones((1, 4), np.float32)}, [3]), "fetches has the wrong type"),
        (lambda g: linnet.EarlyStopping(patience="x"), "linnet.EarlyStopping: the argument 'patience'.*integer, got 'x'"),
        (lambda g: linnet.Saver(keep=2.5), "linnet.Saver: the argument 'keep'.*got 2.5"),
        (lambda g: linnet.data.Loader([1]), r"linnet.data.Loader: the argument 'source'.*a source \(an object .*\), got \[1\]"),
        (lambda g: linnet.schedules.cosine("x", 3), "linnet.schedules.cosine: the argument 'rate'.*a number, got 'x'"),
        (lambda g: g.placeholder("q", (-4,)), r"a dimension is negative.*got \[-4\]"),
        (lambda g: g.signature("s", [], {}), "the inputs of signature 's' are not a dictionary"),
        (lambda g: linnet.sync.shard("no/such.lnt", 2), "not_found: cannot read the model.*no/such.lnt"),
    ],
)  # fmt: skip
def test_the_argument_is_named(call: Callable[[linnet.Graph], Any], message: str) -> None:
    with pytest.raises(linnet.Error, match=message):
        call(Things().graph)


def test_the_outermost_function_blames_its_own_argument() -> None:
    def inner(size: int) -> int:
        return size + 1

    def outer(width: int) -> Any:
        return made(width)

    made = arguments.checked(inner, "linnet.inner")
    with pytest.raises(linnet.UsageError, match=r"linnet.outer: the argument 'width'.*an integer, got 'a'"):
        arguments.checked(outer, "linnet.outer")("a")


@pytest.fixture
def annotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """A function whose only argument has this annotation, checked, in a module that imports some names for types alone."""

    def make(annotation: str) -> Any:
        text = (
            "from __future__ import annotations\nfrom typing import TYPE_CHECKING, Any, Literal\n"
            "if TYPE_CHECKING:\n    from pathlib import Path\n    import absent\n    import numpy.typing as npt\n"
            "    from absent import Thing\n    from collections.abc import Callable, Mapping, Sequence\n"
            f"def f(x: {annotation}) -> None:\n    raise ValueError('mine')\n"
        )
        name = f"annotated_{abs(hash(annotation))}"
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        return arguments.checked(importlib.import_module(name).f, f"{name}.f")

    return make


@pytest.mark.parametrize(
    ("annotation", "right", "wrong"),
    [
        ("int | None", None, "a"),
        ("Sequence[int]", [1, 2], [1, "a"]),
        ("Mapping[str, tuple[int, ...]]", {"a": (1, 2)}, {"a": (1, "b")}),
        ("Literal['same', 3]", "same", "other"),
        ("Callable[[int], str] | Path", Path("a"), 3),
        ("npt.NDArray[Any]", np.ones(1), [1.0]),
        ("Thing | int", 1, object()),
        ("absent.Thing | None", None, 1),
    ],
)
def test_annotations_are_read(annotated: Callable[[str], Any], annotation: str, right: Any, wrong: Any) -> None:
    """Names that a module imports for type checking count; a class that nobody has imported has no values."""
    function = annotated(annotation)
    with pytest.raises(ValueError, match="mine"):
        function(right)
    with pytest.raises(linnet.UsageError, match="the argument 'x' is of the wrong kind"):
        function(wrong)


@pytest.mark.parametrize("annotation", ["[].append(1)", "int if True else str", "unknown", "Thing(3)", "3 + 4"])
def test_other_expressions_are_not_computed(annotated: Callable[[str], Any], annotation: str) -> None:
    """What is no type says nothing, and is never evaluated."""
    with pytest.raises(ValueError, match="mine"):
        annotated(annotation)(object())


def test_exceptions_of_the_callers_own_functions_stay_as_they_are() -> None:
    def broken(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        linnet.pointwise([Things().x], broken)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        linnet.ops.concat([])


def test_wrapped_functions_can_be_pickled() -> None:
    for function in (linnet.nn.dense, linnet.ops.concat, linnet.fit, linnet.losses.mse, linnet.from_onnx):
        assert pickle.loads(pickle.dumps(function)) is function
