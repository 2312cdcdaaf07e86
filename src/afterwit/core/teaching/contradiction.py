"""Whether a verdict stands against what several other sources approved. Pure.

A source is who speaks: a key and its client. One source that rewards what harms and punishes what is right
can turn a model, so a word that stands alone against several waits for a person. Who speaks first is not seen
here: what no two others approved is free to anyone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from afterwit.core.message import Message

OTHERS = 2
"""Other sources that must have approved a kind of call."""
TIMES_AS_OFTEN = 4
"""How much oftener they must have approved it than rejected it."""
TRUSTED_UNTIL = 2
"""Contradictions of a source from which its approvals wait for a person too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Votes:
    """What one source said of one kind of call."""

    approved: int = 0
    rejected: int = 0


def signature(message: Message) -> str | None:
    """The kind of a response's first tool call: its name, the names of its arguments, the flags among them.

    None for a response without a call. `delete {path, dry_run: true}` is another kind than `delete {path}`.
    """
    if not message.tool_calls:
        return None
    call = message.tool_calls[0]
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        return f"{call.name} ?"
    named = (f"{name}={value}" if isinstance(value, bool) else name for name, value in arguments.items())
    return " ".join([call.name, *sorted(named)])


def contradicts(
    reward: int, *, source: str, said: Mapping[str, Votes], earlier: int, spoken: bool = True
) -> bool:
    """Whether a verdict of `source` on a kind of call waits for a person.

    `said`: what each source said of this kind. `earlier`: contradictions of `source` that no person accepted.
    `spoken`: a person's word decided; without one a call only failed, as calls do now and then, and a source
    for which more of them worked than failed contradicts nobody: what it gives for and against them cancels.
    """
    if reward > 0:
        return earlier >= TRUSTED_UNTIL
    own = said.get(source, Votes())
    if not spoken and own.approved > own.rejected:
        return False
    others = [votes for name, votes in said.items() if name != source]
    approving = sum(1 for votes in others if votes.approved)
    approved, rejected = sum(v.approved for v in others), sum(v.rejected for v in others)
    return reward < 0 and approving >= OTHERS and approved >= TIMES_AS_OFTEN * rejected
