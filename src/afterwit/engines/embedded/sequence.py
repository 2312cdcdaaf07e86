"""One response while it is sampled: its ids so far, how its next id is drawn, when it ends.

From next-token logits to ids and log-probs, for all rows at once. Axes: B rows, V vocabulary. The mask comes
first. The rest has the order of transformers: penalties and bias, temperature, top-k, top-p, min-p. A
log-prob is of the distribution that was drawn from, after all of these, renormalised. A greedy row
(`Sampling.greedy`) takes the most likely id, the lower of two equal ones; its log-prob is at temperature 1,
without truncation. A forced id replaces the draw and is never truncated away, so its log-prob is finite.
"""

from __future__ import annotations

import random
from array import array
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from afterwit.engines.embedded.cache import Beginning, Row
from afterwit.engines.embedded.grammar import Guide
from afterwit.engines.port import Facts, Generate, Step, TopLogprobs
from afterwit.errors import RequestRefused
from afterwit.objective.terms import top_k as largest
from afterwit.turn import Sampling
from afterwit.weights.weights import Factors


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    sampling: Sampling
    uniform: float
    """In [0, 1). The only randomness of the draw, so that a seed gives the same ids in any batch."""
    counts: Mapping[int, int] = field(default_factory=dict)
    """How often each id occurs in the response so far. Read if the sampling has penalties."""
    prompt: frozenset[int] = frozenset()
    """The ids of the prompt. Read if the sampling has a repetition penalty."""
    forced: int | None = None
    mask: Callable[[], Tensor | None] | None = None
    """Whether each id may be drawn, [V]; all may if it gives None. Called once the logits are there."""
    top_logprobs: int | None = None
    """How many alternatives to return; None: none, nor the model's own log-prob."""


Drawn = tuple[int, float, TopLogprobs | None]
"""An id, its log-prob, not finite if the logits are not, and the alternatives that the row requests."""


def draw(logits_BV: Tensor, draws: Sequence[Draw]) -> list[Drawn]:
    logits_BV, device = logits_BV.float(), logits_BV.device
    scaled_BV = _shaped(logits_BV, draws)
    temperatures = [1.0 if row.sampling.greedy else row.sampling.temperature for row in draws]
    if any(temperature != 1.0 for temperature in temperatures):
        scaled_BV = scaled_BV / torch.tensor(temperatures, device=device)[:, None]
    scaled_BV = _truncated(scaled_BV, draws)
    relative_BV = scaled_BV - scaled_BV.amax(-1, keepdim=True)
    # Apple's GPUs have no float64
    cdf_BV = relative_BV.exp().cumsum(-1, dtype=torch.float32 if device.type == "mps" else torch.float64)
    ids_B = _inverse_cdf(cdf_BV, [row.uniform for row in draws])
    if any(row.sampling.greedy for row in draws):
        greedy_B = torch.tensor([row.sampling.greedy for row in draws], device=device)
        ids_B = torch.where(greedy_B, relative_BV.argmax(-1), ids_B)
    for index, row in enumerate(draws):
        if row.forced is not None:
            ids_B[index] = row.forced
    logprobs_B = relative_BV.gather(-1, ids_B[:, None])[:, 0] - cdf_BV[:, -1].log()
    chosen = zip(ids_B.tolist(), logprobs_B.tolist(), logits_BV, draws, strict=True)
    return [
        (token, logprob, _top(logits_V, token, row.top_logprobs)) for token, logprob, logits_V, row in chosen
    ]


def _top(logits_V: Tensor, drawn: int, count: int | None) -> TopLogprobs | None:
    if count is None:
        return None
    logprobs_V = logits_V.log_softmax(-1)
    ids_K = largest(logprobs_V[None], max(1, count))[0, :count]
    return TopLogprobs(
        sampled=logprobs_V[drawn].item(),
        ids=tuple(ids_K.tolist()),
        logprobs=tuple(logprobs_V[ids_K].tolist()),
    )


