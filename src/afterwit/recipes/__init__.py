"""The published recipes: TOML files of settings, which a person's own settings override.

A file in `machines` names a recipe and divides it over GPUs.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any

from afterwit.errors import SettingError

FOLDER = Path(__file__).parent
MACHINES = FOLDER / "machines"


def names() -> tuple[str, ...]:
    """Every recipe's name, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def machines() -> tuple[str, ...]:
    """Every name of a recipe that is divided over a machine's GPUs, sorted."""
    return tuple(sorted(path.stem for path in MACHINES.glob("*.toml")))


def every() -> tuple[str, ...]:
    """All names that `read` takes."""
    return (*names(), *machines())


def read(name: str) -> dict[str, Any]:
    """A recipe's settings by section. SettingError names the nearest recipe if there is none of that name."""
    if name in names():
        return _toml(FOLDER / f"{name}.toml")
    if name in machines():
        divided = _toml(MACHINES / f"{name}.toml")
        below = read(divided.pop("recipe"))
        return below | {section: below.get(section, {}) | own for section, own in divided.items()}
    near = difflib.get_close_matches(name, every(), n=1, cutoff=0.0)[0]
    raise SettingError(
        f"--recipe {name}: there is no such recipe; did you mean {near}? All: {', '.join(every())}"
    )


def _toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))
