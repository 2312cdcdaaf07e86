"""The order of ids, and which hint teaches."""

import pytest
import torch
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st

from afterwit.objective.logprobs import top_k
from afterwit.objective.select import choose, fixed_choice, overlap, pick

ALL = torch.ones(3, dtype=torch.bool)


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
        ("sequence_optimal", [1, 1, 1]),
        ("token_optimal", [0, 1, 2]),
    ],
)
def test_each_rule_chooses(rule, expected):
    overlap_HT = torch.tensor([[4, 0, 0], [3, 2, 1], [0, 1, 4]])
    assert choose(overlap_HT, rule, ALL).tolist() == expected


@pytest.mark.parametrize("rule", ["sequence_optimal", "token_optimal"])
def test_ties_go_to_the_shortest_hint(rule):
    assert choose(torch.full((3, 3), 2), rule, ALL).tolist() == [0, 0, 0]


def test_the_first_of_equally_long_hints_is_the_longest():
    assert fixed_choice("longest", 3, (5, 9, 9)) == 1
    assert fixed_choice("longest", 3) == 2
    assert fixed_choice("sequence_optimal", 1) == 0
    assert fixed_choice("token_optimal", 2) is None


def test_masked_tokens_have_no_say_in_a_sequences_choice():
    overlap_HT = torch.tensor([[1, 1, 9], [2, 2, 0]])
    assert choose(overlap_HT, "sequence_optimal", torch.tensor([True, True, False])).tolist() == [1, 1, 1]


def test_pick_takes_each_position_from_its_hint():
    values_HTK = torch.arange(12).reshape(2, 3, 2)
    assert pick(values_HTK, torch.tensor([0, 1, 0])).tolist() == [[0, 1], [8, 9], [4, 5]]
