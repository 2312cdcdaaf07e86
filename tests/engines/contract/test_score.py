"""Scores of a given response in every engine: the teacher's rows."""

from __future__ import annotations

import math

import pytest

from afterwit.engines.port import Engine, Score, Weights
from afterwit.errors import ContextExceeded, EngineUnavailable, RequestRefused
from tests.engines.talk import ask, say

PROMPT = tuple(range(3, 40))
ROWS = [
    Score(prompt_ids=PROMPT, response_ids=(50, 51, 52)),
    Score(prompt_ids=(*PROMPT, 60, 61), response_ids=(50, 51, 52)),
    Score(prompt_ids=(9,), response_ids=(5,)),
]


async def test_every_id_of_a_response_is_scored_the_first_included(engine: Engine) -> None:
    found = await engine.score(ROWS, top=4, weights=Weights.LIVE)
    assert [len(each.logprobs) for each in found] == [3, 3, 1]
    assert {each.version for each in found} == {engine.version}
    for each in found:
        assert all(math.isfinite(value) and value <= 1e-6 for value in each.logprobs)
        for ids, logprobs in zip(each.top_ids, each.top_logprobs, strict=True):
            assert len(ids) == len(set(ids)) == len(logprobs) == 4
            assert list(logprobs) == sorted(logprobs, reverse=True)


async def test_the_likeliest_ids_hold_the_scored_one_with_the_same_log_prob(engine: Engine) -> None:
    for each, row in zip(await engine.score(ROWS, top=20, weights=Weights.LIVE), ROWS, strict=True):
        for token, own, ids, logprobs in zip(
            row.response_ids, each.logprobs, each.top_ids, each.top_logprobs, strict=True
        ):
            told = dict(zip(ids, logprobs, strict=True))
            assert told.get(token, own) == pytest.approx(own, abs=1e-4)
            assert own >= logprobs[-1] - 1e-4 or token not in told


async def test_what_was_sampled_is_scored_as_it_was_sampled(engine: Engine) -> None:
    if engine.facts.name == "fake":
        pytest.skip("its log-probs are made up")
    said = await say(engine, ask(PROMPT, max_tokens=12, ignore_eos=True))
    (found,) = await engine.score(
        [Score(prompt_ids=PROMPT, response_ids=said.ids)], top=1, weights=Weights.LIVE
    )
    assert found.logprobs == pytest.approx(said.logprobs, abs=1e-3)


async def test_the_first_and_the_last_id_of_the_vocabulary_are_scored_like_all_others(engine: Engine) -> None:
    last = engine.facts.vocabulary - 1
    row = Score(prompt_ids=PROMPT, response_ids=(0, last, last, 0))
    (found,) = await engine.score([row], top=engine.capabilities.scored_ids, weights=Weights.LIVE)
    for token, own, ids, logprobs in zip(
        row.response_ids, found.logprobs, found.top_ids, found.top_logprobs, strict=True
    ):
        told = dict(zip(ids, logprobs, strict=True))
        assert math.isfinite(own)
        assert told.get(token, own) == pytest.approx(own, abs=1e-4)


async def test_a_row_that_does_not_fit_is_refused(engine: Engine) -> None:
    long = Score(prompt_ids=(5,) * engine.facts.context_length, response_ids=(5,))
    with pytest.raises(ContextExceeded):
        await engine.score([long], top=1, weights=Weights.LIVE)
    foreign = Score(prompt_ids=(5,), response_ids=(engine.facts.vocabulary,))
    with pytest.raises(RequestRefused, match="vocabulary"):
        await engine.score([foreign], top=1, weights=Weights.LIVE)
    with pytest.raises(RequestRefused, match="ids per position"):
        await engine.score(ROWS, top=engine.capabilities.scored_ids + 1, weights=Weights.LIVE)


async def test_another_temperature_than_1_is_scored_or_refused(engine: Engine) -> None:
    warm = Score(prompt_ids=PROMPT, response_ids=(50,), tau=0.5)
    if engine.capabilities.scored_tau:
        assert await engine.score([warm], top=1, weights=Weights.LIVE)
        return
    with pytest.raises(RequestRefused, match="temperature 1 only"):
        await engine.score([warm], top=1, weights=Weights.LIVE)


async def test_a_closed_engine_scores_nothing(engine: Engine) -> None:
    await engine.close()
    with pytest.raises(EngineUnavailable):
        await engine.score(ROWS, top=1, weights=Weights.LIVE)


def test_a_row_has_a_prompt_and_a_response() -> None:
    with pytest.raises(ValueError, match="0 response ids"):
        Score(prompt_ids=(1,), response_ids=())
