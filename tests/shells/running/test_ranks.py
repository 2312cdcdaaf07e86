"""`--learner-processes` and `torchrun`: they start, learn, refuse what does not fit, and end together."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import get_context
from multiprocessing.util import Finalize
from pathlib import Path

import pytest

from afterwit.build import versions_of
from afterwit.errors import SettingError
from afterwit.learning.distributed import Placed
from afterwit.learning.distributed.group import placed_settings
from afterwit.learning.settings import LearnerSettings, threads_for
from afterwit.running.ranks import KILLED, launch, member, refuse_torchrun
from tests.engines.vllm.recorded import listening
from tests.engines.vllm.scoring import Scoring
from tests.fakes.models import reweighted, tiny_llama, tiny_qwen3
from tests.several import several
from tests.shells.running.several_learners import LEARNER, fill, settings_of, trained

ROOT = Path(__file__).parents[3]
SETS = [word for name, value in LEARNER.items() for word in ("--set", f"learner.{name}={value}")]


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
    fill(settings, model, tmp_path, *range(4))
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
@pytest.mark.parametrize(
    "kind",
    [
        *({"teacher": teacher, "reference": teacher} for teacher in ("ema", "another checkpoint")),
        {"teacher": "server"},
        *({"teacher": teacher, "shards": 2, "lora_rank": 0} for teacher in ("base", "live", "server")),
    ],
    ids=lambda kind: "-".join(map(str, kind.values())),
)
async def test_several_processes_start_and_train_with_every_kind_of_teacher(
    kind: dict[str, object], model: Path, tmp_path: Path
) -> None:
    home, other = tmp_path / "home", tiny_qwen3(tmp_path / "other", seed=7)
    settings = settings_of(model, home)
    fill(settings, model, home, *range(4))
    async with listening(Scoring(model)) as url:
        more = {"teacher_url": url} if kind["teacher"] == "server" else {}
        named = {name: other if value == "another checkpoint" else value for name, value in kind.items()}
        sets = [
            word for name, value in (named | more).items() for word in ("--set", f"learner.{name}={value}")
        ]
        line = [*LAUNCHED["our flag"], str(model), "--home", str(home), *SETS, *sets]
        ended = await asyncio.to_thread(run, *line)
    assert ended.returncode == 0, ended.stderr
    assert trained(home, model) == [f"turn{number:04d}" for number in range(4)]


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
    ("cores", "load", "processes", "threads"),
    [(16, 0.2, 1, 8), (16, 12.5, 1, 3), (2, 0.0, 1, 1), (2, 13.0, 1, 1), (64, 0.0, 4, 8), (1, 0.0, 1, 1)],
)
def test_a_learner_takes_half_of_the_cores_and_none_that_others_use(
    cores: int, load: float, processes: int, threads: int
) -> None:
    assert threads_for(cores, load=load, processes=processes) == threads


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


def until_told(folder: Path) -> None:
    """Two ranks that work until a signal ends them; each leaves a file if it was not killed."""
    told, rank = threading.Event(), os.environ["RANK"]
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    (folder / f"there{rank}").write_text(str(os.getpid()))
    told.wait()
    Finalize(None, (folder / f"ended{rank}").touch, exitpriority=1)


@pytest.mark.cluster
@pytest.mark.parametrize("killed", [False, True])
def test_a_rank_that_is_told_to_end_does_not_wait_until_its_launcher_kills_it(
    tmp_path: Path, killed: bool
) -> None:
    launcher = get_context("spawn").Process(
        target=launch, args=(2, until_told, tmp_path), kwargs={"signals": "SIGTERM"}
    )
    launcher.start()
    while len(there := [*tmp_path.glob("there*")]) < 2 or not all(each.read_text() for each in there):
        assert launcher.is_alive()
        time.sleep(0.1)
    if killed:
        os.kill(int((tmp_path / "there1").read_text()), signal.SIGKILL)
    else:
        launcher.terminate()
    launcher.join()
    assert launcher.exitcode == (KILLED + signal.SIGKILL if killed else 0)
    ended = {path.name for path in tmp_path.glob("ended*")}
    assert ended == ({"ended0"} if killed else {"ended0", "ended1"})


def meet(models: list[Path], home: Path, settings: list[dict[str, object]]) -> None:
    """A rank with a model and settings of its own."""
    placed = Placed.of(os.environ)
    assert placed is not None
    with member(settings_of(models[placed.rank], home, **settings[placed.rank]), home, placed):
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
    context.set_forkserver_preload(["afterwit.learning.distributed.group"])
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
