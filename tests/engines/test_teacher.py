"""A teacher on a server: found to be of either kind by asking, and refused with what is missing."""

from __future__ import annotations

import asyncio
import re
import shutil
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from aiohttp import web

from afterwit.build import teacher_server
from afterwit.config import load
from afterwit.errors import EngineError, EngineUnavailable, SettingError
from tests.engines.sglang import recorded as sglang
from tests.engines.teaching import K, teacher_at
from tests.engines.vllm import recorded as vllm

ROWS = [((7, 8, 9), (40, 43, 41)), ((7,), (42,))]
"""Prompts and responses."""


def started(kind: str, model: Path) -> AbstractAsyncContextManager[str]:
    if kind == "vllm":
        return vllm.listening(vllm.Recorded(model, lora=False, runtime_lora=False))
    return sglang.listening(sglang.Recorded(model, enable_lora=False))


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_it_says_the_responses_log_probs_and_its_top_k_in_order(kind: str, qwen: Path) -> None:
    async with started(kind, qwen) as url:
        teacher = teacher_at(url, qwen)
        first, second = await asyncio.to_thread(teacher.score, ROWS)
        context = await asyncio.to_thread(lambda: teacher.context_length)
    assert first.logprobs == (-9.0, -9.0, -9.0)
    assert second.logprobs == (-9.0,)
    assert second.top_ids == (tuple(range(K)),)
    assert second.top_logprobs == (tuple(-1.0 - token for token in range(K)),)
    assert 2000 < context < 2048


async def test_too_few_ids_are_refused_with_the_flag(qwen: Path) -> None:
    recorded = vllm.Recorded(qwen)
    recorded.widest = 20
    async with vllm.listening(recorded) as url:
        with pytest.raises(SettingError, match=r"returns 20 ids per position.*--max-logprobs 50 or more"):
            await asyncio.to_thread(teacher_at(url, qwen, k=50).open)


async def test_other_weights_with_the_same_tokenizer_may_teach(
    qwen: Path, newer_qwen: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(qwen, tmp_path / "other")
    shutil.copy(newer_qwen / "model.safetensors", other)
    async with started("vllm", other) as url:
        (scores,) = await asyncio.to_thread(teacher_at(url, qwen).score, ROWS[:1])
    assert len(scores.logprobs) == 3


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_another_tokenizer_is_refused(kind: str, qwen: Path, llama: Path) -> None:
    async with started(kind, llama) as url:
        with pytest.raises(SettingError, match="whose tokenizer is not that of"):
            await asyncio.to_thread(teacher_at(url, qwen).open)


async def test_an_old_version_is_refused_with_the_one_that_would_do(qwen: Path) -> None:
    recorded = vllm.Recorded(qwen)
    recorded.version = "0.9.2"
    async with vllm.listening(recorded) as url:
        with pytest.raises(SettingError, match=re.escape("vLLM 0.9.2: version 0.32 or newer")):
            await asyncio.to_thread(teacher_at(url, qwen).open)


async def test_nobody_there_is_an_error_that_another_try_may_mend(qwen: Path) -> None:
    with pytest.raises(EngineError, match="cannot be reached"):
        await asyncio.to_thread(teacher_at("http://127.0.0.1:9", qwen).score, ROWS)


@pytest.mark.parametrize("dead", [True, False])
async def test_a_dying_server_is_away_and_one_that_only_fails_is_not(qwen: Path, dead: bool) -> None:
    class Failing(vllm.Recorded):
        async def answer(self, request: web.Request) -> web.StreamResponse:
            if request.path == "/health" and dead:
                return web.Response(status=503)
            body = await request.read()
            if request.path.endswith("/generate") and b'"prompt_logprobs":4' in body:
                return web.json_response({"error": {"message": "CUDA error", "code": 500}}, status=500)
            return await super().answer(request)

    async with vllm.listening(Failing(qwen)) as url:
        with pytest.raises(EngineError, match="CUDA error") as found:
            await asyncio.to_thread(teacher_at(url, qwen).score, ROWS)
    assert isinstance(found.value, EngineUnavailable) is dead


@pytest.mark.parametrize(
    ("direct", "said"),
    [
        ({}, "the engine is embedded: set learner.teacher_url"),
        ({"engine.kind": "vllm", "engine.swap": "whole"}, 'engine.swap = "whole" the weights at .* change'),
        (
            {"learner.teacher_url": "http://t", "learner.teacher_key_env": "NO_SUCH"},
            "NO_SUCH, which is not set",
        ),
    ],
)
def test_settings_that_name_no_steady_teacher_are_refused(
    direct: dict[str, str], said: str, qwen: Path, tmp_path: Path
) -> None:
    settings = load(home=tmp_path, direct={"learner.teacher": "server"} | direct, environment={})
    with pytest.raises(SettingError, match=said):
        teacher_server(settings, qwen)


def test_it_is_the_engines_own_server_unless_another_is_named(qwen: Path, tmp_path: Path) -> None:
    served = {"learner.teacher": "server", "engine.kind": "sglang"}
    settings = load(home=tmp_path, direct=served, environment={})
    assert teacher_server(settings, qwen) is not None
    assert teacher_server(load(home=tmp_path, direct={}, environment={}), qwen) is None


async def test_a_server_that_scores_no_given_ids_is_refused_with_what_would_do(qwen: Path) -> None:
    async with vllm.listening(vllm.Recorded(qwen)) as url:
        with pytest.raises(
            SettingError, match=r"student's ids.*objective.subset = \"teacher\" or \"overlap\""
        ):
            await asyncio.to_thread(teacher_at(url, qwen, given=3).open)
