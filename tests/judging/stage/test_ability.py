"""A judge that cannot judge is found out before its first turn, and learning goes on without it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from afterwit.engines.port import Facts
from afterwit.errors import JudgeRefused, JudgeUnavailable
from afterwit.judging.ability import AT_ONCE, SHORT, Examination, Examiner, Reader, kept_words
from afterwit.judging.exam import SAMPLED
from afterwit.judging.polarity import REPLIES, RESULTS, LogProbs, Subject
from afterwit.judging.voting import Answer
from afterwit.lifecycle import Reason, State
from afterwit.turn import Conversation, Message
from afterwit.verdict import Feedback, Flag, Source
from afterwit.vetting.own_words import demonstration
from afterwit.worker import Signals
from tests.fakes.judge import FakeJudge, asks_for_hint, competent
from tests.judging.stage.house import DOWN, House

COMPLAINT = (Message(role="user", content="That is far too long. Keep it short."),)
THANKS = (Message(role="user", content="Thanks, perfect."),)
OTHER = Facts(
    name="other",
    model="another",
    context_length=64,
    vocabulary=8,
    end_ids=frozenset({1}),
    dtype="float32",
    fingerprint="f",
)
"""Of another served model than before."""
EXAMINED = 3 + 3 * SAMPLED
"""Questions to a judge that passes at once."""


class Read:
    """Reads the shipped texts by their kinds, and of others thanks as thanks, words as complaints, results by
    the word fail; or with `mixed` nothing at all."""

    replies = REPLIES

    def __init__(self, *, mixed: bool = False) -> None:
        self.mixed, self.read = mixed, list[str]()

    async def logprobs(self, texts: Sequence[str], subject: Subject) -> list[LogProbs]:
        self.read += texts
        return [self._one(text, subject) for text in texts]

    def _one(self, text: str, subject: Subject) -> LogProbs:
        found = [0.0] * sum(subject.parts)
        kinds = ("complaint", "thanks", "neutral")
        shipped = [at for at, kind in enumerate(kinds) if text in subject.texts[kind]]
        thanks = "fail" not in text if subject is RESULTS else "Thanks" in text
        at = shipped[0] if shipped else int(thanks)
        if not self.mixed and at < 2:
            found[at] = 9.0
        return found

    @property
    def measurings(self) -> int:
        return self.read.count(REPLIES.texts["complaint"][0])


def examined(house: House, *readers: Read, facts: Facts | None = None, **settings: Any) -> Examiner:
    """The house's judge is examined before it judges."""
    chosen = replace(house.settings, **settings)
    examination = Examination(house.client, chosen, cast(Sequence[Reader], readers), facts)
    found = Examiner(house.store, examination)
    house.judge._examiner = found
    return found


@pytest.fixture
def mute(house: House) -> House:
    house.client = FakeJudge(lambda messages: "Hard to say.")
    house.judge = house.stage("judge-1")
    return house


async def test_a_judge_that_can_judge_is_examined_once(house):
    reader = Read()
    house.client.answer = competent
    examined(house, reader)
    await house.answered("t1", COMPLAINT)
    assert await house.judge.step()
    assert len(house.client.asked) == EXAMINED + 6
    assert house.judge._examiner.fault is None
    examined(house, reader)
    await house.answered("t2", COMPLAINT)
    assert await house.judge.step()
    assert len(house.client.asked) == EXAMINED + 12
    assert reader.read == [], "a judge that votes right need not be read"


async def test_a_complaint_teaches_in_the_persons_own_words(mute):
    examined(mute, Read())
    await mute.answered("t1", COMPLAINT)
    assert await mute.judge.step()
    record = await mute.record("t1")
    assert record.state is State.JUDGED
    assert (record.verdict.reward, record.verdict.source) == (-1, Source.READ)
    assert record.verdict.hints == ("That is far too long. Keep it short.",)
    assert record.verdict.own_words
    assert (record.rl, record.opd) == (True, True)
    assert len(mute.client.asked) == 3, "a judge that cannot judge is not asked about turns"


