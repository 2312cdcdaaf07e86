"""The linear layers that an adapter may move, by the names that the server's flag takes."""

from __future__ import annotations

from pathlib import Path

from afterwit.engines.server.swaps.tensors import shapes_of

ALL = ("all",)
FLAG = "--lora-target-modules"
"""Of both kinds of server."""


def restriction_of(folder: Path) -> tuple[str, ...]:
    """The flag and its values; () if the names are not known."""
    modules = adapted_modules(folder)
    return () if modules == ALL else (FLAG, *modules)


def adapted_modules(folder: Path) -> tuple[str, ...]:
    """Such as q_proj and down_proj: the last part of the names of the model's projections.

    ("all",) if its weights are in no safetensors files or are called otherwise.
    """
    names = {name.removesuffix(".weight").rpartition(".")[2] for name in shapes_of(folder)}
    return tuple(sorted(name for name in names if name.endswith("_proj"))) or ALL
