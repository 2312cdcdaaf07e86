"""Samples for verl: the columns of its data sets, and what its batches hold, under their names, unpadded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from afterwit.exporting.example import Example, LeftOut, Sampled, messages_of, sampled, template_of, trains

SOURCE = "afterwit"


def rows(examples: Iterable[Example]) -> Iterator[Mapping[str, Any] | LeftOut]:
    """One row for each sample."""
    for found in sampled(examples):
        yield found if isinstance(found, LeftOut) else _row(found)


def _row(found: Sampled) -> dict[str, Any]:
    turn, verdict, mask = found.turn, found.verdict, trains(found.turn)
    return {
        "data_source": SOURCE,
        "prompt": messages_of(turn.conversation.messages),
        "ability": "agent",
        "reward_model": {"style": "recorded", "ground_truth": str(verdict.reward)},
        "extra_info": {
            "turn": turn.id,
            "session": turn.session,
            **template_of(turn),
            "hints": list(verdict.hints),
            "temperature": turn.sampling.temperature,
            "logprobs_basis": turn.sampled.basis.value,
            "rl": found.example.rl,
            "opd": found.example.opd,
        },
        "uid": found.example.prompt_key,
        "prompts": list(turn.prompt_ids),
        "responses": list(turn.sampled.ids),
        "response_mask": mask,
        "rollout_log_probs": list(turn.sampled.logprobs),
        "token_level_scores": [0.0] * (len(mask) - 1) + [float(verdict.reward)],
        "advantages": [found.example.advantage * trained for trained in mask],
        "versions": list(turn.sampled.versions),
    }