@pytest.mark.parametrize(
    ("reply", "hints"),
    [
        ("What is wrong with the sentence 'They is late'?", 0),
        ("Again: what is wrong with the sentence 'He go home'?", 1),
        ("What you say is wrong.", 1),
    ],
)
async def test_a_request_in_the_form_of_the_first_one_is_no_complaint(mute, reply, hints):
    examined(mute, Read())
    said = ("Be brief.", "What is wrong with the sentence 'He go home'?", "It must be 'goes'.")
    messages = tuple(
        Message(role=role, content=text)
        for role, text in zip(("system", "user", "assistant"), said, strict=True)
    )
    conversation = Conversation(messages=(*messages, Message(role="user", content="Thanks")))
    await mute.answered("t1", (Message(role="user", content=reply),), conversation=conversation)
    await mute.judge.step()
    verdict = (await mute.record("t1")).verdict
    assert (len(verdict.hints), verdict.reward) == (hints, -hints)


async def test_thanks_are_no_hint(mute):
    examined(mute, Read())
    await mute.answered("t1", THANKS)
    await mute.judge.step()
    verdict = (await mute.record("t1")).verdict
    assert (verdict.reward, verdict.hints) == (1, ())


async def test_a_hint_and_a_better_answer_teach_without_a_judge(mute):
    examined(mute)
    await mute.answered("t1", ())
    await mute.feedback("t1", Feedback(hint="Answer in one line.", correction="Done: b.txt."))
    await mute.judge.step()
    record = await mute.record("t1")
    assert (record.state, record.rl, record.opd) == (State.JUDGED, False, True)
    assert record.verdict.hints == ("Answer in one line.", demonstration("Done: b.txt."))


async def test_a_thumb_teaches_without_a_judge(mute):
    examined(mute)
    await mute.answered("t1", ())
    await mute.feedback("t1", Feedback(reward=-1))
    await mute.judge.step()
    record = await mute.record("t1")
    assert (record.state, record.verdict.reward, record.verdict.source) == (State.JUDGED, -1, Source.FEEDBACK)


@pytest.mark.parametrize("readers", [(), (Read(mixed=True),)])
async def test_where_complaints_cannot_be_told_nothing_is_learned_from_words_alone(mute, readers):
    found = examined(mute, *readers)
    await mute.answered("t1", COMPLAINT)
    await mute.judge.step()
    record = await mute.record("t1")
    assert (record.verdict.reward, record.verdict.hints) == (0, ())
    assert (record.state, record.reason) == (State.SKIPPED, Reason.NO_SIGNAL)
    assert "cannot judge" in (found.fault or "")
    await mute.answered("t2", COMPLAINT)
    await mute.feedback("t2", Feedback(reward=-1))
    await mute.judge.step()
    assert (await mute.record("t2")).verdict.hints == (COMPLAINT[0].content,)


async def test_a_judge_that_votes_worse_than_it_reads_is_read(house):
    """It passes the exam and calls everything else good."""
    house.client.answer = lambda messages: (
        competent(messages) if "It is 4." in str(messages) or asks_for_hint(messages) else r"\boxed{1}"
    )
    found = await examined(house, Read()).ability()
    assert (found.passed, found.right, found.of) == (True, 2 * SAMPLED, 3 * SAMPLED)
    assert not found.votes
    assert (await examined(house, Read(mixed=True), facts=OTHER).ability()).votes


async def test_a_judge_that_is_to_write_votes_whatever_it_is_worth(mute):
    reader = Read()
    found = examined(mute, reader, mode="write")
    await mute.answered("t1", COMPLAINT)
    await mute.judge.step()
    assert (await mute.record("t1")).reason is Reason.INVALID_VOTES
    assert "Its votes count nevertheless" in (found.fault or "")
    assert reader.read == []


async def test_a_judge_that_is_to_be_read_writes_nothing(house):
    examined(house, Read(), mode="read")
    await house.answered("t1", COMPLAINT)
    await house.judge.step()
    verdict = (await house.record("t1")).verdict
    assert (verdict.reward, verdict.source, verdict.own_words) == (-1, Source.READ, True)
    assert house.client.asked == []


async def test_the_first_reader_that_can_read_does(mute):
    mixed, reader = Read(mixed=True), Read()
    found = examined(mute, mixed, reader)
    assert ((await found.ability()).reader, found.fault) == (1, None)
    await mute.answered("t1", COMPLAINT)
    await mute.judge.step()
    assert (COMPLAINT[0].content in mixed.read, COMPLAINT[0].content in reader.read) == (False, True)


async def test_a_judge_is_examined_again_by_a_process_without_the_reader_of_the_last_examination(mute):
    await examined(mute, Read(mixed=True), Read()).ability()
    alone = examined(mute, Read(mixed=True))
    assert not (await alone.ability()).reads
    assert (await alone.read("That is far too long.")).value is None


