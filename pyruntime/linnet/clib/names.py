"""The C library's messages name its structs and functions. This module replaces them with their names in Python. The name of
a keyword argument is written with "=" at its end. The command line turns these names into its options (linnet.cli.words)."""

from __future__ import annotations

import re
from typing import Final

_FIELD = re.compile(r"\blinnet_[a-z_]+_config\.([a-z_]+)")
# Names in C, and their names in Python. Longer texts come first, so that no text is replaced in part.
OTHER: Final[dict[str, str]] = {
    "linnet_plan_config.reference = 2 requires": "bounds= requires",
    "linnet_plan_config.shapes": "input_shapes=",
    "plan is made with linnet_plan_config.separate_outputs": "run writes to out=",
    "give linnet_plan_info.activations + scratch bytes": "Session.memory has the sizes: activations + scratch",
    "initialize linnet_plan_config with linnet_plan_config_init": "give a value within the limits",
    "linnet_plan_get_info reports": "`linnet plan` reports",
    "linnet_model_get_variable lists": "Model.variables lists",
    "linnet_store_write": "store[name] = value",
    "linnet_store_load": "Store.load",
    "linnet_store_save": "Store.save",
    "linnet_session_get_output gives": "Session.outputs gives",
    "linnet_session_set": "Session.run",
    "linnet_session_bind_device": "Session.bind",
}


def python_names(text: str) -> str:
    """A message of the C library with Python's names in place of C's."""
    if "linnet_" not in text:
        return text
    for c, python in OTHER.items():
        text = text.replace(c, python)
    return _FIELD.sub(r"\1=", text)
