"""The settings of a demo: its own, or those of a published recipe with what a tiny model needs."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

from afterwit import config
from afterwit.config import Settings
from afterwit.demo.world import World
from afterwit.engines.kinds import SERVERS
from afterwit.errors import SettingError

OWN = Path(__file__).with_name("recipe.toml")
ON_A_SERVER = {"learner.lora_rank": 16, "learner.lr": 4e-3}
"""Replaces the demo's own settings if a server samples: it swaps adapters, and judges with the base as well.
An adapter of the demo's models takes ten times the rate of their whole weights."""
JUDGES = {"model": "the demo's model itself, frozen", "rules": "rules over the text"}
FROM_RECIPES = ("objective.", "judge.votes", "judge.accept", "learner.lora_", "learner.teacher")
"""Settings that a published recipe decides in a demo: objective, votes, teacher and weights. All others are
the demo's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A demo's settings and its judge's name."""

    settings: Settings
    judge: str
    overrides: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """The recipe's settings that the demo's own replaced: the published value, and the one here."""


def choose(
    world: World,
    home: Path,
    *,
    judge: str | None = None,
    recipe: str | None = None,
    pairs: Sequence[str] = (),
    direct: Mapping[str, Any] | None = None,
    own: Path = OWN,
) -> Chosen:
    """The settings of a demo, with those of the file `own` below all others.

    Configuration files and environment variables of this machine do not count. SettingError for an unknown
    choice.
    """
    sections = tomllib.loads(own.read_text(encoding="utf-8"))
    below = {f"{section}.{name}": value for section in sections for name, value in sections[section].items()}
    own_judge = below.pop("demo.judge")
    if (chosen := judge or own_judge) not in JUDGES:
        raise SettingError(f"--judge {chosen}: it must be one of {', '.join(JUDGES)}")
    if (direct or {}).get("engine.kind") in SERVERS:
        below |= ON_A_SERVER
    if recipe is not None:
        below = {name: value for name, value in below.items() if not name.startswith(FROM_RECIPES)}
    tree: dict[str, dict[str, Any]] = {}
    for section, name, value in ((*key.split("."), value) for key, value in below.items()):
        tree.setdefault(section, {})[name] = value
    fixed = {"model": str(world.folder / "model"), "serve.port": 0} | dict(direct or {})
    settings = config.load(home=home, pairs=pairs, direct=fixed, below=tree, recipe=recipe, environment={})
    overrides = {}
    if recipe is not None:
        published = config.load(home=Path("/nonexistent"), recipe=recipe, environment={})
        both = {name: (attrgetter(name)(published), attrgetter(name)(settings)) for name in below}
        overrides = {name: (old, new) for name, (old, new) in both.items() if old != new}
    return Chosen(settings=settings, judge=chosen, overrides=overrides)


def changed(settings: Settings) -> dict[str, Any]:
    """Every setting that differs from its default, by its dotted name, without the model and the port."""
    found: dict[str, Any] = {}
    for section in Settings.model_fields:
        held = getattr(settings, section)
        if dataclasses.is_dataclass(held) and not isinstance(held, type):
            default, own = getattr(Settings(), section), type(held)()
            for each in dataclasses.fields(held):
                value = getattr(held, each.name)
                if value != getattr(own, each.name) or value != getattr(default, each.name, value):
                    found[f"{section}.{each.name}"] = value
    found.pop("serve.port", None)
    return found
