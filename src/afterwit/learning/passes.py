"""Passes: rows grouped, and run through a model to logits or to the hidden states before its head.

The same code scores the current, old, base and teacher's weights. Below it are the phases that an update
reports, by which the learn stage renews its leases, and the processes that share its passes.

Axes: B rows of a pass, L tokens, T tokens of a response, N response tokens of a pass, D width, V vocabulary.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from afterwit.fused_head.head import Head, head_of
from afterwit.learning.settings import LearnerSettings
from afterwit.objective.terms import at, logprobs
from afterwit.packing.attention import unsupported_reason
from afterwit.packing.pack import WORTH, Path, inputs, pack, ratio, together
from afterwit.version import AMPLIFIED, Probe
from afterwit.weights.weights import widened

if TYPE_CHECKING:
    from afterwit.learning.models import Masters

T = TypeVar("T")

PROBE_TOKENS = 256
LOGPROB_ROWS = 64
"""Rows of logits that are turned into log-probs at a time, in double precision."""
CLOSE_LOGITS = 0.02
"""Share of the largest logit. Half precision differs from itself by less, another head by more."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    prompt: tuple[int, ...]
    response: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.prompt or not self.response:
            raise ValueError(
                f"{len(self.prompt)} prompt ids and {len(self.response)} response ids: neither may be 0"
            )

    def __len__(self) -> int:
        return len(self.prompt) + len(self.response)

    @property
    def inputs(self) -> tuple[int, ...]:
        """The ids that the model reads: all but the last, which predicts nothing that is scored."""
        return (*self.prompt, *self.response[:-1])

    @property
    def first(self) -> int:
        """Index of the input that predicts the response's first id."""
        return len(self.prompt) - 1


def micro_batches(lengths: Sequence[int], limit: int, *, in_order: bool = False) -> list[list[int]]:
    """Indices grouped so that a group padded to its longest holds at most `limit` tokens.

    Longest first, so that little is padded, or in the given order. A row longer than the limit is a group of
    its own.
    """
    groups, longest = list[list[int]](), 0
    order = range(len(lengths)) if in_order else sorted(range(len(lengths)), key=lambda at: -lengths[at])
    for index in order:
        longest = max(longest, lengths[index])
        if groups and (len(groups[-1]) + 1) * longest <= limit:
            groups[-1].append(index)
        else:
            groups.append([index])
            longest = lengths[index]
    return groups


class MicroBatch(NamedTuple):
    chosen: list[int]
    packed: bool


@dataclass(frozen=True, slots=True)
class Packing:
    allowed: bool

    @classmethod
    def of(cls, settings: LearnerSettings, *models: PreTrainedModel | None) -> Packing:
        """Allowed if the setting and every model permit it. A model that does not is logged once."""
        if settings.packing == "off":
            return NEVER
        unsupported = (unsupported_reason(model) for model in models if model is not None)
        reasons = [reason for reason in unsupported if reason]
        for reason in reasons:
            _log_once(f"rows are not packed, but run one sequence each: {reason}")
        return cls(not reasons)

    def cut(self, rows: Sequence[Row], limit: int, *, in_order: bool = False) -> list[MicroBatch]:
        """The rows as passes, packed if that pays. `in_order`: in the order of the rows."""
        if self.allowed and (packed := together([row.inputs for row in rows], limit, in_order=in_order)):
            return [MicroBatch(each, True) for each in packed]
        if self.allowed and len(rows) > 1:
            _log_once(
                f"a batch whose rows share little (token ratio below {WORTH}) runs one sequence at a time"
            )
        alone = micro_batches([len(row) for row in rows], limit, in_order=in_order)
        return [MicroBatch(each, False) for each in alone]


NEVER = Packing(False)


def token_ratio(rows: Sequence[Row]) -> float:
    """Tokens of the rows, divided by the tokens that run if all sharing is used."""
    return ratio([row.inputs for row in rows])


@cache
def _log_once(words: str) -> None:
    log.info("learn: %s", words)


def response_logits(model: PreTrainedModel, rows: Sequence[Row], *, packed: bool = False) -> list[Tensor]:
    """The logits [T, V] that predict each row's response, in one pass; with a graph if gradients are on.

    The head sees response rows only. Packed, tokens that rows share go through the model once.
    """
    layout = _layout(model, rows, packed)
    logits_1NV = _through(model, layout, lambda states_BLD: layout.pick(states_BLD)[None])
    return list(torch.split(logits_1NV[0], [len(row.response) for row in rows]))


def response_states(model: PreTrainedModel, rows: Sequence[Row], *, packed: bool = False) -> Tensor:
    """The hidden states [N, D] that predict the responses, row after row. The head does not run."""
    layout, found = _layout(model, rows, packed), list[Tensor]()

    def divert(states_BLD: Tensor) -> Tensor:
        found.append(layout.pick(states_BLD))
        return states_BLD[:, :0]

    _through(model, layout, divert)
    return found[0]


