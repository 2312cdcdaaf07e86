"""Whether a folder's weights have the names and shapes of the model's, from its files' headers alone."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from afterwit.checkpoints import STATE
from afterwit.core.errors import EngineError

LONGEST_HEADER = 100 << 20
"""Bytes: the format's own limit."""
Shapes = dict[str, tuple[int, ...]]


def weights_of(folder: Path) -> list[Path]:
    """The safetensors files that hold a model's weights, by name; not the learner's own state."""
    return sorted(path for path in folder.glob("*.safetensors") if path.name != STATE)


def check_same_tensors(folder: Path, base: Path) -> None:
    """EngineError unless the folder holds whole weights that fit the model in `base`.

    A base in PyTorch's own format is not compared: the server then finds what does not fit.
    """
    theirs = shapes_of(folder)
    if not theirs:
        raise EngineError(
            f"{folder} holds no whole weights (*.safetensors): if it holds an adapter, set engine.swap = "
            '"adapters"'
        )
    ours = shapes_of(base)
    wrong = sorted(name for name, shape in theirs.items() if ours.get(name, shape) != shape)
    unknown = sorted(theirs.keys() - ours.keys()) if ours else []
    if wrong or unknown:
        raise EngineError(
            f"The weights in {folder} do not fit the served model: {(wrong or unknown)[:3]} differ."
        )


def shapes_of(folder: Path) -> Shapes:
    """The shape of each tensor of a model's weights, by name. EngineError if a file cannot be read."""
    return {name: shape for path in weights_of(folder) for name, shape in _header(path).items()}


def _header(path: Path) -> Shapes:
    """The format's header: its length in eight bytes, then JSON."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > LONGEST_HEADER:
                raise ValueError(f"a header of {length} bytes")
            found = json.loads(file.read(length))
        return {name: tuple(each["shape"]) for name, each in found.items() if name != "__metadata__"}
    except (OSError, ValueError, struct.error, LookupError, TypeError, AttributeError) as error:
        raise EngineError(f"{path} is not a file of weights: {error}") from error
