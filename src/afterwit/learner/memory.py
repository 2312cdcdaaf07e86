"""What the memory term holds on to: responses of the base to prompts that turns had, sampled anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from afterwit.core.judging.hints import Placement
from afterwit.core.sample import Sample
from afterwit.learner.batch import Rendering, hinted_prompts, temperature
from afterwit.learner.scoring.rows import Row
from afterwit.learner.settings import MemoryHints


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A prompt that the base is to answer, at its turn's temperature."""

    prompt: tuple[int, ...]
    tau: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A response of the base, at the temperature it was sampled at."""

    row: Row
    tau: float


def asks(
    samples: Sequence[Sample],
    rendering: Rendering,
    placement: Placement,
    *,
    count: int,
    hinted: MemoryHints,
    room: int,
    seed: int,
) -> list[Ask]:
    """At most `count` prompts of different turns, each of `room` tokens at most.

    Of `both`, half carry a hint as long as there are turns with hints.
    """
    found: list[Ask] = []
    with_hints = 0
    for sample in Random(seed).sample(list(samples), len(samples)):
        if len(found) == count:
            break
        fewer = bool(sample.verdict.hints) and 2 * with_hints <= len(found)
        with_hint = hinted == "with" or (hinted == "both" and fewer)
        prompt = _prompt(sample, rendering, placement, room, with_hint=with_hint)
        if prompt is not None:
            found.append(Ask(prompt=prompt, tau=temperature(sample.turn)))
            with_hints += with_hint
    return found


def _prompt(
    sample: Sample, rendering: Rendering, placement: Placement, room: int, *, with_hint: bool
) -> tuple[int, ...] | None:
    if not with_hint:
        return sample.turn.prompt_ids if len(sample.turn.prompt_ids) <= room else None
    hinted, _ = hinted_prompts(sample.turn, sample.verdict.hints[:1], rendering, placement, room)
    return hinted[0][1] if hinted else None


@torch.no_grad()
def answers(
    base: PreTrainedModel, asked: Sequence[Ask], *, most: int, end_ids: frozenset[int], seed: int
) -> list[Memory]:
    """The base's responses, sampled together; the same for the same asks and seed."""
    if not asked:
        return []
    generator = torch.Generator(base.device).manual_seed(seed)
    ids_BL, seen_BL = _padded_left([ask.prompt for ask in asked], base.device)
    tau_B1 = torch.tensor([[ask.tau] for ask in asked], device=base.device)
    ends = torch.tensor(sorted(end_ids), device=base.device)
    over_B = torch.zeros(len(asked), dtype=torch.bool, device=base.device)
    cache, drawn = DynamicCache(), list[Tensor]()
    place_B = seen_BL.sum(dim=1)
    places_BL = (seen_BL.cumsum(dim=1) - 1).clamp(min=0)
    while len(drawn) < most and not bool(over_B.all()):
        out = base(
            input_ids=ids_BL,
            attention_mask=seen_BL,
            position_ids=places_BL,
            past_key_values=cache,
            logits_to_keep=1,
        )
        ids_BL = torch.multinomial(
            (out.logits[:, -1].float() / tau_B1).softmax(dim=-1), 1, generator=generator
        )
        drawn.append(ids_BL[:, 0])
        over_B = over_B | torch.isin(ids_BL[:, 0], ends)
        seen_BL = torch.cat([seen_BL, torch.ones_like(ids_BL)], dim=1)
        places_BL, place_B = place_B[:, None], place_B + 1
    return [
        Memory(row=Row(prompt=ask.prompt, response=_until_end(ids, end_ids)), tau=ask.tau)
        for ask, ids in zip(asked, torch.stack(drawn, dim=1).tolist(), strict=True)
    ]


def _until_end(ids: Sequence[int], end_ids: frozenset[int]) -> tuple[int, ...]:
    at = next((at for at, token in enumerate(ids) if token in end_ids), len(ids) - 1)
    return tuple(ids[: at + 1])


def _padded_left(prompts: Sequence[tuple[int, ...]], device: torch.device) -> tuple[Tensor, Tensor]:
    longest = max(map(len, prompts))
    ids = [[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
    seen = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(ids, device=device), torch.tensor(seen, device=device)
