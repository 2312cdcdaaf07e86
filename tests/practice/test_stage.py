"""The practice stage over a real store, with an engine of the test's."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from afterwit.chat_format.render import Renderer
from afterwit.engines.port import Generate, Score, Scored, Weights
from afterwit.errors import EngineUnavailable, JudgeRefused, JudgeUnavailable
from afterwit.judging.hinted_prompts import HEADING
from afterwit.judging.voting import Answer
from afterwit.learning.schedule import next_of_all
from afterwit.learning.settings import LearnerSettings
from afterwit.lifecycle import Reason, State
from afterwit.practice.lessons import (
    CLOSE,
    DAY_S,
    WINDOW,
    PracticeSettings,
    Progress,
    Spoils,
    Standing,
    standing,
)
from afterwit.practice.rounds import PER_PROMPT, SPREAD_OVER, Round, Tried, _prompts, next_round, untaught
from afterwit.practice.stage import Practice, with_lessons
from afterwit.practice.table import restrict
from afterwit.promotion.episodes import Event, EventKind
from afterwit.store import Filter, Store
from afterwit.turn import Conversation, Finish, Kind, Message, Sampled, Sampling, ToolCall
from afterwit.verdict import Flag, Question, ReviewRule, Source, Verdict, Vote
from afterwit.version import Origin, Version
from afterwit.worker import Signals
from experiments.simulation.lockstep import InlineStore
from tests.fakes.engine import FakeEngine
from tests.store.examples import NO, a_version, add

LEARNER, PRACTICE = LearnerSettings(), PracticeSettings(synthetic=0.0)
NOW = 1_000_000.0
SHORT = "Keep the answer short."


def asks(words: str) -> Conversation:
    return Conversation(messages=(Message(role="user", content=words),))


def correct(store: Store, id: str, *hints: str, now: float = NOW, flags: Any = (), **more: Any) -> None:
    """A turn whose verdict has these hints, and the lesson that follows from it."""
    hints = hints or (SHORT,)
    known = {"session": id, "conversation": asks(f"Explain {id} to me.")}
    add(store, id, now=now, **known | more)
    store.answer(id, NO, answered_by=None, now=now)
    store.claim("judge", owner="judge", limit=1, lease_s=60.0, now=now)
    votes = tuple(Vote(question=Question.HINT, words=each, value=1, hint=each) for each in hints)
    verdict = Verdict(reward=-1, source=Source.VOTES, hints=hints, votes=votes)
    with store.transaction():
        store.judged(id, verdict, rl=True, opd=True, reason=None, owner="judge", now=now, flags=flags)
        with_lessons(lambda store, turn, *, now: None, ReviewRule())(store, id, now=now)


def recorded(store: Store, *ids: str, **more: Any) -> None:
    """Add turns of other sessions that no one corrected."""
    for id in ids:
        add(store, id, now=NOW - 9, **{"session": id, "conversation": asks(f"What is {id}?")} | more)


def due(
    store: Store, *, now: float = NOW + 1, learner: LearnerSettings = LEARNER, **more: Any
) -> Round | str:
    return next_round(store, PRACTICE, learner, now=now, **more)


def asked(store: Store, **more: Any) -> list[str]:
    found = due(store, **more)
    assert isinstance(found, Round), found
    return [turn.id for turn in found.prompts]


def test_nothing_is_practised_before_the_first_correction(store: Store) -> None:
    recorded(store, "tea", "rain")
    assert due(store) == "no correction waits to be practised"


def test_a_general_lesson_is_spread_over_recorded_prompts_and_fills_the_next_update(store: Store) -> None:
    recorded(store, "tea", "rain", "snow")
    correct(store, "moon")  # its own turn waits for the learner: three more make a batch
    assert asked(store) == ["moon", "snow", "rain"]


def test_of_the_hints_of_one_turn_the_one_that_most_votes_support_is_practised(store: Store) -> None:
    correct(store, "tea", "Read it first.", "Give the relative path.", "give the relative path")
    (lesson,) = store.lessons()
    assert lesson.words == "Give the relative path."


def test_a_lesson_that_is_restricted_to_a_client_practises_its_prompts_alone(store: Store) -> None:
    recorded(store, "tea", scope="key/chat")
    recorded(store, "rain", "snow")
    correct(store, "moon")
    correct(store, "sun", scope="key/chat")
    (lesson,) = store.lessons()
    assert asked(store) == ["sun", "moon"]  # two of the batch wait already
    restrict(store, lesson.number, "key/agent", now=NOW)
    assert asked(store) == ["moon", "snow"]
    store.change_lesson(lesson.number, scope="key/gone")
    assert due(store) == "1 lesson: waiting"


def test_a_lesson_that_names_its_case_practises_its_own_prompt_alone(store: Store) -> None:
    recorded(store, "tea", "rain", "snow")
    correct(store, "moon", "The moon belongs to Oscar.")
    assert asked(store) == ["moon"] * 3
    store.change_lesson(store.lessons()[0].number, general=True)  # a person knows better
    assert asked(store) == ["moon", "snow", "rain"]


def test_what_is_said_of_two_conversations_names_neither_case(store: Store) -> None:
    recorded(store, "tea", "rain", "snow")  # "What is tea?"
    correct(store, "moon", "Explain it in plain words.")  # to "Explain moon to me."
    store.commit_version(a_version(1, ["moon"]), now=NOW)
    assert asked(store) == ["moon"] * 4
    correct(store, "sun", "Explain it in plain words.", now=NOW + 1)
    store.commit_version(a_version(2, ["sun"]), now=NOW + 1)
    assert asked(store, now=NOW + 2) == ["sun", "moon", "snow", "rain"]


def test_a_lesson_is_spread_only_in_words_that_name_no_case(store: Store) -> None:
    recorded(store, "tea", "rain", "snow")
    words = "Write every answer step by step in plain simple words"
    correct(store, "moon", f"{words}.")
    correct(store, "sun", f"{words}, Oscar.", now=NOW + 1)
    (lesson,) = store.lessons()
    assert asked(store, now=NOW + 2) == ["sun", "moon"]
    assert untaught(store, "shared", "key/agent", ReviewRule(), now=NOW + 2) == []
    store.review(["sun"], accept=False, now=NOW + 2)
    assert asked(store, now=NOW + 3) == ["moon", "snow", "rain"]
    assert untaught(store, "shared", "key/agent", ReviewRule(), now=NOW + 3) == [lesson.words]


def test_a_lesson_that_is_given_again_and_again_is_spread_over_no_more_prompts(store: Store) -> None:
    for number in range(SPREAD_OVER + 5):
        correct(store, f"moon{number}", now=NOW + number)
    store.commit_version(a_version(1, [turn.turn.id for turn in store.turns()]), now=NOW)
    recorded(store, "tea")
    (lesson,) = store.lessons()
    found = _prompts(store, lesson, lesson.corrections, ())
    assert found is not None
    assert list(found.asked) == [f"moon{number}" for number in range(SPREAD_OVER + 4, 4, -1)]


def test_a_lesson_about_a_tool_is_spread(store: Store) -> None:
    recorded(store, "tea", "rain", "snow")
    tool = {"type": "function", "function": {"name": "explain", "parameters": {}}}
    with_tool = replace(asks("Explain moon to me."), tools=(tool,))
    correct(store, "moon", "Explain in plain words.", conversation=with_tool)
    assert asked(store) == ["moon", "snow", "rain"]


def test_prompts_are_of_the_same_action_source_and_adapter_and_may_teach(store: Store) -> None:
    call = Message(role="assistant", tool_calls=(ToolCall(id="call1", name="read", arguments="{}"),))
    recorded(store, "call", message=call)
    recorded(store, "theirs", scope="other/agent")
    recorded(store, "silent", teaches=False)
    recorded(store, "secret", reason=Reason.HOLDS_SECRET)
    recorded(store, "side", kind=Kind.SIDE)
    recorded(store, "own", adapter="key:key")
    forced = Sampled(ids=(4, 5), logprobs=(-0.5, -0.25), versions=(0, 0), forced=(True, False))
    recorded(store, "forced", sampled=forced)
    recorded(store, "left")
    store.exclude("left", now=NOW)
    recorded(store, "tea")
    correct(store, "moon")
    assert asked(store) == ["moon", "tea", "moon"]
    assert asked(store, tried=Tried(refused={"moon"})) == ["tea"] * 3


@pytest.mark.parametrize(
    ("flags", "practised"),
    [((), True), ((Flag.LINK,), False), ((Flag.CONTRADICTS,), False), ((Flag.TOOL_WORDS,), False)],
)
def test_what_waits_for_a_person_or_came_from_tools_is_not_practised(
    store: Store, flags: tuple[Flag, ...], practised: bool
) -> None:
    correct(store, "moon", flags=flags)
    assert isinstance(due(store), Round) is practised
    if flags and Flag.TOOL_WORDS not in flags:
        store.review(["moon"], accept=True, now=NOW)
        assert isinstance(due(store), Round)


def test_a_correction_that_was_refused_taken_back_or_excluded_is_not_practised(store: Store) -> None:
    correct(store, "moon")
    store.review(["moon"], accept=False, now=NOW)
    assert due(store) == "1 lesson: waiting"
    correct(store, "sun", "Greet the person.")
    store.exclude("sun", now=NOW)
    assert due(store) == "2 lessons: waiting"


def test_it_waits_for_updates_pauses_hours_and_alarms(store: Store) -> None:
    correct(store, "moon")
    store.pause("", now=NOW)
    assert due(store) == "rests while learning is paused"
    store.resume()
    assert due(store, learner=replace(LEARNER, hours="00:00-00:01"), now=NOW + 7_200) == (
        "rests outside of learner.hours, 00:00-00:01"
    )
    (held,) = store.claim("learn", owner="learner", limit=1, lease_s=60.0, now=NOW)
    assert due(store) == "waits for the update that is under way"
    store.release([held.turn.id], owner="learner", now=NOW)
    store.decided(Event(kind=EventKind.ALARM, at=NOW, version=1, evidence=9.0, words="too many complaints"))
    assert due(store) == "1 lesson: too many complaints"
    assert isinstance(due(store, now=NOW + DAY_S + 1), Round)


def test_another_sources_lesson_fills_what_one_source_may_not(store: Store) -> None:
    correct(store, "moon")
    correct(store, "star")
    correct(store, "sun", scope="ana/agent")
    assert asked(store) == ["sun"]  # two of four are a source's share


def test_real_turns_that_make_an_update_go_first(store: Store) -> None:
    for number in range(LEARNER.batch):
        correct(store, f"moon{number}")
    assert due(store) == "1 lesson: waits for the next update"


class House:
    """A practice stage over a store and a scripted engine that serves the base.

    With a `gap`, the engine can score, and its teacher is that far from each answer, in nats.
    """

    def __init__(
        self,
        store: Store,
        renderer: Renderer,
        words: str = "Short.",
        gap: float | None = None,
        meanwhile: Callable[[], None] = lambda: None,
        **settings: Any,
    ) -> None:
        (end,) = [index for index, token in renderer.special_ids.items() if token == "<|im_end|>"]
        self.answer = renderer.encode(words)

        def script(request: Generate) -> Sequence[int]:
            meanwhile()
            return self.answer

        self.engine = FakeEngine(script, end_id=end, vocabulary=renderer.vocabulary)
        self.engine.version, self.gap, self.changed = 0, gap, 9.0
        if gap is None:
            self.engine.capabilities = replace(FakeEngine.capabilities, scored_ids=0)  # type: ignore[misc]
        self.engine.score = self.scores  # type: ignore[method-assign]
        self.scored: list[tuple[Score, Weights]] = []
        self.now = NOW + 1
        self.stage = Practice(
            store=InlineStore(store),
            engine=self.engine,
            renderer=renderer,
            settings=replace(PRACTICE, **settings),
            learner=LEARNER,
            ask=self.judges,
            now=lambda: self.now,
        )
        self.votes: list[str | Exception] = []
        """The judge's votes on the answers, in order."""
        self.judged: list[str] = []

    async def judges(self, messages: tuple[Message, ...], seed: int) -> Answer:
        self.judged.append(messages[-1].content or "")
        vote = self.votes.pop(0)
        if isinstance(vote, Exception):
            raise vote
        return Answer(words=vote)

    async def scores(self, rows: Sequence[Score], *, top: int, weights: Weights) -> list[Scored]:
        """Scores of the teacher, and without the lesson: an uncorrected prompt is scored both ways."""
        self.scored.append((rows[0], weights))
        ids = rows[0].response_ids
        sampled = sum(-0.25 * (place % 4) for place in range(len(ids)))
        lower = [self.gap or 0.0, (self.gap or 0.0) + self.changed][: len(rows)]
        logprobs = [(sampled - each, *(0.0,) * (len(ids) - 1)) for each in lower]
        return [Scored(version=0, logprobs=each, top_ids=(), top_logprobs=()) for each in logprobs]

    def step(self) -> bool:
        return asyncio.run(self.stage.step())