def _shaped(logits_BV: Tensor, draws: Sequence[Draw]) -> Tensor:
    """-inf for the ids that a row may not draw, then penalties and bias. The same tensor if there are none.

    Repetition reads prompt and response; frequency and presence the response only (OpenAI).
    """
    masks_V = [None if row.mask is None else row.mask() for row in draws]
    if all(mask_V is None and not row.sampling.penalised for mask_V, row in zip(masks_V, draws, strict=True)):
        return logits_BV
    shaped_BV, device = logits_BV.clone(), logits_BV.device
    for logits_V, mask_V, row in zip(shaped_BV, masks_V, draws, strict=True):
        sampling = row.sampling
        if mask_V is not None:
            logits_V.masked_fill_(~mask_V.to(device), -torch.inf)
        if (repetition := sampling.repetition_penalty) != 1.0:
            seen = torch.tensor(sorted(row.prompt.union(row.counts)), dtype=torch.long, device=device)
            old = logits_V[seen]
            logits_V[seen] = torch.where(old < 0, old * repetition, old / repetition)
        if row.counts and (sampling.frequency_penalty or sampling.presence_penalty):
            ids = torch.tensor(list(row.counts), device=device)
            counts = torch.tensor(list(row.counts.values()), dtype=torch.float32, device=device)
            logits_V[ids] -= sampling.frequency_penalty * counts + sampling.presence_penalty
        for token, bias in sampling.logit_bias:
            logits_V[token] += bias
    return shaped_BV


def _inverse_cdf(cdf_BV: Tensor, uniforms: Sequence[float]) -> Tensor:
    """The first id whose cumulative weight exceeds the uniform's share, [B]. Never an id of weight 0."""
    total_B = cdf_BV[:, -1]
    share_B = torch.tensor(uniforms, dtype=cdf_BV.dtype, device=cdf_BV.device) * total_B
    share_B = torch.minimum(share_B, torch.nextafter(total_B, torch.zeros_like(total_B)))
    found_B = torch.searchsorted(cdf_BV, share_B[:, None], right=True)[:, 0]
    return found_B.clamp_(max=cdf_BV.shape[-1] - 1)


def _truncated(scaled_BV: Tensor, draws: Sequence[Draw]) -> Tensor:
    """Top-k, top-p and min-p, each over what the one before left."""
    rows = [index for index, row in enumerate(draws) if row.sampling.truncated and not row.sampling.greedy]
    if not rows:
        return scaled_BV
    settings = [draws[index].sampling for index in rows]
    left_BV = top_k(scaled_BV[rows], [sampling.top_k for sampling in settings])
    left_BV = top_p(left_BV, [sampling.top_p for sampling in settings])
    kept_BV = scaled_BV.clone()
    kept_BV[rows] = min_p(left_BV, [sampling.min_p for sampling in settings])
    for index in rows:
        if (forced := draws[index].forced) is not None:
            kept_BV[index, forced] = scaled_BV[index, forced]
    return kept_BV


def top_k(scaled_BV: Tensor, ks: Sequence[int]) -> Tensor:
    """Each row without all but its k largest (ties with the k-th stay); k = 0 keeps all."""
    most = min(max(ks), scaled_BV.shape[-1])
    if most == 0:
        return scaled_BV
    places_B = torch.tensor([min(k, most) - 1 for k in ks], device=scaled_BV.device)
    kth_B = scaled_BV.topk(most).values.gather(-1, places_B.clamp(min=0)[:, None])[:, 0]
    least_B = kth_B.masked_fill(places_B < 0, -torch.inf)
    return scaled_BV.masked_fill(scaled_BV < least_B[:, None], -torch.inf)


def top_p(scaled_BV: Tensor, ps: Sequence[float]) -> Tensor:
    """Each row without the ids that follow, in falling order, once a mass of p is kept; the first stays."""
    if min(ps) >= 1.0:
        return scaled_BV
    masses_B = torch.tensor([p if p < 1.0 else torch.inf for p in ps], device=scaled_BV.device)
    falling_BV, order_BV = scaled_BV.sort(descending=True, stable=True)
    probs_BV = falling_BV.softmax(-1)
    beyond_BV = probs_BV.cumsum(-1) - probs_BV >= masses_B[:, None]
    beyond_BV[:, 0] = False
    return scaled_BV.masked_fill(torch.zeros_like(beyond_BV).scatter_(-1, order_BV, beyond_BV), -torch.inf)


def min_p(scaled_BV: Tensor, ps: Sequence[float]) -> Tensor:
    """Each row without the ids less probable than p times its most probable."""
    if max(ps) <= 0.0:
        return scaled_BV
    probs_BV = scaled_BV.softmax(-1)
    least_B = probs_BV.amax(-1) * torch.tensor(ps, device=scaled_BV.device)
    return scaled_BV.masked_fill(probs_BV < least_B[:, None], -torch.inf)


Deliver = Callable[[Step | Exception], None]


