"""Functions of logits that torch compiles on a GPU, so that they read the logits once.

Written in torch's operations they would read them about twenty times, and a GPU waits for memory each time.
On a CPU a tile stays in the cache, and compiling takes half a minute to save a hundredth of the time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")
log = logging.getLogger(__name__)


class CompiledOnGpu(Generic[P, R]):
    """A function whose first argument is a tensor: compiled if that is on a GPU, unchanged on a CPU.

    If the compiler fails, which it does before anything is written, the function runs unchanged.
    """

    def __init__(self, plain: Callable[P, R], *, on: str = "cuda", backend: Any = "inductor") -> None:
        """`backend` is torch.compile's."""
        self._plain = plain
        self._on = on
        self._backend = backend
        self._compiled: Callable[P, R] | None = None
        self._fails = False
        update_wrapper(self, plain)

    @property
    def ready(self) -> bool:
        """Whether it has been compiled."""
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
