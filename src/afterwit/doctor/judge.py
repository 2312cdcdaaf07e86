"""The self-test of the judge: it needs no torch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from afterwit import build
from afterwit.config import Settings
from afterwit.doctor.finding import Finding, expect, tested
from afterwit.judging.ability import Examination, Progress, name_of
from afterwit.judging.settings import JudgeSettings

JUDGE_REMEDY = "set judge.url, judge.model and judge.api_key_env as docs/judging.md shows; turns wait for it"


def check_judge(settings: Settings, progress: Progress) -> Iterator[Finding]:
    """The test of the judge at `judge.url`; without one, the engine's tests ask the served model."""

    async def ask() -> str:
        judge = build.http_judge(settings.judge)
        try:
            examination = build.examination(settings.judge, judge, None, None)
            examination.progress = progress
            return await judges(examination, settings.judge)
        finally:
            await judge.close()

    if settings.judge.url is not None:
        yield tested("judge", lambda: asyncio.run(ask()), remedy=JUDGE_REMEDY)


async def judges(examination: Examination, settings: JudgeSettings) -> str:
    """How it judges, and how well. AssertionError if it cannot."""
    ability, name = await examination.ability(), name_of(settings)
    fault = ability.fault(name)
    expect(fault is None, fault or "")
    return f"{name}: {ability.described()}"
