"""The fused head on a device against whole logits in float64 on the CPU."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from afterwit.fused_head.head import (
    Head,
    HeadGradients,
    exp_sums,
    on_tensor_cores,
    product_for,
    score_states,
    sizes_on,
)
from afterwit.fused_head.loss import (
    FusedLoss,
    Reference,
    ScoringInput,
    collect_rows,
    dense_tile,
    fused_loss,
    targets,
)
from afterwit.objective.sample import Sample, denominators
from afterwit.objective.settings import ObjectiveSettings
from tests.fused_head.batches import Outcome, Pass, cast, parts_of, random_pass

EVERYTHING = ObjectiveSettings(entropy_coef=0.1, beta=0.3)


def moved(value: Any, device: torch.device) -> Any:
    """The same tensors on a device, wherever they are in it."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, list | tuple):
        return type(value)(moved(each, device) for each in value)
    if isinstance(value, dict):
        return {name: moved(each, device) for name, each in value.items()}
    if not is_dataclass(value) or isinstance(value, ObjectiveSettings):
        return value
    return replace(value, **{f.name: moved(getattr(value, f.name), device) for f in fields(value) if f.init})


def a_pass(**more: Any) -> Pass:
    usual = {"lengths": [40, 1, 60], "hints": [2, 1, 0], "taus": [0.6, 1.0, 1.3], "vocabulary": 3000}
    return random_pass(3, EVERYTHING, **(usual | {"drift": 0.1, "bias": True} | more))


def learned(made: Pass, device: torch.device, *, chunk: int | None = None) -> Outcome:
    """A device's outcome of a pass whose targets are given."""
    there = moved(made, device)
    gradients = HeadGradients(
        **{
            name: torch.zeros(part.shape, dtype=there.head.dtype, device=device)
            for name, part in parts_of(there.head).items()
        }
    )
    rows = collect_rows(there.samples, there.targets, made.over, made.settings)
    reference = Reference(head=there.frozen, states_ND=torch.cat(there.base))
    found: FusedLoss = fused_loss(
        there.head, torch.cat(there.states), rows, made.settings, gradients, reference=reference, chunk=chunk
    )
    tensors = {"states": found.grad_states_ND} | {
        name: getattr(gradients, name) for name in parts_of(there.head)
    }
    return Outcome(
        float(found.loss),
        {name: float(value) for name, value in found.terms.items()},
        {name: tensor.cpu() for name, tensor in tensors.items()},
    )


@pytest.mark.parametrize("soft_cap", [None, 9.0])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_loss_and_gradients_are_the_plain_ones(
    device: torch.device, dtype: torch.dtype, bound: float, soft_cap: float | None
) -> None:
    """In float32 with log-prob gaps of tens of nats; the three digits of TF32 would show."""
    exact = a_pass(soft_cap=soft_cap)
    made = cast(exact, dtype)
    for chunk in (None, 7):
        assert learned(made, device, chunk=chunk).apart(exact.plainly()) < bound


def test_targets_are_the_plain_ones(device: torch.device) -> None:
    made = a_pass(drift=0.0)
    for found, plain in zip(moved(made, device).fused_targets(), made.plain_targets(), strict=True):
        torch.testing.assert_close(found.tokens.old_N.cpu(), plain.tokens.old_N, rtol=0, atol=1e-12)
        assert (found.hint_T is None) == (plain.hint_T is None)
        if found.hint_T is not None and plain.hint_T is not None:
            assert torch.equal(found.hint_T.cpu(), plain.hint_T)
            torch.testing.assert_close(found.tokens.gap_N.cpu(), plain.tokens.gap_N, rtol=0, atol=1e-12)


def test_in_bfloat16_gradients_differ_only_by_rounding(device: torch.device) -> None:
    """Against the same rounded numbers in float64."""
    made = cast(a_pass(), torch.float32)
    names = ("head", "frozen", "states", "base")
    half = replace(made, **{name: cast(getattr(made, name), torch.bfloat16) for name in names})
    exact = replace(
        cast(made, torch.float64), **{name: cast(getattr(half, name), torch.float64) for name in names}
    )
    found, plain = learned(half, device), exact.plainly()
    assert found.loss == pytest.approx(plain.loss, rel=1e-5)
    assert found.terms == pytest.approx(plain.terms, rel=1e-4, abs=1e-6)
    for name, gradient in plain.gradients.items():
        assert (found.gradients[name] - gradient).abs().max() <= 2**-7 * gradient.abs().max()


def test_a_gpu_takes_tensor_cores_and_one_pass(device: torch.device) -> None:
    weight_VD = torch.ones(3, 8, dtype=torch.bfloat16, device=device)
    learned(cast(a_pass(), torch.float32), device)
    on_gpu = device.type == "cuda"
    assert product_for(weight_VD) is (on_tensor_cores if on_gpu else None)
    assert all(work.ready == on_gpu for work in (exp_sums, dense_tile))


@pytest.mark.parametrize("levels", [3, None])
def test_the_likeliest_ids_are_the_same_wherever_they_are_found(
    device: torch.device, levels: int | None
) -> None:
    """Bit for bit, also where most logits are equal: small whole numbers are exact in every product."""
    generator = torch.Generator().manual_seed(0)
    weight_VD = torch.randint(-8, 9, (5000, 6), generator=generator).float()
    if levels is not None:
        weight_VD = weight_VD.remainder(levels)
    states_ND = torch.randint(-8, 9, (30, 6), generator=generator).float()
    tau_N, ids_NJ = torch.ones(30), torch.zeros(30, 0, dtype=torch.int64)
    here = score_states(Head(weight_VD=weight_VD), states_ND, tau_N, ids_NJ, k=20)
    there = score_states(
        Head(weight_VD=weight_VD.to(device)), *(part.to(device) for part in (states_ND, tau_N, ids_NJ)), k=20
    )
    assert torch.equal(there.top_ids_NK.cpu(), here.top_ids_NK)


@pytest.mark.gpu
def test_memory_is_that_of_chunks_however_many_rows(cuda: torch.device) -> None:
    """With a real vocabulary: logits of a chunk, their gradients in bfloat16, a tile or two; never [N, V]."""
    vocabulary = 151_936
    head = Head(weight_VD=torch.randn(vocabulary, 256, device=cuda).bfloat16())
    gradients = HeadGradients(weight_VD=torch.zeros(vocabulary, 256, device=cuda))
    peaks = []
    for rows in (2048, 2048, 8192):
        states_ND = torch.randn(rows, 256, device=cuda).bfloat16()
        sample = Sample(
            ids_T=torch.zeros(rows, dtype=torch.int64, device=cuda),
            mask_T=torch.ones(rows, dtype=torch.bool, device=cuda),
            behaviour_T=None,
            tau=1.0,
            advantage=1.0,
            hints=0,
        )
        target = targets(head, [ScoringInput(sample=sample, states_TD=states_ND)], None, EVERYTHING)
        live = collect_rows([sample], target, denominators([sample], EVERYTHING), EVERYTHING)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        fused_loss(
            head, states_ND, live, EVERYTHING, gradients, reference=Reference(head=head, states_ND=states_ND)
        )
        peaks.append(torch.cuda.max_memory_allocated() - before)
    chunk_bytes = sizes_on(cuda).chunk * vocabulary * 4
    assert peaks[2] <= 1.1 * peaks[1]
    assert peaks[2] <= 4 * chunk_bytes
