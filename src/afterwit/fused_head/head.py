"""The language model's head: hidden states to logits, to log-probs, and a gradient of logits back through it.

Log-probs are computed without gradient, a chunk of rows at a time.

Axes in this folder: N rows (hidden states), D their width, V vocabulary, K kept ids, J ids read of a row,
S kept ids and perhaps the tail, M rows of teachers, H hints, T tokens of one response.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import update_wrapper
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from afterwit.objective.terms import full_precision, top_k

R = TypeVar("R")
P = ParamSpec("P")

log = logging.getLogger(__name__)

WIDENED = 8192
"""Rows of a half-precision weight that are converted to fp32 at a time."""
AMPERE = (8, 0)
"""The compute capability from which tensor cores multiply bfloat16, and CUDA has flash attention."""
Product = Callable[[Tensor, Tensor, Tensor, int], object]
"""(into, a, b, keep): a @ b of half precision, added up in `into`'s, on top of `keep` times what is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadGradients:
    """Buffers for the gradients of a head, in the precision of its logits; `None`: that part is frozen."""

    weight_VD: Tensor | None = None
    bias_V: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """logits = x W^T + b; with a soft cap, cap * tanh(logits / cap) of that.

    States and weights may be half precision. Products are then added up in fp32, and logits are fp32.
    """

    weight_VD: Tensor
    bias_V: Tensor | None = None
    soft_cap: float | None = None
    product: Product | None = None
    """How products with the weight are computed; None: as suits its dtype and device."""

    def __post_init__(self) -> None:
        if self.bias_V is not None and len(self.bias_V) != len(self.weight_VD):
            raise ValueError(f"{len(self.weight_VD)} rows of the head but a bias of {len(self.bias_V)}")

    @property
    def dtype(self) -> torch.dtype:
        """Of logits: fp64 for fp64 weights, else fp32."""
        return torch.float64 if self.weight_VD.dtype is torch.float64 else torch.float32

    @property
    def device(self) -> torch.device:
        return self.weight_VD.device

    def buffer(self, rows: int) -> Tensor:
        """An uninitialised [rows, V] to write logits into."""
        return self.weight_VD.new_empty((rows, len(self.weight_VD)), dtype=self.dtype)

    def logits(self, states_ND: Tensor, out_NV: Tensor) -> Tensor:
        if (product := self.product or product_for(self.weight_VD)) is not None:
            product(out_NV, states_ND.to(self.weight_VD.dtype), self.weight_VD.t(), 0)
        else:
            wide_ND = states_ND.to(out_NV.dtype)
            for block, weight_BD in self._blocks():
                torch.mm(wide_ND, weight_BD.t(), out=out_NV[:, block])
        if self.bias_V is not None:
            out_NV += self.bias_V
        if self.soft_cap is not None:
            out_NV.div_(self.soft_cap).tanh_().mul_(self.soft_cap)
        return out_NV

    def logits_at(self, states_ND: Tensor, ids_NK: Tensor) -> Tensor:
        """The logits [N, K] at a few ids of each row."""
        weight_NKD = self.weight_VD[ids_NK].to(self.dtype)
        logits_NK = torch.einsum("nd,nkd->nk", states_ND.to(self.dtype), weight_NKD)
        if self.bias_V is not None:
            logits_NK += self.bias_V[ids_NK]
        return logits_NK if self.soft_cap is None else self.soft_cap * torch.tanh(logits_NK / self.soft_cap)

    def backward(self, grad_logits_NV: Tensor, states_ND: Tensor, gradients: HeadGradients) -> Tensor:
        """The gradient [N, D] of the states; those of the head's own parts are added to `gradients`.

        `grad_logits_NV` is the gradient of the logits before the soft cap.
        """
        weight_VD, dtype = self.weight_VD, grad_logits_NV.dtype
        if gradients.bias_V is not None:
            gradients.bias_V.add_(grad_logits_NV.sum(dim=0))
        if (product := self.product or product_for(weight_VD)) is not None:
            rounded_NV = grad_logits_NV.to(weight_VD.dtype)
            if gradients.weight_VD is not None:
                product(gradients.weight_VD, rounded_NV.t(), states_ND.to(weight_VD.dtype), 1)
            grad_states_ND = grad_logits_NV.new_empty(states_ND.shape)
            product(grad_states_ND, rounded_NV, weight_VD, 0)
        else:
            if gradients.weight_VD is not None:
                gradients.weight_VD.addmm_(grad_logits_NV.t(), states_ND.to(dtype))
            grad_states_ND = grad_logits_NV.new_zeros(states_ND.shape)
            for block, weight_BD in self._blocks():
                grad_states_ND.addmm_(grad_logits_NV[:, block], weight_BD)
        return grad_states_ND

    def _blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """The weight in the precision of logits: as it is, or block by block of the vocabulary."""
        weight_VD = self.weight_VD
        step = len(weight_VD) if weight_VD.dtype is self.dtype else WIDENED
        for start in range(0, len(weight_VD), step):
            block = slice(start, start + step)
            yield block, weight_VD[block].to(self.dtype)


