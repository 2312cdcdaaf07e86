"""Weight versions, and the turns that each was trained on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from afterwit.core.adapters import SHARED
from afterwit.core.version import Version
from afterwit.store.records import Committed, LearnedTurn, Reconciled, VersionRecord


class Lineage(Protocol):
    """The manifests in the checkpoint folder are the truth; the store follows them.

    Committing is idempotent: after a crash between a manifest's rename and its commit, it is repeated.
    """

    def leading(self) -> AbstractContextManager[None]:
        """While the body runs, no other process learns over the store, whichever home it has. Raises
        AlreadyRunning if one does."""
        ...

    def commit_version(self, version: Version, *, now: float) -> Committed:
        """Take over a manifest: its new turns become TRAINED, and those of versions that it brings back; the
        turns of versions it reverts end. What a later one, which is known already, reverts stays so.

        Raises StoreError if the number is known with other turns.
        """
        ...

    def reconcile(self, manifests: Sequence[Version], *, now: float, error: str | None = None) -> Reconciled:
        """Make the store agree with every manifest of the checkpoint folder. Called when a learner starts.

        Manifests it does not know are committed. A version that is neither among them nor an ancestor of one,
        or that names other turns than its manifest, is lost: its turns go back to JUDGED (to ANSWERED if
        something was said since), and turns that a lost rollback reverted are TRAINED again. Leases of an
        earlier learner are freed; an `error` says what it died of, and counts as a failed attempt.
        """
        ...

    def published(self, number: int, *, now: float) -> None:
        """The engine serves this version. Raises StoreError for a version that is not committed."""
        ...

    def latest_published(self, adapter: str = SHARED) -> int:
        """The adapter's newest version that was ever served; 0, the base, if none was."""
        ...

    def learned(
        self, *, version: int | None = None, turns: Collection[str] | None = None
    ) -> list[LearnedTurn]:
        """What was trained on, by version: of one version, or of these turns in any version. Turns whose
        content is gone are among them."""
        ...

    def versions(self, adapter: str | None = None) -> list[VersionRecord]:
        """All versions that are not lost, oldest first; the base and an adapter's alone, if it is named."""
        ...
