"""The replay harness: what real clients sent finds its place, in every mode, with and without ids."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from experiments.replay.captures import RECORDED, captured, captures
from experiments.replay.clients.known import CLAUDE, CODEX, HERMES
from experiments.replay.clients.session import session
from experiments.replay.clients.traits import Traits
from experiments.replay.hosts.binder import BinderHost
from experiments.replay.hosts.gateway import gateway_host
from experiments.replay.hosts.port import Host
from experiments.replay.identified import Ids, identified
from experiments.replay.schedule import play
from experiments.replay.score import Mistake, Score, score
from experiments.replay.traffic import Play
from tests.products import diagonal, some
from tests.store.databases import store_in_memory


async def mistakes_of(
    host: Host, plays: list[tuple[str, Play]], *, at_once: int, ids: Ids = Ids.OWN
) -> tuple[Score, list[Mistake]]:
    named = [(name, identified(one, ids, str(at))) for at, (name, one) in enumerate(plays)]
    played = await play(host, named, at_once=at_once, rng=Random(0))
    scores, mistakes = score(played, await host.records())
    return sum(scores.values(), Score()), mistakes


@pytest.mark.parametrize(("ids", "at_once"), diagonal(Ids, [1, 5]))
async def test_every_capture_finds_its_place_alone_and_interleaved_with_ids_and_without(
    ids: Ids, at_once: int
):
    plays = [(one.name, captured(one)) for one in captures(RECORDED)]
    counted, mistakes = await mistakes_of(BinderHost(store_in_memory()), plays, at_once=at_once, ids=ids)
    assert mistakes == []
    assert counted.right == counted.main > 60
    assert counted.known == counted.side > 10


@pytest.mark.parametrize("ids", some(2, Ids))
async def test_twins_of_every_capture_stay_apart(ids: Ids):
    for one in captures(RECORDED):
        plays = [(one.name, captured(one, copy=copy)) for copy in range(2)]
        _, mistakes = await mistakes_of(BinderHost(store_in_memory()), plays, at_once=2, ids=ids)
        assert mistakes == []


@pytest.mark.slow
async def test_the_captures_find_their_place_through_the_real_gateway(tmp_path: Path):
    async with gateway_host(tmp_path) as host:
        plays = [(one.name, captured(one)) for one in captures(RECORDED)]
        _, mistakes = await mistakes_of(host, plays, at_once=5)
    assert mistakes == []


async def test_a_reminder_that_a_client_adds_to_a_tools_result_is_no_mistake():
    plays = [(CLAUDE.name, session(CLAUDE, seed)) for seed in range(3)]
    assert (await mistakes_of(BinderHost(store_in_memory()), plays, at_once=3))[1] == []


@pytest.mark.slow
@pytest.mark.parametrize("traits", [HERMES, CODEX], ids=lambda traits: traits.name)
async def test_the_gateway_and_the_binder_alone_come_to_the_same(tmp_path: Path, traits: Traits):
    """Retries, edits, compactions and side turns in each dialect."""
    async with gateway_host(tmp_path) as host:
        served = await mistakes_of(
            host, [(traits.name, session(traits, seed)) for seed in range(4)], at_once=2
        )
    bound = await mistakes_of(
        BinderHost(store_in_memory()), [(traits.name, session(traits, seed)) for seed in range(4)], at_once=2
    )
    assert served == bound


def test_labels_that_do_not_fit_the_requests_are_refused(tmp_path: Path):
    (tmp_path / "one.json").write_text('[{"headers": {}, "messages": []}]')
    (tmp_path / "labels.json").write_text('{"one": {"requests": []}}')
    with pytest.raises(ValueError, match=r"one\.json: 1 requests but 0 labels"):
        captures(tmp_path)