def test_a_step_stores_fresh_answers_without_the_hint_in_the_background(
    store: Store, renderer: Renderer
) -> None:
    recorded(store, "tea", sampling=Sampling(max_tokens=8, temperature=0.0, seed=7))
    correct(store, "moon", sampling=Sampling(max_tokens=8, temperature=0.7, seed=7))
    house = House(store, renderer)
    assert house.step()
    answers = list(store.turns(Filter(kind=Kind.PRACTICE)))
    assert [each.state for each in answers] == [State.JUDGED] * 3
    assert {each.turn.session for each in answers} == {"moon"}
    assert [each.prompt for each in store.lessons()[0].answers] == ["moon", "tea", "moon"]
    turn = answers[0].sampled_turn
    assert (turn.message.content, turn.parent, turn.finish) == ("Short.", None, Finish.STOP)
    assert turn.prompt_ids == renderer.prompt_ids(asks("Explain moon to me."))
    assert turn.sampled.ids[:-1] == renderer.encode("Short.")
    for request in house.engine.asked:
        assert request.background
        assert SHORT not in renderer.decode(request.prompt_ids)
        assert request.sampling.seed is None  # or every answer would be the recorded one
    temperatures = [request.sampling.temperature for request in house.engine.asked]
    assert sorted(temperatures) == [0.7, 0.7, 1.0]  # a greedy turn trains at 1


