import json
import math
from dataclasses import asdict, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from afterwit.promotion.suite import (
    MOST_LONGER,
    Complaint,
    ItemRead,
    PromotionSettings,
    SuiteItem,
    chosen_items,
    length,
    stratum_of,
    suite_result,
    sure_from,
    suspects,
    times_as_long,
)
from afterwit.turn import Basis, Message, Sampled, Sampling, ToolCall
from afterwit.version import SuiteResult
from tests.fakes.turns import a_turn

SETTINGS = PromotionSettings(per_kind=8, per_source=3)


def item(number: int, stratum: str = "write", source: str = "me") -> SuiteItem:
    return SuiteItem(
        turn=f"t{number}",
        stratum=stratum,
        source=source,
        version=0,
        since=float(number),
        prompt_ids=(1, 2, 3),
        ids=(4, 5),
        sure=(True, False),
    )


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
    chosen = chosen_items(items, SETTINGS)
    writes = [each for each in chosen if each.stratum == "write"]
    assert [each.turn for each in writes] == [f"t{n}" for n in range(39, 31, -1)]
    assert [each.turn for each in chosen if each.stratum == "text"] == [
        f"t{n}" for n in range(59, 51, -1)
    ]  # no other source approved any


def test_several_sources_share_a_stratum_and_a_busy_one_has_an_equal_part_at_least():
    busy = [item(n, source="busy") for n in range(20)]
    of = [each.source for each in chosen_items([*busy, item(30, source="b"), item(31, source="c")], SETTINGS)]
    assert {name: of.count(name) for name in of} == {"busy": 3, "b": 1, "c": 1}
    of = [
        each.source for each in chosen_items([*busy, *(item(n, source="b") for n in range(30, 40))], SETTINGS)
    ]
    assert {name: of.count(name) for name in of} == {"busy": 4, "b": 4}


def test_the_turns_of_the_batch_are_left_out():
    assert [each.turn for each in chosen_items([item(1), item(2)], SETTINGS, without={"t2"})] == ["t1"]


def result(**lost: tuple[int, int]):
    kept = ((item(n, stratum), n >= gone) for stratum, (gone, of) in lost.items() for n in range(of))
    return suite_result(kept, may_lose=SETTINGS.may_lose)


def test_a_stratum_that_is_lost_holds_a_version_however_well_one_other_does():
    found = result(write=(5, 8), text=(0, 8))
    assert found.evidence >= SETTINGS.hold_at
    assert found.worst == "write"
    assert found.lost == {"text": (0, 8), "write": (5, 8)}


def test_the_evidence_is_the_mean_of_the_strata():
    parts = [result(a=(2, 3)).evidence, result(b=(0, 4)).evidence]
    assert result(a=(2, 3), b=(0, 4)).evidence == pytest.approx(sum(parts) / 2)


def test_without_history_nothing_is_lost():
    found = result()
    assert (found.evidence, found.worst, found.lost) == (1.0, None, {})
    assert chosen_items([], SETTINGS) == []


def test_an_item_is_what_the_policy_was_sure_of():
    sampled = Sampled(
        ids=(7, 8, 9), logprobs=(-0.01, -0.5, -0.02), versions=(0, 0, 0), forced=(False, False, True)
    )
    turn = a_turn("t", sampled=sampled)
    found = SuiteItem.of(turn, since=3.0)
    assert (found.turn, found.ids, found.sure, found.since) == ("t", (7, 8, 9), (True, False, False), 3.0)
    assert (found.stratum, found.source, found.prompt_ids) == ("text", turn.source, turn.prompt_ids)


@pytest.mark.parametrize("tau", [0.1, 0.2, 0.6, 1.0, 1.5])
def test_the_policy_was_sure_of_what_is_sure_at_temperature_1(tau):
    logits = torch.tensor([[0.89, 0.11], [0.91, 0.09]], dtype=torch.float64).log()
    under, over = (logits / tau).log_softmax(dim=-1)[:, 0].tolist()
    assert under < sure_from(tau) < over
    sampled = Sampled(ids=(7, 8), logprobs=(under, over), versions=(0, 0), forced=(False, False))
    turn = a_turn("t", sampled=sampled, sampling=Sampling(max_tokens=9, temperature=tau))
    assert SuiteItem.of(turn, since=3.0).sure == (False, True)


def test_raw_log_probs_and_greedy_turns_are_of_temperature_1():
    sampled = Sampled(
        ids=(7, 8), logprobs=(math.log(0.89), math.log(0.91)), versions=(0, 0), forced=(False, False)
    )
    greedy = a_turn("t", sampled=sampled, sampling=Sampling(max_tokens=9, temperature=0.0))
    raw = replace(sampled, basis=Basis.RAW)
    cool = a_turn("t", sampled=raw, sampling=Sampling(max_tokens=9, temperature=0.2))
    assert SuiteItem.of(greedy, since=3.0).sure == SuiteItem.of(cool, since=3.0).sure == (False, True)


@pytest.mark.parametrize(
    ("probabilities", "kept"),
    [
        ((0.95, 0.9), True),
        ((0.95, 0.01), True),
        ((0.71, 0.9), True),
        ((0.69, 0.9), False),
        ((0.01, 0.9), False),
    ],
    ids=["same", "unsure", "a little less", "wavers", "another"],
)
def test_a_response_is_kept_if_what_was_sure_still_is(probabilities, kept):
    assert item(1).kept([math.log(each) for each in probabilities]) is kept


