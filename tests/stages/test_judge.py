"""The judge stage over a real store, with a judge and a clock of the test's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from afterwit.core.errors import JudgeRefused, JudgeUnavailable
from afterwit.core.lifecycle import Reason, State
from afterwit.core.message import Conversation, Message, ToolCall
from afterwit.core.turn import Kind, Sampled, Sampling
from afterwit.core.verdict import Feedback, Question, Source
from afterwit.objective import ObjectiveSettings
from afterwit.stages.judge.claims import GIVE_UP_AFTER
from afterwit.stages.judge.settings import JudgeSettings
from afterwit.stages.judge.stage import Clock, Judge
from afterwit.stages.worker import Signals
from afterwit.store import AsyncStore, Record, Store
from afterwit.store.sqlite import SqliteStore
from afterwit.wire.judge.full_prompts import FullPrompts
from tests.fakes.judge import HINT, HINT_WORDS, FakeJudge, asks_for_hint
from tests.store.examples import NO, THANKS, add

LEASE = 120.0
PROMPTS = FullPrompts(
    max_tokens=77, context_chars=500, tools_chars=500, response_chars=500, next_state_chars=500
)
DOWN = JudgeUnavailable("the judge cannot be reached")
TOOL = {
    "type": "function",
    "function": {"name": "read", "parameters": {"type": "object", "required": ["path"]}},
}


class FakeTime:
    """Time that only the test moves. Sleeping takes none, but for the lease's renewal, which never comes."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        if seconds >= LEASE / 3:
            await asyncio.Event().wait()
        self.slept.append(seconds)
        await asyncio.sleep(0)

    @property
    def clock(self) -> Clock:
        return Clock(now=lambda: self.now, sleep=self.sleep, random=lambda: 0.0)


class House:
    """A store, a judge stage and its clock."""

    def __init__(self, store: AsyncStore, **settings: Any) -> None:
        self.store = store
        self.objective = ObjectiveSettings()
        self.time = FakeTime()
        self.client = FakeJudge()
        self.settings = JudgeSettings(**{"lease_s": LEASE, "attempts": 2, "max_turns": 2} | settings)
        self.judge = self.stage("judge-1")

    def stage(self, owner: str) -> Judge:
        return Judge(
            store=self.store,
            client=self.client,
            prompts=PROMPTS,
            settings=self.settings,
            rules=self.settings.rules(self.objective.reads),
            owner=owner,
            clock=self.time.clock,
        )

    async def answered(self, id: str, messages: tuple[Message, ...] = NO, **changes: Any) -> None:
        def put(store: Store) -> None:
            add(store, id, **changes)
            store.answer(id, messages, answered_by=None, now=self.time.now)

        await self.store.call(put)

    async def record(self, id: str) -> Record:
        return await self.store.call(lambda store: store.turn(id))

    async def feedback(self, id: str, feedback: Feedback) -> None:
        await self.store.call(lambda store: store.feedback(id, feedback, now=self.time.now))

    async def statuses(self) -> list[tuple[bool, str]]:
        told = await self.store.call(lambda store: store.statuses())
        return [(one.ok, one.message) for one in told if one.stage == "judge"]

    async def until_status(self, ok: bool, message: str) -> None:
        while await self.statuses() != [(ok, message)]:
            continue

    async def until_judged(self, id: str) -> None:
        while (await self.record(id)).state is not State.JUDGED:
            continue


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[AsyncStore]:
    opened = AsyncStore(SqliteStore.open(tmp_path / "store.db", fingerprint=None))
    yield opened
    await opened.close()


@pytest.fixture
def house(store: AsyncStore) -> House:
    return House(store)


async def test_an_answered_turn_is_judged_by_2m_calls(house):
    await house.answered("t1")
    assert await house.judge.step()
    record = await house.record("t1")
    assert (record.state, record.rl, record.opd) == (State.JUDGED, True, True)
    assert (record.verdict.reward, record.verdict.hints) == (-1, (HINT_WORDS,))
    assert [vote.question for vote in record.verdict.votes] == [Question.EVALUATION] * 3 + [Question.HINT] * 3
    assert {(temperature, tokens) for _, temperature, tokens, _ in house.client.asked} == {(0.6, 77)}
    assert len({seed for *_, seed in house.client.asked}) == 6


