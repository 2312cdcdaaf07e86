"""A learner over a store in a folder, to run here or to kill in a process of its own."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from afterwit.build import versions_of
from afterwit.checkpoints.manifest import is_learned
from afterwit.checkpoints.remote import VersionsSettings
from afterwit.checkpoints.versions import Versions
from afterwit.learning.claims import STAGE
from afterwit.learning.distributed import Placed
from afterwit.learning.distributed.group import joined, placed_settings
from afterwit.learning.passes import ALONE, Phase, Ranks
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.stage import Learn
from afterwit.learning.trainer import Trainer
from afterwit.lifecycle import Reason, State
from afterwit.objective.settings import ObjectiveSettings
from afterwit.promotion.suite import PromotionSettings
from afterwit.store import Status, Store
from afterwit.store.sqlite import SqliteStore
from afterwit.verdict import JudgedTurn
from tests.fakes.judged_samples import store_judged
from tests.fakes.renderers import renderer_of

SETTINGS = LearnerSettings(
    device="cpu",
    lora_rank=0,
    lr=1e-3,
    max_move=0.0,
    batch=4,
    min_batch=2,
    max_wait_s=100.0,
    max_tokens=512,
    threads=1,
    packing="off",  # a model is tried for it at each start; `test_packing` has its updates
    measure_effects=False,  # `test_effect` and `test_ranks` have them
    mismatch_alarm=100.0,  # the samples' log-probs are random
)
OBJECTIVE = ObjectiveSettings()
PROMOTION = PromotionSettings()
ALONE_HERE = VersionsSettings()


@dataclass(slots=True)
class Clock:
    """A clock that shows one time until it is moved."""

    now: float = 5000.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A home with a store and versions, and the base model next to it."""

    home: Path
    base: Path
    settings: LearnerSettings = SETTINGS
    objective: ObjectiveSettings = OBJECTIVE
    promotion: PromotionSettings = PROMOTION
    clock: Clock = field(default_factory=Clock)
    shared: VersionsSettings = ALONE_HERE

    @property
    def versions(self) -> Versions:
        return versions_of(self.home, self.base, self.shared)

    @contextmanager
    def store(self) -> Iterator[Store]:
        store = SqliteStore.open(self.home / "store.db", fingerprint="tiny")
        try:
            yield store
        finally:
            store.close()

    def trainer(self, ranks: Ranks = ALONE) -> Trainer:
        return Trainer(
            self.versions,
            renderer_of(self.base),
            settings=self.settings,
            objective=self.objective,
            ranks=ranks,
        )

    def learn(
        self, store: Store, watch: Callable[[Phase], None] = lambda phase: None, ranks: Ranks = ALONE
    ) -> Learn:
        return Learn(
            store,
            self.trainer(ranks),
            owner=f"learner {os.getpid()}",
            promotion=self.promotion,
            now=self.clock,
            watch=watch,
        )

    def drain(self) -> None:
        """Learn until no batch is left."""
        with self.store() as store:
            self.learn(store).run(lambda: False, follow=False)

    def drain_as_rank(self, watch: Callable[[int, Phase], None] = lambda rank, phase: None) -> None:
        """`drain` as one of several processes, with its rank from the environment; the first leads."""
        torch.set_num_threads(1)
        placed = Placed.of(os.environ)
        assert placed is not None
        own = replace(self, settings=placed_settings(self.settings, placed))
        with joined(own.settings) as group:
            if group.rank:
                own.trainer(group).follow(group, lambda phase: watch(group.rank, phase))
                return
            with own.store() as store:
                own.learn(store, lambda phase: watch(0, phase), group).run(lambda: False, follow=False)

    def but(self, **settings: object) -> Place:
        return replace(self, settings=replace(self.settings, **settings))  # type: ignore[arg-type]


def learn_and_die(place: Place, phase: Phase, time: int) -> None:
    """A learner that is killed the `time`-th time it comes to `phase`."""
    torch.set_num_threads(1)
    seen = 0

    def watch(reached: Phase) -> None:
        nonlocal seen
        seen += reached is phase
        if seen == time:
            os.kill(os.getpid(), signal.SIGKILL)

    with place.store() as store:
        place.learn(store, watch).run(lambda: False, follow=False)