def head_of(model: Any) -> Head:
    """The head of a model, by its parameters and the config. ValueError if it is not a linear layer."""
    layer = model.get_output_embeddings()
    if type(layer) is not nn.Linear:
        raise ValueError(f"the head is a {type(layer).__name__}, not a Linear")
    soft_cap = getattr(model.config.get_text_config(), "final_logit_softcapping", None)
    return Head(weight_VD=layer.weight, bias_V=layer.bias, soft_cap=soft_cap)


def through_soft_cap(soft_cap: float | None, grad: Tensor, logits: Tensor) -> Tensor:
    """A gradient of capped logits becomes, in place, that of the logits before."""
    return grad if soft_cap is None else grad.mul_(1 - (logits / soft_cap).square())


def product_for(weight_VD: Tensor) -> Product | None:
    """Tensor cores if the device has them for the weight's dtype. None: the weight is converted to fp32."""
    fits = weight_VD.dtype is torch.bfloat16 and weight_VD.device.type == "cuda"
    nvidia = torch.version.hip is None  # ROCm calls its devices cuda as well
    if fits and nvidia and torch.cuda.get_device_capability(weight_VD.device) >= AMPERE:
        return on_tensor_cores
    return None


def on_tensor_cores(into: Tensor, a: Tensor, b: Tensor, keep: int) -> None:
    torch.addmm(into, a, b, beta=keep, out_dtype=into.dtype, out=into)


class Sizes(NamedTuple):
    chunk: int
    """Rows whose logits exist at once: enough that their matrix products run at full speed."""
    tile_bytes: int
    """Of logits worked on at a time."""


CPU = Sizes(chunk=256, tile_bytes=1 << 21)
"""Several passes over a tile are cheap while it is in the cache."""
GPU = Sizes(chunk=1024, tile_bytes=1 << 28)
"""dW is read and written once a chunk: below about 1000 rows that takes longer than the products. A tile is
work enough to hide its launch, and three tiles are small next to a chunk."""


def sizes_on(device: torch.device) -> Sizes:
    return CPU if device.type == "cpu" else GPU


LOG2_E = 1.4426950408889634
"""exp x = 2^(x log2 e). On a CPU torch's powers of 2 take a third of the time of its powers of e, and a
thirtieth if the results vanish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax:
    """log pi(v) = (logit(v) - peak) / tau - log_sum; the peak is taken off first, so no digit is lost."""

    tau_N1: Tensor
    peak_N1: Tensor
    """The row's largest logit."""
    log_sum_N1: Tensor
    """log sum of exp((logit - peak) / tau)."""

    def logprobs(self, logits_NJ: Tensor, out: Tensor | None = None) -> Tensor:
        return torch.sub(logits_NJ, self.peak_N1, out=out).div_(self.tau_N1).sub_(self.log_sum_N1)

    def rows(self, at: Tensor | slice) -> Softmax:
        return Softmax(tau_N1=self.tau_N1[at], peak_N1=self.peak_N1[at], log_sum_N1=self.log_sum_N1[at])


def softmax_of(logits_NV: Tensor, tau_N: Tensor, peak_N1: Tensor | None = None) -> Softmax:
    """The softmax of each row. A `peak_N1` that is known already saves a pass."""
    tau_N1, (buffer_NV,) = tau_N.unsqueeze(-1), buffers(logits_NV, 1)
    parts = [
        exp_sums(logits_NV[tile], tau_N1[tile], None if peak_N1 is None else peak_N1[tile], buffer_NV)
        for tile in tiles(logits_NV)
    ]
    peak_N1, sums_N1 = map(torch.cat, zip(*parts, strict=True))
    return Softmax(tau_N1=tau_N1, peak_N1=peak_N1, log_sum_N1=sums_N1.log())