async def test_without_an_answered_turn_there_is_nothing_to_do(house):
    await house.store.call(lambda store: add(store, "open"))
    assert not await house.judge.step()
    assert not house.client.asked


async def test_nothing_to_learn_ends_the_turn_with_its_votes_kept(house):
    house.client.answer = lambda messages: r"\boxed{-1}" if asks_for_hint(messages) else r"\boxed{0}"
    await house.answered("t1", THANKS)
    await house.judge.step()
    record = await house.record("t1")
    assert (record.state, record.reason) == (State.SKIPPED, Reason.NO_SIGNAL)
    assert len(record.verdict.votes) == 6


async def test_a_reward_alone_is_nothing_to_learn_where_the_objective_only_distils(house):
    house.objective = ObjectiveSettings(objective="topk_opd")
    distiller = house.stage("judge-1")
    house.client.answer = lambda messages: r"\boxed{-1}"
    await house.answered("t1")
    await distiller.step()
    record = await house.record("t1")
    assert (record.state, record.reason) == (State.SKIPPED, Reason.NO_SIGNAL)
    assert (len(house.client.asked), house.client.hints_asked) == (3, 3)
    assert record.verdict.reward == 0, "nobody was asked"


@pytest.mark.parametrize(
    ("boxed", "logprob", "reason"),
    [(1, -0.01, Reason.ALREADY_CONFIDENT), (1, -1.0, None), (-1, -0.01, None), (0, -0.01, Reason.NO_SIGNAL)],
)
async def test_a_success_that_the_policy_was_sure_of_ends_before_it_can_fill_a_batch(
    house, boxed, logprob, reason
):
    house.objective = ObjectiveSettings(routing="routed")
    router = house.stage("judge-1")
    house.client.answer = lambda messages: rf"\boxed{{{-1 if asks_for_hint(messages) else boxed}}}"
    sampled = Sampled(ids=(4, 5), logprobs=(logprob, logprob), versions=(0, 0), forced=(False, False))
    await house.answered("t1", THANKS, sampled=sampled)
    await router.step()
    record = await house.record("t1")
    assert (record.state, record.reason) == (State.SKIPPED if reason else State.JUDGED, reason)
    assert record.verdict.reward == boxed
    waiting = await house.store.call(lambda store: store.waiting(now=house.time.now))
    assert len(waiting) == (reason is None)


async def test_a_success_that_only_a_hint_could_teach_ends_as_good_where_turns_are_routed(house):
    house.objective = ObjectiveSettings(objective="topk_opd", routing="routed")
    router = house.stage("judge-1")
    house.client.answer = lambda messages: HINT if asks_for_hint(messages) else r"\boxed{1}"
    await house.answered("t1", THANKS)
    await router.step()
    record = await house.record("t1")
    assert (record.state, record.reason) == (State.SKIPPED, Reason.ALREADY_GOOD)
    assert record.verdict.hints == (HINT_WORDS,)


async def test_a_next_state_that_comes_later_reopens_what_was_sure(house):
    house.objective = ObjectiveSettings(routing="routed", confident_above=0.0)
    router = house.stage("judge-1")
    house.client.answer = lambda messages: rf"\boxed{{{-1 if asks_for_hint(messages) else 1}}}"
    await house.answered("t1", THANKS)
    await router.step()
    assert (await house.record("t1")).reason is Reason.ALREADY_CONFIDENT
    await house.feedback("t1", Feedback(reward=-1))
    assert (await house.record("t1")).state is State.ANSWERED


async def test_explicit_feedback_decides_and_only_the_hint_is_asked_for(house):
    await house.answered("t1", THANKS)
    await house.feedback("t1", Feedback(reward=-1, text="You edited the wrong file."))
    await house.judge.step()
    record = await house.record("t1")
    assert (record.verdict.reward, record.verdict.source) == (-1, Source.FEEDBACK)
    assert (len(house.client.asked), house.client.hints_asked) == (3, 3)
    assert "You edited the wrong file." in house.client.asked[0][0][-1].content


async def test_feedback_in_words_only_is_put_to_the_vote(house):
    await house.store.call(lambda store: add(store, "t1"))
    await house.feedback("t1", Feedback(text="Shorter, please."))
    await house.judge.step()
    record = await house.record("t1")
    assert (record.verdict.source, len(house.client.asked)) == (Source.VOTES, 6)
    assert "Shorter, please." in house.client.asked[0][0][-1].content


