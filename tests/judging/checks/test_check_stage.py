"""The judge is probed once, its hints are scored, and what is wrong becomes the stage's health."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from afterwit.engines.port import Score
from afterwit.errors import EngineUnavailable, JudgeUnavailable
from afterwit.judging.check_stage import (
    HintScoring,
    JudgeChecks,
    Measured,
    judge_shares,
    known_of_judge,
    report_of,
)
from afterwit.judging.checks import PROBES, HintLift, HintPair, Judged, hint_pairs
from afterwit.judging.hinted_prompts import Placement
from afterwit.judging.settings import JudgeSettings
from afterwit.message import Conversation, Message
from afterwit.promotion.episodes import BadEnd, Episode
from afterwit.store import AsyncStore, Store
from afterwit.store.sqlite import SqliteStore
from afterwit.turn import Sampled
from afterwit.verdict import Source, Verdict
from afterwit.worker import Signals
from tests.fakes.engine import FakeEngine
from tests.fakes.judge import FakeJudge
from tests.judging.stage.house import PROMPTS
from tests.store.examples import HINTED, PRAISED, add_judged

GOOD, BAD = r"\boxed{1}", r"\boxed{-1}"


class Words:
    """Prompt ids: one for each word."""

    def prompt_ids(self, conversation: Conversation) -> tuple[int, ...]:
        words = " ".join(message.content or "" for message in conversation.messages).split()
        return tuple(1 + len(word) for word in words)


RENDERING = Words()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[AsyncStore]:
    opened = AsyncStore(SqliteStore.open(tmp_path / "store.db", fingerprint=None))
    yield opened
    await opened.close()


class House:
    """Checks over a store, with a judge and an engine of the test's."""

    def __init__(self, store: AsyncStore) -> None:
        self.store = store
        self.client = FakeJudge(lambda messages: BAD)
        self.engine = FakeEngine(lambda request: [1], end_id=0, vocabulary=100)
        self.settings = JudgeSettings()
        self.said: list[tuple[bool, str]] = []
        self.reported = asyncio.Event()

    def checks(self, judge: str = "a judge", *, scoring: bool = True) -> JudgeChecks:
        async def report(ok: bool, message: str) -> None:
            self.said.append((ok, message))
            self.reported.set()

        return JudgeChecks(
            self.store,
            self.client,
            PROMPTS,
            self.settings,
            judge=judge,
            scoring=HintScoring(self.engine, RENDERING, Placement.END) if scoring else None,
            report=report,
        )

    async def measured(self) -> Measured:
        kept = await self.store.call(Measured.of)
        assert kept is not None
        return kept


@pytest.fixture
def house(store: AsyncStore) -> House:
    return House(store)


def put(store: Store, id: str, session: str, words: str, verdict: Verdict, **changes: Any) -> None:
    """A judged turn whose words ended a request."""
    conversation = Conversation(messages=(Message(role="user", content=words),))
    sampled = Sampled(ids=(5, 6), logprobs=(-0.1, -0.2), versions=(0, 0), forced=(False, False))
    add_judged(
        store,
        id,
        verdict,
        session=session,
        conversation=conversation,
        prompt_ids=RENDERING.prompt_ids(conversation),
        sampled=sampled,
        **changes,
    )
    ended = Episode(
        turn=id,
        session=session,
        source="laptop",
        version=0,
        bad=None,
        complaint=verdict.reward == -1,
        kind="text",
        approved=(),
    )
    store.end_episode(ended, [], steps=[id], now=1.0)


def corrected(store: Store) -> None:
    """A complaint with a hint, what was then accepted, and a hint of another session."""
    put(store, "t1", "a", "Open the file.", HINTED)
    put(store, "t2", "a", "Now the other file, please.", PRAISED)
    put(store, "t3", "b", "Close it.", replace(HINTED, hints=("Shut all the doors and all the windows.",)))


def judged(seq: int, session: str, reward: int, *, hinted: bool = False, well: bool | None = None) -> Judged:
    return Judged(
        seq=seq,
        turn=f"t{seq}",
        session=session,
        reward=reward,
        source=Source.VOTES,
        hinted=hinted,
        feedback=None,
        ended_well=well,
        votes=(),
    )


async def test_every_probe_and_its_twin_is_asked_once_for_each_judge(house):
    await house.checks().step()
    await house.checks().step()
    assert len(house.client.asked) == 2 * len(PROBES)
    assert (await house.measured()).probes == ((-1, -1),) * len(PROBES)
    await house.checks("another judge").step()
    assert len(house.client.asked) == 4 * len(PROBES)


async def test_a_judge_that_is_flattered_raises_an_alarm(house):
    plain = {PROMPTS.evaluation(probe.plain) for probe in PROBES}
    house.client.answer = lambda messages: BAD if tuple(messages) in plain else GOOD
    await house.checks().step()
    ok, words = house.said[-1]
    assert not ok
    assert f"flattery changes the judge's vote in {len(PROBES)} of {len(PROBES)}" in words
    assert (await house.store.call(judge_shares))["swayed"] == 1.0


async def test_a_judge_that_is_down_is_probed_another_time(house):
    house.client.answer = lambda messages: JudgeUnavailable("down")
    await house.checks().step()
    assert house.said[-1] == (True, "0 judged turns show nothing wrong")
    assert (await house.measured()).probes == ()
    house.client.answer = lambda messages: BAD
    await house.checks().step()
    assert len((await house.measured()).probes) == len(PROBES)