@pytest.mark.parametrize(
    ("votes", "rewards"),
    [
        ([r"\boxed{1}", r"\boxed{-1}", r"\boxed{1}"], [1, -1, 1]),
        ([r"\boxed{-1}", r"\boxed{0}", r"\boxed{1}"], [-1, 0, 1]),
        ([r"\boxed{1}", r"\boxed{1}", r"\boxed{1}"], [0, 0, 0]),
        ([r"\boxed{-1}", JudgeUnavailable("away"), JudgeRefused("no")], [0, 0, 0]),
    ],
)
def test_a_group_is_rewarded_where_the_judge_tells_its_answers_apart(
    store: Store, renderer: Renderer, votes: list[str | Exception], rewards: list[int]
) -> None:
    correct(store, "moon")
    house = House(
        store, renderer, gap=0.5, group=3
    )  # so near the teacher that hints alone would teach nothing
    house.votes = list(votes)
    assert house.step()
    assert all(SHORT in each and "Short." in each for each in house.judged)
    answers = list(store.turns(Filter(kind=Kind.PRACTICE)))
    assert [each.verdict and each.verdict.reward for each in answers] == rewards
    states = [State.JUDGED if reward else State.SKIPPED for reward in rewards]
    assert [(each.state, each.rl) for each in answers] == list(zip(states, map(bool, rewards), strict=True))
    assert [each.prompt for each in store.lessons()[0].answers] == ["moon"] * 3


