"""Scored groups of Atropos: the samples of one prompt. They have no teacher rows, which need the model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from afterwit.exporting.example import Example, LeftOut, Sampled, messages_of, sampled

NOT_TRAINED = -100
"""The mask of a position that does not train; elsewhere it is the id."""

PROMPT_LOGPROB = 1.0
"""In place of a log-prob that is not there, as the library writes it: no probability has this logarithm."""


def rows(examples: Iterable[Example]) -> Iterator[Mapping[str, Any] | LeftOut]:
    """One row for each prompt, when its last sample was read. The examples are iterated twice."""
    last = {
        found.example.prompt_key: found.turn.id
        for found in sampled(examples)
        if not isinstance(found, LeftOut)
    }
    waiting = defaultdict[str, list[Sampled]](list)
    for found in sampled(examples):
        if isinstance(found, LeftOut):
            yield found
            continue
        key = found.example.prompt_key
        waiting[key].append(found)
        if last.get(key) == found.turn.id:
            yield _row(key, waiting.pop(key))
    for key, group in waiting.items():  # recorded since they were first iterated
        yield _row(key, group)


def _row(key: str, group: Sequence[Sampled]) -> dict[str, Any]:
    return {
        "tokens": [[*each.turn.prompt_ids, *each.turn.sampled.ids] for each in group],
        "masks": [_masks(each) for each in group],
        "scores": [float(each.verdict.reward) for each in group],
        "inference_logprobs": [
            [PROMPT_LOGPROB] * len(each.turn.prompt_ids) + list(each.turn.sampled.logprobs) for each in group
        ],
        "messages": [messages_of([*each.turn.conversation.messages, each.turn.message]) for each in group],
        "overrides": [_overrides(each) for each in group],
        "group_overrides": {"group": key},
    }


def _masks(each: Sampled) -> list[int]:
    own = zip(each.turn.sampled.ids, each.turn.sampled.forced, strict=True)
    trained = [NOT_TRAINED if forced else token for token, forced in own]
    return [NOT_TRAINED] * len(each.turn.prompt_ids) + trained


def _overrides(each: Sampled) -> dict[str, Any]:
    """What the format has no field for."""
    turn = each.turn
    return {
        "turn": turn.id,
        "session": turn.session,
        "hints": list(each.verdict.hints),
        "versions": list(turn.sampled.versions),
        "temperature": turn.sampling.temperature,
        "logprobs_basis": turn.sampled.basis.value,
    }
