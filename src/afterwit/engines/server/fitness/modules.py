"""The linear layers that an adapter may move, by the names that the server's flag takes."""

from __future__ import annotations

import re
from pathlib import Path

from afterwit.engines.server.swaps.tensors import shapes_of

ALL = ("all",)
FLAG = "--lora-target-modules"
"""Of both kinds of server."""
PROJECTION = re.compile(r"^(?!.*(?:vision|visual)).*\.(\w+_proj(?:_[a-z]+)?)\.weight$")
"""A linear layer of no image tower; experts that lie in one tensor are called likewise, without `.weight`."""


def restriction_of(folder: Path) -> tuple[str, ...]:
    """The flag and its values; () if the names are not known."""
    modules = adapted_modules(folder)
    return () if modules == ALL else (FLAG, *modules)


def adapted_modules(folder: Path) -> tuple[str, ...]:
    """Such as q_proj, down_proj and in_proj_qkv: the last part of the names of the model's projections.

    ("all",) if its weights are in no safetensors files or are called otherwise.
    """
    found = (PROJECTION.search(name) for name in shapes_of(folder))
    return tuple(sorted({match[1] for match in found if match})) or ALL
