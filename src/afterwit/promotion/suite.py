"""The suite: approved turns, as sampled, and how many a new version has lost.

Skills are lost one at a time, so items are counted in strata, and no stratum's loss is averaged away by the
others: the evidence is the mean of the strata's e-values, not the e-value of all items together.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, NamedTuple

from afterwit.promotion.evidence import PromotionSettings, e_value
from afterwit.text import without_halves
from afterwit.turn import Basis, Message, Turn, scoring_temperature

SURE = 0.9
"""Probability at temperature 1 from which the policy was sure of a token when it sampled it."""
STILL_SURE = 0.7
"""Probability at temperature 1 from which a version still takes such a token."""
UNLIKELY = 0.3
"""Probability at temperature 1 below which a version no longer takes such a token when shown a complaint."""
MAY_DIFFER = 0.02
"""Share of these tokens that may differ in a response that counts as kept: none in a short one."""
TEXT = "text"
"""The stratum of responses without a tool call."""
BLOCK = 16
"""Shared beginnings are counted in blocks of this many ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteItem:
    """A turn that people approved. A new version should still respond as it was sampled."""

    turn: str
    stratum: str
    source: str
    """Who approved it: the turn's source."""
    version: int
    """The newest version that sampled one of its tokens."""
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
    def of(cls, turn: Turn, *, since: float) -> SuiteItem:
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

        That each token is still the likeliest is not enough: a version that wavers samples others. Tokens
        that the policy was not sure of do not count: free text is sampled, not chosen.
        """
        if len(logprobs) != len(self.ids):
            raise ValueError(f"{len(self.ids)} ids but {len(logprobs)} log-probs")
        least = math.log(at_least)
        lost = sum(sure and logprob < least for sure, logprob in zip(self.sure, logprobs, strict=True))
        return lost <= MAY_DIFFER * sum(self.sure)

    def contradicted(self, logprobs: Sequence[float], shown: Sequence[float]) -> bool:
        """Whether a hint contradicts the response: a version gives it without the hint, and not with it.

        `logprobs` are without the hint, `shown` with it. A version that has lost the response proves nothing.
        """
        return self.kept(logprobs) and not self.kept(shown, at_least=UNLIKELY)

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.ids)


def sure_from(tau: float) -> float:
    """The log-prob at temperature `tau` of a token that has probability `SURE` at temperature 1, if there is
    one other. The odds of two tokens at `tau` are those at 1 to the power 1 / tau."""
    return -math.log1p(((1 - SURE) / SURE) ** (1 / tau))


def stratum_of(response: Message) -> str:
    """The name of the first tool call with its boolean flags (`delete dry_run=true`), or `text`."""
    if not response.tool_calls:
        return TEXT
    call = response.tool_calls[0]
    try:
        arguments = json.loads(without_halves(call.arguments))
    except (ValueError, RecursionError):
        arguments = {}
    named = sorted(arguments.items()) if isinstance(arguments, dict) else ()
    flags = (f"{name}={json.dumps(value)}" for name, value in named if isinstance(value, bool))
    return " ".join([call.name, *flags])


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteResult:
    """How much of the suite a version lost."""

    lost: Mapping[str, tuple[int, int]]
    """By stratum, how many of how many items."""
    evidence: float
    """The mean e-value of the strata; 1 without items."""
    lost_turns: tuple[str, ...] = ()
    """The items that were lost."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SuiteResult:
        """From the JSON of its fields."""
        return cls(
            lost={name: (lost, of) for name, (lost, of) in data["lost"].items()},
            evidence=data["evidence"],
            lost_turns=tuple(data["lost_turns"]),
        )

    @property
    def worst(self) -> str | None:
        """The stratum that lost the greatest share; None if none lost anything."""
        shares = {name: lost / of for name, (lost, of) in self.lost.items() if lost}
        return max(shares, key=lambda name: shares[name], default=None)