@pytest.mark.parametrize(("result", "reward"), [("2 tests fail", -1), ("2 tests passed", 0)])
async def test_what_a_tool_returned_is_read_if_no_person_spoke(mute, result, reward):
    examined(mute, Read())
    await mute.answered("t1", (Message(role="tool", content=result, tool_call_id="c1"),))
    await mute.judge.step()
    verdict = (await mute.record("t1")).verdict
    assert (verdict.reward, verdict.source, verdict.hints) == (reward, Source.READ, ())


async def test_a_judge_that_writes_no_hints_is_asked_for_votes_alone(house):
    house.client.answer = lambda messages: "Be brief." if asks_for_hint(messages) else competent(messages)
    examined(house, Read())
    await house.answered("t1", COMPLAINT)
    await house.judge.step()
    record = await house.record("t1")
    assert (record.verdict.reward, record.verdict.source) == (-1, Source.VOTES)
    assert record.verdict.hints == (COMPLAINT[0].content,)
    assert house.client.hints_asked == 2, "the exam's two tries"


async def test_a_secret_in_the_persons_words_is_no_hint(mute):
    examined(mute, Read())
    await mute.answered("t1", (Message(role="user", content="No, use the key " + "sk-" + "a1B2c3D4" * 5),))
    await mute.judge.step()
    assert (await mute.record("t1")).verdict.hints == ()


async def test_the_result_is_kept_and_another_judge_is_asked_anew(mute):
    reader = Read()
    first = await examined(mute, reader).ability()
    assert not first.votes
    asked = len(mute.client.asked)
    again = examined(mute, reader)
    assert await again.ability() == first
    assert (len(mute.client.asked), reader.measurings) == (asked, 1)
    fault, how = await mute.store.call(kept_words)
    assert (fault, how) == (None, first.described())
    assert (how or "").startswith("it reads replies: it finds 160 of 160 complaints (98% to 100%)")
    await examined(mute, reader, facts=OTHER).ability()
    assert len(mute.client.asked) == 2 * asked


async def test_an_endpoint_that_cannot_judge_is_asked_again_after_a_restart(mute):
    elsewhere = {"url": "http://127.0.0.1:1/v1", "model": "small"}
    assert not (await examined(mute, **elsewhere).ability()).votes
    mute.client.answer = competent
    assert (await mute.store.call(kept_words))[0] == (
        "small at http://127.0.0.1:1/v1 cannot judge: 0 of 3 probe answers carried a readable vote."
        " Set judge.url to a stronger model, as docs/judging.md shows."
        " Until then thumbs and failed tool calls teach."
    )
    found = examined(mute, **elsewhere)
    assert (await found.ability()).votes
    assert found.fault is None
    assert (await mute.store.call(kept_words))[0] is None


async def test_a_judge_that_is_away_is_not_unable(mute):
    mute.client.answer = lambda messages: DOWN
    found = examined(mute, Read())
    await mute.answered("t1", COMPLAINT)
    with pytest.raises(JudgeUnavailable):
        await mute.judge.step()
    record = await mute.record("t1")
    assert (record.state, record.attempts, found.known) == (State.ANSWERED, 0, None)
    mute.client.answer = competent
    assert await mute.judge.step()
    assert found.known is not None
    assert found.known.votes


async def test_a_turn_that_a_person_taught_does_not_wait_for_the_examination(house):
    asked, examined_now = asyncio.Event(), asyncio.Event()

    class Slow(FakeJudge):
        async def ask(self, messages: tuple[Message, ...], **how: Any) -> Answer:
            if r"\boxed{refuse}" not in (messages[0].content or ""):
                asked.set()
                await examined_now.wait()
            return await super().ask(messages, **how)

    house.client = Slow(competent)
    house.client.harm = Answer(words=r"\boxed{refuse}")
    house.judge = house.stage("judge-1")
    found = examined(house)
    await house.answered("voted", COMPLAINT)
    waits = asyncio.create_task(house.judge.step())
    await asyncio.wait_for(asked.wait(), 30)

    await house.answered("taught")
    await house.feedback("taught", Feedback(hint="Use at most ten words."))
    assert await house.judge.step()
    assert not await house.judge.step()
    taught, voted = await house.record("taught"), await house.record("voted")
    assert (taught.state, taught.verdict.hints) == (State.JUDGED, ("Use at most ten words.",))
    assert (voted.state, found.known) == (State.ANSWERED, None)
    assert taught.flags == (Flag.HARMFUL,), "the judge may be able to say so"

    examined_now.set()
    assert await asyncio.wait_for(waits, 30)
    assert (await house.record("voted")).verdict.source is Source.VOTES


