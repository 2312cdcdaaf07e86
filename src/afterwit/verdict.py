"""The next state of a turn, the judge's votes on it, the verdict, its review, and the terms that it carries.

The terms that a judged turn carries:

| hint | reward  | RL  | OPD |
| ---- | ------- | --- | --- |
| yes  | +1 / -1 | yes | yes |
| yes  | 0       |     | yes |
| no   | +1 / -1 | yes |     |
| no   | 0       |     |     |

Sampling takes terms away. A response that was cut at its length keeps its OPD term, which covers only the
sampled tokens. It keeps its RL term only if evidence, not a vote, decided the reward: a judge cannot tell a
bad response from half of a good one.

If turns are routed (SRPO, arXiv:2604.02288), a turn learns by fewer terms than it carries:

| reward | RL                              | OPD |
| ------ | ------------------------------- | --- |
| -1     | only without OPD                | yes |
| 0      |                                 | yes |
| +1     | unless the policy was confident |     |

A failure's hint teaches more than its number. A success needs no correction, and one that the policy was
confident of has little left to teach.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from afterwit.lifecycle import Reason, Worded
from afterwit.turn import SHARED, Basis, Finish, Kind, Message, RecordedTurn, Turn, is_greedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """Explicit feedback on a turn: a reward, words, what to teach, or several of these."""

    reward: int | None = None
    """+1 (thumb up, success), -1 (thumb down, failure), None if there are only words."""
    text: str | None = None
    """Words about the response, as a reply would say them."""
    hint: str | None = None
    """The better behaviour, in words."""
    correction: str | None = None

    def __post_init__(self) -> None:
        if self.reward not in (None, -1, 0, 1):
            raise ValueError(f"a reward is -1, 0 or 1, not {self.reward}")
        if self.reward is None and not self.words:
            raise ValueError("feedback needs a reward or words")

    @property
    def teaches(self) -> bool:
        """Whether it has hints of its own, in place of the judge's."""
        return self.hint is not None or self.correction is not None

    @property
    def words(self) -> str:
        """All its words, as one reply."""
        better = f"A better answer:\n{self.correction}" if self.correction else None
        return "\n".join(filter(None, (self.text, self.hint, better)))


@dataclass(frozen=True, slots=True, kw_only=True)
class NextState:
    """Everything that followed the response: every tool result, then the reply; and explicit feedback."""

    messages: tuple[Message, ...] = ()
    feedback: Feedback | None = None

    def __post_init__(self) -> None:
        if not self.messages and self.feedback is None:
            raise ValueError("a next state needs a message or feedback")


class Question(StrEnum):
    """The judge's two questions, one that checks the judge, and one that needs none."""

    EVALUATION = "evaluation"
    HINT = "hint"
    BLIND = "blind"
    """How good was the response? Asked without the feedback that decides the reward: it decides nothing."""
    OWN_WORDS = "own_words"
    """Not asked of a judge: how the person's own words were read, which may be the hint."""
    FOLLOWS = "follows"
    """Does the model follow a hint that it is shown? Asked of its answer, which is the vote's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One answer of the judge, as it was given and as it was read."""

    question: Question
    words: str
    value: int | None
    """The boxed number; None: an invalid vote."""
    hint: str | None = None
    """The hint's text if this is a valid +1 vote on the hint question."""
    rejected: str | None = None
    """Why an answer that parsed is not a valid vote."""


class Source(StrEnum):
    """The evidence that decided the reward."""

    VOTES = "votes"
    FEEDBACK = "feedback"
    SCHEMA = "schema"
    """A tool call that its own tool's schema refuses."""
    READ = "read"
    """The person's reply, read off a model's log-probs because the judge writes no votes."""
    TOOL = "tool"
    """A tool's result that is marked as an error."""
    REPEAT = "repeat"
    """The votes are +1, but a tool call repeats an earlier one: 0."""
    LESSON = "lesson"
    """Not judged: a practised answer has the words of its lesson as its hint, and reward 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The tally: a reward in {-1, 0, 1} and the hint candidates, shortest first."""

    reward: int
    source: Source
    hints: tuple[str, ...] = ()
    votes: tuple[Vote, ...] = ()

    def __post_init__(self) -> None:
        if self.reward not in (-1, 0, 1):
            raise ValueError(f"a reward is -1, 0 or 1, not {self.reward}")

    @property
    def undivided(self) -> bool:
        """Whether all valid votes on the reward are equal; also if something else decided it."""
        rewards = {vote.value for vote in self.votes if vote.question is Question.EVALUATION}
        return len(rewards - {None}) < 2

    @property
    def own_words(self) -> bool:
        """Whether the hint is what the person wrote."""
        return any(vote.question is Question.OWN_WORDS and vote.hint in self.hints for vote in self.votes)

    @property
    def unfollowed(self) -> bool:
        """Whether there were hints, and the model follows none."""
        return not self.hints and any(
            vote.question is Question.FOLLOWS and vote.rejected for vote in self.votes
        )

    @property
    def unread(self) -> bool:
        """Whether a question was asked and every vote on it is invalid."""
        asked = [vote for vote in self.votes if vote.question in (Question.EVALUATION, Question.HINT)]
        read = {vote.question for vote in asked if vote.value is not None}
        return {vote.question for vote in asked} != read


