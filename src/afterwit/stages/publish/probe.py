"""Whether the weights in an engine are a version's: its log-probs of the probe against the learner's.

A version serves if the engine's answer is no further from the learner's than the format's noise, and comes
from the version's weights rather than from the base's, those of the version before, or another adapter's
(`core.agreement`). An adapter is asked for three times: without it, which measures the noise; `AMPLIFIED`
times, where every difference stands out of the noise; and as it will serve. Of whole weights the noise was
measured when the base was there alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from afterwit.core.agreement import EXACT, Share, allowed, gap, most, share, unchanged
from afterwit.core.errors import ProbeMismatch
from afterwit.core.version import AMPLIFIED, Probe
from afterwit.engines.port import Engine

BASE = "the base"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What right weights say of a probe, and what others that could stand in their place say."""

    probe: Probe
    others: Mapping[str, Probe] = field(default_factory=dict)
    """By what they are, for people. Those of other ids are left out."""
    dtypes: tuple[str, ...]
    """What engine and learner compute in."""

    def __post_init__(self) -> None:
        alike = {name: other for name, other in self.others.items() if other.ids == self.probe.ids}
        object.__setattr__(self, "others", alike)

    def cut(self, ids: int | None) -> Expected:
        """The same of the first ids alone; None: of all."""
        if ids is None or ids >= len(self.probe.ids):
            return self
        others = {name: _cut(other, ids) for name, other in self.others.items()}
        return replace(self, probe=_cut(self.probe, ids), others=others)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an engine says of a probe with the weights that are staged."""

    logprobs: Sequence[float]
    amplified: Sequence[float] = ()
    """(): these are whole weights."""
    earlier: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """What it said with other weights, by what these are, as in `Expected.others`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How an answer agrees with right weights."""

    apart: float
    """Mean |difference| in nats."""
    noise: float | None
    """That of the base's; None: it was not asked."""
    shares: Mapping[str, Share]
    """Where the answer stands between others (0) and the right weights (1). Of whole weights in half
    precision nothing is said: noise would hide it."""

    @property
    def alike(self) -> list[str]:
        """Those that the probe cannot tell from the right weights."""
        return [name for name, found in self.shares.items() if not found.tells]


async def answered(engine: Engine, probe: Probe, earlier: Mapping[str, Sequence[float]]) -> Answer:
    """The engine's answers with what is staged there. Raises as the port's `probe` does."""
    if not probe.amplified:
        return Answer(logprobs=await engine.probe(probe.ids), earlier=earlier)
    base = await engine.probe(probe.ids, times=0.0)
    amplified = await engine.probe(probe.ids, times=AMPLIFIED)
    logprobs = await engine.probe(probe.ids)
    return Answer(logprobs=logprobs, amplified=amplified, earlier={**earlier, BASE: base})


def examined(expected: Expected, answer: Answer) -> Found:
    """How they agree. ProbeMismatch, which says why, if other weights than the right ones answered, or not
    every id was scored."""
    probe, noise, limit = expected.probe, None, most(*expected.dtypes)
    if BASE in answer.earlier and BASE in expected.others:
        noise = _gap(expected.others[BASE].logprobs, answer.earlier[BASE])
        if not noise <= limit:
            raise ProbeMismatch(
                f"the engine's log-probs of the base differ from the learner's by {noise:.2g} on average, "
                f"and at most {limit:g} is right: they do not serve and train the same model"
            )
        limit = allowed(noise, *expected.dtypes)
    apart = _gap(probe.logprobs, answer.logprobs)
    if not apart <= limit:
        raise ProbeMismatch(
            f"the engine's log-probs differ from the learner's by {apart:.2g} on average, and at most "
            f"{limit:.2g} is right"
        )
    if probe.amplified:
        _gap(probe.amplified, answer.amplified)
    shares = dict(_shares(expected, answer))
    for name, found in shares.items():
        if not found.is_right:
            raise ProbeMismatch(
                f"the engine's log-probs stand {found.value:.2g} of the way from those of {name} (0) to the "
                f"learner's (1, give or take {found.error:.2g}): it has other weights"
            )
    for name, earlier in answer.earlier.items():
        other = expected.others.get(name)
        if other and unchanged(answer.logprobs, earlier, probe.logprobs, other.logprobs):
            raise ProbeMismatch(f"the engine answers to the bit as with the weights of {name}: it has those")
    return Found(apart=apart, noise=noise, shares=shares)


def _shares(expected: Expected, answer: Answer) -> Iterator[tuple[str, Share]]:
    probe = expected.probe
    for name, other in expected.others.items():
        if probe.amplified and other.amplified:
            yield name, share(answer.amplified, probe.amplified, other.amplified)
        elif set(expected.dtypes) <= set(EXACT):
            yield name, share(answer.logprobs, probe.logprobs, other.logprobs)


def _gap(learner: Sequence[float], engine: Sequence[float]) -> float:
    try:
        return gap(learner, engine)
    except ValueError as error:
        raise ProbeMismatch(f"the engine did not answer for every id of the probe: {error}") from error


def _cut(probe: Probe, ids: int) -> Probe:
    return Probe(
        ids=probe.ids[:ids], logprobs=probe.logprobs[: ids - 1], amplified=probe.amplified[: ids - 1]
    )
