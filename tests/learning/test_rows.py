import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.learning.passes import Row, micro_batches

lengths_of_rows = st.lists(st.integers(1, 100), max_size=30)


@given(lengths_of_rows, st.integers(1, 300))
def test_every_row_is_in_exactly_one_pass(lengths: list[int], limit: int) -> None:
    assert sorted(index for group in micro_batches(lengths, limit) for index in group) == list(
        range(len(lengths))
    )


@given(lengths_of_rows, st.integers(1, 300))
def test_a_padded_pass_keeps_to_the_limit_unless_one_row_alone_exceeds_it(
    lengths: list[int], limit: int
) -> None:
    for group in micro_batches(lengths, limit):
        assert len(group) == 1 or len(group) * max(lengths[index] for index in group) <= limit


@pytest.mark.parametrize(("prompt", "response"), [((), (1,)), ((1,), ())])
def test_a_row_without_prompt_or_response_cannot_be_built(prompt: tuple[int], response: tuple[int]) -> None:
    with pytest.raises(ValueError, match="neither may be 0"):
        Row(prompt=prompt, response=response)
