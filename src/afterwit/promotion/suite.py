"""The suite: approved turns, as sampled, how many a new version has lost, and what that proves.

Skills are lost one at a time, so items are counted in strata, and no stratum's loss is averaged away by the
others: the evidence is the mean of the strata's e-values, not the e-value of all items together.

Evidence that a share lies above a bound is an e-value: a bet against "the share is at most `bound`". Its
mean is at most 1 while that holds, so it exceeds 20 with a chance of at most 1 in 20 (Markov). Averages of
e-values are e-values. The bet is spread evenly over shares above the bound (method of mixtures: Ramdas et
al., "Game-theoretic statistics and safe anytime-valid inference", Statistical Science 38, 2023). Evidence
that is looked at again and again needs a detector: each component restarts whenever it falls below 1 (Shin,
Ramdas, Rinaldo, "E-detectors", NEJSDS 2, 2024).
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import NamedTuple

from afterwit.ranges import above, at_least, within
from afterwit.turn import Basis, Message, Turn, scoring_temperature
from afterwit.version import SuiteResult

SHARES = 24
"""Shares that the bet is spread over: the midpoints of this many equal parts of (bound, 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionSettings:
    """When a version may serve, and when it is taken back; see [Safety](safety.md)."""

    enabled: bool = True
    """false: every finite update is served; none is held or taken back."""
    may_lose: float = 0.10
    """Share of the approved responses of each kind that a new version may lose."""
    hold_at: float = 20.0
    """Evidence (e-value) of a greater loss at which an update is held. At 20, at most 1 in 20 is held
    wrongly, if responses are independent."""
    per_kind: int = 16
    """Approved responses in the test for each kind: a tool with its flags, or text."""
    per_source: int = 6
    """Most of these from one source if others approved some, or an equal part if that is more."""
    share_of_update: float = 0.2
    """Tokens of the test as a share of the update's work, at least 4,096."""
    may_end_badly: float = 0.15
    """Share of requests that may [end badly](safety.md#the-watch-how-requests-end)."""
    alarm_at: float = 100.0
    """Evidence (e-value) that more requests end badly, at which versions since the confirmed one are taken
    back. Simulated alarms came after 46 requests if twice `may_end_badly` ended badly, and falsely after
    1,300 if an eighth did."""
    confirm_after: int = 6
    """Requests in a row that must end well to confirm the version that served the first, with at most
    `may_end_badly` of the newest 24 ending badly."""
    no_end_s: float = 1800.0
    """Seconds without a tool's result after which the request counts as never ended."""

    def __post_init__(self) -> None:
        within(self, 0, 1, "may_lose", "may_end_badly", "share_of_update")
        above(self, 0, "may_lose", "may_end_badly", "no_end_s")
        above(self, 1, "hold_at", "alarm_at")
        at_least(self, 1, "per_kind", "per_source", "confirm_after")


def e_value(lost: int, of: int, *, bound: float) -> float:
    """The e-value of `lost` among `of` against "at most a share `bound` is lost"; 1 for 0 of 0.

    Raises ValueError for impossible counts, or a bound outside (0, 1).
    """
    if not 0 <= lost <= of:
        raise ValueError(f"{lost} lost of {of}")
    return (
        math.fsum(
            (share / bound) ** lost * ((1 - share) / (1 - bound)) ** (of - lost) for share in _shares(bound)
        )
        / SHARES
    )


def ongoing_evidence(bad: Iterable[bool], *, bound: float) -> Iterator[float]:
    """The detector's value after each of these outcomes, against "at most a share `bound` is bad".

    An alarm at the value A comes, while the share stays below the bound, after A outcomes or more on average.
    """
    shares = _shares(bound)
    values = [0.0] * SHARES
    for outcome in bad:
        ratios = (share / bound if outcome else (1 - share) / (1 - bound) for share in shares)
        values = [max(value, 1.0) * ratio for value, ratio in zip(values, ratios, strict=True)]
        yield math.fsum(values) / SHARES


def _shares(bound: float) -> tuple[float, ...]:
    if not 0 < bound < 1:
        raise ValueError(f"a bound lies between 0 and 1, not at {bound}")
    return tuple(bound + (1 - bound) * (part + 0.5) / SHARES for part in range(SHARES))


SURE = 0.9
"""Probability at temperature 1 from which the policy was sure of a token when it sampled it."""
STILL_SURE = 0.7
"""Probability at temperature 1 from which a version still takes such a token."""
UNLIKELY = 0.3
"""Probability at temperature 1 below which a version no longer takes such a token when shown a complaint, or
in a response that was not chosen."""
CHOSEN = 0.5
"""Least share of such tokens in a response that was chosen, as most tool calls are, and not sampled among
many as good ones: in free text the odd one at 0.6 shows no loss."""
MAY_DIFFER = 0.02
"""Share of these tokens that may differ in a response that counts as kept: none in a short one."""
TEXT = "text"
"""The stratum of responses without a tool call."""
MOST_LONGER, LARGE = 4.0, 700.0
"""A response is expected to become this many times as long at most. The exponential of more overflows."""
FEWEST_FOR_LENGTH = 4
"""Items that show how long answers are."""
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

    def kept(self, logprobs: Sequence[float], *, at_least: float | None = None) -> bool:
        """Whether a version that gives the ids these log-probs, each after those before it, still takes it.

        That each token is still the likeliest is not enough: a version that wavers samples others. Tokens
        that the policy was not sure of do not count. The others need the probability `at_least`; by default
        `STILL_SURE`, and `UNLIKELY` in a response that was not `CHOSEN`.
        """
        if len(logprobs) != len(self.ids):
            raise ValueError(f"{len(self.ids)} ids but {len(logprobs)} log-probs")
        if at_least is None:
            at_least = STILL_SURE if sum(self.sure) >= CHOSEN * len(self.sure) else UNLIKELY
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


class ItemRead(NamedTuple):
    """An approved response under a version, each token after those before it, at temperature 1."""

    logprobs: Sequence[float]
    """Of its ids."""
    ends: Sequence[float]
    """Of its last id, with which it ended, in the place of each."""

    @property
    def tokens(self) -> float:
        """Tokens that the version is expected to give before it ends, if it goes on as the response does, and
        after its end ends in each place as likely as there; `MOST_LONGER` times as many at most."""
        size, going, expected = len(self.ends), 1.0, 0.0
        for end in self.ends:
            expected += going
            going *= -math.expm1(min(end, 0.0))
        return min(MOST_LONGER * size, expected + going * math.exp(min(-self.ends[-1], LARGE)))


def length(read: Sequence[tuple[SuiteItem, ItemRead]]) -> float | None:
    """The expected tokens of all items as a share of the approved tokens; None without items."""
    approved = sum(len(item.ids) for item, _ in read)
    return sum(each.tokens for _, each in read) / approved if approved else None


def sure_from(tau: float) -> float:
    """The log-prob at temperature `tau` of a token that has probability `SURE` at temperature 1, if there is
    one other. The odds of two tokens at `tau` are those at 1 to the power 1 / tau."""
    return -math.log1p(((1 - SURE) / SURE) ** (1 / tau))


def stratum_of(response: Message) -> str:
    """The name of the first tool call with its boolean flags (`delete dry_run=true`), or `text`."""
    if not response.tool_calls:
        return TEXT
    call = response.tool_calls[0]
    named = sorted((call.named_arguments() or {}).items())
    flags = (f"{name}={json.dumps(value)}" for name, value in named if isinstance(value, bool))
    return " ".join([call.name, *flags])


def times_as_long(now: SuiteResult, before: SuiteResult) -> float | None:
    """By how much expected answers have grown; None: one was not measured, or on too few items."""
    fewest = min(sum(of for _, of in each.lost.values()) for each in (now, before))
    if now.length is None or before.length is None or fewest < FEWEST_FOR_LENGTH:
        return None
    return now.length / before.length


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
