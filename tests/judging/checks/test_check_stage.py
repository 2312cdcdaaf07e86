"""The loop that checks the judge: what is wrong becomes the stage's health, the shares become metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from afterwit.judging.ability import judge_shares, keep_checking, report_of
from afterwit.judging.checks import findings
from afterwit.promotion.episodes import BadEnd, Episode
from afterwit.store import AsyncStore, Store
from afterwit.store.sqlite import SqliteStore
from afterwit.verdict import Question, Source, Verdict, Vote
from afterwit.worker import Signals
from tests.store.examples import HINTED, PRAISED, add_judged


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Store]:
    store = SqliteStore.open(tmp_path / "store.db", fingerprint=None)
    yield store
    store.close()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[AsyncStore]:
    opened = AsyncStore(SqliteStore.open(tmp_path / "store.db", fingerprint=None))
    yield opened
    await opened.close()


class Reports:
    """The reports of the loop."""

    def __init__(self) -> None:
        self.all: list[tuple[bool, str]] = []
        self.any = asyncio.Event()

    async def __call__(self, ok: bool, message: str) -> None:
        self.all.append((ok, message))
        self.any.set()


def divided(store: Store) -> None:
    """Turns on which half of the votes are wrong."""
    votes = tuple(Vote(question=Question.EVALUATION, words="", value=value) for value in (1, -1, 1))
    for number in range(40):
        add_judged(store, f"t{number:02}", Verdict(reward=1, source=Source.VOTES, votes=votes))


def end(store: Store, turn: str, *, bad: BadEnd | None = None, complaint: bool = False) -> None:
    ended = Episode(
        turn=turn,
        session="a",
        source="laptop",
        version=0,
        bad=bad,
        complaint=complaint,
        kind="text",
        approved=(),
    )
    store.end_episode(ended, [], steps=[turn], now=1.0)


async def test_votes_that_differ_too_much_are_reported_and_the_shares_kept(store):
    await store.call(divided)
    signals, reports = Signals(), Reports()
    running = asyncio.create_task(keep_checking(store, signals, reports, every_s=0.001))
    await reports.any.wait()
    signals.stop.set()
    await running
    (ok, words), *_ = reports.all
    assert not ok
    assert "votes on rewards differ as if 50% of its answers were wrong" in words
    shares = await store.call(judge_shares)
    assert shares == {"rewards_agree": pytest.approx(1 / 3), "invalid": 0.0}


def test_checks_without_turns_are_described_in_words(opened):
    empty = dict(findings(report_of(opened)))
    assert empty["invalid votes"] == "no votes yet"
    assert empty["can judge"].startswith("not known yet")
    assert judge_shares(opened) == {}
    for turn, verdict in (("t1", HINTED), ("t2", PRAISED), ("t3", HINTED)):
        add_judged(opened, turn, verdict)
    known = dict(findings(report_of(opened)))
    assert known.keys() == empty.keys()
    assert known["invalid votes"].startswith("2 of 6 (")
    assert known["can judge"].startswith("assumed")


def test_the_own_words_of_a_person_are_no_vote_of_the_judge(opened):
    own = Vote(question=Question.OWN_WORDS, words="", value=0, hint="One sentence.")
    add_judged(
        opened, "t1", Verdict(reward=-1, source=Source.FEEDBACK, hints=("One sentence.",), votes=(own,))
    )
    found = dict(findings(report_of(opened)))
    assert found["can judge"].startswith("not known yet")
    assert found["invalid votes"] == "no votes yet"


def test_bad_ends_and_complaints_are_no_good_ends(opened):
    for turn in ("t1", "t2", "t3"):
        add_judged(opened, turn, PRAISED)
    end(opened, "t1")
    end(opened, "t2", bad=BadEnd.DISPLEASED)
    end(opened, "t3", complaint=True)
    ends = {each.turn: each.ended_well for each in opened.judged_turns(limit=9)}
    assert ends == {"t1": True, "t2": False, "t3": False}


async def test_the_loop_waits_first_and_checks_until_it_is_told_to_stop(store):
    signals, reports = Signals(), Reports()
    running = asyncio.create_task(keep_checking(store, signals, reports, every_s=0.001))
    await reports.any.wait()
    signals.stop.set()
    await running
    assert reports.all[0] == (True, "nothing is wrong in 0 judged turns")


async def test_a_loop_that_is_stopped_while_it_waits_checks_nothing(store):
    signals, reports = Signals(), Reports()
    signals.stop.set()
    await keep_checking(store, signals, reports, every_s=1.0)
    assert reports.all == []


async def test_a_check_that_fails_is_the_stages_health():
    class Broken:
        async def call(self, read: object) -> None:
            raise RuntimeError("a fault of ours")

    signals, reports = Signals(), Reports()
    running = asyncio.create_task(keep_checking(Broken(), signals, reports, every_s=0.001))
    await reports.any.wait()
    signals.stop.set()
    await running
    assert reports.all[0] == (False, "RuntimeError (see the log)")