class Flag(Worded):
    """Why a person may want to look at a turn before it trains: the value, as stored, and `words`."""

    TOOL_WORDS = "tool_words", "the hint comes from what tools returned; no person spoke"
    LINK = "link", "the hint names an address that no person named"
    COMMAND = "command", "the hint holds a command that no person named"
    STANDING_ORDER = "standing_order", "the hint orders something for other conversations or people"
    HARMFUL = "harmful", "the judge finds the hint harmful: secrets, advertising, less care"
    UNRELATED = "unrelated", "the hint names something that nothing in the conversation names"
    TOOLS_CONTRADICT = "tools_contradict", "a call failed of a kind that several other sources approved"
    CONTRADICTS = (
        "contradicts",
        "it contradicts several other sources, or its source has contradicted them before",
    )


AGAINST_OTHERS = frozenset({Flag.CONTRADICTS, Flag.TOOLS_CONTRADICT})
"""Flags that wait for a person under every kind of review."""


class Review(StrEnum):
    """The turns that a person must accept before they train."""

    OFF = "off"
    """Only those that contradict several other sources."""
    FLAGGED = "flagged"
    """Those with a flag."""
    ALL = "all"
    """Every one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRule:
    """Decides what trains without a person's review."""

    review: Review = Review.FLAGGED
    tool_hints: bool = False
    """Whether hints teach that come from tool results alone."""

    def withholds(self, flags: Collection[Flag], *, accepted: bool, rewarded: bool) -> bool:
        """Whether a turn waits for a person. `rewarded`: it carries a reward term, not a hint alone.

        Words of tools hold no reward back: it trains without the hint.
        """
        if accepted:
            return False
        if self.review is Review.ALL or not AGAINST_OTHERS.isdisjoint(flags):
            return True
        hintless = not rewarded and not self.hints_teach(flags, accepted=accepted)
        return hintless or (self.review is Review.FLAGGED and bool(set(flags) - {Flag.TOOL_WORDS}))

    def hints_teach(self, flags: Collection[Flag], *, accepted: bool) -> bool:
        """Whether a turn that is not withheld learns from its hints."""
        return accepted or self.tool_hints or Flag.TOOL_WORDS not in flags


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTurn:
    """One turn with its verdict. `rl` and `opd`: the terms of the loss that it carries."""

    turn: Turn
    verdict: Verdict
    rl: bool
    opd: bool
    group_rewards: tuple[int, ...] = ()
    """The rewards of all judged turns with this prompt, zeros included; (): not looked up."""

    def __post_init__(self) -> None:
        if not (self.rl or self.opd):
            raise ValueError(f"turn {self.turn.id} carries no term: it is skipped, not sampled")
        if self.opd and not (self.verdict.hints or self.turn.conversation.lessons):
            raise ValueError(f"turn {self.turn.id} has an OPD term but no hint")
        if self.rl and self.verdict.reward == 0:
            raise ValueError(f"turn {self.turn.id} has an RL term but reward 0")


