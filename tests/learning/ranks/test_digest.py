"""The digest by which ranks compare their weights: every bit counts, and nothing else."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from afterwit.learning.distributed.group import BITS, _digest

KINDS = (torch.float64, torch.float32, torch.bfloat16)


def drawn(numbers: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(numbers, generator=torch.Generator().manual_seed(numbers)).to(dtype)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("numbers", [1, 2, 3, 4, 7, 8, 21])
def test_one_bit_of_one_weight_makes_another_digest(dtype: torch.dtype, numbers: int) -> None:
    weights = drawn(numbers, dtype)
    assert _digest(weights) not in {_digest(each) for each in flipped(weights)}


def flipped(weights: Tensor) -> list[Tensor]:
    """Copies that differ in the last bit of one weight."""
    copies = [weights.clone() for _ in weights]
    for place, copy in enumerate(copies):
        copy.view(BITS[weights.element_size()])[place] ^= 1
    return copies


@pytest.mark.parametrize("dtype", KINDS)
def test_where_the_weights_lie_in_memory_does_not_count(dtype: torch.dtype) -> None:
    weights = drawn(22, dtype).view(2, 11)
    room = torch.cat([torch.zeros(1, dtype=dtype), weights.flatten()])
    turned = weights.T.contiguous().T
    assert _digest(room[1:].view(2, 11)) == _digest(turned) == _digest(weights)
