"""The judge's and the engine's making, each from its section of the settings."""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

from afterwit.apps.config import Settings
from afterwit.apps.wiring import worker_name
from afterwit.core.errors import SettingError
from afterwit.core.judging.hindsight import JudgePrompts
from afterwit.engines.port import Engine
from afterwit.stages.judge.clients import EngineJudge, HttpJudge, JudgeClient
from afterwit.stages.judge.settings import JudgeSettings
from afterwit.stages.judge.stage import Clock, Judge
from afterwit.store import AsyncStore
from afterwit.wire.judge.full_prompts import FullPrompts
from afterwit.wire.judge.short_prompts import ShortPrompts
from afterwit.wire.model_text.render import Renderer


def load_engine(settings: Settings, folder: Path) -> Engine:
    """The embedded engine over the model; SettingError without torch, or where it cannot serve the model."""
    try:
        from afterwit.engines.embedded.engine import EmbeddedEngine
    except ImportError as error:
        raise SettingError(
            f"the embedded engine needs {error.name}: install the extra with pip install 'afterwit[local]'"
        ) from error
    return EmbeddedEngine.load(folder, settings.engine)


def judge_client(settings: JudgeSettings, engine: Engine | None, renderer: Renderer) -> JudgeClient:
    """The endpoint at `judge.url`, else the served model's own frozen weights."""
    if settings.url is None:
        if engine is None:
            raise SettingError(
                "without a gateway here there is no model to judge with: set judge.url and judge.model"
            )
        return EngineJudge(engine, renderer, weights=settings.weights, thinking=settings.thinking)
    return HttpJudge.of(settings, os.environ)


def judge_stage(settings: Settings, store: AsyncStore, client: JudgeClient) -> Judge:
    """The stage over a store and a client."""
    judge = settings.judge
    return Judge(
        store=store,
        client=client,
        prompts=judge_prompts(judge),
        settings=judge,
        rules=judge.rules(longest=settings.objective.hint_selection == "longest"),
        owner=worker_name("judge"),
        clock=Clock(now=time.time, sleep=asyncio.sleep, random=random.random),
        refusal=settings.objective.refusal,
    )


def judge_prompts(settings: JudgeSettings) -> JudgePrompts:
    """The prompts for judges of ordinary size, or the short ones."""
    if settings.prompts == "short":
        return ShortPrompts()
    return FullPrompts(
        max_tokens=settings.max_tokens,
        context_chars=settings.context_chars,
        tools_chars=settings.tools_chars,
        response_chars=settings.response_chars,
        next_state_chars=settings.next_state_chars,
    )
