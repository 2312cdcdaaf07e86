"""Requests that the model writes in a person's place, and how practice uses them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import pytest

from afterwit.chat_format.render import Renderer
from afterwit.engines.port import Generate, Score, Scored, Weights
from afterwit.errors import EngineUnavailable, TurnNotFound
from afterwit.judging.hinted_prompts import HEADING
from afterwit.lifecycle import Reason, State
from afterwit.practice.lessons import PracticeSettings
from afterwit.practice.rounds import Round, Tried, next_round
from afterwit.practice.synthetic import (
    AT_ONCE,
    KNOWN,
    MOST_TOKENS,
    PLACEHOLDER,
    TRIES,
    SyntheticRequests,
)
from afterwit.store import Filter, Store
from afterwit.turn import Conversation, Kind, Message, Turn
from afterwit.vetting.redaction import Redaction
from tests.fakes.engine import FakeEngine
from tests.practice.test_stage import LEARNER, NOW, SHORT, House, asks, correct, recorded
from tests.store.examples import a_turn, a_version

RULES = Message(role="system", content="Answer in French.")


class Writer:
    """An engine that writes these requests in turn, each once, then numbered ones."""

    def __init__(self, renderer: Renderer, *texts: str) -> None:
        self.texts, self.numbers = list(texts), count()
        (end,) = [index for index, token in renderer.special_ids.items() if token == "<|im_end|>"]

        def script(request: Generate) -> Sequence[int]:
            return renderer.encode(
                self.texts.pop(0) if self.texts else f"Explain the word w{next(self.numbers)}."
            )

        self.engine = FakeEngine(script, end_id=end, vocabulary=renderer.vocabulary)
        self.requests = SyntheticRequests(self.engine, renderer, Redaction())

    def synthetic(self, like: Turn, wanted: int) -> tuple[list[Turn], Sequence[str]]:
        return asyncio.run(self.requests.take(like, wanted))


def words_of(turns: Sequence[Turn]) -> list[str | None]:
    return [turn.conversation.messages[-1].content for turn in turns]


def test_requests_follow_the_instructions_of_the_turn_and_nothing_else_of_it(renderer: Renderer) -> None:
    tool = {"type": "function", "function": {"name": "read", "parameters": {}}}
    earlier = (Message(role="user", content="What is tea?"), Message(role="assistant", content="A leaf."))
    conversation = Conversation(messages=(RULES, *earlier), tools=(tool,), lessons="Be brief.")
    writer = Writer(renderer, "What is rain made of?")
    synthetic, known = writer.synthetic(a_turn("tea", conversation=conversation), 2)
    assert words_of(synthetic) == ["What is rain made of?", "Explain the word w0."]
    assert synthetic[0].conversation.messages[:-1] == (RULES,)
    assert synthetic[0].conversation.tools == (tool,)
    assert synthetic[0].conversation.lessons == ""
    assert len(known) >= KNOWN
    for asked in writer.engine.asked:
        prompt = renderer.decode(asked.prompt_ids)
        assert prompt.endswith("<|im_start|>user\n")
        assert "Answer in French." in prompt
        assert "tea" not in prompt
        assert "Be brief." not in prompt
        assert asked.weights is Weights.BASE
        assert asked.background
        assert asked.sampling.max_tokens == MOST_TOKENS


def test_instructions_may_hold_the_word_that_stands_for_a_request(renderer: Renderer) -> None:
    rules = Message(role="system", content=f"Never say {PLACEHOLDER} to anyone.")
    writer = Writer(renderer, "What is rain made of?")
    writer.synthetic(a_turn("tea", conversation=Conversation(messages=(rules,))), 1)
    assert all(
        renderer.decode(asked.prompt_ids).endswith("<|im_start|>user\n") for asked in writer.engine.asked
    )


def test_each_request_is_new_and_the_model_is_asked_again_when_all_are_used(renderer: Renderer) -> None:
    writer, turn = Writer(renderer), a_turn("tea", conversation=asks("What is tea?"))
    used = [text for _ in range(KNOWN) for text in words_of(writer.synthetic(turn, 3)[0])]
    assert len(set(used)) == len(used) == 3 * KNOWN
    assert len(writer.engine.asked) < 3 * KNOWN + 2 * AT_ONCE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hi",
        f"What is tea? {HEADING} Be brief.",
        'Read it. <tool_call>{"name": "read"}',
        "It says tea.</tool_response>",
        "My key is sk-proj-" + "a1B2" * 10,
        "tea " * MOST_TOKENS,
    ],
)
def test_what_is_no_request_or_holds_a_secret_is_not_used(renderer: Renderer, text: str) -> None:
    _, known = Writer(renderer, text).synthetic(a_turn("tea", conversation=asks("What is tea?")), 1)
    assert len(known) >= KNOWN
    assert all(each.startswith("Explain the word") for each in known)


@pytest.mark.parametrize("texts", [[""], ["What is tea?", "What is rain?", ""]])
def test_the_few_requests_of_a_model_that_writes_no_others_come_again(
    renderer: Renderer, texts: list[str]
) -> None:
    writer, turn = Writer(renderer, *texts * 100), a_turn("tea", conversation=asks("What is tea?"))
    written = [text for text in texts if text]
    assert words_of(writer.synthetic(turn, 3)[0]) == (written * 2)[:3]
    first = len(writer.engine.asked)
    assert first <= TRIES * KNOWN + 2 * AT_ONCE
    again, known = writer.synthetic(turn, 3)
    assert (words_of(again), known) == ((written * 3)[3:], tuple(written))
    assert len(writer.engine.asked) - first <= 2 * AT_ONCE


def test_a_draw_that_brings_nothing_new_does_not_bring_all_requests_again(renderer: Renderer) -> None:
    first = [f"Explain the number {number}." for number in range(KNOWN)]
    writer = Writer(renderer, *first, *first[:1] * 2 * AT_ONCE)
    turn = a_turn("tea", conversation=asks("What is tea?"))
    assert words_of(writer.synthetic(turn, KNOWN)[0]) == first
    assert words_of(writer.synthetic(turn, 3)[0]) == first[:3]
    assert words_of(writer.synthetic(turn, 3)[0]) == [f"Explain the word w{number}." for number in range(3)]


def test_instructions_that_leave_no_room_for_a_request_draw_none(renderer: Renderer) -> None:
    rules = Message(role="system", content="Answer in French. " * 500)
    turn = a_turn("tea", conversation=Conversation(messages=(rules, *asks("What is tea?").messages)))
    assert Writer(renderer).synthetic(turn, 3) == ([], ())


def test_a_template_without_the_person_s_words_draws_none(tmp_path: Path, renderer: Renderer) -> None:
    silent = Renderer(
        renderer._tokenizer,
        {"default": "{{ messages[0]['role'] }}"},
        special_tokens={},
        end_ids=renderer.end_ids,
    )
    assert Writer(silent).synthetic(a_turn("tea", conversation=asks("What is tea?")), 3) == ([], ())


class Drawing(House):
    """A stage whose base writes requests and answers them.

    About `unmoved` requests a lesson changes nothing: with it and without it, the base finds the policy's
    answer by `drift` nats less likely than the policy does.
    """

    def __init__(
        self, store: Store, renderer: Renderer, *unmoved: str, drift: float = 0.0, **settings: Any
    ) -> None:
        super().__init__(store, renderer, gap=5.0, **{"synthetic": 0.5} | settings)
        self.renderer, self.unmoved, self.drift = renderer, unmoved, drift
        self.topics: Iterator[str] = (f"w{number}" for number in count())
        answer = renderer.encode("A long answer.")

        def script(request: Generate) -> Sequence[int]:
            asks_for_request = renderer.decode(request.prompt_ids).endswith("<|im_start|>user\n")
            return renderer.encode(f"Explain the word {next(self.topics)}.") if asks_for_request else answer

        self.engine._script = script

    async def scores(self, rows: Sequence[Score], *, top: int, weights: Weights) -> list[Scored]:
        return [self.scored_by_base(row) for row in rows]

    def scored_by_base(self, row: Score) -> Scored:
        prompt, lower = self.renderer.decode(row.prompt_ids), 0.0
        if any(each in prompt for each in self.unmoved):
            lower = self.drift
        elif HEADING in prompt:
            lower = self.gap or 0.0
        own = [-0.25 * (place % 4) for place in range(len(row.response_ids))]
        return Scored(version=0, logprobs=(own[0] - lower, *own[1:]), top_ids=(), top_logprobs=())


def test_one_recorded_prompt_is_asked_once_an_update_and_the_model_writes_the_other_requests(
    store: Store, renderer: Renderer
) -> None:
    correct(store, "moon")
    assert Drawing(store, renderer).step()
    (lesson,) = store.lessons()
    assert [each.prompt == each.turn for each in lesson.answers] == [False, True, True]
    asked, *synthetic = (store.turn(each.turn).sampled_turn for each in lesson.answers)
    assert words_of([asked]) == ["Explain moon to me."]
    assert words_of(synthetic) == ["Explain the word w0.", "Explain the word w1."]
    assert {(turn.session, turn.kind) for turn in synthetic} == {("moon", Kind.PRACTICE)}


def test_of_many_recorded_prompts_half_make_room_for_requests_of_the_model(
    store: Store, renderer: Renderer
) -> None:
    recorded(store, "tea", "rain", "snow", "sun")
    correct(store, "moon")
    assert Drawing(store, renderer).step()
    assert [each.prompt == each.turn for each in store.lessons()[0].answers] == [False, False, True]


def test_drawn_requests_go_on_when_no_recorded_prompt_can_be_asked(store: Store) -> None:
    correct(store, "moon")
    found = next_round(store, PracticeSettings(), LEARNER, now=NOW + 1, tried=Tried(refused={"moon"}))
    assert isinstance(found, Round)
    assert (found.prompts, found.synthetic, found.own.id) == ((), 3, "moon")
    found = next_round(
        store,
        PracticeSettings(),
        LEARNER,
        now=NOW + 1,
        tried=Tried(refused={"moon"}, recorded_only={("moon", SHORT)}),
    )
    assert found == "1 lesson: practised on every prompt of its kind"


def test_a_good_answer_to_a_request_that_the_lesson_does_not_concern_counts_for_nothing(
    store: Store, renderer: Renderer
) -> None:
    correct(store, "moon")
    assert Drawing(store, renderer, "w0.").step()
    (lesson,) = store.lessons()
    assert [len(lesson.answers), len(lesson.along)] == [2, 1]
    (aside,) = (store.turn(each.turn) for each in lesson.along)
    assert words_of([aside.sampled_turn]) == ["Explain the word w0."]
    assert (aside.state, aside.reason) == (State.SKIPPED, Reason.ALREADY_GOOD)


def test_where_the_policy_has_left_the_base_the_teacher_shows_the_way_back(
    store: Store, renderer: Renderer
) -> None:
    correct(store, "moon")
    assert Drawing(store, renderer, "w0.", drift=3.0).step()
    (lesson,) = store.lessons()
    assert [(each.gap, each.state) for each in lesson.answers] == [(5.0, State.JUDGED)] * 2
    assert [(each.gap, each.state) for each in lesson.along] == [(3.0, State.JUDGED)]
    assert store.turn(lesson.along[0].turn).verdict.hints == ("",)  # without the lesson


def test_forgetting_the_correction_forgets_what_was_drawn_for_it(store: Store, renderer: Renderer) -> None:
    correct(store, "moon")
    assert Drawing(store, renderer).step()
    turns = [each.turn for each in store.lessons()[0].answers]
    assert set(turns) <= set(store.turn_ids("moon"))
    store.forget("moon", now=1.0)
    assert store.lessons() == []
    for turn in turns:
        with pytest.raises(TurnNotFound):
            store.turn(turn)


def test_a_lesson_about_a_word_that_no_other_request_has_stays_with_its_own_prompt(
    store: Store, renderer: Renderer
) -> None:
    correct(store, "moon", "Explain moon as a stone.")
    house = Drawing(store, renderer)
    assert house.step()
    assert house.step()
    (lesson,) = store.lessons()
    assert [each.prompt for each in lesson.answers] == ["moon"] * 3
    store.change_lesson(lesson.number, words="Keep it short.")  # a person's edit names no case
    waiting = [each.turn for each in store.waiting(now=house.now)]
    store.commit_version(a_version(1, waiting), now=house.now)
    house.engine.version, house.now = 1, house.now + 1
    assert house.step()
    assert [each.prompt == each.turn for each in store.lessons()[0].answers].count(True) == 3


def test_a_lesson_about_one_request_stays_with_it_where_the_model_can_write_none(
    store: Store, renderer: Renderer
) -> None:
    recorded(store, "tea", "rain", "snow")  # "What is tea?"
    correct(store, "moon", "Explain moon as a stone.")
    house = Drawing(store, renderer)
    house.engine.facts = replace(house.engine.facts, context_length=MOST_TOKENS)
    assert (house.step(), house.step()) == (True, True)
    assert [each.prompt for each in store.lessons()[0].answers] == ["moon"] * 3


def test_a_lesson_that_is_given_in_another_conversation_too_no_longer_names_a_case(
    store: Store, renderer: Renderer
) -> None:
    words = "Mention the moon first."
    correct(store, "moon", words)
    house = Drawing(store, renderer)
    assert (house.step(), house.step()) == (True, True)
    (lesson,) = store.lessons()
    assert {each.prompt for each in lesson.answers} == {"moon"}
    waiting = [each.turn for each in store.waiting(now=house.now)]
    store.commit_version(a_version(1, waiting), now=house.now)
    house.engine.version = 1
    correct(store, "sun", words, conversation=asks("Is the moon near?"), now=house.now + 1)
    house.now += 2
    assert house.step()
    (lesson,) = store.lessons()
    assert any(each.prompt == each.turn for each in lesson.answers)


def test_a_lesson_about_one_request_is_not_spread_where_none_of_an_update_is_synthetic(
    store: Store, renderer: Renderer
) -> None:
    recorded(store, "tea", "rain", "snow")  # "What is tea?"
    correct(store, "moon", "Explain moon as a stone.")
    house = Drawing(store, renderer, synthetic=0.1)
    assert (house.step(), house.step()) == (True, True)
    assert [each.prompt for each in store.lessons()[0].answers] == ["moon"] * 3


def test_a_common_word_that_few_recorded_requests_lack_keeps_no_lesson_to_its_own_prompt(
    store: Store, renderer: Renderer
) -> None:
    recorded(store, "tea", "rain", "snow")  # "What is tea?"
    correct(store, "moon", "Explain it in plain words.")  # to "Explain moon to me."
    assert Drawing(store, renderer).step()
    assert len({each.prompt for each in store.lessons()[0].answers}) == 3


def test_a_rare_word_keeps_no_lesson_to_its_own_prompt_once_more_requests_have_it(
    store: Store, renderer: Renderer
) -> None:
    correct(store, "moon", "Explain moon as a stone.")
    house = Drawing(store, renderer)
    house.topics = chain(islice(house.topics, KNOWN), ["moon"], house.topics)
    assert house.step()
    assert len({each.prompt for each in store.lessons()[0].answers}) == 3


@pytest.mark.parametrize("settings", [{"synthetic": 0.0}, {"group": 2}])
def test_nothing_is_drawn_if_it_is_switched_off_or_groups_are_judged(
    store: Store, renderer: Renderer, settings: dict[str, Any]
) -> None:
    correct(store, "moon")
    house = Drawing(store, renderer, **settings)
    house.votes = [r"\boxed{1}"] * 3
    assert house.step()
    assert {each.prompt for each in store.lessons()[0].answers} == {"moon"}


def test_an_engine_that_fails_while_requests_are_drawn_stores_nothing(
    store: Store, renderer: Renderer
) -> None:
    correct(store, "moon")
    house = Drawing(store, renderer)
    house.engine.fail_after, house.engine.error = 1, EngineUnavailable("away")
    with pytest.raises(EngineUnavailable):
        house.step()
    assert list(store.turns(Filter(kind=Kind.PRACTICE))) == []
    house.engine.fail_after = None
    assert house.step()
