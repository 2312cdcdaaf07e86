"""`--learner-processes` and `torchrun`: they start, learn, refuse what does not fit, and end together."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from random import Random

import pytest

from afterwit.apps.build import store_of_model, versions_of
from afterwit.apps.config import Settings, load
from afterwit.apps.running import learner_process
from afterwit.apps.running.ranks import crew, refuse_torchrun
from afterwit.core.errors import SettingError
from afterwit.learner.placed import Placed
from afterwit.learner.ranks.joining import placed_settings
from afterwit.learner.settings import LearnerSettings
from afterwit.wire.model_text.render import Renderer
from tests.fakes.judged_samples import a_sample, store_judged
from tests.fakes.models import reweighted, tiny_llama
from tests.several import several

KILLS = 10
ROOT = Path(__file__).parents[3]
LEARNER = {"device": "cpu", "threads": 1, "mismatch_alarm": 100.0, "max_attempts": 1000}
SETS = [word for name, value in LEARNER.items() for word in ("--set", f"learner.{name}={value}")]


def settings_of(model: Path, home: Path, **learner: object) -> Settings:
    return load(home=home, below={"model": str(model), "learner": LEARNER | learner}, environment={})


def fill(settings: Settings, model: Path, home: Path, turns: int) -> None:
    store = store_of_model(settings, home, model)
    store_judged(store, [a_sample(Renderer.load(model), number) for number in range(turns)])
    store.close()


def trained(home: Path, model: Path) -> list[str]:
    return sorted(turn for version in versions_of(home, model).all() for turn in version.turns)


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


TRAIN = ["-m", "afterwit", "train"]
LAUNCHED = {
    "our flag": [sys.executable, *TRAIN, "--learner-processes", "2"],
    "torchrun": [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        *TRAIN,
    ],
}


@pytest.mark.cluster
@pytest.mark.parametrize("command", LAUNCHED.values(), ids=LAUNCHED)
def test_both_command_lines_learn_what_is_there_and_say_when_nothing_is(
    model: Path, tmp_path: Path, command: list[str]
) -> None:
    settings = settings_of(model, tmp_path)
    fill(settings, model, tmp_path, 4)
    whole = [*command, str(model), "--home", str(tmp_path), *SETS]
    first = run(*whole)
    assert first.returncode == 0, first.stderr
    assert trained(tmp_path, model) == [f"turn{number:04d}" for number in range(4)]
    (version,) = versions_of(tmp_path, model).all()[1:]
    assert version.recipe is not None
    assert version.recipe.learner["processes"] == 2
    second = run(*whole)
    assert second.returncode != 0
    assert second.stderr.count("nothing was learned") == 1


@pytest.mark.cluster
def test_more_processes_than_turns_of_a_batch_are_refused_with_the_numbers(
    model: Path, tmp_path: Path
) -> None:
    found = run(*LAUNCHED["our flag"][:-1], "5", model, "--home", tmp_path, *SETS)
    assert found.returncode == 2
    assert "processes is 5, but a batch is 4" in found.stderr


def test_the_number_of_the_settings_and_of_torchrun_are_one() -> None:
    two = Placed(rank=0, size=2, local_rank=0, local_size=2)
    assert placed_settings(LearnerSettings(device="cpu"), two).processes == 2
    assert placed_settings(LearnerSettings(device="cpu", processes=2), two).processes == 2
    with pytest.raises(SettingError, match="processes is 3, but torchrun started 2"):
        placed_settings(LearnerSettings(device="cpu", processes=3), two)
    with pytest.raises(SettingError, match="processes is 2, but a batch is 1"):
        placed_settings(LearnerSettings(device="cpu", batch=1, min_batch=1), two)


def test_the_cores_of_a_machine_are_shared_by_its_processes() -> None:
    many = Placed(rank=0, size=1000, local_rank=0, local_size=1000)
    assert placed_settings(LearnerSettings(device="cpu", batch=1000), many).threads == 1
    assert placed_settings(LearnerSettings(device="cpu", batch=1000, threads=3), many).threads == 3


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, None),
        ({"WORLD_SIZE": "4"}, None),
        ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}, None),
        (
            {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
            Placed(rank=3, size=4, local_rank=1, local_size=2),
        ),
    ],
)
def test_a_process_is_one_of_several_if_the_environment_says_all_of_it(
    environment: dict[str, str], found: Placed | None
) -> None:
    assert Placed.of(environment | {"MASTER_ADDR": "here", "MASTER_PORT": "1"}) == found


def test_numbers_that_are_none_are_named() -> None:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    with pytest.raises(SettingError, match="WORLD_SIZE"):
        Placed.of(dict.fromkeys(names, "many"))


def test_nobody_serves_under_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_torchrun()
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, "0")
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "2")
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")
    with pytest.raises(SettingError, match="torchrun started 2 processes, and each would serve"):
        refuse_torchrun()


def meet(models: list[Path], home: Path, settings: list[dict[str, object]]) -> None:
    """A rank with a model and settings of its own."""
    placed = Placed.of(os.environ)
    assert placed is not None
    with crew(settings_of(models[placed.rank], home, **settings[placed.rank]), home, placed):
        """They agree."""


@pytest.mark.cluster
@pytest.mark.parametrize("differs", ["nothing", "tokenizer", "base", "setting"])
def test_machines_that_differ_are_refused_by_all(model: Path, tmp_path: Path, differs: str) -> None:
    others = {
        "tokenizer": lambda: tiny_llama(tmp_path / "other"),
        "base": lambda: with_tokenizer(reweighted(tmp_path / "other", model, seed=1), model),
    }
    other = others[differs]() if differs in others else model
    settings = [{"lr": 1e-3}, {"lr": 2e-3 if differs == "setting" else 1e-3}]
    context = get_context("forkserver")
    context.set_forkserver_preload(["afterwit.learner.ranks.follow"])
    found = several(context, 2, meet, [model, other], tmp_path, settings)
    if differs == "nothing":
        assert found == [None, None]
        return
    wanted = {
        "tokenizer": "the tokenizer",
        "base": "the base model",
        "setting": "learner.lr",
    }
    for error in found:
        assert isinstance(error, SettingError)
        assert re.search(f"{wanted[differs]} is .* \\(rank 0\\), but .* \\(rank 1\\)", str(error))


def with_tokenizer(folder: Path, source: Path) -> Path:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((source / name).read_bytes())
    return folder


@pytest.mark.cluster
@pytest.mark.timeout(1200)
async def test_a_storm_of_kills_loses_no_turn_and_trains_none_twice(model: Path, tmp_path: Path) -> None:
    """Under `serve`'s own watch: whichever process is killed, all are soon back, until all is learned."""
    settings = settings_of(model, tmp_path, processes=2, poll_s=0.1)
    fill(settings, model, tmp_path, 24)
    said: list[str] = []

    async def report(ok: bool, words: str) -> None:
        said.append(words)

    kept = asyncio.create_task(
        learner_process.keep_alive(settings, tmp_path, pause_s=1e-9, stop_s=20.0, report=report)
    )
    random = Random(11)
    for _ in range(KILLS):
        while len(ranks := ranks_beneath(os.getpid())) < 2:  # noqa: ASYNC110 - another process starts them
            await asyncio.sleep(0.1)
        await asyncio.sleep(random.uniform(0.0, 15.0))
        with contextlib.suppress(ProcessLookupError):
            os.kill(random.choice(ranks), signal.SIGKILL)
    async with asyncio.timeout(600):
        while len(trained(tmp_path, model)) < 24:  # noqa: ASYNC110 - another process learns
            await asyncio.sleep(0.2)
    kept.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await kept
    assert trained(tmp_path, model) == [f"turn{number:04d}" for number in range(24)]
    assert any("lost a process" in words for words in said)
    assert ranks_beneath(os.getpid()) == []


@pytest.mark.cluster
def test_the_processes_of_a_launcher_that_is_killed_end_too(model: Path, tmp_path: Path) -> None:
    settings = settings_of(model, tmp_path, processes=2)
    process = learner_process._start(settings, tmp_path)
    while len(ranks := ranks_beneath(os.getpid())) < 2:
        time.sleep(0.1)
    process.kill()
    process.join()
    deadline = time.monotonic() + 300
    while any(_command(rank) for rank in ranks):
        assert time.monotonic() < deadline, "they outlive their launcher"
        time.sleep(0.1)


def ranks_beneath(pid: int) -> list[int]:
    """The learner's processes: those that a process beneath this one has started."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if fields[0] not in "ZX":
                parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    started = [each for launcher in parents.get(pid, []) for each in parents.get(launcher, [])]
    return [each for each in started if "spawn_main" in _command(each)]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
