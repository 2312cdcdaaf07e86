"""The options of a benchmark run: device, shapes, sizes and number of runs."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.measure import Row, cpu_seconds

VOCABULARY = 151_936
"""A real one (Qwen3's): what the head costs is decided by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The measures of a Qwen3."""

    width: int
    layers: int = 2
    heads: int = 8
    kv_heads: int = 4
    head_dim: int = 32
    inner: int = 640
    vocabulary: int = VOCABULARY


QWEN3_06B = Shape(width=1024, layers=28, heads=16, kv_heads=8, head_dim=128, inner=3072)
SHAPES = {
    "qwen3-4b": (
        Shape(width=2560, layers=36, heads=32, kv_heads=8, head_dim=128, inner=9728),
        (8192, 16384, 32768),
    ),
    "tiny": (Shape(width=64, inner=128, vocabulary=2048), (512,)),
}
"""Shapes by name, each with the numbers of tokens it is measured at; `tiny` tries the same way on a CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The size at which a question is measured."""

    shape: Shape
    tokens: int
    tag: str = ""
    """Set apart from the question's own scale in a row's id."""


FEWER = VOCABULARY // 16
"""Ids in the quick form."""


def quick(*, width: int, tokens: int = 512) -> Scale:
    """Fewer rows of the head over fewer ids."""
    return Scale(shape=Shape(width=width, vocabulary=FEWER), tokens=tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    device: str = "cpu"
    shape: str | None = None
    """None: every question's own, which a CPU can bear."""
    quick: bool = False
    """Smaller, and one run only: whether all is in order, not how fast it is."""
    runs: int = 5

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32 if self.device == "cpu" else torch.bfloat16

    def scales(self, full: Scale, quick: Scale) -> list[Scale]:
        """The question's own scale, unless a shape was asked for."""
        if self.shape is None:
            return [quick if self.quick else full]
        shape, lengths = SHAPES[self.shape]
        return [Scale(shape=shape, tokens=tokens, tag=f" {tokens}") for tokens in lengths]

    def seconds(self, work: Callable[[], object]) -> float:
        """CPU seconds of this process, or the device's. MemoryError if its memory is too small."""
        return cpu_seconds(work) if self.device == "cpu" else _cuda_seconds(work)

    def peak_bytes(self, work: Callable[[], object]) -> int:
        """The rise of tensor memory above its start: exact, by torch's own allocator.

        MemoryError if the device has too little.
        """
        return max(accumulate(allocations(work))) if self.device == "cpu" else _cuda_peak(work)


def answer(name: str, asked: Asked) -> list[Row]:
    """One question's rows, on one thread; to be called in a process of its own."""
    torch.set_num_threads(1)
    asked = replace(asked, runs=1) if asked.quick else asked
    return list(importlib.import_module(f"benchmarks.{name}").rows(asked))


def _cuda_seconds(work: Callable[[], object]) -> float:
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    began.record()
    fitting(work)
    ended.record()
    torch.cuda.synchronize()
    return began.elapsed_time(ended) / 1e3


def _cuda_peak(work: Callable[[], object]) -> int:
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    fitting(work)
    return torch.cuda.max_memory_allocated() - before


def fitting(work: Callable[[], object]) -> object:
    """The work's result. MemoryError if the device is full."""
    try:
        return work()
    except torch.OutOfMemoryError as error:
        torch.cuda.empty_cache()
        raise MemoryError(str(error)) from error


def allocations(work: Callable[[], object]) -> list[int]:
    """Bytes that torch's CPU allocator handed out, or took back (negative), one after the other."""
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        work()
    events = [event for event in found.profiler.kineto_results.events() if event.name() == "[memory]"]
    return [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
