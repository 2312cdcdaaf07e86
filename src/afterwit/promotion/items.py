"""Turns that people approved, as they were sampled, and the kinds that they are counted in."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from afterwit.message import Message
from afterwit.text import without_halves
from afterwit.turn import Basis, Turn, scoring_temperature

SURE = 0.9
"""Probability at temperature 1 from which the policy was sure of a token when it sampled it."""


STILL_SURE = 0.7
"""Probability at temperature 1 from which a version still takes such a token."""


UNLIKELY = 0.3
"""Probability at temperature 1 below which a version that is shown a complaint takes such a token no more."""


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

    def kept(self, logprobs: Sequence[float], *, at_least: float = STILL_SURE) -> bool:
        """Whether a version that gives the ids these log-probs, each after those before it, still takes it.

        The likeliest token says too little: a version that begins to waver still has it, and samples others.
        What the policy was not sure of says nothing: free text is sampled, not chosen.
        """
        if len(logprobs) != len(self.ids):
            raise ValueError(f"{len(self.ids)} ids but {len(logprobs)} log-probs")
        least = math.log(at_least)
        lost = sum(sure and logprob < least for sure, logprob in zip(self.sure, logprobs, strict=True))
        return lost <= MAY_DIFFER * sum(self.sure)

    def contradicted(self, logprobs: Sequence[float], shown: Sequence[float]) -> bool:
        """Whether a hint asks for something else: a version that takes the response would not once it is
        shown the hint. The log-probs are those without it and with it.

        A version that has lost the response anyway says nothing about the hint.
        """
        return self.kept(logprobs) and not self.kept(shown, at_least=UNLIKELY)

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Something that was approved, and a later complaint of its source about a response of its kind."""

    item: Item
    turn: Turn
    """Whose response the item is."""
    hint: str
    """What the complaint asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """A turn that drew a complaint with a hint."""

    turn: Turn
    hint: str


def doubts(
    items: Sequence[Item],
    complaints: Iterable[Complaint],
    turn_of: Callable[[str], Turn | None],
    *,
    tokens: int,
) -> list[Doubt]:
    """What of these items, newest first, may no longer be what its source wants: it has complained since of a
    response of this kind. No other source's complaint counts. `turn_of` gives a turn that is still there; at
    most so many `tokens` are to be read.
    """
    found, left = [], tokens
    for complaint in complaints:
        about = complaint.turn
        for item in items:
            same = (item.source, item.stratum) == (about.source, stratum_of(about.message))
            if not same or item.since >= about.created or item.turn == about.id or 2 * len(item) > left:
                continue
            if (turn := turn_of(item.turn)) is not None:
                left -= 2 * len(item)
                found.append(Doubt(item=item, turn=turn, hint=complaint.hint))
    return found


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
