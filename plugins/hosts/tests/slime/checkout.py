"""The checkout of slime that SLIME_CHECKOUT names, whose own tests and loss run the plugin."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

VARIABLE = "SLIME_CHECKOUT"
NEEDS = ("megatron.core", "ray")


def require_checkout() -> Path:
    """The checkout, from which slime can be imported then. Skips the calling test with what is missing."""
    name = os.environ.get(VARIABLE)
    if not name:
        pytest.skip(f"{VARIABLE} names no checkout of slime, which is in no registry")
    for module in NEEDS:
        package = module.partition(".")[0]
        if find_spec(package) is None:
            pytest.skip(f"slime's own code needs {package} in this environment")
    if name not in sys.path:
        sys.path.insert(0, name)
    return Path(name)