def forget_and_die(place: Place, session: str, phase: Phase) -> None:
    """A learner that is killed when it first comes to `phase` of forgetting a session."""
    torch.set_num_threads(1)

    def watch(reached: Phase) -> None:
        if reached is phase:
            os.kill(os.getpid(), signal.SIGKILL)

    with place.store() as store:
        store.order_forgetting(session, replay=True, now=1.0)
        stage = place.learn(store, watch)
        stage.begin()
        stage.forget()


def forget_what_is_ordered(place: Place) -> None:
    """A learner that starts, carries out the orders to forget, and ends."""
    torch.set_num_threads(1)
    with place.store() as store:
        stage = place.learn(store)
        stage.begin()
        stage.forget()


def learn_and_die_of(place: Place, turn: str) -> None:
    """A learner that is killed in every update of this turn, as by a kernel that is out of memory."""
    torch.set_num_threads(1)
    with place.store() as store:

        def watch(reached: Phase) -> None:
            if reached is Phase.SCORING and store.turn(turn).owner is not None:
                os.kill(os.getpid(), signal.SIGKILL)

        place.learn(store, watch).run(lambda: False, follow=False)


def learn_on_a_full_disk(place: Place, room: int) -> None:
    """A learner whose files cannot grow over `room` bytes, until it rests for the first time."""
    torch.set_num_threads(1)
    whole = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, whole[1]))
    rested: list[float] = []

    def rest(seconds: float) -> None:
        rested.append(seconds)
        with place.store() as store:
            (status,) = store.statuses()
            (place.home / f"status{len(rested)}").write_text(f"{status.ok} {status.message}")
        left = [path.name for path in place.versions.place(1).glob("*")]
        (place.home / f"left{len(rested)}").write_text(" ".join(left))
        resource.setrlimit(resource.RLIMIT_FSIZE, whole)
        place.clock.now += place.settings.retry_s

    with place.store() as store:
        place.learn(store).run(lambda: len(rested) == 2, rest=rest)


def fill(place: Place, samples: list[JudgedTurn]) -> None:
    with place.store() as store:
        store_judged(store, samples)


def states(place: Place) -> dict[str, State | Reason]:
    with place.store() as store:
        return {record.turn.id: record.reason or record.state for record in store.turns()}


def status(store: Store) -> Status:
    return next(status for status in store.statuses() if status.stage == STAGE)


def untimed(metrics: Mapping[str, float]) -> dict[str, float]:
    """An update's measurements without its durations."""
    return {name: value for name, value in metrics.items() if not name.startswith("seconds_")}


def tensor_files(version: Path) -> dict[str, bytes]:
    """The weights and the learner's state in a version's folder, by file."""
    return {path.name: path.read_bytes() for path in version.iterdir() if is_learned(path.name)}


def trained(place: Place) -> list[tuple[str, ...]]:
    return [version.turns for version in place.versions.all() if version.number > 0]


def forget_until(place: Place, signal_number: int, update: int) -> None:
    """A learner that gets a signal while it runs update number `update` again, and stops on SIGTERM. The file
    `asked` then holds how often it checked whether to stop, and how many steps of its optimiser it took after
    the signal."""
    torch.set_num_threads(1)
    told, asked, steps, after = [False], 0, 0, 0
    signal.signal(signal.SIGTERM, lambda *_: told.__setitem__(0, True))

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return told[0]

    def watch(reached: Phase) -> None:
        nonlocal steps, after
        steps += reached is Phase.STEPPED
        after += told[0] and reached is Phase.STEPPED
        if reached is Phase.STEPPED and steps == place.settings.epochs * (update - 1) + 1:
            os.kill(os.getpid(), signal_number)

    with place.store() as store:
        place.learn(store, watch).run(stop, follow=False)
    (place.home / "asked").write_text(f"{asked} {after}")