def test_the_status_names_the_lesson_while_its_answers_are_sampled(store: Store, renderer: Renderer) -> None:
    recorded(store, "tea")
    correct(store, "moon")
    signals, reported, meanwhile = Signals(), list[str](), list[str]()

    def sampling() -> None:
        meanwhile.append(reported[-1] if reported else "nothing")
        signals.stop.set()

    async def report(ok: bool, message: str) -> None:
        reported.append(message)

    house = House(store, renderer, meanwhile=sampling)
    asyncio.run(house.stage.run(signals, report))
    assert meanwhile
    assert all(each.startswith("practises lesson 1: ") for each in meanwhile), meanwhile


def test_where_a_person_reviews_all_no_more_is_practised_than_one_update_takes(
    store: Store, renderer: Renderer
) -> None:
    store.set_note("learn", '{"review": "all"}')
    correct(store, "moon")
    store.review(["moon"], accept=True, now=NOW)
    house = House(store, renderer)
    assert house.step()
    waiting = [each.turn.id for each in store.turns(Filter(kind=Kind.PRACTICE))]
    assert not house.step()
    assert house.stage.doing == "1 lesson: waits for the next update"
    store.review(waiting, accept=False, now=NOW)
    assert house.step()


def test_a_group_answers_fewer_prompts_several_times(store: Store, renderer: Renderer) -> None:
    correct(store, "moon")
    recorded(store, "tea", "sun", "rain")
    house = House(store, renderer, group=2)
    house.votes = [r"\boxed{1}"] * 3
    assert house.step()
    assert [each.prompt for each in store.lessons()[0].answers] == ["moon", "moon", "rain"]


