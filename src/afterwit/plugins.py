"""Parts that other packages add by entry points, found by group and name.

A package declares a part in its own pyproject.toml, for example

    [project.entry-points."afterwit.commands"]
    mine = "my_package.command:app"

and it is there as soon as the package is installed. `docs/extend.md` shows each group with an example.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from afterwit.errors import SettingError

if TYPE_CHECKING:
    from afterwit.config import Settings
    from afterwit.learning.trainer import Trainer
    from afterwit.store import Store

COMMANDS = "afterwit.commands"
"""`typer.Typer` groups: `afterwit NAME ...`. `--help` loads them: commands import inside."""
SECTIONS = "afterwit.settings"
"""Frozen data classes: the section `[NAME]` of config.toml."""
BATCHES = "afterwit.batches"
"""`BatchSource`s: `afterwit train --from NAME`."""

T = TypeVar("T")


class BatchSource(Protocol):
    """Batches that come from elsewhere than the home's store."""

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Settings by section, below all that a user sets."""

    def run(
        self,
        settings: Settings,
        store: Store,
        trainer: Trainer,
        *,
        steps: int | None,
        stop: Callable[[], bool],
        rest: Callable[[float], object],
        committed: Callable[[Store], object],
    ) -> None:
        """Train until `stop()`, or for `steps` updates; `rest(seconds)` waits and wakes at a stop.

        Call `committed` with the store after each commit of a version.
        """


@cache
def installed(group: str) -> Mapping[str, EntryPoint]:
    """The parts of a group by name, not loaded, in the order of their names."""
    return {each.name: each for each in sorted(entry_points(group=group))}


def load(group: str, name: str) -> Any:
    """One part. Raises SettingError if there is none of that name, or if its package cannot be imported."""
    found = installed(group).get(name)
    if found is None:
        near = difflib.get_close_matches(name, installed(group), n=1)
        known = f"did you mean {near[0]}?" if near else f"installed: {', '.join(installed(group)) or 'none'}"
        raise SettingError(f"no installed package provides {name} ({group}); {known}")
    return loaded(found)


def loaded(part: EntryPoint) -> Any:
    """The object that an entry point names. Raises SettingError if it cannot be imported."""
    try:
        return part.load()
    except (ImportError, AttributeError) as error:
        package = part.dist.name if part.dist is not None else part.module
        raise SettingError(
            f"{package} provides {part.name} ({part.group}) but fails to load: {error}"
        ) from error
