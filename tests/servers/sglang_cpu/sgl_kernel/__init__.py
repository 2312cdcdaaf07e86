"""What SGLang needs of its kernels to serve small models on a CPU, in plain torch. For tests only.

The published package has operators for GPUs. An operator that is not here says so when it is called, not when
it is imported.
"""

import functools

import torch

__version__ = "0.4.10"
PINNING = ("tensor", "empty", "zeros", "ones", "full", "empty_like", "zeros_like", "arange")


def assign_req_to_token_pool_cpu(requests, table, starts, ends, places, *_):
    """Write each request's new cache places into its row of the table."""
    begin = 0
    for request, start, end in zip(requests.tolist(), starts.tolist(), ends.tolist(), strict=True):
        table[request, start:end] = places[begin : begin + end - start].to(table.dtype)
        begin += end - start


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_, **__):
        raise NotImplementedError(f"sgl_kernel.{name} does not run on this CPU")

    return missing


def _unpinned(make):
    """`make` without its argument `pin_memory`: a torch without CUDA has no pinned memory."""

    @functools.wraps(make)
    def made(*args, **kwargs):
        kwargs.pop("pin_memory", None)
        return make(*args, **kwargs)

    return made


if not torch.cuda.is_available():
    for name in PINNING:
        setattr(torch, name, _unpinned(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda self, *_, **__: self
