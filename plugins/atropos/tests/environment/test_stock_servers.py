"""The environment on stock vLLM and SGLang servers: policy, judge and teacher are one server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("atroposlib", reason="needs the extra atropos")

import torch
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from transformers import AutoModelForCausalLM, PreTrainedModel

from afterwit.chat_format.render import Renderer
from afterwit.judging.hinted_prompts import Placement, splice
from afterwit_atropos.demo import MODEL
from afterwit_atropos.environment.env import AgenticOPDEnv
from afterwit_atropos.episode import Attempt
from afterwit_atropos.group import Profile
from afterwit_atropos.rollout import ScoredRollout, ScoredTurn
from afterwit_atropos.wire import group_data, read
from plugins.atropos.tests.environment.stock import fields, stock
from tests.servers.server import Servers

pytestmark = [pytest.mark.slow, pytest.mark.engines, pytest.mark.atropos]
GROUPS = 8
"""Groups that are played until one has teacher's rows."""
CLOSE = 2e-4
"""Of log-probs in float32 by two programs."""


@pytest.fixture(params=["vllm", "sglang"])
async def env(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> AsyncIterator[Any]:
    server = stock(servers, request.param)
    config, _ = AgenticOPDEnv.config_init()
    config = config.model_copy(update=fields(tmp_path))
    named = APIServerConfig(
        server_type=request.param, base_url=f"{server.url}/v1", model_name=str(MODEL), api_key="x"
    )
    env = AgenticOPDEnv(config, [named])
    await env.setup()
    yield env
    await env._close()


async def test_what_a_stock_server_samples_and_teaches_is_right_token_for_token(env: Any) -> None:
    player = env._players[0]
    done = await taught(env)
    scored, scores = [each for _, each in done], [attempt.reward.total for attempt, _ in done]
    data = group_data(scored, scores, Profile.TOPK, player.top_k, messages=True)
    assert data is not None
    group = read(data, vocabulary=player.engine.facts.vocabulary)
    assert group.distils
    for sequence in group.sequences:
        assert sequence.logprobs is not None
        assert sequence.notes is not None
        for turn in sequence.notes.turns:
            said = sequence.tokens[turn.begin : turn.end]
            expected = logprobs_TV(sequence.tokens[: turn.begin], said)
            own = [row[token].item() for row, token in zip(expected, said, strict=True)]
            assert sequence.logprobs[turn.begin : turn.end] == pytest.approx(own, abs=CLOSE)
    renderer = Renderer.load(MODEL)
    for each in scored:
        for turn in each.scored:
            check_rows(turn, renderer, player.top_k)


async def taught(env: Any) -> list[tuple[Attempt, ScoredRollout]]:
    """The rollouts of the first item of which at least one turn has rows."""
    player = env._players[0]
    for _ in range(GROUPS):
        item = await env.get_next_item()
        done = [await player.play(item) for _ in range(env.config.group_size)]
        if any(scored.scored for _, scored in done):
            return done
    raise AssertionError(f"none of {GROUPS} groups has teacher's rows")


def check_rows(turn: ScoredTurn, renderer: Renderer, top_k: int) -> None:
    """Each row equals a plain forward's after the hinted prompt; the end of the turn has a row too."""
    (hint,) = {turn.hints[chosen] for chosen in turn.chosen}
    ids = turn.turn.sampled.ids
    prompt = renderer.prompt_ids(splice(turn.turn.conversation, hint, Placement.LAST_USER))
    assert len(turn.rows) == len(ids)
    assert ids[-1] in renderer.end_ids
    for token, row, logprobs_V in zip(ids, turn.rows, logprobs_TV(prompt, ids), strict=True):
        assert row.ids[0] == token
        assert len(row.ids) == top_k
        assert row.logprobs == pytest.approx(logprobs_V[list(row.ids)].tolist(), abs=CLOSE)


@torch.no_grad()
def logprobs_TV(prompt: Any, response: Any) -> torch.Tensor:
    logits_LV = model()(torch.tensor([(*prompt, *response)])).logits[0]
    return logits_LV[len(prompt) - 1 : -1].log_softmax(-1)


@cache
def model() -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
