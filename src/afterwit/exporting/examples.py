"""The store's turns as examples, the reasons to leave one out, and the demonstrations among them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import orjson

from afterwit.judging.hinted_prompts import Placement, splice
from afterwit.lifecycle import Reason
from afterwit.objective.settings import BASELINES, ObjectiveSettings, Rewarded
from afterwit.store import Filter, Record, Store
from afterwit.turn import Kind, Message, RecordedTurn, Turn
from afterwit.verdict import NextState, Verdict, untrainable
from afterwit.vetting.redaction import Redaction

AT_ONCE = 256
"""Turns whose groups are looked up together."""

NEVER = frozenset(
    {
        Reason.REVERTED,
        Reason.CLIENT_LEFT,
        Reason.SIDE_TURN,
        Reason.UNKNOWN_BRANCH,
        Reason.AMBIGUOUS_PARENT,
        Reason.KEY_DOES_NOT_TEACH,
        Reason.EMPTY_RESPONSE,
        Reason.CUT_AT_LENGTH,
        Reason.INVALID_VOTES,
        Reason.REVIEW_REFUSED,
        Reason.LESSON_CHANGED,
        Reason.EXCLUDED,
        Reason.HOLDS_SECRET,
    }
)
"""Reasons that hold for every trainer: such a turn is in no training data."""

NOT_JUDGED = "not_judged"
"""The reason of a turn without a verdict that has not ended."""

NOTHING_BETTER = "no_better_response"
"""The reason of a turn without a positive reward to whose prompt no better response is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A recorded turn, as the store knows it."""

    turn: RecordedTurn
    reason: Reason | None
    verdict: Verdict | None
    next_state: NextState | None
    rl: bool
    opd: bool
    """The terms of the loss that its verdict gives it."""
    advantage: float
    """The RL advantage of every token of the response."""
    hinted: tuple[Message, ...]
    """The prompt's messages with the shortest hint, as the teacher reads them; empty without a hint."""

    @property
    def hint(self) -> str | None:
        return self.verdict.hints[0] if self.verdict is not None and self.verdict.hints else None

    @property
    def prompt_key(self) -> str:
        """Equal for turns that a scope sampled from the same conversation and tools; practice, which has no
        rewards, is apart."""
        said = {**self.turn.conversation.to_dict(), "scope": self.turn.scope}
        if self.turn.kind is Kind.PRACTICE:
            said["kind"] = self.turn.kind.value
        return hashlib.sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """The store's turns as examples, as often as they are iterated."""

    store: Store
    where: Filter
    objective: ObjectiveSettings
    placement: Placement
    redaction: Redaction
    with_ids: bool = False
    """Whether the format holds token ids, in which secrets cannot be replaced."""

    def __iter__(self) -> Iterator[Example]:
        page: list[Record] = []
        for record in self.store.turns(self.where):
            page.append(record)
            if len(page) == AT_ONCE:
                yield from self._examples(page)
                page = []
        yield from self._examples(page)

    def _examples(self, records: list[Record]) -> Iterator[Example]:
        """Their advantages are by the objective's baseline without the running mean, which is an update's."""
        ids = [record.turn.id for record in records if record.verdict is not None]
        groups = self.store.group_rewards(ids) if ids and self.objective.reads_groups else {}
        excluded, baseline = self.store.excluded(), BASELINES[self.objective.baseline]
        for record in records:
            turn, verdict, advantage = record.turn, record.verdict, 0.0
            if verdict is not None:
                rewarded = Rewarded(float(verdict.reward), groups.get(turn.id, ()))
                advantage = baseline.advantage(rewarded, 0.0) or 0.0
            hints = () if verdict is None else verdict.hints
            yield Example(
                turn=turn,
                reason=Reason.EXCLUDED if turn.session in excluded else self._reason(record),
                verdict=verdict,
                next_state=record.next_state,
                rl=record.rl,
                opd=record.opd,
                advantage=advantage,
                hinted=splice(turn.conversation, hints[0], self.placement).messages if hints else (),
            )

    def _reason(self, record: Record) -> Reason | None:
        """Why the turn ended, or that it holds a secret."""
        read = record.turn.conversation.messages if self.with_ids else ()
        if any(self.redaction.in_message(message) for message in (record.turn.message, *read)):
            return Reason.HOLDS_SECRET
        return record.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A turn that is not in the data, and why."""

    turn: str
    reason: str


def judged(example: Example) -> Verdict | LeftOut:
    """The verdict, if it holds for any trainer."""
    turn, reason = example.turn, example.reason
    for never in (reason, untrainable(turn)):
        if never in NEVER:
            return LeftOut(turn=turn.id, reason=never.value)
    if example.verdict is None:
        return LeftOut(turn=turn.id, reason=reason.value if reason else NOT_JUDGED)
    return example.verdict


SampledExample = tuple[Example, Turn, Verdict]
"""A judged example that was sampled here."""


def sampled(examples: Iterable[Example]) -> Iterator[SampledExample | LeftOut]:
    """The judged examples whose ids and log-probs were sampled from the policy."""
    for example in examples:
        verdict, turn = judged(example), example.turn
        if isinstance(verdict, LeftOut):
            yield verdict
        elif (reason := untrainable(turn)) is not None or not isinstance(turn, Turn):
            yield LeftOut(turn=turn.id, reason=(reason or Reason.NOT_SAMPLED_HERE).value)
        else:
            yield example, turn, verdict


Response = tuple[str, Message]
"""The id of a turn, and its response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """A prompt with a good response."""

    example: Example
    """The turn with the prompt; its own response is not always the good one."""
    good: Response
    """Of reward +1: sampled for this prompt, or following a person's correction."""
    bad: Response | None
    """Of reward -1 and sampled for the same prompt; None: there is none."""

    @property
    def kind(self) -> str:
        return "good" if self.good[0] == self.example.turn.id else "corrected"


def demonstrations(examples: Iterable[Example]) -> Iterator[Demonstration | LeftOut]:
    """The demonstrations of the examples, which are iterated twice. Memory holds the responses only.

    A turn of reward -1 gets the response that followed a person's words alone and was good. If a tool
    answered first, the later response depends on the tool's words: it does not answer the earlier prompt.
    """
    worse, better = dict[str, Response](), dict[str, Response]()
    for example in examples:
        verdict, turn = judged(example), example.turn
        if isinstance(verdict, LeftOut):
            continue
        if verdict.reward < 0:
            worse.setdefault(example.prompt_key, (turn.id, turn.message))
        elif verdict.reward > 0 and turn.parent is not None:
            better.setdefault(turn.parent, (turn.id, turn.message))
    for example in examples:
        verdict, own = judged(example), (example.turn.id, example.turn.message)
        followed = () if example.next_state is None else example.next_state.messages
        by_people = bool(followed) and all(message.role == "user" for message in followed)
        if isinstance(verdict, LeftOut):
            yield verdict
        elif verdict.reward > 0:
            yield Demonstration(example=example, good=own, bad=worse.get(example.prompt_key))
        elif verdict.reward < 0 and by_people and own[0] in better:
            yield Demonstration(example=example, good=better[own[0]], bad=own)
        else:
            yield LeftOut(turn=own[0], reason=NOTHING_BETTER)
