"""Forgetting sessions: what people order, and what is deleted."""

from __future__ import annotations

from typing import Protocol

from afterwit.store.records import ForgetOrder


class Forgetting(Protocol):
    """An order holds until it is carried out, across restarts. `commit_version` of a version that forgets
    sessions carries theirs out."""

    def order_forgetting(self, session: str, *, replay: bool, now: float) -> None:
        """Have the learner forget a session. Ordered again, the newest order counts, and an error is over."""
        ...

    def forget_orders(self) -> list[ForgetOrder]:
        """The orders that are not carried out yet, oldest first."""
        ...

    def forgetting_failed(self, session: str, error: str) -> None:
        """Why an order cannot be carried out; it is not tried again until it is ordered again."""
        ...

    def cancel_forgetting(self, session: str) -> None:
        """Take an order back, if there is one."""
        ...

    def sessions_of(self, adapter: str) -> tuple[str, ...]:
        """The sessions in which an adapter answered, those that were forgotten left out."""
        ...

    def turn_ids(self, session: str) -> tuple[str, ...]:
        """The ids of all turns of a session, those whose content is gone among them."""
        ...

    def forget(self, session: str, *, now: float) -> int:
        """Delete what was said in a session and about it: content, next states, feedback, verdicts, votes,
        effects, episodes, and what its turns gave to the suite. Its turns end as `forgotten`.

        Returns how many had content. What was deleted cannot be read back from the store's files, as after
        `prune`.
        """
        ...
