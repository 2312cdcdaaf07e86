"""What judges: the client that is asked, the stage that asks it of turns, and hindsight over rollouts."""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import TYPE_CHECKING

from afterwit.build.home import worker_name
from afterwit.config import Settings
from afterwit.errors import SettingError
from afterwit.judging.choose_prompts import judge_prompts

if TYPE_CHECKING:
    from afterwit.chat_format.render import Renderer
    from afterwit.engines.port import Engine
    from afterwit.judging.ability import Examiner
    from afterwit.judging.check_stage import JudgeChecks
    from afterwit.judging.http_judge import HttpJudge
    from afterwit.judging.settings import JudgeSettings
    from afterwit.judging.stage import Judge
    from afterwit.judging.verdicts import JudgeClient
    from afterwit.store import AsyncStore
    from afterwit.worker import Report


def judge_client(settings: JudgeSettings, engine: Engine | None, renderer: Renderer) -> JudgeClient:
    """The endpoint at `judge.url`; without one, the served model's own frozen weights."""
    from afterwit.judging.engine_judge import EngineJudge

    if settings.url is not None:
        return http_judge(settings)
    if engine is None:
        raise SettingError(
            "without a gateway here there is no model to judge with: set judge.url and judge.model"
        )
    return EngineJudge(engine, renderer, weights=settings.weights, thinking=settings.thinking)


def http_judge(settings: JudgeSettings) -> HttpJudge:
    """The endpoint at `judge.url`. SettingError if the variable that holds its key is not set."""
    from afterwit.judging.http_judge import HttpJudge

    return HttpJudge.of(settings, os.environ)


def judge_stage(
    settings: Settings, store: AsyncStore, client: JudgeClient, *, examiner: Examiner | None = None
) -> Judge:
    """The judge stage over a store and a client. Without an `examiner` the client is taken to be able."""
    from afterwit.judging.stage import Clock, Judge
    from afterwit.promotion.watch import WatchOver

    judge = settings.judge
    return Judge(
        store=store,
        client=client,
        prompts=judge_prompts(judge),
        settings=judge,
        rules=judge.rules(settings.objective.reads),
        owner=worker_name("judge"),
        clock=Clock(now=time.time, sleep=asyncio.sleep, random=random.random),
        after=WatchOver(settings.promotion).judged,
        redaction=settings.redaction,
        examiner=examiner,
    )


def examiner_of(
    settings: JudgeSettings,
    store: AsyncStore,
    client: JudgeClient,
    engine: Engine | None,
    renderer: Renderer,
) -> Examiner | None:
    """What finds out whether the judge can judge. None: `short` prompts have judges of their own."""
    from afterwit.judging.ability import Examiner, ReplyReader

    if settings.prompts == "short":
        return None
    reader = None if engine is None else ReplyReader(engine, renderer)
    prompts = judge_prompts(settings)
    return Examiner(store, client, prompts, settings, reader, judge=_name(settings, engine))


def _name(settings: JudgeSettings, engine: Engine | None) -> str:
    """Who judges, and by which weights."""
    if settings.url is not None:
        return f"{settings.model} at {settings.url}"
    return "" if engine is None else f"{engine.facts.model} {engine.facts.fingerprint} {settings.weights}"


def judge_checks(
    settings: Settings,
    store: AsyncStore,
    client: JudgeClient,
    engine: Engine | None,
    renderer: Renderer,
    *,
    report: Report,
) -> JudgeChecks:
    """What checks the judge. Without an engine here its hints are not scored."""
    from afterwit.judging.check_stage import HintScoring, JudgeChecks

    judge = settings.judge
    return JudgeChecks(
        store,
        client,
        judge_prompts(judge),
        judge,
        judge=_name(judge, engine),
        scoring=None if engine is None else HintScoring(engine, renderer, judge.placement),
        report=report,
    )
