"""When an update starts, and when a batch that failed is tried again. Pure."""

from __future__ import annotations

from afterwit.learner.settings import LearnerSettings

LONGEST_RETRY_S = 3600.0


def due(settings: LearnerSettings, *, ready: int, waited_s: float, patience_s: float) -> bool:
    """Whether so many judged turns, the oldest of them waiting for so long, make an update."""
    return ready >= settings.batch or (ready >= settings.min_batch and waited_s >= patience_s)


def retry_in(settings: LearnerSettings, attempts: int) -> float:
    """Seconds until a batch is tried again that failed `attempts` times before."""
    return min(settings.retry_s * 2.0 ** min(attempts, 30), LONGEST_RETRY_S)
