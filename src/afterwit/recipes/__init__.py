"""The published recipes: TOML files of settings that lie below a person's own."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any

from afterwit.core.errors import SettingError

FOLDER = Path(__file__).parent


def names() -> tuple[str, ...]:
    """Every recipe's name, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def read(name: str) -> dict[str, Any]:
    """A recipe's settings by section. SettingError names the nearest recipe if there is none of that name."""
    if name not in names():
        near = difflib.get_close_matches(name, names(), n=1, cutoff=0.0)[0]
        raise SettingError(
            f"--recipe {name}: there is no such recipe; did you mean {near}? All: {', '.join(names())}"
        )
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