@pytest.mark.parametrize(("gap", "steps"), [(5.0, 2), (CLOSE, 8)], ids=["taught", "good"])
def test_a_day_s_practice_ends_after_its_updates_and_good_answers_count_a_quarter(
    store: Store, renderer: Renderer, gap: float, steps: int
) -> None:
    for id in ("moon", "sun", "rain", "snow", "tea", "hat"):
        correct(store, id, f"Speak of a {id}, of {id} alone.")
    waiting = [each.turn for each in store.waiting(now=NOW + 1)]
    store.commit_version(a_version(1, waiting), now=NOW)
    house = House(store, renderer, gap=gap, a_day=2)
    for version in range(1, 40):
        house.engine.version, house.now = version, house.now + 1
        if not house.step():
            break
        waiting = [each.turn for each in store.waiting(now=house.now)]
        store.commit_version(a_version(version + 1, waiting), now=house.now)
    enough = "2 updates" if gap > CLOSE else "32 answers, most of them good already"
    assert house.stage.doing == f"practised enough for a day ({enough})"
    assert version == 1 + steps
    house.now += DAY_S
    assert house.step()


def test_answers_to_recorded_prompts_that_a_lesson_is_not_about_are_none_of_its_answers(
    store: Store, renderer: Renderer
) -> None:
    recorded(store, "tea", "rain")
    correct(store, "moon")
    house = House(store, renderer, gap=5.0)
    house.changed = CLOSE / 2
    assert house.step()
    (lesson,) = store.lessons()
    assert [each.prompt for each in lesson.answers] == ["moon"]
    assert [(each.prompt, each.state) for each in lesson.along] == [
        ("rain", State.JUDGED),
        ("tea", State.JUDGED),
    ]
    assert {store.turn(each.turn).verdict.hints for each in lesson.along} == {("",)}


def test_without_a_group_no_judge_is_asked(store: Store, renderer: Renderer) -> None:
    correct(store, "moon")
    house = House(store, renderer)
    assert house.step()
    assert house.judged == []


def test_a_round_fills_one_update_and_the_next_waits_for_it(store: Store, renderer: Renderer) -> None:
    correct(store, "moon")
    house = House(store, renderer)
    assert (house.step(), house.step()) == (True, False)
    taken = next_of_all(LEARNER, store.waiting(now=NOW + 2), (), now=NOW + 2)
    assert len(taken.turns) == LEARNER.batch  # the correction among them: nothing waits for half an hour


def test_an_engine_that_fails_half_way_leaves_nothing(store: Store, renderer: Renderer) -> None:
    correct(store, "moon")
    house = House(store, renderer)
    house.engine.fail_after, house.engine.error = 1, EngineUnavailable("away")
    with pytest.raises(EngineUnavailable):
        house.step()
    assert list(store.turns(Filter(kind=Kind.PRACTICE))) == []
    house.engine.fail_after = None
    assert house.step()


