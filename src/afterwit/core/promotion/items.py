"""Turns that people approved, as they were sampled, and the kinds that they are counted in."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from afterwit.core.message import Message
from afterwit.core.surrogates import without_halves
from afterwit.core.turn import Basis, Turn, scoring_temperature

SURE = 0.9
"""Probability at temperature 1 from which the policy was sure of a token when it sampled it."""
STILL_SURE = 0.7
"""Probability at temperature 1 from which a version still takes such a token."""
MAY_DIFFER = 0.02
"""Share of these tokens that may differ in a response that counts as kept: none in a short one."""
TEXT = "text"
"""The stratum of responses without a tool call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A turn that people approved, which a new version should still take as it was sampled."""

    turn: str
    stratum: str
    source: str
    """Who approved it: the turn's source."""
    version: int
    """The newest version that sampled a token of it."""
    since: float
    """When it was approved, in seconds since the epoch."""
    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    """The response as it was sampled."""
    sure: tuple[bool, ...]
    """Tokens of the response that the policy was sure of: a new version should still choose them."""

    def __post_init__(self) -> None:
        if len(self.sure) != len(self.ids):
            raise ValueError(f"{len(self.ids)} ids but {len(self.sure)} flags")

    @classmethod
    def of(cls, turn: Turn, *, since: float) -> Item:
        """The item of a turn that was approved."""
        sampled = turn.sampled
        tau = scoring_temperature(turn.sampling.temperature) if sampled.basis is Basis.PROCESSED else 1.0
        least = sure_from(tau)
        pairs = zip(sampled.logprobs, sampled.forced, strict=True)
        return cls(
            turn=turn.id,
            stratum=stratum_of(turn.message),
            source=turn.source,
            version=max(sampled.versions, default=0),
            since=since,
            prompt_ids=turn.prompt_ids,
            ids=sampled.ids,
            sure=tuple(not forced and logprob >= least for logprob, forced in pairs),
        )

    def kept(self, logprobs: Sequence[float]) -> bool:
        """Whether a version that gives the ids these log-probs, each after those before it, still takes it.

        The likeliest token says too little: a version that begins to waver still has it, and samples others.
        What the policy was not sure of says nothing: free text is sampled, not chosen.
        """
        if len(logprobs) != len(self.ids):
            raise ValueError(f"{len(self.ids)} ids but {len(logprobs)} log-probs")
        least = math.log(STILL_SURE)
        lost = sum(sure and logprob < least for sure, logprob in zip(self.sure, logprobs, strict=True))
        return lost <= MAY_DIFFER * sum(self.sure)

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.ids)


def sure_from(tau: float) -> float:
    """The log-prob at temperature `tau` of a token that is at `SURE` at temperature 1, beside one other.

    The odds of two tokens at `tau` are those at 1 to the power 1 / tau.
    """
    return -math.log1p(((1 - SURE) / SURE) ** (1 / tau))


def stratum_of(response: Message) -> str:
    """The name of the first tool call with its boolean flags (`delete dry_run=true`), or `text`."""
    if not response.tool_calls:
        return TEXT
    call = response.tool_calls[0]
    flags = (
        f"{name}={json.dumps(value)}"
        for name, value in sorted(_arguments(call.arguments).items())
        if isinstance(value, bool)
    )
    return " ".join([call.name, *flags])


def _arguments(text: str) -> Mapping[str, object]:
    """The arguments of a call; empty if they are no JSON object."""
    try:
        found = json.loads(without_halves(text))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
