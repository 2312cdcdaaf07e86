"""A store outside of the home belongs to the versions that were trained with it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from afterwit.core.errors import StoreMismatch, VersionDamaged

if TYPE_CHECKING:
    from afterwit.checkpoints import Versions
    from afterwit.store import Store, VersionRecord


def refuse_another_home(url: str | None, store: Store, versions: Versions) -> None:
    """StoreMismatch if the store knows versions, and none of them is in the folder.

    A learner of this home would take them for lost, and train their turns again; a gateway would never serve
    them. `url` is the setting `store.url`: a store inside the home (None) is its own.
    """
    known = [record for record in store.versions() if record.number > 0]
    if url is None or not known or any(_is_here(record, versions) for record in reversed(known)):
        return
    here = sum(number > 0 for number in versions.of(None).numbers())
    newest = max(known, key=lambda record: record.number)
    made = datetime.fromtimestamp(newest.created, UTC)
    raise StoreMismatch(
        f"store.url is the store of another home: it knows {len(known)} versions, the newest {newest.number} "
        f"of {made:%Y-%m-%d %H:%M} UTC, and none of them is among the {here} in {versions.root}. Share that "
        "home's versions (`versions.url`, or one disk), or name another database in store.url"
    )


def _is_here(record: VersionRecord, versions: Versions) -> bool:
    """A manifest that cannot be read is taken for the right one: whoever needs it says what is wrong."""
    try:
        version = versions.of(None).get(record.number)
    except VersionDamaged:
        return True
    return version is not None and version.created == record.created
