"""Atropos's `ScoredDataGroup`, in and out. Between `write` and `read` it is our own frozen types.

group      a group, its sequences, and what Afterwit notes beside them
profiles   the two forms of teacher rows on the wire
rollouts   scored rollouts as a group
write      a group as JSON
read       JSON as a group, or BadGroup with the reason; columns: its fields
notes      what travels in `overrides` and `group_overrides`
"""

from afterwit.wire.atropos.columns import BadGroup, Refusal
from afterwit.wire.atropos.group import GroupNotes, ScoredGroup, ScoredSequence, SequenceNotes, TurnNotes
from afterwit.wire.atropos.profiles import Profile
from afterwit.wire.atropos.read import read
from afterwit.wire.atropos.rollouts import group_of
from afterwit.wire.atropos.write import write

__all__ = [
    "BadGroup",
    "GroupNotes",
    "Profile",
    "Refusal",
    "ScoredGroup",
    "ScoredSequence",
    "SequenceNotes",
    "TurnNotes",
    "group_of",
    "read",
    "write",
]
