"""The list of dialects: each is served at its path, and every error at a path has that dialect's form."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from afterwit.chat_format.render import Renderer
from afterwit.dialects.chat import OPENAI_CHAT
from afterwit.dialects.table import dialect_of
from afterwit.gateway.settings import GatewaySettings
from tests.fakes.plain_dialect import PLAIN
from tests.gateway.serving import Serving, serving

DIALECTS = (OPENAI_CHAT, PLAIN)


@pytest.fixture
async def both(tmp_path: Path, renderer: Renderer) -> AsyncIterator[Serving]:
    settings = GatewaySettings(max_requests=1, max_body_bytes=50_000)
    async with serving(tmp_path, renderer, settings=settings, dialects=DIALECTS) as made:
        yield made


async def ask_plainly(gateway: Serving, prompt: object = "Open it.", **more: object) -> httpx.Response:
    return await gateway.http.post("/plain", json={"model": "tiny", "prompt": prompt, **more})


@pytest.mark.parametrize("stream", [False, True])
async def test_a_dialect_knows_the_prompts_tokens_first_and_the_stop_string_last(both: Serving, stream: bool):
    both.says[:] = ["One, two, three."]
    answer = await ask_plainly(both, until=", t", stream=stream)
    (record,) = await both.records()
    assert answer.headers["content-type"] == "text/plain"
    read, wrote = len(record.turn.prompt_ids), len(record.turn.sampled.ids)
    assert answer.text == f"read {read}\nOne\nstop , t\nwrote {wrote}\n"


async def test_turns_of_all_dialects_are_recorded_alike(both: Serving):
    await both.ask([{"role": "user", "content": "Open it."}])
    await both.app.in_flight.idle()
    await ask_plainly(both)
    one, other = await both.records()
    assert one.turn.prompt_ids == other.turn.prompt_ids
    assert one.turn.message == other.turn.message


async def wrong(answer: httpx.Response) -> tuple[int, str, str | None]:
    data = answer.json()
    return answer.status_code, data["wrong"], data["field"]


async def test_errors_of_every_layer_have_the_form_and_the_field_names_of_their_dialect(both: Serving):
    assert await wrong(await ask_plainly(both, prompt=3)) == (400, "invalid_type", "prompt")
    assert await wrong(await ask_plainly(both, model="x")) == (404, "model_not_found", "model")
    assert await wrong(await ask_plainly(both, "long " * 4000)) == (400, "context_length_exceeded", "prompt")
    assert await wrong(await ask_plainly(both, "x" * 60_000)) == (413, "request_too_large", None)
    assert await wrong(await both.http.get("/plain")) == (405, "method_not_allowed", None)
    assert await wrong(await both.http.post("/plain/count", json={})) == (404, "unknown_route", None)
    both.engine.pause_after = 0
    running = asyncio.ensure_future(ask_plainly(both))
    await both.engine.paused.wait()
    assert await wrong(await ask_plainly(both)) == (429, "queue_full", None)
    both.engine.resume.set()
    await running
    await both.app.in_flight.idle()
    both.engine.pause_after, both.engine.fail_after = None, 0
    assert await wrong(await ask_plainly(both)) == (500, "engine_failed", None)
    both.engine.fail_after = 3
    assert (await ask_plainly(both, stream=True)).text.endswith("failed engine_failed\n")
    await both.add_key("ann", "chat")
    assert await wrong(await ask_plainly(both)) == (401, "invalid_api_key", None)


async def test_tokens_are_counted_as_they_would_be_sampled_from_and_nothing_is_recorded(both: Serving):
    counted = await both.http.post("/plain/tokens", json={"model": "tiny", "prompt": "Open it."})
    assert await both.records() == []
    await ask_plainly(both)
    (record,) = await both.records()
    assert counted.json() == {"tokens": len(record.turn.prompt_ids)}
    longer = await both.http.post("/plain/tokens", json={"model": "tiny", "prompt": "long " * 1500})
    assert longer.json()["tokens"] > both.engine.facts.context_length
    assert await wrong(await both.http.post("/plain/tokens", json={"model": "x", "prompt": ""})) == (
        404,
        "model_not_found",
        "model",
    )


async def test_every_response_has_an_id_of_its_request_under_the_dialects_name(both: Serving, caplog):
    caplog.set_level("INFO", logger="afterwit.gateway")
    served, refused = await ask_plainly(both), await ask_plainly(both, prompt=3)
    other = await both.http.get("/models")
    ids = [served.headers["plain-id"], refused.headers["plain-id"], other.headers["x-request-id"]]
    assert len(set(ids)) == 3
    assert all(request_id in caplog.text for request_id in ids)


async def test_headers_that_are_too_large_are_refused_in_the_dialect_of_their_path(both: Serving):
    answer = await both.http.post("/plain", headers={"x-long": "x" * 70_000})
    assert await wrong(answer) == (431, "headers_too_large", None)


def test_a_path_of_no_dialect_speaks_the_first_one():
    assert dialect_of("/v1/plain", DIALECTS) is PLAIN
    assert dialect_of("/v1/plain/count", DIALECTS) is PLAIN
    for path in ("/v1/plainer", "/v1/models", ""):
        assert dialect_of(path, DIALECTS) is OPENAI_CHAT


LONG = "x" * 30_000
SAID = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/chat/completions", {"model": LONG, "messages": SAID}),
        ("/chat/completions", {"messages": [{"role": LONG}]}),
        ("/chat/completions", {"messages": SAID, "tool_choice": {"type": LONG}}),
        ("/chat/completions", {"messages": SAID, "tool_choice": LONG}),
        ("/chat/completions", {"messages": SAID, "response_format": {"type": LONG}}),
        ("/responses", {"input": [{"role": LONG}]}),
        ("/responses", {"input": "Hi", "tool_choice": {"type": LONG}}),
        ("/responses", {"input": "Hi", "tool_choice": {"type": "function", "name": LONG}}),
        ("/responses", {"input": "Hi", "text": {"format": {"type": LONG}}}),
        ("/messages", {"messages": [{"role": LONG}]}),
        ("/messages", {"messages": SAID, "output_format": {"type": LONG}}),
        ("/messages", {"messages": SAID, "tool_choice": {"type": LONG}}),
        (
            "/messages",
            {"messages": SAID, "tool_choice": {"type": "tool", "name": LONG}, "tools": [{"name": "a"}]},
        ),
    ],
)
async def test_an_error_quotes_only_the_beginning_of_a_long_text(gateway: Serving, path: str, body: dict):
    answer = await gateway.http.post(path, json={"model": "tiny", **body})
    assert answer.status_code in (400, 404)
    assert "xxx" in answer.text
    assert len(answer.text) < 500
