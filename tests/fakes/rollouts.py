"""Rollouts made up for tests: an agent that calls a tool in each turn, over made-up ids."""

from __future__ import annotations

from typing import Any

from afterwit.lifecycle import Reason
from afterwit.turn import Conversation, Message, Sampled, ToolCall, Turn
from afterwit.verdict import Feedback, Source, Verdict
from afterwit_atropos.rollout import Rollout, ScoredRollout, ScoredTurn, TeacherRow, Unscored
from tests.fakes.turns import a_turn

TOOL = {"type": "function", "function": {"name": "terminal", "parameters": {"type": "object"}}}
HINT = "List the folder before you open a file."


def a_rollout(count: int = 3, *, response: int = 4, between: int = 5, **changes: Any) -> Rollout:
    """`count` calls of a tool, each prompt being all that was before it; ids count up from 1."""
    messages = [Message(role="user", content="Fix the test.")]
    ids, taken = tuple(range(1, 8)), dict[int, Turn]()
    for number in range(count):
        sampled = tuple(range(len(ids) + 1, len(ids) + 1 + response))
        call = ToolCall(id=f"call{number}", name="terminal", arguments="{}")
        message = Message(role="assistant", tool_calls=(call,))
        taken[len(messages)] = a_turn(
            f"turn{number}",
            conversation=Conversation(messages=tuple(messages), tools=(TOOL,)),
            prompt_ids=ids,
            sampled=Sampled(
                ids=sampled,
                logprobs=tuple(-0.1 * (at + 1) for at in range(response)),
                versions=(3,) * response,
                forced=(False,) * response,
            ),
            message=message,
        )
        messages += [message, Message(role="tool", content=f"result {number}", tool_call_id=call.id)]
        ids += sampled
        ids += tuple(range(len(ids) + 1, len(ids) + 1 + between))
    fields: dict[str, Any] = {"messages": tuple(messages), "turns": taken, "outcome": Feedback(reward=1)}
    return Rollout(**fields | changes)


def rows_of(turn: Turn, k: int = 3) -> tuple[TeacherRow, ...]:
    """Rows of a made-up teacher: the sampled id, then k - 1 others."""
    others = tuple(range(1000, 1000 + k - 1))
    falling = tuple(-2.0 - at for at in range(k - 1))
    return tuple(
        TeacherRow(ids=(token, *others), logprobs=(-0.3 - 0.05 * at, *falling))
        for at, token in enumerate(turn.sampled.ids)
    )


def a_scored_rollout(
    rollout: Rollout | None = None, *, unscored: tuple[int, ...] = (), k: int = 3
) -> ScoredRollout:
    """A rollout whose turns have rows, but for those at these places."""
    rollout = rollout or a_rollout()
    verdict = Verdict(reward=-1, source=Source.VOTES, hints=(HINT,))
    turns = [
        Unscored(turn=turn, reason=Reason.NO_SIGNAL)
        if at in unscored
        else ScoredTurn(
            turn=turn,
            verdict=verdict,
            hints=(HINT,),
            chosen=(0,) * len(turn.sampled.ids),
            rows=rows_of(turn, k),
            teacher_version=3,
        )
        for at, turn in enumerate(rollout.in_order)
    ]
    return ScoredRollout(rollout=rollout, turns=tuple(turns), teacher="live")
