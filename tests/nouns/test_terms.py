"""The terms that a judged turn carries, or the reason why it ends."""

from __future__ import annotations

from typing import Any

import pytest

from afterwit.lifecycle import Reason
from afterwit.turn import Basis, Finish, Kind, Sampled, Sampling, Turn
from afterwit.verdict import Carried, JudgedTurn, Source, Verdict, carried, untrainable
from tests.fakes.turns import a_turn

HINTS = ("Open the file that was named.",)
BOTH, RL, OPD = Carried(rl=True, opd=True), Carried(rl=True), Carried(opd=True)
GREEDY = Sampling(max_tokens=8, temperature=0.0)
TOP_P = Sampling(max_tokens=8, top_p=0.9)
RAW = Sampled(ids=(4,), logprobs=(-0.5,), versions=(0,), forced=(False,), basis=Basis.RAW)
NOTHING = Sampled(ids=(), logprobs=(), versions=(), forced=())
FORCED = Sampled(ids=(4, 5), logprobs=(-0.5, 0.0), versions=(0, 0), forced=(True, True))
HALF_FORCED = Sampled(ids=(4, 5), logprobs=(-0.5, 0.0), versions=(0, 0), forced=(True, False))


def turn(**changes: Any) -> Turn:
    return a_turn("t", **changes)


def verdict(reward: int, *, hints: tuple[str, ...] = (), source: Source = Source.VOTES) -> Verdict:
    return Verdict(reward=reward, source=source, hints=hints)


@pytest.mark.parametrize(
    ("hints", "reward", "found"),
    [
        (HINTS, 1, BOTH),
        (HINTS, -1, BOTH),
        (HINTS, 0, OPD),
        ((), 1, RL),
        ((), -1, RL),
        ((), 0, Carried(reason=Reason.NO_SIGNAL)),
    ],
)
def test_a_reward_carries_rl_and_a_hint_carries_opd(hints, reward, found):
    assert carried(turn(), verdict(reward, hints=hints)) == found


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sampling": GREEDY}, Reason.GREEDY_WITHOUT_HINT),
        ({"sampling": TOP_P, "sampled": RAW}, Reason.TRUNCATED_SAMPLING_WITHOUT_HINT),
        ({"finish": Finish.LENGTH}, Reason.CUT_AT_LENGTH),
    ],
)
def test_some_ways_of_sampling_leave_only_opd(changes, reason):
    assert carried(turn(**changes), verdict(-1, hints=HINTS)) == OPD
    assert carried(turn(**changes), verdict(-1)).reason is reason
    assert carried(turn(**changes), verdict(0)).reason is Reason.NO_SIGNAL


def test_truncated_sampling_with_renormalised_log_probs_keeps_both_terms():
    assert carried(turn(sampling=TOP_P), verdict(1, hints=HINTS)) == BOTH
    assert carried(turn(sampled=RAW), verdict(1, hints=HINTS)) == BOTH


@pytest.mark.parametrize("source", [Source.FEEDBACK, Source.SCHEMA])
def test_a_response_cut_at_its_length_has_rl_if_evidence_decided(source):
    cut = turn(finish=Finish.LENGTH)
    assert carried(cut, verdict(-1, source=source)) == RL
    assert carried(cut, verdict(-1, hints=HINTS, source=source)) == BOTH


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"finish": Finish.CLIENT_LEFT}, Reason.CLIENT_LEFT),
        ({"kind": Kind.SIDE}, Reason.SIDE_TURN),
        ({"kind": Kind.UNKNOWN}, Reason.UNKNOWN_BRANCH),
        ({"teaches": False}, Reason.KEY_DOES_NOT_TEACH),
        ({"sampling": Sampling(max_tokens=8, presence_penalty=0.1)}, Reason.PENALTIES),
        ({"sampling": Sampling(max_tokens=8, repetition_penalty=1.1)}, Reason.PENALTIES),
        ({"sampling": Sampling(max_tokens=8, logit_bias=((3, 1.0),))}, Reason.PENALTIES),
        ({"sampled": NOTHING}, Reason.EMPTY_RESPONSE),
        ({"sampled": FORCED}, Reason.ALL_FORCED),
        ({"sampled": HALF_FORCED}, None),
        ({}, None),
    ],
)
def test_no_verdict_makes_an_untrainable_turn_train(changes, reason):
    assert untrainable(turn(**changes)) is reason
    found = carried(turn(**changes), verdict(1, hints=HINTS, source=Source.FEEDBACK))
    assert found == (BOTH if reason is None else Carried(reason=reason))


@pytest.mark.parametrize("changes", [{}, {"sampling": GREEDY}, {"finish": Finish.LENGTH}, {"sampled": RAW}])
@pytest.mark.parametrize("reward", [-1, 0, 1])
@pytest.mark.parametrize("hints", [(), HINTS])
@pytest.mark.parametrize("source", Source)
def test_what_is_not_ended_makes_a_sample(changes, reward, hints, source):
    judged = verdict(reward, hints=hints, source=source)
    found = carried(turn(**changes), judged)
    if found.reason is None:
        JudgedTurn(turn=turn(**changes), verdict=judged, rl=found.rl, opd=found.opd)
    else:
        assert not hints
