"""Forced decoding: scripted ids in place of sampled ones, with the model's own log-probs and streaming."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Script = Callable[[tuple[int, ...]], Sequence[int] | None]
"""Takes a prompt's ids. Returns the ids of its whole response, or None to sample it.

An end id is added if the response has none. Scripted ids are not flagged as forced: they count as sampled,
which is what tests want.
"""


def scripted(script: Script | None, prompt_ids: tuple[int, ...], end_ids: frozenset[int]) -> tuple[int, ...]:
    """The ids to use instead of sampled ones, end id included; empty if the response is sampled."""
    ids = script(prompt_ids) if script else None
    if ids is None:
        return ()
    ended = bool(ids) and ids[-1] in end_ids
    return (*ids, *(() if ended or not end_ids else (min(end_ids),)))
