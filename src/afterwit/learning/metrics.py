"""The measurements of an update, for the manifest: figures of its batch, and its effect on each turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from statistics import fmean
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from transformers import PreTrainedModel

from afterwit.errors import RequestError
from afterwit.judging.hinted_prompts import Rendering
from afterwit.learning.batch import Item
from afterwit.learning.passes import (
    ALONE,
    Packing,
    Ranks,
    Row,
    response_logits,
    stream_logits,
    stream_states,
    streamed,
    token_ratio,
)
from afterwit.learning.policy import Policy
from afterwit.learning.settings import LearnerSettings
from afterwit.objective.sample import Sample, Target
from afterwit.objective.terms import advantages, at, logprobs
from afterwit.promotion.suite import ItemRead, SuiteItem
from afterwit.turn import Conversation, Message
from afterwit.version import Effect

if TYPE_CHECKING:
    from afterwit.learning.update import UpdateState

UNHEEDED = 0.5
"""Nats: a hint that changes the log-prob of the whole response by less leaves the teacher as it was."""
CHUNK = 256
"""Tokens whose log-probs over the vocabulary are in memory at once."""

FORWARD_AND_BACKWARD = 3
"""Work of a token that is trained on, in tokens that are only read."""
SHARE_OF_EFFECTS = 0.1
"""The most that measuring effects may cost, as a share of the update's work."""
LEAST_OF_EFFECTS = 4096
"""Tokens that are read for it after the smallest update too."""


def figures(state: UpdateState) -> dict[str, float]:
    """Counts, token ratio, staleness, the teachers' gaps, and the engine's distance from the learner."""
    items, samples = state.items, state.samples
    staleness = [item.staleness for item in items] or [0]
    return {
        "samples": float(len(items)),
        "rl_samples": float(sum(sample.advantage is not None for sample in samples)),
        "opd_samples": float(sum(sample.taught for sample in samples)),
        "tokens": float(sum(int(sample.mask_T.sum()) for sample in samples)),
        "answer_tokens": fmean([len(sample.ids_T) for sample in samples] or [0]),
        "token_ratio": token_ratio([row for item in items for row in (item.student, *item.teachers)]),
        "staleness_mean": fmean(staleness),
        "staleness_max": float(max(staleness)),
        **_hints(state),
        **_mismatch(state),
    }


def _hints(state: UpdateState) -> dict[str, float]:
    """How many tokens each candidate taught; over these tokens, the means of |log pi_T - log pi_old| and of
    the overlap of the student's top-K ids with the teacher's. And the share of these turns whose response is
    as likely to the teacher with the hint as without it: a hint that it does not follow teaches nothing.
    `past_teacher` counts the answers that `stop_at_teacher` left out of distillation.
    """
    mine = {}
    for index, target in state.targets.items():
        if target.hint_T is not None and target.overlap_T is not None:
            sample = state.samples[index]
            read = (target.hint_T, target.tokens.gap_N, target.overlap_T)
            mine[index] = sample.overtaken, *(each[sample.mask_of("opd")].cpu() for each in read)
    taught = state.ranks.gathered(mine)
    if not taught:
        return {}
    overtaken, *tokens = zip(*taught.values(), strict=True)
    whole = [gap_N.sum().abs().item() for gap_N in tokens[1]]
    hint_N, gap_N, overlap_N = map(torch.cat, tokens)
    counts = enumerate(torch.bincount(hint_N).tolist())
    return {
        **{f"hint_{hint}_tokens": float(count) for hint, count in counts},
        "teacher_gap": gap_N.abs().mean().item(),
        "overlap": overlap_N.double().mean().item(),
        "unheeded": sum(each < UNHEEDED for each in whole) / len(whole),
        "past_teacher": float(sum(overtaken)),
    }


def _mismatch(state: UpdateState) -> dict[str, float]:
    """Mean and max |log pi_old - log pi_b| in nats, over turns that were sampled without truncation.

    `mismatch_fresh` is the mean over responses that these weights alone made. There engine and learner must
    agree; on older ones they differ, because the policy has moved.
    """
    parts = state.ranks.gathered(
        {
            index: target.mismatch_T[state.samples[index].mask_T].abs().cpu()
            for index, target in state.targets.items()
            if target.mismatch_T is not None and not state.items[index].behaviour.truncated
        }
    )
    if not parts:
        return {}
    mismatch_N = torch.cat(list(parts.values()))
    found = {"mismatch_mean": mismatch_N.mean().item(), "mismatch_max": mismatch_N.max().item()}
    if fresh := [gaps_T for index, gaps_T in parts.items() if is_fresh(state.items[index])]:
        found["mismatch_fresh"] = torch.cat(fresh).mean().item()
    return found


