"""Functions take few arguments: more of them are the fields of a dataclass, which is passed on whole. Where a function takes
such fields as keywords, the class for type checkers has the same fields."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import linnet
from linnet import nn
from linnet.nn.attention import AttentionFields, AttentionSettings
from linnet.nn.convolution import ConvFields, ConvSettings
from linnet.nn.recurrent import StackFields, StackSettings
from tests.native import ROOT

MOST = 8
PUBLIC = {  # functions whose keywords are what users write
    "ir/user_op.py: UserOp.__init__", "nn/attention.py: transformer_decoder_layer", "nn/normalization.py: batch_norm",
    "preprocess/_audio.py: audio",
    "preprocess/_image.py: image", "preprocess/_results.py: mask", "quantization/debug.py: debug_quantization",
    "quantization/entry.py: quantize",
    "report/report.py: check", "session/session.py: Session.__init__", "sync/contract.py: signatures",
    "sync/ray.py: Job.__init__", "sync/server.py: Server.__init__", "sync/worker.py: Worker.__init__",
    "training/finetune.py: finetune", "training/loop.py: fit",
}  # fmt: skip


def functions(tree: ast.AST, scope: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        inner = scope
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{scope}{node.name}."
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield inner[:-1], node
        yield from functions(node, inner)


def count(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The arguments of a function, without self."""
    given = function.args
    names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def test_only_public_functions_take_many() -> None:
    """A function that comes to take more is given a dataclass. If users write its keywords, it may be listed instead."""
    package = ROOT / "pyruntime" / "linnet"
    found = {
        f"{path.relative_to(package)}: {name}"
        for path in package.rglob("*.py")
        if path.name not in ("generated.py", "ffi.py") and "_generated" not in path.parts
        for name, function in functions(ast.parse(path.read_text()))
        if count(function) > MOST
    }
    assert found == PUBLIC


LAYERS: list[tuple[type, type, list[Callable[..., Any]]]] = [
    (ConvSettings, ConvFields, [nn.conv, nn.conv_transpose, nn.depthwise_conv, nn.separable_conv]),
    (StackSettings, StackFields, [nn.gru, nn.lstm, nn.rnn]),
    (
        AttentionSettings, AttentionFields,
        [
            nn.scaled_dot_product_attention, nn.multi_head_attention, nn.transformer_encoder_layer,
            nn.transformer_decoder_layer,
        ],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "fields", "takers"), LAYERS, ids=lambda value: getattr(value, "__name__", ""))
def test_layers_show_the_fields_that_they_share(kind: type, fields: type, takers: list[Callable[..., Any]]) -> None:
    known = {field.name: (field.type, field.default) for field in dataclasses.fields(kind)}
    assert {name: getattr(hint, "__forward_arg__", hint) for name, hint in fields.__annotations__.items()} == {
        name: kind for name, (kind, _) in known.items()
    }
    for taker in takers:
        parameters = inspect.signature(taker).parameters
        assert {name: (parameters[name].annotation, parameters[name].default) for name in known} == known
        assert not any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def test_a_layer_refuses_a_keyword_that_is_no_field() -> None:
    x = linnet.Graph().placeholder("x", (1, 3, 8, 8))
    with pytest.raises(
        TypeError, match=r"^conv\(\) got an unexpected keyword argument 'strides'. Did you mean stride\?$"
    ):
        nn.conv(x, 4, 3, strides=2)  # type: ignore[call-arg]
    with pytest.raises(linnet.UsageError, match=r"linnet\.nn\.conv: the argument 'channel_axis' is of the wrong kind"):
        nn.conv(x, 4, 3, channel_axis="last")  # type: ignore[arg-type]
