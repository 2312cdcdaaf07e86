"""A judge that cannot judge is found out before its first turn, and learning goes on without it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from afterwit.errors import JudgeRefused, JudgeUnavailable
from afterwit.judging.ability import SHORT, Examiner, ReplyReader, fault_of
from afterwit.judging.polarity import OPENINGS, Border, Borders, LogProbs
from afterwit.judging.voting import Answer
from afterwit.lifecycle import Reason, State
from afterwit.turn import Message
from afterwit.verdict import Feedback, Source
from tests.fakes.judge import HINT, FakeJudge, asks_for_hint
from tests.judging.stage.house import DOWN, PROMPTS, House

COMPLAINT = (Message(role="user", content="That is far too long. Keep it short."),)
THANKS = (Message(role="user", content="Thanks, perfect."),)
COMPLAINS, THANKED = (1.0, 0.0, *[0.0] * len(OPENINGS)), (0.0, 1.0, *[0.0] * len(OPENINGS))


def border(kind: LogProbs, *, found: int = 36) -> Border:
    """Above it lie the log-probs of a kind."""
    return Border(weights=tuple(kind), at=0.0, near=0.0, found=found, of=36)


APART, MIXED = border(COMPLAINS), border(COMPLAINS, found=15)


class Reader:
    """Reads thanks as thanks and all else as a complaint."""

    def __init__(self, *, complaint: Border = APART) -> None:
        self.complaint = complaint
        self.measurings = 0

    async def measured(self) -> Borders:
        self.measurings += 1
        return Borders(complaint=self.complaint, thanks=border(THANKED))

    async def logprobs(self, said: list[str]) -> list[LogProbs]:
        return [THANKED if "Thanks" in reply else COMPLAINS for reply in said]


def right(messages: tuple[Message, ...]) -> str:
    """A judge that knows its trade, without a model."""
    if asks_for_hint(messages):
        return HINT
    return r"\boxed{1}" if "Thanks" in (messages[-1].content or "") else r"\boxed{-1}"


def examined(house: House, reader: Reader | None, judge: str = "a judge", **settings: Any) -> Examiner:
    """The house's judge is examined before it judges."""
    found = Examiner(
        house.store,
        house.client,
        PROMPTS,
        replace(house.settings, **settings),
        cast("ReplyReader | None", reader),
        judge=judge,
    )
    house.judge._examiner = found
    return found


@pytest.fixture
def mute(house: House) -> House:
    house.client = FakeJudge(lambda messages: "Hard to say.")
    house.judge = house.stage("judge-1")
    return house


async def test_a_judge_that_can_judge_is_asked_three_questions_once(house):
    house.client.answer = right
    examined(house, Reader())
    await house.answered("t1", COMPLAINT)
    assert await house.judge.step()
    assert len(house.client.asked) == 3 + 6
    assert house.judge._examiner.fault is None
    examined(house, Reader())
    await house.answered("t2", COMPLAINT)
    assert await house.judge.step()
    assert len(house.client.asked) == 3 + 12


async def test_a_complaint_teaches_in_the_persons_own_words(mute):
    examined(mute, Reader())
    await mute.answered("t1", COMPLAINT)
    assert await mute.judge.step()
    record = await mute.record("t1")
    assert record.state is State.JUDGED
    assert (record.verdict.reward, record.verdict.source) == (-1, Source.READ)
    assert record.verdict.hints == ("That is far too long. Keep it short.",)
    assert record.verdict.own_words
    assert (record.rl, record.opd) == (True, True)
    assert len(mute.client.asked) == 3, "a judge that cannot judge is not asked about turns"


async def test_thanks_are_no_hint(mute):
    examined(mute, Reader())
    await mute.answered("t1", THANKS)
    await mute.judge.step()
    verdict = (await mute.record("t1")).verdict
    assert (verdict.reward, verdict.hints) == (1, ())


async def test_a_thumb_teaches_without_a_judge(mute):
    examined(mute, None)
    await mute.answered("t1", ())
    await mute.feedback("t1", Feedback(reward=-1))
    await mute.judge.step()
    record = await mute.record("t1")
    assert (record.state, record.verdict.reward, record.verdict.source) == (State.JUDGED, -1, Source.FEEDBACK)


