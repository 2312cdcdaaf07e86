"""Models whose files were loaded before are built from memory: transformers takes forty times as long to
build a tiny one. Tests load few models, each often."""

from __future__ import annotations

import copy
import hashlib
import io
import pickle
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

LARGEST = 4 * 2**20
"""Bytes of a folder's files: a larger model is loaded as usual, so that no copy stays in memory."""
UNREAD = {"config", "_name_or_path"}
"""Arguments that do not count: the configuration's own fields do, but for the folder's name."""


def load_once() -> None:
    """`AutoModelForCausalLM.from_pretrained` reads the same files once; each call gets a model of its own."""
    AutoModelForCausalLM.from_pretrained = staticmethod(copied(AutoModelForCausalLM.from_pretrained))


def copied(load: Callable[..., Any]) -> Callable[..., Any]:
    kept: dict[str, Kept] = {}

    @wraps(load)
    def loaded(pretrained_model_name_or_path: Any, **given: Any) -> Any:
        folder = Path(pretrained_model_name_or_path)
        if (named := name_of(folder, given)) is None:
            return load(pretrained_model_name_or_path, **given)
        if named not in kept:
            first = load(pretrained_model_name_or_path, **given)
            kept[named] = Kept(first)  # the first one may read its weights from the files
            return first
        found = kept[named].copied()
        model = found[0] if isinstance(found, tuple) else found
        model.name_or_path = model.config._name_or_path = str(folder)
        return found

    return loaded


class Kept:
    """Pickles a loaded model without its tensors: a copy takes a sixth of the time of a deep copy."""

    def __init__(self, loaded: Any) -> None:
        written, tensors = io.BytesIO(), list[torch.Tensor]()
        places: dict[int, int] = {}

        class Pickler(pickle.Pickler):
            def persistent_id(self, found: Any) -> int | None:
                if not isinstance(found, torch.Tensor):
                    return None
                if id(found) not in places:
                    places[id(found)] = len(tensors)
                    tensors.append(found)
                return places[id(found)]

        Pickler(written, protocol=pickle.HIGHEST_PROTOCOL).dump(loaded)
        self._rest, self._tensors = written.getvalue(), copy.deepcopy(tensors)

    def copied(self) -> Any:
        tensors = copy.deepcopy(self._tensors)

        class Unpickler(pickle.Unpickler):
            def persistent_load(self, place: int) -> torch.Tensor:
                return tensors[place]

        return Unpickler(io.BytesIO(self._rest)).load()


def name_of(folder: Path, given: dict[str, Any]) -> str | None:
    """The same for the same files and the same wishes. None: the folder is none, too large, or of GGUF."""
    files = sorted(path for path in folder.glob("*") if path.suffix in (".json", ".safetensors", ".bin"))
    if not files or "gguf_file" in given or sum(path.stat().st_size for path in files) > LARGEST:
        return None
    held = hashlib.sha256()
    for path in files:
        held.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    config = vars(given["config"]) if "config" in given else {}
    read = [sorted((name, repr(of[name])) for name in of.keys() - UNREAD) for of in (given, config)]
    return f"{held.hexdigest()} {read}"
