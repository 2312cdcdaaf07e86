"""An engine's log-probs of a version against the learner's."""

from __future__ import annotations

from collections.abc import Sequence

from afterwit.core.errors import ProbeMismatch
from afterwit.core.version import Probe, Version


def check_probe(version: Version, served: Sequence[float], tolerance: float) -> None:
    """ProbeMismatch unless the engine's log-probs are the learner's, up to the mean |difference|."""
    gap = probe_gap(version.probe, served)
    if not gap <= tolerance:
        raise ProbeMismatch(
            f"version {version.number} is not served, an older one is: the engine's log-probs differ from "
            f"the learner's by {gap:.2g} on average, and at most {tolerance:.2g} is right"
        )


def probe_gap(probe: Probe, served: Sequence[float]) -> float:
    """Mean |difference| in nats between the learner's log-probs and the engine's, which may score fewer."""
    gaps = [abs(learner - engine) for learner, engine in zip(probe.logprobs, served, strict=False)]
    if not gaps or len(served) > len(probe.logprobs):
        raise ProbeMismatch(f"the engine scored {len(served)} of {len(probe.logprobs)} probe tokens")
    return sum(gaps) / len(gaps)
