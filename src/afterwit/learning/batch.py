"""A batch: judged samples become items, which an update scores, and items become the objective's samples.

Each judged sample is given its hinted prompts, or refused; that is pure. The scores of teachers that ran
elsewhere (rows that came with a batch, or those of a server) join an item as it becomes a sample.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Self

import torch
from torch import Tensor

from afterwit.engines.port import Ids, Scored, TeacherRow, TeacherServer
from afterwit.engines.teacher import given_ids
from afterwit.errors import RequestError
from afterwit.fused_head.head import score_states
from afterwit.judging.hinted_prompts import Placement, Rendering, hinted_prompts, recites
from afterwit.learning.passes import NEVER, Ranks, Row, stream_logits, stream_states, streamed
from afterwit.lifecycle import Reason
from afterwit.objective.sample import Advantages, Sample, TeacherRows, advantages
from afterwit.objective.settings import ObjectiveSettings, Rewarded
from afterwit.objective.terms import top_k
from afterwit.turn import SHARED, Basis, Turn, scoring_temperature
from afterwit.verdict import Carried, JudgedTurn, confidence, untrainable
from afterwit.version import versions_between

if TYPE_CHECKING:
    from afterwit.learning.policy import Policy

DIGEST_BYTES = 16
AS_SAMPLED = ("",)
"""No hint: the teacher reads the recorded prompt. It may have lessons that the student does not read; or the
response recites a hint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLimits:
    """The most tokens of prompt and response, and the most versions before `version`."""

    max_tokens: int
    max_staleness: int
    version: int
    chain: Sequence[int]
    """The numbers of the adapter's versions, ascending."""
    adapter: str = SHARED


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One response of an update."""

    turn: str | None
    """The turn of the store that it is; None: it is of no store."""
    behaviour: Behaviour
    student: Row
    teachers: tuple[Row, ...]
    """The same response after each hint whose teacher runs, shortest hint first; none: no OPD term."""
    hints: tuple[str, ...]
    """The hints of `teachers`."""
    teacher_rows: tuple[TeacherRow | None, ...] | None = None
    """The scores of each token by a teacher that ran elsewhere, None where it is not distilled."""
    reward: float | None
    """None: no RL term."""
    group: tuple[float, ...] = ()
    """The rewards of all judged samples of the turn's prompt, this one included; (): not asked for."""
    staleness: int
    """Versions between the update and the oldest token's."""
    disliked: bool = field(default=False, repr=False)  # no part of the digest: earlier ones lack it
    """Whether the verdict's reward is -1, even if the item has no RL term."""

    def __post_init__(self) -> None:
        tokens = len(self.student.response)
        for name, values in (
            ("forced", self.behaviour.forced),
            ("logprobs", self.behaviour.logprobs),
            ("teacher rows", self.teacher_rows),
        ):
            if values is not None and len(values) != tokens:
                raise ValueError(f"{tokens} ids but {len(values)} {name}")

    @property
    def digest(self) -> str:
        """BLAKE2b of everything that an update reads."""
        return hashlib.blake2b(repr(replace(self, hints=())).encode(), digest_size=DIGEST_BYTES).hexdigest()


class Refused(NamedTuple):
    """A turn that cannot train, and why."""

    turn: str
    reason: Reason


def build_items(
    samples: Sequence[JudgedTurn],
    rendering: Rendering,
    placement: Placement,
    limits: TurnLimits,
    objective: ObjectiveSettings,
) -> tuple[list[Item], list[Refused]]:
    """Each sample as an item, or refused with its reason; in order."""
    items, refused = list[Item](), list[Refused]()
    for sample in samples:
        found = _item(sample, rendering, placement, limits, objective)
        if isinstance(found, Item):
            items.append(found)
        else:
            refused.append(Refused(sample.turn.id, found))
    return items, refused


