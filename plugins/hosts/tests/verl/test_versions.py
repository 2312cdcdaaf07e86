"""Versions that verl makes: listed, verified, served, and gone on from by any learner."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
import torch

from afterwit.cli.app import main
from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.model_files import fingerprint
from afterwit.learning.distributed.sharded import read_state
from afterwit.learning.models import load_model
from afterwit.lifecycle import State
from afterwit.objective.settings import ObjectiveSettings
from afterwit.publish.publisher import Publisher
from afterwit.store.sqlite import SqliteStore
from afterwit.verdict import JudgedTurn
from plugins.hosts.tests.verl.places import with_verl
from tests.fakes.judged_samples import store_judged
from tests.learning.stage.learning import SETTINGS, Place, fill, states, trained, untimed
from tests.several import several

pytest.importorskip("verl", reason="verl is in no extra: `make test-verl` installs it apart")
pytestmark = pytest.mark.cluster
Samples = Callable[..., list[JudgedTurn]]
OBJECTIVE = ObjectiveSettings(baseline="running", beta=0.1)
RATE = SETTINGS.rate


def home(folder: Path, base: Path, turns: list[JudgedTurn]) -> Place:
    folder.mkdir()
    place = Place(home=folder, base=base).but(micro_batch_tokens=60, measure_effects=True)
    place = replace(place, objective=OBJECTIVE)
    fill(place, turns)
    return place


def weights(place: Place, number: int) -> dict[str, torch.Tensor]:
    folder = place.versions.weights(number)
    model = load_model(folder, dtype=torch.float32, device=torch.device("cpu"))
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def apart(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """The root of the mean square of all differences: a few gradients are nothing but rounding."""
    assert one.keys() == other.keys()
    squares = torch.cat([(tensor - other[name]).square().flatten() for name, tensor in one.items()])
    return float(squares.mean().sqrt())


async def test_a_version_that_verl_made_is_verified_listed_and_served(
    base: Path, tmp_path: Path, samples: Samples, capsys: pytest.CaptureFixture[str]
) -> None:
    place = with_verl(home(tmp_path / "home", base, samples(*range(4))))
    place.drain()
    assert states(place) == {f"turn{number:04d}": State.TRAINED for number in range(4)}
    assert place.versions.newest() == 1
    place.versions.verify(1)
    engine = EmbeddedEngine.load(base, EmbeddedSettings(device="cpu", dtype="float32"))
    served: list[int] = []

    async def record(number: int) -> None:
        served.append(number)

    publisher = Publisher(
        engine=engine, checkpoints=place.versions, published=record, dtype="float32", keep_versions=5
    )
    assert await publisher.step()
    await engine.close()
    assert served == [1]
    with pytest.raises(SystemExit, match="0"):
        main(["versions", "--json", "--home", str(place.home)])
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [(each["number"], each["trained"]) for each in listed] == [(0, 0), (1, 4)]


@pytest.mark.parametrize("size", [1, 2])
def test_verl_learns_what_the_learner_does(
    base: Path, tmp_path: Path, samples: Samples, processes: ForkServerContext, size: int
) -> None:
    turns = [*samples(*range(6)), *samples(6, 7, tokens=40)]
    ours = home(tmp_path / "ours", base, turns)
    theirs = with_verl(home(tmp_path / "theirs", base, turns), size)
    ours.drain()
    assert several(processes, size, theirs.drain_as_rank if size > 1 else theirs.drain) == [None] * size
    assert states(theirs) == states(ours)
    assert trained(theirs) == trained(ours)
    for number in (1, 2):
        mine, other = (place.versions.get(number) for place in (ours, theirs))
        assert mine is not None
        assert other is not None
        expected = untimed(mine.metrics)
        if size > 1:
            expected.pop("plain_kl")  # it is not measured: all ranks would have to run it
        assert untimed(other.metrics) == pytest.approx(expected, rel=1e-3, abs=1e-4)
        assert other.probe.logprobs == pytest.approx(mine.probe.logprobs, abs=1e-4)
    assert apart(weights(theirs, 2), weights(ours, 2)) < 0.02 * RATE


def test_each_goes_on_from_what_the_other_wrote(
    base: Path, tmp_path: Path, samples: Samples, processes: ForkServerContext
) -> None:
    ours, mixed = (home(tmp_path / name, base, samples(*range(4))) for name in ("ours", "mixed"))
    ours.drain()
    assert several(processes, 2, with_verl(mixed, 2).drain_as_rank) == [None, None]
    for first, drain in ((4, mixed.drain), (8, with_verl(mixed).drain)):
        for place in (ours, mixed):
            fill(place, samples(*range(first, first + 4)))
        ours.drain()
        assert several(processes, 1, drain) == [None]
    assert trained(mixed) == trained(ours)
    assert apart(weights(mixed, 3), weights(ours, 3)) < 0.03 * RATE
    assert {float(read_state(mixed.versions.place(3))[f"step.{name}"]) for name in weights(ours, 3)} == {3.0}


def test_in_bfloat16_the_engine_keeps_the_masters(base: Path, tmp_path: Path, samples: Samples) -> None:
    place = with_verl(home(tmp_path / "home", base, samples(*range(4))).but(dtype="bfloat16"))
    place.drain()
    state, written = read_state(place.versions.place(1)), weights(place, 1)
    rounded = {name: state[f"master.{name}"].bfloat16().float() for name in written}
    assert apart(rounded, written) == 0.0
    assert any((state[f"master.{name}"] != rounded[name]).any() for name in written)


def test_torchrun_trains_a_home_with_two_processes(base: Path, tmp_path: Path, samples: Samples) -> None:
    with closing(SqliteStore.open(tmp_path / "store.db", fingerprint=fingerprint(base))) as store:
        store_judged(store, samples(*range(4)))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--local-addr", "localhost"]
    command += ["-m", "afterwit_hosts.verl", str(base), "--home", str(tmp_path)]
    command += ["--set", "learner.device=cpu", "--set", "learner.threads=1"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    place = Place(home=tmp_path, base=base)
    place.versions.verify(1)
    assert trained(place) == [tuple(f"turn{number:04d}" for number in range(4))]