async def test_the_accepted_answer_is_scored_behind_the_complaints_prompt_plain_and_with_both_hints(house):
    await house.store.call(corrected)
    await house.checks().step()
    ((plain, hinted, other),) = house.engine.scored
    first = await house.store.call(lambda store: store.turn("t1"))
    assert plain == Score(prompt_ids=first.sampled_turn.prompt_ids, response_ids=(5, 6))
    assert len(other.prompt_ids) > len(hinted.prompt_ids) > len(plain.prompt_ids)
    (lift,) = (await house.measured()).lifts
    assert lift == HintLift(
        turn="t1",
        **{
            name: -1.0 / len(row.prompt_ids)
            for name, row in (("plain", plain), ("hinted", hinted), ("other", other))
        },
    )
    await house.checks().step()
    assert len(house.engine.scored) == 1
    report = await house.store.call(report_of)
    assert report.lifts is not None
    assert report.lifts.wins.of == 1


async def test_an_engine_that_is_down_or_absent_scores_nothing(house):
    await house.store.call(corrected)
    house.engine.score_errors = [EngineUnavailable("away")]
    await house.checks().step()
    assert (await house.measured()).lifts == ()
    await house.checks(scoring=False).step()
    assert (await house.measured()).lifts == ()
    await house.checks().step()
    assert len((await house.measured()).lifts) == 1


def test_a_hint_is_paired_with_what_the_person_then_accepted_and_a_hint_of_another_session():
    turns = [
        judged(1, "a", -1, hinted=True, well=False),
        judged(2, "b", -1, hinted=True, well=False),
        judged(3, "a", 1),
        judged(4, "a", 1, well=True),
        judged(5, "b", 1, well=False),
    ]
    assert list(hint_pairs(turns[::-1], ())) == [HintPair(turn="t1", accepted="t3", other="t2")]
    assert list(hint_pairs(turns, {"t1"})) == []


COMPLAINT = judged(1, "a", -1, hinted=True, well=False)
ACCEPTED = judged(2, "a", 1, well=True)
OTHER = judged(3, "b", 1, hinted=True)


@pytest.mark.parametrize(
    "turns",
    [
        [COMPLAINT, OTHER],
        [COMPLAINT, ACCEPTED],
        [replace(COMPLAINT, reward=1), ACCEPTED, OTHER],
        [replace(COMPLAINT, ended_well=None), ACCEPTED, OTHER],
        [COMPLAINT, replace(ACCEPTED, reward=-1), OTHER],
        [COMPLAINT, replace(ACCEPTED, ended_well=False), OTHER],
    ],
)
def test_what_nobody_accepted_or_nobody_else_was_hinted_at_is_no_pair(turns: Sequence[Judged]):
    assert list(hint_pairs([COMPLAINT, ACCEPTED, OTHER], ()))
    assert list(hint_pairs(turns, ())) == []


def test_turns_without_checks_are_told_in_words(tmp_path):
    store = SqliteStore.open(tmp_path / "store.db", fingerprint=None)
    empty = dict(known_of_judge(report_of(store)))
    assert empty["swayed by flattery"].startswith("not probed yet")
    assert judge_shares(store) == {}
    corrected(store)
    Measured(
        judge="x", probes=((-1, -1), (-1, 1)), lifts=(HintLift(turn="t1", plain=-3, hinted=-1, other=-2),)
    ).keep(store)
    known = dict(known_of_judge(report_of(store)))
    assert known.keys() == empty.keys()
    assert known["hints help"].startswith("1 of 1 (")
    assert "it sees 2 of 2 plain failures" in known["swayed by flattery"]
    assert known["invalid votes"].startswith("2 of 6")
    store.close()


def test_bad_ends_are_no_good_ends(tmp_path):
    store = SqliteStore.open(tmp_path / "store.db", fingerprint=None)
    corrected(store)
    for turn, bad, complaint in (("t2", BadEnd.DISPLEASED, False), ("t3", None, True)):
        store.end_episode(
            Episode(
                turn=turn,
                session="a",
                source="x",
                version=0,
                bad=bad,
                complaint=complaint,
                kind="text",
                approved=(),
            ),
            [],
            steps=[turn],
            now=2.0,
        )
    assert [each.ended_well for each in store.judged_turns(limit=9)] == [False, False, False]
    store.close()


async def test_the_loop_waits_first_and_checks_until_it_is_told_to_stop(house):
    signals = Signals()
    house.settings = JudgeSettings(check_every_s=0.001)
    running = asyncio.create_task(house.checks().run(signals))
    await house.reported.wait()
    signals.stop.set()
    await running
    assert house.said[0] == (True, "0 judged turns show nothing wrong")


async def test_a_loop_that_is_stopped_while_it_waits_checks_nothing(house):
    signals = Signals()
    signals.stop.set()
    await house.checks().run(signals)
    assert house.said == []
    assert house.client.asked == []


async def test_a_check_that_fails_is_the_stages_health(house):
    signals = Signals()
    house.settings = JudgeSettings(check_every_s=0.001)
    house.client.answer = lambda messages: RuntimeError("a fault of ours")
    running = asyncio.create_task(house.checks().run(signals))
    await house.reported.wait()
    signals.stop.set()
    await running
    assert house.said[0] == (False, "RuntimeError (see the log)")
