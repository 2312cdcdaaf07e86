"""Rows that are kept: found by what they begin with, taken over, copied or shared, dropped by age."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest
import torch

from afterwit.engines.embedded.cache import (
    MOST_ROWS,
    SHARE,
    WORTH,
    PrefixCache,
    Row,
    budget_of,
)
from afterwit.engines.embedded.engine import load_module
from afterwit.engines.embedded.forward import prefill
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.planning.memory import kept_per_token
from afterwit.weights.weights import read_config

LIVE, BASE = "live", "base"


def row_of(*ids: int) -> Row:
    """A row that holds these tokens; 64 positions more than needed, 8 bytes each."""
    row = Row(context_length=4096)
    row.extend({0: (torch.zeros(1, 1, len(ids), 1),) * 2}, ids)
    return row


def cache_of(*rows: Row, budget: int = 2**20) -> PrefixCache:
    kept = PrefixCache(budget)
    for row in rows:
        kept.add(LIVE, row)
    return kept


def tokens(*ids: int) -> array[int]:
    return array("i", ids)


def test_the_row_that_holds_most_of_a_text_is_found_and_a_few_tokens_are_not_worth_it() -> None:
    short, long = row_of(*range(20)), row_of(*range(30), 99)
    kept = cache_of(short, long)
    found = kept.find(LIVE, tokens(*range(40)))
    assert found == (long, 30)
    assert kept.find(LIVE, tokens(*range(WORTH - 1), 77, 78)) is None


def test_rows_of_other_weights_are_never_found() -> None:
    kept = cache_of(row_of(*range(30)))
    assert kept.find(BASE, tokens(*range(30))) is None
    kept.forget(LIVE)
    assert kept.find(LIVE, tokens(*range(30))) is None


def test_weights_that_changed_take_no_rows_of_others_along() -> None:
    mine, other = row_of(*range(30)), row_of(*range(30))
    kept = cache_of(other)
    kept.add(BASE, mine)
    kept.forget(BASE)
    assert other in kept
    assert mine not in kept


def test_the_oldest_row_that_nobody_uses_is_dropped_first() -> None:
    rows = [row_of(*range(100 * n, 100 * n + 50)) for n in range(4)]
    size = rows[0].nbytes
    kept = cache_of(*rows, budget=3 * size)
    kept.use(rows[0])
    kept.use(rows[1])
    kept.leave(rows[1])
    assert [row in kept for row in rows] == [True, True, False, True]
    kept.make_room(50)
    assert [row in kept for row in rows] == [True, True, False, False]
    assert kept.nbytes <= 3 * size


def test_rows_in_use_stay_even_if_they_are_more_than_the_budget() -> None:
    rows = [row_of(*range(50)) for _ in range(3)]
    kept = cache_of(*rows, budget=rows[0].nbytes)
    for row in rows:
        kept.use(row)
    kept.make_room(1000)
    assert all(row in kept for row in rows)
    for row in rows:
        kept.leave(row)
    assert kept.nbytes <= rows[0].nbytes


def test_there_are_never_more_than_so_many_rows() -> None:
    rows = [row_of(n) for n in range(MOST_ROWS + 5)]
    kept = cache_of(*rows)
    kept.make_room()
    assert sum(row in kept for row in rows) == MOST_ROWS
    assert rows[-1] in kept


def test_without_a_budget_nothing_is_found() -> None:
    assert cache_of(row_of(*range(50)), budget=0).find(LIVE, tokens(*range(50))) is None


@pytest.mark.parametrize(("limit", "most"), [("1048576\n", 2**20), ("max\n", None), (None, None)])
def test_the_budget_is_a_share_of_the_machines_memory_or_of_its_containers(
    tmp_path: Path, limit: str | None, most: int | None
) -> None:
    file = tmp_path / "memory.max"
    if limit is not None:
        file.write_text(limit)
    found = budget_of(EmbeddedSettings(), torch.device("cpu"), container=file)
    assert found == most // SHARE if most else found > 2**28 // SHARE


def test_the_budget_is_the_setting_if_there_is_one() -> None:
    cpu = torch.device("cpu")
    assert budget_of(EmbeddedSettings(prefix_cache_gib=1.5), cpu) == 3 * 2**29
    assert budget_of(EmbeddedSettings(prefix_cache_gib=0), cpu) == 0


@pytest.mark.parametrize("kind", ["qwen", "llama"])
def test_a_tokens_bytes_are_those_of_a_row(kind: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(kind)
    module = load_module(folder, torch.device("cpu"), torch.float32)
    row = Row(context_length=64)
    prefill(module, row, [1, 2, 3])
    config = read_config(folder).get_text_config().to_dict()
    assert kept_per_token(config) * 4 == row.bytes_per_position
