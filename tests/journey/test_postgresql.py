"""The whole loop over one PostgreSQL database, and stages that share nothing but it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from afterwit.config import Settings
from afterwit.lifecycle import State
from afterwit.running.serve import Runtime
from afterwit.store import Record
from tests.journey.conftest import HINT, PlainJudge, client, until
from tests.journey.test_turn import ASKED, REPLY, whole_loop
from tests.store.postgresql.server import server

pytestmark = pytest.mark.cluster


@pytest.fixture
def url() -> str:
    return server().url(server().empty_schema())


async def test_what_was_learned_from_a_turn_in_a_database_is_served(
    settings: Callable[..., Settings], model: Path, tmp_path: Path, url: str
) -> None:
    chosen = settings({"store": {"url": url}, "learner": {"teacher": "ema"}})
    await whole_loop(chosen, model, tmp_path, weights="adapter_model.safetensors")
    assert await asyncio.to_thread(lambda: list(tmp_path.glob("store.db*"))) == []


async def test_two_gateways_and_a_judge_of_three_homes_meet_in_a_database(
    settings: Callable[..., Settings], tmp_path: Path, url: str
) -> None:
    """A conversation goes on at the other gateway. The judge asks once an hour: it hears of the turn."""
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
