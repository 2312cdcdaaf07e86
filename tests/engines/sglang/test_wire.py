"""SGLang's wire, both ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from afterwit.engines.server.client import ServerClient, ServerFailed
from afterwit.engines.server.server import CUT, SampleRequest, StreamChunk
from afterwit.engines.sglang.server import SglangServer, Traits
from afterwit.errors import EngineError, EngineUnavailable, RequestRefused, SettingError
from afterwit.turn import Sampling
from tests.engines.sglang.recorded import Recorded, event, listening

ENDS = frozenset({450})
LAST = 456
ASK = SampleRequest(
    prompt_ids=(5, 6, 7),
    sampling=Sampling(max_tokens=8),
    end_ids=ENDS,
    weights=None,
    background=False,
)
LENGTH = {"type": "length", "length": 3}


@pytest.fixture
def recorded(qwen: Path) -> Recorded:
    return Recorded(qwen)


@pytest.fixture
def traits(qwen: Path) -> Traits:
    return Traits(tokenizer=str(qwen), ends=ENDS, last=LAST, incremental=True, background=-1)


@pytest.fixture
async def client(recorded: Recorded) -> AsyncIterator[ServerClient]:
    async with listening(recorded) as url:
        client = ServerClient(url, key=None, silence_s=10)
        yield client
        await client.close()


@pytest.fixture
def server(client: ServerClient, traits: Traits) -> SglangServer:
    return SglangServer(client, traits)


async def said(server: SglangServer, ask: SampleRequest) -> list[StreamChunk]:
    async with aclosing(server.sample(ask)) as pieces:
        return [piece async for piece in pieces]


def together(pieces: list[StreamChunk]) -> tuple[list[int], list[float], str | None]:
    ids = [token for piece in pieces for token in piece.ids]
    return ids, [value for piece in pieces for value in piece.logprobs], pieces[-1].ended


async def test_what_is_new_and_all_so_far_are_read_alike(
    client: ServerClient, traits: Traits, recorded: Recorded
) -> None:
    one, two, three = (-0.5, 20), (-1.5, 21), (-2.5, 22)
    recorded.events = [event(one), event(two), event(three, end=LENGTH)]
    new = await said(SglangServer(client, traits), ASK)
    recorded.events = [event(one), event(one, two), event(one, two, three, end=LENGTH)]
    so_far = await said(SglangServer(client, replace(traits, incremental=False)), ASK)
    assert new == so_far
    assert together(new) == ([20, 21, 22], [-0.5, -1.5, -2.5], "length")


async def test_where_ids_were_cut_off_the_log_probs_are_of_what_was_left(
    server: SglangServer, recorded: Recorded
) -> None:
    recorded.events = [event((-1.8, 20), end=LENGTH, sampled=[-0.7])]
    ask = replace(ASK, sampling=Sampling(max_tokens=1, top_k=3))
    assert together(await said(server, ask)) == ([20], [-0.7], "length")
    assert recorded.asked["/generate"][0]["return_sampling_mask"] is True


async def test_nothing_behind_an_end_id_is_kept_and_the_server_is_told(
    server: SglangServer, recorded: Recorded
) -> None:
    recorded.events, recorded.stays_open = [event((-1.0, 20), (-1.0, 450), (-1.0, 21))], True
    assert together(await said(server, ASK)) == ([20, 450], [-1.0, -1.0], "stop")
    await server.close()
    assert recorded.asked["/abort_request"] == [{"rid": recorded.asked["/generate"][0]["rid"]}]


async def test_a_response_that_is_closed_ends_on_the_server(server: SglangServer, recorded: Recorded) -> None:
    recorded.events, recorded.stays_open = [event((-1.0, 20))], True
    async with aclosing(server.sample(ASK)) as pieces:
        await anext(pieces)
    await server.close()
    assert recorded.asked["/abort_request"] == [{"rid": recorded.asked["/generate"][0]["rid"]}]


async def test_a_response_that_ended_is_not_aborted(server: SglangServer, recorded: Recorded) -> None:
    recorded.events = [event((-1.0, 20), end=LENGTH)]
    await said(server, ASK)
    await server.close()
    assert "/abort_request" not in recorded.asked


async def test_what_the_server_broke_off_is_cut(server: SglangServer, recorded: Recorded) -> None:
    recorded.events = [event((-1.0, 20)), event(end={"type": "abort", "message": "Abort in waiting queue"})]
    assert together(await said(server, ASK)) == ([20], [-1.0], CUT)


async def test_a_fault_in_a_response_is_an_error_with_the_servers_words(
    server: SglangServer, recorded: Recorded
) -> None:
    recorded.events = [{"error": {"message": "out of memory"}}]
    with pytest.raises(EngineError, match="out of memory"):
        await said(server, ASK)


@pytest.mark.parametrize(
    ("ends", "ignored"), [(frozenset({450, 30}), False), (frozenset({30}), True), (frozenset(), True)]
)
async def test_the_servers_own_end_ids_are_ignored_if_they_are_not_ours(
    server: SglangServer, recorded: Recorded, ends: frozenset[int], ignored: bool
) -> None:
    recorded.events = [event((-1.0, 20), end=LENGTH)]
    await said(server, replace(ASK, end_ids=ends))
    params = recorded.asked["/generate"][0]["sampling_params"]
    assert (params["stop_token_ids"], params["ignore_eos"]) == (sorted(ends), ignored)


@pytest.mark.parametrize(("background", "priority"), [(False, 0), (True, -1)])
async def test_people_have_a_priority_too_or_they_would_come_last(
    server: SglangServer, recorded: Recorded, background: bool, priority: int
) -> None:
    recorded.events = [event((-1.0, 20), end=LENGTH)]
    await said(server, replace(ASK, background=background))
    assert recorded.asked["/generate"][0]["priority"] == priority


async def test_an_adapter_that_is_not_there_means_that_the_server_was_restarted(server: SglangServer) -> None:
    with pytest.raises(EngineUnavailable, match="no longer has the adapter afterwit-3"):
        await said(server, replace(ASK, weights="afterwit-3"))
    with pytest.raises(EngineUnavailable, match="no longer has the adapter afterwit-3"):
        await server.score([5, 6, 7], "afterwit-3")


async def test_scores_begin_at_the_second_id(server: SglangServer, recorded: Recorded) -> None:
    recorded.scored = [[None, 5, None], [-1.5, 6, None], [-2.5, 7, None]]
    assert await server.score([5, 6, 7], None) == [-1.5, -2.5]
    recorded.scored = [[None, 5, None], [-1.5, 6, None], [-2.5, 8, None]]
    with pytest.raises(EngineError, match="scored id 8 in place of 7"):
        await server.score([5, 6, 7], None)


async def test_the_last_id_of_the_vocabulary_is_called_0_in_a_prompt(
    server: SglangServer, recorded: Recorded
) -> None:
    recorded.scored = [[None, 5, None], [-1.5, 0, None]]
    assert await server.score([5, LAST], None) == [-1.5]
    with pytest.raises(EngineError, match="scored id 0 in place of 455"):
        await server.score([5, LAST - 1], None)


async def test_a_server_started_anew_with_another_model_is_refused(
    server: SglangServer, recorded: Recorded
) -> None:
    assert await server.check() == "default"
    recorded.info["tokenizer_path"] = "org/other"
    with pytest.raises(SettingError, match="restarted with another model: org/other"):
        await server.check()


async def test_a_server_that_takes_itself_for_unfit_is_asked_for_a_token(
    server: SglangServer, recorded: Recorded
) -> None:
    recorded.unfit = {"/ready"}
    assert await server.check() == "default"
    recorded.unfit = {"/ready", "/health"}
    with pytest.raises(EngineUnavailable, match="HTTP 503"):
        await server.check()


async def test_weights_are_read_then_what_was_cached_is_forgotten(
    server: SglangServer, recorded: Recorded, qwen: Path
) -> None:
    await server.load_weights(qwen, "afterwit-4")
    assert recorded.asked["/update_weights_from_disk"] == [
        {
            "model_path": str(qwen),
            "abort_all_requests": True,
            "flush_cache": False,
            "weight_version": "afterwit-4",
        }
    ]
    assert list(recorded.asked)[-2:] == ["/update_weights_from_disk", "/flush_cache"]


@pytest.mark.parametrize("load", ["load_adapter", "load_weights"])
async def test_weights_that_the_server_refuses_are_refused_with_its_words(
    server: SglangServer, recorded: Recorded, load: str, qwen: Path, tmp_path: Path
) -> None:
    recorded.refuses = "rank 32 is larger than 16"
    arguments: dict[str, tuple[Any, ...]] = {
        "load_adapter": ("afterwit-3", qwen),
        "load_weights": (qwen, "afterwit-3"),
    }
    with pytest.raises(EngineError, match=r"do(es)? not fit the served model: rank 32 is larger than 16"):
        await getattr(server, load)(*arguments[load])


async def test_closing_waits_for_no_server_that_is_gone(traits: Traits, unused_tcp_port: int) -> None:
    server = SglangServer(ServerClient(f"http://127.0.0.1:{unused_tcp_port}", key=None, silence_s=1), traits)
    with pytest.raises(EngineUnavailable):
        await said(server, ASK)
    async with asyncio.timeout(60):
        await server.close()


async def test_places_begin_at_the_first_id_of_the_response(server: SglangServer, recorded: Recorded) -> None:
    recorded.scored = [[None, 6, None], [-1.5, 7, None], [-2.5, 8, None]]
    recorded.tops = [None, [[-0.5, 9, None], [-1.5, 7, None]], [[-0.25, 3, None], [-0.75, 2, None]]]
    assert await server.top_logprobs([5, 6, 7, 8], None, first=2, top=2) == [
        (-1.5, (9, 7), (-0.5, -1.5)),
        (-2.5, (3, 2), (-0.25, -0.75)),
    ]
    asked = recorded.asked["/generate"][-1]
    assert (asked["logprob_start_len"], asked["top_logprobs_num"]) == (1, 2)
    with pytest.raises(EngineUnavailable, match="no longer has the adapter gone"):
        await server.top_logprobs([5, 6, 7, 8], "gone", first=2, top=2)


async def test_a_schema_is_asked_for_and_a_refused_one_is_the_clients_fault(
    server: SglangServer, recorded: Recorded
) -> None:
    asked = replace(ASK, schema='{"const": 7}')
    recorded.events = [event((-1.0, 20), end=LENGTH)]
    await said(server, asked)
    assert recorded.asked["/generate"][0]["sampling_params"]["json_schema"] == '{"const": 7}'
    recorded.events = [{"error": {"message": "Failed to compile json grammar: no such type"}}]
    with pytest.raises(RequestRefused, match="no such type"):
        await said(server, asked)
    abort = {"type": "abort", "message": "Failed to compile json grammar: a reference", "status_code": 400}
    recorded.events.append(event(end=abort))
    del recorded.events[0]
    with pytest.raises(RequestRefused, match="a reference"):
        await said(server, asked)
    recorded.events = [{"error": {"message": "out of memory"}}]
    with pytest.raises(EngineError, match="failed in the middle of a response"):
        await said(server, ASK)


@pytest.mark.parametrize("incremental", [True, False])
async def test_alternatives_are_the_likeliest_with_what_was_sampled(
    client: ServerClient, traits: Traits, recorded: Recorded, incremental: bool
) -> None:
    tops = [[[-0.25, 7, None], [-1.5, 8, None]], [[-0.5, 21, None], [-2.5, 8, None]]]
    one, two = (-3.5, 20), (-0.5, 21)
    events = [event(one), event(two, end=LENGTH) if incremental else event(one, two, end=LENGTH)]
    events[0]["meta_info"]["output_top_logprobs"] = tops[:1]
    events[1]["meta_info"]["output_top_logprobs"] = tops[1:] if incremental else tops
    recorded.events = events
    pieces = await said(SglangServer(client, replace(traits, incremental=incremental)), replace(ASK, top=2))
    assert [place for piece in pieces for place in piece.tops] == [
        (-3.5, (7, 8), (-0.25, -1.5)),
        (-0.5, (21, 8), (-0.5, -2.5)),
    ]
    assert recorded.asked["/generate"][0]["top_logprobs_num"] == 2
    recorded.events = [event(one, end=LENGTH)]
    (piece,) = await said(SglangServer(client, traits), replace(ASK, top=0))
    assert piece.tops == ((-3.5, (), ()),)


@pytest.mark.parametrize(("code", "own"), [(500, True), (503, True), (400, False), (None, False)])
async def test_a_fault_of_the_servers_own_is_told_from_a_refusal(
    recorded: Recorded, server: SglangServer, code: int | None, own: bool
) -> None:
    recorded.events = [event((-0.5, 7)), {"error": {"message": "the scheduler is gone", "code": code}}]
    with pytest.raises(EngineError, match="the scheduler is gone") as found:
        await said(server, ASK)
    assert isinstance(found.value, ServerFailed) is own