def _item(
    sample: JudgedTurn,
    rendering: Rendering,
    placement: Placement,
    limits: TurnLimits,
    objective: ObjectiveSettings,
) -> Item | Reason:
    turn, tokens, staleness = sample.turn, sample.turn.sampled.ids, 1
    if turn.adapter == limits.adapter:
        staleness = versions_between(turn.sampled.oldest_version, limits.version, limits.chain)
    if (reason := _unfit(turn, staleness, limits)) is not None:
        return reason
    sure = confidence(turn.sampled.logprobs, turn.sampled.forced)

    shown, prompt = bool(turn.conversation.lessons), turn.prompt_ids
    if shown and recites(turn.message):
        return Reason.NO_SIGNAL
    if shown:
        try:
            prompt = rendering.prompt_ids(replace(turn.conversation, lessons=""))
        except RequestError:
            return Reason.RENDER_MISMATCH

    def learned(opd: bool) -> Carried:
        carried = Carried(rl=sample.rl and not shown, opd=opd)
        return objective.reads.learned(carried, reward=sample.verdict.reward, confidence=sure)

    asked = learned(sample.opd)
    if asked.reason is not None:
        return asked.reason
    own = () if recites(turn.message) else sample.verdict.hints
    hints = (own or AS_SAMPLED) if objective.needs_teacher and asked.opd else ()
    hinted, missing = hinted_prompts(turn, hints, rendering, placement, limits.max_tokens - len(tokens))
    taken = learned(bool(hinted))
    if missing is not None and taken.reason is not None:
        return missing
    run = objective.hint_rule.teachers([len(hint) for hint, _ in hinted], tokens)
    return Item(
        turn=turn.id,
        behaviour=Behaviour.of_turn(turn),
        student=Row(prompt=prompt, response=tokens),
        teachers=tuple(Row(prompt=hinted[index][1], response=tokens) for index in run),
        hints=tuple(hinted[index][0] for index in run),
        reward=float(sample.verdict.reward) if objective.has_rl and taken.rl else None,
        group=tuple(map(float, sample.group_rewards)),
        staleness=staleness,
        disliked=sample.verdict.reward < 0,
    )


def _unfit(turn: Turn, staleness: int, limits: TurnLimits) -> Reason | None:
    """Why a turn cannot train at all; None if it can.

    A turn that another adapter sampled has no version of this one, and is never too old.
    """
    if (reason := untrainable(turn)) is not None:
        return reason
    if staleness > limits.max_staleness and turn.adapter == limits.adapter:
        return Reason.STALE
    if len(turn.prompt_ids) + len(turn.sampled.ids) > limits.max_tokens:
        return Reason.TOO_LONG
    return None if all(map(math.isfinite, turn.sampled.logprobs)) else Reason.NOT_FINITE


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """Tuples are as long as the response."""

    forced: tuple[bool, ...]
    """Tokens that are in no loss: they were not sampled from the policy."""
    logprobs: tuple[float, ...] | None
    """log pi_b; None: they are not known, so nothing is corrected by them."""
    basis: Basis = Basis.PROCESSED
    temperature: float = 1.0
    truncated: bool = False
    """Part of the vocabulary could not be sampled."""
    older_cache: bool = False
    """Some tokens attended to keys and values of an older version than the one that sampled them."""

    @classmethod
    def of_turn(cls, turn: Turn) -> Self:
        """As the engine reported it; log-probs with lessons in the prompt are not those of the student's."""
        sampled = turn.sampled
        return cls(
            forced=sampled.forced,
            logprobs=None if turn.conversation.lessons else sampled.logprobs,
            basis=sampled.basis,
            temperature=turn.sampling.temperature,
            truncated=turn.sampling.truncated,
            older_cache=sampled.cache_version not in (None, sampled.oldest_version),
        )

    @property
    def tau(self) -> float:
        """The temperature of the response's log-probs."""
        return scoring_temperature(self.temperature)


def samples_of(
    items: Sequence[Item],
    policy: Policy,
    objective: ObjectiveSettings,
    server: TeacherServer | None,
    limit: int,
    ranks: Ranks,
) -> tuple[list[Sample], float]:
    """The samples of a batch, and the running mean of rewards after it.

    `server` scores the hints, if one does; `limit`: tokens of a pass.
    """
    scores = None if server is None else _server_scores(items, policy, objective, server, limit, ranks)
    like = policy.model.get_input_embeddings().weight
    rows = teacher_rows(items, scores, like, k=objective.ids_kept)
    found = item_advantages(items, objective, mean=policy.reward_mean)
    samples = [
        sample_of(item, own, advantage, policy.model.device, served=scores is not None and bool(own))
        for item, own, advantage in zip(items, rows, found.values, strict=True)
    ]
    return samples, found.mean


