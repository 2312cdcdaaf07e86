"""The order of ids, and which hint teaches."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from afterwit.objective import ObjectiveSettings
from afterwit.objective.sample import Candidates, Sample, candidates
from afterwit.objective.settings import HINT_RULES, HintRule
from afterwit.objective.terms import logprobs, top_k

OVERLAP_HT = torch.tensor([[4, 0, 0], [3, 2, 1], [0, 1, 4]])
IDS = (5, 6, 7)
CHOSEN = {
    "shortest": [0, 0, 0],
    "longest": [2, 2, 2],
    "random": [1, 1, 1],  # SHA-256 of the ids
    "sequence_optimal": [1, 1, 1],
    "token_optimal": [0, 1, 2],
}
"""Rule -> the hint of each token, if the teachers agree with the student as in `OVERLAP_HT`."""
SCORED = [name for name, rule in HINT_RULES.items() if rule.score]
BY_IDS = [name for name, rule in HINT_RULES.items() if rule.score_ids]
KNOWN = [name for name, rule in HINT_RULES.items() if rule.known]


def found(overlap_HT):
    """Teachers that share `overlap_HT` of the student's four ids; one that shares more likes all ids more."""
    hints, tokens = overlap_HT.shape
    student_TK = torch.arange(4).expand(tokens, 4)
    liked_HTK = (overlap_HT - 10.0).unsqueeze(-1).expand(hints, tokens, 4)
    return Candidates(
        student_ids_TK=student_TK,
        student_old_TK=torch.full((tokens, 4), -1.4),
        student_teacher_HTK=liked_HTK,
        native_ids_HTK=student_TK + 4 - overlap_HT.unsqueeze(-1),
        native_teacher_HTK=liked_HTK,
        sampled_teacher_HT=liked_HTK[..., 0],
        old_at=lambda ids_TK: torch.full(ids_TK.shape, -1.4),
    )


@pytest.mark.parametrize("name", HINT_RULES)
def test_each_rule_chooses(name):
    rule = HINT_RULES[name]
    ran = torch.tensor(rule.teachers((10, 20, 30), IDS))
    chosen_T = rule.choose(found(OVERLAP_HT[ran]), torch.ones(3, dtype=torch.bool))
    assert ran[chosen_T].tolist() == CHOSEN[name]


def test_a_rule_is_a_score_over_what_the_teachers_say():
    """The teacher that finds the sampled ids likeliest, per token: a rule that is not in the table."""
    likeliest = HintRule(score=lambda candidates: candidates.sampled_teacher_HT, per_token=True)
    mask_T, said_HT = torch.ones(3, dtype=torch.bool), torch.tensor([[-1.0, -2.0, -3.0], [-2.0, -1.0, -1.0]])
    assert likeliest.choose(SimpleNamespace(sampled_teacher_HT=said_HT), mask_T).tolist() == [0, 1, 1]


@pytest.mark.parametrize("name", BY_IDS)
@given(st.data())
def test_a_rule_chooses_the_same_without_tensors(name, data):
    """Rows of different ids, of the student and of each teacher."""
    rule, ids = HINT_RULES[name], st.lists(st.integers(0, 9), min_size=4, max_size=4, unique=True)
    row = st.lists(ids, min_size=3, max_size=3)
    student, teachers = data.draw(row), data.draw(st.lists(row, min_size=2, max_size=3))
    mask = data.draw(st.lists(st.booleans(), min_size=3, max_size=3))
    unread = torch.zeros(len(teachers), 3, 4)
    told = Candidates(
        student_ids_TK=torch.tensor(student),
        student_old_TK=unread[0],
        student_teacher_HTK=unread,
        native_ids_HTK=torch.tensor(teachers),
        native_teacher_HTK=unread,
        sampled_teacher_HT=unread[..., 0],
        old_at=lambda ids_TK: torch.zeros(ids_TK.shape),
    )
    chosen = rule.choose(told, torch.tensor(mask)).tolist()
    assert rule.choose_by_ids(student, teachers, mask) == tuple(chosen)


def test_a_score_that_needs_more_than_ids_is_refused_for_a_rollout():
    rule = HintRule(score=lambda candidates: candidates.sampled_teacher_HT)
    with pytest.raises(ValueError, match="no `score_ids`"):
        rule.choose_by_ids([(1, 2)], [[(1, 2)], [(2, 1)]], (True,))


def test_a_rule_that_is_not_in_the_table_is_refused():
    with pytest.raises(ValueError, match=r"hint_selection is 'best', but must be one of .*shortest, longest"):
        ObjectiveSettings(hint_selection="best")
    with pytest.raises(ValueError, match="either `known` or `score`"):
        HintRule()


@given(
    st.lists(st.lists(st.integers(-2, 2), min_size=7, max_size=7), min_size=1, max_size=4), st.integers(1, 9)
)
def test_top_k_orders_by_value_and_then_by_the_lower_id(rows, k):
    expected = [sorted(range(7), key=lambda v: (-row[v], v))[:k] for row in rows]
    assert top_k(torch.tensor(rows, dtype=torch.float32), k).tolist() == expected


