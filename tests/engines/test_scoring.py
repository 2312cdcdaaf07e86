"""Scored rows against one plain forward for each, in float64."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from afterwit.engines.embedded.engine import EmbeddedEngine, load_module
from afterwit.engines.embedded.forward import linear_head, passes, score_rows
from afterwit.engines.port import Score, Scored, Weights
from afterwit.errors import EngineError
from tests.engines.talk import ask, plain_logits, say

CPU = torch.device("cpu")
TRUNK = tuple((7 * at + 3) % 450 for at in range(120))
ROWS = [
    Score(prompt_ids=(*TRUNK[:end], *hint), response_ids=TRUNK[end : end + 9], tau=tau)
    for end, tau in ((40, 1.0), (70, 0.6), (100, 1.0))
    for hint in ((), (401, 402), (401, 403, 404))
]


def plain(folder: Path, row: Score, top: int) -> tuple[list[float], list[list[int]], list[list[float]]]:
    """By all logits of a plain forward in float64."""
    logits_LV = plain_logits(folder, (*row.prompt_ids, *row.response_ids), torch.float64)
    logprobs_TV = (logits_LV[len(row.prompt_ids) - 1 : -1] / row.tau).log_softmax(-1)
    own = logprobs_TV.gather(-1, torch.tensor(row.response_ids)[:, None])[:, 0]
    best = logprobs_TV.sort(descending=True, stable=True)
    return own.tolist(), best.indices[:, :top].tolist(), best.values[:, :top].tolist()


def compare(found: Scored, folder: Path, row: Score, close: float) -> None:
    own, ids, values = plain(folder, row, 7)
    assert found.logprobs == pytest.approx(own, abs=close)
    assert [list(each) for each in found.top_ids] == ids
    for ours, theirs in zip(found.top_logprobs, values, strict=True):
        assert ours == pytest.approx(theirs, abs=close)


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-10), (torch.float32, 2e-4)])
def test_packed_rows_are_scored_as_one_by_one(family: Path, dtype: torch.dtype, close: float) -> None:
    module = load_module(family, CPU, dtype)
    assert len(passes(module, ROWS, 10_000)) == 1
    for found, row in zip(score_rows(module, 0, ROWS, top=7), ROWS, strict=True):
        compare(found, family, row, close)


def test_small_passes_change_nothing(qwen: Path) -> None:
    module = load_module(qwen, CPU, torch.float64)
    assert len(passes(module, ROWS, 30)) > 1
    whole, parts = (score_rows(module, 0, ROWS, top=3, limit=limit) for limit in (10_000, 30))
    for one, other in zip(whole, parts, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-10)
        assert one.top_ids == other.top_ids


def test_a_model_that_cannot_be_packed_is_scored_row_by_row(qwen: Path) -> None:
    module = load_module(qwen, CPU, torch.float64)
    module._supports_attention_backend = False
    assert len(passes(module, ROWS, 10_000)) == len(ROWS)
    for found, row in zip(score_rows(module, 0, ROWS[:2], top=7), ROWS[:2], strict=True):
        compare(found, qwen, row, 1e-10)


def test_weights_that_may_be_decoding_meanwhile_are_not_widened(qwen: Path) -> None:
    """The defect: within the test, weights in half precision were wide for the worker's thread as well."""
    module, ran = load_module(qwen, CPU, torch.bfloat16), set[tuple[bool, torch.dtype]]()
    live = module.model.layers[0].mlp
    live.register_forward_pre_hook(lambda mlp, given: ran.add((mlp is live, mlp.up_proj.weight.dtype)))
    assert len(passes(module, ROWS, 10_000)) == 1
    assert ran == {(True, torch.bfloat16), (False, torch.float32)}


def test_a_head_that_is_more_than_a_linear_layer_is_run_by_the_model_itself(qwen: Path) -> None:
    module = load_module(qwen, CPU, torch.float64)
    assert linear_head(module) is not None
    module.lm_head.register_forward_hook(lambda layer, given, out: out)
    assert linear_head(module) is None
    for found, row in zip(score_rows(module, 0, ROWS, top=7), ROWS, strict=True):
        compare(found, qwen, row, 1e-10)


def test_a_head_whose_logits_the_model_changes_is_not_taken(qwen: Path) -> None:
    module = load_module(qwen, CPU, torch.float32)
    module.config.final_logit_softcapping = 0.1
    assert linear_head(module) is None


async def test_rows_are_scored_while_a_response_is_sampled_and_the_response_stays_the_same(
    engine: EmbeddedEngine,
) -> None:
    request = ask(TRUNK, max_tokens=30, ignore_eos=True, seed=1)
    alone = await say(engine, request)
    together, scored = await asyncio.gather(
        say(engine, request), engine.score(ROWS, top=2, weights=Weights.LIVE)
    )
    assert together.ids == alone.ids
    again = await engine.score(ROWS, top=2, weights=Weights.LIVE)
    assert [each.top_ids for each in scored] == [each.top_ids for each in again]


async def test_live_and_base_weights_score_apart_after_a_swap(
    engine: EmbeddedEngine, newer_qwen: Path, qwen: Path
) -> None:
    await engine.stage(4, newer_qwen)
    await engine.promote()
    (live,) = await engine.score(ROWS[:1], top=7, weights=Weights.LIVE)
    (base,) = await engine.score(ROWS[:1], top=7, weights=Weights.BASE)
    assert (live.version, base.version) == (4, 0)
    compare(live, newer_qwen, ROWS[0], 2e-4)
    compare(base, qwen, ROWS[0], 2e-4)


async def test_a_model_that_raises_is_an_engine_error(engine: EmbeddedEngine) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no memory")

    engine.runners[Weights.LIVE].module.register_forward_pre_hook(broken)
    with pytest.raises(EngineError, match="no memory"):
        await engine.score(ROWS, top=1, weights=Weights.LIVE)