def item_advantages(items: Sequence[Item], objective: ObjectiveSettings, *, mean: float = 0.0) -> Advantages:
    """`advantages` of a whole batch of items."""
    rewarded = [None if item.reward is None else Rewarded(item.reward, item.group) for item in items]
    return advantages(rewarded, objective, mean=mean)


def served_sample(
    item: Item, scores: Sequence[Scored], advantage: float | None, like: Tensor, *, k: int
) -> Sample:
    """One item with a server's scores after each of its hints, where `like` lies. `k` ids are read."""
    (rows,) = teacher_rows([item], [scores], like, k=k)
    return sample_of(item, rows, advantage, like.device, served=bool(scores))


def sample_of(
    item: Item,
    rows: tuple[TeacherRows, ...],
    advantage: float | None,
    device: torch.device,
    *,
    served: bool,
) -> Sample:
    """One item as the objective sees it. `served`: the rows are of a teacher on a server."""
    behaviour = item.behaviour
    return Sample.sampled_at(
        behaviour.temperature,
        tau=temperature_of(behaviour.temperature) if served else None,
        ids_T=torch.tensor(item.student.response, device=device),
        mask_T=~torch.tensor(behaviour.forced, device=device),
        behaviour_T=None if behaviour.logprobs is None else torch.tensor(behaviour.logprobs, device=device),
        basis=behaviour.basis,
        advantage=advantage,
        hints=0 if rows else len(item.teachers),
        teacher_rows=rows,
    )


def _server_scores(
    items: Sequence[Item],
    policy: Policy,
    objective: ObjectiveSettings,
    server: TeacherServer,
    limit: int,
    ranks: Ranks,
) -> list[Sequence[Scored]]:
    """The server's scores after each item's hints, at the student's likeliest ids too if they learn.

    Each rank requests its share. EngineError if the server does not answer.
    """
    mine = ranks.share([sum(map(len, item.teachers)) for item in items])
    hinted = [index for index in mine if items[index].teachers]
    asked = [(row.prompt, row.response) for index in hinted for row in items[index].teachers]
    wanted = None
    if k := given_ids(objective):
        ids = _likeliest(policy, [items[index].student for index in hinted], k, limit, ranks)
        wanted = [each for index, each in zip(hinted, ids, strict=True) for _ in items[index].teachers]
    scores = iter(server.score(asked, wanted) if asked else ())
    found = ranks.gathered({index: [next(scores) for _ in items[index].teachers] for index in mine})
    return [found[index] for index in range(len(items))]


@torch.no_grad()
def _likeliest(policy: Policy, rows: Sequence[Row], k: int, limit: int, ranks: Ranks) -> list[Sequence[Ids]]:
    """The policy's `k` likeliest ids, or all, at each place of each response."""
    wanted, found = min(k, policy.model.config.get_text_config().vocab_size), list[Sequence[Ids]]()
    stream = stream_logits if policy.head is None else stream_states
    outputs = streamed(stream, policy.model, rows, limit, NEVER, ranks)
    for row, output in zip(rows, outputs, strict=True):
        if policy.head is None:
            ids_TK = top_k(output, wanted)
        else:
            ids_T1 = torch.tensor(row.response, device=output.device)[:, None]
            tau_T = torch.ones(len(row.response), device=output.device)
            ids_TK = score_states(policy.whole_head(), output, tau_T, ids_T1, k=wanted).top_ids_NK
        found.append(tuple(map(tuple, ids_TK.tolist())))
    return found


def teacher_rows(
    items: Sequence[Item], scores: Sequence[Sequence[Scored]] | None, like: Tensor, *, k: int
) -> list[tuple[TeacherRows, ...]]:
    """Of each item, the rows after each of its hints, where `like` lies; () if it has none.

    `scores` are those of a server: the rows have `k` of its ids, at the item's `temperature_of`. None: rows
    came with the items, or there are none.
    """
    dtype = torch.float64 if like.dtype is torch.float64 else torch.float32
    if scores is None:
        own = (row for item in items for row in item.teacher_rows or () if row is not None)
        width = max((len(row.ids) for row in own), default=0)
        return [_padded(item, width, like.device, dtype) for item in items]
    found = []
    for item, hints in zip(items, scores, strict=True):
        tau = temperature_of(item.behaviour.temperature)
        found.append(tuple(_rows(each, tau, k, like.device, dtype) for each in hints))
    return found


