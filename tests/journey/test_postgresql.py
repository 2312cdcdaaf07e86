"""The whole loop over one PostgreSQL database, and stages that share nothing but it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import pytest

from afterwit.config import Settings
from afterwit.lifecycle import State
from afterwit.running.serve import Runtime
from afterwit.store import Record
from tests.journey.conftest import HINT, PlainJudge, client, until
from tests.journey.test_turn import ASKED, REPLY, whole_loop
from tests.store.postgresql.server import Server, server

pytestmark = pytest.mark.cluster


@pytest.fixture
def url() -> str:
    return server().url(server().empty_schema())


@pytest.mark.slow  # the same loop as without a database, whose store is tested by itself
async def test_what_was_learned_from_a_turn_in_a_database_is_served(
    settings: Callable[..., Settings], model: Path, tmp_path: Path, url: str
) -> None:
    chosen = settings({"store": {"url": url}, "learner": {"teacher": "ema"}})
    await whole_loop(chosen, model, tmp_path, weights="adapter_model.safetensors")
    assert await asyncio.to_thread(lambda: list(tmp_path.glob("store.db*"))) == []


async def test_two_gateways_and_a_judge_of_three_homes_meet_in_a_database(
    settings: Callable[..., Settings], tmp_path: Path, url: str
) -> None:
    """A conversation goes on at the other gateway. The judge, which polls once an hour, is notified."""
    store = {"url": url}
    gateway = settings({"store": store, "learner": {"enabled": False}})
    judging = settings({"store": store, "judge": {"poll_s": 3600.0}, "learner": {"enabled": False}})
    async with (
        Runtime(judging, tmp_path / "judge", ("judge",), judge=PlainJudge()) as judge,
        Runtime(gateway, tmp_path / "one", ("gateway",)) as one,
        Runtime(gateway, tmp_path / "two", ("gateway",)) as two,
    ):
        assert one.url is not None
        assert two.url is not None
        first = await client(one.url).chat.completions.create(model="afterwit", messages=[ASKED], seed=0)
        said = {"role": "assistant", "content": first.choices[0].message.content}
        second = await client(two.url).chat.completions.create(
            model="afterwit", messages=[ASKED, said, REPLY]
        )

        async def judged() -> Record | None:
            record = await judge.store.call(lambda store: store.turn(first.id.removeprefix("chatcmpl-")))
            return record if record.state is State.JUDGED else None

        record = await until(judged)
        assert record.verdict is not None
        assert record.verdict.hints == (HINT,)
        child = await one.store.call(lambda store: store.turn(second.id.removeprefix("chatcmpl-")))
        assert child.turn.parent == record.turn.id


async def test_a_killed_database_leaves_turns_waiting_and_each_is_recorded_where_it_belongs(
    settings: Callable[..., Settings], tmp_path: Path
) -> None:
    """A session goes on before, during and after; no request waits for more than 15 seconds."""
    own = await asyncio.to_thread(Server)
    chosen = settings({"store": {"url": own.url(own.empty_schema())}, "learner": {"enabled": False}})
    said, answered, waits = [dict(ASKED)], list[str](), list[float]()

    async def go_on(url: str, times: int) -> None:
        for _ in range(times):
            began = perf_counter()
            asked = client(url).chat.completions.create(model="afterwit", messages=said, max_tokens=8)  # type: ignore[arg-type]
            answer = await asked
            waits.append(perf_counter() - began)
            answered.append(answer.id.removeprefix("chatcmpl-"))
            words = answer.choices[0].message.content or ""
            said.extend([{"role": "assistant", "content": words}, dict(REPLY)])

    try:
        async with Runtime(chosen, tmp_path / "home", ("gateway",)) as running:
            assert running.url is not None
            await go_on(running.url, 2)
            own.kill()
            await go_on(running.url, 4)
            await asyncio.to_thread(own.start)
            await go_on(running.url, 2)

            async def recorded() -> list[Record] | None:
                records = await running.store.call(lambda store: list(store.turns()))
                return records if len(records) == len(answered) else None

            records = await until(recorded)
    finally:
        own.remove()
    assert [record.turn.id for record in records] == answered
    assert [record.turn.parent for record in records] == [None, *answered[:-1]]
    assert {record.turn.session for record in records} == {answered[0]}
    assert max(waits) < 20.0  # the store's 15, and sampling on a busy machine
