"""What a version and its parent would answer: greedy samples of the prompts that it learned from."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from afterwit.apps import build
from afterwit.apps.config import Settings
from afterwit.core.errors import SettingError
from afterwit.core.turn import Turn

if TYPE_CHECKING:
    from afterwit.learner.policy import Policy

MOST_TOKENS = 256
"""Tokens of an answer at most."""


def answers(
    settings: Settings, home: Path, folder: Path, number: int, turns: Sequence[Turn]
) -> dict[str, tuple[str, str]]:
    """Turn -> the answers before and after. SettingError if the weights of either version are gone."""
    from afterwit.learner.policy import Policy
    from afterwit.wire.model_text.render import Renderer

    versions = build.versions_of(home, folder, settings.versions)
    renderer = Renderer.load(folder)
    versions.follow()
    version = versions.get(number)
    if version is None or version.parent is None:
        raise SettingError(f"version {number} has no version before it to compare with")
    learner = build.learner_settings(settings.learner, home, folder)
    found = []
    for each in (version.parent, number):
        policy = Policy.load(versions, each, learner)
        said = (_greedy(policy, turn, renderer.end_ids) for turn in turns)
        found.append([" ".join(renderer.decode(ids).split()) for ids in said])
    return {turn.id: pair for turn, pair in zip(turns, zip(*found, strict=True), strict=True)}


def _greedy(policy: Policy, turn: Turn, end_ids: Collection[int]) -> list[int]:
    """The ids that the policy finds likeliest, without its end of turn and what is behind."""
    import torch

    prompt = torch.tensor([turn.prompt_ids], device=policy.model.device)
    with torch.no_grad():
        ids = policy.model.generate(
            input_ids=prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            max_new_tokens=MOST_TOKENS,
            pad_token_id=0,
        )
    return list(takewhile(lambda token: token not in end_ids, ids[0, prompt.shape[1] :].tolist()))
