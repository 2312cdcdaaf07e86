"""Verdicts that wait for a person: the rule that withholds them, and those that contradict others. Pure.

A source is a key. One source that rewards harm and punishes what is right can turn a model, so a verdict of
one source against several waits for a person. The first source to speak about a kind of call is not checked:
there is nothing to compare it with.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from afterwit.turn import Message
from afterwit.verdict import Flag

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
class Rule:
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


OTHERS = 2
"""Other sources that must have voted the opposite on a kind of call."""
TIMES_AS_OFTEN = 4
"""The opposite votes needed for each equal one."""
ACCIDENTS = 2
"""Calls of a kind that failed at a source, beyond those that worked, from which such failures wait."""
BLAMES = 5
"""Rejections of text, without a hint, after which those of a source that approves of nothing wait."""
TRUSTED_UNTIL = 2
"""Contradictions of a source from which its approvals wait for a person too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Votes:
    """The votes of one source on one kind of call."""

    approved: int = 0
    rejected: int = 0


def signature(message: Message) -> str | None:
    """The kind of a response's first tool call: its name, the names of its arguments, the flags among them.

    None for a response without a call. `delete {path, dry_run: true}` is another kind than `delete {path}`.
    """
    if not message.tool_calls:
        return None
    call = message.tool_calls[0]
    if (arguments := call.named_arguments()) is None:
        return f"{call.name} ?"
    named = (f"{name}={value}" if isinstance(value, bool) else name for name, value in arguments.items())
    return " ".join([call.name, *sorted(named)])


def previous(before: Sequence[Message]) -> str:
    """The kind of the latest call since a person last spoke: what is right after a check is wrong without it.

    Empty if there was none. `before`: the conversation before a response.
    """
    for message in reversed(before):
        if message.role == "user":
            return ""
        if kind := signature(message):
            return kind
    return ""


def several(said: Mapping[str, Votes], *, source: str) -> bool:
    """Whether enough sources other than `source` voted for their votes to count."""
    others = (votes for name, votes in said.items() if name != source)
    return sum(bool(votes.approved or votes.rejected) for votes in others) >= OTHERS


def contradicts(
    reward: int, *, source: str, said: Mapping[str, Votes], earlier: int, spoken: bool = True
) -> bool:
    """Whether a verdict of `source` on a kind of call waits for a person.

    `said`: each source's votes on this kind. `earlier`: rejections by `source` that contradicted the others
    and that no person accepted. `spoken`: a person's word decided. Without one a call only worked or failed.
    A call that worked contradicts no one; nor does one that failed, as calls do now and then, until
    `ACCIDENTS` more of them failed than worked at the source: until then their rewards cancel.
    """
    others = [votes for name, votes in said.items() if name != source]
    approved, rejected = [votes.approved for votes in others], [votes.rejected for votes in others]
    if reward > 0:
        return earlier >= TRUSTED_UNTIL or (spoken and _outweighs(rejected, approved))
    own = said.get(source, Votes())
    is_accident = not spoken and own.rejected < own.approved + ACCIDENTS
    return reward < 0 and not is_accident and _outweighs(approved, rejected)


def blames_all(said: Mapping[str, Votes], *, source: str) -> bool:
    """Whether `source` rejects text that several others approve, with nothing to learn, as good as always.

    Text has no kind, so a single rejection contradicts no one. `said`: each source's approvals of text, and
    its rejections without a hint.
    """
    own, others = said.get(source, Votes()), [votes for name, votes in said.items() if name != source]
    is_habit = own.rejected >= max(BLAMES, TIMES_AS_OFTEN * own.approved)
    return is_habit and _outweighs([each.approved for each in others], [each.rejected for each in others])


def _outweighs(opposite: Sequence[int], same: Sequence[int]) -> bool:
    """Whether several sources voted the opposite, and much more often than the same."""
    return sum(map(bool, opposite)) >= OTHERS and sum(opposite) >= TIMES_AS_OFTEN * sum(same)
