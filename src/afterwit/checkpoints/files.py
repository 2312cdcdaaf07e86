"""What the files of a version are, by their names."""

from __future__ import annotations

from pathlib import Path

MODEL = "model.safetensors"
STATE = "learner.safetensors"
"""The optimiser's state, the fp32 weights if the version's are rounded, and the mean of an EMA teacher."""
WEIGHTS = (".safetensors", ".bin")
"""Suffixes of files that hold weights, whole or an adapter's."""
SHARD = ".distcp"
"""Suffix of a part of the state that one process of the learner wrote."""
INDEX = "learner.index"
"""The file that says what is in the parts: written last, read first."""


def is_state(name: str) -> bool:
    """Whether only a learner reads it, to go on from the version."""
    return name in (STATE, INDEX) or name.endswith(SHARD)


def is_weights(name: str) -> bool:
    """Whether it holds what an engine serves."""
    return Path(name).suffix in WEIGHTS and name != STATE


def is_learned(name: str) -> bool:
    """Whether what was learned is in it."""
    return is_weights(name) or is_state(name)