def _rows(scores: Scored, tau: float, k: int, device: torch.device, dtype: torch.dtype) -> TeacherRows:
    known_TK = torch.tensor(scores.top_logprobs, device=device, dtype=dtype)
    mass_T = log_mass(known_TK, tau) if tau != 1.0 else torch.zeros_like(known_TK[:, 0])

    def at_tau(values: tuple[object, ...]) -> Tensor:
        logprobs = torch.tensor(values, device=device, dtype=dtype)
        return logprobs / tau - (mass_T if logprobs.dim() == 1 else mass_T[:, None])

    return TeacherRows(
        sampled_T=at_tau(scores.logprobs),
        ids_TK=torch.tensor(scores.top_ids, device=device)[:, :k],
        logprobs_TK=at_tau(scores.top_logprobs)[:, :k],
        asked_ids_TJ=torch.tensor(scores.asked_ids, device=device) if scores.asked else None,
        asked_TJ=at_tau(scores.asked) if scores.asked else None,
    )


def log_mass(logprobs_TK: Tensor, tau: float) -> Tensor:
    """log of the sum of p^(1/tau) over the vocabulary, of distributions of which only the likeliest ids are
    known.

    Scores at temperature tau are log p / tau less this. `logprobs_TK` fall, and tau is 1 at most. The rest
    of the mass, m, is taken to fall as a power of the rank: p_r = p_K (r/K)^-a, where m = K p_K / (a - 1)
    gives a. At tau = 1 that is exact, as it is where all ids are known.
    """
    power, k = 1.0 / tau, logprobs_TK.shape[-1]
    known_TK = logprobs_TK.double()
    most_T, probs_TK = known_TK[:, 0], known_TK.exp()
    rest_T, last_T = (1.0 - probs_TK.sum(dim=-1)).clamp(min=0.0), probs_TK[:, -1]
    powers_TK = (power * (known_TK - most_T[:, None])).exp()
    over_T = (power - 1.0) * rest_T + power * k * last_T
    tail_T = torch.where(over_T > 0.0, k * powers_TK[:, -1] * rest_T / over_T, 0.0)
    return (power * most_T + (powers_TK.sum(dim=-1) + tail_T).log()).to(logprobs_TK.dtype)


def _padded(item: Item, width: int, device: torch.device, dtype: torch.dtype) -> tuple[TeacherRows, ...]:
    """The item's own rows, padded to `width`; none if no token is distilled.

    ValueError for a row of another token, or of one that does not train.
    """
    if item.teacher_rows is None or not any(row is not None for row in item.teacher_rows):
        return ()
    ids, logprobs, valid = [], [], []
    for token, forced, row in zip(
        item.student.response, item.behaviour.forced, item.teacher_rows, strict=True
    ):
        if row is not None and forced:
            raise ValueError("a token that does not train has a teacher's row")
        if row is not None and row.ids[0] != token:
            raise ValueError("a teacher's row does not begin with the sampled id")
        found = () if row is None else row.ids
        room = width - len(found)
        ids.append([*found, *[token] * room])
        logprobs.append([*(() if row is None else row.logprobs), *[0.0] * room])
        valid.append([True] * len(found) + [False] * room)
    logprobs_TK = torch.tensor(logprobs, device=device, dtype=dtype)
    rows = TeacherRows(
        sampled_T=logprobs_TK[:, 0],
        ids_TK=torch.tensor(ids, device=device),
        logprobs_TK=logprobs_TK,
        valid_TK=torch.tensor(valid, device=device),
    )
    return (rows,)


def temperature_of(temperature: float) -> float:
    """tau of a turn that a teacher on a server scores: what it was sampled at, but 1 at most.

    Above 1 most of the mass would be of ids that the server does not tell.
    """
    return min(scoring_temperature(temperature), 1.0)
