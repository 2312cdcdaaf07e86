"""A model's shape by its name, from its configuration alone: nothing large is downloaded."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afterwit.apps.home import remembered_model
from afterwit.apps.model import TAKES, downloaded, looks_like_a_path, refuse_other_kinds
from afterwit.apps.planning.memory import WIDTHS
from afterwit.core.errors import SettingError
from afterwit.core.model_shape import ModelShape
from afterwit.engines.server.swaps.tensors import shapes_of, weights_of

APART = 0.02
"""How far the files' number of weights may be from the counted one: norms and biases are not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model by name. `folder` holds its configuration; its weights only if `here`."""

    name: str
    folder: Path
    shape: ModelShape
    dtype: str
    """Of its weights, as its configuration says."""

    @property
    def here(self) -> bool:
        """Whether its weights are in the folder."""
        return bool(weights_of(self.folder))


def model_of(name: str | None, home: Path) -> Model:
    """The model of a folder or hub id, or the one that the home was made with.

    SettingError if there is none, or if it is of a kind that is not counted.
    """
    name = name or remembered_model(home)
    if name is None:
        raise SettingError(f"no model: {TAKES}")
    refuse_other_kinds(name)
    folder = Path(name).expanduser()
    if not folder.exists() and looks_like_a_path(name):
        raise SettingError(f"there is no model at {folder}")
    config = (folder if folder.exists() else downloaded(name, ["config.json"])) / "config.json"
    read = _read(config)
    try:
        shape = ModelShape.of(read)
    except ValueError as error:
        raise SettingError(f"the memory of {name} cannot be counted from {config}: {error}") from error
    dtype = str(read.get("dtype") or read.get("torch_dtype") or "float32").removeprefix("torch.")
    if dtype not in WIDTHS:
        raise SettingError(
            f"the memory of {name} cannot be counted: its dtype is {dtype}, none of {[*WIDTHS]}"
        )
    model = Model(name=name, folder=config.parent, shape=shape, dtype=dtype)
    _require_alike(model)
    return model


def _read(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        return {**config, **(config.get("text_config") or {})}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise SettingError(f"{path} cannot be read: {error}; {TAKES}") from error


def _require_alike(model: Model) -> None:
    """SettingError if the files hold another number of weights than counted: it is another kind of model."""
    shapes = shapes_of(model.folder)
    if model.shape.tied:
        shapes.pop("lm_head.weight", None)
    there = sum(math.prod(shape) for shape in shapes.values())
    if shapes and abs(there - model.shape.weights) > APART * there:
        raise SettingError(
            f"the memory of {model.name} cannot be counted: its files hold {there:,} weights, but a dense "
            f"decoder with its config.json has {model.shape.weights:,}"
        )
