"""Attention over token trees on a device against a dense mask in float64 on the CPU, forward and back."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from afterwit.packing.attention import FLASH_CPU, FLASH_CUDA, PORTABLE, attend, kernel_for
from afterwit.packing.pack import Path, pack
from tests.packing.forests import forests, mask
from tests.packing.test_attention import SCALE, masked

WIDTH = 64
BOUNDS = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""Of the largest value: rounding of inputs and outputs, and of what tensor cores take in between."""


def drawn(tokens: int, groups: int, seed: int, dtype: torch.dtype) -> list[Tensor]:
    """Queries, keys, values and the slope of the output, rounded, as layers hand them over."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(1, tokens, heads, WIDTH, generator=generator, dtype=torch.float64)
        .to(dtype)
        .transpose(1, 2)
        for heads in (2 * groups, 2, 2, 2 * groups)
    ]


def apart(paths: list[Path], groups: int, seed: int, dtype: torch.dtype, device: torch.device) -> float:
    """The largest difference of output and gradients, relative to the largest value of its kind."""
    packed = pack(paths)
    rounded = drawn(len(packed.ids), groups, seed, dtype)
    exact = masked([tensor.double().requires_grad_() for tensor in rounded], mask(packed))
    query, key, value, slope = (tensor.to(device).requires_grad_() for tensor in rounded)
    out = attend(query, key, value, packed.blocks, SCALE, kernel_for(query))
    gradients = torch.autograd.grad((out * slope.transpose(1, 2)).sum(), (query, key, value))
    pairs = zip((out, *gradients), exact, strict=True)
    return max(
        float(
            (found.detach().cpu().double() - truth.detach()).abs().max() / max(1.0, truth.abs().max().item())
        )
        for found, truth in pairs
    )


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@settings(max_examples=6)
@given(paths=forests(), groups=st.sampled_from((1, 2, 3)), seed=st.integers(0, 99))
def test_a_tree_is_attended_to_as_under_a_dense_mask(
    dtype: torch.dtype, paths: list[Path], groups: int, seed: int
) -> None:
    """Random trees: single tokens, branches on branches, several trees. `packing/test_attention` searches
    more on a CPU."""
    assert apart(paths, groups, seed, dtype, torch.device("cpu")) <= BOUNDS[dtype]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@settings(max_examples=100)
@given(paths=forests(), groups=st.sampled_from((1, 2, 3)), seed=st.integers(0, 99))
def test_so_it_is_on_a_gpu(
    cuda: torch.device, dtype: torch.dtype, paths: list[Path], groups: int, seed: int
) -> None:
    assert apart(paths, groups, seed, dtype, cuda) <= BOUNDS[dtype]


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
def test_long_branches_cross_every_tile(device: torch.device, dtype: torch.dtype) -> None:
    """600 tokens of trunk, a branch of 290 on it, and one of 150 on that."""
    trunk = tuple(range(600))
    branch = (*trunk[:300], *range(1000, 1290))
    paths = [Path(ids=ids, first=0) for ids in (trunk, branch, (*branch[:400], *range(2000, 2150)))]
    assert apart(paths, 2, 0, dtype, device) <= BOUNDS[dtype]


def test_each_device_has_its_kernel(device: torch.device) -> None:
    half, single = (
        torch.empty(1, 2, 3, WIDTH, dtype=d, device=device) for d in (torch.bfloat16, torch.float32)
    )
    assert kernel_for(half) is (FLASH_CUDA if device.type == "cuda" else FLASH_CPU)
    assert kernel_for(single) is (PORTABLE if device.type == "cuda" else FLASH_CPU)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_memory_grows_with_the_tokens_and_not_with_their_square(
    cuda: torch.device, dtype: torch.dtype
) -> None:
    peaks = []
    for tokens in (8192, 16384):
        trunk = tuple(range(tokens - 1024))
        packed = pack(
            [Path(ids=trunk, first=0), Path(ids=(*trunk[:4096], *range(10**6, 10**6 + 1024)), first=0)]
        )
        query, key, value, _ = (tensor.to(cuda).requires_grad_() for tensor in drawn(tokens, 2, 0, dtype))
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        attend(query, key, value, packed.blocks, SCALE, kernel_for(query)).sum().backward()
        peaks.append(torch.cuda.max_memory_allocated() - before)
    assert peaks[1] <= 2.2 * peaks[0]
