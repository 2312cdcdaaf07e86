from dataclasses import replace

import pytest

from afterwit.promotion.episodes import BadEnd, RatedTurn, closes, episode
from afterwit.turn import Finish, Message, Sampled, Sampling
from afterwit.verdict import Feedback, NextState, Question, Source, Verdict, Vote
from tests.binding.test_client_text import OPENCLAW
from tests.fakes.turns import a_turn
from tests.store.examples import PANNED

HINT = ("Ask first.",)


def verdict(reward: int, hints: tuple[str, ...] = (), source: Source = Source.VOTES) -> Verdict:
    return Verdict(reward=reward, source=source, hints=hints)


def voted(reward: int, *values: int | None) -> Verdict:
    votes = tuple(Vote(question=Question.EVALUATION, words="", value=value) for value in values)
    return replace(verdict(reward), votes=votes)


def step(id: str, given: Verdict | None, finish: Finish = Finish.STOP) -> RatedTurn:
    return RatedTurn(turn=replace(a_turn(id), finish=finish), verdict=given)


def said(role: str, content: str) -> NextState:
    return NextState(messages=(Message(role=role, content=content),))


@pytest.mark.parametrize(
    ("next_state", "expected"),
    [
        (None, False),
        (said("tool", "ok"), False),
        (said("user", "Thanks."), True),
        (said("user", OPENCLAW), False),
        (NextState(feedback=Feedback(reward=1)), True),
    ],
)
def test_an_episode_closes_when_a_person_speaks(next_state, expected):
    assert closes(next_state) is expected


@pytest.mark.parametrize(
    ("steps", "bad", "approved"),
    [
        ([("a", verdict(1)), ("b", verdict(1))], None, ("a", "b")),
        ([("a", verdict(-1)), ("b", None), ("c", verdict(1))], None, ("b", "c")),
        ([("a", verdict(1)), ("b", verdict(0)), ("c", verdict(-1, HINT))], None, ("a",)),
        ([("a", verdict(1)), ("b", verdict(0))], None, ()),
        ([("a", verdict(1)), ("b", None)], None, ()),
        ([("a", verdict(1)), ("b", PANNED)], BadEnd.DISPLEASED, ()),
        ([("a", verdict(1)), ("b", verdict(-1))], BadEnd.UNASKED, ()),
        ([("a", verdict(0, source=Source.REPEAT)), ("b", verdict(1))], BadEnd.REPEATED_CALL, ()),
        ([("a", verdict(1)), ("b", voted(-1, -1, -1, None))], BadEnd.UNASKED, ()),
        ([("a", verdict(1)), ("b", voted(-1, -1, -1, 1))], None, ()),
        ([("a", verdict(1)), ("b", voted(1, 1, 1, -1))], None, ()),
        ([("a", voted(1, 1, 1, 0)), ("b", verdict(1)), ("c", verdict(-1, HINT))], None, ("b",)),
    ],
)
def test_an_episode_ends_well_or_badly_and_approves_turns(steps, bad, approved):
    found = episode([step(*each) for each in steps])
    assert (found.turn, found.bad, found.approved) == (steps[-1][0], bad, approved)


def test_a_response_that_was_cut_makes_an_episode_bad():
    found = episode([step("a", verdict(1), Finish.LENGTH), step("b", verdict(1))])
    assert (found.bad, found.approved) == (BadEnd.CUT_AT_LENGTH, ())


@pytest.mark.parametrize(
    ("asked", "length", "bad"),
    [(True, 2, None), (True, 3, BadEnd.CUT_AT_LENGTH), (False, 2, BadEnd.CUT_AT_LENGTH)],
    ids=["the client's wish", "cut before it, by a time limit", "the gateway's own limit"],
)
def test_a_response_that_is_as_long_as_its_client_wanted_is_not_cut(asked, length, bad):
    turn = a_turn("a", finish=Finish.LENGTH, sampling=Sampling(max_tokens=length, limit_asked=asked))
    assert len(turn.sampled.ids) == 2
    assert episode([RatedTurn(turn=turn, verdict=verdict(1))]).bad is bad


def sampled_by(*versions: int) -> RatedTurn:
    count = len(versions)
    found = Sampled(ids=(4,) * count, logprobs=(-0.1,) * count, versions=versions, forced=(False,) * count)
    return RatedTurn(turn=a_turn(f"t{versions}", sampled=found), verdict=verdict(1))


@pytest.mark.parametrize(
    ("steps", "version"),
    [
        ([(0, 0, 0, 1)], 0),
        ([(0, 0, 0), (1, 1)], 0),
        ([(0,), (1, 1), (2,)], 1),
        ([(3, 4)], 4),
        ([()], 0),
    ],
)
def test_an_episode_belongs_to_the_version_that_sampled_most_of_it(steps, version):
    assert episode([sampled_by(*each) for each in steps]).version == version


def test_an_agent_that_never_came_back_made_a_bad_episode():
    turn = a_turn("a")
    found = episode([RatedTurn(turn=turn, verdict=None)], ended=False)
    assert found.bad is BadEnd.NO_END
    assert (found.session, found.source) == (turn.session, turn.source)
