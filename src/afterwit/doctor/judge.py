"""The self-test of the judge: it needs no torch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

from afterwit import build
from afterwit.config import Settings
from afterwit.doctor.finding import Finding, expect, tested
from afterwit.errors import StoreMismatch
from afterwit.home.home import CONFIG
from afterwit.judging.ability import Examination, Progress, keep_ability, name_of
from afterwit.judging.exam import Ability
from afterwit.judging.settings import JudgeSettings

JUDGE_REMEDY = "set judge.url, judge.model and judge.api_key_env as docs/judging.md shows; turns wait for it"
Keep = Callable[[Ability, str], None]
"""Keeps the ability of a judge of this name."""


def check_judge(settings: Settings, progress: Progress, keep: Keep) -> Iterator[Finding]:
    """The test of the judge at `judge.url`; without one, the engine's tests ask the served model."""

    async def ask() -> str:
        judge = build.http_judge(settings.judge)
        try:
            examination = build.examination(settings.judge, judge, None, None)
            examination.progress = progress
            return await judges(examination, settings.judge, keep, build.examined_judge(settings.judge, None))
        finally:
            await judge.close()

    if settings.judge.url is not None:
        yield tested("judge", lambda: asyncio.run(ask()), remedy=JUDGE_REMEDY)


async def judges(examination: Examination, settings: JudgeSettings, keep: Keep, judge: str) -> str:
    """How the judge of this name judges, and how well. AssertionError if it cannot."""
    ability, name = await examination.ability(), name_of(settings)
    keep(ability, judge)
    fault = ability.fault(name)
    expect(fault is None, fault or "")
    return f"{name}: {ability.described()}"


def kept_by(settings: Settings, home: Path, folder: Path) -> Keep:
    """Keeps abilities in a home that was set up, so that `serve` there does not test the judge again."""

    def keep(ability: Ability, judge: str) -> None:
        if not (home / CONFIG).exists():
            return
        with suppress(StoreMismatch):  # the store's own test reports it
            with closing(build.store_of_model(settings, home, folder, bind=False)) as store:
                keep_ability(store, ability, settings.judge, judge=judge)

    return keep
