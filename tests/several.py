"""Several processes of one learner on this machine, as torchrun would start them, in a test."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch.distributed as dist

DEADLINE_S = 1200.0


@contextmanager
def started(
    context: ForkServerContext, size: int, work: Callable[..., object], *args: object
) -> Iterator[tuple[list[BaseProcess], Callable[[int], Any]]]:
    """Run `work(*args)` in `size` ranks. Yields them, and a function for a rank's result so far."""
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    with TemporaryDirectory() as name:
        processes = []
        for rank in range(size):
            environment = {
                "RANK": rank,
                "WORLD_SIZE": size,
                "LOCAL_RANK": rank,
                "LOCAL_WORLD_SIZE": size,
                "MASTER_ADDR": "localhost",
                "MASTER_PORT": store.port,
                "TORCHELASTIC_USE_AGENT_STORE": True,
            }
            process = context.Process(target=_rank, args=(environment, Path(name), work, args))
            process.start()
            processes.append(process)
        try:
            yield processes, partial(_outcome, Path(name))
        finally:
            for process in processes:
                process.kill()
                process.join()


def several(context: ForkServerContext, size: int, work: Callable[..., object], *args: object) -> list[Any]:
    """The result or exception of `work(*args)`, by rank; None from one that was killed."""
    with started(context, size, work, *args) as (processes, outcome):
        for process in processes:
            process.join(DEADLINE_S)
        return [outcome(rank) for rank in range(size)]


def _outcome(folder: Path, rank: int) -> Any:
    path = folder / str(rank)
    return pickle.loads(path.read_bytes()) if path.exists() else None


def _rank(
    environment: Mapping[str, object], folder: Path, work: Callable[..., object], args: tuple[object, ...]
) -> None:
    os.environ |= {name: str(value) for name, value in environment.items()}
    try:
        outcome = work(*args)
    except Exception as error:
        outcome = error
    draft = folder / f".{environment['RANK']}"
    draft.write_bytes(pickle.dumps(outcome))
    draft.rename(folder / str(environment["RANK"]))