async def test_a_judge_that_turns_out_unable_is_not_waited_for_about_harm(mute):
    asked = asyncio.Event()

    class Endless(FakeJudge):
        async def ask(self, messages: tuple[Message, ...], **how: Any) -> Answer:
            if r"\boxed{refuse}" in (messages[0].content or ""):
                asked.set()
                await asyncio.Event().wait()
            return await super().ask(messages, **how)

    mute.client = Endless(lambda messages: "Hard to say.")
    mute.judge = mute.stage("judge-1")
    found = examined(mute)
    await mute.answered("taught")
    await mute.feedback("taught", Feedback(hint="Use at most ten words."))
    async with found._asking:
        judging = asyncio.create_task(mute.judge.step())
        await asyncio.wait_for(asked.wait(), 30)
    assert not (await found.ability()).votes
    assert await asyncio.wait_for(judging, 30)
    record = await mute.record("taught")
    assert (record.state, record.flags) == (State.JUDGED, ())


async def test_the_status_shows_the_examination_for_which_turns_wait(house):
    house.client.answer = competent
    found, signals = examined(house), Signals()
    await house.answered("t1", COMPLAINT)
    async with found._asking:
        running = asyncio.create_task(house.judge.run(signals))
        waits = "its own test is under way: turns without a hint of yours wait for it"
        await asyncio.wait_for(house.until_status(True, waits), 30)
    await asyncio.wait_for(house.until_status(True, "working"), 30)
    signals.stop.set()
    await running


async def test_votes_that_count_whatever_the_examination_finds_count_before_its_end(store):
    house = House(store, mode="write")
    found = examined(house)
    await house.answered("taught")
    await house.feedback("taught", Feedback(hint="Use at most ten words."))
    async with found._asking:
        assert await house.judge.step()
    verdict = (await house.record("taught")).verdict
    assert (verdict.reward, verdict.source, verdict.hints) == (-1, Source.VOTES, ("Use at most ten words.",))


@pytest.mark.parametrize(
    ("said", "rooms"), [("Hard to say. ", {SHORT}), ("<think>Hard to say. ", {SHORT, 4096})]
)
async def test_a_served_model_has_little_room_for_a_probe_unless_it_thinks(mute, said, rooms):
    mute.client.answer = lambda messages: Answer(words=said, finished=False)
    await Examination(mute.client, replace(mute.settings, max_tokens=4096), ()).ability()
    assert {max_tokens for _, _, max_tokens, _ in mute.client.asked} == rooms


async def test_an_examination_shows_how_many_of_its_texts_are_done(mute):
    shown = list[tuple[str, int, int]]()
    found = examined(mute, Read())
    found.examination.progress = lambda *step: shown.append(step)
    await found.ability()
    assert shown[:3] == [("asking about exchanges of known outcome", done, 3) for done in (1, 2, 3)]
    texts = sum(map(len, REPLIES.texts.values()))
    replies = [(done, of) for words, done, of in shown if words == "reading replies of known meaning"]
    assert replies[0] == (0, texts)
    assert replies == sorted(set(replies))
    assert texts - AT_ONCE <= replies[-1][0] < texts


async def test_an_endpoint_that_refuses_the_probes_says_why(mute):
    mute.client.answer = lambda messages: JudgeRefused("HTTP 400: no such field: seed")
    found = examined(mute, url="http://127.0.0.1:1/v1", model="small")
    await found.ability()
    assert "HTTP 400: no such field: seed" in (found.fault or "")
    assert "judge.body_omit" in (found.fault or "")


async def test_nothing_to_learn_is_no_invalid_vote(mute):
    examined(mute, Read())
    await mute.answered("t1", (Message(role="tool", content="3 lines", tool_call_id="c1"),))
    await mute.judge.step()
    record = await mute.record("t1")
    assert (record.state, record.reason) == (State.SKIPPED, Reason.NO_SIGNAL)
    assert (await mute.store.call(lambda store: store.counts())).invalid_votes == 0
