"""A consumer that is killed loses the batch it was at, trains no other one twice, and goes on."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from afterwit.learning.passes import Phase
from plugins.atropos.tests.consumer.groups import plain_group, with_rows
from plugins.atropos.tests.consumer.killed import consume_and_die
from plugins.atropos.tests.consumer.test_stage import Bench
from tests.fakes.atropos_server import FakeAtropos, fake_atropos
from tests.fakes.models import tiny_qwen3
from tests.learning.stage.learning import tensor_files

pytestmark = pytest.mark.slow
KILLS = [(Phase.SCORING, False), (Phase.STEPPED, False), (Phase.WRITING, False), (Phase.WRITTEN, True)]
"""When in the second batch, and whether that batch has become a version by then."""
BATCHES = [[with_rows(plain_group(seed=2 * batch + at), 3) for at in range(2)] for batch in range(3)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tiny_qwen3(tmp_path_factory.mktemp("base"), num_hidden_layers=1)


@pytest.fixture
def fake() -> Iterator[FakeAtropos]:
    with fake_atropos() as server:
        yield server


@pytest.mark.parametrize(("phase", "written"), KILLS)
def test_a_killed_consumer_trains_nothing_twice_and_goes_on(
    fake: FakeAtropos, base: Path, tmp_path: Path, phase: Phase, written: bool
) -> None:
    trained = BATCHES if written else [BATCHES[0], BATCHES[2]]
    undisturbed = learned(fake, Bench(tmp_path / "undisturbed", base, fake.url), trained)

    killed = Bench(tmp_path / "killed", base, fake.url)
    fake.batches = [*reversed(BATCHES[:2])]
    process = multiprocessing.get_context("spawn").Process(
        target=consume_and_die, args=(killed.root, base, fake.url, phase, 2)
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert killed.versions.newest() == (2 if written else 1)
    assert learned(fake, killed, BATCHES[2:]) == undisturbed
    assert killed.versions.numbers() == list(range(len(trained) + 1))
    assert len(fake.registrations) == 3


def learned(fake: FakeAtropos, bench: Bench, batches: Sequence[Any]) -> dict[str, bytes]:
    """Weights and the learner's state after these batches."""
    fake.batches = [*reversed(batches)]
    assert bench.run(len(batches)) == len(batches)
    return tensor_files(bench.versions.place(bench.versions.newest()))
