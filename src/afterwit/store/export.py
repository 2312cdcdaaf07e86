"""A turn as plain JSON: a line of `afterwit export` and of `afterwit turns --json`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from afterwit.store.records import Record
from afterwit.turn import Turn
from afterwit.verdict import NextState


def summary(record: Record) -> dict[str, Any]:
    """The fields that a list of turns shows."""
    turn, verdict = record.turn, record.verdict
    return {
        "id": turn.id,
        "session": turn.session,
        "parent": turn.parent,
        "kind": turn.kind.value,
        "state": record.state.value,
        "reason": record.reason and record.reason.value,
        "imported": not isinstance(turn, Turn),
        "versions": sorted(set(turn.sampled.versions)) if isinstance(turn, Turn) else [],
        "trained_in": list(record.trained_in),
        "created": turn.created,
        "next_state": record.next_state and next_state(record.next_state),
        "reward": None if verdict is None else verdict.reward,
        "hints": [] if verdict is None else list(verdict.hints),
    }


def whole(record: Record) -> dict[str, Any]:
    """Everything stored about a turn, ids and log-probs included; an imported turn has none of these."""
    turn, verdict = record.turn, record.verdict
    return summary(record) | {
        "scope": turn.scope,
        "model": turn.model,
        "teaches": turn.teaches,
        "conversation": turn.conversation.to_dict(),
        "response": turn.message.to_dict(),
        "finish": turn.finish.value,
        **(_sampled(turn) if isinstance(turn, Turn) else {}),
        "delivered": record.delivered,
        "superseded_by": record.superseded_by,
        "source": None if verdict is None else verdict.source.value,
        "votes": [] if verdict is None else [asdict(vote) for vote in verdict.votes],
        "rl": record.rl,
        "opd": record.opd,
        "replayed_in": list(record.replayed_in),
    }


def _sampled(turn: Turn) -> dict[str, Any]:
    return {
        "sampling": asdict(turn.sampling),
        "prompt_ids": list(turn.prompt_ids),
        "ids": list(turn.sampled.ids),
        "logprobs": list(turn.sampled.logprobs),
        "token_versions": list(turn.sampled.versions),
        "forced": list(turn.sampled.forced),
        "basis": turn.sampled.basis.value,
    }


def next_state(state: NextState) -> dict[str, Any]:
    feedback = None if state.feedback is None else asdict(state.feedback)
    return {"messages": [message.to_dict() for message in state.messages], "feedback": feedback}
