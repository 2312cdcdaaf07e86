"""A learner of one process or several over a home, for tests: filled, started, found, killed."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from afterwit.build import store_of_model, versions_of
from afterwit.config import Settings, load
from afterwit.running.learner_process import keep_alive
from tests.fakes.judged_samples import a_sample, store_judged
from tests.fakes.renderers import renderer_of

LEARNER = {"device": "cpu", "threads": 1, "mismatch_alarm": 100.0, "max_attempts": 1000}
"""The samples' log-probs are random; and here turns are not to blame when a learner dies."""


def settings_of(model: Path, home: Path, **learner: object) -> Settings:
    return load(home=home, below={"model": str(model), "learner": LEARNER | learner}, environment={})


def fill(settings: Settings, model: Path, home: Path, *numbers: int) -> None:
    """Judged turns of these numbers."""
    store = store_of_model(settings, home, model)
    store_judged(store, [a_sample(renderer_of(model), number) for number in numbers])
    store.close()


def trained(home: Path, model: Path) -> list[str]:
    """Every turn of every version."""
    return sorted(turn for version in versions_of(home, model).all() for turn in version.turns)


async def taught_by_a_server(url: str, model: Path, home: Path, **objective: object) -> list[str]:
    """Every turn that the learner's process has trained, started as `serve` does, with its teacher at `url`.

    AssertionError with its reports if it dies first.
    """
    said: list[str] = []

    async def report(ok: bool, words: str) -> None:
        said.append(words)

    learner = LEARNER | {"teacher": "server", "teacher_url": url}
    below = {"model": str(model), "learner": learner, "objective": objective}
    settings = load(home=home, below=below, environment={})
    fill(settings, model, home, *range(4))
    kept = asyncio.create_task(keep_alive(settings, home, pause_s=0.01, stop_s=60.0, report=report))
    while not (learned := trained(home, model)) and not said:  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.05)
    kept.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await kept
    assert not said
    return learned


def ranks_beneath(pid: int) -> list[int]:
    """The learner's processes: those that a child of this process has started."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if fields[0] not in "ZX":
                parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    started = [each for launcher in parents.get(pid, []) for each in parents.get(launcher, [])]
    return [each for each in started if "spawn_main" in command_of(each)]


def command_of(pid: int) -> str:
    """Empty if the process does not exist."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
