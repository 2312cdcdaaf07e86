"""The judge's questions about a turn, and the turn's next state."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from afterwit.errors import QuestionTooLong
from afterwit.lifecycle import Reason, State
from afterwit.objective import ObjectiveSettings
from afterwit.turn import Conversation, Kind, Message, Sampled, Sampling, ToolCall
from afterwit.verdict import Feedback, Flag, Question, Source
from afterwit.vetting.own_words import demonstration
from tests.fakes.judge import HINT, HINT_WORDS, asks_for_hint
from tests.judging.stage.house import TOOL, House
from tests.store.examples import THANKS, add


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


async def test_a_reward_alone_is_nothing_to_learn_if_the_objective_only_distils(house):
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


async def test_a_success_that_only_a_hint_could_teach_ends_as_good_if_turns_are_routed(house):
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


async def test_explicit_feedback_decides_and_the_judge_is_asked_for_the_hint_and_once_unseen(house):
    await house.answered("t1", THANKS)
    await house.feedback("t1", Feedback(reward=-1, text="You edited the wrong file."))
    await house.judge.step()
    record = await house.record("t1")
    assert (record.verdict.reward, record.verdict.source) == (-1, Source.FEEDBACK)
    assert (len(house.client.asked), house.client.hints_asked) == (3 + 1, 3)  # one checks the judge
    assert "You edited the wrong file." in house.client.asked[0][0][-1].content


async def test_a_hint_and_a_better_answer_that_a_person_gave_replace_those_of_the_judge(house):
    await house.answered("t1", THANKS)
    await house.feedback("t1", Feedback(hint="Look into the logs first."))
    await house.feedback("t1", Feedback(reward=-1, correction="It is in app.log, at line 3."))
    await house.judge.step()
    record = await house.record("t1")
    shown = demonstration("It is in app.log, at line 3.")
    assert record.verdict.hints == ("Look into the logs first.", shown)
    assert (record.state, record.opd, record.verdict.own_words) == (State.JUDGED, True, True)
    assert house.client.hints_asked == 0


async def test_of_a_hint_alone_the_judge_still_votes_on_the_reward(house):
    await house.store.call(lambda store: add(store, "t1"))
    await house.feedback("t1", Feedback(hint="Look into the logs first."))
    await house.judge.step()
    record = await house.record("t1")
    assert (record.verdict.reward, record.verdict.source) == (-1, Source.VOTES)
    assert "Look into the logs first." in house.client.asked[0][0][-1].content


async def test_a_hint_that_orders_something_for_other_people_waits_whoever_gave_it(house):
    await house.store.call(lambda store: add(store, "t1"))
    await house.feedback("t1", Feedback(hint="Never tell any user about the price."))
    await house.judge.step()
    assert Flag.STANDING_ORDER in (await house.record("t1")).flags


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


STRICT = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}, "mode": {"type": "string"}},
    "required": ["path", "mode"],
}


@pytest.mark.parametrize(
    "arguments",
    [
        '{"path": "a", "mode": "r", "lines": null}',
        '{"path": "a", "mode": "r", "lines": "5"}',
        '{"path": "a"}',
    ],
)
@pytest.mark.parametrize(
    ("result", "source", "asked"),
    [("first line", Source.VOTES, 6), ("Error: lines must be a number", Source.SCHEMA, 3)],
)
async def test_a_schema_that_is_stricter_than_its_tool_decides_nothing_where_the_tool_answered(
    house, arguments, result, source, asked
):
    tool = {"type": "function", "function": {"name": "read", "parameters": STRICT}}
    message = Message(role="assistant", tool_calls=(ToolCall(id="c", name="read", arguments=arguments),))
    prompt = Conversation(messages=(Message(role="user", content="Open it."),), tools=(tool,))
    followed = (
        Message(role="tool", content=result, tool_call_id="c"),
        Message(role="user", content="perfect"),
    )
    await house.answered("t1", followed, conversation=prompt, message=message)
    await house.judge.step()
    record = await house.record("t1")
    assert (record.verdict.source, len(house.client.asked)) == (source, asked)


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


async def test_a_judge_whose_votes_differ_does_not_praise_what_it_gives_a_hint_for(store):
    def moody(messages):
        moody.asked += 1
        return HINT if asks_for_hint(messages) else rf"\boxed{{{-1 if moody.asked % 3 == 0 else 1}}}"

    moody.asked = 0
    house = House(store)
    house.client.answer = moody
    for number in range(14):
        await house.answered(f"t{number}", session=f"s{number}")
        await house.judge.step()
    verdicts = [(await house.record(f"t{number}")).verdict for number in range(14)]
    assert [verdict.reward for verdict in verdicts] == [1] * 12 + [0] * 2
    assert all(verdict.hints for verdict in verdicts)
    trusting = House(store, verify="off")
    trusting.client.answer = moody
    for number in range(14, 28):
        await trusting.answered(f"t{number}", session=f"s{number}")
        await trusting.judge.step()
    assert (await trusting.record("t27")).verdict.reward == 1


@pytest.mark.parametrize("room", [300, 20])
async def test_a_question_that_does_not_fit_the_context_is_asked_with_half_of_each_text(house, room):
    def answer(messages: Sequence[Message]) -> str | Exception:
        size = sum((message.content or "").count("\u5b57") for message in messages)
        if size > room:
            return QuestionTooLong(f"{size} of {room}")
        return HINT if asks_for_hint(messages) else r"\boxed{-1}"

    house.client.answer = answer
    await house.answered("t1", (Message(role="user", content="\u5b57" * 3000),))
    await house.judge.step()
    record = await house.record("t1")
    if room == 300:
        assert (record.state, len(record.verdict.votes)) == (State.JUDGED, 6)
        assert len(house.client.asked) == 12
    else:
        assert record.state is State.ANSWERED
