"""The ranks of one learner, over torch.distributed. Rank 0 leads; the others follow its orders.

Two groups: in an update ranks wait for each other for `patience_s`, for an order as long as it takes. What
does not fit is refused as a process joins.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import timedelta
from itertools import groupby
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import transformers
from torch import Tensor
from torch.distributed.tensor import DTensor

from afterwit.errors import AfterwitError, RankLost, SettingError
from afterwit.learning.distributed import Placed
from afterwit.learning.distributed.orders import OF_A_MACHINE
from afterwit.learning.distributed.sharded import ShardedMasters, mesh_of
from afterwit.learning.models import Masters, device_of, idle_threads
from afterwit.learning.passes import Progress, Ranks
from afterwit.learning.settings import LearnerSettings

T = TypeVar("T")
FOR_EVER = timedelta(days=365)
BITS = {8: torch.int64, 4: torch.int32, 2: torch.int16}
"""Whole numbers as wide as a weight, by bytes."""

BUCKET = 1 << 22
"""Numbers that travel together: messages much smaller cost more to start than to send."""


class Group(Ranks):
    """One of several processes. Make it in every process, once `dist.init_process_group` returned."""

    def __init__(self, *, lockstep: bool = False) -> None:
        self.lockstep = lockstep
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._orders = dist.new_group(backend="gloo", timeout=FOR_EVER)
        self._in_lockstep = False
        self._shared: Exception | None = None
        """The last failure that was shared with every rank."""

    def every(self, mine: T, failure: Exception | None = None) -> list[T]:
        """The value of each rank. If one gives a failure all raise: that rank its own, others its words."""
        found: list[Any] = [None] * self.size
        with _collective():
            dist.all_gather_object(found, (None if failure is None else _words(failure), mine))
        failed = next((rank for rank, (words, _) in enumerate(found) if words is not None), None)
        if failed is not None:
            self._shared = failure or AfterwitError(f"rank {failed} of {self.size}: {found[failed][0]}")
            raise self._shared
        return [value for _, value in found]

    @contextmanager
    def together(self) -> Iterator[None]:
        """Done by all ranks or by none: an exception of one is raised in every rank.

        RankLost if it cannot be shared, because the others are in a pass that waits for this rank.
        """
        self._in_lockstep = False
        try:
            yield
        except RankLost:
            raise
        except Exception as error:
            if error is self._shared:
                raise
            if self._in_lockstep:
                words = _words(error)
                raise RankLost(f"rank {self.rank} failed in a pass that all run: {words}") from error
            self.every(None, error)
        else:
            self.every(None)

    def is_shared(self, error: Exception) -> bool:
        """Whether every rank raised it: then they are still in step."""
        return error is self._shared

    def share(self, work: Sequence[int]) -> list[int]:
        return shares(work, self.size)[self.rank]

    def passes(self, mine: Sequence[T], progress: Progress) -> Iterator[T | None]:
        most = max(self.every(len(mine))) if self.lockstep else len(mine)
        with self.in_lockstep():
            yield from super().passes([*mine, *[None] * (most - len(mine))], progress)

    def passed(self, progress: Progress) -> None:
        self._in_lockstep = False
        super().passed(progress)
        if self.lockstep:
            self.every(None)
        self._in_lockstep = self.lockstep

    @contextmanager
    def in_lockstep(self) -> Iterator[None]:
        outer, self._in_lockstep = self._in_lockstep, self.lockstep
        yield
        self._in_lockstep = outer

    def add_up(self, masters: Masters) -> None:
        if isinstance(masters, ShardedMasters):  # each backward pass has summed all but the head's
            made = any(self.every(bool(masters.made_head)))
            with _collective():
                masters.gather_head(made)
            return
        held = self.every([name for name, master in masters.named.items() if master.grad is not None])
        anywhere, gradients = {name for names in held for name in names}, list[Tensor]()
        for name, master in masters.named.items():
            if name in anywhere:
                if master.grad is None:
                    master.grad = torch.zeros_like(master)
                gradients.append(master.grad)
        with _collective():
            _add_up(gradients)

    def require_alike(self, masters: Masters) -> None:
        digest = [_digest(master.detach()) for master in masters.named.values()]
        one = next(iter(masters.named.values()))
        shard = one.device_mesh.get_local_rank(-1) if isinstance(one, DTensor) else 0
        first: dict[int, tuple[int, list[int]]] = {}
        for rank, (there, theirs) in enumerate(self.every((shard, digest))):
            alike, expected = first.setdefault(there, (rank, theirs))
            if theirs != expected:
                raise RankLost(f"rank {rank} of {self.size} computes other weights than rank {alike}")

    def spread(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        self.every(None)
        shapes = [(name, tensor.shape, tensor.dtype, tensor.device.type) for name, tensor in tensors.items()]
        found: dict[str, Tensor] = {}
        for name, shape, dtype, kind in self._of_first(shapes):
            device = torch.device(kind) if kind == "cpu" else torch.device(kind, torch.cuda.current_device())
            tensor = tensors[name] if self.rank == 0 else torch.empty(shape, dtype=dtype, device=device)
            with _collective():
                dist.broadcast(whole := tensor.detach().contiguous(), src=0)
            found[name] = tensor if self.rank == 0 else whole
        return found

    @contextmanager
    def leading(self, order: Callable[..., None], **arguments: object) -> Iterator[None]:
        self._of_first((order, arguments), self._orders)
        with self.together():
            yield

    def orders(self) -> Iterator[Any]:
        """The orders of rank 0 to this rank with their arguments, until it ends. RankLost if it ends
        otherwise."""
        while (order := self._of_first(None, self._orders)) is not None:
            yield order

    def end(self) -> None:
        """Tell the other ranks that no order follows, if this is the first."""
        if self.rank == 0:
            self._of_first(None, self._orders)

    def _of_first(self, mine: T, group: dist.ProcessGroup | None = None) -> T:
        found: list[Any] = [mine]
        with _collective():
            dist.broadcast_object_list(found, src=0, group=group, device=torch.device("cpu"))
        return found[0]  # type: ignore[no-any-return]  # of rank 0's type


@contextmanager
def _collective() -> Iterator[None]:
    """torch.distributed raises RuntimeError, of many kinds, when another rank is gone or silent."""
    try:
        yield
    except RuntimeError as error:
        raise RankLost(f"a rank of the learner is gone, or silent for too long ({_words(error)})") from error


def _words(error: BaseException) -> str:
    """The message of an exception, by which the other ranks recognise a lack of memory or of space."""
    if isinstance(error, AfterwitError):
        return str(error)
    said = "out of memory" if isinstance(error, MemoryError) else str(error).partition("\n")[0]
    return f"{type(error).__name__}: {said}"


def _digest(tensor: Tensor) -> int:
    """The sum of all weights' bits as whole numbers of 64 bits: two copies that drifted apart have different
    ones."""
    flat = (tensor.to_local() if isinstance(tensor, DTensor) else tensor).contiguous().flatten()
    each = 8 // flat.element_size()
    flat = flat.clone() if flat.storage_offset() % each else flat
    words, rest = torch.split(flat, [len(flat) - len(flat) % each, len(flat) % each])
    narrow = rest.view(BITS[flat.element_size()])
    return int(words.view(torch.int64).sum().item() + narrow.sum(dtype=torch.int64).item())


def _add_up(tensors: Sequence[Tensor]) -> None:
    """Every tensor becomes its sum over all ranks, which give the same shapes in the same order. Those of one
    dtype and device travel together, at most `BUCKET` numbers at a time unless one tensor has more."""
    for _, alike in groupby(tensors, key=lambda tensor: (tensor.dtype, tensor.device)):
        bucket, size = list[Tensor](), 0
        for tensor in alike:
            if bucket and size + tensor.numel() > BUCKET:
                _reduce(bucket)
                bucket, size = [], 0
            bucket.append(tensor)
            size += tensor.numel()
        _reduce(bucket)


def _reduce(bucket: Sequence[Tensor]) -> None:
    if len(bucket) == 1 and bucket[0].is_contiguous():
        dist.all_reduce(bucket[0])
        return
    flat = torch.cat([tensor.flatten() for tensor in bucket])
    dist.all_reduce(flat)
    for tensor, total in zip(bucket, torch.split(flat, [each.numel() for each in bucket]), strict=True):
        tensor.copy_(total.view_as(tensor))


def shares(work: Sequence[int], size: int) -> list[list[int]]:
    """For each rank the pieces that it runs, by index and ascending; `work` is what each costs.

    The largest piece goes to the rank with the least so far: the last ends after at most 4/3 of the least
    possible time (Graham 1969, "Bounds on Multiprocessing Timing Anomalies").
    """
    loads, found = [0] * size, [list[int]() for _ in range(size)]
    for index in sorted(range(len(work)), key=lambda index: -work[index]):
        rank = min(range(size), key=lambda rank: (loads[rank], len(found[rank])))
        loads[rank] += work[index]
        found[rank].append(index)
    return [sorted(each) for each in found]


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
        if settings.shards > 1:
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