@torch.no_grad()
def stream_logits(
    model: PreTrainedModel, rows: Sequence[Row], limit: int, packing: Packing = NEVER
) -> Iterator[Tensor]:
    """`response_logits` of the rows in order, without a graph, in passes of `limit` tokens."""
    for chosen, packed in packing.cut(rows, limit, in_order=True):
        yield from response_logits(model, [rows[index] for index in chosen], packed=packed)


@torch.no_grad()
def stream_states(
    model: PreTrainedModel, rows: Sequence[Row], limit: int, packing: Packing = NEVER
) -> Iterator[Tensor]:
    """The hidden states [T, D] of each row in order, as `stream_logits` gives its logits."""
    for chosen, packed in packing.cut(rows, limit, in_order=True):
        part = [rows[index] for index in chosen]
        states_ND = response_states(model, part, packed=packed)
        yield from torch.split(states_ND, [len(row.response) for row in part])


@torch.no_grad()
def probe(model: PreTrainedModel) -> Probe:
    """Log-probs at temperature 1 of fixed random ids. An engine with these weights must agree.

    They are computed at full precision (`widened`), so that the learner's own rounding hides no difference;
    those of an adapter also amplified, for `agreement`.
    """
    model = widened(model)
    layers = [module for module in model.modules() if getattr(module, "lora_A", None)]
    config, random = model.config.get_text_config(), Random(0)
    tokens = min(PROBE_TOKENS, getattr(config, "max_position_embeddings", None) or PROBE_TOKENS)
    ids = tuple(map(random.randrange, [config.vocab_size] * tokens))
    plain = Probe(ids=ids, logprobs=_logprobs(model, ids))
    if not layers:
        return plain
    with _amplified(layers):
        return replace(plain, amplified=_logprobs(model, ids))


def _logprobs(model: PreTrainedModel, ids: tuple[int, ...]) -> tuple[float, ...]:
    (logits_TV,) = response_logits(model, [Row(prompt=ids[:1], response=ids[1:])])
    ids_T = torch.tensor(ids[1:], device=logits_TV.device)
    found: list[float] = []
    for part_NV, of_N in zip(
        torch.split(logits_TV, LOGPROB_ROWS), torch.split(ids_T, LOGPROB_ROWS), strict=True
    ):
        found += at(logprobs(part_NV.double(), 1.0), of_N).tolist()
    return tuple(found)


@contextmanager
def _amplified(layers: Sequence[Any]) -> Iterator[None]:
    before = [dict(layer.scaling) for layer in layers]
    for layer in layers:
        layer.scaling = {name: AMPLIFIED * scale for name, scale in layer.scaling.items()}
    try:
        yield
    finally:
        for layer, scaling in zip(layers, before, strict=True):
            layer.scaling = scaling


def _through(model: PreTrainedModel, layout: Layout, divert: Callable[[Tensor], Tensor]) -> Tensor:
    handle = model.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: (divert(inputs[0]),))
    try:
        logits: Tensor = model(**layout.inputs).logits
    finally:
        handle.remove()
    return logits


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One pass: keyword arguments of the model, and the places whose states predict the responses."""

    inputs: Mapping[str, Any]
    at_row: Tensor
    at_token: Tensor

    def pick(self, states_BLD: Tensor) -> Tensor:
        """The states [N, D] that predict the responses, row after row."""
        return states_BLD[self.at_row, self.at_token]


def _layout(model: PreTrainedModel, rows: Sequence[Row], packed: bool) -> Layout:
    """The rows side by side, padded on the right, where causal attention does not look; packed as a tree, in
    which a shared token occurs once."""
    device = model.device
    if packed:
        tree = pack([Path(ids=row.inputs, first=row.first) for row in rows])
        at_token = torch.tensor([place for places in tree.at for place in places], device=device)
        return Layout(inputs=inputs(tree, device), at_row=torch.zeros_like(at_token), at_token=at_token)
    ids_BL = torch.zeros((len(rows), max(map(len, rows)) - 1), dtype=torch.int64)
    for index, row in enumerate(rows):
        ids_BL[index, : len(row) - 1] = torch.tensor(row.inputs)
    places = [(index, at) for index, row in enumerate(rows) for at in range(row.first, len(row) - 1)]
    at_row, at_token = torch.tensor(places, device=device).unbind(dim=1)
    arguments = {"input_ids": ids_BL.to(device), "use_cache": False}
    return Layout(inputs=arguments, at_row=at_row, at_token=at_token)


@torch.no_grad()
def fused_head(model: PreTrainedModel) -> Head | None:
    """The head if it gives the model's own logits, which is tested; else None, with a warning."""
    row = Row(prompt=(0,), response=(1, 2))
    try:
        head = head_of(model)
        (theirs_TV,) = response_logits(model, [row])
        ours_TV = head.logits(response_states(model, [row]), head.buffer(len(theirs_TV)))
        apart = float((ours_TV - theirs_TV).abs().max())
        if not apart <= CLOSE_LOGITS * float(theirs_TV.abs().max()):
            raise ValueError(f"the model's logits are not those of its head: {apart} apart")
    except ValueError as error:
        log.warning("learner.loss_backend is plain from here on, which takes more memory and time: %s", error)
        return None
    return head


