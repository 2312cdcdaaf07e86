"""The ranks of one learner, over torch.distributed. Rank 0 leads; the others follow its orders.

Two groups: in an update ranks wait for each other for `patience_s`, for an order as long as it takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from itertools import groupby
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from afterwit.errors import AfterwitError, RankFailed, RankLost, UpdateRefused
from afterwit.learning.optimizer import Masters
from afterwit.learning.sharded import ShardedMasters

T = TypeVar("T")


FOR_EVER = timedelta(days=365)


BITS = {8: torch.int64, 4: torch.int32, 2: torch.int16}
"""Whole numbers as wide as a weight, by bytes."""


class Group:
    """Implements `Ranks`. Make it in every process, once `dist.init_process_group` returned."""

    def __init__(self, *, lockstep: bool = False) -> None:
        self.lockstep = lockstep
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._orders = dist.new_group(backend="gloo", timeout=FOR_EVER)
        self._shared: Exception | None = None
        """The last failure that every rank knows of."""

    def share(self, work: Sequence[int]) -> list[int]:
        return shares(work, self.size)[self.rank]

    @contextmanager
    def together(self) -> Iterator[None]:
        mine: Exception | None = None
        try:
            yield
        except RankLost:
            raise
        except Exception as error:
            mine = error
        said = self.every(None if mine is None else _words(mine))
        failed = next((rank for rank, words in enumerate(said) if words is not None), None)
        if failed is None:
            return
        self._shared = mine or RankFailed(f"rank {failed} of {self.size}: {said[failed]}")
        raise self._shared

    @contextmanager
    def running(self) -> Iterator[None]:
        if not self.lockstep:
            with self.together():
                yield
            return
        with self._lost_alone("in a pass that all run"):
            yield

    @contextmanager
    def _lost_alone(self, where: str) -> Iterator[None]:
        """RankLost for a failure that the other ranks do not know of: they would wait for this one."""
        try:
            yield
        except RankLost:
            raise
        except Exception as error:
            if self.is_shared(error):
                raise
            raise RankLost(f"rank {self.rank} failed {where}: {_words(error)}") from error

    def in_step(self) -> AbstractContextManager[None]:
        return self.together() if self.lockstep else nullcontext()

    def most(self, mine: int) -> int:
        return max(self.every(mine)) if self.lockstep else mine

    def is_shared(self, error: Exception) -> bool:
        """Whether all ranks raise it, or know of it: then they are still in step."""
        return error is self._shared or isinstance(error, UpdateRefused)

    def gathered(self, mine: Mapping[int, T]) -> dict[int, T]:
        every = self.every(dict(mine))
        return dict(sorted((key, value) for part in every for key, value in part.items()))

    def totals(self, mine: Mapping[str, float]) -> dict[str, float]:
        every = self.every(dict(mine))
        names = dict.fromkeys(name for part in every for name in part)
        return {name: sum(part.get(name, 0.0) for part in every) for name in names}

    def add_up(self, masters: Masters) -> None:
        if isinstance(masters, ShardedMasters):  # each backward pass has summed all but the head's
            made = any(self.every(masters.made_head))
            with _collective():
                masters.gather_head(made)
            return
        named = masters.named
        held = self.every([name for name, master in named.items() if master.grad is not None])
        anywhere = {name for names in held for name in names}
        for name, master in named.items():
            if name in anywhere and master.grad is None:
                master.grad = torch.zeros_like(master)
        gradients = [named[name].grad for name in named if name in anywhere]
        with _collective():
            add_up([gradient for gradient in gradients if gradient is not None])

    def require_alike(self, masters: Masters) -> None:
        digest = [_digest(master.detach()) for master in masters.named.values()]
        place = _place(next(iter(masters.named.values())))
        first: dict[int, tuple[int, list[int]]] = {}
        for rank, (there, theirs) in enumerate(self.every((place, digest))):
            alike, expected = first.setdefault(there, (rank, theirs))
            if theirs != expected:
                raise RankLost(f"rank {rank} of {self.size} computes other weights than rank {alike}")

    def spread(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
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
    def leading(self, order: object) -> Iterator[None]:
        self._of_first(order, self._orders)
        with self._lost_alone("while the others went on"):
            yield

    def end(self) -> None:
        self._of_first(None, self._orders)

    def orders(self) -> Iterator[object]:
        """What rank 0 tells this rank to do, until it ends. RankLost if it ends otherwise."""
        while (order := self._of_first(None, self._orders)) is not None:
            yield order

    def every(self, mine: T) -> list[T]:
        """What each rank gives, by rank."""
        found: list[Any] = [None] * self.size
        with _collective():
            dist.all_gather_object(found, mine)
        return found

    def _of_first(self, mine: T, group: dist.ProcessGroup | None = None) -> T:
        """What rank 0 gives."""
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
    """What an exception says, in a line; by its words the others know a lack of memory or of space."""
    if isinstance(error, AfterwitError):
        return str(error)
    said = "out of memory" if isinstance(error, MemoryError) else str(error).partition("\n")[0]
    return f"{type(error).__name__}: {said}"


def _place(master: Tensor) -> int:
    """Which shard of a tensor this rank holds; 0 if it holds all of it."""
    return master.device_mesh.get_local_rank(-1) if isinstance(master, DTensor) else 0


def _digest(tensor: Tensor) -> int:
    """The sum of all weights' bits as whole numbers of 64 bits: two copies that drifted apart have different
    ones."""
    flat = (tensor.to_local() if isinstance(tensor, DTensor) else tensor).contiguous().flatten()
    each = 8 // flat.element_size()
    flat = flat.clone() if flat.storage_offset() % each else flat
    words, rest = torch.split(flat, [len(flat) - len(flat) % each, len(flat) % each])
    narrow = rest.view(BITS[flat.element_size()])
    return int(words.view(torch.int64).sum().item() + narrow.sum(dtype=torch.int64).item())


BUCKET = 1 << 22
"""Numbers that travel together: messages much smaller cost more to start than to send."""


def add_up(tensors: Sequence[Tensor], *, bucket: int = BUCKET) -> None:
    """Every tensor becomes its sum over all ranks, which give the same shapes in the same order."""
    for part in buckets(tensors, bucket):
        if len(part) == 1 and part[0].is_contiguous():
            dist.all_reduce(part[0])
            continue
        flat = torch.cat([tensor.flatten() for tensor in part])
        dist.all_reduce(flat)
        for tensor, total in zip(part, torch.split(flat, [each.numel() for each in part]), strict=True):
            tensor.copy_(total.view_as(tensor))


def buckets(tensors: Sequence[Tensor], most: int) -> Iterator[list[Tensor]]:
    """The tensors in order, those of one dtype and device together: at most `most` numbers in a bucket,
    unless one tensor has more."""
    for _, alike in groupby(tensors, key=lambda tensor: (tensor.dtype, tensor.device)):
        part, size = list[Tensor](), 0
        for tensor in alike:
            if part and size + tensor.numel() > most:
                yield part
                part, size = [], 0
            part.append(tensor)
            size += tensor.numel()
        yield part


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
