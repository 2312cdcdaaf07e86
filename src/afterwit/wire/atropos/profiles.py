"""The two forms of teacher rows on the wire. Row i is the teacher's distribution for `tokens[i]`.

`sampled`: one id a position, the sampled one, with the teacher's log-prob of it. A position that is not
distilled repeats what is in `inference_logprobs`, so that teacher minus student is 0 there.

`topk`: the sampled id first, then the likeliest others, falling. A position that is not distilled is empty.

There are no rows of zeros: log-prob 0 is probability 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

from afterwit.core.rollout import TeacherRow

SENTINEL = 1.0
"""`inference_logprobs` of a token that the policy did not sample. No log-prob is above 0."""

MOST_MASS = 1.05
"""The most that a row's probabilities may sum to, rounded as they are."""

Wire = tuple[list[list[int]], list[list[float]]]
"""`distill_token_ids` and `distill_logprobs` of one sequence."""


class Profile(StrEnum):
    """How teacher rows are written."""

    SAMPLED = "sampled"
    """What a consumer reads that puts teacher minus student in the place of the advantage."""
    TOPK = "topk"


def write_rows(
    profile: Profile,
    rows: Sequence[TeacherRow | None],
    tokens: Sequence[int],
    inference_logprobs: Sequence[float],
) -> Wire:
    """Rows in the form of a profile, all as long as `tokens`."""
    if profile is Profile.TOPK:
        return [list(row.ids) if row else [] for row in rows], [
            list(row.logprobs) if row else [] for row in rows
        ]
    logprobs = [[row.logprobs[0] if row else own] for row, own in zip(rows, inference_logprobs, strict=True)]
    return [[token] for token in tokens], logprobs


def profile_of(ids: Sequence[Sequence[Sequence[int]]]) -> Profile:
    """The form of a group's `distill_token_ids`: `sampled` if every position of every sequence has one id."""
    return Profile.SAMPLED if all(len(row) == 1 for rows in ids for row in rows) else Profile.TOPK


def read_rows(
    profile: Profile,
    ids: Sequence[Sequence[int]],
    logprobs: Sequence[Sequence[float]],
    tokens: Sequence[int],
    own: Sequence[float],
) -> tuple[TeacherRow | None, ...]:
    """The rows of one sequence; `own` is its `inference_logprobs`. ValueError for what is no row.

    In the form `sampled`, a position whose value is its own log-prob has no row: it teaches nothing.
    """
    return tuple(
        _row(profile, at, ids[at], logprobs[at], tokens[at], own[at] if own else None)
        for at in range(len(tokens))
    )


def _row(
    profile: Profile,
    at: int,
    ids: Sequence[int],
    logprobs: Sequence[float],
    token: int,
    own: float | None,
) -> TeacherRow | None:
    if len(ids) != len(logprobs):
        raise ValueError(f"{len(ids)} teacher ids but {len(logprobs)} log-probs at token {at}")
    if not ids or (profile is Profile.SAMPLED and ids[0] == token and logprobs[0] == own):
        return None
    if ids[0] != token:
        raise ValueError(f"the teacher's row at token {at} begins with id {ids[0]}, not the sampled {token}")
    try:
        row = TeacherRow(ids=tuple(ids), logprobs=tuple(map(float, logprobs)))
        if (mass := sum(map(math.exp, row.logprobs))) > MOST_MASS:
            raise ValueError(f"the probabilities of a teacher's row sum to {mass:.3g}")
        return row
    except ValueError as error:
        raise ValueError(f"token {at}: {error}") from error
