import pytest

from afterwit.core.message import Message, ToolCall
from afterwit.core.promotion import Item, Standing, Suite, stratum_of


def item(number: int, stratum: str = "write", source: str = "me") -> Item:
    return Item(turn=f"t{number}", stratum=stratum, source=source, since=float(number))


def response(*calls: tuple[str, str]) -> Message:
    made = tuple(ToolCall(id=f"c{at}", name=name, arguments=text) for at, (name, text) in enumerate(calls))
    return Message(role="assistant", content=None if made else "Done.", tool_calls=made)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([], "text"),
        ([("delete", '{"path": "a", "dry_run": true}')], "delete dry_run=true"),
        ([("delete", '{"path": "a"}')], "delete"),
        ([("move", '{"force": false, "all": true, "n": 1}')], "move all=true force=false"),
        ([("read", "{}"), ("delete", '{"dry_run": true}')], "read"),
        ([("read", "not json")], "read"),
        ([("read", "[true]")], "read"),
        ([("read", "[" * 100_000)], "read"),
    ],
)
def test_a_stratum_is_the_first_call_and_its_flags(calls, expected):
    assert stratum_of(response(*calls)) == expected


def test_the_newest_items_of_each_stratum_are_chosen_and_few_of_one_source():
    items = [item(n, source=f"s{n % 5}") for n in range(40)] + [item(n, "text", "one") for n in range(40, 60)]
    chosen = Suite().chosen(items)
    writes = [each for each in chosen if each.stratum == "write"]
    assert [each.turn for each in writes] == [f"t{n}" for n in range(39, 31, -1)]
    assert [each.turn for each in chosen if each.stratum == "text"] == ["t59", "t58", "t57"]


def test_the_turns_of_the_batch_are_left_out():
    assert [each.turn for each in Suite().chosen([item(1), item(2)], without={"t2"})] == ["t1"]


def result(**lost: tuple[int, int]):
    return Suite().result(
        (item(n, stratum), n >= gone) for stratum, (gone, of) in lost.items() for n in range(of)
    )


def test_a_stratum_that_is_lost_holds_a_version_however_well_one_other_does():
    found = result(write=(5, 8), text=(0, 8))
    assert (found.standing, found.worst) == (Standing.HELD, "write")
    assert found.lost == {"text": (0, 8), "write": (5, 8)}


def test_a_version_with_two_of_three_lost_serves_but_nothing_falls_back_to_it():
    assert result(write=(2, 3)).standing is Standing.DOUBTFUL


def test_the_evidence_is_the_mean_of_the_strata():
    parts = [result(a=(2, 3)).evidence, result(b=(0, 4)).evidence]
    assert result(a=(2, 3), b=(0, 4)).evidence == pytest.approx(sum(parts) / 2)


def test_without_history_a_version_is_clean():
    found = Suite().result([])
    assert (found.standing, found.evidence, found.worst, found.lost) == (Standing.CLEAN, 1.0, None, {})