def test_overlap_counts_shared_ids_whatever_their_order():
    student = torch.tensor([[3.0, 2.0, 1.0, 0.0], [0.0, 1.0, 2.0, 3.0]])
    teachers = torch.stack([student.flip(-1), student + torch.tensor([0.0, 9.0, 8.0, 0.0])])
    sample = Sample(
        ids_T=torch.tensor([0, 0]),
        mask_T=torch.ones(2, dtype=torch.bool),
        behaviour_T=None,
        tau=1.0,
        advantage=None,
        hints=2,
    )
    both = candidates(sample, student, logprobs(student, 1.0), teachers, k=2)
    assert both.overlap_HT.tolist() == [[0, 0], [1, 1]]


@pytest.mark.parametrize("name", SCORED)
def test_ties_go_to_the_shortest_hint(name):
    same = found(torch.full((3, 3), 2))
    assert HINT_RULES[name].choose(same, torch.ones(3, dtype=torch.bool)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (2,), (3, 2), (2, 3, 4)])
def test_scores_of_another_shape_than_the_hints_tokens_choose_nothing(shape, per_token):
    rule = HintRule(score=lambda candidates: torch.zeros(shape), per_token=per_token)
    with pytest.raises(ValueError, match=rf"scores are \{list(shape)}, but must be \[2, 3\]"):
        rule.choose(found(OVERLAP_HT[:2]), torch.ones(3, dtype=torch.bool))


@pytest.mark.parametrize("hint", [2, -1, None])
def test_a_hint_that_is_not_there_is_not_chosen(hint):
    rule = HintRule(known=lambda lengths, ids: hint)
    with pytest.raises(ValueError, match=f"chose hint {hint}, but the hints are 0 to 1"):
        rule.teachers((5, 9), IDS)


def test_scores_that_are_no_tensor_choose_nothing():
    rule = HintRule(score=lambda candidates: candidates.sampled_teacher_HT.tolist())
    with pytest.raises(ValueError, match=r"a hint rule's scores are list, but must be \[2, 3\]"):
        rule.choose(found(OVERLAP_HT[:2]), torch.ones(3, dtype=torch.bool))


@pytest.mark.parametrize(("per_token", "chosen"), [(False, [0, 0, 0]), (True, [1, 0, 1])])
def test_a_score_that_is_no_number_is_the_least(per_token, chosen):
    scores = torch.tensor([[1.0, 2.0, 3.0], [5.0, torch.nan, 9.0]])
    rule = HintRule(score=lambda candidates: scores, per_token=per_token)
    assert rule.choose(found(OVERLAP_HT[:2]), torch.ones(3, dtype=torch.bool)).tolist() == chosen


def test_a_score_of_a_token_that_does_not_train_counts_for_nothing():
    scores = torch.tensor([[1.0, torch.nan, 3.0], [0.0, 9.0, 0.0]])
    rule = HintRule(score=lambda candidates: scores)
    assert rule.choose(found(OVERLAP_HT[:2]), torch.tensor([True, False, True])).tolist() == [0, 0, 0]


def test_the_first_of_equally_long_hints_is_the_longest():
    assert HINT_RULES["longest"].teachers((5, 9, 9), IDS) == (1,)


@pytest.mark.parametrize("name", KNOWN)
def test_a_hint_that_is_known_beforehand_has_the_only_teacher(name):
    rule = HINT_RULES[name]
    assert len(rule.teachers((10, 20, 30), IDS)) == 1
    with pytest.raises(ValueError, match="3 teachers ran, but the hint is chosen before any of them"):
        rule.choose(found(OVERLAP_HT), torch.ones(3, dtype=torch.bool))


@pytest.mark.parametrize("name", SCORED)
def test_a_rule_that_compares_teachers_needs_them_all(name):
    assert HINT_RULES[name].teachers((10, 20, 30), IDS) == (0, 1, 2)
    assert HINT_RULES[name].teachers((10,), IDS) == (0,)
    assert HINT_RULES[name].teachers((), IDS) == ()


def test_a_random_hint_is_the_same_for_the_same_ids_and_each_is_as_likely():
    def draws():
        return [HINT_RULES["random"].teachers((1, 2, 3), (n, 7, 7 * n))[0] for n in range(3000)]

    assert draws() == draws()
    for hint in range(3):  # 1000 expected, with a standard deviation of 26
        assert abs(draws().count(hint) - 1000) < 130


def test_masked_tokens_have_no_say_in_a_sequences_choice():
    overlaps = found(torch.tensor([[1, 1, 4], [2, 2, 0]]))
    chosen_T = HINT_RULES["sequence_optimal"].choose(overlaps, torch.tensor([True, True, False]))
    assert chosen_T.tolist() == [1, 1, 1]