def suite_result(kept: Iterable[tuple[SuiteItem, bool]], *, may_lose: float) -> SuiteResult:
    """From each item with whether the version still takes it."""
    outcomes: dict[str, list[bool]] = defaultdict(list)
    lost_turns = []
    for item, still in kept:
        outcomes[item.stratum].append(still)
        if not still:
            lost_turns.append(item.turn)
    lost = {name: (stills.count(False), len(stills)) for name, stills in sorted(outcomes.items())}
    values = [e_value(gone, of, bound=may_lose) for gone, of in lost.values()]
    evidence = math.fsum(values) / len(values) if values else 1.0
    return SuiteResult(lost=lost, evidence=evidence, lost_turns=tuple(lost_turns))


def chosen_items(
    items: Iterable[SuiteItem],
    settings: PromotionSettings,
    *,
    without: Collection[str] = (),
    tokens: int | None = None,
    turn: int = 0,
    shared: bool = False,
) -> list[SuiteItem]:
    """The items that an update must still give, without the turns in `without`, those of its own batch.

    With `tokens`, the strata give one item each in rounds, while the next one fits. `turn` chooses the first
    stratum, so that none is always left out. `shared`: a beginning that several items share is read once.
    """
    left = sorted(
        (item for item in items if item.turn not in without), key=lambda item: (-item.since, item.turn)
    )
    sources = Counter(stratum for stratum, _ in {(item.stratum, item.source) for item in left})
    of_source: Counter[tuple[str, str]] = Counter()
    strata: dict[str, list[SuiteItem]] = defaultdict(list)
    newest = []
    for item in left:
        place, stratum = (item.stratum, item.source), strata[item.stratum]
        most = max(settings.per_source, math.ceil(settings.per_kind / sources[item.stratum]))
        if len(stratum) < settings.per_kind and of_source[place] < most:
            of_source[place] += 1
            stratum.append(item)
            newest.append(item)
    if tokens is None or not newest:
        return newest
    names = sorted(strata)
    first = turn % len(names)
    rounds = zip_longest(*(strata[name] for name in names[first:] + names[:first]))
    found, read = [], set[int]()
    for item in (each for each in chain.from_iterable(rounds) if each is not None):
        beginnings = _beginnings(item) if shared else []
        cost = len(item) - BLOCK * sum(beginning in read for beginning in beginnings)
        if cost <= tokens:
            tokens -= cost
            read.update(beginnings)
            found.append(item)
    return found


def _beginnings(item: SuiteItem) -> list[int]:
    """A hash of each beginning of whole blocks of the item's ids: equal hashes, equal beginnings."""
    ids, found = item.prompt_ids + item.ids, [0]
    for end in range(BLOCK, len(ids) + 1, BLOCK):
        found.append(hash((found[-1], ids[end - BLOCK : end])))
    return found[1:]


class Complaint(NamedTuple):
    """A turn that drew a complaint with a hint."""

    turn: Turn
    hint: str


class Suspect(NamedTuple):
    """An approved turn that its source may want otherwise by now."""

    item: SuiteItem
    turn: Turn
    """The turn of the item."""
    hint: str
    """The hint of a later complaint of this source about a response of this kind."""


def suspects(
    items: Sequence[SuiteItem],
    complaints: Iterable[Complaint],
    turn_of: Callable[[str], Turn | None],
    *,
    tokens: int,
) -> list[Suspect]:
    """The items, newest first, whose own source has since complained of a response of the same kind.

    `turn_of` gives a turn whose content is still there. Reading the result takes at most `tokens` tokens.
    """
    found, left = [], tokens
    for complaint in complaints:
        about = complaint.turn
        for item in items:
            same = (item.source, item.stratum) == (about.source, stratum_of(about.message))
            later = same and item.since < about.created and item.turn != about.id
            if later and 2 * len(item) <= left and (turn := turn_of(item.turn)) is not None:
                left -= 2 * len(item)
                found.append(Suspect(item, turn, complaint.hint))
    return found