@pytest.mark.parametrize("change", [{"dropped": NOW}, {"words": "Be kind."}])
def test_a_lesson_that_is_dropped_or_edited_while_it_is_answered_stores_nothing(
    store: Store, renderer: Renderer, change: dict[str, Any]
) -> None:
    correct(store, "moon")
    number = store.lessons()[0].number
    house = House(store, renderer, meanwhile=lambda: store.change_lesson(number, **change))
    assert not house.step()
    assert len(house.engine.asked) == 3
    assert list(store.turns(Filter(kind=Kind.PRACTICE))) == []


def test_a_lesson_that_is_dropped_is_answered_no_further(
    store: Store, renderer: Renderer, caplog: pytest.LogCaptureFixture
) -> None:
    correct(store, "moon")
    number = store.lessons()[0].number
    house = House(store, renderer, meanwhile=lambda: store.change_lesson(number, dropped=NOW))
    house.engine.pause_after = 1  # its answers would take for ever
    assert not house.step()
    assert house.engine.cancelled == 3
    assert house.stage.doing == f"practises lesson {number}: samples 3 answers; 0 of 64 so far"
    assert not house.step()
    assert house.stage.doing == "1 lesson: dropped"
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_it_waits_until_the_newest_version_is_served(store: Store, renderer: Renderer) -> None:
    correct(store, "moon")
    store.commit_version(a_version(1, []), now=NOW)
    house = House(store, renderer)
    assert not house.step()
    house.engine.version = 1
    assert house.step()


def test_a_correction_is_practised_so_often_until_it_is_said_again(store: Store, renderer: Renderer) -> None:
    recorded(store, "tea")
    correct(store, "moon")
    house, number = House(store, renderer, updates=2), 0
    while house.step():
        number += 1
        waiting = [each.turn for each in store.waiting(now=house.now)]
        store.commit_version(a_version(number, waiting), now=house.now)
        house.engine.version = number
        house.now += 1
    assert (number, len(store.lessons()[0].answers)) == (3, 11)  # 3 + 4 + 4 answers; 8 would be two updates
    assert house.stage.doing == "1 lesson: practised enough for now"
    correct(store, "sun", now=house.now)
    house.now += 1
    assert house.step()


def test_no_prompt_is_learned_by_heart_and_a_new_one_goes_on(store: Store, renderer: Renderer) -> None:
    correct(store, "moon", "The moon belongs to Oscar.")
    house, number = House(store, renderer, updates=99), 0

    def practise() -> None:
        nonlocal number
        while house.step():
            number += 1
            waiting = [each.turn for each in store.waiting(now=house.now)]
            store.commit_version(a_version(number, waiting), now=house.now)
            house.engine.version = number
            house.now += 1

    practise()
    assert PER_PROMPT <= len(store.lessons()[0].answers) < PER_PROMPT + LEARNER.batch
    assert house.stage.doing == "1 lesson: practised on every prompt of its kind"
    recorded(store, "tea")
    store.change_lesson(store.lessons()[0].number, general=True)
    practise()
    often = Counter(answer.prompt for answer in store.lessons()[0].answers)
    assert often["tea"] == PER_PROMPT
    assert often["moon"] < PER_PROMPT + LEARNER.batch


def test_a_prompt_that_does_not_fit_is_left_out(store: Store, renderer: Renderer) -> None:
    recorded(store, "tea")
    correct(store, "moon", conversation=asks("word " * 9000))
    house = House(store, renderer)
    assert house.step()
    assert {each.prompt for each in store.lessons()[0].answers} == {"tea"}
    assert house.step()
    assert {each.prompt for each in store.lessons()[0].answers} == {"tea"}


def test_an_answer_with_a_secret_never_trains(store: Store, renderer: Renderer) -> None:
    correct(store, "moon", sampling=Sampling(max_tokens=64))
    assert House(store, renderer, words="the key is AKIA" + "IOSFODNN7EXAMINE").step()
    answers = list(store.turns(Filter(kind=Kind.PRACTICE)))
    assert {each.reason for each in answers} == {Reason.HOLDS_SECRET}


