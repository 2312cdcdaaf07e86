from hypothesis import given
from hypothesis import strategies as st

from afterwit.packing.pack import Path, groups, pack, ratio
from tests.packing.forests import forests


@given(forests())
def test_the_ratio_is_that_of_the_packed_sequence(paths: list[Path]) -> None:
    rows = [path.ids for path in paths]
    assert ratio(rows) == sum(map(len, rows)) / len(pack(paths).ids)


@given(forests(), st.integers(1, 30))
def test_groups_are_neighbours_and_keep_to_the_limit_beside_their_longest_row(
    paths: list[Path], limit: int
) -> None:
    found = groups([path.ids for path in paths], limit)
    assert [index for group in found for index in group] == list(range(len(paths)))
    for group in found:
        together = [paths[index] for index in group]
        assert len(pack(together).ids) - max(len(path.ids) for path in together) <= limit


@given(st.lists(st.integers(0, 4), min_size=2, max_size=40), st.integers(1, 5))
def test_a_session_that_only_grows_is_one_group_however_long(ids: list[int], limit: int) -> None:
    turns = [tuple(ids[:end]) for end in range(1, len(ids) + 1)]
    assert len(groups(turns, limit)) == 1


def test_no_rows_make_no_groups() -> None:
    assert groups([], 10) == []
    assert ratio([]) == 1.0
