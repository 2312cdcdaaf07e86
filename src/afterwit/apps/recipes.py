"""The published recipes: settings that come between the defaults and a person's own."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path

from afterwit.apps.layers import Layer
from afterwit.core.errors import SettingError

FOLDER = Path(__file__).parents[1] / "recipes"


def names() -> tuple[str, ...]:
    """Every recipe's name."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def recipe(name: str) -> Layer:
    """A recipe as a layer of settings. SettingError for a name that is none."""
    if name not in names():
        near = difflib.get_close_matches(name, names(), n=1, cutoff=0.0)[0]
        raise SettingError(
            f"--recipe {name}: there is no such recipe; did you mean {near}? All: {', '.join(names())}"
        )
    text = (FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    return Layer(tree=tomllib.loads(text), name=f"the recipe {name}", style="recipe")