class Phase(StrEnum):
    """In the order in which an update passes them; SCORING and STEPPED come once per pass and per epoch."""

    CLAIMED = "claimed"
    SCORING = "scoring"
    STEPPED = "stepped"
    WRITING = "writing"
    """The weights are on disk, the optimiser's state and the manifest are not."""
    WRITTEN = "written"
    """The manifest is in place: the update has happened, the store does not know it yet."""
    COMMITTED = "committed"


Progress = Callable[[Phase], None]


class PhaseTimes:
    """A `Progress` that also adds up the seconds from each report to the next, by what was done meanwhile."""

    DONE: Mapping[Phase, str] = {Phase.SCORING: "passes", Phase.STEPPED: "step"}

    def __init__(self, progress: Progress, clock: Callable[[], float] = perf_counter) -> None:
        self._progress, self._clock = progress, clock
        self._last = clock()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def __call__(self, phase: Phase) -> None:
        if phase in self.DONE:
            self.done(self.DONE[phase])
        self._progress(phase)

    def done(self, what: str) -> None:
        """The time since the last report went into this."""
        now = self._clock()
        self._seconds[what] += now - self._last
        self._last = now

    def metrics(self) -> dict[str, float]:
        """`seconds_passes`, `seconds_step` and their like, for the manifest."""
        return {f"seconds_{what}": seconds for what, seconds in self._seconds.items()}


class Ranks:
    """A learner of one process. `Group` is one of several, which all call the same methods in the same order.

    If a rank fails, the others raise at their next exchange: code between two exchanges needs no care. Only a
    failure within `in_lockstep` cannot be shared.
    """

    rank = 0
    size = 1
    lockstep = False
    """Whether each rank holds a part of the model only, so that all run their passes at the same time."""

    def every(self, mine: T) -> list[T]:
        """An exchange: the value of each rank."""
        return [mine]

    def gathered(self, mine: Mapping[int, T]) -> dict[int, T]:
        """The entries of all ranks, in the order of their keys. Tensors among them are on the CPU."""
        return dict(sorted((key, value) for part in self.every(dict(mine)) for key, value in part.items()))

    def totals(self, mine: Mapping[str, float]) -> dict[str, float]:
        """The sum over all ranks of each number."""
        every = self.every(dict(mine))
        names = dict.fromkeys(name for part in every for name in part)
        return {name: sum(part.get(name, 0.0) for part in every) for name in names}

    def share(self, work: Sequence[int]) -> list[int]:
        """The pieces of work, by index, that this rank does; `work` is what each costs, in any unit."""
        return list(range(len(work)))

    def passes(self, mine: Sequence[T], progress: Progress) -> Iterator[T | None]:
        """This rank's passes, with `progress` after each; in lockstep None follows while others have more."""
        for each in mine:
            yield each
            self.passed(progress)

    def passed(self, progress: Progress) -> None:
        """Report a pass. In lockstep all ranks do so at the same time, and may fail together here."""
        progress(Phase.SCORING)

    def in_lockstep(self) -> AbstractContextManager[None]:
        """Around passes that all ranks run at the same time: a failure in one ends the learner."""
        return nullcontext()

    def add_up(self, masters: Masters) -> None:
        """Every master's gradient becomes the sum over all ranks."""

    def require_alike(self, masters: Masters) -> None:
        """Raises RankLost unless all ranks hold the same masters, to the bit."""

    def spread(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of rank 0; what the others give is not read."""
        return dict(tensors)

    def leading(self, order: Callable[..., None], **arguments: object) -> AbstractContextManager[None]:
        """Rank 0 does what follows, and the others `order(follower, **arguments)`: all, or none."""
        return nullcontext()


ALONE = Ranks()


Stream = Callable[[PreTrainedModel, Sequence[Row], int, Packing], Iterator[Tensor]]
EMPTY_ROW = Row(prompt=(0,), response=(0,))
"""The row of an empty pass."""


def streamed(
    stream: Stream, model: PreTrainedModel, rows: Sequence[Row], limit: int, packing: Packing, ranks: Ranks
) -> Iterator[Tensor]:
    """The outputs of the rows in order; in lockstep all are run at once, and empty passes after them."""
    if not ranks.lockstep:
        return stream(model, rows, limit, packing)
    mine = len(packing.cut(rows, limit, in_order=True))
    with ranks.in_lockstep(), torch.no_grad():
        most = max(ranks.every(mine))
        found = list(stream(model, rows, limit, packing))
        for _ in range(most - mine):
            response_states(model, [EMPTY_ROW])
    return iter(found)