@pytest.mark.parametrize(("name", "arguments"), [("read", "{}"), ("read", "{"), ("write", "{}")])
async def test_a_call_that_no_tool_takes_is_bad_without_a_vote(house, name, arguments):
    message = Message(role="assistant", tool_calls=(ToolCall(id="c", name=name, arguments=arguments),))
    asked = Conversation(messages=(Message(role="user", content="Open it."),), tools=(TOOL,))
    await house.answered("t1", conversation=asked, message=message)
    await house.judge.step()
    record = await house.record("t1")
    assert (record.verdict.reward, record.verdict.source) == (-1, Source.SCHEMA)
    assert (len(house.client.asked), house.client.hints_asked) == (3, 3)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kind": Kind.SIDE}, Reason.SIDE_TURN),
        ({"sampling": Sampling(max_tokens=8, frequency_penalty=1.0)}, Reason.PENALTIES),
        ({"teaches": False}, Reason.KEY_DOES_NOT_TEACH),
    ],
)
async def test_a_turn_that_cannot_train_is_not_put_to_the_judge(house, changes, reason):
    await house.answered("t1", **changes)
    await house.judge.step()
    assert (await house.record("t1")).reason is reason
    assert not house.client.asked


async def test_a_call_that_fails_is_made_again_and_is_no_vote(house):
    failures = [DOWN]
    house.client.answer = lambda messages: failures.pop() if failures else r"\boxed{1}"
    await house.answered("t1")
    await house.judge.step()
    record = await house.record("t1")
    assert len(record.verdict.votes) == 6
    assert len(house.client.asked) == 7
    assert house.time.slept == [0.5]


async def test_an_answer_that_does_not_parse_is_an_invalid_vote_and_not_asked_again(house):
    house.client.answer = lambda messages: "Hard to say."
    await house.answered("t1")
    await house.judge.step()
    record = await house.record("t1")
    assert [vote.value for vote in record.verdict.votes] == [None] * 6
    assert record.reason is Reason.NO_SIGNAL
    assert len(house.client.asked) == 6


async def test_a_judge_that_is_down_leaves_the_turn_waiting_and_visible(house):
    house.client.answer = lambda messages: DOWN
    await house.answered("t1")
    for waited in (0.5, 1.0, 2.0):
        with pytest.raises(JudgeUnavailable):
            await house.judge.step()
        record = await house.record("t1")
        assert (record.state, record.owner, record.error) == (State.ANSWERED, None, str(DOWN))
        assert record.retry_at == house.time.now + waited
        assert not await house.judge.step()
        house.time.now = record.retry_at
    assert (await house.record("t1")).attempts == 3


async def test_a_judge_that_is_down_for_ever_never_ends_a_turn(house):
    house.client.answer = lambda messages: DOWN
    await house.answered("t1")
    for _ in range(3 * GIVE_UP_AFTER):
        with pytest.raises(JudgeUnavailable):
            await house.judge.step()
        house.time.now += 60
    assert (await house.record("t1")).state is State.ANSWERED


async def test_answers_that_came_are_kept_and_only_the_others_are_asked_for_again(house):
    house.client.answer = lambda messages: DOWN if asks_for_hint(messages) else r"\boxed{-1}"
    await house.answered("t1")
    with pytest.raises(JudgeUnavailable):
        await house.judge.step()
    house.client.asked.clear()
    house.client.answer = lambda messages: HINT
    house.time.now += 60
    assert await house.judge.step()
    assert (len(house.client.asked), house.client.hints_asked) == (3, 3)
    verdict = (await house.record("t1")).verdict
    assert [vote.value for vote in verdict.votes] == [-1, -1, -1, 1, 1, 1]


async def test_kept_answers_do_not_survive_a_change_of_the_next_state(house):
    house.client.answer = lambda messages: DOWN if asks_for_hint(messages) else r"\boxed{-1}"
    await house.answered("t1")
    with pytest.raises(JudgeUnavailable):
        await house.judge.step()
    house.client.asked.clear()
    house.client.answer = lambda messages: r"\boxed{1}"
    await house.store.call(
        lambda store: store.answer("t1", (*NO, *THANKS), answered_by=None, now=house.time.now)
    )
    house.time.now += 60
    await house.judge.step()
    assert len(house.client.asked) == 6
    assert (await house.record("t1")).verdict.reward == 1


