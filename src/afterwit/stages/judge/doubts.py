"""What is doubtful about a verdict, before it is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from afterwit.core.adapters import SHARED
from afterwit.core.judging.hindsight import view_of
from afterwit.core.promotion import closes
from afterwit.core.teaching import Flag, Votes, contradicts, previous, several, signature
from afterwit.core.teaching.hint_flags import hint_flags
from afterwit.core.turn import Turn
from afterwit.core.verdict import Verdict
from afterwit.store import Record, Store


def of_hints(record: Record, verdict: Verdict) -> tuple[Flag, ...]:
    """What is doubtful about the hints of a turn's verdict."""
    if record.next_state is None or not verdict.hints:
        return ()
    return hint_flags(
        verdict.hints, view_of(record.turn.conversation, record.turn.message, record.next_state)
    )


def of_reward(store: Store, record: Record, verdict: Verdict) -> Sequence[Flag]:
    """Whether the reward is against what other sources that teach the same adapter said. Ask in the
    verdict's transaction.

    No person said anything about a call that failed: the turn waits, and does not count against its source.
    """
    kind, source = signature(record.turn.message), record.turn.source
    if verdict.reward == 0 or (kind is None and verdict.reward < 0):
        return ()
    spoken = closes(record.next_state)
    said = _said(store, kind, record) if kind is not None and (spoken or verdict.reward < 0) else {}
    earlier = store.contradictions(source) if verdict.reward > 0 else 0
    if not contradicts(verdict.reward, source=source, said=said, earlier=earlier, spoken=spoken):
        return ()
    return (Flag.CONTRADICTS if spoken or verdict.reward > 0 else Flag.TOOLS_CONTRADICT,)


def _said(store: Store, kind: str, record: Record) -> Mapping[str, Votes]:
    """Votes on such calls after the same earlier call, if several others gave any; else on all such calls."""
    adapter = record.turn.adapter if isinstance(record.turn, Turn) else SHARED
    said = store.votes_on(kind, after=call_before(record), adapter=adapter)
    return said if several(said, source=record.turn.source) else store.votes_on(kind, adapter=adapter)


def call_before(record: Record) -> str:
    """The kind of the call before a turn's own in the same request; empty: there was none."""
    return previous(record.turn.conversation.messages)