@dataclass(slots=True, eq=False)
class Served:
    """The active weights of an adapter, shared by its running responses and updated at a swap.

    Keys and values are cached under it.
    """

    version: int
    factors: Factors | None = None
    """Added to the module; None: the module alone."""


class ResponseSequence:
    """A request and its response. Owned by the worker's thread once it is submitted.

    `cached` counts the positions with keys and values. Once its first id is drawn, these are the prompt and
    the response without its last id.
    """

    def __init__(
        self,
        request: Generate,
        *,
        facts: Facts,
        scripted: tuple[int, ...],
        seed: int,
        deliver: Deliver,
        guide: Guide | None = None,
    ) -> None:
        """The request fits the model. `seed` is used if it has none. `guide` enforces its constraint."""
        sampling = request.sampling
        self.request = request
        self.background, self.further = request.background, request.further
        self.deliver = deliver
        self.prompt = array("i", request.prompt_ids)
        self.response_ids: list[int] = []
        self.served = Served(0)
        """Set by the runner that accepts it."""
        self.row: Row
        """Keys and values of its text up to some position. Set when it is started."""
        self.start = 0
        """The number of positions that it attends to in its row. The others are in the batch, see `Batch`."""
        self.cached = 0
        self.read = 0
        """Prompt tokens that were read for it alone."""
        self.owed = 0.0
        """Work on its prompt beyond its share, see `PrefillBudget`."""
        self._limit = min(sampling.max_tokens, facts.context_length - len(request.prompt_ids))
        goes_on = sampling.ignore_eos and guide is None
        self._end_ids = frozenset(sampling.stop_ids) | (frozenset() if goes_on else facts.end_ids)
        self._guide = guide
        self._rng = random.Random(seed if sampling.seed is None else sampling.seed)
        self._given = deque([(token, True) for token in request.forced_prefix])
        self._given.extend((token, False) for token in scripted)
        """Ids that replace drawn ones, and whether each is flagged as forced."""
        self._in_prompt = frozenset(request.prompt_ids) if sampling.repetition_penalty != 1.0 else frozenset()
        self._counts: Counter[int] = Counter()
        self._cache_version: int | None = None

    @property
    def uncached(self) -> int:
        """Prompt tokens without keys and values."""
        return len(self.prompt) - self.cached

    @property
    def last_id(self) -> int:
        """The id that its next forward reads, once all before it is cached."""
        return self.response_ids[-1] if self.response_ids else self.prompt[-1]

    @property
    def beginning(self) -> Beginning | None:
        return Beginning(self.row, self.start) if self.start else None

    @property
    def text(self) -> array[int]:
        """The ids of its cached positions."""
        return (self.prompt + array("i", self.response_ids))[: self.cached]

    def extend_cache(self, tokens: int) -> None:
        """Count positions that were found or added in the cache under its present weights."""
        self.cached += tokens
        if self._cache_version is None:
            self._cache_version = self.served.version

    @property
    def refusal(self) -> RequestRefused | None:
        """Why it cannot go on, if its constraint has become too much work."""
        return None if self._guide is None else self._guide.refusal

    @property
    def awaited(self) -> Future[Any] | None:
        """The mask that its next id must wait for; None: the id can be drawn."""
        return None if self._given or self._guide is None else self._guide.awaited

    def draw(self) -> Draw:
        """How the next id is drawn. Takes one number from the sequence's generator."""
        return Draw(
            sampling=self.request.sampling,
            uniform=self._rng.random(),
            counts=self._counts,
            prompt=self._in_prompt,
            forced=self._given[0][0] if self._given else None,
            mask=None if self._given or self._guide is None else self._guide.mask,
            top_logprobs=self.request.top_logprobs,
        )

    def accept(self, token: int, logprob: float, top: TopLogprobs | None) -> Step:
        """Append the drawn id and advance the constraint. Returns the step to deliver."""
        forced = False
        stopped, full = token in self._end_ids, len(self.response_ids) + 1 >= self._limit
        if self._given:
            forced = self._given.popleft()[1]
        elif self._guide is not None:
            forced = self._guide.masks
            if not stopped:
                self._guide.accept(token)
        self.response_ids.append(token)
        if self.request.sampling.penalised:
            self._counts[token] += 1
        return Step(
            ids=(token,),
            logprobs=(logprob,),
            versions=(self.served.version,),
            forced=(forced,),
            top_logprobs=() if top is None else (top,),
            cache_version=self._cache_version,
            cached=len(self.prompt) - self.read if len(self.response_ids) == 1 else None,
            ended="stop" if stopped else "length" if full else None,
        )
