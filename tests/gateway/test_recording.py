"""The parts of a response that the store holds, and when."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from types import NoneType
from typing import Any

import httpx
import pytest

from afterwit.errors import RequestError, StoreError, StoreLost, StoreUnavailable
from afterwit.gateway import backlog
from afterwit.gateway.auth import KeyCache
from afterwit.gateway.backlog import Backlog, UnrecordedTurn
from afterwit.gateway.context import Fault, Metrics
from afterwit.gateway.settings import GatewaySettings
from afterwit.lifecycle import Reason, State
from afterwit.store import AsyncStore
from afterwit.turn import Finish, Kind
from tests.gateway.serving import TOOL, USER, Serving, serving

REPLIED = [*USER, {"role": "assistant", "content": "Hello there."}, {"role": "user", "content": "No, again."}]


async def test_a_turn_holds_exactly_what_the_engine_was_given_and_sampled(gateway: Serving, renderer):
    await gateway.ask(tools=[TOOL], temperature=0.6, top_p=0.9, seed=1)
    (record,) = await gateway.records()
    asked, turn = gateway.engine.asked[0], record.turn
    assert turn.prompt_ids == asked.prompt_ids == renderer.prompt_ids(turn.conversation)
    assert renderer.decode(turn.sampled.ids) == "Hello there.<|im_end|>"
    assert turn.sampled.logprobs[:3] == (0.0, -0.25, -0.5)
    assert set(turn.sampled.versions) == {3}
    assert turn.sampling == asked.sampling
    assert (turn.kind, turn.finish, turn.message.content) == (Kind.MAIN, Finish.STOP, "Hello there.")
    assert (record.state, record.delivered, turn.teaches) == (State.OPEN, True, True)


async def test_the_response_and_its_headers_name_the_turn(gateway: Serving):
    answer = await gateway.ask()
    (record,) = await gateway.records()
    assert answer.json()["id"] == "chatcmpl-" + record.turn.id
    assert answer.headers["x-afterwit-turn"] == record.turn.id
    assert answer.headers["x-afterwit-session"] == record.turn.session


async def test_a_record_is_in_the_store_before_the_streams_last_events_leave(gateway: Serving):
    found = {}
    body = {"model": "tiny", "messages": USER, "stream": True}
    async with gateway.http.stream("POST", "/chat/completions", json=body) as answer:
        async for line in answer.aiter_lines():
            if '"finish_reason":"stop"' in line:
                found["finish"] = len(await gateway.records())
    assert found == {"finish": 1}


async def test_a_session_that_its_client_ends_is_skipped_at_once_and_a_late_reply_reopens_it(
    gateway: Serving,
):
    await gateway.ask()
    other = await gateway.ask([{"role": "user", "content": "Something else."}])
    last = {"model": "tiny", "messages": [*REPLIED[:2], {"role": "user", "content": ""}]}
    await gateway.http.post("/chat/completions", json=last, headers={"X-Session-Done": "true"})
    ended = {record.turn.id: (record.state, record.reason) for record in await gateway.records()}
    assert ended.pop(other.headers["x-afterwit-turn"]) == (State.OPEN, None)
    assert set(ended.values()) == {(State.SKIPPED, Reason.NO_NEXT_STATE)}
    assert len(ended) == 2
    await gateway.ask([*last["messages"], REPLIED[1], REPLIED[2]])
    assert (await gateway.records())[2].state is State.ANSWERED


async def test_the_next_request_answers_the_turn_and_wakes_the_judge(gateway: Serving):
    await gateway.ask()
    assert gateway.woken == []
    await gateway.ask(REPLIED)
    first, second = await gateway.records()
    assert gateway.woken == [True]
    assert (first.state, second.state) == (State.ANSWERED, State.OPEN)
    assert first.next_state is not None
    assert [message.content for message in first.next_state.messages] == ["No, again."]
    assert (second.turn.session, second.turn.parent) == (first.turn.session, first.turn.id)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"presence_penalty": 0.5}, Reason.PENALTIES),
        ({"logit_bias": {"7": 1}}, Reason.PENALTIES),
        ({"temperature": 0}, None),
        ({"max_tokens": 1}, None),
    ],
)
async def test_settings_that_make_a_turn_untrainable_are_served_and_say_so(gateway: Serving, asked, reason):
    assert (await gateway.ask(**asked)).status_code == 200
    (record,) = await gateway.records()
    assert record.reason is reason
    assert record.state is (State.SKIPPED if reason else State.OPEN)


async def test_a_client_that_leaves_cancels_the_engine_and_its_turn_does_not_train(gateway: Serving):
    gateway.engine.pause_after = 3
    body = {"model": "tiny", "messages": USER, "stream": True}
    async with gateway.http.stream("POST", "/chat/completions", json=body) as answer:
        await anext(answer.aiter_lines())
        await gateway.engine.paused.wait()
    (record,) = await settled(gateway)
    assert gateway.engine.cancelled == 1
    assert (record.state, record.reason) == (State.SKIPPED, Reason.CLIENT_LEFT)
    assert (record.turn.finish, record.delivered) == (Finish.CLIENT_LEFT, False)
    assert len(record.turn.sampled.ids) == 3
    assert record.turn.message.content == "Hello"


async def test_a_client_that_waits_for_the_whole_answer_may_leave_too(gateway: Serving):
    gateway.engine.pause_after = 0
    asked = asyncio.ensure_future(gateway.ask())
    await gateway.engine.paused.wait()
    asked.cancel()
    (record,) = await settled(gateway)
    assert (record.reason, record.turn.sampled.ids) == (Reason.CLIENT_LEFT, ())


async def test_the_same_request_after_a_disconnect_is_a_retry_and_no_second_turn(gateway: Serving):
    gateway.engine.pause_after = 2
    with pytest.raises(httpx.ReadTimeout):
        await gateway.http.post(
            "/chat/completions",
            json={"model": "tiny", "messages": USER},
            timeout=httpx.Timeout(5.0, read=0.2),
        )
    await settled(gateway)
    gateway.engine.pause_after = None
    assert (await gateway.ask()).status_code == 200
    left, retried = await gateway.records()
    assert left.superseded_by == retried.turn.id
    assert (left.state, retried.state) == (State.SKIPPED, State.OPEN)
    assert retried.turn.session == left.turn.session


async def settled(gateway: Serving):
    """The records when nothing is under way any more."""
    await gateway.app.gateway.in_flight.idle()
    return await gateway.records()


async def test_a_key_that_does_not_teach_is_served_and_its_turns_do_not_train(gateway: Serving):
    key = await gateway.add_key("ann", "chat")
    gateway.http.headers["authorization"] = f"Bearer {key}"
    await gateway.ask()
    await gateway.ask(REPLIED)
    first, second = await gateway.records()
    assert {first.reason, second.reason} == {Reason.KEY_DOES_NOT_TEACH}
    assert first.next_state is None


async def test_sessions_of_two_keys_and_of_two_clients_never_meet(gateway: Serving):
    one, other = (
        await gateway.add_key("one", "chat", "teach"),
        await gateway.add_key("other", "chat", "teach"),
    )
    for key, agent, messages in ((one, "a/1", USER), (other, "a/1", REPLIED), (one, "b/1", REPLIED)):
        headers = {"authorization": f"Bearer {key}", "user-agent": agent}
        await gateway.http.post(
            "/chat/completions", json={"model": "tiny", "messages": messages}, headers=headers
        )
    records = await gateway.records()
    assert [record.state for record in records] == [State.OPEN] * 3
    assert len({record.turn.session for record in records}) == 3


async def test_a_key_is_one_source_whatever_its_clients_call_themselves(gateway: Serving):
    await gateway.ask()
    key = await gateway.add_key("eve", "chat", "teach")
    for agent in ("a/1", "b/1", "c/1", "anna/x"):
        headers = {"authorization": f"Bearer {key}", "user-agent": agent}
        body = {"model": "tiny", "messages": USER}
        await gateway.http.post("/chat/completions", json=body, headers=headers)
    assert [record.turn.source for record in await gateway.records()] == ["local", *["eve"] * 4]


async def test_while_the_disk_is_full_turns_wait_and_readyz_counts_them_until_they_are_recorded(
    gateway: Serving,
):
    root = gateway.url.removesuffix("/v1")

    async def store_stage() -> str | None:
        stages = (await gateway.http.get(root + "/readyz", headers=gateway.owner)).json()["stages"]
        return {stage["stage"]: stage["message"] for stage in stages}.get("store")

    async def metrics() -> str:
        return (await gateway.http.get(root + "/metrics", headers=gateway.owner)).text

    await gateway.store.call(lambda store: store._db.execute("PRAGMA max_page_count = 1"))
    gateway.says[:] = ["Hello there. " * 200]
    answers = [await gateway.ask(), await gateway.ask(REPLIED)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert await gateway.records() == []
    said = await store_stage()
    assert said is not None
    assert said.startswith("Turns are served, and wait to be recorded")
    assert said.endswith("(2 turns in memory alone)")
    assert "afterwit_waiting_turns 2.0" in await metrics()
    await gateway.store.call(lambda store: store._db.execute("PRAGMA max_page_count = 100000"))
    await gateway.app.gateway.backlog.empty()
    assert len(await gateway.records()) == 2
    assert await store_stage() is None
    found = await metrics()
    assert "afterwit_waiting_turns 0.0" in found
    assert "afterwit_unrecorded_turns_total 0.0" in found


class Losing:
    """A store whose first calls lose the connection, `before` or `after` they are stored, or are silent, and
    that is `away` until the test resets it."""

    def __init__(self, store: AsyncStore, *losses: str | None) -> None:
        self._store, self._losses, self.along = store, list(losses), store.along
        self.away = False

    async def call(self, work):
        if self.away:
            raise StoreUnavailable("the database does not answer")
        loss = self._losses.pop(0) if self._losses else None
        if loss == "silent":
            await asyncio.sleep(3600)
        found = None if loss == "before" else await self._store.call(work)
        if loss is not None:
            raise StoreLost("the connection is gone")
        return found


@pytest.mark.parametrize("losses", [("before",), ("after", None, "after"), (None, "before")])
async def test_a_response_is_recorded_once_though_the_connection_to_the_store_is_lost_for_a_moment(
    gateway: Serving, losses
):
    parts = gateway.app.gateway
    parts.store = Losing(gateway.store, *losses)
    answer = await gateway.ask()
    assert answer.status_code == 200
    assert [record.turn.id for record in await gateway.records()] == [answer.headers["x-afterwit-turn"]]
    assert "store" not in parts.faults


async def test_a_session_that_went_on_while_the_store_was_away_is_recorded_as_if_it_had_not_been(
    gateway: Serving, caplog
):
    """The first turn is bound before, two follow meanwhile, one is under way as the store comes back."""
    parts = gateway.app.gateway
    parts.store = away = Losing(gateway.store)
    said = list(USER)

    async def go_on(reply: str) -> None:
        answer = await gateway.ask(said, seed=1)
        assert answer.status_code == 200
        said.extend([answer.json()["choices"][0]["message"], {"role": "user", "content": reply}])

    gateway.says[:] = ["One.", "Two.", "Three.", "Four.", "Five."]
    await go_on("No, two.")
    away.away = True
    await go_on("No, three.")
    await go_on("No, four.")
    away.away = False
    await go_on("No, five.")
    await go_on("Thanks.")
    await parts.backlog.empty()
    records = await gateway.records()
    turns = [record.turn for record in records]
    assert [turn.parent for turn in turns] == [None, *(turn.id for turn in turns[:-1])]
    assert {(turn.session, turn.kind) for turn in turns} == {(turns[0].id, Kind.MAIN)}
    replies = [record.next_state.messages[0].content for record in records if record.next_state]
    assert replies == ["No, two.", "No, three.", "No, four.", "No, five."]
    assert [record.state for record in records] == [*[State.ANSWERED] * 4, State.OPEN]
    again = await gateway.ask(said[:3], seed=1)
    assert again.status_code == 200  # its answer had arrived: no retry
    assert (await gateway.records())[1].state is State.ANSWERED
    assert "turns recorded that waited" in caplog.text
    assert "store" not in parts.faults


async def test_choices_of_a_response_that_waited_are_siblings_of_one_session(gateway: Serving):
    parts = gateway.app.gateway
    parts.store = away = Losing(gateway.store)
    away.away = True
    assert (await gateway.ask(n=3)).status_code == 200
    away.away = False
    await parts.backlog.empty()
    records = await gateway.records()
    assert len({record.turn.session for record in records}) == 1
    assert [record.state for record in records] == [State.OPEN] * 3


async def test_a_store_that_loses_each_connection_slowly_holds_a_request_for_one_deadline(gateway: Serving):
    class Slow(Losing):
        async def call(self, work):
            await asyncio.sleep(0.1)
            raise StoreLost("the connection is gone")

    parts = gateway.app.gateway
    parts.store = Slow(gateway.store)
    assert await parts.try_store(lambda store: True, within_s=0.3) is None
    assert parts.faults["store"].message.endswith("no answer within 0.3 seconds")


class Waiting:
    """A backlog whose store is a list, and `away` until the test resets it."""

    def __init__(self, path: Path | None = None, *, most_bytes: int = 2**20) -> None:
        self.away, self.kept, self.metrics = True, list[tuple[bytes, bool]](), Metrics()
        self.later = 0.0
        self.backlog = Backlog(
            self.record,
            path=path,
            failed=lambda error: None,
            works=lambda: None,
            waiting=self.metrics.waiting,
            lost=self.metrics.unrecorded,
            most_bytes=most_bytes,
            clock=lambda: monotonic() + self.later,
        )

    async def record(self, line: bytes, delivered: Callable[[], bool]) -> None:
        if self.away:
            raise StoreUnavailable("gone")
        if line == b"bad\n":
            raise StoreError("the id is taken")
        self.kept.append((line, delivered()))

    async def comes(self, *texts: str) -> None:
        for text in texts:
            await self.backlog.add(f"{text}\n".encode(), lambda: False)

    async def returns(self) -> list[bytes]:
        """Let the store come back, and return its lines."""
        self.away = False
        await asyncio.wait_for(self.backlog.empty(), 10)
        return [line for line, _ in self.kept]


async def test_turns_that_wait_are_bounded_in_bytes_and_then_requests_are_refused_and_none_is_lost(tmp_path):
    waiting = Waiting(file := tmp_path / "turns", most_bytes=10)
    await waiting.comes(*"01234")
    assert file.stat().st_size == 10
    with pytest.raises(RequestError, match="cannot be recorded") as refused:
        waiting.backlog.check()
    assert refused.value.status == 503
    await waiting.comes("5")  # it was under way
    assert await waiting.returns() == [b"0\n", b"1\n", b"2\n", b"3\n", b"4\n", b"5\n"]
    waiting.backlog.check()


async def test_a_turn_that_the_store_refuses_does_not_hold_up_the_others(caplog):
    waiting = Waiting()
    await waiting.comes("bad", "1", "2")
    assert await waiting.returns() == [b"1\n", b"2\n"]
    assert "a turn cannot be recorded (StoreError)" in caplog.text


async def test_a_stop_counts_the_turns_that_still_wait(tmp_path, caplog):
    for path, fate in ((None, "1 turn lost"), (tmp_path / "turns", "the next start records 1 turn in")):
        waiting = Waiting(path)
        await waiting.comes("1")
        await waiting.backlog.close(0.01)
        assert f"the store did not come back: {fate}" in caplog.text


async def test_turns_of_a_killed_process_are_recorded_by_the_next_one_and_a_cut_one_is_dropped(
    tmp_path, caplog
):
    killed = Waiting(file := tmp_path / "turns")
    await killed.comes("1", "2", "3")
    await killed.backlog.close(0.0)
    assert file.stat().st_mode & 0o777 == 0o600
    os.truncate(file, 5)
    for attempt in range(2):  # killed again before the store is back
        after = Waiting(file)
        after.backlog.open()
        await after.comes(f"new {attempt}")
        await after.backlog.close(0.0)
    last = Waiting(file)
    last.backlog.open()
    assert await last.returns() == [b"1\n", b"2\n", b"new 0\n", b"new 1\n"]
    assert all(delivered for _, delivered in last.kept)
    assert not file.exists()
    assert caplog.text.count("is cut, and dropped") == 1


@pytest.mark.parametrize("left", [b"", b'{"half of the first'])
async def test_a_file_without_a_whole_turn_which_a_kill_or_a_full_disk_leaves_is_removed_at_the_start(
    tmp_path, caplog, left: bytes
):
    (file := tmp_path / "turns").write_bytes(left)
    waiting = Waiting(file)
    waiting.backlog.open()
    assert not file.exists()
    assert "recorded now" not in caplog.text
    await waiting.comes("1")
    assert await waiting.returns() == [b"1\n"]


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Files of this process cannot grow beyond `size` bytes, as on a full disk."""
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    handled = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, unlimited[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        signal.signal(signal.SIGXFSZ, handled)


async def test_a_turn_that_the_file_cannot_take_is_refused_and_nothing_is_left_of_half_a_line(
    tmp_path, caplog
):
    waiting = Waiting(file := tmp_path / "turns")
    await waiting.comes("1")
    with files_of_at_most(5):
        coming = (waiting.comes(text) for text in ("222", "333", "4"))
        found = await asyncio.gather(*coming, return_exceptions=True)
        assert [type(each) for each in found] == [RequestError, RequestError, NoneType]
        waiting.backlog.check()  # the last one was written
        with pytest.raises(RequestError):
            await waiting.comes("55")
        with pytest.raises(RequestError, match="cannot be recorded"):
            waiting.backlog.check()
    assert file.read_bytes() == b"1\n4\n"
    assert caplog.text.count("requests are refused: turns cannot be kept in") == 1
    waiting.later = backlog.REFUSED_S
    waiting.backlog.check()  # the next one finds out
    await waiting.comes("6")
    assert await waiting.returns() == [b"1\n", b"4\n", b"6\n"]


@pytest.mark.parametrize("stream", [False, True])
async def test_on_a_full_disk_no_response_ends_well_that_a_kill_would_lose(tmp_path, renderer, stream):
    """Neither the store nor the file can grow; the process dies while turns wait, and another begins."""
    file, kept = tmp_path / "unrecorded-turns.jsonl", list[str]()
    async with serving(tmp_path, renderer, settings=GatewaySettings()) as gateway:
        gateway.says[:] = ["Hello there. " * 200]
        parts, refused = gateway.app.gateway, list[httpx.Response]()
        parts.backlog = backlog.Backlog(
            parts._record,
            path=file,
            failed=parts._store_failed,
            works=lambda: parts.faults.pop("store", None),
            waiting=parts.metrics.waiting,
            lost=parts.metrics.unrecorded,
        )
        await gateway.ask()
        await gateway.store.call(lambda store: store._db.execute("PRAGMA max_page_count = 1"))
        with files_of_at_most(100_000):
            while len(refused) < 2:
                answer = await gateway.ask(stream=stream)
                assert answer.status_code == (503 if refused or (answer.is_error and not stream) else 200)
                whole = answer.is_success and '"finish_reason":"stop"' in answer.text
                assert whole or "cannot be recorded" in answer.text
                if whole:
                    kept.append(answer.headers["x-afterwit-turn"])
                else:
                    refused.append(answer)
            ready = await gateway.http.get(f"{gateway.url}/../readyz", headers=gateway.owner)
        assert (ready.status_code, ready.json()["status"]) == (503, "not_serving")
        assert "Requests are refused" in ready.text
        assert refused[1].headers["retry-after"]
        parts.backlog._recording.cancel()
    assert len(kept) > 2
    assert {UnrecordedTurn.read(line).turn.id for line in file.read_bytes().splitlines()} == set(kept)


async def test_turns_that_outlive_their_process_are_stored_once_and_as_if_it_had_not_died(tmp_path, renderer):
    """The first response is stored before the outage. Of the second, one choice is before the kill."""

    async def converse(gateway: Serving, *, killed: bool) -> list[tuple[Any, ...]]:
        parts, file = gateway.app.gateway, tmp_path / "turns"
        parts.store = away = Losing(gateway.store)
        said = [*USER, (await gateway.ask(n=2, seed=1)).json()["choices"][1]["message"]]
        if killed:
            parts.backlog = Waiting(file).backlog
            away.away = True
        said.append({"role": "user", "content": "No, again."})
        await gateway.ask(said, n=3, seed=2, logit_bias={"7": 0.5})
        said += [{"role": "assistant", "content": "Hello there."}, {"role": "user", "content": "Good."}]
        await gateway.ask(said)
        if killed:
            await parts.backlog.close(0.0)
            away.away = False
            first = UnrecordedTurn.read(file.read_bytes().splitlines()[0])
            await gateway.store.call(lambda store: first.record(store, delivered=False))
            parts.backlog = Waiting(file).backlog
            parts.backlog._record = parts._record
            parts.backlog.open()
            await parts.backlog.empty()
        return [(each.turn, each.state, each.delivered, each.next_state) for each in await gateway.records()]

    found = []
    for killed in (False, True):
        async with serving(tmp_path / str(killed), renderer) as gateway:
            found.append(await converse(gateway, killed=killed))
    without, with_kill = found
    assert len(without) == 6
    assert with_kill == without


async def test_a_silent_store_that_is_known_to_fail_holds_a_request_for_a_second_and_not_longer(
    gateway: Serving,
):
    parts = gateway.app.gateway
    parts.faults["store"] = Fault("It fails.", gateway.clock())
    parts.store = Losing(gateway.store, "silent")
    assert (await asyncio.wait_for(gateway.ask(), 10)).status_code == 200


async def test_before_the_keys_were_read_a_store_that_is_gone_is_a_503_everywhere(gateway: Serving):
    parts = gateway.app.gateway
    parts.store = Losing(gateway.store, *["before"] * 9)
    parts.keys = KeyCache(
        lambda: parts.store.call(lambda store: store.keys()), refresh_s=2.0, now=gateway.clock, token="x"
    )
    answers = [await gateway.ask(), await gateway.http.get(gateway.url.removesuffix("/v1") + "/healthz")]
    assert [answer.status_code for answer in answers] == [503, 503]


async def test_32_conversations_at_once_are_recorded_each_in_its_own_session(tmp_path, renderer):
    async with serving(tmp_path, renderer, settings=GatewaySettings(max_requests=64)) as gateway:
        asked = [[{"role": "user", "content": f"Number {number}"}] for number in range(32)]
        answers = await asyncio.gather(*(gateway.ask(messages, stream=True) for messages in asked))
        assert {answer.status_code for answer in answers} == {200}
        records = await gateway.records()
        assert len({record.turn.session for record in records}) == 32
