"""Replies read by the served model's log-probs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from afterwit.chat_format.render import Renderer
from afterwit.errors import EngineError, EngineUnavailable
from afterwit.judging.ability import AT_ONCE, LONGEST_READ, ReplyReader
from afterwit.judging.polarity import asked
from tests.fakes.engine import FakeEngine
from tests.fakes.models import tiny_qwen3


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    return Renderer.load(tiny_qwen3(tmp_path_factory.mktemp("qwen")))


@pytest.fixture
def engine(renderer: Renderer) -> FakeEngine:
    (end_id,) = [index for index, token in renderer.special_ids.items() if token == "<|im_end|>"]
    return FakeEngine(lambda request: (), end_id=end_id, vocabulary=renderer.vocabulary)


async def test_each_reply_reads_the_same_alone_and_among_others(engine, renderer):
    """The fake's log-probs follow from the lengths of prompt and response: no two questions are mixed up."""
    reader = ReplyReader(engine, renderer)
    said = ["No" * (at + 1) for at in range(AT_ONCE + 1)]
    together = await reader.logprobs(said)
    assert together == [each for reply in said for each in await reader.logprobs([reply])]
    assert len(set(together)) == len(said)
    assert {len(each) for each in together} == {len(asked("No"))}


async def test_of_a_long_reply_the_beginning_is_read(engine, renderer):
    reader = ReplyReader(engine, renderer)
    assert await reader.logprobs(["a" * LONGEST_READ + "b"]) == await reader.logprobs(["a" * LONGEST_READ])


async def test_an_engine_that_does_not_score_or_fails_has_no_borders_but_one_that_is_away_may(
    engine, renderer
):
    engine.score_errors = [EngineError("out of memory"), EngineUnavailable("it restarts")]
    assert await ReplyReader(engine, renderer).measured() is None
    with pytest.raises(EngineUnavailable):
        await ReplyReader(engine, renderer).measured()
    engine.capabilities = replace(engine.capabilities, scored_ids=0)
    assert await ReplyReader(engine, renderer).measured() is None


async def test_a_model_without_an_opinion_is_measured_and_not_believed(engine, renderer):
    """The fake's log-probs know nothing but lengths."""
    found = await ReplyReader(engine, renderer).measured()
    assert found is not None
    assert not found.complaint.holds
