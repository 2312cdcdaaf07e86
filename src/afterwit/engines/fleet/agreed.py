"""Whether servers serve the same model, and what all of them can do. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from afterwit.core.agreement import gap, most
from afterwit.core.errors import SettingError
from afterwit.engines.fleet.member import Member
from afterwit.engines.port import Capabilities, Facts

MODEL = ("model", "vocabulary", "end_ids", "fingerprint", "dtype")
"""The facts that all must share."""
UNPROMISED = ("basis", "remedies")
"""Of what a fleet can: `common` compares the one, the other is words."""


def same_facts(members: Sequence[Member]) -> Facts:
    """The facts of all: the shortest context. SettingError with both names if they serve different models."""
    first, *others = members
    ours = first.engine.facts
    for other in others:
        theirs = other.engine.facts
        for name in MODEL:
            if (one := getattr(ours, name)) != (two := getattr(theirs, name)):
                raise SettingError(
                    f"the servers of engine.url differ: {name} is {one} at {first.name}, but {two} at "
                    f"{other.name}; start all with the same model and --dtype"
                )
        one, two = (each.engine.proof.said[1.0] for each in (first, other))
        apart, limit = gap(one, two), most(ours.dtype)
        if not apart <= limit:
            raise SettingError(
                f"the servers of engine.url do not serve the same weights: of the same ids the log-probs at "
                f"{first.name} and {other.name} differ by {apart:.2g} on average, and at most {limit:g} is "
                "right; start all with the same model"
            )
    return replace(ours, context_length=min(each.engine.facts.context_length for each in members))


def check_joins(member: Member, first: Member, facts: Facts, promised: Capabilities) -> None:
    """SettingError if a server that comes later is not of the fleet's model, or can less than was promised.

    `facts` and `promised` are the fleet's, which hold for as long as it runs.
    """
    shortest = same_facts([first, member]).context_length
    if shortest < facts.context_length:
        raise SettingError(
            f"the context of {member.name} is {shortest} ids, but the fleet began with "
            f"{facts.context_length}: start that server with as much, or Afterwit again with it there"
        )
    can = common([first, member])
    for field in fields(promised):
        if field.name not in UNPROMISED and _less(getattr(can, field.name), getattr(promised, field.name)):
            raise SettingError(
                f"{member.name} can less than the fleet began with ({field.name}): start that server with "
                "the same flags, or Afterwit again with it there"
            )


def _less(can: bool | int | None, promised: bool | int | None) -> bool:
    """None: without bound."""
    return can is not None and (promised is None or can < promised)


def common(members: Sequence[Member]) -> Capabilities:
    """What every one can do. SettingError if their log-probs are of different distributions."""
    all_can = [each.engine.capabilities for each in members]
    first = all_can[0]
    for member, can in zip(members, all_can, strict=True):
        if can.basis is not first.basis:
            raise SettingError(
                f"log-probs are {first.basis.value} at {members[0].name}, but {can.basis.value} at "
                f"{member.name}: start the servers of engine.url with the same flags"
            )
    probes = [can.longest_probe for can in all_can if can.longest_probe is not None]
    return Capabilities(
        basis=first.basis,
        base_weights=all(can.base_weights for can in all_can),
        forced_prefix=all(can.forced_prefix for can in all_can),
        whole_weights=all(can.whole_weights for can in all_can),
        adapters=all(can.adapters for can in all_can),
        own_adapters=all(can.own_adapters for can in all_can),
        constraint=all(can.constraint for can in all_can),
        top_logprobs=min(can.top_logprobs for can in all_can),
        scored_ids=min(can.scored_ids for can in all_can),
        scored_tau=all(can.scored_tau for can in all_can),
        longest_probe=min(probes) if probes else None,
        remedies=first.remedies,
    )
