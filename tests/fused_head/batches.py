"""Random passes through a head, learned from in the plain way and in the fused one."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from afterwit.fused_head.head import Head, HeadGradients
from afterwit.fused_head.loss import FusedLoss, Reference, ScoringInput, collect_rows, fused_loss, targets
from afterwit.objective.sample import Denominators, Sample, Target, denominators, prepare, sample_loss
from afterwit.objective.settings import TERMS, ObjectiveSettings
from afterwit.objective.terms import Kept, TokenTargets, with_tail
from afterwit.turn import Basis

WIDTH = 5


def plain_logits(head: Head, states_ND: Tensor) -> Tensor:
    """The head as a model applies it, for autograd."""
    logits = states_ND @ head.weight_VD.t()
    if head.bias_V is not None:
        logits = logits + head.bias_V
    return logits if head.soft_cap is None else head.soft_cap * torch.tanh(logits / head.soft_cap)


def parts_of(head: Head) -> dict[str, Tensor]:
    """The parts of a head, named as in `HeadGradients`."""
    parts = {"weight_VD": head.weight_VD, "bias_V": head.bias_V}
    return {name: part for name, part in parts.items() if part is not None}


def with_parts(head: Head, parts: dict[str, Tensor]) -> Head:
    return replace(head, **parts)


@dataclass
class Pass:
    """Samples and the states of everyone; a head that learns, and a frozen one for base and teacher."""

    head: Head
    frozen: Head
    samples: list[Sample]
    states: list[Tensor]
    teachers: list[tuple[Tensor, ...]]
    base: list[Tensor]
    settings: ObjectiveSettings
    targets: list[Target] | None = None
    over: Denominators = field(init=False)

    def __post_init__(self) -> None:
        self.over = denominators(self.samples, self.settings)

    def plain_targets(self) -> list[Target]:
        each = zip(self.samples, self.states, self.teachers, strict=True)
        with torch.no_grad():
            return [
                prepare(
                    s,
                    plain_logits(self.head, x),
                    [plain_logits(self.frozen, t) for t in taught],
                    self.settings,
                )
                for s, x, taught in each
            ]

    def fused_targets(self, chunk: int = 256) -> list[Target]:
        each = zip(self.samples, self.states, self.teachers, strict=True)
        inputs = [ScoringInput(sample=s, states_TD=x, teachers=taught) for s, x, taught in each]
        return targets(self.head, inputs, self.frozen, self.settings, chunk=chunk)

    def tail_ratio(self) -> float:
        """The largest pi / pi_T of a tail bin; 0 without any. A tail is 1 less the kept mass."""
        ratios = [0.0]
        for sample, states_TD, target in zip(
            self.samples, self.states, self.targets or self.plain_targets(), strict=True
        ):
            if (bins := target.tokens.kept) is not None and bins.old_TS is None:
                logprobs_TV = torch.log_softmax(plain_logits(self.head, states_TD) / sample.tau, dim=-1)
                tail_T = with_tail(logprobs_TV.gather(-1, bins.ids_TK))[:, -1]
                ratios.append((tail_T - bins.teacher_TS[:, -1]).exp().max().item())
        return max(ratios)

    def plainly(self) -> Outcome:
        leaves = [x.clone().requires_grad_() for x in self.states]
        head = leafed(self.head)
        shares = [
            sample_loss(
                plain_logits(head, x),
                s,
                t,
                self.over,
                self.settings,
                logits_reference_TV=plain_logits(self.frozen, b),
            )
            for s, x, t, b in zip(
                self.samples, leaves, self.targets or self.plain_targets(), self.base, strict=True
            )
        ]
        return outcome(shares, head, leaves)

    def fused(self, chunk: int = 256) -> Outcome:
        found = self.targets or self.fused_targets(chunk)
        rows = collect_rows(self.samples, found, self.over, self.settings)
        gradients = gradient_buffers(self.head)
        reference = Reference(head=self.frozen, states_ND=torch.cat(self.base))
        found: FusedLoss = fused_loss(
            self.head,
            torch.cat(self.states),
            rows,
            self.settings,
            gradients,
            reference=reference,
            chunk=chunk,
        )
        tensors = {"states": found.grad_states_ND} | {
            name: getattr(gradients, name) for name in parts_of(self.head)
        }
        return Outcome(float(found.loss), {n: float(v) for n, v in found.terms.items()}, tensors)


@dataclass
class Outcome:
    loss: float
    terms: dict[str, float]
    gradients: dict[str, Tensor]

    def apart(self, other: Outcome) -> float:
        """The largest difference of anything, relative to the largest of its kind if that is above 1."""
        numbers = [(self.loss, other.loss)] + [(self.terms[name], other.terms[name]) for name in TERMS]
        worst = max(abs(one - two) / max(1.0, abs(two)) for one, two in numbers)
        for name, gradient in other.gradients.items():
            assert self.gradients[name].shape == gradient.shape
            difference = (self.gradients[name].double() - gradient.double()).abs().max().item()
            worst = max(worst, difference / max(1.0, gradient.abs().max().item()))
        return worst


def outcome(shares: list, head: Head, leaves: list[Tensor]) -> Outcome:
    loss = torch.stack([each.loss for each in shares]).sum()
    parts = parts_of(head)
    found = torch.autograd.grad(loss, [*leaves, *parts.values()])
    gradients = {"states": torch.cat(found[: len(leaves)])}
    gradients |= dict(zip(parts, found[len(leaves) :], strict=True))
    return Outcome(loss.item(), {n: float(sum(s.terms[n] for s in shares)) for n in TERMS}, gradients)


def leafed(head: Head) -> Head:
    return with_parts(head, {name: part.clone().requires_grad_() for name, part in parts_of(head).items()})


def gradient_buffers(head: Head) -> HeadGradients:
    return HeadGradients(
        **{name: torch.zeros(part.shape, dtype=head.dtype) for name, part in parts_of(head).items()}
    )


def random_pass(
    seed: int,
    settings: ObjectiveSettings,
    *,
    lengths: list[int],
    hints: list[int],
    taus: list[float],
    vocabulary: int,
    bias: bool = False,
    soft_cap: float | None = None,
    whole_numbers: bool = False,
    drift: float = 0.0,
    dtype: torch.dtype = torch.float64,
) -> Pass:
    """With `whole_numbers` many logits are equal, bit for bit however they are computed: products are exact,
    with a power of 2 too. With `drift` pi_old is another policy than pi, and its targets are
    given."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        if whole_numbers:
            return torch.randint(-1, 2, shape, generator=generator).to(dtype)
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    def head() -> Head:
        weight_VD, bias_V = draw(vocabulary, WIDTH), draw(vocabulary) if bias else None
        return Head(weight_VD=weight_VD, bias_V=bias_V, soft_cap=soft_cap)

    samples = [
        Sample(
            ids_T=torch.randint(vocabulary, (tokens,), generator=generator),
            mask_T=_mask(tokens, generator),
            behaviour_T=None if index % 3 == 2 else -3 * torch.rand(tokens, generator=generator).to(dtype),
            basis=Basis.RAW if index % 2 else Basis.PROCESSED,
            tau=tau,
            advantage=(1.0, None, -0.5)[index % 3],
            hints=min(count, 1) if settings.hint_rule.known else count,
        )
        for index, (tokens, count, tau) in enumerate(zip(lengths, hints, taus, strict=True))
    ]
    made = Pass(
        head=head(),
        frozen=head(),
        samples=samples,
        states=[draw(tokens, WIDTH) for tokens in lengths],
        teachers=[
            tuple(draw(tokens, WIDTH) for _ in range(sample.hints))
            for tokens, sample in zip(lengths, samples, strict=True)
        ],
        base=[draw(tokens, WIDTH) for tokens in lengths],
        settings=settings,
    )
    if drift:
        made.targets = made.plain_targets()
        made.states = [x + drift * draw(*x.shape) for x in made.states]
    return made


def cast(value: Any, dtype: torch.dtype) -> Any:
    """A pass, or anything in it, with the same numbers in another precision."""
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, list | tuple):
        return type(value)(cast(each, dtype) for each in value)
    if isinstance(value, Pass | Head | Sample | Target | TokenTargets | Kept):
        changed = {f.name: cast(getattr(value, f.name), dtype) for f in fields(value) if f.init}
        return replace(value, **changed)
    return value


def _mask(tokens: int, generator: torch.Generator) -> Tensor:
    mask = torch.rand(tokens, generator=generator) < 0.7
    mask[torch.randint(tokens, (1,), generator=generator)] = True
    return mask
