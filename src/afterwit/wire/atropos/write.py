"""A group as the JSON that `POST /scored_data` takes."""

from __future__ import annotations

from typing import Any

from afterwit.wire.atropos.group import ScoredGroup, ScoredSequence
from afterwit.wire.atropos.notes import write_group_notes, write_notes
from afterwit.wire.atropos.profiles import SENTINEL, Profile, write_rows

OUTSIDE = -100
"""In `masks`, a token that is in no loss; any other holds its own id."""


def write(group: ScoredGroup, profile: Profile) -> dict[str, Any]:
    """The fields of a `ScoredDataGroup`. Its types hold finite numbers only, so this does.

    ValueError if a sequence has no log-probs: no group leaves without `inference_logprobs`. In the form
    `sampled` also if the policy sampled with top-p, top-k or min-p: teacher minus student would not be 0 for
    two that are the same.
    """
    if profile is Profile.SAMPLED and group.distils and group.notes is not None and group.notes.truncated:
        raise ValueError(
            "the policy's log-probs are of a truncated distribution, the teacher's of the whole one: sample "
            "with top_p 1, top_k 0 and min_p 0, or send the form `topk`"
        )
    own = [_inference_logprobs(sequence) for sequence in group.sequences]
    data: dict[str, Any] = {
        "tokens": [list(sequence.tokens) for sequence in group.sequences],
        "masks": [_mask(sequence) for sequence in group.sequences],
        "scores": [sequence.score for sequence in group.sequences],
        "advantages": None,
        "ref_logprobs": None,
        "messages": None,
        "inference_logprobs": own,
        "overrides": [write_notes(sequence.notes) for sequence in group.sequences],
        "group_overrides": {
            **group.overrides,
            "group_size": len(group.sequences),
            **write_group_notes(group.notes, profile=profile if group.distils else None),
        },
        "distill_token_ids": None,
        "distill_logprobs": None,
    }
    if group.sequences[0].advantages is not None:
        data["advantages"] = [list(sequence.advantages or ()) for sequence in group.sequences]
    if group.sequences[0].messages is not None:
        data["messages"] = [list(sequence.messages or ()) for sequence in group.sequences]
    if group.distils:
        written = [
            write_rows(profile, sequence.rows or (), sequence.tokens, logprobs)
            for sequence, logprobs in zip(group.sequences, own, strict=True)
        ]
        data["distill_token_ids"] = [ids for ids, _ in written]
        data["distill_logprobs"] = [logprobs for _, logprobs in written]
    return data


def _mask(sequence: ScoredSequence) -> list[int]:
    return [
        token if inside else OUTSIDE for token, inside in zip(sequence.tokens, sequence.mask, strict=True)
    ]


def _inference_logprobs(sequence: ScoredSequence) -> list[float]:
    if sequence.logprobs is None:
        raise ValueError("a group leaves with the log-probs that the policy reported, or not at all")
    return [SENTINEL if value is None else value for value in sequence.logprobs]