class CompiledOnGpu(Generic[P, R]):
    """A function whose first argument is a tensor: compiled if that is on a GPU, unchanged on a CPU.

    If the compiler fails, which it does before anything is written, the function runs unchanged.
    """

    def __init__(self, plain: Callable[P, R], *, on: str = "cuda", backend: Any = "inductor") -> None:
        self._plain = plain
        self._on = on
        self._backend = backend
        self._compiled: Callable[P, R] | None = None
        self._fails = False
        update_wrapper(self, plain)

    @property
    def ready(self) -> bool:
        return self._compiled is not None and not self._fails

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        first: Any = args[0]
        if self._fails or first.device.type != self._on:
            return self._plain(*args, **kwargs)
        from torch._dynamo.exc import TorchDynamoException  # takes seconds: CPUs do without

        self._compiled = self._compiled or torch.compile(self._plain, backend=self._backend)
        try:
            return self._compiled(*args, **kwargs)
        except TorchDynamoException as error:
            self._fails = True
            log.warning(
                "work on logits is not compiled, so a GPU takes several times as long for it: %s", error
            )
            return self._plain(*args, **kwargs)


@CompiledOnGpu
def exp_sums(
    logits_NV: Tensor, tau_N1: Tensor, peak_N1: Tensor | None, buffer_NV: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The largest logit, and the sum of exp((logit - peak) / tau), each [N, 1]."""
    if peak_N1 is None:
        peak_N1 = logits_NV.amax(dim=-1, keepdim=True)
    apart_NV = torch.sub(logits_NV, peak_N1, out=cut(buffer_NV, logits_NV))
    return peak_N1, apart_NV.mul_(LOG2_E / tau_N1).exp2_().sum(dim=-1, keepdim=True)


def exp(values: Tensor, out: Tensor | None = None) -> Tensor:
    return torch.mul(values, LOG2_E, out=out).exp2_()


def tiles(logits_NV: Tensor) -> Iterator[slice]:
    step = _tile_rows(logits_NV)
    for start in range(0, len(logits_NV), step):
        yield slice(start, start + step)


def buffers(logits_NV: Tensor, count: int) -> list[Tensor | None]:
    """Uninitialised tiles to work in, the same for all tiles: fresh memory costs a CPU more than the work on
    it. Elsewhere none: there torch reuses its own memory.
    """
    if logits_NV.device.type != "cpu":
        return [None] * count
    rows = min(_tile_rows(logits_NV), len(logits_NV))
    return [logits_NV.new_empty((rows, logits_NV.shape[-1])) for _ in range(count)]


def cut(buffer_NV: Tensor | None, like_NV: Tensor) -> Tensor | None:
    return None if buffer_NV is None else buffer_NV[: len(like_NV)]


def _tile_rows(logits_NV: Tensor) -> int:
    row_bytes = logits_NV.shape[-1] * logits_NV.element_size()
    return max(1, sizes_on(logits_NV.device).tile_bytes // row_bytes)


BLOCK = 128
"""Ids of a block; about the square root of V / K costs least, and this is near it from 32,000 ids on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    softmax: Softmax
    top_ids_NK: Tensor
    """Largest logit first, equal ones by the lower id."""
    top_NK: Tensor
    """Log-probs of `top_ids_NK`."""
    at_NJ: Tensor
    """Log-probs at the ids asked for."""


@torch.no_grad()
def score_states(
    head: Head, states_ND: Tensor, tau_N: Tensor, ids_NJ: Tensor, *, k: int = 0, chunk: int | None = None
) -> Scores:
    """Log-probs at `tau_N` over the whole vocabulary: of the `k` likeliest ids and at `ids_NJ`.

    `chunk` rows at a time, or as many as suit the device.
    """
    if not len(states_ND) == len(tau_N) == len(ids_NJ):
        raise ValueError(f"{len(states_ND)} states, {len(tau_N)} temperatures, {len(ids_NJ)} rows of ids")
    chunk = chunk or sizes_on(states_ND.device).chunk
    buffer_NV = head.buffer(min(chunk, len(states_ND)))
    chunks = zip(*(torch.split(each, chunk) for each in (states_ND, tau_N, ids_NJ)), strict=True)
    found: Scores = joined(
        [
            score_logits(head.logits(part_ND, buffer_NV[: len(part_ND)]), tau_N, ids_NJ, k=k)
            for part_ND, tau_N, ids_NJ in chunks
        ]
    )
    return found


@torch.no_grad()
def score_logits(logits_NV: Tensor, tau_N: Tensor, ids_NJ: Tensor, *, k: int) -> Scores:
    """`score_states` of logits that exist already."""
    logits_NV = full_precision(logits_NV)
    top_ids_NK, peak_N1 = ids_NJ[:, :0], None
    if k:
        top_ids_NK, peak_N1 = two_stage_top_k(logits_NV, k)
    softmax = softmax_of(logits_NV, tau_N.to(logits_NV.dtype), peak_N1)
    return Scores(
        softmax=softmax,
        top_ids_NK=top_ids_NK,
        top_NK=softmax.logprobs(logits_NV.gather(-1, top_ids_NK)),
        at_NJ=softmax.logprobs(logits_NV.gather(-1, ids_NJ)),
    )


def two_stage_top_k(logits_NV: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Ids [N, min(k, V)] of the largest logits, and the largest logit of each row [N, 1].

    The k largest are in the k blocks of ids with the largest maxima; the last block may be a short one.
    """
    size = logits_NV.shape[-1]
    whole = size // BLOCK * BLOCK
    maxima_NB: Tensor = logits_NV[:, :whole].view(len(logits_NV), -1, BLOCK).amax(dim=-1)
    if whole < size:
        maxima_NB = torch.cat([maxima_NB, logits_NV[:, whole:].amax(dim=-1, keepdim=True)], dim=-1)
    peak_N1 = maxima_NB.amax(dim=-1, keepdim=True)
    if k >= maxima_NB.shape[-1]:
        return _best(logits_NV, k), peak_N1
    blocks_NK = _best(maxima_NB, k).sort(dim=-1).values
    ids_NC = (blocks_NK[:, :, None] * BLOCK + torch.arange(BLOCK, device=logits_NV.device)).flatten(1)
    beyond_NC = ids_NC >= size
    found_NC = logits_NV.gather(-1, ids_NC.masked_fill(beyond_NC, 0)).masked_fill_(beyond_NC, -torch.inf)
    return ids_NC.gather(-1, _best(found_NC, k)), peak_N1


def _best(values_NC: Tensor, k: int) -> Tensor:
    """Places of the largest values: on a CPU by `top_k`, which reads back whether there are ties.

    On a GPU that would wait for all queued work, so the few values are sorted there.
    """
    return top_k(values_NC, k) if values_NC.device.type == "cpu" else by_sorting(values_NC, k)


def by_sorting(values_NC: Tensor, k: int) -> Tensor:
    """Places of the `k` largest values, equal ones by the lower place."""
    return values_NC.sort(dim=-1, descending=True, stable=True).indices[:, :k]


def joined(parts: Sequence[Any]) -> Any:
    """The rows of all parts, one after the other, in every tensor of a nested data class."""
    return _each(torch.cat, parts)


def select(rows: Any, at: Tensor | slice) -> Any:
    """Some of the rows in every tensor of a nested data class."""
    return _each(lambda tensors: tensors[0][at], [rows])


def zeros(rows: Any, count: int) -> Any:
    """`count` rows of zeros, of the same widths."""
    return _each(lambda tensors: tensors[0].new_zeros((count, *tensors[0].shape[1:])), [rows])


def _each(change: Callable[[list[Tensor]], Tensor], parts: Sequence[Any]) -> Any:
    first = parts[0]
    if first is None:
        return None
    if isinstance(first, Tensor):
        return change(list(parts))
    if isinstance(first, dict):
        return {name: _each(change, [part[name] for part in parts]) for name in first}
    columns = {field.name: [getattr(part, field.name) for part in parts] for field in fields(first)}
    return type(first)(**{name: _each(change, column) for name, column in columns.items()})