def is_fresh(item: Item) -> bool:
    """Whether the version that is being updated sampled the whole response, and read the prompt too.

    A response that was under way at a swap keeps the keys and values of older weights.
    """
    return item.staleness == 0 and not item.behaviour.older_cache


PLAIN = (
    ("What is the capital of France?", "The capital of France is Paris."),
    (
        "Write one sentence about the sea.",
        "The sea was calm, and the light of the moon lay on it like silver.",
    ),
    (
        "How do I list the files of a folder?",
        "Run `ls`, or `ls -la` to see hidden files with their sizes too.",
    ),
    ("Give me three fruits.", "1. Apples\n2. Pears\n3. Plums"),
)
"""Exchanges that no turn teaches: a change of their answers is a side effect."""


def plain_rows(rendering: Rendering) -> list[Row]:
    """The answers of `PLAIN` after their questions, as far as the model's template renders them."""
    rows = []
    for question, answer in PLAIN:
        asked = Message(role="user", content=question)
        answered = (asked, Message(role="assistant", content=answer), Message(role="user", content="Thanks."))
        try:
            prompt = rendering.prompt_ids(Conversation(messages=(asked,)))
            whole = rendering.prompt_ids(Conversation(messages=answered))
        except RequestError:
            continue
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(prompt, whole, strict=False)))
        if 0 < alike < len(whole):
            rows.append(Row(prompt=whole[:alike], response=whole[alike:]))
    return rows


@torch.no_grad()
def plain_kl(model: PreTrainedModel, base: PreTrainedModel, rows: Sequence[Row]) -> float:
    """The mean KL(base || model) of these responses' tokens, in nats: how far training moved answers
    that it does not teach. The batch's own KL does not show it."""
    total, count = 0.0, 0
    for row, *both in zip(rows, *(response_logits(each, rows) for each in (model, base)), strict=True):
        now_TV, then_TV = (logits_TV.float().log_softmax(-1) for logits_TV in both)
        total += float((then_TV.exp() * (then_TV - now_TV.to(then_TV.device))).sum())
        count += len(row.response)
    return total / count


def measure(state: UpdateState, count: int) -> tuple[Effect, ...]:
    return effects(state, range(count), measured=to_measure(state.items, count)) if count else ()


@torch.no_grad()
def effects(state: UpdateState, indices: Sequence[int], *, measured: Sequence[int]) -> tuple[Effect, ...]:
    """The effects on these items that are turns of the store, after the update's last epoch.

    The new weights are read for the `measured` items among them, by the rank that trained on each.
    """
    read = [index for index in measured if index in indices and state.items[index].turn is not None]
    chosen = [index for index in read if index in state.targets]  # `way_to_teacher` compares them
    rows = [(state.items[index].student, state.samples[index].tau) for index in chosen]
    outputs = response_logprobs(
        state.policy, rows, state.limit, state.packing, state.ranks, fused=state.fused
    )
    state.now = now = dict(zip(chosen, outputs, strict=True))
    means = {index: _mean(each, state.samples[index].mask_T) for index, each in now.items()}
    after = state.ranks.gathered(means)
    own = {
        index: _effect(state, index, turn, after.get(index))
        for index in indices
        if index in state.targets and (turn := state.items[index].turn) is not None
    }
    return tuple(state.ranks.gathered(own).values())


def _effect(state: UpdateState, index: int, turn: str, after: float | None) -> Effect:
    sample, target, objective = state.samples[index], state.targets[index], state.objective
    old_T, hinted_T = target.tokens.old_N, target.tokens.old_N + target.tokens.gap_N
    pushed_T = torch.zeros(len(sample.ids_T), dtype=torch.float64)
    for name in objective.terms_of(sample.carried):
        ids_TJ, values_TJ = advantages(name, target.tokens, objective)
        own_T = (values_TJ * (ids_TJ == sample.ids_T[:, None])).sum(dim=-1)
        own_T = torch.where(sample.taught_by(name), own_T, torch.zeros_like(own_T))
        pushed_T += objective.weights[name] * own_T.double().cpu()
    return Effect(
        turn=turn,
        before=_mean(old_T, sample.mask_T),
        after=after,
        hinted_before=None if target.hint_T is None else _mean(hinted_T, sample.mask_T),
        advantages=tuple(round(value, 3) for value in pushed_T.tolist()),
    )


