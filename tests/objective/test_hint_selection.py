"""The order of ids, and which hint teaches."""

import pytest
import torch
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st

from afterwit.objective.hint_selection import choose, drawn, fixed_choice, overlap, pick
from afterwit.objective.logprobs import top_k
from afterwit.objective.sample import Sample


def a_sample(hints=3, *, ids=(5, 6, 7), mask=(True, True, True), lengths=None):
    return Sample(
        ids_T=torch.tensor(ids),
        mask_T=torch.tensor(mask),
        behaviour_T=None,
        tau=1.0,
        advantage=None,
        hints=hints,
        hint_lengths=lengths,
    )


@given(
    st.lists(st.lists(st.integers(-2, 2), min_size=7, max_size=7), min_size=1, max_size=4), st.integers(1, 9)
)
@budget(max_examples=100, deadline=None)
def test_top_k_orders_by_value_and_then_by_the_lower_id(rows, k):
    expected = [sorted(range(7), key=lambda v: (-row[v], v))[:k] for row in rows]
    assert top_k(torch.tensor(rows, dtype=torch.float32), k).tolist() == expected


def test_overlap_counts_shared_ids_whatever_their_order():
    student = torch.tensor([[1, 2, 3], [4, 5, 6]])
    teachers = torch.tensor([[[3, 2, 1], [7, 8, 9]], [[1, 9, 8], [6, 4, 0]]])
    assert overlap(student, teachers).tolist() == [[3, 0], [1, 2]]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("shortest", [0, 0, 0]),
        ("longest", [2, 2, 2]),
        ("random", [drawn([5, 6, 7], 3)] * 3),
        ("sequence_optimal", [1, 1, 1]),
        ("token_optimal", [0, 1, 2]),
    ],
)
def test_each_rule_chooses(rule, expected):
    overlap_HT = torch.tensor([[4, 0, 0], [3, 2, 1], [0, 1, 4]])
    assert choose(overlap_HT, a_sample(), rule).tolist() == expected


@pytest.mark.parametrize("rule", ["sequence_optimal", "token_optimal"])
def test_ties_go_to_the_shortest_hint(rule):
    assert choose(torch.full((3, 3), 2), a_sample(), rule).tolist() == [0, 0, 0]


def test_the_first_of_equally_long_hints_is_the_longest():
    assert fixed_choice(a_sample(lengths=(5, 9, 9)), "longest") == 1
    assert fixed_choice(a_sample(), "longest") == 2


def test_only_overlap_needs_a_look_at_the_teachers_and_only_among_several():
    for rule in ("sequence_optimal", "token_optimal"):
        assert fixed_choice(a_sample(1), rule) == 0
        assert fixed_choice(a_sample(2), rule) is None


def test_a_random_hint_is_the_same_for_the_same_ids_and_each_is_as_likely():
    draws = [drawn([n, 7, 7 * n], 3) for n in range(3000)]
    assert draws == [drawn([n, 7, 7 * n], 3) for n in range(3000)]
    for hint in range(3):  # 1000 expected, with a standard deviation of 26
        assert abs(draws.count(hint) - 1000) < 130
    assert drawn([1, 2], 1) == 0


def test_masked_tokens_have_no_say_in_a_sequences_choice():
    overlap_HT = torch.tensor([[1, 1, 9], [2, 2, 0]])
    sample = a_sample(2, mask=(True, True, False))
    assert choose(overlap_HT, sample, "sequence_optimal").tolist() == [1, 1, 1]


def test_pick_takes_each_position_from_its_hint():
    values_HTK = torch.arange(12).reshape(2, 3, 2)
    assert pick(values_HTK, torch.tensor([0, 1, 0])).tolist() == [[0, 1], [8, 9], [4, 5]]
