"""From one process among several to a rank of a learner. What does not fit is refused at once."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import timedelta

import torch
import torch.distributed as dist
import transformers

from afterwit.errors import RankLost, SettingError
from afterwit.learning.distributed import Placed
from afterwit.learning.distributed.group import Group
from afterwit.learning.distributed.orders import OF_A_MACHINE
from afterwit.learning.distributed.sharded import mesh_of
from afterwit.learning.models import device_of, idle_threads
from afterwit.learning.settings import LearnerSettings


def placed_settings(settings: LearnerSettings, placed: Placed) -> LearnerSettings:
    """The settings as this rank uses them. SettingError with both numbers if the settings want others."""
    if settings.processes not in (1, placed.size):
        raise SettingError(
            f"learner.processes is {settings.processes}, but torchrun started {placed.size}: make them equal,"
            " or leave it out"
        )
    device = device_of(settings.device)
    if device.type == "cuda":
        there = torch.cuda.device_count()
        if placed.local_size > there:
            raise SettingError(
                f"{placed.local_size} processes of the learner are on this machine, but it has {there} GPUs: "
                "each needs its own"
            )
        device = torch.device("cuda", placed.local_rank)
    threads = settings.threads or idle_threads(placed.local_size)
    try:
        return replace(settings, processes=placed.size, device=str(device), threads=threads)
    except ValueError as error:
        raise SettingError(f"learner: {error}") from error


@contextmanager
def joined(settings: LearnerSettings) -> Iterator[Group]:
    """The group of all ranks; `settings` are `placed_settings`. At the end rank 0 ends the others.

    RankLost if one does not come.
    """
    on_gpu = settings.device.startswith("cuda")
    if on_gpu:
        torch.cuda.set_device(settings.device)
    backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
    try:
        dist.init_process_group(backend, timeout=timedelta(seconds=settings.patience_s))
        group = Group(lockstep=settings.shards > 1)
        mesh_of(settings)
    except (RuntimeError, ValueError) as error:
        raise RankLost(f"not all processes of the learner came together: {error}") from error
    try:
        yield group
    except RankLost:
        raise
    except BaseException:
        with suppress(RankLost):
            group.end()
        raise
    with suppress(RankLost):
        group.end()
    dist.destroy_process_group()


def agreed(group: Group, settings: LearnerSettings, fingerprints: Callable[[], Mapping[str, str]]) -> None:
    """SettingError in all ranks, with what differs, unless all would compute the same weights.

    `fingerprints` are those of the model's parts, by name.
    """
    with group.together():
        values = {**fingerprints(), "torch": torch.__version__, "transformers": transformers.__version__}
        for name, value in asdict(settings).items():
            if name not in OF_A_MACHINE:
                values[f"learner.{name}"] = str(value)
        every = group.every((platform.node(), values))
    first_host, first = every[0]
    for rank, (host, other) in enumerate(every):
        for name, value in first.items():
            if other.get(name) != value:
                raise SettingError(
                    f"the learner's processes differ: {name} is {value} on {first_host} (rank 0), but "
                    f"{other.get(name)} on {host} (rank {rank})"
                )
