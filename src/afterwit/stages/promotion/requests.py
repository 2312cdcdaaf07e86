"""What people asked for, as progress counts it, from the episodes that the store keeps. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from afterwit.core.progress import Request
from afterwit.core.promotion import BadEnd
from afterwit.store import EndedEpisode

UNKNOWN = "before kinds were kept"


def requests_of(episodes: Iterable[EndedEpisode]) -> list[Request]:
    """The requests that a person's words ended: an agent that never came back heard none."""
    return [
        Request(
            session=each.session,
            source=each.source,
            kind=each.kind or UNKNOWN,
            complaint=each.complaint,
            at=each.at,
        )
        for each in episodes
        if each.bad is not BadEnd.NO_END
    ]
