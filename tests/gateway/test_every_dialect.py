"""Cases that break agents, per dialect: retries, cancelled streams, updates, full servers, unknown parts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from afterwit.chat_format.render import Renderer
from afterwit.gateway.settings import GatewaySettings
from afterwit.lifecycle import State
from afterwit.turn import Finish
from tests.gateway.serving import TOOL, USER, Serving, serving


@dataclass(frozen=True, kw_only=True)
class Api:
    """A dialect as its clients use it."""

    path: str
    said: str
    """The field of the conversation."""
    tool: dict[str, Any]
    last: str
    """In the last event of a stream that ended well."""
    limit: str

    def body(self, **more: Any) -> dict[str, Any]:
        return {"model": "tiny", self.said: USER, **more}

    async def ask(self, gateway: Serving, **more: Any) -> httpx.Response:
        return await gateway.http.post(self.path, json=self.body(**more))


FUNCTION = TOOL["function"]
APIS = {
    "chat": Api(
        path="/chat/completions",
        said="messages",
        tool=TOOL,
        last="data: [DONE]",
        limit="max_completion_tokens",
    ),
    "responses": Api(
        path="/responses",
        said="input",
        tool={"type": "function", **FUNCTION},
        last='"type":"response.completed"',
        limit="max_output_tokens",
    ),
    "messages": Api(
        path="/messages?beta=true",
        said="messages",
        tool={"name": "read", "input_schema": FUNCTION["parameters"]},
        last='"type":"message_stop"',
        limit="max_tokens",
    ),
}
UNKNOWN_FIELDS = {"store": False, "service_tier": "flex", "betas": ["x"], "reasoning_effort": "low", "x": [1]}


@pytest.fixture(params=APIS.values(), ids=APIS)
def api(request: pytest.FixtureRequest) -> Api:
    found: Api = request.param
    return found


@pytest.fixture
async def narrow(tmp_path: Path, renderer: Renderer) -> AsyncIterator[Serving]:
    async with serving(tmp_path, renderer, settings=GatewaySettings(max_requests=1)) as made:
        yield made


@pytest.mark.parametrize(
    ("limit", "context", "wish"),
    [(None, 4096, False), (4, 4096, True), (100_000, 4096, False), (4000, 100, False)],
    ids=["none", "its own", "no less than it gets anyway", "more than the context"],
)
async def test_a_turn_knows_whether_its_client_wanted_it_no_longer(
    gateway: Serving, api: Api, limit: int | None, context: int, wish: bool
):
    gateway.engine.facts = replace(gateway.engine.facts, context_length=context)
    await api.ask(gateway, **{} if limit is None else {api.limit: limit})
    (record,) = await gateway.records()
    assert record.sampled_turn.sampling.limit_asked is wish


async def test_a_cancelled_stream_frees_the_engine_and_the_same_request_again_is_a_retry(
    gateway: Serving, api: Api
):
    gateway.engine.pause_after = 2
    async with gateway.http.stream("POST", api.path, json=api.body(stream=True)) as answer:
        await anext(answer.aiter_lines())
        await gateway.engine.paused.wait()
    await gateway.app.in_flight.idle()
    assert gateway.engine.cancelled == 1
    gateway.engine.pause_after = None
    await api.ask(gateway)
    left, again = await gateway.records()
    assert (left.turn.finish, left.superseded_by) == (Finish.CLIENT_LEFT, again.turn.id)
    assert (left.state, again.state) == (State.SKIPPED, State.OPEN)
    assert again.turn.session == left.turn.session


async def test_weights_that_change_in_a_stream_are_not_noticed(gateway: Serving, api: Api):
    gateway.engine.pause_after = 2
    running = asyncio.ensure_future(api.ask(gateway, stream=True))
    await gateway.engine.paused.wait()
    gateway.engine.version += 1
    gateway.engine.resume.set()
    answer = await running
    assert answer.status_code == 200
    assert api.last in answer.text.strip().split("\n\n")[-1]


async def test_a_request_too_many_is_told_when_to_come_again(narrow: Serving, api: Api):
    narrow.engine.pause_after = 0
    running = asyncio.ensure_future(api.ask(narrow))
    await narrow.engine.paused.wait()
    refused = await api.ask(narrow)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 0
    narrow.engine.resume.set()
    assert (await running).status_code == 200


async def test_unknown_fields_tools_and_parts_are_never_refused(gateway: Serving, api: Api, caplog):
    said = [{"role": "user", "content": [{"type": "hologram", "data": "x"}]}]
    tools = [{"type": "teleport_20990101", "name": "beam"}, api.tool]
    answer = await api.ask(gateway, tools=tools, **UNKNOWN_FIELDS, **{api.said: said})
    assert answer.status_code == 200, answer.text
    (record,) = await gateway.records()
    assert [tool["function"]["name"] for tool in record.turn.conversation.tools] == ["read"]
    assert record.turn.conversation.messages[0].content == "[part omitted: this model reads text]"
    await api.ask(gateway, tools=tools)
    assert caplog.text.count("a tool of type 'teleport_20990101'") == 1


async def test_a_limit_of_tokens_beyond_the_context_is_cut_to_what_fits(gateway: Serving, api: Api):
    assert (await api.ask(gateway, **{api.limit: 10_000_000})).status_code == 200
    (record,) = await gateway.records()
    fits = gateway.engine.facts.context_length - len(record.turn.prompt_ids)
    assert record.turn.sampling.max_tokens == fits


async def test_usage_is_what_was_read_and_sampled(gateway: Serving, api: Api):
    usage = (await api.ask(gateway)).json()["usage"]
    (record,) = await gateway.records()
    counts = [usage.get(f"{name}_tokens") for name in ("prompt", "completion", "input", "output")]
    assert [count for count in counts if count is not None] == [
        len(record.turn.prompt_ids),
        len(record.turn.sampled.ids),
    ]


async def test_feedback_is_given_by_the_id_of_the_response(gateway: Serving, api: Api):
    response = (await api.ask(gateway)).json()["id"]
    given = await gateway.http.post(
        "/feedback", json={"response_id": response, "thumb": "down"}, headers=gateway.owner
    )
    assert given.json()["trains"] is True
    (record,) = await gateway.records()
    assert record.state is State.ANSWERED
    assert record.next_state.feedback.reward == -1


async def test_a_text_that_cannot_fit_is_a_400_in_the_words_that_clients_look_for(gateway: Serving, api: Api):
    """Slightly too long, much too long, and far too long to be counted."""
    for words in ("long " * 600, "long " * 4000, "long " * 400_000):
        refused = await api.ask(gateway, **{api.said: [{"role": "user", "content": words}]})
        assert refused.status_code == 400
        found = re.search(
            r"maximum context length is (?P<most>\d+) tokens.* resulted in (?P<tokens>\d+) tokens"
            r"|prompt is too long[^0-9]*(?P<own>\d+)\s*tokens?\s*>\s*(?P<limit>\d+)",
            refused.json()["error"]["message"],
        )
        most, tokens = found["most"] or found["limit"], found["tokens"] or found["own"]
        assert int(tokens) >= int(most) == gateway.engine.facts.context_length


async def test_trailing_messages_of_the_user_are_one_answer(gateway: Serving, api: Api):
    await api.ask(gateway)
    reply = {"role": "assistant", "content": "Hello there."}
    more = [{"role": "user", "content": text} for text in ("No.", "The other one.")]
    await api.ask(gateway, **{api.said: [*USER, reply, *more]})
    answered, _ = await gateway.records()
    assert [message.content for message in answered.next_state.messages] == ["No.", "The other one."]
