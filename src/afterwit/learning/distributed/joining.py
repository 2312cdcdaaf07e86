"""From one process among several to a rank of a learner. What does not fit is refused at once."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta

import torch
import torch.distributed as dist
import transformers

from afterwit.errors import RankLost, SettingError
from afterwit.learning.distributed.group import Group
from afterwit.learning.distributed.orders import OF_A_MACHINE
from afterwit.learning.distributed.placed import Placed
from afterwit.learning.distributed.sharded import mesh_of
from afterwit.learning.models import device_of
from afterwit.learning.phase import Progress
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.trainer import Trainer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Values, by name, that must agree in every rank, so that all compute the same weights."""

    host: str
    values: dict[str, str]

    @classmethod
    def of(cls, *, tokenizer: str, base: str, settings: LearnerSettings) -> Facts:
        """`tokenizer` and `base` are fingerprints."""
        learner = {
            f"learner.{name}": str(value)
            for name, value in asdict(settings).items()
            if name not in OF_A_MACHINE
        }
        values = {
            "the tokenizer": tokenizer,
            "the base model": base,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }
        return cls(host=platform.node(), values=values | learner)


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
    threads = settings.threads or max(1, (os.cpu_count() or 1) // placed.local_size)
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
        _ended(group)
        raise
    else:
        _ended(group)
        dist.destroy_process_group()


def _ended(group: Group) -> None:
    if group.rank == 0:
        with suppress(RankLost):
            group.end()


def agreed(group: Group, facts: Callable[[], Facts]) -> None:
    """SettingError in all ranks if something differs between them, with what it is on both machines."""
    with group.together():
        every = group.every(facts())
    first = every[0]
    for rank, other in enumerate(every):
        for name, value in first.values.items():
            if other.values.get(name) != value:
                raise SettingError(
                    f"the learner's processes differ: {name} is {value} on {first.host} (rank 0), but "
                    f"{other.values.get(name)} on {other.host} (rank {rank})"
                )


def follow(trainer: Trainer, group: Group, watch: Progress = lambda phase: None) -> None:
    """Follow until rank 0 ends. RankLost if it, or a rank that this one needs, ends otherwise.

    `watch` is called with every phase of this rank's part of an update.
    """
    at = trainer.follower(group, watch)
    for order in group.orders():
        try:
            with group.together():
                order.follow(at)
        except Exception as error:
            if not group.is_shared(error):
                raise
            log.info("learn: rank %d: %s: the policy is loaded again", group.rank, error)
            at.policy = None
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