@pytest.mark.parametrize(
    ("plain", "shown", "expected"),
    [
        ((0.95, 0.9), (0.2, 0.9), True),
        ((0.95, 0.9), (0.4, 0.9), False),
        ((0.95, 0.9), (0.95, 0.01), False),
        ((0.5, 0.9), (0.01, 0.9), False),
    ],
    ids=["no longer", "less", "where it was not sure", "lost anyway"],
)
def test_a_hint_contradicts_what_the_policy_takes_and_would_not_take_with_it(plain, shown, expected):
    pair = [[math.log(each) for each in given] for given in (plain, shown)]
    assert item(1).contradicted(*pair) is expected


def complaint(number: int, kind: str, source: str) -> Complaint:
    said = response((kind, "{}"))
    return Complaint(turn=a_turn("c", scope=source, message=said, created=float(number)), hint="Not so.")


def test_a_complaint_makes_suspects_of_what_its_source_approved_before_of_its_kind():
    items = [item(3, source="you"), item(2, "read"), item(1), item(0)]
    turns = {each.turn: a_turn(each.turn) for each in items if each.turn != "t0"}

    def found(*complaints: Complaint, tokens: int = 1000) -> list[str]:
        return [each.item.turn for each in suspects(items, complaints, turns.get, tokens=tokens)]

    assert found(complaint(5, "write", "me")) == ["t1"]
    assert found(complaint(5, "write", "you")) == ["t3"]
    assert found(complaint(5, "write", "them"), complaint(5, "run", "me")) == []
    assert found(complaint(1, "write", "me")) == []
    assert found(*[complaint(5, "write", "me")] * 3, tokens=20) == ["t1"] * 2


def test_a_long_response_may_differ_in_a_fiftieth_of_what_was_sure():
    long = replace(item(1), ids=tuple(range(100)), sure=(True,) * 100)
    assert long.kept([-1.0] * 2 + [-0.01] * 98)
    assert not long.kept([-1.0] * 3 + [-0.01] * 97)


def test_free_text_is_lost_once_a_sure_token_is_unlikely_and_a_chosen_response_once_it_is_less_sure():
    """Learning to answer in one sentence made "The sky is blue." likelier, and a sure token less sure."""
    whole = replace(item(1), ids=tuple(range(8)), sure=(True,) * 8)
    chosen, text = (replace(whole, sure=(True,) * sure + (False,) * (8 - sure)) for sure in (4, 3))
    wavers, unlikely = ([math.log(each)] + [-0.01] * 7 for each in (0.6, 0.29))
    assert (chosen.kept(wavers), text.kept(wavers)) == (False, True)
    assert (chosen.kept(unlikely), text.kept(unlikely)) == (False, False)


def test_log_probs_of_another_length_are_refused():
    with pytest.raises(ValueError, match="2 ids but 1 log-probs"):
        item(1).kept((-0.1,))
    with pytest.raises(ValueError, match="2 ids but 1 flags"):
        replace(item(1), sure=(True,))


def test_strata_take_turns_within_a_budget_of_tokens():
    items = [item(n, stratum, source=f"s{n}") for n in range(4) for stratum in ("a", "b", "c")]
    found = [(each.stratum, each.turn) for each in chosen_items(items, SETTINGS, tokens=20, turn=1)]
    assert found == [("b", "t3"), ("c", "t3"), ("a", "t3"), ("b", "t2")]


def test_what_responses_begin_with_costs_once_where_it_is_read_once():
    start = tuple(range(160))
    items = [replace(item(n), prompt_ids=(*start, *[n] * 14), ids=(4, 5)) for n in range(6)]
    assert len(chosen_items(items, SETTINGS, tokens=400)) == 2
    assert len(chosen_items(items, SETTINGS, tokens=400, shared=True)) == 6
    assert len(chosen_items(items, SETTINGS, tokens=200, shared=True)) == 2


def test_a_result_is_read_back_from_its_json():
    found = result(write=(2, 3), text=(0, 1))
    assert SuiteResult.from_dict(json.loads(json.dumps(asdict(found)))) == found
    assert found.lost_turns == ("t0", "t1")


def ends(*probabilities: float) -> ItemRead:
    """A response whose end has these probabilities in its places."""
    logs = tuple(math.log(each) if each else -math.inf for each in probabilities)
    return ItemRead(logprobs=logs, ends=logs)


def test_a_response_that_surely_ends_where_it_ended_is_expected_to_be_as_long_as_it_was() -> None:
    assert ends(0, 0, 0, 1).tokens == 4
    assert ends(1, 0, 0, 1).tokens == 1
    assert ends(0, 0.5, 0, 1).tokens == 3  # half end after two tokens, half after four


@given(st.floats(0.05, 1), st.integers(1, 12))
def test_an_end_that_is_equally_likely_everywhere_has_the_mean_of_the_geometric_distribution(
    probability: float, size: int
) -> None:
    expected = min(MOST_LONGER * size, 1 / probability)
    assert ends(*(probability,) * size).tokens == pytest.approx(expected)


def test_a_response_without_an_end_is_some_times_as_long_at_most() -> None:
    assert ends(0, 0, 0).tokens == 3 * MOST_LONGER


def test_the_length_of_the_suite_is_a_share_of_what_was_approved() -> None:
    read = [(item(1), ends(0, 1)), (replace(item(2), ids=(4,), sure=(True,)), ends(0.25))]
    assert length(read) == pytest.approx((2 + 4) / 3)
    assert length([]) is None


def test_too_few_items_show_no_length() -> None:
    def result(length: float | None, items: int) -> SuiteResult:
        return SuiteResult(lost={"text": (0, items)}, evidence=1.0, length=length)

    assert times_as_long(result(0.5, 4), result(1.0, 4)) == 0.5
    assert times_as_long(result(0.5, 3), result(1.0, 4)) is None
    assert times_as_long(result(None, 4), result(1.0, 4)) is None
    assert SuiteResult.from_dict({"lost": {}, "evidence": 1.0, "lost_turns": []}).length is None