def test_an_answer_that_the_teacher_would_give_too_does_not_train(store: Store, renderer: Renderer) -> None:
    correct(store, "moon")
    house = House(store, renderer, gap=CLOSE)
    steps = 0
    while house.step():
        steps += 1
        house.now += 1
    (lesson,) = store.lessons()
    assert {answer.gap for answer in lesson.answers} == {CLOSE}
    assert {answer.reason for answer in lesson.answers} == {Reason.ALREADY_GOOD}
    assert standing(lesson).progress is Progress.LEARNED  # without a single update
    assert len(lesson.answers) == 3 * steps >= WINDOW  # no more than needed to tell
    row, weights = house.scored[0]
    assert weights is Weights.BASE
    assert SHORT in renderer.decode(row.prompt_ids)


def test_good_answers_of_a_version_that_was_taken_back_prove_nothing(
    store: Store, renderer: Renderer
) -> None:
    correct(store, "moon")
    store.commit_version(a_version(1, ["moon"]), now=NOW)
    house = House(store, renderer, gap=CLOSE)
    house.engine.version = 1
    while house.step():
        house.now += 1
    (lesson,) = store.lessons()
    assert standing(lesson).progress is Progress.LEARNED
    back = a_version(2, origin=Origin.ROLLBACK, restores=0, reverts=(1,))
    store.commit_version(back, now=house.now)
    assert standing(store.lesson(1)) == Standing(Progress.PRACTISING, None, None, None)
    again = a_version(3, origin=Origin.ROLLBACK, restores=1, returns=(1,))
    store.commit_version(again, now=house.now)
    assert standing(store.lesson(1)).progress is Progress.LEARNED


@pytest.mark.parametrize("gap", [5.0, CLOSE])
def test_what_was_taken_back_is_practised_again_on_the_same_prompt(
    store: Store, renderer: Renderer, gap: float
) -> None:
    correct(store, "moon")
    store.commit_version(a_version(1, ["moon"]), now=NOW)
    house, version = House(store, renderer, gap=gap), 1
    house.engine.version = version
    while house.step():
        waiting = [each.turn for each in store.waiting(now=house.now)]
        version += 1
        store.commit_version(a_version(version, waiting), now=house.now)
        house.engine.version, house.now = version, house.now + 1
    assert len(store.lesson(1).answers) == PER_PROMPT
    taken = tuple(range(2, version + 1))
    back = a_version(version + 1, origin=Origin.ROLLBACK, restores=1, reverts=taken)
    store.commit_version(back, now=house.now)
    house.engine.version, house.now = version + 1, house.now + 1
    assert house.step()


@pytest.mark.parametrize(
    "between",
    [
        a_version(3, origin=Origin.ROLLBACK, restores=1, reverts=(2,)),
        a_version(3, origin=Origin.REPLAY, begins=0, replays=(1, 2)),
    ],
)
def test_nor_do_those_of_a_version_that_held_what_was_taken_back_later(
    store: Store, renderer: Renderer, between: Version
) -> None:
    correct(store, "moon")
    correct(store, "sun")
    for version in (a_version(1, ["moon"]), a_version(2, ["sun"]), between):
        store.commit_version(version, now=NOW)
    house = House(store, renderer, gap=CLOSE)
    house.engine.version = 3
    while house.step():
        house.now += 1
    (lesson,) = store.lessons()
    assert standing(lesson).progress is Progress.LEARNED
    back = a_version(4, origin=Origin.ROLLBACK, restores=0, reverts=(1, 2))
    store.commit_version(back, now=house.now)
    assert standing(store.lesson(1)).progress is Progress.PRACTISING


def test_an_answer_that_the_teacher_would_not_give_trains_and_its_gap_is_kept(
    store: Store, renderer: Renderer
) -> None:
    correct(store, "moon")
    assert House(store, renderer, gap=CLOSE + 0.5).step()
    (lesson,) = store.lessons()
    assert [answer.gap for answer in lesson.answers] == pytest.approx([CLOSE + 0.5] * 3)
    assert {answer.state for answer in lesson.answers} == {State.JUDGED}


