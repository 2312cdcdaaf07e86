"""The settings of a demo: its own, or those of a published recipe with what a tiny model needs."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afterwit import config
from afterwit.config import Settings
from afterwit.demo.world import World
from afterwit.engines.kinds import LAUNCHERS
from afterwit.errors import SettingError

OWN = Path(__file__).with_name("recipe.toml")


REAL_DEFAULTS = Path(__file__).with_name("real-defaults.toml")
"""What a tiny model needs beside `serve`'s own settings."""


ON_A_SERVER = {"learner": {"lora_rank": 16, "lr": 4e-3}}
"""What changes if a server samples: it swaps adapters, and judges with the base beside them. An adapter of
the demo's models takes ten times the rate of their whole weights."""


JUDGES = {"model": "the demo's model itself, frozen", "rules": "rules over the text"}


THE_RECIPES = ("objective.", "judge.votes", "judge.accept", "learner.lora_", "learner.teacher")
"""What a published recipe says in a demo: what is learned, from which votes, taught by whom, in what weights.
The rest is said by the demo, alike for every recipe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A recipe's setting, or a default, that the demo's own replaced."""

    name: str
    published: Any
    here: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A demo's settings, its judge's name, and what a recipe or `serve`'s own settings had to give way in."""

    settings: Settings
    judge: str
    overrides: tuple[Override, ...] = ()


def choose(
    world: World,
    home: Path,
    *,
    judge: str | None = None,
    recipe: str | None = None,
    real_defaults: bool = False,
    pairs: Sequence[str] = (),
    direct: Mapping[str, Any] | None = None,
) -> Chosen:
    """Nothing of this machine's counts. SettingError for what is not there."""
    file = REAL_DEFAULTS if real_defaults else OWN
    own: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    chosen = judge or own["demo"]["judge"]
    del own["demo"]
    if chosen not in JUDGES:
        raise SettingError(f"--judge {chosen}: it must be one of {', '.join(JUDGES)}")
    if (direct or {}).get("engine.kind") in LAUNCHERS and not real_defaults:
        own = {section: values | ON_A_SERVER.get(section, {}) for section, values in own.items()}
    if recipe is not None:
        own = _needed(own)
    fixed = {"model": str(world.folder / "model"), "serve.port": 0} | dict(direct or {})
    settings = config.load(home=home, pairs=pairs, direct=fixed, below=own, recipe=recipe, environment={})
    published = real_defaults or recipe is not None
    overrides = tuple(_overrides(own, recipe, settings)) if published else ()
    return Chosen(settings=settings, judge=chosen, overrides=overrides)


def _needed(own: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The demo's settings without those that are a recipe's."""
    return {
        section: {
            name: value for name, value in values.items() if not f"{section}.{name}".startswith(THE_RECIPES)
        }
        for section, values in own.items()
    }


def _overrides(
    own: Mapping[str, Mapping[str, Any]], recipe: str | None, here: Settings
) -> Iterator[Override]:
    published = config.load(home=Path("/nonexistent"), recipe=recipe, environment={})
    for section, values in own.items():
        for name in values:
            old, new = (getattr(getattr(of, section), name) for of in (published, here))
            if old != new:
                yield Override(name=f"{section}.{name}", published=old, here=new)


def config_text(settings: Settings) -> str:
    """The demo's settings as a home's config.toml, so that other commands read the home as the demo did."""
    held = {name: value for name, value in changed(settings).items() if value is not None}
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in held.items())


def changed(settings: Settings) -> dict[str, Any]:
    """Every setting that differs from its default, by its dotted name; the model and the port apart."""
    found: dict[str, Any] = {}
    for section in Settings.model_fields:
        held = getattr(settings, section)
        if dataclasses.is_dataclass(held) and not isinstance(held, type):
            default, own = getattr(Settings(), section), type(held)()
            found |= {
                f"{section}.{field.name}": value
                for field in dataclasses.fields(held)
                if (value := getattr(held, field.name)) != getattr(own, field.name)
                or value != getattr(default, field.name, value)
            }
    found.pop("serve.port", None)
    return found