class Waiting(NamedTuple):
    """A judged turn that waits for an update: the facts by which the next batch is chosen."""

    seq: int
    """The order of arrival, which names the turn in the store."""
    turn: str
    """Its id."""
    session: str
    since: float
    """When it was judged."""
    oldest_version: int
    """The version that sampled its oldest token."""
    ended: bool
    """Whether its session has ended, as far as the store can know."""
    source: str = ""
    """The key that it came with."""
    flags: tuple[Flag, ...] = ()
    accepted: bool = False
    """Whether a person accepted its verdict."""
    rewarded: bool = True
    """Whether it carries a reward term."""
    adapter: str = SHARED
    """The adapter that sampled it and learns from it."""
    practised: bool = False
    """Whether it was sampled for practice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """The terms that a turn carries, and why it does not train; None: it trains."""

    rl: bool = False
    opd: bool = False
    reason: Reason | None = None


def terms_of(
    *,
    reward: float,
    hints: int,
    tau: float,
    truncated: bool = False,
    processed: bool = True,
    penalised: bool = False,
    cut_off: bool = False,
    evidence: bool = False,
) -> Carried:
    """The terms of a turn with this reward, number of hints, and sampling temperature `tau`.

    `truncated`: sampled with top-p, top-k or min-p; `processed`: its log-probs are those after temperature
    and truncation; `penalised`: sampled with penalties or a logit bias; `cut_off`: its end is missing;
    `evidence`: feedback, a test, a schema or a failed call decided the reward, not votes or a reading.
    """
    if not tau >= 0:
        raise ValueError(f"tau is {tau}, but a temperature is at least 0")
    if penalised:
        return Carried(reason=Reason.PENALTIES)
    no_rl = None
    if reward == 0:
        no_rl = Reason.NO_SIGNAL
    elif is_greedy(tau):
        no_rl = Reason.GREEDY_WITHOUT_HINT
    elif truncated and not processed:
        no_rl = Reason.TRUNCATED_SAMPLING_WITHOUT_HINT
    elif cut_off and not evidence:
        no_rl = Reason.CUT_AT_LENGTH
    return Carried(rl=no_rl is None, opd=hints > 0, reason=None if hints else no_rl)


def untrainable(turn: RecordedTurn) -> Reason | None:
    """Why no verdict can make this turn train; None if one can. Known as soon as the turn is recorded."""
    if not isinstance(turn, Turn):
        return Reason.NOT_SAMPLED_HERE
    reasons = {
        Reason.CLIENT_LEFT: turn.finish is Finish.CLIENT_LEFT,
        Reason.SIDE_TURN: turn.kind is Kind.SIDE,
        Reason.UNKNOWN_BRANCH: turn.kind is Kind.UNKNOWN,
        Reason.KEY_DOES_NOT_TEACH: not turn.teaches,
        Reason.PENALTIES: turn.sampling.penalised,
        Reason.EMPTY_RESPONSE: not turn.sampled.ids,
        Reason.ALL_FORCED: all(turn.sampled.forced),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def unjudged(turn: RecordedTurn) -> Reason | None:
    """Why the judge is not asked about a turn; None: it is. Imported turns are judged to be shown."""
    reason = untrainable(turn)
    return None if reason is Reason.NOT_SAMPLED_HERE else reason


def carried(turn: Turn, verdict: Verdict) -> Carried:
    """The terms that a judged turn carries under an objective that reads both.

    One that was sampled with lessons in its prompt teaches the policy that does not read them: it carries no
    reward, which is of another prompt, and its own prompt is a teacher unless it was bad.
    """
    if (reason := untrainable(turn)) is not None:
        return Carried(reason=reason)
    shown = bool(turn.conversation.lessons)
    hints = len(verdict.hints) or int(shown and verdict.reward >= 0)
    if shown and not hints:
        return Carried(reason=Reason.NO_SIGNAL)
    found = terms_of(
        reward=verdict.reward,
        hints=hints,
        tau=turn.sampling.temperature,
        truncated=turn.sampling.truncated,
        processed=turn.sampled.basis is Basis.PROCESSED,
        penalised=turn.sampling.penalised,
        cut_off=turn.finish is Finish.LENGTH,
        evidence=verdict.source not in (Source.VOTES, Source.READ),
    )
    return replace(found, rl=found.rl and not shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """The parts of a verdict that an objective reads."""

    rl: bool = True
    """Rewards move the policy."""
    opd: bool = True
    """Hints move the policy."""
    confident_above: float | None = None
    """Turns are routed, and the policy was confident from this mean probability on. None: not routed."""
    keeps_longest: bool = False
    """Only the longest hint is read."""

    @property
    def reward(self) -> bool:
        """Whether a turn's reward matters: it is learned from, or routes the turn."""
        return self.rl or self.confident_above is not None

    def of(self, turn: RecordedTurn, verdict: Verdict) -> Carried:
        """The terms that a judged turn carries, and why it ends; no reason: it goes on to the learner."""
        if not isinstance(turn, Turn):
            return Carried(reason=Reason.NOT_SAMPLED_HERE)
        found, sampled = carried(turn, verdict), turn.sampled
        reason = found.reason
        if reason is None:
            sure = confidence(sampled.logprobs, sampled.forced)
            reason = self.learned(found, reward=verdict.reward, confidence=sure).reason
        if reason is Reason.NO_SIGNAL and verdict.unfollowed:
            reason = Reason.HINT_NOT_FOLLOWED
        if reason is Reason.NO_SIGNAL and verdict.unread:  # all votes on a question were invalid
            reason = Reason.INVALID_VOTES
        return replace(found, reason=reason)

    def learned(self, turn: Carried, *, reward: float, confidence: float | None) -> Carried:
        """The terms that a turn learns by, and why they do not move the policy."""
        rl, opd = turn.rl and self.rl, turn.opd and self.opd
        taken = Carried(rl=turn.rl, opd=turn.opd)
        if self.confident_above is not None and reward > 0:
            sure = confidence is not None and confidence >= self.confident_above
            taken = Carried(rl=rl and not sure)
        elif self.confident_above is not None:
            taken = Carried(rl=rl and not opd, opd=opd)
        if self.moves(taken):
            return taken
        if rl or opd:
            return replace(taken, reason=Reason.ALREADY_CONFIDENT if rl else Reason.ALREADY_GOOD)
        return replace(taken, reason=Reason.NO_SIGNAL)

    def moves(self, turn: Carried) -> bool:
        """Whether any of these terms moves the policy."""
        return (turn.rl and self.rl) or (turn.opd and self.opd)


def confidence(logprobs: Sequence[float], forced: Sequence[bool]) -> float | None:
    """The mean probability of the tokens that were sampled; None if all were forced."""
    sampled = [math.exp(min(value, 0.0)) for value, fixed in zip(logprobs, forced, strict=True) if not fixed]
    return math.fsum(sampled) / len(sampled) if sampled else None
