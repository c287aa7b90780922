"""Settings of the docs site. docs/site/build.py lays the pages out and runs Sphinx with this file."""

from __future__ import annotations

import inspect
import os
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from docstrings import as_rst

import linnet

ROOT = Path(os.environ["LINNET_DOCS_ROOT"])
project = "linnet"
author = "the linnet authors"
copyright = author
version = release = linnet.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "breathe", "sphinx_copybutton"]
root_doc = "index"
exclude_patterns = ["_files"]

myst_enable_extensions: list[str] = []
myst_heading_anchors = 4  # the anchors that GitHub gives to headings
myst_fence_as_directive: list[str] = []
suppress_warnings = ["myst.header", "misc.highlighting_failure"]

autosummary_generate = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": False}
autodoc_mock_imports = ["flwr", "ray"]
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
c_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"

breathe_projects = {"linnet": os.environ["LINNET_DOCS_XML"]}
breathe_default_project = "linnet"
breathe_domain_by_extension = {"h": "c"}
breathe_show_include = False
breathe_show_define_initializer = True
breathe_show_enumvalue_initializer = True

html_theme = "furo"
html_title = f"linnet {version}"
html_static_path = [str(Path(__file__).parent / "static")]
html_css_files = ["linnet.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "monokai"
copybutton_exclude = ".linenos, .gp, .go"


def _docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = as_rst(lines)


class _Written(str):
    """An annotation as the source has it."""

    def __repr__(self) -> str:
        return str(self)


def _signature(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """The signature with the names of types that the source has, and not what they stand for."""
    try:
        found = inspect.signature(obj)
    except (TypeError, ValueError):
        return signature, returns
    parameters = list(found.parameters.values())
    if what == "method" and parameters and parameters[0].name == "self":
        parameters = parameters[1:]
    parameters = [
        one.replace(annotation=_Written(one.annotation)) if isinstance(one.annotation, str) else one
        for one in parameters
    ]
    text = str(found.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    text = re.sub(r"<(?:function|class|object) ?'?([\w.]*)[^<>]*>", r"\1", text)
    given = found.return_annotation
    constructs = what in ("class", "exception") or given in (inspect.Signature.empty, None, "None")
    return text, None if constructs else given if isinstance(given, str) else returns


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", _docstring)
    app.connect("autodoc-process-signature", _signature)
