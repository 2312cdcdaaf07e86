"""A judge that fails, answers too late, or cannot be read."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from afterwit.errors import JudgeRefused, JudgeUnavailable
from afterwit.judging.stage import GIVE_UP_AFTER
from afterwit.judging.verdicts import InTime
from afterwit.judging.voting import Answer
from afterwit.lifecycle import Reason, State
from afterwit.turn import Message, ToolCall
from afterwit.verdict import Feedback, Source
from afterwit.worker import Signals
from tests.fakes.judge import HINT, FakeJudge, asks_for_hint
from tests.judging.stage.house import DOWN, House
from tests.store.examples import NO, THANKS


async def test_a_call_that_fails_is_repeated_and_is_not_a_vote(house):
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
    assert record.reason is Reason.INVALID_VOTES
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


async def test_a_packages_judge_that_hangs_is_away_and_turns_wait(house):
    house.client.hold = asyncio.Event()
    house.client = InTime(house.client, 0.01)
    limited = house.stage("judge-2")
    await house.answered("t1")
    with pytest.raises(JudgeUnavailable, match=r"within judge.timeout_s, 0\.01 seconds"):
        await limited.step()
    assert (await house.record("t1")).state is State.ANSWERED
    house.client.hold.set()
    house.time.now += 60
    assert await house.judge.step()
    assert (await house.record("t1")).state is not State.ANSWERED


@pytest.mark.parametrize(
    ("answer", "kind"), [(r"\boxed{1}", "str"), (None, "NoneType"), (Answer(words=None), "NoneType")]
)
async def test_a_packages_judge_that_returns_no_answer_is_said_to(house, answer, kind):
    async def ask(messages, **_):
        return answer

    house.client = InTime(SimpleNamespace(ask=ask), 1)
    await house.answered("t1")
    await house.stage("judge-2").step()
    assert (await house.record("t1")).error == (
        f"ask() of the judge returned {kind}, but must return an Answer of words"
    )


async def test_a_packages_judge_that_is_not_async_is_said_to_be(house):
    house.client = InTime(SimpleNamespace(ask=lambda messages, **_: Answer(words=r"\boxed{1}")), 1)
    await house.answered("t1")
    await house.stage("judge-2").step()
    assert (await house.record("t1")).error == "ask() of the judge must be an async function"


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
        assert await house.judge.step()
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
    assert await house.judge.step()
    assert await house.judge.step()
    assert (await house.record("good")).state is State.JUDGED


BROKEN_NAME = Message(
    role="assistant", tool_calls=(ToolCall(id="c1", name="write", arguments=r'{"path\ud83d": "a"}'),)
)


@pytest.mark.parametrize("fault", ["refused", "surrogate", "bug"])
async def test_ten_turns_that_cannot_be_judged_do_not_hold_up_two_that_can(store, fault):
    house = House(store, max_turns=1, poll_s=60.0, retry_base_s=60.0)
    faults = {"refused": JudgeRefused("HTTP 413: too long"), "bug": KeyError("a fault of ours")}

    def answer(messages):
        bad = "Bad." in messages[-1].content and fault in faults
        return faults[fault] if bad else HINT if asks_for_hint(messages) else r"\boxed{-1}"

    house.client.answer = answer
    for at in range(10):
        said = {"message": BROKEN_NAME} if fault == "surrogate" else {}
        await house.answered(f"bad{at}", (Message(role="user", content="Bad."),), **said)
    for at in range(2):
        await house.answered(f"good{at}")
    for _ in range(12):
        assert await house.judge.step()
    assert [(await house.record(f"good{at}")).state for at in range(2)] == [State.JUDGED] * 2


async def test_turns_that_all_fail_by_themselves_show_in_the_status_until_one_does_not(store):
    house = House(store, max_turns=1, poll_s=0.001)
    house.client.answer = lambda messages: JudgeRefused("HTTP 413: too long")
    for at in range(3):
        await house.answered(f"t{at}")
    signals = Signals()
    running = asyncio.create_task(house.judge.run(signals))
    words = "the last 3 attempts to judge a turn failed: HTTP 413: too long"
    await asyncio.wait_for(house.until_status(False, words), 10)
    house.client.answer = FakeJudge().answer
    await house.answered("t3")
    await asyncio.wait_for(house.until_status(True, "working"), 10)
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


async def test_a_turn_whose_votes_cannot_be_read_ends_as_such_and_may_be_judged_again(house):
    house.client.answer = lambda messages: "<think>I should first look at"
    await house.answered("t1")
    await house.judge.step()
    record = await house.record("t1")
    assert (record.state, record.reason) == (State.SKIPPED, Reason.INVALID_VOTES)
    counts = await house.store.call(lambda store: store.counts())
    assert (counts.reasons, counts.invalid_votes) == ({Reason.INVALID_VOTES: 1}, 6)
    assert await house.store.call(lambda store: store.requeue(now=house.time.now)) == 1
    house.client.answer = lambda messages: r"\boxed{1}"
    await house.judge.step()
    assert (await house.record("t1")).state is State.JUDGED


async def test_a_judge_that_is_never_read_is_unwell_until_it_is(store):
    house = House(store, max_turns=1, poll_s=0.001)
    house.client.answer = lambda messages: "Hard to say."
    for at in range(2):
        await house.answered(f"t{at}")
    signals = Signals()
    running = asyncio.create_task(house.judge.run(signals))
    await house.until(lambda told: any("votes cannot be read" in words for ok, words in told if not ok))
    house.client.answer = FakeJudge().answer
    for at in range(2, 5):
        await house.answered(f"t{at}")
    await asyncio.wait_for(house.until_status(True, "working"), 10)
    signals.stop.set()
    await asyncio.wait_for(running, 10)
