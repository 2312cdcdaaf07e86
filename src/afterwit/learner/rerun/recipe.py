"""What an update read, written down so that it can be run again, and read back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass, replace
from typing import Any, TypeVar, get_type_hints

from afterwit.core.errors import NotRepeatable
from afterwit.core.judging import Placement
from afterwit.core.version import Recipe
from afterwit.learner.batch import Item
from afterwit.learner.settings import LearnerSettings
from afterwit.objective.settings import ObjectiveSettings

DIGEST_BYTES = 16
Settings = TypeVar("Settings")


def recipe_of(
    items: Sequence[Item],
    objective: ObjectiveSettings,
    settings: LearnerSettings,
    placement: Placement,
    *,
    anew: bool,
) -> Recipe | None:
    """The recipe of an update; None if it learned from anything that is no turn of the store. `anew`: its
    optimiser began with it."""
    turns = {item.turn: item for item in items if item.turn is not None}
    if len(turns) != len(items):
        return None
    return Recipe(
        learner=asdict(settings),
        objective=asdict(objective),
        placement=placement.value,
        anew=anew,
        digests={turn: digest(item) for turn, item in turns.items()},
        groups={turn: item.group for turn, item in turns.items() if item.group},
    )


def digest(item: Item) -> str:
    """BLAKE2b of everything that an update reads of an item."""
    return hashlib.blake2b(repr(replace(item, hints=())).encode(), digest_size=DIGEST_BYTES).hexdigest()


def settings_of(recipe: Recipe) -> tuple[LearnerSettings, ObjectiveSettings, Placement]:
    """The settings of an update. NotRepeatable if they are not those that this Afterwit knows."""
    if recipe.learner.get("lr") is None:
        raise NotRepeatable("its step size was not kept")
    try:
        return (
            _read(LearnerSettings, recipe.learner),
            _read(ObjectiveSettings, recipe.objective),
            Placement(recipe.placement),
        )
    except (TypeError, ValueError) as error:
        raise NotRepeatable(f"its settings are those of another version of Afterwit ({error})") from error


def _read(kind: type[Settings], data: Mapping[str, Any]) -> Settings:
    hints = get_type_hints(kind)
    return kind(**{name: _value(hints.get(name), value) for name, value in data.items()})


def _value(kind: Any, value: Any) -> Any:
    if isinstance(value, dict) and isinstance(kind, type) and is_dataclass(kind):
        return _read(kind, value)
    return tuple(value) if isinstance(value, list) else value
