"""An adapter's folder again, in which it is taken several times: PEFT's format has the factor in its JSON."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from afterwit.core.errors import EngineError

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@contextmanager
def amplified(folder: Path, name: str, times: float) -> Iterator[Path]:
    """A folder beside the adapter's, where the server reads too; it is gone afterwards.

    EngineError if it cannot be made.
    """
    place = folder.parent / f".{name}"
    try:
        try:
            config = json.loads((folder / CONFIG).read_text())
            place.mkdir(mode=0o700)
            (place / CONFIG).write_text(json.dumps({**config, "lora_alpha": times * config["lora_alpha"]}))
            _same(folder / WEIGHTS, place / WEIGHTS)
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise EngineError(f"the adapter in {folder} cannot be copied for a probe: {error}") from error
        yield place
    finally:
        with suppress(OSError):
            shutil.rmtree(place)


def _same(path: Path, copy: Path) -> None:
    """A hard link, or a copy if the disk has none."""
    try:
        os.link(path.resolve(), copy)
    except OSError:
        shutil.copyfile(path, copy)
