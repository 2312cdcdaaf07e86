"""Replies read by the served model's log-probs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from afterwit.chat_format.render import Renderer
from afterwit.errors import EngineError, EngineUnavailable
from afterwit.judging.ability import measured
from afterwit.judging.engine_judge import EngineReader
from afterwit.judging.polarity import LONGEST_READ, REPLIES
from afterwit.turn import Conversation
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
    reader = EngineReader(engine, renderer)
    said = ["No" * (at + 1) for at in range(3)]
    together = await reader.logprobs(said, REPLIES)
    assert together == [each for reply in said for each in await reader.logprobs([reply], REPLIES)]
    assert len(set(together)) == len(said)
    assert {len(each) for each in together} == {sum(REPLIES.parts)}


class Watched:
    """A renderer, and the conversations that it rendered."""

    def __init__(self, renderer: Renderer) -> None:
        self.encode, self._renderer = renderer.encode, renderer
        self.rendered: list[Conversation] = []

    def prompt_ids(self, conversation: Conversation) -> tuple[int, ...]:
        self.rendered.append(conversation)
        return self._renderer.prompt_ids(conversation)


async def test_a_question_is_rendered_once_for_all_its_answers(engine, renderer):
    watched = Watched(renderer)
    await EngineReader(engine, watched).logprobs(["No"], REPLIES)
    assert len(watched.rendered) == len(REPLIES.examples) + len(REPLIES.asks)


async def test_of_a_long_reply_the_beginning_is_read(engine, renderer):
    reader = EngineReader(engine, renderer)
    (one,) = await reader.logprobs(["a" * LONGEST_READ + "b"], REPLIES)
    assert [one] == await reader.logprobs(["a" * LONGEST_READ], REPLIES)


async def test_an_engine_that_does_not_score_or_fails_has_no_borders_but_one_that_is_away_may(
    engine, renderer
):
    engine.score_errors = [EngineError("out of memory"), EngineUnavailable("it restarts")]
    assert await measured(EngineReader(engine, renderer), REPLIES) is None
    with pytest.raises(EngineUnavailable):
        await measured(EngineReader(engine, renderer), REPLIES)
    engine.capabilities = replace(engine.capabilities, scored_ids=0)
    assert await measured(EngineReader(engine, renderer), REPLIES) is None


async def test_a_model_without_an_opinion_is_measured_and_not_believed(engine, renderer):
    """The fake's log-probs know nothing but lengths."""
    found = await measured(EngineReader(engine, renderer), REPLIES)
    assert found is not None
    assert not found.complaint.holds