def _mean(values_T: Tensor, mask_T: Tensor) -> float:
    return float(values_T.double()[mask_T.to(values_T.device)].mean())


def way_to_teacher(state: UpdateState) -> float | None:
    """The share of the way to the teacher that the update went, on the items that `effects` read again; None
    if no item was taught, or no teacher differed.

    With d = log pi - log pi_old and the teacher's gap g of the sampled tokens, it is sum(d g) / sum(g^2) of
    the items' means: the least-squares factor of the teacher's changes that the policy made, to which changes
    that have nothing to do with the teacher add nothing.
    """
    parts = {
        index: _way(now_T, state.samples[index], state.targets[index]) for index, now_T in state.now.items()
    }
    along, wanted = map(sum, zip((0.0, 0.0), *state.ranks.gathered(parts).values(), strict=True))
    return along / wanted if wanted else None


def _way(now_T: Tensor, sample: Sample, target: Target) -> tuple[float, float]:
    """The means of d g and of g^2 over one sample's tokens that are taught."""
    mask_T = sample.taught_by("opd")
    if target.hint_T is None or not bool(mask_T.any()):
        return 0.0, 0.0
    apart_T, gap_T = (now_T - target.tokens.old_N).double(), target.tokens.gap_N.double()
    return _mean(apart_T * gap_T, mask_T), _mean(gap_T**2, mask_T)


def work(items: Sequence[Item]) -> int:
    """The cost of one epoch over these items, in tokens that are only read."""
    trained = sum(len(item.student) for item in items)
    return FORWARD_AND_BACKWARD * trained + sum(len(row) for item in items for row in item.teachers)


def to_measure(items: Sequence[Item], new: int) -> list[int]:
    """The items among the first `new` whose effect is measured, ascending: those with hints before others,
    while they fit. Items of no store are left out."""
    left = max(LEAST_OF_EFFECTS, int(SHARE_OF_EFFECTS * work(items)))
    own = [index for index in range(new) if items[index].turn is not None]
    chosen = []
    for index in sorted(own, key=lambda index: not items[index].hints):
        if len(items[index].student) <= left:
            left -= len(items[index].student)
            chosen.append(index)
    return sorted(chosen)


def item_reads(
    policy: Policy, items: Sequence[SuiteItem], settings: LearnerSettings, ranks: Ranks = ALONE
) -> list[ItemRead]:
    """Each item under the policy, at temperature 1, in one pass."""
    rows = [Row(prompt=item.prompt_ids, response=item.ids) for item in items]
    mine = ranks.share([len(row) for row in rows])
    packing, limit = Packing.of(settings, policy.model), settings.pass_tokens
    outputs = streamed(stream_logits, policy.model, [rows[index] for index in mine], limit, packing, ranks)
    found = ranks.gathered(
        {index: _read(rows[index].response, each) for index, each in zip(mine, outputs, strict=True)}
    )
    return [found[index] for index in range(len(items))]


def _read(ids: Sequence[int], logits_TV: Tensor) -> ItemRead:
    ids_T, parts = torch.tensor(ids, device=logits_TV.device), list[Tensor]()
    for own_T, part_TV in zip(torch.split(ids_T, CHUNK), torch.split(logits_TV, CHUNK), strict=True):
        ends_T = ids_T[-1].expand(len(own_T))
        parts.append(at(logprobs(part_TV, 1.0), torch.stack([own_T, ends_T], dim=-1)))
    own, ends = torch.cat(parts).T.tolist()
    return ItemRead(own, ends)


def response_logprobs(
    policy: Policy,
    rows: Sequence[tuple[Row, float]],
    limit: int,
    packing: Packing,
    ranks: Ranks,
    *,
    fused: bool,
) -> Iterator[Tensor]:
    """The log-probs [T] of each row's response at its temperature, `CHUNK` tokens of logits at a time if they
    are read off the head's states."""
    stream = stream_states if fused else stream_logits
    outputs = streamed(stream, policy.model, [row for row, _ in rows], limit, packing, ranks)
    for (row, tau), output in zip(rows, outputs, strict=True):
        head, parts = policy.whole_head() if fused else None, list[Tensor]()
        ids_T = torch.tensor(row.response, device=output.device)
        for part, ids in zip(torch.split(output, CHUNK), torch.split(ids_T, CHUNK), strict=True):
            logits = part if head is None else head.logits(part, head.buffer(len(part)))
            parts.append(at(logprobs(logits, tau), ids))
        yield torch.cat(parts)
