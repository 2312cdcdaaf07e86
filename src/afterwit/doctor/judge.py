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
from afterwit.judging.ability import Examination, Progress, keep_ability
from afterwit.judging.exam import Ability

JUDGE_REMEDY = "set judge.url, judge.model and judge.api_key_env as docs/judging.md shows; turns wait for it"
Keep = Callable[[Examination, Ability], None]
"""Keeps what an examination found."""


def check_judge(settings: Settings, progress: Progress, keep: Keep) -> Iterator[Finding]:
    """The test of the judge at `judge.url`; without one, the engine's tests ask the served model."""

    async def ask() -> str:
        judge = build.http_judge(settings.judge)
        try:
            examination = build.examination(settings.judge, judge, None, None)
            examination.progress = progress
            return await judges(examination, keep)
        finally:
            await judge.close()

    if settings.judge.url is not None:
        yield tested("judge", lambda: asyncio.run(ask()), remedy=JUDGE_REMEDY)


async def judges(examination: Examination, keep: Keep) -> str:
    """How the judge judges, and how well. AssertionError if it cannot."""
    ability = await examination.ability()
    keep(examination, ability)
    fault = ability.fault(examination.name)
    expect(fault is None, fault or "")
    return f"{examination.name}: {ability.described()}"


def kept_by(settings: Settings, home: Path, folder: Path) -> Keep:
    """Keeps abilities in a home that was set up, so that `serve` there does not test the judge again."""

    def keep(examination: Examination, ability: Ability) -> None:
        if not (home / CONFIG).exists():
            return
        with suppress(StoreMismatch):  # the store's own test reports it
            with closing(build.store_of_model(settings, home, folder, bind=False)) as store:
                keep_ability(store, examination, ability)

    return keep
