import torch
from hypothesis import given
from hypothesis import strategies as st

from afterwit.packing.pack import Block, Path, pack
from afterwit.text import prefix_length
from tests.packing.forests import forests, mask

SESSION = (1, 2, 3, 4, 5, 6)


@given(forests())
def test_each_wanted_state_is_that_of_its_own_token_at_its_own_depth(paths: list[Path]) -> None:
    packed = pack(paths)
    for path, at in zip(paths, packed.at, strict=True):
        assert [packed.ids[place] for place in at] == list(path.ids[path.first :])
        assert [packed.depths[place] for place in at] == list(range(path.first, len(path.ids)))


@given(forests())
def test_a_token_sees_what_comes_before_it_in_its_rows_and_nothing_else(paths: list[Path]) -> None:
    packed = pack(paths)
    whole = pack([Path(ids=path.ids, first=0) for path in paths])
    expected_LL = torch.zeros(len(packed.ids), len(packed.ids), dtype=torch.bool)
    for at in whole.at:
        for depth, place in enumerate(at):
            expected_LL[place, at[: depth + 1]] = True
    assert torch.equal(mask(packed), expected_LL)


@given(forests())
def test_every_prefix_is_there_once(paths: list[Path]) -> None:
    packed = pack(paths)
    prefixes = {path.ids[: depth + 1] for path in paths for depth in range(len(path.ids))}
    assert len(packed.ids) == len(prefixes)


def test_a_session_that_only_grows_is_one_causal_sequence() -> None:
    packed = pack([Path(ids=SESSION[:end], first=end - 1) for end in (2, 4, 6)])
    assert packed.ids == list(SESSION)
    assert len(packed.blocks) == 1
    assert packed.at == [[1], [3], [5]]


def test_branches_that_leave_at_one_place_share_a_rectangle() -> None:
    paths = [Path(ids=SESSION, first=0), *(Path(ids=(1, 2, hint, 7), first=2) for hint in (8, 9, 10))]
    rectangles = [block for block in pack(paths).blocks if not block.causal]
    (rectangle,) = rectangles
    assert rectangle == Block(6, 12, 0, 2)


def test_the_first_label_of_a_branch_is_predicted_by_its_parents_last_state() -> None:
    """Two retries of one prompt, of which nothing but the response differs."""
    packed = pack([Path(ids=(1, 2, 3, 4), first=1), Path(ids=(1, 2, 5), first=1)])
    assert packed.at == [[1, 2, 3], [1, 4]]


def test_a_thousand_branches_down_one_session_do_not_exhaust_the_stack() -> None:
    session = tuple(range(2000))
    branches = [Path(ids=(*session[:turn], 7), first=turn) for turn in range(8, 1992)]
    assert len(pack([Path(ids=session, first=0), *branches]).ids) == 2000 + len(branches)


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_a_common_prefix_ends_where_two_texts_first_differ(
    common: list[int], one: list[int], other: list[int]
) -> None:
    left, right = [*common, *one], [*common, *other]
    expected = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), None)
    assert prefix_length(left, right) == (min(len(left), len(right)) if expected is None else expected)