def test_a_temperature_that_the_engine_cannot_score_at_is_left_to_the_update(
    store: Store, renderer: Renderer
) -> None:
    correct(store, "moon", sampling=Sampling(max_tokens=8, temperature=0.7))
    house = House(store, renderer, gap=0.0)
    assert house.step()
    assert house.scored == []
    assert {answer.state for answer in store.lessons()[0].answers} == {State.JUDGED}


def test_prompts_may_show_what_is_not_learned_yet_and_may_teach(store: Store, renderer: Renderer) -> None:
    def shown(scope: str = "key/agent") -> list[str]:
        return untaught(store, "shared", scope, ReviewRule(), now=NOW + 9)

    correct(store, "moon")
    correct(store, "sun", "Greet the person.", now=NOW + 1)
    correct(store, "star", "The star belongs to Oscar.", now=NOW + 2)
    correct(store, "sea", "Visit www.shop.example.", now=NOW + 3, flags=(Flag.LINK,))
    assert shown() == ["Greet the person.", SHORT]  # the newest first; a case is none of other conversations'
    assert shown("ana/agent") == []
    number = {lesson.words: lesson.number for lesson in store.lessons()}
    store.change_lesson(number["Greet the person."], dropped=NOW)
    assert shown() == [SHORT]
    for spoiled in (Spoils.OTHERS, Spoils.OWN):
        store.change_lesson(number[SHORT], spoils=spoiled)
        assert shown() == []
    store.change_lesson(number[SHORT], general=1, scope="key/agent")
    assert (shown(), shown("key/other")) == ([SHORT], [])


def test_a_learned_lesson_leaves_the_prompts(store: Store, renderer: Renderer) -> None:
    correct(store, "moon")
    house = House(store, renderer, gap=CLOSE)
    assert untaught(store, "shared", "key/agent", ReviewRule(), now=house.now) == [SHORT]
    while house.step():
        house.now += 1
    assert untaught(store, "shared", "key/agent", ReviewRule(), now=house.now) == []


def test_practice_asks_a_prompt_without_the_lessons_that_it_showed(store: Store, renderer: Renderer) -> None:
    correct(store, "moon", conversation=replace(asks("Explain the moon."), lessons="Keep it short."))
    assert House(store, renderer).step()
    (turn, *_) = [each.sampled_turn for each in store.turns(Filter(kind=Kind.PRACTICE))]
    assert turn.conversation == asks("Explain the moon.")
    assert turn.prompt_ids == renderer.prompt_ids(asks("Explain the moon."))


@pytest.mark.parametrize("words", [f"Short.\n{HEADING}\n{SHORT}", '<tool_call>\n{"name": "read", "argu'])
def test_an_answer_that_recites_a_hint_or_breaks_a_call_is_taught_by_a_model_that_reads_no_hint(
    store: Store, renderer: Renderer, words: str
) -> None:
    correct(store, "moon", sampling=Sampling(max_tokens=64))
    house = House(store, renderer, words=words, gap=9.0)
    assert house.step()
    (lesson,) = store.lessons()
    assert lesson.answers == ()  # it shows nothing of how far the lesson is learned
    assert {answer.state for answer in lesson.along} == {State.JUDGED}
    assert all(SHORT not in renderer.decode(row.prompt_ids) for row, _ in house.scored)


def test_a_policy_that_always_recites_is_not_practised_without_end(store: Store, renderer: Renderer) -> None:
    recorded(store, "tea")
    correct(store, "moon", sampling=Sampling(max_tokens=64))
    house, number = House(store, renderer, words=f"{HEADING}\n{SHORT}", gap=9.0, updates=2), 0
    while house.step():
        number += 1
        waiting = [each.turn for each in store.waiting(now=house.now)]
        store.commit_version(a_version(number, waiting), now=house.now)
        house.engine.version = number
        house.now += 1
    assert number == 5
    assert house.stage.doing == "1 lesson: practised enough for now"
