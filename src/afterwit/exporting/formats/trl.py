"""Samples for TRL: `prompt`, `completion` and `label` are what its trainers read; the rest is as sampled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from afterwit.exporting.example import Example, LeftOut, Sampled, messages_of, sampled, template_of, trains


def rows(examples: Iterable[Example]) -> Iterator[Mapping[str, Any] | LeftOut]:
    """One row for each sample."""
    for found in sampled(examples):
        yield found if isinstance(found, LeftOut) else _row(found)


def _row(found: Sampled) -> dict[str, Any]:
    turn, verdict = found.turn, found.verdict
    return {
        "prompt": messages_of(turn.conversation.messages),
        "completion": messages_of([turn.message]),
        **template_of(turn),
        "label": None if verdict.reward == 0 else verdict.reward > 0,
        "privileged_context": verdict.hints[0] if verdict.hints else None,
        "prompt_ids": list(turn.prompt_ids),
        "completion_ids": list(turn.sampled.ids),
        "env_mask": trains(turn),
        "logprobs": list(turn.sampled.logprobs),
        "logprobs_basis": turn.sampled.basis.value,
        "temperature": turn.sampling.temperature,
        "reward": float(verdict.reward),
        "advantage": found.example.advantage,
        "hints": list(verdict.hints),
        "rl": found.example.rl,
        "opd": found.example.opd,
        "versions": list(turn.sampled.versions),
        "group": found.example.prompt_key,
        "turn": turn.id,
        "session": turn.session,
    }