async def test_a_verdict_that_a_new_next_state_overtook_is_not_stored(house):
    house.client.hold = asyncio.Event()
    await house.answered("t1")
    judging = asyncio.create_task(house.judge.step())
    await asyncio.wait_for(house.client.called.wait(), 5)
    await house.feedback("t1", Feedback(reward=1))
    house.client.hold.set()
    await judging
    assert (await house.record("t1")).state is State.ANSWERED
    await house.judge.step()
    record = await house.record("t1")
    assert (record.verdict.reward, record.verdict.source) == (1, Source.FEEDBACK)


async def test_a_question_that_the_judge_refuses_ends_as_failed_after_some_attempts(house):
    house.client.answer = lambda messages: JudgeRefused("HTTP 400: too long")
    await house.answered("t1")
    for _ in range(GIVE_UP_AFTER):
        assert (await house.record("t1")).state is State.ANSWERED
        with pytest.raises(JudgeRefused):
            await house.judge.step()
        house.time.now += 60
    record = await house.record("t1")
    assert (record.state, record.reason, record.error) == (
        State.SKIPPED,
        Reason.JUDGE_FAILED,
        "HTTP 400: too long",
    )


async def test_a_turn_that_waits_does_not_hold_up_the_next_one(house):
    house.client.answer = lambda messages: (
        JudgeRefused("no") if "Bad." in messages[-1].content else r"\boxed{1}"
    )
    await house.answered("bad", (Message(role="user", content="Bad."),))
    await house.answered("good", THANKS)
    with pytest.raises(JudgeRefused):
        await house.judge.step()
    assert await house.judge.step()
    assert (await house.record("good")).state is State.JUDGED


async def test_a_cancelled_step_gives_its_turn_back_at_once(house):
    house.client.hold = asyncio.Event()
    await house.answered("t1")
    judging = asyncio.create_task(house.judge.step())
    await asyncio.wait_for(house.client.called.wait(), 5)
    judging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await judging
    record = await house.record("t1")
    assert (record.state, record.owner, record.attempts) == (State.ANSWERED, None, 0)


async def test_calls_are_bounded_over_all_turns(store):
    house = House(store, max_concurrency=2, votes=2)
    for at in range(3):
        await house.answered(f"t{at}")
    await asyncio.gather(*(house.judge.step() for _ in range(3)))
    assert house.client.most_at_once == 2
    assert len(house.client.asked) == 12


async def test_no_turn_is_judged_twice_by_two_workers(house):
    for at in range(4):
        await house.answered(f"t{at}")
    other = house.stage("judge-2")
    await asyncio.gather(*(stage.step() for stage in (house.judge, other) for _ in range(2)))
    assert len(house.client.asked) == 4 * 6


async def test_the_stage_wakes_judges_tells_how_it_is_and_stops(house):
    signals = Signals()
    running = asyncio.create_task(house.judge.run(signals))

    await house.answered("t1")
    signals.wake.set()
    await asyncio.wait_for(house.until_judged("t1"), 10)
    assert await house.statuses() == [(True, "working")]
    signals.stop.set()
    await asyncio.wait_for(running, 10)


async def test_a_judge_that_is_down_shows_in_the_status_and_recovers_by_itself(store):
    house = House(store, retry_base_s=0.001, retry_max_s=0.002, poll_s=0.001, max_turns=1, attempts=1)
    house.client.answer = lambda messages: DOWN
    await house.answered("t1")
    signals = Signals()
    running = asyncio.create_task(house.judge.run(signals))
    await asyncio.wait_for(house.client.called.wait(), 10)

    await asyncio.wait_for(house.until_status(False, str(DOWN)), 10)
    assert (await house.record("t1")).state is State.ANSWERED
    house.client.answer = lambda messages: r"\boxed{1}"
    house.time.now += 60
    await asyncio.wait_for(house.until_status(True, "working"), 10)
    assert (await house.record("t1")).verdict.reward == 1
    signals.stop.set()
    await asyncio.wait_for(running, 10)