@pytest.mark.parametrize("reader", [None, Reader(complaint=MIXED)])
async def test_where_complaints_cannot_be_told_any_reply_is_a_hint_without_a_reward(mute, reader):
    examined(mute, reader)
    await mute.answered("t1", COMPLAINT)
    await mute.judge.step()
    record = await mute.record("t1")
    assert (record.verdict.reward, record.verdict.hints) == (0, (COMPLAINT[0].content,))
    assert (record.state, record.rl, record.opd) == (State.JUDGED, False, True)


async def test_a_judge_that_writes_no_hints_is_asked_for_votes_alone(house):
    house.client.answer = lambda messages: "Be brief." if asks_for_hint(messages) else right(messages)
    examined(house, Reader())
    await house.answered("t1", COMPLAINT)
    await house.judge.step()
    record = await house.record("t1")
    assert (record.verdict.reward, record.verdict.source) == (-1, Source.VOTES)
    assert record.verdict.hints == (COMPLAINT[0].content,)
    assert house.client.hints_asked == 2, "the exam's two tries"


async def test_a_secret_in_the_persons_words_is_no_hint(mute):
    examined(mute, Reader())
    await mute.answered("t1", (Message(role="user", content="No, use the key " + "sk-" + "a1B2c3D4" * 5),))
    await mute.judge.step()
    assert (await mute.record("t1")).verdict.hints == ()


async def test_the_result_is_kept_and_another_judge_is_asked_anew(mute):
    reader = Reader()
    first = await examined(mute, reader).ability()
    assert not first.votes
    asked = len(mute.client.asked)
    again = examined(mute, reader)
    assert await again.ability() == first
    assert (len(mute.client.asked), reader.measurings) == (asked, 1)
    said = "This model cannot judge: 0 of 3 probe answers carried a readable vote."
    assert (again.fault or "").startswith(said)
    await examined(mute, reader, judge="another").ability()
    assert len(mute.client.asked) == 2 * asked


async def test_an_endpoint_that_cannot_judge_is_asked_again_after_a_restart(mute):
    elsewhere = {"url": "http://127.0.0.1:1/v1", "model": "small"}
    assert not (await examined(mute, None, **elsewhere).ability()).votes
    mute.client.answer = right
    assert await mute.store.call(fault_of) == (
        "small at http://127.0.0.1:1/v1 cannot judge: 0 of 3 probe answers carried a readable vote."
        " Set judge.url to a stronger model, as docs/judging.md shows."
        " Meanwhile thumbs, failed tool calls and what you write after a response teach."
    )
    found = examined(mute, None, **elsewhere)
    assert (await found.ability()).votes
    assert found.fault is None
    assert await mute.store.call(fault_of) is None


async def test_a_judge_that_is_away_is_not_unable(mute):
    mute.client.answer = lambda messages: DOWN
    found = examined(mute, Reader())
    await mute.answered("t1", COMPLAINT)
    with pytest.raises(JudgeUnavailable):
        await mute.judge.step()
    record = await mute.record("t1")
    assert (record.state, record.attempts, found.known) == (State.ANSWERED, 0, None)
    mute.client.answer = right
    assert await mute.judge.step()
    assert found.known is not None
    assert found.known.votes


@pytest.mark.parametrize(
    ("said", "rooms"), [("Hard to say. ", {SHORT}), ("<think>Hard to say. ", {SHORT, 4096})]
)
async def test_a_served_model_has_little_room_for_a_probe_unless_it_thinks(mute, said, rooms):
    prompts = replace(PROMPTS, max_tokens=4096)
    mute.client.answer = lambda messages: Answer(words=said, finished=False)
    reader = cast(ReplyReader, Reader())
    await Examiner(mute.store, mute.client, prompts, mute.settings, reader, judge="it").ability()
    assert {max_tokens for _, _, max_tokens, _ in mute.client.asked} == rooms


async def test_an_endpoint_that_refuses_the_probes_says_why(mute):
    mute.client.answer = lambda messages: JudgeRefused("HTTP 400: no such field: seed")
    found = examined(mute, None, url="http://127.0.0.1:1/v1", model="small")
    await found.ability()
    assert "HTTP 400: no such field: seed" in (found.fault or "")
    assert "judge.body_omit" in (found.fault or "")


async def test_nothing_to_learn_is_no_invalid_vote(mute):
    examined(mute, Reader())
    await mute.answered("t1", (Message(role="tool", content="3 lines", tool_call_id="c1"),))
    await mute.judge.step()
    record = await mute.record("t1")
    assert (record.state, record.reason) == (State.SKIPPED, Reason.NO_SIGNAL)
    assert (await mute.store.call(lambda store: store.counts())).invalid_votes == 0
