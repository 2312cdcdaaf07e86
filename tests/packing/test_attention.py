from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from afterwit.packing.attention import (
    FLASH_CPU,
    FLASH_CUDA,
    PORTABLE,
    Inputs,
    Kernel,
    attend,
    flashes,
    grouped,
    kernel_for,
    tree_attention,
)
from afterwit.packing.pack import Block, Path, pack
from tests.packing.forests import forests, mask

SCALE = 0.3


def cuda_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float,
) -> tuple[Tensor | int | None, ...]:
    """`aten._scaled_dot_product_flash_attention` by its definition."""
    assert not dropout_p
    assert not return_debug_mask
    groups = query.shape[1] // key.shape[1]
    wide = [part.repeat_interleave(groups, dim=1) for part in (key, value)]
    out, lse = PORTABLE.forward(Inputs(query, *wide, is_causal, scale))
    return out, lse, None, None, query.shape[2], key.shape[2], None, None, None


def cuda_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: None,
    cum_seq_k: None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor,
    philox_offset: Tensor,
    *,
    scale: float,
) -> tuple[Tensor, ...]:
    """Its backward, in the same way."""
    assert (max_q, max_k) == (query.shape[2], key.shape[2])
    assert logsumexp.is_contiguous()
    groups = query.shape[1] // key.shape[1]
    wide = [part.repeat_interleave(groups, dim=1) for part in (key, value)]
    d_query, *d_wide = PORTABLE.backward(grad_out, Inputs(query, *wide, is_causal, scale), out, logsumexp)
    return d_query, *(part.unflatten(1, (-1, groups)).sum(dim=2) for part in d_wide)


KERNELS = pytest.mark.parametrize(
    "kernel",
    [FLASH_CPU, PORTABLE, grouped(cuda_forward, cuda_backward)],
    ids=["flash", "portable", "grouped"],
)


def drawn(tokens: int, groups: int, seed: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Queries, keys, values, and the gradient of the output, as layers hand them over."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(1, tokens, heads, 8, generator=generator, dtype=torch.float64)
        .to(dtype)
        .transpose(1, 2)
        .requires_grad_()
        for heads in (2 * groups, 2, 2, 2 * groups)
    ]


def masked(inputs: Sequence[Tensor], seen_LL: Tensor) -> list[Tensor]:
    """The output under a dense mask, and its gradients."""
    query, key, value, gradient = inputs
    out = scaled_dot_product_attention(query, key, value, attn_mask=seen_LL, scale=SCALE, enable_gqa=True)
    return [out.transpose(1, 2), *torch.autograd.grad((out * gradient).sum(), (query, key, value))]


def blockwise(inputs: Sequence[Tensor], blocks: Sequence[Block], kernel: Kernel) -> list[Tensor]:
    query, key, value, gradient = inputs
    out = attend(query, key, value, blocks, SCALE, kernel)
    return [out, *torch.autograd.grad((out * gradient.transpose(1, 2)).sum(), (query, key, value))]


@KERNELS
@given(paths=forests(), groups=st.integers(1, 3), seed=st.integers(0, 99))
def test_blocks_attend_as_a_dense_mask_does(
    kernel: Kernel, paths: list[Path], groups: int, seed: int
) -> None:
    packed = pack(paths)
    inputs = drawn(len(packed.ids), groups, seed)
    expected = masked(inputs, mask(packed))
    for one, other in zip(blockwise(inputs, packed.blocks, kernel), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@KERNELS
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 5e-6), (torch.bfloat16, 5e-2)])
def test_the_portable_kernel_attends_across_its_chunks(
    kernel: Kernel, dtype: torch.dtype, bound: float
) -> None:
    """600 tokens of trunk: three chunks, and branches longer than one."""
    trunk = tuple(range(600))
    packed = pack([Path(ids=trunk, first=0), Path(ids=(*trunk[:300], *range(1000, 1290)), first=0)])
    inputs = drawn(len(packed.ids), 2, seed=0)
    expected = masked(inputs, mask(packed))
    rounded = [tensor.detach().to(dtype).requires_grad_() for tensor in inputs]
    for one, other in zip(blockwise(rounded, packed.blocks, kernel), expected, strict=True):
        assert one.dtype is dtype
        assert (one.double() - other).abs().max() <= bound * other.abs().max()


def test_what_this_attention_does_not_do_is_refused() -> None:
    query, key, value, _ = drawn(3, 1, seed=0)
    with pytest.raises(ValueError, match="softcap"):
        tree_attention(nn.Module(), query, key, value, None, tree=[Block(0, 3, 0, 3)], softcap=30.0)
    with pytest.raises(ValueError, match="a mask"):
        tree_attention(nn.Module(), query, key, value, torch.ones(3, 3), tree=[Block(0, 3, 0, 3)])
    with pytest.raises(ValueError, match="dropout"):
        tree_attention(nn.Module(), query, key, value, None, tree=[Block(0, 3, 0, 3)], dropout=0.1)


@pytest.mark.parametrize("groups", [1, 3])
def test_the_flash_kernels_of_cuda_are_ones_that_torch_knows(groups: int) -> None:
    """Their arguments and shapes, by the meta device."""
    packed = pack([Path(ids=(1, 2, 3, 4), first=0), Path(ids=(1, 2, 5), first=0)])
    inputs = [
        tensor.detach().to("meta").requires_grad_()
        for tensor in drawn(len(packed.ids), groups, seed=0, dtype=torch.bfloat16)
    ]
    out, *gradients = blockwise(inputs, packed.blocks, FLASH_CUDA)
    assert (out.shape, out.dtype) == (inputs[3].transpose(1, 2).shape, torch.bfloat16)
    for gradient, tensor in zip(gradients, inputs[:3], strict=True):
        assert (gradient.shape, gradient.dtype) == (tensor.shape, tensor.dtype)


@pytest.mark.parametrize(
    ("dtype", "width", "capability", "expected"),
    [
        (torch.bfloat16, 128, (8, 0), True),
        (torch.float16, 64, (9, 0), True),
        (torch.bfloat16, 128, (7, 5), False),
        (torch.float32, 128, (9, 0), False),
        (torch.bfloat16, 20, (9, 0), False),
        (torch.bfloat16, 256, (9, 0), False),
    ],
)
def test_cuda_flashes_in_half_precision_on_heads_that_all_its_devices_take(
    dtype: torch.dtype, width: int, capability: tuple[int, int], expected: bool
) -> None:
    assert flashes(dtype, width, capability) is expected


def test_a_device_without_flash_kernels_takes_the_portable_one() -> None:
    query = torch.empty(1, 2, 3, 8)
    assert kernel_for(query) is FLASH_CPU
    assert kernel_for(query.to("meta")) is PORTABLE
