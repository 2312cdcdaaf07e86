"""The engine that serves, as the judge."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from afterwit.build import judge_stage
from afterwit.chat_format.render import Renderer
from afterwit.config import Settings
from afterwit.engines.port import Generate, Weights
from afterwit.errors import (
    ContextExceeded,
    EngineError,
    EngineUnavailable,
    JudgeRefused,
    JudgeUnavailable,
    RequestError,
    SettingError,
)
from afterwit.judging.engine_judge import EngineJudge
from afterwit.judging.exam import EXAM
from afterwit.judging.voting import Answer, evaluation_vote
from afterwit.turn import Conversation
from tests.fakes.engine import FakeEngine
from tests.fakes.models import tiny_qwen3
from tests.fakes.renderers import renderer_of
from tests.judging.stage.asking import QUESTION, ask


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    return renderer_of(tiny_qwen3(tmp_path_factory.mktemp("qwen")))


def engine_saying(renderer: Renderer, text: str, **changes: Any) -> FakeEngine:
    def script(request: Generate) -> tuple[int, ...]:
        return renderer.encode(text)

    (end_id,) = [index for index, token in renderer.special_ids.items() if token == "<|im_end|>"]
    return FakeEngine(script, end_id=end_id, vocabulary=renderer.vocabulary, **changes)


def engine_judge(engine: FakeEngine, renderer: Renderer, **changes: Any) -> EngineJudge:
    return EngineJudge(engine, renderer, **{"weights": Weights.BASE, "thinking": False} | changes)


async def test_the_engine_judges_with_its_base_weights_in_the_background(renderer):
    engine = engine_saying(renderer, r"It was good. \boxed{1}")
    assert await ask(engine_judge(engine, renderer)) == Answer(words=r"It was good. \boxed{1}")
    (request,) = engine.asked
    assert (request.weights, request.background) == (Weights.BASE, True)
    assert (request.sampling.temperature, request.sampling.max_tokens, request.sampling.seed) == (0.6, 32, 7)
    plain = Conversation(messages=QUESTION, template_args={"enable_thinking": False})
    assert request.prompt_ids == renderer.prompt_ids(plain)


async def test_the_questions_that_all_turns_wait_for_take_their_turn_among_peoples_requests(renderer, house):
    engine = engine_saying(renderer, r"\boxed{1}")
    stage, client, _ = judge_stage(Settings(), house.store, engine, renderer)
    await stage.step()
    assert [request.background for request in engine.asked] == [False] * 2 * len(EXAM)
    await ask(client)
    assert engine.asked[-1].background


async def test_thinking_markers_stay_so_that_the_vote_is_read_outside_of_them(renderer):
    engine = engine_saying(renderer, r"<think>\boxed{-1}</think>\boxed{1}")
    answer = await ask(engine_judge(engine, renderer, thinking=True))
    assert evaluation_vote(answer).value == 1


async def test_a_long_answer_is_clamped_to_the_context_and_a_long_question_refused(renderer):
    length = len(
        renderer.prompt_ids(Conversation(messages=QUESTION, template_args={"enable_thinking": False}))
    )
    engine = engine_saying(renderer, "Good. " * 20, context_length=length + 3)
    await ask(engine_judge(engine, renderer))
    assert engine.asked[0].sampling.max_tokens == 3
    with pytest.raises(JudgeRefused, match="context_chars"):
        await ask(engine_judge(engine_saying(renderer, "x", context_length=length), renderer))


@pytest.mark.parametrize("error", [EngineUnavailable("no route"), EngineError("out of memory")])
async def test_an_engine_that_fails_leaves_the_turn_waiting(renderer, error):
    engine = engine_saying(renderer, "Good.")
    engine.fail_after, engine.error = 0, error
    with pytest.raises(JudgeUnavailable, match=str(error)):
        await ask(engine_judge(engine, renderer))


def test_an_engine_without_base_weights_judges_with_live_ones_only(renderer):
    engine = engine_saying(renderer, "Good.")
    engine.capabilities = replace(engine.capabilities, base_weights=False)
    engine_judge(engine, renderer, weights=Weights.LIVE)
    with pytest.raises(SettingError, match=r"judge\.weights to live"):
        engine_judge(engine, renderer)


async def test_a_question_that_does_not_fit_the_engine_is_a_refusal(renderer):
    engine = engine_saying(renderer, "Good.")
    engine.fail_after, engine.error = 0, ContextExceeded("too long", field="prompt")
    with pytest.raises(JudgeRefused, match="too long"):
        await ask(engine_judge(engine, renderer))


async def test_a_cancelled_question_is_cancelled_in_the_engine(renderer):
    engine = engine_saying(renderer, "Good. Very good.")
    engine.pause_after = 1
    asking = asyncio.create_task(ask(engine_judge(engine, renderer)))
    await asyncio.wait_for(engine.paused.wait(), 5)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert engine.cancelled == 1


async def test_an_answer_that_was_cut_is_no_vote(renderer):
    length = len(
        renderer.prompt_ids(Conversation(messages=QUESTION, template_args={"enable_thinking": False}))
    )
    said = r"It was \boxed{1}"
    engine = engine_saying(
        renderer, said + ", had it not failed.", context_length=length + len(renderer.encode(said))
    )
    answer = await ask(engine_judge(engine, renderer))
    assert answer == Answer(words=said, finished=False)
    assert evaluation_vote(answer).value is None


class StubRenderer:
    """A renderer whose template leaves a thought open, or refuses."""

    def __init__(self, renderer: Renderer, *, refuses: bool = False) -> None:
        self._renderer, self._refuses = renderer, refuses
        self.special_ids, self.end_ids = renderer.special_ids, renderer.end_ids
        self.silent_ids = renderer.silent_ids
        self.joins_bytes = renderer.joins_bytes
        self.convention = renderer.convention
        self.decode = renderer.decode

    def text(self, conversation: Conversation) -> str:
        if self._refuses:
            raise RequestError(400, "template_error", "no system role")
        return self._renderer.text(conversation) + "<think>\n"

    def prompt_ids(self, conversation: Conversation) -> tuple[int, ...]:
        return self._renderer.encode(self.text(conversation))


async def test_an_answer_that_begins_inside_a_thought_votes_only_after_it(renderer):
    stub = StubRenderer(renderer)
    unfinished = await ask(engine_judge(engine_saying(renderer, r"hm \boxed{1}"), stub))
    finished = await ask(engine_judge(engine_saying(renderer, r"hm \boxed{1}</think>\boxed{0}"), stub))
    assert evaluation_vote(unfinished).value is None
    assert evaluation_vote(finished).value == 0


async def test_a_template_that_refuses_the_question_is_a_refusal(renderer):
    stub = StubRenderer(renderer, refuses=True)
    with pytest.raises(JudgeRefused, match="no system role"):
        await ask(engine_judge(engine_saying(renderer, "x"), stub))
