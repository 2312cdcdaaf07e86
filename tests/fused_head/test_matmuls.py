"""A GPU's way of computing a head's products and the work on its logits, done on a CPU."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from afterwit.fused_head.head import (
    CPU,
    GPU,
    CompiledOnGpu,
    Head,
    HeadGradients,
    Softmax,
    exp_sums,
    on_tensor_cores,
    product_for,
    sizes_on,
    softmax_of,
)
from afterwit.fused_head.loss import dense_tile
from tests.fused_head.batches import cast, random_pass
from tests.fused_head.test_loss import EVERYTHING


def added_up_in_fp32(into: Tensor, a: Tensor, b: Tensor, keep: int) -> None:
    """Tensor cores by their definition: exact products of rounded numbers."""
    assert a.dtype is b.dtype is torch.bfloat16
    torch.addmm(into, a.float(), b.float(), beta=keep, out=into)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("soft_cap", [None, 3.0])
def test_logits_on_tensor_cores_are_those_of_a_raised_weight(soft_cap: float | None) -> None:
    """The inputs are rounded already, and products of bf16 are exact in fp32."""
    head = Head(weight_VD=drawn(20_000, 40).bfloat16(), soft_cap=soft_cap)
    states_ND = drawn(7, 40, seed=1).bfloat16()
    raised = head.logits(states_ND, head.buffer(7))
    cores = replace(head, product=added_up_in_fp32).logits(states_ND, head.buffer(7).fill_(torch.nan))
    torch.testing.assert_close(cores, raised, rtol=0, atol=2e-5)


def test_gradients_lose_only_what_rounding_to_bfloat16_loses() -> None:
    """Each is off by 2^-8 of itself at most, so their sum is off by 2^-8 of the sum of their sizes."""
    head = Head(weight_VD=drawn(3000, 40).bfloat16(), bias_V=drawn(3000), product=added_up_in_fp32)
    states_ND, grad_logits_NV = drawn(9, 40, seed=1).bfloat16(), drawn(9, 3000, seed=2) * 1e-4
    gradients = HeadGradients(weight_VD=torch.full((3000, 40), 2.0), bias_V=torch.zeros(3000))
    grad_states_ND = head.backward(grad_logits_NV, states_ND, gradients)
    exact, weight, states = grad_logits_NV.double(), head.weight_VD.double(), states_ND.double()
    for found, truth, sizes in (
        (grad_states_ND, exact @ weight, exact.abs() @ weight.abs()),
        (gradients.weight_VD - 2, exact.t() @ states, exact.abs().t() @ states.abs()),
    ):
        assert found.dtype is torch.float32
        assert ((found.double() - truth).abs() <= 2**-8 * sizes + 5e-7).all()
        assert (found.double() - truth).abs().max() > 0
    torch.testing.assert_close(gradients.bias_V.double(), exact.sum(dim=0), rtol=0, atol=1e-9)


def test_a_pass_on_tensor_cores_learns_what_a_raised_one_does() -> None:
    """The same loss and terms; gradients within the rounding of gradients."""
    made = cast(
        random_pass(
            3,
            EVERYTHING,
            lengths=[4, 1, 6],
            hints=[2, 1, 0],
            taus=[0.6, 1.0, 1.3],
            vocabulary=300,
            drift=0.1,
        ),
        torch.float32,
    )
    half = {name: cast(getattr(made, name), torch.bfloat16) for name in ("head", "frozen", "states", "base")}
    raised = replace(made, **half)
    heads = {name: replace(half[name], product=added_up_in_fp32) for name in ("head", "frozen")}
    one, other = raised.fused(3), replace(raised, **heads).fused(3)
    assert other.loss == pytest.approx(one.loss, rel=1e-6)
    assert other.terms == pytest.approx(one.terms, rel=1e-5, abs=1e-6)
    for name, gradient in one.gradients.items():
        assert (other.gradients[name] - gradient).abs().max() <= 5e-3 * gradient.abs().max()


def test_a_cpu_raises_its_weight_and_takes_few_rows() -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        assert product_for(torch.ones(3, 2, dtype=dtype)) is None
    assert sizes_on(torch.device("cpu")) is CPU
    assert sizes_on(torch.device("cuda")) is GPU


def test_the_products_of_tensor_cores_are_ones_that_torch_knows() -> None:
    """Their shapes and precisions, by the meta device: it knows what the CUDA kernels accept."""
    head = Head(weight_VD=torch.empty(50, 16, dtype=torch.bfloat16, device="meta"), product=on_tensor_cores)
    states_ND = torch.empty(4, 16, dtype=torch.bfloat16, device="meta")
    logits_NV = head.logits(states_ND, head.buffer(4))
    gradients = HeadGradients(weight_VD=torch.empty(50, 16, device="meta"))
    grad_states_ND = head.backward(logits_NV, states_ND, gradients)
    assert (logits_NV.dtype, logits_NV.shape) == (torch.float32, (4, 50))
    assert (grad_states_ND.dtype, grad_states_ND.shape) == (torch.float32, (4, 16))


View = tuple[Tensor, Softmax]
Work = Callable[[Callable, View, View], tuple]


def view(seed: int, rows: int) -> View:
    logits_NV = 3 * drawn(rows, 211, seed=seed).double()
    return logits_NV, softmax_of(logits_NV, torch.linspace(0.6, 1.4, rows).double())


def sums(function: Callable, now: View, base: View) -> tuple:
    return function(now[0], now[1].tau_N1, None, None)


def turns(*, with_base: bool, weighed: bool, soft_cap: float | None) -> Work:
    def work(function: Callable, now: View, base: View) -> tuple:
        weights = [drawn(len(now[0]), 1, seed=seed).double() for seed in (7, 8, 9)]
        entropy_N1, reference_N1 = weights[1:] if weighed else (None, None)
        held = base if with_base else None
        rooms = [None, None, None]
        return function(*now, held, weights[0], entropy_N1, reference_N1, soft_cap, rooms)

    return work


WORK = {
    "sums": (exp_sums, sums),
    "read ids": (dense_tile, turns(with_base=False, weighed=False, soft_cap=None)),
    "all terms": (dense_tile, turns(with_base=True, weighed=True, soft_cap=None)),
    "soft cap": (dense_tile, turns(with_base=True, weighed=True, soft_cap=9.0)),
}


SLOW = ("read ids", "soft cap", "sums")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in WORK]
)
def test_compiled_work_is_the_work(name: str) -> None:
    """It returns and writes the same, for one row, for several, for another number of rows."""
    function, work = WORK[name]
    compiled = CompiledOnGpu(function.__wrapped__, on="cpu", backend="aot_eager")
    for rows in (5, 3, 1, 4):
        now, base, again = view(1, rows), view(2, rows), view(1, rows)
        expected, found = work(function, now, base), work(compiled, again, base)
        for one, other in zip(expected, found, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(other, one, rtol=0, atol=1e-13)
        torch.testing.assert_close(again[0], now[0], rtol=0, atol=1e-13)
    assert compiled.ready


def test_if_compiling_fails_the_work_goes_on_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    def broken(graph: object, inputs: object) -> Callable:
        raise OSError("no compiler here")

    doubled = CompiledOnGpu(lambda values: values.mul_(2), on="cpu", backend=broken)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert doubled(torch.ones(2)).tolist() == [2.0, 2.0]
    assert [record.message.count("no compiler here") for record in caplog.records] == [1]
    assert not doubled.ready
