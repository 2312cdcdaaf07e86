"""The consumer with a server that is new, restarts, loses batches, or has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from afterwit.checkpoints.versions import Versions, roll_back
from afterwit.errors import UpdateRefused
from afterwit.learning.passes import Phase
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.trainer import Trainer
from afterwit.objective.settings import ObjectiveSettings
from afterwit.version import Version
from afterwit_atropos.consumer import Consumer
from afterwit_atropos.server import AtroposServer, ServerAway
from afterwit_atropos.settings import AtroposSettings
from plugins.atropos.tests.consumer.groups import plain_group, with_rows
from tests.fakes.atropos_server import FakeAtropos, fake_atropos
from tests.fakes.models import tiny_qwen3
from tests.fakes.renderers import renderer_of
from tests.products import some

SETTINGS = LearnerSettings(
    device="cpu",
    lora_rank=0,
    lr=1e-3,
    batch=4,
    min_batch=4,
    max_tokens=64,
    threads=1,
    packing="off",  # a model is tried for it at each start
    measure_effects=False,
)
OBJECTIVE = ObjectiveSettings(baseline="group")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tiny_qwen3(tmp_path_factory.mktemp("base"), num_hidden_layers=1)


@pytest.fixture
def fake() -> Iterator[FakeAtropos]:
    with fake_atropos() as server:
        yield server


@dataclass(slots=True)
class Bench:
    """A consumer of a fake server, with all its reports and the lengths of its rests."""

    root: Path
    base: Path
    url: str
    settings: LearnerSettings = SETTINGS
    said: list[tuple[bool, str]] = field(default_factory=list)
    rested: list[float] = field(default_factory=list)
    on_rest: Callable[[int], object] = lambda times: None
    trainer: type[Trainer] = Trainer
    watch: Callable[[Phase], object] = lambda phase: None

    @property
    def versions(self) -> Versions:
        return Versions(root=self.root, base=self.base)

    def consumer(self, **settings: Any) -> Consumer:
        renderer = renderer_of(self.base)
        chosen = AtroposSettings(url=self.url, **settings)
        return Consumer(
            AtroposServer(url=self.url, timeout_s=30.0),
            self.trainer(self.versions, renderer, settings=self.settings, objective=OBJECTIVE),
            chosen,
            now=lambda: 5.0,
            report=lambda ok, message: self.said.append((ok, message)),
            watch=self.watch,
        )

    def run(self, steps: int | None, *, rests: int = 10, **settings: Any) -> int:
        """Run for `steps` updates, or until it has rested `rests` times."""

        def rest(seconds: float) -> None:
            self.rested.append(seconds)
            self.on_rest(len(self.rested))

        return self.consumer(**settings).run(lambda: len(self.rested) >= rests, steps=steps, rest=rest)

    def heard(self, words: str) -> bool:
        return any(words in message for _, message in self.said)


@pytest.fixture
def bench(fake: FakeAtropos, base: Path, tmp_path: Path) -> Bench:
    return Bench(tmp_path / "versions", base, fake.url)


def groups(seed: int = 0, k: int = 0) -> list[Any]:
    made = [plain_group(seed=2 * seed + at) for at in range(2)]
    return [with_rows(group, k) for group in made] if k else made


@pytest.mark.parametrize("k", some(2, [0, 1, 3]))
def test_every_batch_becomes_a_version(fake: FakeAtropos, bench: Bench, k: int) -> None:
    fake.batches = [groups(1, k), groups(0, k)]
    assert bench.run(2) == 2
    assert bench.versions.numbers() == [0, 1, 2]
    version = bench.versions.get(2)
    assert version is not None
    assert (version.turns, version.metrics["groups"], version.metrics["samples"]) == ((), 2.0, 4.0)
    assert version.metrics["opd_samples"] == (4.0 if k else 0.0)
    assert version.metrics["rl_samples"] == 4.0
    registered = fake.registrations[0]
    assert (registered["batch_size"], registered["starting_step"], registered["num_steps"]) == (4, 0, 2)


def test_a_bad_group_does_not_keep_the_others_from_training(fake: FakeAtropos, bench: Bench) -> None:
    bad = plain_group(tokens=[[1, 2], [3, 4]])
    fake.batches = [[bad, plain_group()]]
    assert bench.run(1) == 1
    version = bench.versions.get(1)
    assert version is not None
    assert (version.metrics["groups_refused"], version.metrics["samples"]) == (1.0, 2.0)
    ok, message = bench.said[-1]
    assert not ok
    assert "2 sequences of 2 groups; 1 groups refused" in message


def test_a_batch_that_teaches_nothing_makes_no_version(fake: FakeAtropos, bench: Bench) -> None:
    fake.batches = [[plain_group(scores=(1.0, 1.0))]]
    assert bench.run(1, rests=1) == 0
    assert bench.heard("the batch taught nothing: 0 sequences of 1 groups; sequences left out: no_signal 2")
    assert bench.versions.numbers() == [0]


def test_it_asks_less_often_while_nothing_comes_and_says_why(fake: FakeAtropos, bench: Bench) -> None:
    assert bench.run(1, rests=5, poll_s=1.0, longest_poll_s=6.0) == 0
    assert bench.rested == [1.0, 2.0, 4.0, 6.0, 6.0]
    assert bench.heard("the server holds 3 groups, which make no batch of exactly 4 sequences")
    fake.waiting = 0
    assert bench.run(1, rests=6) == 0
    assert bench.heard("version 0; no environment has sent a group yet")


def test_a_server_that_was_started_again_is_registered_with_again(fake: FakeAtropos, bench: Bench) -> None:
    def arrives(times: int) -> None:
        fake.restart()
        fake.batches = [groups()]

    bench.on_rest = arrives
    assert bench.run(1) == 1
    assert len(fake.registrations) == 2


def test_a_server_that_is_started_again_twice_keeps_the_groups_it_has(
    fake: FakeAtropos, bench: Bench
) -> None:
    def arrives(times: int) -> None:
        if times in (1, 3):
            fake.restart()
        if times == 4:
            fake.batches = [groups()]

    bench.on_rest = arrives
    assert bench.run(1) == 1
    assert len(fake.registrations) == 3
    assert "/reset_data" not in fake.calls


def test_a_lost_batch_is_told_and_the_next_one_trains(fake: FakeAtropos, bench: Bench) -> None:
    fake.failures = [
        (500, b"Internal Server Error"),
        (200, b'{"batch": [NaN]}'),
        (200, b'{"batch": 7}'),
        (200, b"[]"),
    ]
    fake.batches = [groups()]
    assert bench.run(1) == 1
    for words in ("failed with 500", "no valid JSON", "as int", "no object"):
        assert bench.heard(words), words
    assert bench.rested == [1.0] * 4


def test_a_server_with_groups_from_before_it_had_a_trainer_is_told_to_forget_them(
    fake: FakeAtropos, bench: Bench
) -> None:
    fake.poisoned = True
    fake.batches = [groups()]
    assert bench.run(1) == 1
    assert "/reset_data" in fake.calls


def test_a_server_that_takes_no_registration_is_asked_patiently(fake: FakeAtropos, bench: Bench) -> None:
    def again(times: int) -> None:
        fake.poisoned = True

    fake.poisoned = True
    bench.on_rest = again
    fake.answer, answer = (  # type: ignore[method-assign]
        lambda path, body: (200, b"ok") if path == "/reset_data" else answer(path, body),
        fake.answer,
    )
    assert bench.run(1, rests=3) == 0
    assert bench.heard("takes no registration")


def test_it_waits_for_a_server_that_is_away(base: Path, tmp_path: Path) -> None:
    with fake_atropos() as gone:
        url = gone.url
    bench = Bench(tmp_path, base, url)
    assert bench.run(1, rests=3) == 0
    assert bench.heard("waiting for the server")
    with pytest.raises(ServerAway, match="does not answer"):
        AtroposServer(url=url, timeout_s=5.0).waiting()


def test_a_server_that_goes_away_in_the_middle_of_a_batch_is_waited_for(
    fake: FakeAtropos, bench: Bench
) -> None:
    fake.torn = 2
    fake.batches = [groups()]
    assert bench.run(1) == 1
    assert bench.heard("waiting for the server")
    assert len(bench.rested) == 2


def test_a_failure_that_ends_in_the_middle_is_the_servers(fake: FakeAtropos) -> None:
    server = AtroposServer(url=fake.url, timeout_s=5.0)
    for path, call in (("/batch", server.batch), ("/status", server.waiting)):
        fake.reset_at = path
        with pytest.raises(ServerAway, match="does not answer"):
            call()


def test_what_is_no_atropos_server_is_named(fake: FakeAtropos) -> None:
    fake.answer = lambda path, body: (200, b"<html>") if path == "/status" else (404, b"no")  # type: ignore[method-assign]
    with pytest.raises(ServerAway, match="not an Atropos server"):
        AtroposServer(url=fake.url, timeout_s=5.0).waiting()
    with pytest.raises(ServerAway, match="answers 404"):
        AtroposServer(url=fake.url, timeout_s=5.0).batch()


def test_a_new_consumer_goes_on_from_the_newest_version_with_its_optimiser(
    fake: FakeAtropos, base: Path, tmp_path: Path
) -> None:
    probes = []
    for name, cuts in (("whole", (3,)), ("cut", (1, 2))):
        bench = Bench(tmp_path / name, base, fake.url)
        fake.batches = [groups(2, 3), groups(1, 3), groups(0, 3)]
        assert [bench.run(steps) for steps in cuts] == list(cuts)
        version = bench.versions.get(3)
        assert version is not None
        probes.append(version.probe.logprobs)
    assert probes[0] == probes[1]
    assert fake.registrations[-1]["starting_step"] == 1


def test_a_rollback_in_between_gets_the_batch_to_the_version_after_it(
    fake: FakeAtropos, bench: Bench
) -> None:
    class RolledBack(Trainer):
        """Another process rolls version 1 back while its successor is made."""

        def train(self, *arguments: Any, **named: Any) -> Version:
            progress = named.pop("progress")

            def rolls_back(phase: Phase) -> None:
                if phase is Phase.STEPPED and self.versions.newest() == 1:
                    roll_back(self.versions, 0, now=9.0)
                progress(phase)

            return super().train(*arguments, progress=rolls_back, **named)

    fake.batches = [groups(1), groups(0)]
    bench.run(1)
    bench.trainer = RolledBack
    assert bench.run(1) == 1
    assert bench.versions.numbers() == [0, 1, 2, 3]
    version = bench.versions.get(3)
    assert version is not None
    assert version.parent == 2


def test_an_update_that_is_refused_gives_its_batch_up(fake: FakeAtropos, bench: Bench) -> None:
    class Refuses(Trainer):
        def train(self, *arguments: Any, **named: Any) -> Version:
            raise UpdateRefused("the loss is nan")

    fake.batches = [groups()]
    bench.trainer = Refuses
    assert bench.run(1, rests=1) == 0
    assert bench.heard("the batch is given up: the loss is nan")


def test_updates_that_fail_again_and_again_end_it(fake: FakeAtropos, bench: Bench) -> None:
    class Fails(Trainer):
        def train(self, *arguments: Any, **named: Any) -> Version:
            raise MemoryError("out of memory")

    fake.batches = [groups(at) for at in range(3)]
    bench.trainer = Fails
    with pytest.raises(MemoryError):
        bench.run(None, max_failures=2)
    assert len(fake.batches) == 1
    assert bench.heard("too little memory")


def test_settings_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(ValueError, match="must begin with http"):
        AtroposSettings(url="localhost:8000")
    with pytest.raises(ValueError, match="poll_s"):
        replace(AtroposSettings(), poll_s=0.0)
